"""Demands of an iteration on each resource of a chip: its engine, its memory, every level of the network, and a second tier of
memory.

Collectives count with the bytes of `halley.sharding.loads.sent_by_axis`. The norm of the gradients, one number, is omitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from halley.formulas.numbers import ceil_div
from halley.formulas.timing import total
from halley.formulas.training import optimizer_traffic, sharded_bytes
from halley.ir.mapping import CollectiveKind
from halley.kernels.machine import machine
from halley.network.time.phased import sending_bandwidth
from halley.pipeline.data_parallel import Recipe, Sharded
from halley.pipeline.iteration import EXTRA_OPTIMIZER_BYTES_PER_PARAMETER
from halley.sharding.axes import Role, parts_of
from halley.sharding.loads import ResourceLoad, crossed, sent_by_axis
from halley.training.part_costs import PartCosts
from halley.training.plan import HOST, Plan, Traffic, TrainingProblem

TRANSFER = "transfer"
"""An activation or its gradient, sent from stage to stage."""

DATA_COLLECTIVES: Mapping[Sharded, tuple[tuple[CollectiveKind, int, int], ...]] = {
    Sharded.NOTHING: ((CollectiveKind.ALL_REDUCE, 0, 1),),
    Sharded.OPTIMIZER: ((CollectiveKind.REDUCE_SCATTER, 0, 1), (CollectiveKind.ALL_GATHER, 0, 1)),
    Sharded.GRADIENTS: ((CollectiveKind.REDUCE_SCATTER, 1, 0), (CollectiveKind.ALL_GATHER, 0, 1)),
    Sharded.PARAMETERS: ((CollectiveKind.ALL_GATHER, 2, 0), (CollectiveKind.REDUCE_SCATTER, 1, 0)),
}
"""Collectives over data-parallel ranks: their number per microbatch, and after the last one (`halley.pipeline.data_parallel`).
"""


@dataclass(frozen=True, slots=True)
class StageParts:
    """A stage of a plan: its number; its ``parts`` of the model, with their numbers; ``boundary`` [B]: a chip's part of an
    activation between layers; ``tied`` [B]: of gradients of a table that the first and the last stage share, 0 without one."""

    number: int
    parts: Sequence[tuple[PartCosts, int]]
    boundary: int
    tied: float = 0.0


def traffic(problem: TrainingProblem, plan: Plan, stage: StageParts) -> list[Traffic]:
    """What a chip of a stage sends in an iteration; equal collectives are one entry."""
    found: dict[tuple[Role, str, tuple[str, ...], float], Traffic] = {}
    for item in (*_model(problem, plan, stage), *_batch(problem, plan, stage), *_pipeline(plan, stage)):
        key = item.role, item.kind, item.axes, item.bytes
        found[key] = replace(item, count=item.count + found[key].count) if key in found else item
    return list(found.values())


def _model(problem: TrainingProblem, plan: Plan, stage: StageParts) -> Iterator[Traffic]:
    """Collectives between the chips that share ops."""
    own = {part.axis: part.size for part in parts_of(plan.assignment, Role.MODEL)}
    for part, times in stage.parts:
        for move, step in part.sharding.steps:
            if step.kind is not None:
                count = times * plan.pipeline.microbatches / move.runs
                sent = sent_by_axis(problem.system, step.kind, {axis: own[axis] for axis in step.axes}, step.bytes)
                yield Traffic(Role.MODEL, str(step.kind), step.axes, count, step.bytes, sent)


def _batch(problem: TrainingProblem, plan: Plan, stage: StageParts) -> Iterator[Traffic]:
    """Collectives of parameters and gradients over data-parallel ranks."""
    ranks = {part.axis: part.size for part in parts_of(plan.assignment, Role.DATA)}
    if not ranks:
        return
    for part, times in stage.parts:
        for kind, each, last in DATA_COLLECTIVES[plan.sharded]:
            word = problem.recipe.weight if kind is CollectiveKind.ALL_GATHER else problem.recipe.gradient
            size = word * part.parameters
            count = times * (each * plan.pipeline.microbatches + last)
            yield Traffic(Role.DATA, str(kind), tuple(ranks), count, size, sent_by_axis(problem.system, kind, ranks, size))


def _pipeline(plan: Plan, stage: StageParts) -> Iterator[Traffic]:
    """Activations to the next chunk and gradients to the one before; of a tied table's gradients half to be reduced, then the
    sums of the other half."""
    stages, last, here = plan.pipeline.stages, plan.pipeline.last, stage.number
    if stages == 1:
        return
    chunks, each = range(here, last + 1, stages), plan.pipeline.microbatches
    sends = [
        (each * sum(chunk < last for chunk in chunks), (here + 1) % stages, float(stage.boundary)),
        (each * sum(chunk > 0 for chunk in chunks), (here - 1) % stages, float(stage.boundary)),
    ]
    if stage.tied and here in (0, stages - 1):
        sends.append((2, stages - 1 - here, stage.tied / 2))
    for count, there, size in sends:
        if count:
            axes = crossed(parts_of(plan.assignment, Role.PIPELINE), here, there)
            yield Traffic(Role.PIPELINE, TRANSFER, axes, count, size, dict.fromkeys(axes, size))


def loads(problem: TrainingProblem, plan: Plan, stage: StageParts, moved: Sequence[Traffic]) -> list[ResourceLoad]:
    """Demands of a chip of a stage on each resource; ``moved``: what it sends (`traffic`)."""
    chip, count, second = machine(problem.chip), plan.pipeline.microbatches, problem.second
    work = 2.0 * count * float(total([part.products * times for part, times in stage.parts]))
    passes = float(count * total([part.traffic * times for part, times in stage.parts]))
    parameters = float(total([part.parameters * times for part, times in stage.parts]))
    found = [
        ResourceLoad("matrix engine", work, 2.0 * chip.mac_rate("bf16"), "op"),
        ResourceLoad.of("memory", {"passes": passes, "optimizer": _step_bytes(plan, problem.recipe, parameters)}, chip.memory),
    ]
    for axis in reversed(problem.system.axes):
        sent = {str(role): math.fsum(i.count * i.sent.get(axis.name, 0.0) for i in moved if i.role is role) for role in Role}
        found.append(ResourceLoad.of(f"network {axis.name}", sent, sending_bandwidth(axis, axis.size)))
    if plan.offload and second:
        state = float(sharded_bytes(parameters, problem.recipe.state, plan.sharded.owners(plan.data)))
        found.append(
            ResourceLoad.of("link to the host" if second.name == HOST else second.name, {"state": state}, second.bandwidth)
        )
    return found


def _step_bytes(plan: Plan, recipe: Recipe, parameters: float) -> float:
    """Bytes that the optimizer moves in memory: its step, the separate kernels around it, and the norm, which reads the
    gradients."""
    own = float(ceil_div(parameters, plan.sharded.owners(plan.data)))
    step = float(optimizer_traffic(own, recipe.gradient, recipe.state, recipe.weight))
    return step + own * (EXTRA_OPTIMIZER_BYTES_PER_PARAMETER + recipe.gradient)
