"""Scopes of the nodes of a tree: the cuts of every dim, enclosing loops, and the axes that are split or partitioned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from halley.errors import Fault
from halley.ir.hardware import Chip, Topology
from halley.ir.mapping import Node, Parallel, Pipeline, Spatial, Temporal, children
from halley.rewrite.layout import AxisKey, Chain, DimCut, Interval, extents_after

Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TemporalLoop:
    """A loop in time at a ``path``; ``repeats``: it has more than one iteration."""

    path: Path
    dim: str
    repeats: bool


@dataclass(frozen=True, slots=True)
class AxisSplit:
    """An axis that splits a dim: between ``least`` and ``most`` of its members have work."""

    dim: str
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class NodeScope:
    """The scope of a node. ``extents``: the sizes that a member's range of each dim can have. ``chains``: the cuts of each dim;
    ``written_chains``: the same including loops with one iteration and splits over axes of one member. ``split``: the axes that
    are split. ``shares``: (first, stop) members of an axis in the enclosing child of a `Parallel` or `Pipeline`; ``parts``: all
    such children, outermost first, each with its share. ``loops``: the loops in time around the node."""

    chip: Chip
    extents: Mapping[str, frozenset[int]]
    chains: Mapping[str, Chain] = field(default_factory=dict)
    written_chains: Mapping[str, Chain] = field(default_factory=dict)
    split: Mapping[AxisKey, AxisSplit] = field(default_factory=dict)
    shares: Mapping[AxisKey, Interval] = field(default_factory=dict)
    parts: Mapping[AxisKey, tuple[tuple[Path, Interval], ...]] = field(default_factory=dict)
    loops: tuple[TemporalLoop, ...] = ()

    def chain(self, dim: str) -> Chain:
        return self.chains.get(dim, ())

    def until(self, key: AxisKey) -> Chain:
        """The cuts of the dim that an axis splits, up to that split; none where it splits nothing."""
        chain = self.chain(self.split[key].dim) if key in self.split else ()
        axes = [cut.axis for cut in chain]
        return chain[: axes.index(key) + 1] if key in axes else ()

    def share(self, key: AxisKey) -> Interval:
        """The members [first, stop) of the axis in this scope."""
        return self.shares.get(key, (0, self.chip.axis(*key).size))

    def size(self, key: AxisKey) -> int:
        first, stop = self.share(key)
        return stop - first

    def topology(self, key: AxisKey) -> Topology:
        """The topology of the axis in this scope: part of a ring is a line."""
        axis = self.chip.axis(*key)
        return Topology.LINE if axis.topology is Topology.RING and self.size(key) < axis.size else axis.topology

    def active(self, key: AxisKey) -> Interval:
        """The members of the axis that can have work in this scope."""
        first, stop = self.share(key)
        return (first, first + self.split[key].most) if key in self.split else (first, stop)

    def loop(self, path: Path, dim: str, tile: int) -> NodeScope:
        """The scope inside a loop in time."""
        repeats = max(self.extents[dim]) > tile
        inside = replace(
            self, loops=(*self.loops, TemporalLoop(path, dim, repeats)), written_chains=self._with_written_cut(dim, DimCut(tile))
        )
        return inside._cut(dim, DimCut(tile)) if repeats else inside

    def spread(self, node: Spatial) -> NodeScope:
        """The scope inside a split. A split over an axis of one member cuts nothing."""
        key, dim = (node.level, node.axis), node.dim
        parts = [-(-extent // node.tile) for extent in self.extents[dim]]
        written_chains = self._with_written_cut(dim, DimCut(node.tile, key, self.share(key)[0]))
        inside = replace(self, split={**self.split, key: AxisSplit(dim, min(parts), max(parts))}, written_chains=written_chains)
        if self.size(key) == 1:
            return inside
        return inside._cut(dim, DimCut(min(node.tile, max(self.extents[dim])), key, self.share(key)[0]))

    def divide(self, key: AxisKey, shares: tuple[int, ...], index: int, path: Path) -> NodeScope:
        """The scope inside child ``index`` of the `Parallel` or `Pipeline` at a path."""
        first = self.share(key)[0] + sum(shares[:index])
        share = (first, first + shares[index])
        parts = (*self.parts.get(key, ()), ((*path, index), share))
        return replace(self, shares={**self.shares, key: share}, parts={**self.parts, key: parts})

    def _with_written_cut(self, dim: str, cut: DimCut) -> dict[str, Chain]:
        return {**self.written_chains, dim: (*self.written_chains.get(dim, ()), cut)}

    def _cut(self, dim: str, cut: DimCut) -> NodeScope:
        chains = {**self.chains, dim: (*self.chain(dim), cut)}
        return replace(self, chains=chains, extents={**self.extents, dim: extents_after(self.extents[dim], cut)})


def scopes(tree: Node, chip: Chip, dims: Mapping[str, int], faults: list[tuple[Path, Fault]]) -> dict[Path, NodeScope]:
    """The scope of every node. Splits that do not fit their axis are added to ``faults``. Names in the tree must be known."""
    found: dict[Path, NodeScope] = {}
    todo: list[tuple[Path, Node, NodeScope]] = [
        ((), tree, NodeScope(chip, {dim: frozenset({extent}) for dim, extent in dims.items()}))
    ]
    while todo:
        path, node, scope = todo.pop()
        found[path] = scope
        inner = list(_inside(node, path, scope, faults))
        todo.extend(reversed([((*path, i), child, inner[i]) for i, child in enumerate(children(node))]))
    return found


def _inside(node: Node, path: Path, scope: NodeScope, faults: list[tuple[Path, Fault]]) -> Iterator[NodeScope]:
    """The scope of each child."""
    match node:
        case Temporal():
            yield scope.loop(path, node.dim, node.tile)
        case Spatial():
            fault = _misfit(node, scope)
            if fault:
                faults.append((path, fault))
            yield scope if fault else scope.spread(node)
        case Parallel() | Pipeline():
            fault = _bad_shares(node, scope)
            if fault:
                faults.append((path, fault))
            for index in range(len(node.children)):
                inner = scope if fault else scope.divide((node.level, node.axis), node.shares, index, path)
                yield inner.loop(path, node.dim, node.tile) if isinstance(node, Pipeline) else inner
        case _:
            yield from (scope for _ in children(node))


def _misfit(node: Spatial, scope: NodeScope) -> Fault | None:
    key = (node.level, node.axis)
    where = f"spread {node.dim} by {node.tile} over {node.level}.{node.axis}"
    if key in scope.split:
        other = scope.split[key].dim
        return Fault(where, f"an axis that is not split yet (it splits {other})", "a second split", "use another axis")
    extent, size = max(scope.extents[node.dim]), scope.size(key)
    parts = -(-extent // node.tile)
    if parts > size:
        return Fault(where, f"at most {size} parts", str(parts), f"use a tile of at least {-(-extent // size)}")
    return None


def _bad_shares(node: Parallel | Pipeline, scope: NodeScope) -> Fault | None:
    key = (node.level, node.axis)
    where = f"{'parallel' if isinstance(node, Parallel) else 'pipeline'} over {node.level}.{node.axis}"
    if key in scope.split:
        return Fault(where, "an axis that is not split yet", f"a split of {scope.split[key].dim}", "use another axis")
    size, shares = scope.size(key), node.shares
    if len(shares) != len(node.children) or min(shares, default=0) < 1 or sum(shares) > size:
        expected = f"{len(node.children)} shares of at least 1 that sum to at most {size}"
        return Fault(where, expected, " ".join(map(str, shares)) or "none", "change the shares")
    return None
