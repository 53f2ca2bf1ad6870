"""What plans of training cost: the parts of a model, as they are sharded, put together to iterations, many plans at a time.

Plans of one pipeline that share out the same states are timed together: their times are arrays over the plans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
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
from halley.planning.axes import Role
from halley.planning.communication import Communication, transfer_times
from halley.planning.data_parallel import Block, Blocks, CollectiveTime, DataParallel, Sharded, dealt_out
from halley.planning.iteration import AROUND, Iteration, Optimizer, Training, iteration_time
from halley.planning.layouts import local_extents
from halley.planning.machine import machine
from halley.planning.memory import Memory, in_flight, memory
from halley.planning.part_costs import ModelCosts, PartCosts, Room
from halley.planning.plan import Exposed, Plan, PlanCost, TrainingProblem
from halley.planning.schedule import Pipeline
from halley.planning.training_loads import Stage, loads, traffic
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
    costs, which = _distinct([case.costs for case in cases])
    parts = [_block(each, which) for each in zip(*(each.parts for each in costs), strict=True)]
    communications, at = _distinct([case.communication for case in cases])
    ranks = np.array([_data_ranks(each) for each in communications], np.float64)[at]
    data = DataParallel(ranks, batch.sharded, _joint(communications, at), problem.recipe)
    onward = _transfers(problem, batch, cases, costs, which, at)
    norms = np.array([_norm_reduction(each) for each in communications])[at]
    return Training(
        batch.pipeline,
        dealt_parts(parts, kinds, batch.pipeline),
        data,
        optimizer_of(problem, batch.offload, norms),
        onward,
        onward,
        holding=False,
        tied=_tied_sums(problem, batch, cases, ranks),
    )


@lru_cache(maxsize=1 << 12)
def _data_ranks(communication: Communication) -> int:
    return communication.ranks(Role.DATA)


def dealt_parts(parts: Sequence[Block], kinds: Sequence[int], pipeline: Pipeline) -> tuple[Blocks, ...]:
    """Chunks of a model whose ``parts`` are an embedding, ``kinds`` of layers with their counts, and a head.

    >>> chunks = dealt_parts([Block(0.1, 0.2), Block(1, 2), Block(3, 4), Block(0.3, 0.6)], [2, 4], Pipeline(3, 8))
    >>> [[block.forward for block in chunk] for chunk in chunks]
    [[0.1, 1, 1], [3, 3], [3, 3, 0.3]]
    """
    layers = [part for part, count in zip(parts[1:-1], kinds, strict=True) for _ in range(count)]
    return dealt_out(layers, pipeline, parts[:1], parts[-1:])


def optimizer_of(problem: TrainingProblem, offload: bool, norm_reduction: Number) -> Optimizer:
    """The optimizer's step on a chip of the system, its gradients clipped."""
    chip, efficiency = machine(problem.system.chip), problem.efficiency
    host = problem.system.host
    link = min(host.link.bandwidth, host.bandwidth) if offload and host else None
    bandwidth = efficiency.memory * chip.memory
    return Optimizer(bandwidth, efficiency.launch, True, norm_reduction, link, AROUND)


def _distinct(given: Sequence[T]) -> tuple[list[T], Integers]:
    """Each object once, and for all which of them it is."""
    known = {id(each): each for each in given}
    places = dict(zip(known, range(len(known)), strict=True))
    return list(known.values()), np.array([places[id(each)] for each in given], np.intp)


def _block(parts: Sequence[PartCosts], which: Integers) -> Block:
    return Block(*np.array([_times_and_sizes(part) for part in parts], np.float64)[which].T.copy())


_times_and_sizes = attrgetter("forward", "backward", "recompute", "parameters", "activation", "working")
"""What a `Block` has, in its order."""


def _joint(distinct: Sequence[Communication], at: Integers) -> CollectiveTime:
    """Collectives over data-parallel ranks of all plans at once, ``at`` [plans] places among the ``distinct`` communications:
    each network is asked once, and what it answered is kept."""
    places = at.tolist()

    def time(kind: CollectiveKind, payload: Number) -> Number:
        sizes = np.broadcast_to(payload, len(places)).tolist()
        tables = [_collectives(each, kind) for each in distinct]
        asked: list[set[float]] = [set() for _ in distinct]
        for place, size in zip(places, sizes, strict=True):
            if size not in tables[place]:
                asked[place].add(size)
        if any(asked):
            _ask(distinct, kind, asked)
        return np.array([tables[place][size] for place, size in zip(places, sizes, strict=True)])

    return time


def _ask(communications: Sequence[Communication], kind: CollectiveKind, sizes: Sequence[set[float]]) -> None:
    """Find out what collectives of these sizes take, each network asked once."""
    for communication, rows in _networks(communications):
        asked = np.array(sorted(set[float]().union(*(sizes[row] for row in rows))))
        found = dict(zip(asked.tolist(), communication.data(kind, asked).tolist(), strict=True))
        for row in rows:
            _collectives(communications[row], kind).update(found)


def _networks(communications: Sequence[Communication]) -> list[tuple[Communication, list[int]]]:
    """Communications whose data-parallel ranks have equal networks: one of them, and the places of all."""
    rows: dict[object, list[int]] = {}
    for row, each in enumerate(communications):
        rows.setdefault(each.data_key, []).append(row)
    return [(communications[places[0]], places) for places in rows.values()]


@lru_cache(maxsize=1 << 14)
def _collectives(communication: Communication, kind: CollectiveKind) -> dict[float, float]:
    """Times [s] of a collective over data-parallel ranks, as far as they are known, by payload [B]."""
    return {}


