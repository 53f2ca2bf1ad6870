"""What plans of training cost: the parts of a model, as they are sharded, put together to iterations, many plans at a time.

Plans of one pipeline that share out the same states are timed together: their times are arrays over the plans.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.formulas.training import sharded_bytes
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Shard
from halley.ir.workload import OpKind, Workload
from halley.network.bill import bill
from halley.planning.axes import Role, degree
from halley.planning.communication import Communication
from halley.planning.data_parallel import Block, Blocks, CollectiveTime, DataParallel, Sharded
from halley.planning.iteration import Iteration, Optimizer, Training, iteration_time
from halley.planning.layouts import local_extents
from halley.planning.machine import machine
from halley.planning.megatron_iteration import AROUND
from halley.planning.memory import Memory, in_flight, memory
from halley.planning.part_costs import ModelCosts, PartCosts, Room
from halley.planning.plan import Exposed, Load, Plan, PlanCost, TrainingProblem
from halley.planning.schedule import Pipeline, deal
from halley.workloads.training import training_model

T = TypeVar("T")
Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

WORD = 2
"""Bytes of an element of an activation."""

NORM_BYTES = 4
"""The norm of the gradients, which all chips sum: one number in fp32."""


@dataclass(frozen=True, slots=True)
class Case:
    """How one plan communicates, and what its parts cost."""

    communication: Communication
    costs: ModelCosts


@dataclass(frozen=True, slots=True)
class Batch:
    """Plans that are timed together: their ``pipeline``, what they share out, whether the host keeps the optimizer's state."""

    pipeline: Pipeline
    sharded: Sharded
    offload: bool


def training_of(problem: TrainingProblem, batch: Batch, cases: Sequence[Case]) -> Training:
    """The iterations of plans, with arrays over ``cases``."""
    kinds = cases[0].costs.layers
    costs, which = _distinct([case.costs for case in cases], [id(case.costs) for case in cases])
    parts = [_block(each, which) for each in zip(*(each.parts for each in costs), strict=True)]
    ranks = np.array([degree(case.communication.assignment, Role.DATA) for case in cases], np.float64)
    data = DataParallel(ranks, batch.sharded, _joint(cases), problem.recipe)
    onward = _transfers(problem, batch, cases)
    return Training(
        batch.pipeline,
        dealt_parts(parts, kinds, batch.pipeline),
        data,
        optimizer_of(problem, batch.offload, norm_reductions(cases)),
        onward,
        onward,
        holding=False,
        tied=_tied_sums(problem, batch, cases),
    )


def dealt_parts(parts: Sequence[Block], kinds: Sequence[int], pipeline: Pipeline) -> tuple[Blocks, ...]:
    """Chunks of a model whose ``parts`` are an embedding, ``kinds`` of layers with their counts, and a head: contiguous, and as
    even in layers as can be. Chunks that are alike are one object.

    >>> chunks = dealt_parts([Block(0.1, 0.2), Block(1, 2), Block(3, 4), Block(0.3, 0.6)], [2, 4], Pipeline(3, 8))
    >>> [[block.forward for block in chunk] for chunk in chunks]
    [[0.1, 1, 1], [3, 3], [3, 3, 0.3]]
    """
    order = [kind for kind, count in enumerate(kinds, 1) for _ in range(count)]
    counts = deal(len(order), pipeline.last + 1)
    made: dict[tuple[int, ...], Blocks] = {}
    found = []
    for chunk, (end, count) in enumerate(zip(accumulate(counts), counts, strict=True)):
        inside = [*([0] if chunk == 0 else []), *order[end - count : end], *([-1] if chunk == pipeline.last else [])]
        found.append(made.setdefault(tuple(inside), tuple(parts[place] for place in inside)))
    return tuple(found)


def optimizer_of(problem: TrainingProblem, offload: bool, norm_reduction: Number) -> Optimizer:
    """The optimizer's step on a chip of the system, its gradients clipped."""
    chip, efficiency = machine(problem.system.chip), problem.efficiency
    host = problem.system.host
    link = min(host.link.bandwidth, host.bandwidth) if offload and host else None
    bandwidth = efficiency.memory * chip.memory
    return Optimizer(bandwidth, efficiency.launch, True, norm_reduction, link, AROUND)


def _distinct(given: Sequence[T], keys: Sequence[Hashable]) -> tuple[list[T], Integers]:
    """The first of each key, and for all which of them it is."""
    places: dict[Hashable, int] = {}
    which = np.array([places.setdefault(key, len(places)) for key in keys])
    firsts = np.unique(which, return_index=True)[1]
    return [given[place] for place in firsts], which


def _block(parts: Sequence[PartCosts], which: Integers) -> Block:
    names = ("forward", "backward", "recompute", "parameters", "activation", "working")
    return Block(*(np.array([getattr(part, name) for part in parts], np.float64)[which] for name in names))


