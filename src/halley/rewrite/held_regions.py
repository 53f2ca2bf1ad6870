"""The part of a tensor's region that each instance of a distributed Hold holds. Splits that all accesses inside have in common,
up to the first other loop or split of the dim, narrow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from halley.ir.mapping import Collective, Compute, walk
from halley.ir.workload import Workload
from halley.rewrite.hold_state import HoldState
from halley.rewrite.layout import AxisKey, Chain, Interval
from halley.rewrite.scopes import NodeScope, Path


@dataclass(frozen=True, slots=True)
class HeldRegion:
    """What the members hold of a tensor. ``chains``: the cuts of its dims. ``active``: by axis, the members that hold anything;
    where a split leaves others idle, ``idles`` has the cuts up to it. ``scope``: of the first access."""

    chains: Mapping[str, Chain]
    active: Mapping[AxisKey, Interval]
    idles: Mapping[AxisKey, Chain]
    scope: NodeScope


def touches(workload: Workload, home: HoldState, name: str) -> Iterator[Path]:
    """Paths of the computes and collectives inside a Hold that access a tensor."""
    for inner, node in walk(home.node):
        if isinstance(node, Compute):
            op = workload.op(node.op)
            if name in (*op.inputs, *op.outputs, op.scaled_by):
                yield (*home.path, *inner)
        elif isinstance(node, Collective) and name in node.tensors:
            yield (*home.path, *inner)


def held_region(workload: Workload, home: HoldState, name: str, scopes: Mapping[Path, NodeScope]) -> HeldRegion:
    """What the members hold of a tensor in an open Hold. At least one node inside must access the tensor."""
    leaves = [scopes[path] for path in touches(workload, home, name)]
    first, chains = leaves[0], {}
    for dim in workload.selectors(name):
        cuts, start = first.written_chains.get(dim, ()), len(home.scope.written_chains.get(dim, ()))
        stop = start
        while stop < len(cuts) and cuts[stop].axis in home.axes and _agree(leaves, dim, stop + 1):
            stop += 1
        chains[dim] = (*home.scope.chain(dim), *cuts[start:stop])
    narrowing = {cut.axis for chain in chains.values() for cut in chain} | home.scope.split.keys()
    for key, split in first.split.items():
        up_to = [cut.axis for cut in first.written_chains[split.dim]].index(key) + 1
        if split.dim not in chains and _agree(leaves, split.dim, up_to):
            narrowing.add(key)
    active = {key: first.active(key) if key in narrowing else _common_share(home, leaves, key) for key in home.axes}
    return HeldRegion(chains, active, {key: first.until(key) for key in home.axes & narrowing}, first)


def joined(workload: Workload, home: HoldState, name: str) -> bool:
    """Whether a collective inside a Hold accesses a tensor: it may give idle members a part, for which space is reserved."""
    leaves = [node for _, node in walk(home.node)]
    return any(isinstance(leaf, Collective) and name in leaf.tensors for leaf in leaves)


def held_outside_share(
    workload: Workload, home: HoldState, name: str, scopes: Mapping[Path, NodeScope], scope: NodeScope
) -> AxisKey | None:
    """An axis on which members outside the share of a node in the Hold hold a part of a tensor, or None."""
    keeps = held_region(workload, home, name, scopes).active
    shares = [(key, keeps[key], scope.share(key)) for key in sorted(home.axes & scope.shares.keys())]
    return next((key for key, (first, stop), (low, high) in shares if first < low or high < stop), None)


def _common_share(home: HoldState, leaves: list[NodeScope], key: AxisKey) -> Interval:
    """The innermost share of an axis, of a child of `Parallel` or `Pipeline`, that contains all accesses."""
    parts = [leaf.parts.get(key, ()) for leaf in leaves]
    common = [part for part in parts[0] if all(part in others for others in parts)]
    return common[-1][1] if common else home.scope.share(key)


def _agree(leaves: list[NodeScope], dim: str, length: int) -> bool:
    """Whether all accesses have the same first ``length`` cuts of a dim."""
    return len({leaf.written_chains.get(dim, ())[:length] for leaf in leaves}) == 1
