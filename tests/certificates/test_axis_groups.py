"""Groups along an axis, and operands that one member loads for others: which mappings of them are in the space, and what the
search finds there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.certificates.exhaustive import draw_batched, draw_chip, draw_hierarchy
from tests.certificates.test_search import compare
from tests.validation.test_mesh_attention import small
from validation.mesh.attention import DATAFLOWS, FLASH, Run, largest_slice, mapping
from validation.mesh.attention import workload as dataflow_workload

from halley import Problem, load_chip, optimise
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip, Level, Topology
from halley.ir.mapping import Collective, CollectiveKind, walk
from halley.ir.workload import Workload
from halley.mapping.space.hierarchy import divisions
from halley.workloads import attention, gemm, gemm_softmax

BLOCK_MARKS = (pytest.mark.medium, pytest.mark.slow)


def draw_copying(draw: random.Random) -> Chip:
    """A chip with an axis of four members whose network copies, sometimes beside one of two; members mostly load for
    themselves."""
    chip = (draw_chip if draw.random() < 0.5 else draw_hierarchy)(draw)
    if draw.random() < 0.7:  # no memory between the outermost one and those of the members
        chip = _without_middle(chip)
    sizes = draw.choice([(4,), (4,), (4, 2)])

    def level(each: Level, last: bool) -> Level:
        if not last:
            return replace(each, network=None)
        network = each.network or next(other.network for other in draw_chip(random.Random(0)).levels if other.network)
        topology = draw.choice([Topology.LINE, Topology.LINE, Topology.RING])
        base = replace(network.axes[0], topology=topology, multicast=True, reduction=draw.random() < 0.7)
        axes = tuple(replace(base, name=name, size=size) for name, size in zip("xy", sizes, strict=False))
        return replace(each, network=replace(network, axes=axes, multicast=draw.random() < 0.2))

    return replace(chip, levels=tuple(level(each, each is chip.levels[-1]) for each in chip.levels))


def _without_middle(chip: Chip) -> Chip:
    outer, last = chip.levels[0], chip.levels[-1]
    names, memory = {own.name for own in last.memories}, last.memories[0].name
    assert chip.matrix is not None
    reads = {role: tuple(name if name in names else memory for name in own) for role, own in chip.matrix.reads.items()}
    return replace(chip, levels=(outer, last), matrix=replace(chip.matrix, reads=reads))


def draw_small(draw: random.Random) -> Workload:
    """A product, with a softmax or alone, or attention, of a few elements."""
    m, n, k = (draw.randint(1, 4) for _ in range(3))
    kind = draw.choice(["gemm", "gemm", "gemm-softmax", "attention"])
    match kind:
        case "gemm":
            return gemm(m, n, k)
        case "gemm-softmax":
            return gemm_softmax(m, n, 1)
        case _:
            return attention(1, 1, 1, draw.choice([1, 2, 4]), 2, 1, value_dim=1, variant="online")


@pytest.mark.parametrize(
    "drawn", [draw_small, pytest.param(draw_batched, marks=pytest.mark.slow)], ids=lambda drawn: drawn.__name__
)
@pytest.mark.parametrize("block", [pytest.param(block, marks=BLOCK_MARKS[block > 0]) for block in range(8)])
def test_search_in_groups_equals_exhaustive_enumeration(block: int, drawn: Callable[[random.Random], Workload]) -> None:
    """Optimum, front and size of the space, on chips whose axes may be in groups."""
    outcomes: Counter[str] = Counter()
    seed = 1000 * block
    while outcomes.total() - outcomes["large"] < 2:
        outcomes[compare(seed, 1500, drawn, draw_copying)] += 1
        seed += 1


@pytest.mark.parametrize("name", ["edge", "cloud", "h100", "wse-2", "tpu-v4", "simba-like", "eyeriss-like"])
def test_axes_of_networks_that_do_not_copy_stay_whole(name: str) -> None:
    assert divisions(load_chip(name)) == (load_chip(name),)


def test_groups_are_powers_of_two_that_divide_the_axes() -> None:
    sizes = {axis.name: axis.size for chip in divisions(small(12)) for _, axis in chip.axes}
    assert sizes == {"x": 12, "y": 12, "x/2": 6, "x%2": 2, "y/2": 6, "y%2": 2, "x/4": 3, "x%4": 4, "y/4": 3, "y%4": 4}


def fastest_dataflow(chip: Chip, tiles: int, heads: int, sequence: int, head: int) -> float:
    """The least time [s] of FlashAttention and FlatAttention on a mesh, in any groups and slices that fit."""
    times = []
    for name in DATAFLOWS:
        for group in [1] if name in FLASH else [2**power for power in range(1, tiles.bit_length())]:
            for largest in (2**power for power in range(4, largest_slice(chip, head).bit_length())):
                run = Run(name, 1, heads, sequence, head, tiles=tiles, group=group, largest=largest)
                estimate = evaluate(dataflow_workload(run), chip, mapping(run))
                if estimate.footprint["l1"] <= chip.memory("l1").capacity:
                    times.append(float(estimate.time))
    return min(times)


@pytest.mark.slow
def test_the_search_beats_the_published_dataflows_on_a_small_mesh() -> None:
    chip = small(4)
    problem = Problem(attention(1, 2, 2, 128, 128, 32, dtype="fp16"), chip, baselines=False, time_limit=40)
    assert optimise(problem).best.certificate.value <= fastest_dataflow(chip, 4, 2, 128, 32)


@pytest.mark.slow
def test_the_search_beats_flat_attention_on_32_x_32_tiles() -> None:
    """In groups, with operands that one tile loads for others."""
    work, chip = attention(4, 32, 32, 1024, 1024, 128, dtype="fp16"), load_chip("tile-mesh")
    best = optimise(Problem(work, chip, baselines=False, time_limit=120)).best
    flat = fastest_dataflow(chip, 32, 128, 1024, 128)
    assert best.certificate.value < flat
    steps = [node for _, node in walk(best.plan) if isinstance(node, Collective)]
    assert any(node.kind is CollectiveKind.BROADCAST for node in steps)
