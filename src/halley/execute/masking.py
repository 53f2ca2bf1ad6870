"""Loops over the keys of a mask that skip tiles that no row sees (docs/model.md, "Masks")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from halley.errors import Fault, IllegalMapping
from halley.execute.compute import Journal
from halley.execute.members import Box, ExecutionScope, Instance, idle, in_sight, region, size, slices
from halley.execute.store import Store
from halley.ir.mapping import Collective, Compute, Hold, Node, Parallel, Pipeline, Spatial, Temporal, walk
from halley.ir.masks import Mask, mask_over, masks
from halley.ir.workload import Op


def visible_keys(
    store: Store, journal: Journal, node: Temporal, scope: ExecutionScope, run: Callable[[Node, ExecutionScope], None]
) -> None:
    """Run the body for each tile of keys with the members whose rows see it. Skipped points count as computed, as they would not
    change any result."""
    where = f"for {node.dim} by {node.tile} visible"
    mask = mask_over(store.workload, node.dim)
    if mask is None:
        raise IllegalMapping(Fault(where, "the keys of one mask", f"{node.dim}", "leave 'visible' out"))
    ops = [store.workload.op(inner.op) for _, inner in walk(node.body) if isinstance(inner, Compute)]
    for expected, got in _misuses(store, node, scope, mask, ops):
        raise IllegalMapping(Fault(where, expected, got, "leave 'visible' out"))
    for index in range(scope.steps(node.dim, node.tile)):
        run(node.body, scope.iteration(node.dim, node.tile, index, mask))
    for op in ops:
        _count_hidden(store, journal, node, scope, mask, op)


def _misuses(store: Store, node: Temporal, scope: ExecutionScope, mask: Mask, ops: list[Op]) -> list[tuple[str, str]]:
    """(expected, got) of each rule that is broken."""
    work, found = store.workload, []
    if any(dim == node.dim for dim, _ in scope.loops) or node.dim in scope.split.values():
        found.append((f"no other loop or split of {node.dim} around it", "one"))
    inside = [inner for _, inner in walk(node.body)]
    if any(isinstance(inner, Spatial) and inner.dim == node.dim for inner in inside):
        found.append((f"no split of {node.dim} inside it", "one"))
    if any(isinstance(inner, Collective | Parallel | Pipeline) for inner in inside):
        found.append(("no collective, parallel or pipeline inside it", "one"))
    if any(isinstance(inner, Temporal) and inner.visible for inner in inside):
        found.append(("no other visible loop inside it", "one"))
    if work.indices:
        found.append(("a workload without affine indices", "one with them"))
    have, names = masks(work), {op.name for op in ops}
    found += [("ops with the mask alone", op.name) for op in ops if have.get(op.name) != mask]
    held = {name for inner in inside if isinstance(inner, Hold) for name in inner.names}
    for op in ops:
        for name in op.outputs:
            spans = {mask.rows, mask.keys} <= set(work.tensors[name].dims)
            others = name in work.outputs or any(other.name not in names for other in work.ops if name in other.inputs)
            if spans and (others or name in scope.holds):
                found.append((f"{name} made, held and read in it alone", "more"))
            if not spans and name in held:
                found.append((f"{name} held around it", "inside"))
    return found


def _count_hidden(store: Store, journal: Journal, node: Temporal, scope: ExecutionScope, mask: Mask, op: Op) -> None:
    """Record skipped points as computed, and as contained in the op's sums."""
    seen: set[tuple[str, Instance, Box]] = set()
    for member, ranges in scope.ranges.items():
        if idle(ranges):
            continue
        start, stop = ranges[node.dim]
        tiles = [(begin, min(begin + node.tile, stop)) for begin in range(start, stop, node.tile)]
        hidden = [tile for tile in tiles if not in_sight(mask, ranges[mask.rows], tile)]
        for tile in hidden:
            done = journal.done.get(op.name, {}).get(member)
            if done is not None:
                part = {**ranges, node.dim: tile}
                done[slices(tuple(part[dim] for dim in op.dims))] = True
        if node.dim not in store.reduced(op):
            continue
        others = [dim for dim in store.reduced(op) if dim != node.dim]
        points = sum(stop - start for start, stop in hidden) * size(tuple(ranges[dim] for dim in others))
        for name in op.outputs:
            hold = scope.holds[name][-1]
            box = region(store.workload.tensors[name], ranges)
            place = name, member[: scope.siblings.width(hold.depth)], box
            buffer = hold.buffer(name, member)
            if place not in seen:
                held = buffer.held(store.numbers[name], box)
                buffer.count[slices(box)] += np.where(held > 0, points, 0)
            seen.add(place)
