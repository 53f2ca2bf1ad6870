"""Costs of training plans: the sharded parts of a model composed to iterations, many plans at a time.

Plans with the same pipeline and the same sharded states are timed together: their times are arrays over the plans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time, total, transfer_time
from halley.formulas.training import sharded_bytes
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Shard
from halley.ir.workload import OpKind, Workload
from halley.kernels.machine import machine
from halley.memory.peak import TrainingMemory, in_flight, training_memory
from halley.network.graph.bill import bill
from halley.pipeline.block_counts import numbered
from halley.pipeline.data_parallel import DataParallel, LayerBlock, LayerBlocks, Sharded, layers_of_chunks
from halley.pipeline.iteration import EXTRA_OPTIMIZER_BYTES_PER_PARAMETER, Iteration, Optimizer, PipelinedTraining, iteration_time
from halley.pipeline.schedule import TrainingPipeline, parts_of_chunks
from halley.sharding.axes import Role
from halley.sharding.communication import Communication, Dimensions, Route
from halley.sharding.layouts import local_extents
from halley.training.loads import StageParts, loads, traffic
from halley.training.part_costs import MemoryBudget, ModelCosts, PartCosts
from halley.training.plan import Exposed, Plan, PlanCost, TrainingProblem
from halley.workloads.training import training_model
from halley.workloads.transformer import token_extents

T = TypeVar("T")
Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

ACTIVATION_WORD_BYTES = 2
"""Bytes of an element of an activation."""

HOST_WAITS = "host"
"""Name of the waits for the host in an account."""

NORM_BYTES = 4
"""The norm of the gradients, which is reduced over all chips: one number in fp32."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The communication of one plan, and the costs of its parts."""

    communication: Communication
    costs: ModelCosts


@dataclass(frozen=True, slots=True)
class Batch:
    """Plans that are timed together: their ``pipeline``, what they shard, whether a second tier has the optimizer's state."""

    pipeline: TrainingPipeline
    sharded: Sharded
    offload: bool


def training_of(problem: TrainingProblem, batch: Batch, cases: Sequence[PlanInputs]) -> PipelinedTraining:
    """The iterations of plans, with arrays over ``cases``."""
    costs, which = _distinct([case.costs for case in cases])
    communications, at = _distinct([case.communication for case in cases])
    networks = _Networks(communications, [_facts(each) for each in communications], at)
    parts = _blocks(costs, which)
    onward = _transfers(problem, batch, networks, costs, which)
    tied = np.minimum(parts[0].parameters, parts[-1].parameters)
    return PipelinedTraining(
        batch.pipeline,
        chunks_of_parts(parts, costs[0].layers, batch.pipeline),
        DataParallel(networks.ranks, batch.sharded, networks.time, problem.recipe, problem.contention),
        optimizer_of(problem, batch.offload, networks.norms),
        onward,
        onward,
        blocking=False,
        tied=_tied_sums(problem, batch, networks, tied),
    )


def times_that_fit(problem: TrainingProblem, batch: Batch, cases: Sequence[PlanInputs]) -> Floats:
    """[cases] times of iterations [s]; infinite where a chip, or its second tier, does not have enough memory."""
    training = training_of(problem, batch, cases)
    held = training_memory(training)
    fits = np.broadcast_to(held.peak <= problem.capacity, len(cases))
    if batch.offload and (second := problem.second):
        fits = fits & np.broadcast_to(held.offloaded.max(axis=0) <= second.capacity, len(cases))
    times = np.full(len(cases), np.inf)
    if fits.any():
        if not fits.all():
            training = training_of(problem, batch, [case for case, fit in zip(cases, fits, strict=True) if fit])
        times[fits] = iteration_time(training, attribute_transfers=False).time
    return times


