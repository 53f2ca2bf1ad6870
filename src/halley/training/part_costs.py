"""Costs of a model's parts on the chips that share each op: embedding, each kind of layer, head, each under the sharding of
least time.

Parts meet in one layout: activations and their gradients between parts have the same layout everywhere. It is chosen together
with the shardings, for the least sum over all parts; each part is solved once for all layouts. Ops of one kernel have the same
split (`halley.training.kernels`). That is an assumption instead of a result: a kernel whose ops are split on different dims
would be several kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, Infeasible
from halley.formulas.software import queued_time
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Shard
from halley.ir.workload import OpKind
from halley.kernels.searched import kernel_demand
from halley.kernels.software import Software
from halley.optim.constrained import EFFORT_LIMIT_ENTRIES, RELATIVE_TOLERANCE, ConstrainedMinimum, check_fits, constrained_minimum
from halley.optim.elimination import CostTable, cost
from halley.rewrite.backward import backward
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import CollectiveTime, Layout, Mesh, local_extents
from halley.sharding.solution import Sharding, decoded
from halley.spatial.solve import SpatialPlan
from halley.training.groups import sharded_kernels
from halley.training.kernels import TrainingGraph, lifetimes, resized, training_graph
from halley.training.part_solvers import CostTerms, PartSolver, Solvers
from halley.training.per_part import PerPart
from halley.units import format_bytes
from halley.workloads.model import ModelPart
from halley.workloads.training import training_model
from halley.workloads.transformer import Transformer


@dataclass(frozen=True, slots=True, eq=False)
class PartCosts:
    """A part of the model on one chip, for one microbatch.

    ``forward``, ``recompute``, ``backward`` [s], with the collectives between the chips that share ops. ``parameters`` of the
    chip; ``activation`` [B] saved from the forward to the backward pass; ``working`` [B] in addition during a pass. ``macs``
    (recomputed ones included) and memory ``traffic`` [B] of the three passes; ``products``: the macs that kernels execute, as a
    fused attention core skips what its mask hides. ``exposed`` [s]: by kind, the collectives, which are included in the times.
    ``sharding``: that of least time. ``on_chip``: by pass, the partitions in which a spatial chip runs its kernels. ``waits``
    [s]: by pass, how long the chip waits for the host that launches its kernels, which is included in the times.
    ``launches``, ``calls``: by pass, the kernels and the collectives between chips that the host launches; empty where hosts
    are not modelled.
    """

    forward: float
    recompute: float
    backward: float
    parameters: float
    activation: float
    working: float
    macs: float
    products: float
    traffic: float
    exposed: Mapping[CollectiveKind, float]
    sharding: Sharding
    on_chip: Mapping[str, SpatialPlan] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    launches: Mapping[str, float] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)

    @property
    def time(self) -> float:
        """All passes of a microbatch [s]."""
        return self.forward + self.recompute + self.backward


@dataclass(frozen=True, slots=True, eq=False)
class ModelCosts(PerPart[PartCosts]):
    """``boundary``: the layout in which parts meet. ``least`` [s]: by part, the embedding first, a lower bound for any layout
    of the boundary and any budget; ``by_boundary`` [layouts]: the same for each layout of the boundary. ``bound`` [s]: a
    lower bound of all layers together under any shardings that fit."""

    boundary: Layout
    least: tuple[float, ...] = ()
    by_boundary: tuple[tuple[float, ...], ...] = ()
    bound: float = 0.0

    def on(self, mesh: Mesh, collective: CollectiveTime) -> ModelCosts:
        """The same costs over axes of other names, as in `Sharding.on`."""
        if mesh == self.embedding.sharding.problem.mesh:
            return self
        first, *layers, last = (replace(part, sharding=part.sharding.on(mesh, collective)) for part in self.parts)
        return replace(self, embedding=first, blocks=tuple(zip(layers, self.layers, strict=True)), head=last)

    @property
    def time(self) -> float:
        """All passes of a microbatch through all layers [s]."""
        return math.fsum(part.time * count for part, count in self.counted)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """``capacity`` [B] of a chip for weights, with gradients and optimizer state, and saved activations of ``in_flight``
    microbatches. ``held``: the chip's number of each part, in the order of the model; one of each unless given."""

    capacity: float
    held: tuple[float, ...] = ()
    in_flight: float = 1.0