def _joint(cases: Sequence[Case]) -> CollectiveTime:
    """Collectives over data-parallel ranks of all cases at once: each network is asked once."""
    rows: dict[object, list[int]] = {}
    for row, case in enumerate(cases):
        rows.setdefault(case.communication.data_key, []).append(row)
    groups = [(cases[where[0]].communication, np.array(where)) for where in rows.values()]

    def time(kind: CollectiveKind, payload: Number) -> Number:
        given = np.broadcast_to(payload, len(cases))
        found = np.empty(len(cases))
        for communication, where in groups:
            found[where] = communication.data(kind, given[where])
        return found

    return time


def _transfers(problem: TrainingProblem, batch: Batch, cases: Sequence[Case]) -> Sequence[Number]:
    """[chunks - 1] of an activation to the next chunk [s]; as long for its gradient."""
    pipeline = batch.pipeline
    if pipeline.stages == 1:
        return ()
    # chunks that follow each other lie on stages that follow each other, the first after the last
    stages = range(pipeline.stages if pipeline.chunks > 1 else pipeline.stages - 1)
    keys = [
        (case.communication.pipeline_key, case.communication.mesh, case.communication.ranks(Role.DATA), case.costs.boundary)
        for case in cases
    ]
    distinct, which = _distinct(cases, keys)
    sizes = [boundary_bytes(problem, batch, case) for case in distinct]
    times = [[case.communication.transfer(stage, size) for stage in stages] for case, size in zip(distinct, sizes, strict=True)]
    table = np.array(times)[which]
    return [table[:, chunk % pipeline.stages] for chunk in range(pipeline.last)]


def boundary_bytes(problem: TrainingProblem, batch: Batch, case: Case) -> int:
    """What a chip has of a microbatch's activation between two layers [B], in the layout in which parts meet."""
    data = degree(case.communication.assignment, Role.DATA)
    extents = {
        "b": problem.batch // (data * batch.pipeline.microbatches),
        "m": problem.sequence,
        "k": problem.shape.model,
    }
    splits = [item.dim if isinstance(item, Shard) else "" for item in case.costs.boundary]
    return math.prod(local_extents(extents, splits, case.communication.mesh).values()) * WORD