def chunks_of_parts(parts: Sequence[LayerBlock], kinds: Sequence[int], pipeline: TrainingPipeline) -> tuple[LayerBlocks, ...]:
    """Chunks of a model with ``parts`` embedding, ``kinds`` of layers with their counts, and head.

    >>> parts = [LayerBlock(0.1, 0.2), LayerBlock(1, 2), LayerBlock(3, 4), LayerBlock(0.3, 0.6)]
    >>> chunks = chunks_of_parts(parts, [2, 4], TrainingPipeline(3, 8))
    >>> [[block.forward for block in chunk] for chunk in chunks]
    [[0.1, 1, 1], [3, 3], [3, 3, 0.3]]
    """
    layers = [part for part, count in zip(parts[1:-1], kinds, strict=True) for _ in range(count)]
    return layers_of_chunks(layers, pipeline, parts[:1], parts[-1:])


def optimizer_of(problem: TrainingProblem, offload: bool, norm_reduction: Number) -> Optimizer:
    """The optimizer's step on a chip of the system, with clipped gradients."""
    chip, efficiency, second = machine(problem.chip), problem.efficiency, problem.second
    link = second.bandwidth if offload and second else None
    bandwidth = efficiency.memory * chip.memory
    return Optimizer(bandwidth, efficiency.launch, True, norm_reduction, link, EXTRA_OPTIMIZER_BYTES_PER_PARAMETER)


def _distinct(given: Sequence[T]) -> tuple[list[T], Integers]:
    """The distinct objects, and for each given one its number among them."""
    found, numbers = numbered(given)
    return found, np.array(numbers, np.intp)


def _blocks(costs: Sequence[ModelCosts], which: Integers) -> list[LayerBlock]:
    """Blocks of each part of the model, over all plans; ``which`` [plans]: number of a plan's ``costs``."""
    numbers = chain.from_iterable(_times_and_sizes(part) for each in costs for part in each.parts)
    table = np.fromiter(numbers, np.float64).reshape(len(costs), len(costs[0].parts), -1)
    return [LayerBlock(*part) for part in table.transpose(1, 2, 0)[:, :, which]]


_times_and_sizes = attrgetter("forward", "backward", "recompute", "parameters", "activation", "working")
"""Fields of a `LayerBlock`, in its order."""

MAX_CACHED_PAYLOADS = 4096
"""Payloads per kind of collective and network whose times are cached."""

_CollectiveTimes = dict[CollectiveKind, dict[float, float]]
"""Times of collectives over one network [s], by kind and payload [B]."""


@dataclass(frozen=True, slots=True, eq=False)
class _CommunicationFacts:
    """Figures of plans with one communication: data-parallel ``ranks``; the reduction of a ``norm`` over all chips [s];
    ``routes`` [stages, (latency, bandwidth)] from each stage to the next; ``collectives``: cached times over data-parallel
    ranks. The last two are shared between equal networks."""

    ranks: int
    norm: float
    routes: Floats
    collectives: _CollectiveTimes


_FACTS: WeakKeyDictionary[Communication, _CommunicationFacts] = WeakKeyDictionary()
"""Cached as long as the communication exists."""


def _facts(communication: Communication) -> _CommunicationFacts:
    known = _FACTS.get(communication)
    if known is None:
        norm = _norm_reduction(communication)
        routes, collectives = _routes(communication.pipeline_key), _collectives(communication.data_key)
        known = _FACTS[communication] = _CommunicationFacts(communication.ranks(Role.DATA), norm, routes, collectives)
    return known


@lru_cache(maxsize=1 << 10)
def _routes(routes: tuple[Route, ...]) -> Floats:
    return np.array(routes, np.float64).reshape(-1, 2)


@lru_cache(maxsize=1 << 10)
def _collectives(network: Dimensions) -> _CollectiveTimes:
    """The cache of times of collectives over a network."""
    return {kind: {} for kind in CollectiveKind}


