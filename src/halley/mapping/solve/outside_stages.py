"""Cost outside the stages: rounds, ramps, traffic and footprint of a frame's own Holds and loops, for overlapped stages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from halley.cost.affine import counter_of
from halley.cost.estimate import Estimate, Resource
from halley.cost.evaluate import evaluate
from halley.cost.events import Event, Path
from halley.cost.footprint import footprint
from halley.cost.movement import Body
from halley.cost.programs.program import Array
from halley.cost.resources import Resources, energy_of
from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.ir.mapping import Hold, Node, walk
from halley.ir.mapping import Sequence as Steps
from halley.mapping.bounds.chain_sets import starts
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Flags
from halley.mapping.space.frame_sets import Frame


@dataclass(frozen=True, slots=True)
class BufferVisits:
    """Tensors that share a buffer: for each combination of the shared tile sizes, the sum of their fill and drain times
    (``moving`` [s]) and the number of ``buffers``; the ``first`` and the ``last`` child that accesses them."""

    moving: Array
    buffers: Array
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class OutsideCost:
    """Cost outside the stages, for each combination of the shared tile sizes: number of rounds (``entries``) and of ``phases``;
    ``ramps`` [s] of the Holds around the stages, and for resources that are busy in the ramps, their waits at the ``ends`` of the
    rounds [s] instead; transfers of Holds with one buffer outside the phases (``serial`` [s]); ``energy`` [J]; ``busy`` time [s]
    of each resource by Holds inside the phases, and by those ``beside`` them; the ``visits`` of Holds inside; the ``footprint``
    [B] in each memory that may overflow (memories x combinations). ``counted`` [B]: the part of it that the footprint of a stage
    already contains, as that is computed with sequential stages."""

    entries: Array
    phases: Array
    ramps: Array
    ends: Mapping[Resource, Array]
    serial: Array
    energy: Array
    busy: Mapping[Resource, Array]
    beside: Mapping[Resource, Array]
    visits: Sequence[BufferVisits]
    footprint: Array
    counted: Array


def outside_cost(costs: Costing, frame: Frame, known: dict[Hashable, OutsideCost]) -> OutsideCost:
    """The cost of a frame outside its stages. It does not depend on the shapes of the stages, as Holds depend only on which
    tensors the stages access. Holds around partitions of an axis are outside the clusters, so it is the same for all
    partitions: these are in ``known``. Frames of other memories or splits around the stages have other Holds, and another
    ``wrap``."""
    if frame.partition is None:
        return _found(costs, frame)
    key = frame.wrap, frame.cut, frame.partition.level, frame.partition.axis
    if key not in known:
        known[key] = _found(costs, frame)
    return known[key]


def rounds(costs: Costing, frame: Frame) -> Array:
    """Number of runs of a frame's stages, for each combination of the shared tile sizes."""
    symbols, stages = costs.trees.symbols(frame.shared), [Steps(()) for _ in frame.stages]
    tree = costs.enclose(frame.sequential(symbols, stages))
    path = next(path for path, node in walk(tree) if node is stages[0])
    entries = evaluate(costs.workload, costs.chip, tree, sums=costs.trees.sums(costs.workload)).nodes[path].entries
    trees, rows = costs.trees.of(frame.shared, ()), costs.combinations(frame)
    return costs.trees.program([entries], trees, lambda: frame.name)(starts(trees, frame.shared, rows), rows)[:, 0]


def holds_fit(costs: Costing, frame: Frame) -> Flags:
    """For which combinations of the shared tile sizes a frame's own Holds fit. Holds of a finer cut need at least as many bytes,
    as a handed-over tensor has one buffer per child on its path."""
    used = _footprint(costs, frame, frame.tree(shared_sizes(costs, frame), frame.users()))
    capacities = [costs.chip.memory(name).capacity for name in costs.limited]
    return np.asarray((used <= np.reshape(capacities, (-1, 1))).all(axis=0))


