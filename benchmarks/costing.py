"""Mappings costed per second: one by one, any together, all combinations, and by the search as a whole; on one core.

A mapping counts when its time, its energy and its footprint in every memory were computed, for the whole of it: both stages of
the fusion, all tile sizes open, one shape of each frame. *Any mappings* are drawn at random from the space, in no order. *All
combinations* of tile chains of the dims are costed as a grid: what fewer dims change is computed once for many. The programs
have the terms of the formulas as they are, as those with which the search costs single mappings; the normal form, of which it
makes bounds, is some 15 times as long for a whole tree. Measured is CPU time, the best of some runs, without making programs
and tables, which takes some hundredths of a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.measure import Measurement, per_second
from halley.cost.evaluate import evaluate
from halley.cost.programs.grid import SWITCH
from halley.cost.programs.program import Array, Indices, Program
from halley.errors import BadInput
from halley.formulas.numbers import Number
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node
from halley.ir.workload import Workload
from halley.mapping.bounds.shapes import Trees
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.tile_chains import ChainTree
from halley.workloads import gemm_softmax

NUMPY_TARGET = 3e6
ACCELERATOR_TARGET = 5e7
TOGETHER = 1 << 13
"""Mappings drawn at random and costed together."""

NUMPY_OUTER, ACCELERATOR_OUTER = 4, 12
"""Tile chains of each dim but the last in a grid."""

INNER = 1 << 12
"""Tile chains of the last dim in a grid."""

RUNS = 3


class Family(NamedTuple):
    """Mappings of one structure: how one is built, the program of their costs with its tables, the chains of tile sizes of each
    dim, and the nodes that stand for a single chain. The outputs are time, energy, and a footprint for each of the capacities."""

    build: Callable[[Mapping[str, Number]], Node]
    program: Program
    tables: Sequence[Array]
    trees: Mapping[str, ChainTree]
    chains: Mapping[str, Indices]
    memories: Sequence[str]
    capacities: Sequence[float]

    def some(self, outer: int) -> dict[str, Indices]:
        """So many chains of each dim, and `INNER` of the last one, spread over all, in the order of least work."""
        order = self.program.order({dim: len(nodes) for dim, nodes in self.chains.items()})
        numbers = {**dict.fromkeys(order, outer), order[-1]: INNER}
        return {dim: _spread(self.chains[dim], number) for dim, number in numbers.items()}


def _spread(nodes: Indices, number: int) -> Indices:
    """At most so many of these, evenly over all."""
    return nodes[np.linspace(0, len(nodes) - 1, min(number, len(nodes))).astype(np.int64)]


def family(workload: Workload, chip: Chip, frame: Frame) -> Family:
    """A frame with the first shape of each stage, every tile size open."""
    trees = Trees()
    skeletons = [stage.skeletons[0] for stage in frame.stages]
    own = [slot for skeleton in skeletons for slot in skeleton.slots]
    outer = tuple((name,) for name in (*workload.inputs, *workload.outputs))

    def build(tiles: Mapping[str, Number]) -> Node:
        return Hold(chip.levels[0].memories[0].name, outer, frame.tree(tiles, [shape.build(tiles) for shape in skeletons]))

    estimate = evaluate(workload, chip, build(trees.symbols((*frame.shared, *own))))
    program = Program(None, [estimate.time, estimate.energy, *estimate.footprint.values()])
    of_dims = trees.of(frame.shared, own)
    tables = [of_dims[factor.kind].tables([factor])[0] for factor in program.factors]
    chains = {dim: tree.singles(np.array([0]))[0] for dim, tree in of_dims.items()}
    memories = list(estimate.footprint)
    return Family(build, program, tables, of_dims, chains, memories, [chip.memory(name).capacity for name in memories])


def families(workload: Workload, chip: Chip) -> list[Family]:
    """One of each frame that fuses the whole workload."""
    return [family(workload, chip, frame) for frame in frames(workload, hierarchy(chip), workload.ops)]


def together(group: Sequence[Family]) -> float:
    """Mappings per second [1/s] of any mappings: a chain per dim is drawn for each."""
    source, spent = np.random.default_rng(0), 0.0
    for item in group:
        drawn = {dim: source.choice(nodes, TOGETHER) for dim, nodes in item.chains.items()}
        spent += least_time(partial(item.program, item.tables, drawn, TOGETHER))
    return TOGETHER * len(group) / spent


def combinations(group: Sequence[Family], outer: int) -> float:
    """Mappings per second [1/s] over grids: the least time and energy that fit are found, with their mappings."""
    count, spent = 0, 0.0
    for item in group:
        choices = item.some(outer)
        spent += least_time(lambda item=item, choices=choices: item.program.grid(item.tables, choices).least(item.capacities))
        count += math.prod(len(nodes) for nodes in choices.values())
    return count / spent


def least_time(work: Callable[[], object]) -> float:
    """CPU time [s] of the fastest of some runs, as noise only slows; the first does not count."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def programs(workload: Workload, chip: Chip) -> Iterator[Measurement]:
    """With NumPy, then with the accelerator where it is installed."""
    group = families(workload, chip)
    for mode, outer, target in (("off", NUMPY_OUTER, NUMPY_TARGET), ("on", ACCELERATOR_OUTER, ACCELERATOR_TARGET)):
        before, SWITCH.mode = SWITCH.mode, mode
        try:
            by = "accelerator" if SWITCH.loops() else "NumPy"
            any_target = target if mode == "off" else None
            rate = together(group)
            yield Measurement(f"costing: GEMM-Softmax 4096^3, any mappings, {by}", rate, "mappings/s", any_target, most=False)
            rate = combinations(group, outer)
            yield Measurement(f"costing: GEMM-Softmax 4096^3, all combinations, {by}", rate, "mappings/s", target, most=False)
        except BadInput as error:
            print(f"no accelerator, so it is not measured: {error}")
        finally:
            SWITCH.mode = before


def measurements() -> Iterator[Measurement]:
    chip = load_chip("edge")
    small = gemm_softmax(512, 512, 64)
    plan = optimise(Problem(small, chip, baselines=False, fixed_variant=True)).best.plan
    rate = per_second(lambda: evaluate(small, chip, plan), 1)
    yield Measurement("costing: GEMM-Softmax mappings one by one", rate, "mappings/s")

    large = gemm_softmax(4096, 4096, 4096)
    yield from programs(large, chip)

    certificate = optimise(Problem(large, chip, baselines=False)).best.certificate
    rate = (certificate.costed + certificate.bounds) / certificate.seconds
    yield Measurement("costing: whole search of GEMM-Softmax 4096^3, edge", rate, "mappings and bounds/s")
