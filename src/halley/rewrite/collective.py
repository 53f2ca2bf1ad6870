"""Legality rules of a `Collective`: its algorithm, its position in the tree, and the placements before and after it."""

from __future__ import annotations

from dataclasses import replace

from halley.errors import did_you_mean
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.placement import Partial, Placement, Replicate, Shard, Single
from halley.ir.text import to_text
from halley.network.time.axis import able, algorithms
from halley.rewrite.compute import cut_once
from halley.rewrite.held_regions import held_outside_share, held_region
from halley.rewrite.hold_state import HoldState, TensorState, combined, reduced_dims, repeating, unfit
from halley.rewrite.layout import AxisKey, all_at_work, beyond, distributing_cuts, least_parts, most_parts, restrict
from halley.rewrite.scopes import NodeScope, Path
from halley.rewrite.walk_state import WalkState, dot

_SHARDING = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER, CollectiveKind.ALL_TO_ALL)
_REDUCING = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE)
_STARTS_FROM: dict[CollectiveKind, tuple[type[Placement], ...]] = {
    CollectiveKind.ALL_REDUCE: (Partial,),
    CollectiveKind.REDUCE_SCATTER: (Partial,),
    CollectiveKind.REDUCE: (Partial,),
    CollectiveKind.ALL_GATHER: (Shard,),
    CollectiveKind.GATHER: (Shard,),
    CollectiveKind.ALL_TO_ALL: (Shard,),
    CollectiveKind.BROADCAST: (Single,),
    CollectiveKind.SCATTER: (Single,),
    CollectiveKind.SHIFT: (Shard, Replicate, Single),
}
"""By kind, the placements along the axis that it accepts."""


def collective(state: WalkState, node: Collective, path: Path) -> None:
    scope, key = state.scopes[path], (node.level, node.axis)
    where = to_text(node)
    misfit = unfit(node, scope)
    if misfit:
        known = algorithms(node.kind, scope.topology(key), scope.size(key), able(scope.chip.axis(*key)))
        remedy = did_you_mean(node.algorithm, known) if known else f"no algorithm serves {node.kind} here"
        state.fault(where, *misfit, remedy)
    homes = {name: _home(state, where, node, name) for name in node.tensors}
    if [name for name, home in homes.items() if home and not _check_share(state, where, name, home, scope)]:
        return
    if scope.size(key) == 1:
        return
    dims = {state.workload.tensors[name].dims for name in node.tensors}
    if len(dims) > 1:
        state.fault(where, "tensors with the same dims", " and ".join(map(" ".join, sorted(dims))), "use one collective each")
    elif not _placed(state, where, node, scope, next(iter(dims))):
        return
    for name, home in homes.items():
        if home and _combinable(state, where, node, name, home, path):
            held = _combined_members(state, name, home.held[name], key) if node.kind in _REDUCING else home.held[name]
            home.held[name] = replace(combined(node, held, scope, path), relative=_relative(state, name, held))
            if home.held[name].placement(key) == Replicate():
                state.after_collective(home, name)
    for name, home in homes.items():
        if home and name in home.held and name in state.maxima:
            home.held[name] = replace(home.held[name], relative=state.renewed(name))


def _relative(state: WalkState, name: str, held: TensorState) -> tuple[str, int] | None:
    """The version of the running maximum that a tensor is relative to in a collective: what is scaled by one is rescaled before
    to the copy in the innermost Hold, but never back to an older copy."""
    op = state.producers.get(name)
    present = state.version(op.scaled_by) if op and op.scaled_by else None
    return max(held.relative, present) if held.relative and present else held.relative


def _combined_members(state: WalkState, name: str, held: TensorState, key: AxisKey) -> TensorState:
    """The tensor's state with members along the axis treated as one, as a reduction over it combines their parts. A member that
    an inner split leaves idle for some index of the axis counts as active if it has work for another index."""
    writer, active = state.scopes[state.computes[state.producers[name].name]], dict(held.active)
    for axis, chain in held.idled.items():
        if any(cut.axis == key for cut in chain[:-1]):
            first = active[axis][0]
            active[axis] = (first, first + least_parts(chain, key, state.workload.dims[writer.split[axis].dim]))
    return replace(held, active=active)


def _check_share(state: WalkState, where: str, name: str, home: HoldState, scope: NodeScope) -> bool:
    """Every member that holds the tensor must take part: none of them may be outside the collective's share of an axis."""
    outside = held_outside_share(state.workload, home, name, state.scopes, scope)
    if outside:
        expected = f"all members of {dot(outside)} that keep {name} in {home.node.memory} in its share"
        state.fault(where, expected, "others outside it", f"move it out of that share, or hold {name} inside it")
    return outside is None