def _tied_sums(problem: TrainingProblem, batch: Batch, cases: Sequence[Case]) -> Floats:
    """[cases] the first and the last stage send each other half of the gradients of a tied table, then the sums [s]; each chip
    those that are its own after the reductions over data-parallel ranks."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return np.zeros(len(cases))
    found = []
    for case in cases:
        parameters = min(case.costs.embedding.parameters, case.costs.head.parameters)
        own = 1 if batch.sharded is Sharded.NOTHING else degree(case.communication.assignment, Role.DATA)
        half = sharded_bytes(parameters, problem.recipe.gradient, own) / 2
        found.append(2.0 * float(case.communication.transfer(batch.pipeline.stages - 1, half)))
    return np.array(found)


def norm_reductions(cases: Sequence[Case]) -> Floats:
    """[cases] the norm of the gradients, summed over the ranks of data and model [s]."""
    keys = [(case.communication.data_key, case.communication.model_key) for case in cases]
    distinct, which = _distinct(cases, keys)
    found = []
    for case in distinct:
        axes = tuple(axis.name for axis in case.communication.mesh)
        model = case.communication.model(CollectiveKind.ALL_REDUCE, axes, NORM_BYTES) if axes else 0.0
        found.append(float(case.communication.data(CollectiveKind.ALL_REDUCE, NORM_BYTES)) + model)
    return np.array(found)[which]


def plan_cost(problem: TrainingProblem, plan: Plan, case: Case) -> PlanCost:
    """All that an iteration of one plan costs."""
    training = training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case])
    timed, held = iteration_time(training), memory(training)
    chip = machine(problem.system.chip)
    chips, count = problem.system.chips, plan.pipeline.microbatches
    macs = total([part.macs * times for part, times in case.costs.counted])
    return PlanCost(
        time=float(timed.time[0]),
        account={name: float(part[0]) for name, part in timed.breakdown().items()},
        memory=_stages(held),
        offloaded=tuple(held.offloaded[:, 0].tolist()),
        capacity=problem.capacity,
        parts=case.costs,
        exposed=tuple(_exposed(plan, case, timed)),
        loads=tuple(_loads(problem, plan, case)),
        model_work=2.0 * problem.batch * model_macs(problem),
        hardware_work=2.0 * macs * count * plan.data * plan.model,
        peak=2.0 * chips * chip.mac_rate("bf16"),
        tokens=problem.tokens,
        bill=bill(problem.system),
    )


def model_macs(problem: TrainingProblem) -> float:
    """Multiply-accumulates of the products of a sequence, forward and backward: a backward has twice as many."""
    model = training_model(problem.shape, 1, problem.sequence)
    return 3.0 * math.fsum(part.count * _products(part.workload) for part in model.parts)


def _products(work: Workload) -> float:
    points = [np.prod([float(work.dims[dim]) for dim in op.dims]) for op in work.ops if op.kind is OpKind.CONTRACT]
    return float(total(points))


def _stages(held: Memory) -> tuple[dict[str, float], ...]:
    parts = held.breakdown()
    return tuple({name: float(part[stage, 0]) for name, part in parts.items()} for stage in range(len(held.total)))


def stage_parts(plan: Plan, costs: ModelCosts, stage: int) -> list[tuple[PartCosts, int]]:
    """The parts of the model that a stage has, and how often."""
    counts = held_parts(plan, costs.layers, stage).sum(axis=0).tolist()
    return [(part, count) for part, count in zip(costs.parts, counts, strict=True) if count]


def held_parts(plan: Plan, kinds: Sequence[int], stage: int) -> NDArray[np.int64]:
    """[chunks of the stage, parts] how many of each part of the model they have: embedding, ``kinds`` of layers, head."""
    starts, ends = np.cumsum((0, *kinds[:-1])), np.cumsum(plan.layers)
    found = np.zeros((plan.pipeline.chunks, len(kinds) + 2), np.int64)
    for place, chunk in enumerate(range(stage, plan.pipeline.last + 1, plan.pipeline.stages)):
        first, last = ends[chunk] - plan.layers[chunk], ends[chunk]
        found[place, 1:-1] = np.clip(np.minimum(last, starts + kinds) - np.maximum(first, starts), 0, None)
        found[place, [0, -1]] = chunk == 0, chunk == plan.pipeline.last
    return found


def _exposed(plan: Plan, case: Case, timed: Iteration) -> list[Exposed]:
    """What the stage that is done last waits for, over all microbatches."""
    count, found = plan.pipeline.microbatches, dict[str, float]()
    for part, times in stage_parts(plan, case.costs, int(timed.stage[0])):
        for kind, time in part.exposed.items():
            found[str(kind)] = found.get(str(kind), 0.0) + count * times * time
    account = {name: float(part[0]) for name, part in timed.breakdown().items()}
    between = [(Role.PIPELINE, "transfer", account["transfers"])]
    batch = [(Role.DATA, name, account[name]) for name in ("sharding", "reduction", "gather")]
    listed = [*((Role.MODEL, kind, time) for kind, time in found.items()), *between, *batch]
    return [Exposed(role, kind, time) for role, kind, time in listed if time]


def _loads(problem: TrainingProblem, plan: Plan, case: Case) -> list[Load]:
    """What a chip of the busiest stage asks of its engine, its memory, and each part of an axis that its ops use."""
    chip, count, stages = machine(problem.system.chip), plan.pipeline.microbatches, range(plan.pipeline.stages)
    parts = max((stage_parts(plan, case.costs, s) for s in stages), key=lambda own: sum(part.time * n for part, n in own))
    found = [
        Load("matrix engine", 2.0 * count * total([part.macs * n for part, n in parts]), 2.0 * chip.mac_rate("bf16"), "op"),
        Load("memory", count * total([part.traffic * n for part, n in parts]), chip.memory, "B"),
    ]
    moved: dict[str, float] = {}
    for part, times in parts:
        for _, step in part.sharding.steps:
            for axis in step.axes:
                moved[axis] = moved.get(axis, 0.0) + count * times * step.bytes
    rates = {axis.name: axis.link.bandwidth for axis in problem.system.axes}
    return [*found, *(Load(f"network {axis}", size, rates[axis], "B") for axis, size in moved.items())]


def room_left(
    problem: TrainingProblem, plan: Plan, case: Case, least: tuple[Floats, Floats] | None = None
) -> tuple[Room, float]:
    """What is left for weights and kept activations on a chip of the fullest stage, and what a parameter takes there for good
    [B]: its share where data-parallel ranks share it out.

    Set aside is what these shardings work in; or, given the ``least`` that passes of each part work in [B], and the least
    parameters of each [parts], what all shardings do: those that do not fit into this room fit nowhere.
    """
    held = memory(training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case]))
    stage = int(held.total[:, 0].argmax())
    recipe, ranks, parts = problem.recipe, plan.data, case.costs.parts
    kinds = [(recipe.weight, Sharded.PARAMETERS), (recipe.gradient, Sharded.GRADIENTS)]
    kinds += [] if plan.offload else [(recipe.state, Sharded.OPTIMIZER)]
    resident = total([word / ranks if plan.sharded >= share else word for word, share in kinds])
    numbers = held_parts(plan, case.costs.layers, stage)
    counts = numbers.sum(axis=0)
    has = counts > 0
    # of the moment when most is kept, the part that is in flight least stands for all
    moments = in_flight(plan.pipeline, stage) @ numbers
    fullest = moments[int((moments @ np.array([part.activation for part in parts])).argmax())]
    flying = float((fullest[has] / counts[has]).min())
    aside = float(held.working[stage, 0])
    if least is not None:
        own = np.array([part.working for part in parts])[has].max()
        most = np.array([part.parameters for part in parts])[has].max()
        working, parameters = (each[has].max() for each in least)
        aside = float(working + (aside - own) * parameters / most)
    return Room(problem.capacity - aside, tuple(counts.tolist()), flying), resident