def model_costs(
    shape: Transformer,
    microbatch: int,
    sequence: int,
    terms: CostTerms,
    recompute: Recompute = Recompute.NONE,
    budget: MemoryBudget | None = None,
    effort: float = EFFORT_LIMIT_ENTRIES,
    solvers: Solvers | None = None,
) -> ModelCosts:
    """Costs of the model's parts on ``microbatch`` sequences of ``sequence`` tokens under the shardings of least total time;
    layers recompute by ``recompute``, embedding and head nothing. ``budget``: memory of a chip. ``effort`` [entries of
    tables]: limit of a search within a budget, after which the incumbent is returned with its gap. ``solvers``: results of
    earlier calls.

    Raises BadInput: as `sharding_graph`, or a boundary that no part can have; Infeasible: no sharding fits.
    """
    in_flight = budget.in_flight if budget else 1.0
    graphs, known = training_graphs(shape, microbatch, sequence, recompute, terms.fused), solvers or Solvers()
    parts = [known.of(graph, terms).within(terms.weight_bytes, in_flight) for graph in graphs]
    counts = part_counts(shape, microbatch, sequence)
    allowed = allowed_layouts(parts[0], terms)
    times = np.stack([np.where(allowed, part.times, math.inf) for part in parts], axis=1)
    found = _jointly_fastest(parts, counts, times)
    if found is None:
        raise BadInput(Fault(f"parts of {shape.name}", "a layout in which all parts can meet", "none", "fix fewer splits"))
    if budget and math.fsum(held * each.memory for held, each in zip(_held(parts, budget), found, strict=True)) > budget.capacity:
        found, _ = _within_budget(parts, [part.objective for part in parts], counts, budget, allowed, effort)
        known.done += found[0].certificate.effort["entries"]
    costs = [sharded_costs(part, sharding, in_flight) for part, sharding in zip(parts, found, strict=True)]
    # the host launches as many kernels under any sharding
    hosts = np.array([part.host.least for part in parts])
    possible = np.maximum(times[np.isfinite(times).all(axis=1)] * (1 - RELATIVE_TOLERANCE), hosts)
    bound = math.fsum(count * each.certificate.bound for count, each in zip(counts, found, strict=True))
    return ModelCosts(
        costs[0],
        tuple(zip(costs[1:-1], counts[1:-1], strict=True)),
        costs[-1],
        found[0].ends["Y"],
        least=tuple(possible.min(axis=0).tolist()),
        by_boundary=tuple(map(tuple, possible.tolist())),
        bound=max(bound, float(hosts @ np.array(counts, np.float64))),
    )


def least_along(
    shape: Transformer,
    microbatch: int,
    sequence: int,
    terms: CostTerms,
    recompute: Recompute,
    budget: MemoryBudget,
    passes: tuple[NDArray[np.float64], NDArray[np.float64]],
    effort: float = EFFORT_LIMIT_ENTRIES,
    solvers: Solvers | None = None,
    most: NDArray[np.float64] | None = None,
) -> tuple[float, ModelCosts]:
    """A lower bound [s] of ``passes``, the numbers of forward passes [parts] and of backward passes with recomputation [parts],
    over all shardings that fit; and the costs under the shardings that attain it. ``most`` [parts]: excludes shardings under
    which a chip certainly has more parameters of a part. Other arguments and errors as in `model_costs`; Infeasible also:
    none is left."""
    graphs, known = training_graphs(shape, microbatch, sequence, recompute, terms.fused), solvers or Solvers()
    parts = [known.of(graph, terms).within(terms.weight_bytes, budget.in_flight) for graph in graphs]
    counts = part_counts(shape, microbatch, sequence)
    along = [list(part.along(*each)) for part, *each in zip(parts, *np.maximum(passes, 0.0).tolist(), strict=True)]
    if most is not None:
        for own, part, limit in zip(along, parts, most.tolist(), strict=True):
            own += part.barring_more_parameters(limit)
    allowed = allowed_layouts(parts[0], terms)
    try:
        found, bound = _within_budget(parts, along, (1,) * len(parts), budget, allowed, effort)
    except BadInput as error:
        # without a limit, some boundary is always possible
        raise error if most is None else Infeasible(error.faults) from error
    known.done += found[0].certificate.effort["entries"]
    costs = [sharded_costs(part, sharding, budget.in_flight) for part, sharding in zip(parts, found, strict=True)]
    blocks = tuple(zip(costs[1:-1], counts[1:-1], strict=True))
    return bound, ModelCosts(costs[0], blocks, costs[-1], found[0].ends["Y"])