def _footprint(costs: Costing, frame: Frame, tree: Node) -> Array:
    """The footprint [B] of a group's tree on its shared sizes (memories with a limit x combinations)."""
    counter, rows = counter_of(costs.workload, costs.chip), costs.combinations(frame)
    used = footprint(counter, costs.enclose(tree), Body(counter))
    every = [np.broadcast_to(np.asarray(used.get(name, 0), dtype=np.float64), (rows,)) for name in costs.limited]
    return np.reshape(every, (-1, rows))


def _found(costs: Costing, frame: Frame) -> OutsideCost:
    sizes, rows = shared_sizes(costs, frame), costs.combinations(frame)
    shapes = [stage.skeletons[0] for stage in frame.stages]  # whichever: what they take themselves is left out
    sizes |= {slot.name: 1 for shape in shapes for slot in shape.slots}
    made = [shape.build(sizes) for shape in shapes]
    tree = costs.enclose(frame.tree(sizes, made))
    estimate = evaluate(costs.workload, costs.chip, tree, times=costs.timed, held=Steps(()))

    def each(value: Number) -> Array:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,))

    nodes = dict(walk(tree))
    path = _common_ancestor(nodes, [node for at, node in enumerate(made) if at not in frame.last])
    outside = [event for event in estimate.events if len(event.path) < len(path) and path[: len(event.path)] == event.path]
    parts = _with_outer_hold if frame.kept else _by_phases
    ramps, ends, serial, busy, beside = parts(costs, frame, nodes, estimate, path, outside)
    return OutsideCost(
        entries=each(estimate.nodes[path].entries),
        phases=each(_phases(nodes, estimate, path)),
        ramps=each(ramps),
        ends={name: each(time) for name, time in ends.items()},
        serial=each(serial),
        energy=each(total(energy_of(costs.chip, event)[1] for event in outside)),
        busy={name: each(time) for name, time in busy.items()},
        beside={name: each(time) for name, time in beside.items()},
        visits=[
            replace(own, moving=each(own.moving), buffers=each(own.buffers))
            for own in _visits(costs, frame, nodes, estimate, path)
        ],
        footprint=_footprint(costs, frame, frame.tree(sizes, frame.users())),
        counted=_footprint(costs, frame, frame.sequential(sizes, frame.users())),
    )


def shared_sizes(costs: Costing, frame: Frame) -> dict[str, Number]:
    """The shared sizes of each combination, by slot."""
    shared = costs.searched_slots(frame.shared)
    trees = costs.trees.of(shared, ())
    sizes: dict[str, Number] = dict(costs.fixed_sizes(frame.shared))
    for dim, nodes in starts(trees, shared, costs.combinations(frame)).items():
        sizes |= {name: column[trees[dim].start[nodes]] for name, column in trees[dim].columns.items()}
    return sizes


Parts = tuple[Number, dict[Resource, Number], Number, dict[Resource, Number], dict[Resource, Number]]
"""Ramps, ends, serial, busy and beside of an `OutsideCost`."""


def _visits(costs: Costing, frame: Frame, nodes: Mapping[Path, Node], estimate: Estimate, path: Path) -> Iterator[BufferVisits]:
    """The visits of the Holds in the phase of the rounds, of as many as there are buffers at once."""
    phase = next((at + 1 for at in range(len(path) - 1, 0, -1) if isinstance(nodes[path[:at]], Steps)), 0)
    ops = [[costs.workload.op(op) for stage in child for op in frame.stages[stage].ops] for child in frame.children]
    touched = [{name for op in own for name in (*op.inputs, *op.outputs, op.scaled_by)} for own in ops]
    for at in range(phase, len(path)):
        hold = nodes[path[:at]]
        if not isinstance(hold, Hold):
            continue
        for group, moving in estimate.nodes[path[:at]].moving:
            users = [child for child, names in enumerate(touched) if names.intersection(group)]
            if users:  # with one buffer, transfers are before and after all that is inside
                several = np.asarray(hold.buffers) > 1
                yield BufferVisits(np.where(several, moving, -np.inf), np.maximum(hold.buffers, 1), users[0], users[-1])


