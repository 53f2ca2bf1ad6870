"""Every plan of training on a small system, by loops of its own, each put together by the event simulation: the oracle of
`halley.training.search.search`. It shares no bound, no batch and no composition with the search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from halley.errors import BadInput
from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Shard
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Assignment, Role, SubAxis
from halley.sharding.communication import Communication, Interconnect
from halley.simulate.schedule import PassTable, gpipe, interleaved, one_forward_one_backward
from halley.simulate.training import SimulatedBlock, TrainingIteration, simulate
from halley.training.axis_bounds import GraphVariant
from halley.training.part_costs import ModelCosts
from halley.training.plan import TrainingProblem

ROLES = (Role.DATA, Role.PIPELINE, Role.MODEL)
AROUND = 16
"""Bytes per parameter that kernels around the optimizer's step move."""


@dataclass(frozen=True)
class Enumerated:
    """A plan with one of the shardings of its parts: its time [s] and the memory [B] of its fullest chip."""

    time: float
    memory: float
    choices: tuple[Any, ...]


def cut(axis: Any) -> Iterator[tuple[SubAxis, ...]]:
    """All factorisations of an axis; the order of the parts matters where ranks are not all alike."""
    for sizes in itertools.product(range(1, axis.size + 1), repeat=3):
        if math.prod(sizes) != axis.size:
            continue
        parts = [(role, size) for role, size in zip(ROLES, sizes, strict=True) if size > 1]
        orders = [tuple(parts)] if axis.topology in (Topology.SWITCH, Topology.FULL) else itertools.permutations(parts)
        for order in orders:
            found, stride = [], axis.size
            for role, size in order:
                stride //= size
                found.append(SubAxis(axis.name, role, size, stride))
            yield tuple(found)


def size(assignment: Assignment, role: Role) -> int:
    found = 1
    for part in assignment:
        found *= part.size if part.role is role else 1
    return found


