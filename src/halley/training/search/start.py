"""A first plan of a large system: the best one of the same model on fewer data-parallel replicas, for as many sequences each.

A smaller system has a small space, which is searched in seconds. Its plan with more replicas is a plan of the large system, and
often close to the best: only collectives over data-parallel ranks change. It bounds the best time from above, and it is there
when the plans of the large system cannot all be bounded in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from halley.kernels.machine import machine
from halley.optim.divisors import divisors
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.training.part_bounds import model_bound
from halley.training.plan import Fixed, Plan, TrainingProblem

CHIPS_OF_START = 1024, 16384
"""Chips of a smaller system, from and to: few have a small space, and many have the memory that the model needs."""

MIN_RATIO = 8
"""A smaller system has at most this share of the chips."""

MAX_SIZES = 3
"""Smaller systems that are tried, each with more chips than the one before: the model may not fit into the first."""


def fewer_replicas(problem: TrainingProblem) -> Iterator[TrainingProblem]:
    """The problem on parts of the outermost axis, with the same share of the batch, from few chips to many. None where the system
    is small, where the axis has a shape, or where data-parallel ranks or parts of axes are fixed."""
    system, fixed = problem.system, problem.fixed
    outermost = system.axes[0] if system.axes else None
    if outermost is None or outermost.shape or system.chip.streams or fixed.data is not None or fixed.axes:
        return
    fewest, most = CHIPS_OF_START
    ratios = divisors(math.gcd(outermost.size, problem.batch))
    sizes = [each for each in reversed(ratios) if each >= MIN_RATIO and fewest <= system.chips // each <= most]
    for ratio in sizes[:MAX_SIZES]:
        axes = replace(outermost, size=outermost.size // ratio), *system.axes[1:]
        yield replace(problem, system=replace(system, axes=axes), batch=problem.batch // ratio)


def with_all_replicas(problem: TrainingProblem, plan: Plan) -> TrainingProblem:
    """The problem with all decisions of a plan of `fewer_replicas` fixed, except shardings of ops: its data-parallel ranks along
    the outermost axis are as many more as the system has chips more."""
    axes: dict[str, dict[Role, int]] = {axis.name: {} for axis in problem.system.axes}
    for part in plan.assignment:
        axes[part.axis][part.role] = part.size
    outermost, pipeline = problem.system.axes[0], plan.pipeline
    own = axes[outermost.name]
    own[Role.DATA] = outermost.size // (own.get(Role.PIPELINE, 1) * own.get(Role.MODEL, 1))
    data, stages, model = (math.prod(parts.get(role, 1) for parts in axes.values()) for role in Role)
    fixed = Fixed(
        data=data,
        stages=stages,
        model=model,
        microbatch=plan.microbatch,
        schedule=pipeline.schedule,
        chunks=pipeline.chunks,
        recompute=plan.recompute,
        sharded=plan.sharded,
        offload=plan.offload,
        fused=plan.fused,
        axes=axes,
        splits=problem.fixed.splits,
        boundary=problem.fixed.boundary,
    )
    return replace(problem, fixed=fixed)


def work_bound(problem: TrainingProblem) -> float:
    """A lower bound of all plans [s], without bounding any: the work of all sequences in one microbatch, divided evenly over all
    chips, at the rates of the chip.

    A microbatch of fewer sequences takes no less for each: operations and activations are in proportion to them, and weights are
    read once. A stage of a pipeline with an even share of the work is the fastest.
    """
    if problem.system.chip.streams:
        return 0.0
    chip = machine(problem.chip) if problem.searched is None else problem.searched.limits
    fixed, found = problem.fixed, list[float]()
    for recompute in Recompute if fixed.recompute is None else (fixed.recompute,):
        for fused in (True, False) if fixed.fused is None else (fixed.fused,):
            given = float(problem.batch), problem.sequence, float(problem.system.chips), chip, problem.efficiency
            bound = model_bound(problem.shape, *given, recompute, fused, problem.recipe, problem.searched is not None)
            found.append(math.fsum(float(part.time - part.excess) * count for part, count in bound.counted))
    return min(found)