def _by_phases(
    costs: Costing, frame: Frame, nodes: Mapping[Path, Node], estimate: Estimate, path: Path, outside: Sequence[Event]
) -> Parts:
    """Of a frame whose rounds are the phases, or lie in phases with what follows them."""
    first = path[:1]
    own = next((path[: at + 1] for at in range(len(path) - 1, 0, -1) if isinstance(nodes[path[:at]], Steps)), first)
    phase, outermost = estimate.nodes[own], estimate.nodes[first]
    ramps: Number = phase.entries * (phase.filling + phase.ramp_down)
    ends = {name: phase.entries * time for name, time in phase.ends.items()}
    serial: Number = 0.0
    if own != first:
        outside_cost = outermost.filling + outermost.ramp_down
        ramps, ends = ramps + outside_cost, {name: time + outside_cost for name, time in ends.items()}
        serial = outermost.work - estimate.nodes[own[:-1]].work
    return ramps, ends, serial, _busy(costs, outside, len(own), len(path)), _busy(costs, outside, 0, len(own))


def _with_outer_hold(
    costs: Costing, frame: Frame, nodes: Mapping[Path, Node], estimate: Estimate, path: Path, outside: Sequence[Event]
) -> Parts:
    """Of a frame that keeps tensors around the loop around its stages. With two buffers what comes and goes there does so beside
    the stages, in one phase with them; with one before and after them, and what is inside is a phase of its own, with ramps of
    its own."""
    at = next(at for at in range(1, len(path)) if _keeps(nodes[path[:at]], frame))
    outermost, inner = estimate.nodes[path[:1]], estimate.nodes[path[: at + 1]]
    hold = nodes[path[:at]]
    assert isinstance(hold, Hold)
    single = np.asarray(hold.buffers) == 1
    ramps = [cost.entries * (cost.filling + cost.ramp_down) for cost in (inner, outermost)]
    ends: dict[Resource, Number] = {
        name: np.where(single, *(cost.entries * cost.ends[name] if name in cost.ends else 0.0 for cost in (inner, outermost)))
        for name in (*inner.ends, *outermost.ends)
    }
    busy, kept = _busy(costs, outside, at + 1, len(path)), _busy(costs, outside, 0, at + 1)
    for resource, time in kept.items():
        busy[resource] = busy.get(resource, 0.0) + np.where(single, 0.0, time)
    serial = np.where(single, outermost.work - inner.time, 0.0)
    beside: dict[Resource, Number] = {resource: np.where(single, time, 0.0) for resource, time in kept.items()}
    return np.where(single, *ramps), ends, serial, busy, beside


def _keeps(node: Node, frame: Frame) -> bool:
    return isinstance(node, Hold) and node.names == tuple(name for name, _ in frame.kept)


def _common_ancestor(nodes: Mapping[Path, Node], made: Sequence[Node]) -> Path:
    """The innermost node around some others."""
    paths = [path for path, node in nodes.items() if any(node is own for own in made)]
    return tuple(steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, zip(*paths, strict=False)))


def _phases(nodes: Mapping[Path, Node], estimate: Estimate, path: Path) -> Number:
    """How often the phase of the rounds at a path is entered: a Hold with one buffer makes a phase of what is inside."""
    result: Number = 1
    for at in range(1, len(path) + 1):
        outer = nodes[path[: at - 1]]
        if isinstance(outer, Steps):
            result = estimate.nodes[path[:at]].entries
        elif isinstance(outer, Hold):
            result = np.where(np.asarray(outer.buffers) == 1, estimate.nodes[path[:at]].entries, result)
    return result


def _busy(costs: Costing, events: Sequence[Event], first: int, stop: int) -> dict[Resource, Number]:
    """What the events of nodes at these depths keep each resource busy for."""
    return Resources(costs.chip).busy(event for event in events if first <= len(event.path) < stop)
