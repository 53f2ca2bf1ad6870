"""Layouts of a tensor over the axes of a mesh, and the cheapest collectives that lead from one to another.

A layout has a placement per axis. Which elements of a dim a rank has along an axis depends on the rank's coordinate there
alone, not on other axes that split the same dim (blocks are dealt out by digits of their number). So a collective over some
axes changes the placements of these and no others, and every change of layout is a sequence of such collectives: a shortest
path.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, InternalError, did_you_mean
from halley.formulas.numbers import ceil_div
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Partial, Placement, Replicate, Shard, transition
from halley.ir.workload import Tensor

Layout: TypeAlias = tuple[Placement, ...]
"""A placement per axis of the mesh."""

CollectiveTime: TypeAlias = Callable[[CollectiveKind, tuple[str, ...], int], float]
"""Time [s] of a collective over axes, by name; bytes as `halley.network.collective.CONVENTIONS` counts them."""

SHORTER = 1 - 1e-12
"""A detour has to be shorter than the direct way by more than rounding."""


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """An axis of the mesh: that many ranks side by side."""

    name: str
    ranks: int

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.ranks, int) or isinstance(self.ranks, bool) or self.ranks < 2:
            where = f"mesh axis {self.name!r}"
            raise BadInput(Fault(where, "a name and at least 2 ranks", repr(self.ranks), "leave the axis out"))


Mesh: TypeAlias = tuple[MeshAxis, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One collective: over ``axes``, from one layout to another. ``kind`` is None for a slice, which moves nothing. ``bytes`` [B]
    as the kind counts them, ``time`` [s]."""

    kind: CollectiveKind | None
    axes: tuple[str, ...]
    before: Layout
    after: Layout
    bytes: int
    time: float


def layout_text(layout: Layout, mesh: Mesh) -> str:
    """Axes that split or sum.

    >>> layout_text((Shard("m"), Replicate()), (MeshAxis("x", 2), MeshAxis("y", 4)))
    'm/x'
    """
    parts = []
    for placement, axis in zip(layout, mesh, strict=True):
        if isinstance(placement, Shard):
            parts.append(f"{placement.dim}/{axis.name}")
        elif isinstance(placement, Partial):
            parts.append(f"{placement.monoid}({axis.name})")
    return " ".join(parts) or "whole"


def local_extents(extents: Mapping[str, int], splits: Sequence[str], mesh: Mesh) -> dict[str, int]:
    """Extents on the rank that has most; ``splits``: the dim that each axis splits, "" for none.

    >>> local_extents({"m": 10, "n": 7}, ["m", "m"], (MeshAxis("x", 2), MeshAxis("y", 4)))
    {'m': 2, 'n': 7}
    """
    parts = dict.fromkeys(extents, 1)
    for dim, axis in zip(splits, mesh, strict=True):
        if dim in parts:
            parts[dim] *= axis.ranks
    return {dim: int(ceil_div(extent, parts[dim])) for dim, extent in extents.items()}


