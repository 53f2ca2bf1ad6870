"""Output of a search: the best plan with its costs, the differences of other plans, and what to change where nothing fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from halley.errors import Fault
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.sharding.axes import assignment_text
from halley.training.help import chosen, smallest_change
from halley.training.plan import Alternative, Plan, PlanCost, TrainingProblem
from halley.training.search.floors import PlanFloors
from halley.units import format_bytes


def alternative(best: Plan, least: PlanCost, plan: Plan, cost: PlanCost) -> Alternative:
    """Another plan, compared with the best one."""
    slower = {name: time - least.account.get(name, 0.0) for name, time in cost.account.items()}
    parts = sorted(((name, time) for name, time in slower.items() if time), key=lambda each: -abs(each[1]))
    return Alternative(plan, cost, tuple(changes(best, plan)), tuple(parts))


def changes(best: Plan, plan: Plan) -> Iterator[str]:
    """Differences of a plan from the best one, in words."""
    if plan.assignment != best.assignment:
        yield assignment_text(plan.assignment)
    for name, before, after in (
        ("microbatch", best.microbatch, plan.microbatch),
        ("chunks", best.pipeline.chunks, plan.pipeline.chunks),
    ):
        if before != after:
            yield f"{name} {after}"
    if plan.pipeline.schedule is not best.pipeline.schedule:
        yield "GPipe" if plan.pipeline.schedule is PipelineSchedule.GPIPE else "1F1B"
    if plan.recompute is not best.recompute:
        yield f"recompute {plan.recompute}"
    if plan.sharded is not best.sharded:
        yield f"ZeRO {int(plan.sharded)}" if plan.sharded is not Sharded.NOTHING else "no ZeRO"
    if plan.offload != best.offload:
        yield "state offloaded" if plan.offload else "state on the chip"
    if plan.fused != best.fused:
        yield "attention fused" if plan.fused else "attention op by op"


def shortage(problem: TrainingProblem, floors: PlanFloors, fits: Callable[[TrainingProblem], bool]) -> Fault:
    """Why no plan fits: the least need of any plan, and what would help. ``fits``: whether a problem has one."""
    space = floors.space
    everything = np.arange(space.layouts)
    needs = np.stack([floors.memories(everything, option) for option in range(len(space.options))], axis=1)
    needs = np.where(space.allowed, needs, np.inf)
    layout, option = np.unravel_index(int(needs.argmin()), needs.shape)
    plan, least = space.plan(int(layout), int(option)), float(needs[layout, option])
    got = f"at least {format_bytes(least)} with {assignment_text(plan.assignment)}, microbatch {plan.microbatch}"
    got += f", recompute {plan.recompute}, ZeRO {int(plan.sharded)}{', state offloaded' if plan.offload else ''}"
    where = f"{problem.shape.name} on {problem.system.name}, {problem.memory.name}"
    return Fault(where, f"at most {format_bytes(problem.capacity)} on a chip", got, _help(problem, least, fits))


def _help(problem: TrainingProblem, least: float, fits: Callable[[TrainingProblem], bool]) -> str:
    """The smallest change that helps: of a choice that the user fixed, or else more chips."""
    if chosen(problem.fixed) and (words := smallest_change(problem, fits)):
        return words
    factor = 2 ** math.ceil(math.log2(max(least / problem.capacity, 1.000001)))
    return f"take about {factor * problem.system.chips} chips, or chips with {format_bytes(least)}"
