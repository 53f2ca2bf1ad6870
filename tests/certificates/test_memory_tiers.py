"""Chips with several memories that tensors may live in: capacity and bandwidth of the right one, and the best over all."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from halley.errors import BadInput, Infeasible
from halley.io.chips.load import load_chip
from halley.ir.hardware import Axis, Chip, Link, Memory, Topology
from halley.ir.system import Host, System
from halley.kernels.machine import PEAK, machine
from halley.report.plans.plan import memory_table
from halley.rewrite.recompute import Recompute
from halley.training.plan import HOST, Fixed, TrainingProblem
from halley.training.search.search import best_training_plan
from halley.training.spatial.model import SpatialModel
from halley.workloads.transformer import Transformer

SHAPE = Transformer("llama", 2, 256, 4, 2, 64, 512, 512, 128)
LINK = Link(25e9, 1e-6)


def with_capacity(name: str, capacity: float) -> Chip:
    """An SN40L whose memory ``name`` holds ``capacity`` bytes."""
    chip = load_chip("sn40l")

    def sized(memory: Memory) -> Memory:
        return replace(memory, capacity=capacity) if memory.name == name else memory

    return replace(chip, levels=tuple(replace(level, memories=tuple(map(sized, level.memories))) for level in chip.levels))


def problem(hbm: float = 64 * 2.0**30, home: str = "", **fixed: object) -> TrainingProblem:
    system = System("drawn", with_capacity("hbm", hbm), (Axis("x", 2, Topology.RING, LINK),), ("hbm", "ddr"))
    known = {"recompute": Recompute.NONE, "fused": True, "microbatch": 1, "stages": 1} | fixed
    return TrainingProblem(SHAPE, system, 4, 128, PEAK, fixed=Fixed(**known), home=home)  # type: ignore[arg-type]


def test_each_use_has_the_numbers_of_its_memory() -> None:
    near, far = problem(home="hbm"), problem(home="ddr")
    assert near.homes == ("hbm", "ddr")
    assert (near.capacity, near.memory.bandwidth, near.second) == (64 * 2**30, 2e12, ("ddr", 1.5 * 2**40, 200e9))
    assert (far.capacity, far.memory.bandwidth, far.second) == (1.5 * 2**40, 200e9, None)
    assert problem().memory == far.memory
    for each in (near, far):
        assert machine(each.chip).memory == each.memory.bandwidth == SpatialModel(each).rates.chip.bandwidth
        assert SpatialModel(each).rates.chip.sram == 1040 * 512 * 1024
    host = Host(1e12, 100e9, Link(50e9, 0.0))
    assert replace(far, system=replace(far.system, host=host)).second == (HOST, 1e12, 50e9)
    assert replace(near, system=replace(near.system, host=host)).second == near.second
    assert far.chip is far.system.chip


def test_an_unknown_memory_is_named() -> None:
    with pytest.raises(BadInput, match="expected one of hbm, ddr; got 'hbn'; did you mean 'hbm'"):
        problem(home="hbn")


@pytest.mark.parametrize(
    ("hbm", "fixed"),
    [
        *((hbm, {"data": 2}) for hbm in (64 * 2.0**30, 16e6, 2e6)),
        *(pytest.param(hbm, {}, marks=pytest.mark.slow) for hbm in (64 * 2.0**30, 12e6, 2e6)),
    ],
)
def test_the_best_of_all_memories(hbm: float, fixed: dict[str, object]) -> None:
    """As roomy, as tight as the state alone, too small: the best is that of the best memory, and the bound holds for all."""
    found = best_training_plan(problem(hbm, **fixed), others=0)
    times = [time_at(problem(hbm, home, **fixed)) for home in ("hbm", "ddr")]
    assert found.cost.time == pytest.approx(min(times), rel=1e-12)
    assert found.certificate.bound <= min(times)
    assert found.certificate.space["memories"] == 2
    assert found.problem.memory.name == found.cost.tier == ("hbm" if hbm > 5e6 else "ddr")


def time_at(one: TrainingProblem) -> float:
    """Of the best plan in one memory; infinite where none fits, which the error says of that memory."""
    try:
        return best_training_plan(one, others=0).cost.time
    except Infeasible as error:
        faults = str(error)
    assert f"{one.home}: expected at most" in faults
    return math.inf


def test_state_in_the_further_memory() -> None:
    """It takes the bandwidth of that memory, and no capacity of the nearer one."""
    here = best_training_plan(problem(home="hbm", offload=False, stages=1, data=2, sharded=None), others=0)
    away = best_training_plan(problem(home="hbm", offload=True, stages=1, data=2, sharded=None), others=0)
    load = next(load for load in away.cost.loads if load.resource == "ddr")
    assert load.capacity == 200e9
    assert load.demand == away.cost.offloaded[0] > 0
    assert load.time <= away.cost.account["step"]
    assert away.cost.memory[0]["states"] == 0 < here.cost.memory[0]["states"]
    rows = {row[0]: row for row in memory_table(away.cost).rows}
    assert "in ddr" in rows
    assert rows["in all"][3] == "of 64 GiB, hbm"
    # asked for, it goes where there is a memory behind
    assert best_training_plan(problem(offload=True), others=0).cost.tier == "hbm"