def least_layer_times(
    shape: Transformer,
    microbatch: int,
    sequence: int,
    terms: CostTerms,
    recompute: Recompute = Recompute.NONE,
    solvers: Solvers | None = None,
    rough: bool = False,
) -> NDArray[np.float64]:
    """[kinds] lower bound of one layer of each kind over all shardings and boundaries [s]: close to `model_costs`, for part of
    the effort. Infinite where no layout is allowed. ``rough``: some per cent lower, for half of the effort. Other arguments
    and errors as in `model_costs`."""
    known = solvers or Solvers()
    layers = [known.of(graph, terms) for graph in training_graphs(shape, microbatch, sequence, recompute, terms.fused)[1:-1]]
    hosts = np.array([layer.host.least for layer in layers])
    if rough:
        return np.asarray(np.maximum(hosts, np.array([layer.least.floor for layer in layers]) * (1 - RELATIVE_TOLERANCE)))
    found = np.array([layer.times[allowed_layouts(layer, terms)].min(initial=math.inf) for layer in layers])
    return np.asarray(np.maximum(hosts, found * (1 - RELATIVE_TOLERANCE)))


@lru_cache(maxsize=256)
def training_graphs(
    shape: Transformer, microbatch: int, sequence: int, choice: Recompute, fused: bool
) -> tuple[TrainingGraph, ...]:
    """The parts in order; layers recompute. Embedding and head neither recompute nor have attention, and are the same objects
    for all choices."""
    last = len(part_counts(shape, microbatch, sequence)) - 1
    ways = [(choice, fused) if 0 < place < last else (Recompute.NONE, True) for place in range(last + 1)]
    return tuple(_graph(shape, microbatch, sequence, place, *way) for place, way in enumerate(ways))


@lru_cache(maxsize=1024)
def _graph(shape: Transformer, microbatch: int, sequence: int, place: int, choice: Recompute, fused: bool) -> TrainingGraph:
    """One part; that of several sequences is that of one sequence with other extents."""
    part = _parts(shape, microbatch, sequence)[place]
    if microbatch > 1:
        first = _parts(shape, 1, sequence)[place]
        found = resized(_graph(shape, 1, sequence, place, choice, fused), first.workload, part.workload)
        if found is not None:
            return found
    last = len(_parts(shape, microbatch, sequence)) - 1
    # embedding and head multiply as they are stored
    products = shape.products if 0 < place < last else ""
    return training_graph(backward(part.workload), part.weights, choice, fused, products, part.scans)


@lru_cache(maxsize=256)
def _parts(shape: Transformer, microbatch: int, sequence: int) -> tuple[ModelPart, ...]:
    return tuple(training_model(shape, microbatch, sequence).parts)


@lru_cache(maxsize=256)
def part_counts(shape: Transformer, microbatch: int, sequence: int) -> tuple[int, ...]:
    return tuple(part.count for part in _parts(shape, microbatch, sequence))


# --- shardings of all parts ---------------------------------------------------------------------------------------------