def _home(state: WalkState, where: str, node: Collective, name: str) -> HoldState | None:
    """The innermost Hold of the tensor at the collective's level."""
    depth = [level.name for level in state.chip.levels].index(node.level)
    found = [home for home in state.open.get(name, ()) if home.depth == depth]
    if not found:
        remedy = f"hold {name} there around the collective"
        state.fault(where, f"{name} held in a memory of {node.level}", "no such hold around it", remedy)
    return found[-1] if found else None


def _placed(state: WalkState, where: str, node: Collective, scope: NodeScope, dims: tuple[str, ...]) -> bool:
    """The collective must be outside splits that would hide parts of its payload."""
    before = len(state.findings)
    levels = [level.name for level in state.chip.levels]
    for level, axis in scope.split:
        if levels.index(level) > levels.index(node.level):
            state.fault(where, "a place outside splits of deeper levels", f"inside a split over {level}.{axis}", "move it out")
    split = scope.split.get((node.level, node.axis))
    if split and split.dim in dims:
        remedy = "hold the tensor outside the split, and put the collective between"
        state.fault(where, f"a place outside the split of {split.dim} over that axis", "inside it", remedy)
    cut_once(state, where, scope)
    for index in state.workload.indices:
        enclosing = [loop.dim for loop in scope.loops] + [split.dim for split in scope.split.values()]
        cutting = sorted(set(index.dims).intersection(enclosing))
        if index.dim in dims and cutting:
            expected = f"a place outside loops and splits that cut {index.dim} into overlapping parts"
            state.fault(where, expected, f"inside one over {cutting[0]}", "move it out")
    if node.kind in _SHARDING and node.dim not in dims:
        state.fault(where, f"a dim of {node.tensors[0]} to shard", repr(node.dim), f"add 'to' and one of {', '.join(dims)}")
    return len(state.findings) == before


def _combinable(state: WalkState, where: str, node: Collective, name: str, home: HoldState, path: Path) -> bool:
    """The tensor must have the placement that the kind requires, and the collective must move all tensors of its state."""
    before, key, scope = len(state.findings), (node.level, node.axis), state.scopes[path]
    held = state.present(where, home, name)
    if held is None:
        return False
    if not isinstance(held.placement(key), _STARTS_FROM[node.kind]):
        wanted = " or ".join(kind.__name__ for kind in _STARTS_FROM[node.kind])
        remedy = "remove it, or use the kind that fits"
        state.fault(where, f"{name} {wanted} over {dot(key)}", str(held.placement(key)), remedy)
        return False
    if node.kind not in _REDUCING and not _in_order(state, held, home, name, scope, key):
        remedy = "put no loop between the hold and the split, and the collective right outside that split"
        state.fault(where, f"{name} {held.placement(key)}, the i-th tile on member i", "other parts", remedy)
    cuts = beyond(held.chains.get(node.dim, ()), restrict(scope.chain(node.dim), home.axes))
    taken = [cut.axis for cut in cuts if cut.axis not in (None, key)] if node.kind in _SHARDING else []
    if taken and taken[0]:
        state.fault(where, "a dim that no other axis shards", f"{node.dim}, which {dot(taken[0])} shards", "choose another dim")
    again = _again(state, node, name, held, home, scope)
    if again:
        remedy = "move it out of the loop, or move the writer in"
        state.fault(where, f"{name} written again before each time", f"a loop over {', '.join(again)} around it alone", remedy)
    op = state.producers.get(name)
    _uninterrupted(state, where, node, name, home, scope)
    lacking = [other for other in op.outputs if other not in node.tensors] if op else []
    if op and lacking and node.kind in _REDUCING:
        got = f"{name} without {lacking[0]}"
        state.fault(where, f"the whole state of {op.name}", got, f"add {lacking[0]} to the collective")
    if op and op.scaled_by:
        _check_maximum_combined(state, where, name, op.scaled_by, key)
    return len(state.findings) == before


def _again(state: WalkState, node: Collective, name: str, held: TensorState, home: HoldState, scope: NodeScope) -> list[str]:
    """Dims of the loops in which the collective would move the same data again. For a shift: none if all members have the same
    data; otherwise only loops over dims that do not select the tensor, as other tiles are other data."""
    again = repeating(scope) - repeating(home.scope) - held.loops
    dims = {loop.dim for loop in scope.loops if loop.path in again}
    if node.kind is CollectiveKind.SHIFT:
        same = held.placement((node.level, node.axis)) == Replicate()
        dims = set() if same else dims.difference(state.workload.selectors(name))
    return sorted(dims)