def tables(stages: int, microbatches: int, layers: int) -> Iterator[tuple[str, PassTable]]:
    """All schedules that run."""
    if stages == 1:
        yield "1f1b 1", one_forward_one_backward(1, microbatches)
        return
    yield "gpipe", gpipe(stages, microbatches)
    yield "1f1b 1", one_forward_one_backward(stages, microbatches)
    for chunks in range(2, layers // stages + 1):
        try:
            yield f"1f1b {chunks}", interleaved(stages, chunks, microbatches)
        except BadInput:
            continue


def enumerate_plans(problem: TrainingProblem, model: Any) -> Iterator[Enumerated]:
    """Every plan with every sharding that ``model.shardings`` knows."""
    layers, interconnect = problem.shape.layers, Interconnect(problem.system)
    fixed = problem.fixed
    for parts in itertools.product(*map(list, map(cut, problem.system.axes))):
        assignment = tuple(itertools.chain(*parts))
        data, stages = size(assignment, Role.DATA), size(assignment, Role.PIPELINE)
        if problem.batch % data or stages > layers:
            continue
        communication = Communication(interconnect, assignment)
        local = problem.batch // data
        for microbatch in (each for each in range(1, local + 1) if local % each == 0):
            for name, table in tables(stages, local // microbatch, layers):
                for recompute, fused in itertools.product(Recompute, (True, False)):
                    if fixed.recompute not in (None, recompute) or fixed.fused not in (None, fused):
                        continue
                    for costs in model.shardings(communication, microbatch, GraphVariant(recompute, fused)):
                        for zero, offload in itertools.product(range(4), (False, True)):
                            if fixed.sharded not in (None, zero) or (data == 1 and zero) or (offload and not problem.system.host):
                                continue
                            found = composed(problem, communication, table, costs, zero, offload)
                            choices = (assignment, microbatch, name, recompute, fused, zero, offload)
                            yield Enumerated(*found, choices)


def composed(
    problem: TrainingProblem, communication: Communication, table: PassTable, costs: ModelCosts, zero: int, offload: bool
) -> tuple[float, float]:
    """Time of an iteration [s] and memory of the fullest chip [B], from the simulation."""
    ranks, recipe = size(communication.assignment, Role.DATA), problem.recipe
    chunks = dealt(problem, table, costs)
    kind = CollectiveKind.REDUCE_SCATTER if zero else CollectiveKind.ALL_REDUCE

    def block(part: Any) -> SimulatedBlock:
        gather = float(communication.data(CollectiveKind.ALL_GATHER, recipe.weight * part.parameters))
        reduction = float(communication.data(kind, recipe.gradient * part.parameters))
        # collectives of each pass take a share of the chip from its work
        taken = problem.software.contention if problem.software else 0.0
        forward = part.forward + taken * gather * (zero == 3)
        backward = part.recompute + part.backward + taken * (gather * (zero == 3) + reduction * (zero >= 2))
        return SimulatedBlock(forward, backward, gather, reduction, part.activation)

    sizes = {"b": problem.batch // ranks // table.microbatches, "m": problem.sequence, "k": problem.shape.model}
    for layout, axis in zip(costs.boundary, communication.mesh, strict=True):
        if isinstance(layout, Shard):
            sizes[layout.dim] = math.ceil(sizes[layout.dim] / axis.ranks)
    sent = [float(communication.transfer(chunk, 2 * math.prod(sizes.values()))) for chunk in range(table.last)]
    stages = [[part for chunk in chunks[s :: table.stages] for part in chunk] for s in range(table.stages)]
    parameters = [sum(part.parameters for part in parts) for parts in stages]
    bandwidth = problem.efficiency.memory * problem.system.chip.levels[0].memories[0].read_bandwidth
    axes = tuple(axis.name for axis in communication.mesh)
    summed = float(communication.data(CollectiveKind.ALL_REDUCE, 4))
    summed += communication.model(CollectiveKind.ALL_REDUCE, axes, 4) if axes else 0.0
    own = [math.ceil(count / ranks) if zero else count for count in parameters]
    ran = simulate(
        TrainingIteration(
            table,
            [[block(part) for part in chunk] for chunk in chunks],
            sent,
            sent,
            sharded=zero,
            norm=[count * recipe.gradient / bandwidth for count in own],
            norm_reduction=summed,
            step=[step(problem, count, bandwidth, offload) for count in own],
        )
    )
    needs = [
        kept(problem, parts, count, ranks, zero, offload) + peak
        for parts, count, peak in zip(stages, parameters, ran.peaks, strict=True)
    ]
    return ran.time, max(needs)


def step(problem: TrainingProblem, parameters: float, bandwidth: float, offload: bool) -> float:
    recipe, host = problem.recipe, problem.system.host
    traffic = parameters * (recipe.gradient + 2 * recipe.state + recipe.weight) / bandwidth
    if offload and host:
        traffic = max(traffic, parameters * recipe.state / min(host.bandwidth, host.link.bandwidth))
    return problem.efficiency.launch + parameters * AROUND / bandwidth + traffic


def kept(problem: TrainingProblem, parts: list[Any], parameters: float, ranks: int, zero: int, offload: bool) -> float:
    """What a chip holds beside activations [B]."""
    recipe = problem.recipe
    words = ((recipe.weight, 3), (recipe.gradient, 2), (0 if offload else recipe.state, 1))
    states = sum(word * (math.ceil(parameters / ranks) if zero >= least else parameters) for word, least in words)
    # blocks whose weights, or gradients, are whole for a moment: the one at work and the next
    whole = sum(word for word, least in words[:2] if zero >= least)
    return float(states + max(p.working for p in parts) + whole * max(p.parameters for p in parts) * min(len(parts), 2))


def dealt(problem: TrainingProblem, table: PassTable, costs: ModelCosts) -> list[list[Any]]:
    """Layers over chunks as evenly as can be, what is left over to those before the last."""
    layers = [part for part, count in costs.blocks for _ in range(count)]
    each, rest = divmod(len(layers), table.last + 1)
    found: list[list[Any]] = []
    for chunk in range(table.last + 1):
        count = each + (1 if table.last - rest <= chunk < table.last else 0)
        found.append(layers[:count])
        layers = layers[count:]
    return [
        [*([costs.embedding] if n == 0 else []), *chunk, *([costs.head] if n == table.last else [])]
        for n, chunk in enumerate(found)
    ]


def least(plans: Mapping[int, Enumerated] | Iterator[Enumerated], capacity: float) -> tuple[Enumerated | None, int]:
    """The fastest plan that fits, and how many plans there are."""
    best, count = None, 0
    for count, each in enumerate(plans, 1):  # noqa: B007
        if each.memory <= capacity and (best is None or each.time < best.time):
            best = each
    return best, count