class Change(NamedTuple):
    """A collective that changes a layout; None for a slice."""

    kind: CollectiveKind | None
    axes: tuple[str, ...]
    bytes: int
    time: float


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The ways between the layouts of all tensors of one shape, by the numbers of the layouts. ``bytes`` [options]: on the rank
    that has most. ``time`` [from, to] [s]: of the cheapest sequence of changes, ``following`` [from, to]: where the first of
    them leads."""

    bytes: NDArray[np.int64]
    time: NDArray[np.float64]
    following: NDArray[np.intp]
    changes: Mapping[tuple[int, int], Change]


@dataclass(slots=True, eq=False)
class Layouts:
    """All layouts of a tensor over a mesh and the ways between them.

    ``options``: the products of what the tensor may be along an axis, in the order of `itertools.product`.
    """

    tensor: Tensor
    mesh: Mesh
    options: tuple[Layout, ...]
    ways: Ways
    _index: dict[Layout, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._index = {layout: number for number, layout in enumerate(self.options)}

    @property
    def bytes(self) -> NDArray[np.int64]:
        return self.ways.bytes

    @property
    def time(self) -> NDArray[np.float64]:
        return self.ways.time

    def index(self, layout: Layout) -> int:
        """The number of a layout. Raises BadInput: the tensor cannot lie so."""
        found = self._index.get(layout)
        if found is None:
            where, known = f"layout of {self.tensor.name}", [layout_text(option, self.mesh) for option in self.options]
            if len(layout) != len(self.mesh):
                raise BadInput(Fault(where, f"a placement for each of {len(self.mesh)} axes", str(len(layout))))
            got = layout_text(layout, self.mesh)
            raise BadInput(Fault(where, "one that the tensor can have", got, did_you_mean(got, known)))
        return found

    @property
    def complete(self) -> tuple[int, ...]:
        """Layouts that need no reduction."""
        return tuple(n for n, layout in enumerate(self.options) if not any(isinstance(item, Partial) for item in layout))

    def path(self, before: int, after: int) -> tuple[Step, ...]:
        """The collectives of the cheapest way, slices among them."""
        found = []
        while before != after:
            through = int(self.ways.following[before, after])
            change = self.ways.changes[before, through]
            layouts = self.options[before], self.options[through]
            found.append(Step(change.kind, change.axes, *layouts, change.bytes, change.time))
            before = through
        return tuple(found)


@dataclass(slots=True, eq=False)
class Router:
    """Makes `Layouts` over a mesh; tensors of one shape share their ways."""

    mesh: Mesh
    collective_time: CollectiveTime
    _ways: dict[tuple[tuple[int, ...], int, bool], Ways] = field(default_factory=dict)

    def layouts(self, tensor: Tensor, extents: Mapping[str, int], monoid: str) -> Layouts:
        """The layouts of a tensor; ``monoid``: by which it may be partial, "" if never. Dims of one element are not split.

        Raises InternalError: a collective with a time below 0 or that is not a number.
        """
        dims = [dim for dim in tensor.dims if extents[dim] > 1]
        placements: list[Placement] = [Replicate(), *map(Shard, dims), *([Partial(monoid)] if monoid else [])]
        options: tuple[Layout, ...] = tuple(itertools.product(placements, repeat=len(self.mesh)))
        key = (tuple(extents[dim] for dim in dims), tensor.word, bool(monoid))
        if key not in self._ways:
            shape = {dim: extents[dim] for dim in dims}
            sizes = [math.prod(local_extents(shape, _splits(layout), self.mesh).values()) * tensor.word for layout in options]
            changes = dict(self._changes(placements, sizes))
            self._ways[key] = Ways(np.array(sizes, np.int64), *_shortest(len(options), changes), changes)
        return Layouts(tensor, self.mesh, options, self._ways[key])

    def _changes(self, placements: Sequence[Placement], sizes: Sequence[int]) -> Iterator[tuple[tuple[int, int], Change]]:
        """Every change of layout that a single collective, or a slice, makes, over any subset of the axes."""
        along: dict[CollectiveKind | None, list[tuple[int, int]]] = {}
        for (i, source), (j, target) in itertools.permutations(enumerate(placements), 2):
            if not isinstance(target, Partial):
                along.setdefault(transition(source, target), []).append((i, j))
        count = len(placements)
        for kind, pairs in along.items():
            found: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, ())]
            for axis in self.mesh:
                found = [(b * count + i, a * count + i, axes) for b, a, axes in found for i in range(count)] + [
                    (b * count + i, a * count + j, (*axes, axis.name)) for b, a, axes in found for i, j in pairs
                ]
            known: dict[tuple[tuple[str, ...], int], float] = {}
            for before, after, axes in found:
                if not axes:
                    continue
                # a gathered whole is what a rank has afterwards; the other kinds count what it has before
                size = 0 if kind is None else sizes[after] if kind is CollectiveKind.ALL_GATHER else sizes[before]
                if (axes, size) not in known:
                    known[axes, size] = 0.0 if kind is None else self.price(kind, axes, size)
                yield (before, after), Change(kind, axes, size, known[axes, size])

    def price(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        """Time of a collective [s]. Raises InternalError: it is below 0 or not a number."""
        time = float(self.collective_time(kind, axes, size))
        if not time >= 0:
            raise InternalError(Fault(f"time of {kind} of {size} B over {', '.join(axes)}", "at least 0 s", repr(time)))
        return time


def _splits(layout: Layout) -> list[str]:
    return [item.dim if isinstance(item, Shard) else "" for item in layout]


def _shortest(count: int, changes: Mapping[tuple[int, int], Change]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """All pairs (Floyd and Warshall): times, and where to go first."""
    time = np.full((count, count), np.inf)
    np.fill_diagonal(time, 0.0)
    following = np.tile(np.arange(count), (count, 1))
    for (before, after), change in changes.items():
        time[before, after] = change.time
    for middle in range(count):
        detour = time[:, middle, None] + time[None, middle, :]
        shorter = detour < time * SHORTER
        if shorter.any():
            time = np.where(shorter, detour, time)
            following = np.where(shorter, following[:, middle, None], following)
    return time, following