def _transfers(
    problem: TrainingProblem, batch: Batch, cases: Sequence[Case], costs: Sequence[ModelCosts], which: Integers, at: Integers
) -> Sequence[Number]:
    """[chunks - 1] of an activation to the next chunk [s]; as long for its gradient. Those that are equal are one object.

    ``which``, ``at`` [cases] places among the distinct ``costs`` and communications."""
    pipeline = batch.pipeline
    if pipeline.stages == 1:
        return ()
    layouts = dict[object, int]()
    layout = np.array([layouts.setdefault(each.boundary, len(layouts)) for each in costs])[which]
    _, firsts, pair = np.unique(at * len(layouts) + layout, return_index=True, return_inverse=True)
    distinct = [cases[first] for first in firsts]
    communications = [case.communication for case in distinct]
    sizes = np.array([boundary_bytes(problem, batch, case) for case in distinct], np.float64)
    # chunks that follow each other lie on stages that follow each other, the first after the last
    stages = pipeline.stages if pipeline.chunks > 1 else pipeline.stages - 1
    routes = np.stack([_alike(each)[:stages] for each in communications], axis=1)
    starts = dict[bytes, int]()
    column = [starts.setdefault(each.tobytes(), stage) for stage, each in enumerate(routes)]
    times = {stage: transfer_times(communications, stage, sizes)[pair] for stage in starts.values()}
    return [times[column[chunk % stages]] for chunk in range(pipeline.last)]


@lru_cache(maxsize=1 << 12)
def _alike(communication: Communication) -> Integers:
    """[stages] the first stage from which the way to the next is the same."""
    firsts: dict[object, int] = {}
    return np.array([firsts.setdefault(route, stage) for stage, route in enumerate(communication.pipeline_key)])


def boundary_bytes(problem: TrainingProblem, batch: Batch, case: Case) -> int:
    """What a chip has of a microbatch's activation between two layers [B], in the layout in which parts meet."""
    samples = problem.batch // (_data_ranks(case.communication) * batch.pipeline.microbatches)
    splits = tuple(item.dim if isinstance(item, Shard) else "" for item in case.costs.boundary)
    return _local_points(case.communication, samples, problem.sequence, problem.shape.model, splits) * WORD


@lru_cache(maxsize=1 << 14)
def _local_points(communication: Communication, samples: int, sequence: int, model: int, splits: tuple[str, ...]) -> int:
    """Values of an activation that a chip has."""
    return math.prod(local_extents({"b": samples, "m": sequence, "k": model}, splits, communication.mesh).values())


def _tied_sums(problem: TrainingProblem, batch: Batch, cases: Sequence[Case], ranks: Floats) -> Floats:
    """[cases] the first and the last stage send each other half of the gradients of a tied table, then the sums [s]; each chip
    those that are its own after the reductions over data-parallel ``ranks``."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return np.zeros(len(cases))
    parameters = np.array([_tied_parameters(case.costs) for case in cases], np.float64)
    half = _tied_bytes(problem, batch, parameters, ranks) / 2
    sums = 2.0 * transfer_times([case.communication for case in cases], batch.pipeline.stages - 1, half)
    return np.asarray(sums)


def tied_bytes(problem: TrainingProblem, batch: Batch, case: Case) -> float:
    """Gradients of a tied table that a chip of the first and of the last stage both have [B]; 0 where none is tied."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return 0.0
    return float(_tied_bytes(problem, batch, _tied_parameters(case.costs), _data_ranks(case.communication)))


def _tied_parameters(costs: ModelCosts) -> float:
    return min(costs.embedding.parameters, costs.head.parameters)


def _tied_bytes(problem: TrainingProblem, batch: Batch, parameters: Number, ranks: Number) -> Number:
    return sharded_bytes(parameters, problem.recipe.gradient, 1 if batch.sharded is Sharded.NOTHING else ranks)


def norm_reductions(cases: Sequence[Case]) -> Floats:
    """[cases] the norm of the gradients, summed over the ranks of data and model [s]."""
    return np.array([_norm_reduction(case.communication) for case in cases])


@lru_cache(maxsize=1 << 12)
def _norm_reduction(communication: Communication) -> float:
    axes = tuple(axis.name for axis in communication.mesh)
    model = communication.model(CollectiveKind.ALL_REDUCE, axes, NORM_BYTES) if axes else 0.0
    return float(communication.data(CollectiveKind.ALL_REDUCE, NORM_BYTES)) + model


def plan_cost(problem: TrainingProblem, plan: Plan, case: Case) -> PlanCost:
    """All that an iteration of one plan costs."""
    training = training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case])
    timed, held = iteration_time(training), memory(training)
    chip = machine(problem.system.chip)
    chips, count = problem.system.chips, plan.pipeline.microbatches
    macs = total([part.macs * times for part, times in case.costs.counted])
    busiest = _busiest(problem, plan, case)
    moved = traffic(problem, plan, busiest)
    return PlanCost(
        time=float(timed.time[0]),
        account={name: float(part[0]) for name, part in timed.breakdown().items()},
        memory=_stages(held),
        offloaded=tuple(held.offloaded[:, 0].tolist()),
        capacity=problem.capacity,
        parts=case.costs,
        exposed=tuple(_exposed(plan, case, timed)),
        traffic=tuple(moved),
        loads=tuple(loads(problem, plan, busiest, moved)),
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


def _busiest(problem: TrainingProblem, plan: Plan, case: Case) -> Stage:
    """The stage whose parts take longest."""
    parts = [stage_parts(plan, case.costs, stage) for stage in range(plan.pipeline.stages)]
    number = max(range(len(parts)), key=lambda stage: sum(part.time * times for part, times in parts[stage]))
    batch = Batch(plan.pipeline, plan.sharded, plan.offload)
    return Stage(number, parts[number], boundary_bytes(problem, batch, case), tied_bytes(problem, batch, case))


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