def _uninterrupted(state: WalkState, where: str, node: Collective, name: str, home: HoldState, scope: NodeScope) -> None:
    """The accumulation in the Hold must be complete; copies that a shift leaves must neither be drained nor added to."""
    op = state.producers.get(name)
    reduced = reduced_dims(state.workload, op) if op else ()
    inside = [loop.dim for loop in scope.loops[len(home.scope.loops) :] if loop.dim in reduced]
    if node.kind is CollectiveKind.SHIFT:
        inside = _added_to_copies(state, node, name, home, scope)
    if inside:
        expected = f"no loop over {inside[0]} between it and the hold of {name}"
        state.fault(where, expected, "one", "move it out of that loop, or the hold into it")
    enclosing = [other for other in state.open[name] if other.depth == home.depth]
    if node.kind is CollectiveKind.SHIFT and op and len(enclosing) > 1:
        state.fault(where, f"one hold of {name} in {node.level}, for copies do not drain", "two", "hold it once at that level")


def _added_to_copies(state: WalkState, node: Collective, name: str, home: HoldState, scope: NodeScope) -> list[str]:
    """Loops over reduced dims in which the next visit would add to copies that a shift has left; their dims."""
    op = state.producers.get(name)
    reduced = reduced_dims(state.workload, op) if op else ()
    if home.held[name].placement((node.level, node.axis)) == Replicate():
        return []
    return [loop.dim for loop in scope.loops[len(home.scope.loops) :] if loop.repeats and loop.dim in reduced]


def _in_order(state: WalkState, held: TensorState, home: HoldState, name: str, scope: NodeScope, key: AxisKey) -> bool:
    """Whether member i has the i-th tile of one dim of the region at the collective, or every member all of it."""
    selecting = state.workload.selectors(name)
    if key in held.shifted or _idle_lack(state, held, home, name):
        return False
    for axis, (first, stop) in held.active.items():
        # members left idle by a split of one of the tensor's dims have an empty region
        split = scope.split.get(axis)
        low, high = scope.active(axis) if split and split.dim in selecting else scope.share(axis)
        # what is split among the first members of the axis alone leaves the others without a tile
        empty = axis == key and low == first and isinstance(held.placement(key), Shard)
        if (low < first or high > stop) and not empty and not (axis == key and key in held.single):
            return False
    for dim, chain in held.chains.items():
        further = distributing_cuts(chain, restrict(scope.chain(dim), home.axes), state.workload.dims[dim])
        splits = [cut for cut in further if cut.axis]
        if not splits:
            continue
        if held.placement(key) != Shard(dim) or [(cut.axis, cut.first) for cut in splits] != [(key, scope.share(key)[0])]:
            return False
        before = chain[: chain.index(splits[0]) + 1]
        if further != splits and most_parts(before, state.workload.dims[dim]) > 1:  # in one part, it is on the first member
            return False
    return True


def _idle_lack(state: WalkState, held: TensorState, home: HoldState, name: str) -> bool:
    """Whether some members have a region of a tensor but were not filled, as they are idle in all nodes that touch it."""
    if held.filled is None:
        return False
    workload, selecting = state.workload, state.workload.selectors(name)
    others = [dim for dim in workload.dims if dim not in selecting]
    members = {key: home.scope.size(key) for key in home.scope.split}
    if not all(all_at_work(home.scope.chain(dim), workload.dims[dim], members) for dim in others):
        return True
    keeps = held_region(workload, home, name, state.scopes)
    splits = {axis: keeps.scope.split[axis] for axis in keeps.idles if axis in keeps.scope.split}
    return any(split.dim not in selecting and split.least < keeps.scope.size(axis) for axis, split in splits.items())


def _check_maximum_combined(state: WalkState, where: str, name: str, maximum: str, key: AxisKey) -> None:
    """Partial results relative to a running maximum can be combined only if the maximum was combined over the axis before."""
    enclosing = state.open.get(maximum)
    held = enclosing[-1].held.get(maximum) if enclosing else None
    if held is None or key in held.partial:
        got = str(held.placement(key)) if held else f"no hold of {maximum} that has it"
        expected = f"{maximum} Replicate over {dot(key)}, for {name} is relative to it"
        state.fault(where, expected, got, f"all-reduce {maximum} over {dot(key)} before it")
