"""What a matrix engine states beyond its array: whole instructions, and sums in a wider type than their results."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from tests.reference.trees import chip, execute, gemm, nest

from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip, Dataflow, Granularity
from halley.ir.mapping import Compute
from halley.simulate.simulation import simulate


def engine(flow: Dataflow, **given: object) -> Chip:
    machine = chip(1, 1, flow=flow)
    assert machine.matrix is not None
    return replace(machine, matrix=replace(machine.matrix, **given))  # type: ignore[arg-type]


TREE = nest(("dram", "A B C"), ("ibuf", "A"), ("wbuf", "B"), ("obuf", "C"), ("m", 5), Compute("C"))


@pytest.mark.parametrize(
    ("flow", "cycles"),
    [
        # rows 5 -> 6 and 2 -> 3, columns 7 -> 8, terms of the sum 9 -> 10, on an array of 4 x 4: folds x (stream + skew)
        (Dataflow.WEIGHT, ceil(10 / 4) * ceil(8 / 4) * ((6 + 6) + (3 + 6))),
        (Dataflow.INPUT, ceil(10 / 4) * (ceil(6 / 4) + ceil(3 / 4)) * (8 + 6)),
        (Dataflow.OUTPUT, (ceil(6 / 4) + ceil(3 / 4)) * ceil(8 / 4) * (10 + 6)),
        (Dataflow.NONE, (6 + 3) * 8 * 10),
    ],
)
def test_tiles_take_the_cycles_of_whole_instructions(flow: Dataflow, cycles: int) -> None:
    workload, machine = gemm(7, 7, 9), engine(flow, granularity=Granularity(rows=3, columns=4, reduced=5))
    found = evaluate(workload, machine, TREE)
    assert float(found.busy["engine", "mxu"]) * 1e9 == pytest.approx(cycles)
    run = [each.stop - each.start for each in simulate(workload, machine, TREE).intervals if each.server.resource[0] == "engine"]
    assert sum(run) * 1e9 == pytest.approx(cycles)
    plain = evaluate(workload, engine(flow), TREE)
    assert (found.reads(), found.writes(), found.work()) == (plain.reads(), plain.writes(), plain.work())
    assert found.busy["engine", "mxu"] > plain.busy["engine", "mxu"]


def test_sums_take_the_room_of_their_own_type() -> None:
    """In the Hold in which the product makes them; bf16 everywhere else, in bytes that move too."""
    workload, machine = gemm(7, 7, 9), engine(Dataflow.WEIGHT, accumulators={"bf16": "fp32"})
    tree = nest(("dram", "A B C"), ("glb", "C"), ("ibuf", "A"), ("wbuf", "B"), ("obuf", "C"), ("m", 5), Compute("C"))
    done, _ = execute(workload, tree, machine)
    found, plain = (evaluate(workload, item, tree) for item in (machine, engine(Dataflow.WEIGHT)))
    assert found.footprint == done.counters.footprint
    assert (found.footprint["obuf"], plain.footprint["obuf"]) == (7 * 7 * 4, 7 * 7 * 2)
    for name in ("dram", "glb", "ibuf", "wbuf"):
        assert found.footprint[name] == plain.footprint[name]
    assert (found.reads(), found.writes(), found.time) == (plain.reads(), plain.writes(), plain.time)
