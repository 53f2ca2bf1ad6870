"""What a frame with overlapped stages takes by itself, around its stages: rounds, ramps, traffic, room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halley.cost.estimate import Resource
from halley.cost.evaluate import evaluate, event_busy, event_energy, ports_of
from halley.cost.program import Array
from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.ir.mapping import Compute, Node, Overlap, Parallel, walk
from halley.ir.mapping import Sequence as Steps
from halley.search.sets import starts
from halley.search.space import Frame

if TYPE_CHECKING:
    from halley.search.solve import GroupSearch


@dataclass(frozen=True, slots=True)
class Around:
    """For each combination of the shared tile sizes: ``entries``, the rounds; ``ramps`` [s] of the Holds around the stages; their
    ``energy`` [J] and ``busy`` time [s] of each resource; the ``room`` [B] in each memory with a limit (memories x combinations).
    ``counted`` [B]: what a stage's own footprint has of it, as that is found with the stages in turn."""

    entries: Array
    ramps: Array
    energy: Array
    busy: Mapping[Resource, Array]
    room: Array
    counted: Array


def around(search: GroupSearch, frame: Frame) -> Around:
    """What a frame takes by itself, whatever shapes its stages have: its Holds see of these which tensors they touch. Holds
    around shares of an axis lie outside the clusters, so that it is the same for all shares."""
    if frame.shares is None:
        return _found(search, frame)
    key = frame.cut, frame.shares.axis
    if key not in search.arounds:
        search.arounds[key] = _found(search, frame)
    return search.arounds[key]


def rounds(search: GroupSearch, frame: Frame) -> Array:
    """How often a frame's stages run, for each combination of the shared tile sizes."""
    symbols, stages = search.trees.symbols(frame.shared), [Steps(()) for _ in frame.stages]
    tree = search.around(frame.in_turn(symbols, stages))
    path = next(path for path, node in walk(tree) if node is stages[0])
    entries = evaluate(search.workload, search.chip, tree, sums=search.trees.sums(search.workload)).nodes[path].entries
    trees, rows = search.trees.of(frame.shared, ()), search.combinations(frame)
    return search.trees.program([entries], trees, frame.name)(starts(trees, frame.shared, rows), rows)[:, 0]


def _found(search: GroupSearch, frame: Frame) -> Around:
    chip, sums, rows = search.chip, search.trees.sums(search.workload), search.combinations(frame)
    shapes = [stage.skeletons[0] for stage in frame.stages]  # whichever: what they take themselves is left out
    symbols = search.trees.symbols(frame.shared)
    symbols |= {slot.name: 1 for shape in shapes for slot in shape.slots}
    users: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops)) for stage in frame.stages]
    tree = search.around(frame.tree(symbols, [shape.build(symbols) for shape in shapes]))
    estimate = evaluate(search.workload, chip, tree, held=search.around(frame.tree(symbols, users)), sums=sums)
    path = next(path for path, node in walk(tree) if isinstance(node, Overlap | Parallel))
    outside = [event for event in estimate.events if len(event.path) < len(path)]
    memories, ports = {memory.name: memory for memory in chip.memories}, ports_of(chip)
    busy: dict[Resource, Number] = {}
    for event in outside:
        resource, time = event_busy(event, memories, ports)
        busy[resource] = busy.get(resource, 0) + time
    top, bottom = estimate.nodes[path[:1]], estimate.nodes[path]
    bare = search.around(frame.in_turn(symbols, [Steps(()) for _ in users]))
    turn = evaluate(search.workload, chip, bare, held=search.around(frame.in_turn(symbols, users)), sums=sums)
    energy = total(event_energy(chip, event)[1] for event in outside)
    limited = search.limited
    room = [found.footprint.get(name, 0) for found in (estimate, turn) for name in limited]
    outputs = [bottom.entries, top.ramp_up - bottom.ramp_up + top.ramp_down, energy, *busy.values(), *room]
    trees = search.trees.of(frame.shared, ())
    values = search.trees.program(outputs, trees, frame.name)(starts(trees, frame.shared, rows), rows).T
    entries, ramps, energies = values[:3]
    own, counted = values[3 + len(busy) :].reshape(2, len(limited), rows)
    return Around(entries, ramps, energies, dict(zip(busy, values[3:], strict=False)), own, counted)