@dataclass(frozen=True, slots=True, eq=False)
class _Networks:
    """Communication of plans that are timed together: distinct ``communications`` with their ``facts``, and ``at`` [plans]: the
    number of a plan's."""

    communications: Sequence[Communication]
    facts: Sequence[_CommunicationFacts]
    at: Integers

    @property
    def ranks(self) -> Floats:
        """[plans] data-parallel ranks."""
        return np.array([each.ranks for each in self.facts], np.float64)[self.at]

    @property
    def norms(self) -> Floats:
        """[plans] reductions of the norm of the gradients [s]."""
        return np.array([each.norm for each in self.facts])[self.at]

    def time(self, kind: CollectiveKind, payload: Number) -> Number:
        """[plans] time of collectives over data-parallel ranks [s]; each network and payload is evaluated once."""
        tables = [each.collectives[kind] for each in self.facts]
        places, sizes = self.at.tolist(), np.broadcast_to(payload, len(self.at)).tolist()
        try:
            return np.array([tables[place][size] for place, size in zip(places, sizes, strict=True)])
        except KeyError:
            self._ask(kind, tables, places, sizes)
        return np.array([tables[place][size] for place, size in zip(places, sizes, strict=True)])

    def _ask(
        self, kind: CollectiveKind, tables: Sequence[dict[float, float]], places: Sequence[int], sizes: Sequence[float]
    ) -> None:
        """Computes missing times of collectives."""
        asked: dict[int, tuple[int, set[float]]] = {}
        for place, size in zip(places, sizes, strict=True):
            asked.setdefault(id(tables[place]), (place, set()))[1].add(size)
        for place, wanted in asked.values():
            table = tables[place]
            if len(table.keys() | wanted) > MAX_CACHED_PAYLOADS:
                table.clear()
            new = np.array(sorted(wanted - table.keys()))
            if len(new):
                table.update(zip(new.tolist(), np.asarray(self.communications[place].data(kind, new)).tolist(), strict=True))


def _transfers(
    problem: TrainingProblem, batch: Batch, networks: _Networks, costs: Sequence[ModelCosts], which: Integers
) -> Sequence[Number]:
    """[chunks - 1] transfers of an activation to the next chunk [s]; those of its gradient take as long. Equal ones are one
    object. ``which`` [plans]: number of a plan's ``costs``."""
    pipeline = batch.pipeline
    if pipeline.stages == 1:
        return ()
    layouts = dict[object, int]()
    layout = np.array([layouts.setdefault(each.boundary, len(layouts)) for each in costs])[which]
    _, firsts, pair = np.unique(networks.at * len(layouts) + layout, return_index=True, return_inverse=True)
    found = networks.at[firsts].tolist()
    cases = [PlanInputs(networks.communications[at], costs[each]) for at, each in zip(found, which[firsts].tolist(), strict=True)]
    sizes = np.array([boundary_bytes(problem, batch, case) for case in cases], np.float64)
    known, pipelines = _distinct([each.routes for each in networks.facts])
    routes, of = np.stack(known), pipelines[found]
    # consecutive chunks are on consecutive stages, cyclically
    stages = pipeline.stages if pipeline.chunks > 1 else pipeline.stages - 1
    starts = dict[bytes, int]()
    column = [starts.setdefault(routes[:, stage].tobytes(), stage) for stage in range(stages)]
    times = {stage: _sent(routes[of, stage], sizes)[pair] for stage in starts.values()}
    return [times[column[chunk % stages]] for chunk in range(pipeline.last)]


def _sent(routes: Floats, sizes: Floats) -> Floats:
    """[plans] transfers of these sizes on routes [plans, (latency, bandwidth)] [s]."""
    latency, bandwidth = routes.T
    return np.asarray(transfer_time(latency, busy_time(sizes, bandwidth)))


def boundary_bytes(problem: TrainingProblem, batch: Batch, case: PlanInputs) -> int:
    """A chip's part of a microbatch's activation between two layers [B], in the layout of the boundary."""
    samples = problem.batch // (_facts(case.communication).ranks * batch.pipeline.microbatches)
    splits = tuple(item.dim if isinstance(item, Shard) else "" for item in case.costs.boundary)
    extents = (("b", samples), *token_extents(problem.shape, problem.sequence).items(), ("k", problem.shape.model))
    return _local_points(case.communication, extents, splits) * ACTIVATION_WORD_BYTES


