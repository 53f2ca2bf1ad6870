"""Children that hand over and work on successive rounds: times by hand and simulated, results and counts as of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.reference.trees import chip, each, execute, nest, op, workload

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip, Memory
from halley.ir.mapping import Compute, Hold, Node, Overlap, Parallel, Sequence, Temporal, walk
from halley.ir.workload import OpKind, Workload
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate


def chained() -> Workload:
    """Scores, their double, and a second product."""
    ops = (
        op("S", OpKind.CONTRACT, "A B", "S", "mnk"),
        op("T", OpKind.MAP, "S S", "T", "mn", function="add"),
        op("O", OpKind.CONTRACT, "T V", "O", "men"),
    )
    return workload({"m": 12, "n": 8, "k": 4, "e": 4}, "A:mk B:kn S:mn T:mn V:ne O:me", ops, "O")


def machine() -> Chip:
    """Engines that memories never hold up."""

    def fast(memory: Memory) -> Memory:
        return replace(memory, read_bandwidth=1e30, write_bandwidth=1e30)

    made = chip(3, 1)
    levels = tuple(replace(level, memories=tuple(map(fast, level.memories))) for level in made.levels)
    network = made.levels[2].network
    assert network is not None
    open_port = replace(network, port=None)
    return replace(made, levels=(*levels[:2], replace(levels[2], network=open_port)))


def rounds(tile: int, buffers: int, body: Callable[[tuple[Node, ...]], Node], memory: str = "obuf") -> Node:
    held = Hold(memory, (("S", "T"),), body(each("S", "T", "O")), buffers)
    return nest(("dram", "A B V O"), Temporal("m", tile, held))


def of_computes(estimate: Estimate, tree: Node) -> list[float]:
    """The time of each op as a phase, in order."""
    return [float(estimate.nodes[path].time) for path, node in walk(tree) if isinstance(node, Compute)]


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 6, 12])
def test_the_busiest_engine_and_the_ends_of_the_first_and_last_round(tile: int) -> None:
    item, on = chained(), machine()
    in_turn = evaluate(item, on, rounds(tile, 1, Sequence))
    times = of_computes(in_turn, rounds(tile, 1, Sequence))
    first, middle, last = times
    tree = rounds(tile, 3, Overlap)
    assert not faults(tree, item, on)
    busiest = max(first + last, middle)  # both products use the one matrix engine
    expected = busiest + (sum(times) - busiest) / (12 / tile)
    assert float(evaluate(item, on, tree).time) == pytest.approx(expected, rel=1e-9)
    assert float(in_turn.time) == pytest.approx(sum(times), rel=1e-9)


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 6, 12])
def test_two_stages_take_what_the_simulation_says(tile: int) -> None:
    item, on = chained(), machine()
    cut = replace(item, ops=item.ops[:2], outputs=("T",), tensors={n: t for n, t in item.tensors.items() if n not in "VO"})
    cut = replace(cut, dims={"m": 12, "n": 8, "k": 4})
    tree = nest(("dram", "A B T"), Temporal("m", tile, Hold("obuf", (("S",),), Overlap(each("S", "T")), 2)))
    assert not faults(tree, cut, on)
    assert float(evaluate(cut, on, tree).time) == pytest.approx(simulate(cut, on, tree).time, rel=1e-9)


@pytest.mark.parametrize("kind", [Sequence, Overlap])
def test_one_buffer_makes_every_round_wait(kind: Callable[[tuple[Node, ...]], Node]) -> None:
    item, on = chained(), machine()
    time = float(evaluate(item, on, rounds(3, 1, Sequence)).time)
    tree = rounds(3, 1, kind)
    assert float(evaluate(item, on, tree).time) == pytest.approx(time, rel=1e-9)
    assert simulate(item, on, tree).time == pytest.approx(time, rel=1e-9)


def test_members_of_their_own_work_on_rounds_too() -> None:
    """Each product has an engine of its own then, and the slowest stage sets the time."""
    item, on = chained(), machine()
    tree = rounds(3, 3, lambda nodes: Parallel("cluster", "x", (1, 1, 1), nodes), "glb")
    assert not faults(tree, item, on)
    estimate = evaluate(item, on, tree)
    times = of_computes(estimate, tree)
    assert float(estimate.time) == pytest.approx(max(times) + (sum(times) - max(times)) / 4, rel=1e-9)
    assert simulate(item, on, tree).time == pytest.approx(float(estimate.time), rel=1e-9)


def test_results_and_traffic_are_those_of_sequential_stages() -> None:
    item = chained()
    turn, arrays = execute(item, rounds(5, 1, Sequence))
    overlapped, _ = execute(item, rounds(5, 3, Overlap))
    np.testing.assert_array_equal(turn.outputs["O"], overlapped.outputs["O"])
    np.testing.assert_allclose(overlapped.outputs["O"], 2 * arrays["A"] @ arrays["B"] @ arrays["V"])
    assert turn.counters.reads == overlapped.counters.reads
    assert turn.counters.writes == overlapped.counters.writes
