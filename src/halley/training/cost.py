"""What plans of training cost: the parts of a model, as they are sharded, put together to iterations, many plans at a time.

Plans of one pipeline that share out the same states are timed together: their times are arrays over the plans.
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
from halley.training.loads import Stage, loads, traffic
from halley.training.part_costs import MemoryBudget, ModelCosts, PartCosts
from halley.training.plan import Exposed, Plan, PlanCost, TrainingProblem
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
    """Plans that are timed together: their ``pipeline``, what they share out, whether a second tier has the optimizer's state."""

    pipeline: TrainingPipeline
    sharded: Sharded
    offload: bool


def training_of(problem: TrainingProblem, batch: Batch, cases: Sequence[Case]) -> PipelinedTraining:
    """The iterations of plans, with arrays over ``cases``."""
    costs, which = _distinct([case.costs for case in cases])
    communications, at = _distinct([case.communication for case in cases])
    networks = _Networks(communications, [_facts(each) for each in communications], at)
    parts = _blocks(costs, which)
    onward = _transfers(problem, batch, networks, costs, which)
    tied = np.minimum(parts[0].parameters, parts[-1].parameters)
    return PipelinedTraining(
        batch.pipeline,
        dealt_parts(parts, costs[0].layers, batch.pipeline),
        DataParallel(networks.ranks, batch.sharded, networks.time, problem.recipe),
        optimizer_of(problem, batch.offload, networks.norms),
        onward,
        onward,
        blocking=False,
        tied=_tied_sums(problem, batch, networks, tied),
    )


def times_that_fit(problem: TrainingProblem, batch: Batch, cases: Sequence[Case]) -> Floats:
    """[cases] times of iterations [s]; infinite where a chip, or its second tier, has not enough memory."""
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


def dealt_parts(parts: Sequence[LayerBlock], kinds: Sequence[int], pipeline: TrainingPipeline) -> tuple[LayerBlocks, ...]:
    """Chunks of a model whose ``parts`` are an embedding, ``kinds`` of layers with their counts, and a head.

    >>> parts = [LayerBlock(0.1, 0.2), LayerBlock(1, 2), LayerBlock(3, 4), LayerBlock(0.3, 0.6)]
    >>> chunks = dealt_parts(parts, [2, 4], TrainingPipeline(3, 8))
    >>> [[block.forward for block in chunk] for chunk in chunks]
    [[0.1, 1, 1], [3, 3], [3, 3, 0.3]]
    """
    layers = [part for part, count in zip(parts[1:-1], kinds, strict=True) for _ in range(count)]
    return layers_of_chunks(layers, pipeline, parts[:1], parts[-1:])


def optimizer_of(problem: TrainingProblem, offload: bool, norm_reduction: Number) -> Optimizer:
    """The optimizer's step on a chip of the system, its gradients clipped."""
    chip, efficiency, second = machine(problem.chip), problem.efficiency, problem.second
    link = second.bandwidth if offload and second else None
    bandwidth = efficiency.memory * chip.memory
    return Optimizer(bandwidth, efficiency.launch, True, norm_reduction, link, EXTRA_OPTIMIZER_BYTES_PER_PARAMETER)


def _distinct(given: Sequence[T]) -> tuple[list[T], Integers]:
    """Each object once, and for all which of them it is."""
    found, numbers = numbered(given)
    return found, np.array(numbers, np.intp)


def _blocks(costs: Sequence[ModelCosts], which: Integers) -> list[LayerBlock]:
    """Of each part of the model, over all plans; ``which`` [plans] of the distinct ``costs`` is a plan's."""
    numbers = chain.from_iterable(_times_and_sizes(part) for each in costs for part in each.parts)
    table = np.fromiter(numbers, np.float64).reshape(len(costs), len(costs[0].parts), -1)
    return [LayerBlock(*part) for part in table.transpose(1, 2, 0)[:, :, which]]


_times_and_sizes = attrgetter("forward", "backward", "recompute", "parameters", "activation", "working")
"""What a `LayerBlock` has, in its order."""

PAYLOADS = 4096
"""Payloads of a collective over one network whose times are kept."""

Times = dict[CollectiveKind, dict[float, float]]
"""Of collectives over one network [s], by kind and payload [B]."""


@dataclass(frozen=True, slots=True, eq=False)
class _Facts:
    """What plans of one communication share: data-parallel ``ranks``; the sum of a ``norm`` over all chips [s]; ``routes``
    [stages, (latency, bandwidth)] from each stage to the next; ``collectives`` over data-parallel ranks, as far as their times
    are known. The last two are one object for equal networks."""

    ranks: int
    norm: float
    routes: Floats
    collectives: Times


_FACTS: WeakKeyDictionary[Communication, _Facts] = WeakKeyDictionary()
"""Known as long as the communication is."""