def _jointly_fastest(solvers: Sequence[PartSolver], counts: Sequence[int], times: NDArray[np.float64]) -> list[Sharding] | None:
    """The shardings of least total time under one layout of the boundary; None if the parts have none in common. ``times``
    [layouts, parts] are lower bounds, so a layout is optimal when its time is below all other bounds; those of evaluated
    layouts become exact."""
    weights = np.array(counts, np.float64)
    bounds = times @ weights
    best, chosen = math.inf, None
    for layout in np.argsort(bounds, kind="stable").tolist():
        if bounds[layout] >= best:
            break
        for number, solver in enumerate(solvers):
            others = math.fsum(np.delete(times[layout] * weights, number))
            limit = (best - others) / counts[number]
            times[layout, number] = max(times[layout, number], min(limit, solver.time(layout, limit)))
        time = math.fsum(times[layout] * weights)
        if time < best * (1 - RELATIVE_TOLERANCE):
            best, chosen = time, layout
    return None if chosen is None else [solver.fastest(chosen) for solver in solvers]


def allowed_layouts(solver: PartSolver, terms: CostTerms) -> NDArray[np.bool_]:
    """The layouts that the boundary may have. Raises BadInput: the given one is impossible."""
    known = solver.tables.layouts[solver.end]
    if terms.boundary is None:
        return np.ones(len(known.complete), bool)
    return np.asarray(np.array(known.complete) == known.index(terms.boundary))


def _held(solvers: Sequence[PartSolver], budget: MemoryBudget) -> tuple[float, ...]:
    """Number of each part on a chip. Raises BadInput: not one number per part."""
    if budget.held and len(budget.held) != len(solvers):
        expected = f"{len(solvers)} numbers: embedding, each kind of layer, head"
        raise BadInput(Fault("parts that a chip holds", expected, str(len(budget.held))))
    return budget.held or (1.0,) * len(solvers)


def _within_budget(
    solvers: Sequence[PartSolver],
    objectives: Sequence[Sequence[CostTable]],
    counts: Sequence[int],
    budget: MemoryBudget,
    allowed: NDArray[np.bool_],
    effort: float,
) -> tuple[list[Sharding], float]:
    """The shardings with the least sum of the ``objectives`` of the parts, times their ``counts``, among those that fit
    together; and a lower bound of that sum [s]. All parts are one problem, in which the layout of the boundary is a shared
    variable. Raises Infeasible: none fits."""
    boundary, held = "boundary", _held(solvers, budget)
    times, uses = [CostTable((boundary,), np.where(allowed, 0.0, math.inf))], list[CostTable]()
    for number, (solver, objective, count, many) in enumerate(zip(solvers, objectives, counts, held, strict=True)):
        times += solver.renamed(objective, number, count, boundary)
        uses += solver.renamed(solver.tables.memory, number, many, boundary)

    def describe(size: float, values: Mapping[str, int] | None) -> str:
        return f"{format_bytes(size)} per chip"

    where = f"memory of {', '.join(solver.graph.workload.name for solver in solvers)}"
    check_fits(uses, budget.capacity, where, describe)
    best = constrained_minimum(times, uses, budget.capacity, where, describe, effort=effort)
    found = []
    for number, solver in enumerate(solvers):
        names = {name for item in (*solver.tables.time, *solver.tables.memory) for name in item.variables}
        values = {name: best.values[boundary if name == solver.variable else f"{number} {name}"] for name in names}
        time, memory = cost(solver.tables.time, values), cost(solver.tables.memory, values)
        # each part gets the relative gap of the sum
        bound = time * best.bound / best.cost if best.cost else time
        found.append(decoded(solver.tables, ConstrainedMinimum(values, time, memory, bound, best.nodes, best.entries)))
    return found, best.bound


# --- what a sharding costs ----------------------------------------------------------------------------------------------


