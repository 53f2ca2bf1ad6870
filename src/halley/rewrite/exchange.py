"""The rules of a `Collective`: its algorithm, its place in the tree, what it finds and what it leaves."""

from __future__ import annotations

from dataclasses import replace

from halley.errors import did_you_mean
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.network import algorithms
from halley.ir.placement import Partial, Placement, Replicate, Shard, Single
from halley.rewrite.layout import AxisKey
from halley.rewrite.residence import Residence, collective_text, combined, repeating, unfit
from halley.rewrite.scopes import Path, Scope
from halley.rewrite.walk import Walk, dot

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
"""The placement along its axis that each kind starts from."""


def collective(walk: Walk, node: Collective, path: Path) -> None:
    scope, key = walk.scopes[path], (node.level, node.axis)
    if scope.size(key) == 1:
        return
    where = collective_text(node)
    misfit = unfit(node, scope)
    if misfit:
        known = algorithms(node.kind, scope.topology(key), scope.size(key))
        remedy = did_you_mean(node.algorithm, known) if known else f"no algorithm serves {node.kind} here"
        walk.fault(where, *misfit, remedy)
    homes = {name: _home(walk, where, node, name) for name in node.tensors}
    dims = {walk.workload.tensors[name].dims for name in node.tensors}
    if len(dims) > 1:
        walk.fault(where, "tensors with the same dims", " and ".join(map(" ".join, sorted(dims))), "use one collective each")
    elif not _placed(walk, where, node, scope, next(iter(dims))):
        return
    for name, home in homes.items():
        if home and _combinable(walk, where, node, name, home, path):
            home.held[name] = combined(node, home.held[name], scope, path)
    for name in walk.maxima & set(node.tensors):
        walk.versions[name] += 1
    for name, home in homes.items():
        if home and name in home.held and (maximum := walk.producers[name].scaled_by if name in walk.producers else ""):
            home.held[name] = replace(home.held[name], relative=(maximum, walk.versions[maximum]))


def _home(walk: Walk, where: str, node: Collective, name: str) -> Residence | None:
    """The innermost Hold at the collective's level."""
    depth = [level.name for level in walk.chip.levels].index(node.level)
    found = [home for home in walk.open.get(name, ()) if home.depth == depth]
    if not found:
        remedy = f"hold {name} there around the collective"
        walk.fault(where, f"{name} held in a memory of {node.level}", "no such hold around it", remedy)
    return found[-1] if found else None


def _placed(walk: Walk, where: str, node: Collective, scope: Scope, dims: tuple[str, ...]) -> bool:
    """The collective stands outside the splits that would hide parts of its payload."""
    before = len(walk.findings)
    levels = [level.name for level in walk.chip.levels]
    for level, axis in scope.split:
        if levels.index(level) > levels.index(node.level):
            walk.fault(where, "a place outside splits of deeper levels", f"inside a split over {level}.{axis}", "move it out")
    split = scope.split.get((node.level, node.axis))
    if split and split.dim in dims:
        remedy = "hold the tensor outside the spread, and put the collective between"
        walk.fault(where, f"a place outside the split of {split.dim} over that axis", "inside it", remedy)
    if node.kind in _SHARDING and node.dim not in dims:
        walk.fault(where, f"a dim of {node.tensors[0]} to shard", repr(node.dim), f"add 'to' and one of {', '.join(dims)}")
    return len(walk.findings) == before


def _combinable(walk: Walk, where: str, node: Collective, name: str, home: Residence, path: Path) -> bool:
    """The tensor lies along the axis as the kind wants it, whole state and all."""
    before, key = len(walk.findings), (node.level, node.axis)
    held = walk.present(where, home, name)
    if held is None:
        return False
    if not isinstance(held.placement(key), _STARTS_FROM[node.kind]):
        wanted = " or ".join(kind.__name__ for kind in _STARTS_FROM[node.kind])
        remedy = "remove it, or use the kind that fits"
        walk.fault(where, f"{name} {wanted} over {dot(key)}", str(held.placement(key)), remedy)
        return False
    again = repeating(walk.scopes[path]) - repeating(home.scope) - held.loops
    if again:
        dims = sorted({loop.dim for loop in walk.scopes[path].loops if loop.path in again})
        remedy = "move it out of the loop, or move the writer in"
        walk.fault(where, f"{name} written again before each time", f"a loop over {', '.join(dims)} around it alone", remedy)
    op = walk.producers.get(name)
    lacking = [other for other in op.outputs if other not in node.tensors] if op else []
    if op and lacking and node.kind in _REDUCING:
        got = f"{name} without {lacking[0]}"
        walk.fault(where, f"the whole state of {op.name}", got, f"add {lacking[0]} to the collective")
    if op and op.scaled_by:
        _settled(walk, where, name, op.scaled_by, key)
    return len(walk.findings) == before


def _settled(walk: Walk, where: str, name: str, maximum: str, key: AxisKey) -> None:
    """Parts relative to a running maximum can be joined only once all are relative to the same one."""
    around = walk.open.get(maximum)
    held = around[-1].held.get(maximum) if around else None
    if held is None or key in held.partial:
        got = str(held.placement(key)) if held else f"no hold of {maximum} that has it"
        expected = f"{maximum} Replicate over {dot(key)}, for {name} is relative to it"
        walk.fault(where, expected, got, f"all-reduce {maximum} over {dot(key)} before it")