def _facts(communication: Communication) -> _Facts:
    known = _FACTS.get(communication)
    if known is None:
        norm = _norm_reduction(communication)
        routes, collectives = _routes(communication.pipeline_key), _collectives(communication.data_key)
        known = _FACTS[communication] = _Facts(communication.ranks(Role.DATA), norm, routes, collectives)
    return known


@lru_cache(maxsize=1 << 10)
def _routes(routes: tuple[Route, ...]) -> Floats:
    return np.array(routes, np.float64).reshape(-1, 2)


@lru_cache(maxsize=1 << 10)
def _collectives(network: Dimensions) -> Times:
    """Times of collectives over a network, as far as they are known."""
    return {kind: {} for kind in CollectiveKind}


@dataclass(frozen=True, slots=True, eq=False)
class _Networks:
    """How plans communicate that are timed together: distinct ``communications`` with their ``facts``, and ``at`` [plans] which
    of them is a plan's."""

    communications: Sequence[Communication]
    facts: Sequence[_Facts]
    at: Integers

    @property
    def ranks(self) -> Floats:
        """[plans] that share the batch."""
        return np.array([each.ranks for each in self.facts], np.float64)[self.at]

    @property
    def norms(self) -> Floats:
        """[plans] sums of the norm of the gradients [s]."""
        return np.array([each.norm for each in self.facts])[self.at]

    def time(self, kind: CollectiveKind, payload: Number) -> Number:
        """[plans] of collectives over data-parallel ranks [s]: each network is asked once, and what it answered is kept."""
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
        """Find out what collectives of these sizes take."""
        asked: dict[int, tuple[int, set[float]]] = {}
        for place, size in zip(places, sizes, strict=True):
            asked.setdefault(id(tables[place]), (place, set()))[1].add(size)
        for place, wanted in asked.values():
            table = tables[place]
            if len(table.keys() | wanted) > PAYLOADS:
                table.clear()
            new = np.array(sorted(wanted - table.keys()))
            if len(new):
                table.update(zip(new.tolist(), self.communications[place].data(kind, new).tolist(), strict=True))


def _transfers(
    problem: TrainingProblem, batch: Batch, networks: _Networks, costs: Sequence[ModelCosts], which: Integers
) -> Sequence[Number]:
    """[chunks - 1] of an activation to the next chunk [s]; as long for its gradient. Those that are equal are one object.
    ``which`` [plans] of the distinct ``costs`` is a plan's."""
    pipeline = batch.pipeline
    if pipeline.stages == 1:
        return ()
    layouts = dict[object, int]()
    layout = np.array([layouts.setdefault(each.boundary, len(layouts)) for each in costs])[which]
    _, firsts, pair = np.unique(networks.at * len(layouts) + layout, return_index=True, return_inverse=True)
    found = networks.at[firsts].tolist()
    cases = [Case(networks.communications[at], costs[each]) for at, each in zip(found, which[firsts].tolist(), strict=True)]
    sizes = np.array([boundary_bytes(problem, batch, case) for case in cases], np.float64)
    known, pipelines = _distinct([each.routes for each in networks.facts])
    routes, of = np.stack(known), pipelines[found]
    # chunks that follow each other lie on stages that follow each other, the first after the last
    stages = pipeline.stages if pipeline.chunks > 1 else pipeline.stages - 1
    starts = dict[bytes, int]()
    column = [starts.setdefault(routes[:, stage].tobytes(), stage) for stage in range(stages)]
    times = {stage: _sent(routes[of, stage], sizes)[pair] for stage in starts.values()}
    return [times[column[chunk % stages]] for chunk in range(pipeline.last)]


def _sent(routes: Floats, sizes: Floats) -> Floats:
    """[plans] transfers of these sizes on routes [plans, (latency, bandwidth)] [s]."""
    latency, bandwidth = routes.T
    return np.asarray(transfer_time(latency, busy_time(sizes, bandwidth)))


def boundary_bytes(problem: TrainingProblem, batch: Batch, case: Case) -> int:
    """What a chip has of a microbatch's activation between two layers [B], in the layout in which parts meet."""
    samples = problem.batch // (_facts(case.communication).ranks * batch.pipeline.microbatches)
    splits = tuple(item.dim if isinstance(item, Shard) else "" for item in case.costs.boundary)
    return _local_points(case.communication, samples, problem.sequence, problem.shape.model, splits) * WORD


@lru_cache(maxsize=1 << 14)
def _local_points(communication: Communication, samples: int, sequence: int, model: int, splits: tuple[str, ...]) -> int:
    """Values of an activation that a chip has."""
    return math.prod(local_extents({"b": samples, "m": sequence, "k": model}, splits, communication.mesh).values())