@lru_cache(maxsize=1 << 14)
def _local_points(communication: Communication, extents: tuple[tuple[str, int], ...], splits: tuple[str, ...]) -> int:
    """Elements of an activation on a chip."""
    return math.prod(local_extents(dict(extents), splits, communication.mesh).values())


def _tied_sums(problem: TrainingProblem, batch: Batch, networks: _Networks, parameters: Floats) -> Floats:
    """[plans] time to reduce the gradients of a tied table [s]: the first and the last stage send each other half of them, then
    the sums. Each chip sends those that it owns after the reductions over data-parallel ranks. ``parameters`` [plans] of the
    table on a chip."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return np.zeros(len(parameters))
    half = np.asarray(_tied_bytes(problem, batch, parameters, networks.ranks)) / 2
    routes = np.stack([each.routes[batch.pipeline.stages - 1] for each in networks.facts])[networks.at]
    return 2.0 * _sent(routes, half)


def tied_bytes(problem: TrainingProblem, batch: Batch, case: PlanInputs) -> float:
    """Gradients of a tied table that a chip of the first and of the last stage share [B]; 0 without one."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return 0.0
    parameters = min(case.costs.embedding.parameters, case.costs.head.parameters)
    return float(_tied_bytes(problem, batch, parameters, _facts(case.communication).ranks))


def _tied_bytes(problem: TrainingProblem, batch: Batch, parameters: Number, ranks: Number) -> Number:
    return sharded_bytes(parameters, problem.recipe.gradient, batch.sharded.owners(ranks))


def norm_reductions(cases: Sequence[PlanInputs]) -> Floats:
    """[cases] the norm of the gradients, reduced over the ranks of data and model [s]."""
    return np.array([_facts(case.communication).norm for case in cases])


def _norm_reduction(communication: Communication) -> float:
    axes = tuple(axis.name for axis in communication.mesh)
    model = communication.model(CollectiveKind.ALL_REDUCE, axes, NORM_BYTES) if axes else 0.0
    return float(communication.data(CollectiveKind.ALL_REDUCE, NORM_BYTES)) + model