def sharded_costs(solver: PartSolver, sharding: Sharding, in_flight: float) -> PartCosts:
    """Costs of a part under a sharding, with ``in_flight`` microbatches saved."""
    graph = solver.graph
    times: dict[str, list[float]] = {"forward": [], "recompute": [], "backward": []}
    calls = dict.fromkeys(times, 0)
    exposed: dict[CollectiveKind, list[float]] = {}
    names = list(graph.found.passes.values())
    at = [times[name] for name in names]
    makers = {name: number for number, op in enumerate(graph.workload.ops) for name in op.outputs}
    for number, op in enumerate(sharding.ops):
        at[number].append(op.time)
    for move in sharding.redistributions:
        # outputs are redistributed in the pass of their producer
        place = move.at if move.reader else makers.get(move.tensor, 0)
        for step in move.steps:
            at[place].append(step.time)
            if step.kind is not None:
                calls[names[place]] += 1
                exposed.setdefault(step.kind, []).append(step.time)
    macs, products, traffic = _demand(solver, sharding)
    device = PartCosts(
        forward=math.fsum(times["forward"]),
        recompute=math.fsum(times["recompute"]),
        backward=math.fsum(times["backward"]),
        parameters=math.fsum(_local(graph, name, sharding.ends[name], sharding) for name in graph.weights),
        activation=sharding.saved_memory / in_flight,
        working=_working(graph, sharding),
        macs=macs,
        products=products,
        traffic=traffic,
        exposed={kind: math.fsum(found) for kind, found in exposed.items()},
        sharding=sharding,
        launches=solver.host.launches,
        calls=calls if solver.host.launches else {},
    )
    return device if solver.host.software is None else with_host(device, solver.host.software)


def with_host(part: PartCosts, software: Software) -> PartCosts:
    """The costs of a part whose chip does not wait for a host, with the host of this software."""
    device = {name: getattr(part, name) for name in part.launches}
    hosts = {name: software.host_time(kernels, part.calls[name]) for name, kernels in part.launches.items()}
    passes: dict[str, Any] = {name: float(queued_time(time, hosts[name])) for name, time in device.items()}
    waits = {name: time - device[name] for name, time in passes.items() if time > device[name]}
    return replace(part, **passes, waits=waits)


def _demand(solver: PartSolver, sharding: Sharding) -> tuple[float, float, float]:
    """Of a chip, in all passes: multiply-accumulates of its ops, those that its kernels execute, and memory traffic [B]."""
    macs, products, traffic = list[float](), list[float](), list[float]()
    work = solver.graph.workload
    for op, item in zip(work.ops, sharding.ops, strict=True):
        extents = {dim: work.dims[dim] for dim in (*op.dims, *op.sequence)}
        local = local_extents(extents, [way.split for way in item.strategy], sharding.problem.mesh)
        if op.kind is OpKind.CONTRACT:
            macs.append(math.prod(local[dim] for dim in op.dims))
    for _, kernel, runs in sharded_kernels(solver.graph, sharding, solver.costs.gradient):
        done, moved = kernel_demand(kernel)
        products.append(float(runs * done))
        traffic.append(float(runs * moved))
    return math.fsum(macs), math.fsum(products), math.fsum(traffic)


def _local(graph: TrainingGraph, tensor: str, layout: Layout, sharding: Sharding) -> int:
    """Elements of a tensor on the chip with most."""
    work = graph.workload
    extents = {dim: work.dims[dim] for dim in work.tensors[tensor].dims}
    splits = [item.dim if isinstance(item, Shard) else "" for item in layout]
    return math.prod(local_extents(extents, splits, sharding.problem.mesh).values())


def _working(graph: TrainingGraph, sharding: Sharding) -> float:
    """Peak bytes of a pass, other than weights, their gradients and saved tensors: tensors from their producer to their last
    reader, and copies in another layout for the op that reads them."""
    work = graph.workload
    layouts = {**sharding.ends, **sharding.saved}
    found = []
    for op, item, alive in zip(work.ops, sharding.ops, lifetimes(graph), strict=True):
        layouts = {name: tuple(way.writes[place] for way in item.strategy) for place, name in enumerate(op.outputs)} | layouts
        wanted = {name: tuple(way.reads[place] for way in item.strategy) for place, name in enumerate(op.inputs)}
        copies = (name for name in wanted if name in graph.stored and wanted[name] != layouts[name])
        held = [*((name, layouts[name]) for name in alive), *((name, wanted[name]) for name in copies)]
        found.append(sum(_local(graph, name, layout, sharding) * work.tensors[name].word for name, layout in held))
    return float(max(found))