def _tied_sums(problem: TrainingProblem, batch: Batch, networks: _Networks, parameters: Floats) -> Floats:
    """[plans] the first and the last stage send each other half of the gradients of a tied table, then the sums [s]; each chip
    those that are its own after the reductions over data-parallel ranks. ``parameters`` [plans] of the table on a chip."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return np.zeros(len(parameters))
    half = _tied_bytes(problem, batch, parameters, networks.ranks) / 2
    routes = np.stack([each.routes[batch.pipeline.stages - 1] for each in networks.facts])[networks.at]
    return 2.0 * _sent(routes, half)


def tied_bytes(problem: TrainingProblem, batch: Batch, case: Case) -> float:
    """Gradients of a tied table that a chip of the first and of the last stage both have [B]; 0 where none is tied."""
    if not problem.shape.tied or batch.pipeline.stages == 1:
        return 0.0
    parameters = min(case.costs.embedding.parameters, case.costs.head.parameters)
    return float(_tied_bytes(problem, batch, parameters, _facts(case.communication).ranks))


def _tied_bytes(problem: TrainingProblem, batch: Batch, parameters: Number, ranks: Number) -> Number:
    return sharded_bytes(parameters, problem.recipe.gradient, batch.sharded.owners(ranks))


def norm_reductions(cases: Sequence[Case]) -> Floats:
    """[cases] the norm of the gradients, summed over the ranks of data and model [s]."""
    return np.array([_facts(case.communication).norm for case in cases])


def _norm_reduction(communication: Communication) -> float:
    axes = tuple(axis.name for axis in communication.mesh)
    model = communication.model(CollectiveKind.ALL_REDUCE, axes, NORM_BYTES) if axes else 0.0
    return float(communication.data(CollectiveKind.ALL_REDUCE, NORM_BYTES)) + model


def plan_cost(problem: TrainingProblem, plan: Plan, case: Case) -> PlanCost:
    """All that an iteration of one plan costs."""
    training = training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case])
    timed, held = iteration_time(training), training_memory(training)
    chip, second = machine(problem.chip), problem.second
    chips, count = problem.system.chips, plan.pipeline.microbatches
    macs = total([part.macs * times for part, times in case.costs.counted])
    busiest = _busiest(problem, plan, case)
    moved = traffic(problem, plan, busiest)
    return PlanCost(
        time=float(timed.time[0]),
        account={name: float(part[0]) for name, part in timed.breakdown().items()},
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


def model_macs(problem: TrainingProblem) -> float:
    """Multiply-accumulates of the products of a sequence, forward and backward: a backward has twice as many."""
    model = training_model(problem.shape, 1, problem.sequence)
    return 3.0 * math.fsum(part.count * _products(part.workload) for part in model.parts)


def _products(work: Workload) -> float:
    points = [np.prod([float(work.dims[dim]) for dim in op.dims]) for op in work.ops if op.kind is OpKind.CONTRACT]
    return float(total(points))


def _stages(held: TrainingMemory) -> tuple[dict[str, float], ...]:
    parts = held.breakdown()
    return tuple({name: float(part[stage, 0]) for name, part in parts.items()} for stage in range(len(held.total)))


def stage_parts(plan: Plan, costs: ModelCosts, stage: int) -> list[tuple[PartCosts, int]]:
    """The parts of the model that a stage has, and how often."""
    counts = held_parts(plan, costs.layers, stage).sum(axis=0).tolist()
    return [(part, count) for part, count in zip(costs.parts, counts, strict=True) if count]


def held_parts(plan: Plan, kinds: Sequence[int], stage: int) -> NDArray[np.int64]:
    """[chunks of the stage, parts] how many of each part of the model they have: embedding, ``kinds`` of layers, head."""
    return parts_of_chunks(kinds, plan.layers)[stage :: plan.pipeline.stages]


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


def budget_left(
    problem: TrainingProblem, plan: Plan, case: Case, least: tuple[Floats, Floats] | None = None
) -> tuple[MemoryBudget, float]:
    """What is left for weights and kept activations on a chip of the fullest stage, and what a parameter takes there for good
    [B]: its share where data-parallel ranks share it out.

    Set aside is what these shardings work in; or, given the ``least`` that passes of each part work in [B], and the least
    parameters of each [parts], what all shardings do: those that do not fit into this budget fit nowhere.
    """
    held = training_memory(training_of(problem, Batch(plan.pipeline, plan.sharded, plan.offload), [case]))
    stage = int(held.total[:, 0].argmax())
    parts, words = case.costs.parts, problem.recipe.resident(plan.offload)
    resident = total([word / plan.data if plan.sharded >= share else word for word, share in words])
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
    return MemoryBudget(problem.capacity - aside, tuple(counts.tolist()), flying), resident