def plan_cost(problem: TrainingProblem, plan: Plan, case: PlanInputs) -> PlanCost:
    """The costs of an iteration of one plan."""
    training = training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case])
    timed, held = iteration_time(training), training_memory(training)
    chip, second = machine(problem.chip), problem.second
    chips, count = problem.system.chips, plan.pipeline.microbatches
    macs = float(total([part.macs * times for part, times in case.costs.counted]))
    busiest = _busiest(problem, plan, case)
    moved = traffic(problem, plan, busiest)
    return PlanCost(
        time=float(timed.time[0]),
        account=_account(problem, plan, case, timed),
        memory=_stages(held),
        offloaded=tuple(held.offloaded[:, 0].tolist()),
        tier=problem.memory.name,
        second=second.name if second else "",
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


def _account(problem: TrainingProblem, plan: Plan, case: PlanInputs, timed: Iteration) -> dict[str, float]:
    """The breakdown of the time, with the waits for the host apart from the passes that contain them."""
    found = {name: float(part[0]) for name, part in timed.breakdown().items()}
    if problem.software is None:
        return found
    waits = dict.fromkeys(("forward", "recompute", "backward"), 0.0)
    for part, times in stage_parts(plan, case.costs, int(timed.stage[0])):
        for name, time in part.waits.items():
            waits[name] += plan.pipeline.microbatches * times * time
    found |= {name: found[name] - time for name, time in waits.items()}
    return {**{name: found[name] for name in waits}, HOST_WAITS: math.fsum(waits.values()), **found}


def model_macs(problem: TrainingProblem) -> float:
    """Multiply-accumulates of the products per sequence, forward and backward; a backward pass has twice as many as a forward
    pass."""
    model = training_model(problem.shape, 1, problem.sequence)
    return 3.0 * math.fsum(part.count * _products(part.workload) for part in model.parts)


def _products(work: Workload) -> float:
    points = [float(np.prod([float(work.dims[dim]) for dim in op.dims])) for op in work.ops if op.kind is OpKind.CONTRACT]
    return float(total(points))


def _stages(held: TrainingMemory) -> tuple[dict[str, float], ...]:
    parts = held.breakdown()
    return tuple({name: float(part[stage, 0]) for name, part in parts.items()} for stage in range(len(held.total)))


def stage_parts(plan: Plan, costs: ModelCosts, stage: int) -> list[tuple[PartCosts, int]]:
    """The parts of the model on a stage, with their numbers."""
    counts = held_parts(plan, costs.layers, stage).sum(axis=0).tolist()
    return [(part, count) for part, count in zip(costs.parts, counts, strict=True) if count]


def held_parts(plan: Plan, kinds: Sequence[int], stage: int) -> NDArray[np.int64]:
    """[chunks of the stage, parts] number of each part of the model: embedding, ``kinds`` of layers, head."""
    return parts_of_chunks(kinds, plan.layers)[stage :: plan.pipeline.stages]


def _exposed(plan: Plan, case: PlanInputs, timed: Iteration) -> list[Exposed]:
    """What the stage that finishes last waits for, over all microbatches."""
    count, found = plan.pipeline.microbatches, dict[str, float]()
    for part, times in stage_parts(plan, case.costs, int(timed.stage[0])):
        for kind, time in part.exposed.items():
            found[str(kind)] = found.get(str(kind), 0.0) + count * times * time
    account = {name: float(part[0]) for name, part in timed.breakdown().items()}
    between = [(Role.PIPELINE, "transfer", account["transfers"])]
    batch = [(Role.DATA, name, account[name]) for name in ("sharding", "reduction", "gather")]
    listed = [*((Role.MODEL, kind, time) for kind, time in found.items()), *between, *batch]
    return [Exposed(role, kind, time) for role, kind, time in listed if time]


def _busiest(problem: TrainingProblem, plan: Plan, case: PlanInputs) -> StageParts:
    """The stage whose parts take longest."""
    parts = [stage_parts(plan, case.costs, stage) for stage in range(plan.pipeline.stages)]
    number = max(range(len(parts)), key=lambda stage: sum(part.time * times for part, times in parts[stage]))
    batch = Batch(plan.pipeline, plan.sharded, plan.offload)
    return StageParts(number, parts[number], boundary_bytes(problem, batch, case), tied_bytes(problem, batch, case))


def budget_left(
    problem: TrainingProblem, plan: Plan, case: PlanInputs, least: tuple[Floats, Floats] | None = None
) -> tuple[MemoryBudget, float]:
    """What remains for weights and saved activations on a chip of the fullest stage, and the bytes that a parameter occupies
    there permanently [B]: only its part where it is sharded over data-parallel ranks.

    The working memory of these shardings is subtracted; or, given the ``least`` working memory of a pass of each part [B] and
    the least parameters of each [parts], that of any sharding: what exceeds this budget fits under no sharding.
    """
    held = training_memory(training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case]))
    stage = int(held.total[:, 0].argmax())
    parts, words = case.costs.parts, problem.recipe.resident(plan.offload)
    resident = float(total([word / plan.data if plan.sharded >= share else word for word, share in words]))
    numbers = held_parts(plan, case.costs.layers, stage)
    counts = numbers.sum(axis=0)
    has = counts > 0
    # at the moment with most activations, all parts count with the fewest microbatches in flight of any part
    moments = in_flight(plan.pipeline, stage) @ numbers
    fullest = moments[int((moments @ np.array([part.activation for part in parts])).argmax())]
    flying = float((fullest[has] / counts[has]).min())
    aside = float(held.working[stage, 0])
    if least is not None:
        own = np.array([part.working for part in parts])[has].max()
        most = np.array([part.parameters for part in parts])[has].max()
        working, parameters = (each[has].max() for each in least)
        aside = float(working + (aside - own) * parameters / most)
    return MemoryBudget(problem.capacity - aside, tuple(counts.tolist()), flying), resident
