"""Layouts of a tensor over the axes of a mesh, and the cheapest sequences of collectives between them.

A layout has a placement per axis. Which elements of a dim a rank holds along an axis depends only on the rank's coordinate on
that axis, not on other axes that split the same dim (blocks are distributed by the digits of their number). So a collective
over some axes changes the placements on these axes only, and every redistribution is a sequence of such collectives: a shortest
path.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

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
"""Time [s] of a collective over axes, by name; bytes as in `halley.network.time.collective.CONVENTIONS`."""

MAX_CACHED_LAYOUT_PAIRS = 1 << 20
"""Pairs of layouts whose redistributions a `Router` caches, for the most recent tensor shapes: some 20 MB. Over two axes that
covers a search, over three axes some dozens of shapes."""

SHORTER_RATIO = 1 - 1e-12
"""Differences of path lengths below this relative size count as rounding."""


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """An axis of the mesh with its number of ranks."""

    name: str
    ranks: int

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.ranks, int) or isinstance(self.ranks, bool) or self.ranks < 2:
            where = f"mesh axis {self.name!r}"
            raise BadInput(Fault(where, "a name and at least 2 ranks", repr(self.ranks), "leave the axis out"))


Mesh: TypeAlias = tuple[MeshAxis, ...]


@dataclass(frozen=True, slots=True)
class CollectiveStep:
    """One collective over ``axes`` from one layout to another. ``kind`` is None for a slice, which moves nothing. ``bytes`` [B]
    by the convention of the kind; ``time`` [s]."""

    kind: CollectiveKind | None
    axes: tuple[str, ...]
    before: Layout
    after: Layout
    bytes: int
    time: float


def layout_text(layout: Layout, mesh: Mesh) -> str:
    """The axes that split or sum the tensor.

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
    """Extents on the rank with most elements; ``splits``: the dim that each axis splits, "" for none.

    >>> local_extents({"m": 10, "n": 7}, ["m", "m"], (MeshAxis("x", 2), MeshAxis("y", 4)))
    {'m': 2, 'n': 7}
    """
    parts = dict.fromkeys(extents, 1)
    for dim, axis in zip(splits, mesh, strict=True):
        if dim in parts:
            parts[dim] *= axis.ranks
    return {dim: int(ceil_div(extent, parts[dim])) for dim, extent in extents.items()}


REDISTRIBUTION_KINDS = (
    None,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""The collectives that change a layout; None is a slice."""


@dataclass(frozen=True, slots=True, eq=False)
class RedistributionTable:
    """Redistributions between the layouts of all tensors of one shape, by layout numbers. ``bytes`` [layouts]: on the rank with
    most elements. ``time`` [from, to] [s]: of the cheapest sequence of changes. ``direct`` [from, to] [s]: of a single
    change, of kind `REDISTRIBUTION_KINDS[kind]` over ``axes`` (a bit mask)."""

    bytes: NDArray[np.int64]
    time: NDArray[np.float64]
    direct: NDArray[np.float64]
    kind: NDArray[np.int8]
    axes: NDArray[np.int8]

    def through(self, before: int, after: int) -> list[int]:
        """The layouts of the cheapest sequence of changes, with the last; among equal ones, one with the fewest changes."""
        reached, came = self.direct[before], list[NDArray[np.intp]]()
        while reached[after] * SHORTER_RATIO > self.time[before, after]:
            detours = reached[:, None] + self.direct
            last = detours.argmin(axis=0)
            found = np.take_along_axis(detours, last[None], axis=0)[0]
            came.append(np.where(found < reached, last, -1))
            reached = np.minimum(reached, found)
        places = [after]
        for each in reversed(came):
            if (place := int(each[places[-1]])) >= 0:
                places.append(place)
        return places[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class LayoutOptions:
    """All layouts of tensors with the same possible placements: the products of ``placements``, one per axis, in the order of
    `itertools.product`. ``complete``: those without partial values. ``digits`` [layouts, axes]: the number of each
    placement."""

    placements: tuple[Placement, ...]
    layouts: tuple[Layout, ...]
    complete: tuple[int, ...]
    digits: NDArray[np.intp]

    def numbers(self, along: Sequence[Placement], chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """The numbers of many layouts; ``chosen`` [layouts, axes]: indices into ``along``, the placements along one axis."""
        digits = np.array([self.placements.index(item) for item in along], np.intp)[chosen]
        scale = len(self.placements) ** np.arange(chosen.shape[1] - 1, -1, -1, dtype=np.intp)
        return np.asarray(digits @ scale, np.intp)


@lru_cache(maxsize=1 << 10)
def _options(placements: tuple[Placement, ...], axes: int) -> LayoutOptions:
    count = len(placements)
    digits = np.array(list(itertools.product(range(count), repeat=axes)), np.intp).reshape(count**axes, axes)
    partial = np.array([isinstance(item, Partial) for item in placements])
    complete = tuple(np.flatnonzero(~partial[digits].any(axis=1)).tolist())
    return LayoutOptions(placements, tuple(itertools.product(placements, repeat=axes)), complete, digits)


def options_of(tensor: Tensor, extents: Mapping[str, int], monoid: str, axes: int) -> LayoutOptions:
    """The layouts of a tensor over ``axes`` axes; ``monoid``: by which it may be partial, "" if never. Dims of one element are
    not split.

    >>> [str(item) for item in options_of(Tensor("A", ("m", "n")), {"m": 4, "n": 1}, "sum", 1).placements]
    ['Replicate', 'Shard(m)', 'Partial(sum)']
    """
    split = (Shard(dim) for dim in tensor.dims if extents[dim] > 1)
    return _options((Replicate(), *split, *([Partial(monoid)] if monoid else [])), axes)


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """All layouts of a tensor over a mesh and the redistributions between them."""

    tensor: Tensor
    mesh: Mesh
    known: LayoutOptions
    table: RedistributionTable

    @property
    def options(self) -> tuple[Layout, ...]:
        return self.known.layouts

    @property
    def bytes(self) -> NDArray[np.int64]:
        return self.table.bytes

    @property
    def time(self) -> NDArray[np.float64]:
        return self.table.time

    def index(self, layout: Layout) -> int:
        """The number of a layout. Raises BadInput: the tensor cannot have it."""
        if len(layout) == len(self.mesh) and all(item in self.known.placements for item in layout):
            return self.number(self.known.placements.index(item) for item in layout)
        where, known = f"layout of {self.tensor.name}", [layout_text(option, self.mesh) for option in self.options]
        if len(layout) != len(self.mesh):
            raise BadInput(Fault(where, f"a placement for each of {len(self.mesh)} axes", str(len(layout))))
        got = layout_text(layout, self.mesh)
        raise BadInput(Fault(where, "one that the tensor can have", got, did_you_mean(got, known)))

    def number(self, digits: Iterable[int]) -> int:
        """The number of the layout with these placement numbers."""
        found = 0
        for digit in digits:
            found = found * len(self.known.placements) + digit
        return found

    @property
    def complete(self) -> tuple[int, ...]:
        """Layouts without partial values."""
        return self.known.complete

    def path(self, before: int, after: int) -> tuple[CollectiveStep, ...]:
        """The collectives and slices of the cheapest redistribution."""
        found, table = list[CollectiveStep](), self.table
        for through in table.through(before, after) if before != after else ():
            kind = REDISTRIBUTION_KINDS[table.kind[before, through]]
            axes = tuple(axis.name for place, axis in enumerate(self.mesh) if table.axes[before, through] >> place & 1)
            # an all-gather counts the bytes after it, the other kinds those before
            sender = through if kind is CollectiveKind.ALL_GATHER else before
            size = 0 if kind is None else int(table.bytes[sender])
            layouts = self.options[before], self.options[through]
            found.append(CollectiveStep(kind, axes, *layouts, size, float(table.direct[before, through])))
            before = through
        return tuple(found)


@dataclass(slots=True, eq=False)
class Router:
    """Creates `Layouts` over a mesh; tensors of one shape share a `RedistributionTable`."""

    mesh: Mesh
    collective_time: CollectiveTime
    _tables: dict[tuple[tuple[int, ...], int, int], RedistributionTable] = field(default_factory=dict)
    _times: dict[tuple[CollectiveKind, tuple[str, ...], int], float] = field(default_factory=dict)
    _pairs: int = 0

    def layouts(self, tensor: Tensor, extents: Mapping[str, int], known: LayoutOptions) -> Layouts:
        """The layouts of a tensor, from `options_of`. Raises InternalError: a collective with a time below 0 or NaN."""
        dims = [dim for dim in tensor.dims if extents[dim] > 1]
        key = (tuple(extents[dim] for dim in dims), tensor.word, len(known.placements))
        if key not in self._tables:
            sizes = np.full(len(known.layouts), tensor.word, np.int64)
            for place, dim in enumerate(dims, 1):
                sizes *= local_counts(extents[dim], known.digits == place, self.mesh)
            self._tables[key] = self._routed(known, sizes)
            self._pairs += len(sizes) ** 2
            while self._pairs > MAX_CACHED_LAYOUT_PAIRS and len(self._tables) > 1:
                self._pairs -= len(self._tables.pop(next(iter(self._tables))).bytes) ** 2
        return Layouts(tensor, self.mesh, known, self._tables[key])

    def _routed(self, known: LayoutOptions, sizes: NDArray[np.int64]) -> RedistributionTable:
        """Every redistribution by a single collective or slice, over any subset of the axes; and the cheapest sequences of
        them."""
        changes, (distinct, place) = _changes(known), np.unique(sizes, return_inverse=True)
        asked = changes.number * len(distinct) + place[changes.sender]
        times = np.zeros(len(changes.made) * len(distinct))
        for each in np.flatnonzero(np.bincount(asked, minlength=len(times))).tolist():
            number, size = divmod(each, len(distinct))
            kind, over = changes.made[number]
            if kind is not None:
                times[each] = self.time_of(kind, tuple(self.mesh[axis].name for axis in over), int(distinct[size]))
        direct = np.full((len(sizes), len(sizes)), np.inf)
        direct[changes.before, changes.after] = times[asked]
        return RedistributionTable(sizes, _shortest(direct, known.complete), direct, changes.kind, changes.axes)

    def time_of(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        """Time of a collective [s]. Raises InternalError: it is below 0 or NaN."""
        known = self._times.get((kind, axes, size))
        if known is not None:
            return known
        time = float(self.collective_time(kind, axes, size))
        if not time >= 0:
            raise InternalError(Fault(f"time of {kind} of {size} B over {', '.join(axes)}", "at least 0 s", repr(time)))
        self._times[kind, axes, size] = time
        return time


@lru_cache(maxsize=16)
def shared_router(mesh: Mesh, collective: CollectiveTime) -> Router:
    """One router for all problems on a mesh: parts of a model, and graphs that differ in recomputation, have tensors of equal
    shapes."""
    return Router(mesh, collective)


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Effects of single collectives and slices on layouts. ``made``: the kinds of change, each with the numbers of its axes.
    Per change [changes]: its kind (``number``), the layouts ``before`` and ``after``, and the ``sender``, the layout whose
    bytes count. ``kind`` and ``axes`` [from, to]: as in `RedistributionTable`."""

    made: tuple[tuple[CollectiveKind | None, tuple[int, ...]], ...]
    number: NDArray[np.intp]
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    sender: NDArray[np.intp]
    kind: NDArray[np.int8]
    axes: NDArray[np.int8]


@lru_cache(maxsize=1 << 10)
def _changes(known: LayoutOptions) -> Changes:
    """Changes over any subset of the axes; other placements remain."""
    (count, axes), every = known.digits.shape, np.arange(len(known.placements))
    kinds, over = np.zeros((count, count), np.int8), np.zeros((count, count), np.int8)
    made, pairs = list[tuple[CollectiveKind | None, tuple[int, ...]]](), list[NDArray[np.intp]]()
    for kind, (sources, targets) in _along(known.placements).items():
        for bits in range(1, 1 << axes):
            before = after = np.zeros(1, np.intp)
            for place in range(axes):
                here, there = (sources, targets) if bits >> place & 1 else (every, every)
                before = (before[:, None] * len(every) + here).ravel()
                after = (after[:, None] * len(every) + there).ravel()
            sender = after if kind is CollectiveKind.ALL_GATHER else before
            pairs.append(np.stack((np.full_like(before, len(made)), before, after, sender)))
            made.append((kind, tuple(place for place in range(axes) if bits >> place & 1)))
            kinds[before, after], over[before, after] = REDISTRIBUTION_KINDS.index(kind), bits
    number, befores, afters, senders = np.concatenate(pairs, axis=1) if pairs else np.zeros((4, 0), np.intp)
    return Changes(tuple(made), number, befores, afters, senders, kinds, over)


def _along(placements: Sequence[Placement]) -> dict[CollectiveKind | None, tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """By kind of change, the placements before and after it along one axis."""
    found: dict[CollectiveKind | None, list[tuple[int, int]]] = {}
    for (i, source), (j, target) in itertools.permutations(enumerate(placements), 2):
        if not isinstance(target, Partial):
            found.setdefault(transition(source, target), []).append((i, j))
    pairs = {kind: np.array(each, np.intp) for kind, each in found.items()}
    return {kind: (each[:, 0], each[:, 1]) for kind, each in pairs.items()}


def local_counts(extent: int | NDArray[np.int64], split: NDArray[np.bool_], mesh: Mesh) -> NDArray[np.int64]:
    """Elements along a dim on the rank with most; ``split`` [..., axes]: which axes split it. ``extent`` broadcasts.

    >>> local_counts(10, np.array([[True, False], [True, True]]), (MeshAxis("x", 2), MeshAxis("y", 4))).tolist()
    [5, 2]
    """
    ranks = np.array([axis.ranks for axis in mesh], np.int64)
    parts = np.where(split, ranks, 1).prod(axis=-1)
    return np.asarray(ceil_div(np.asarray(extent), parts), np.int64)


def _shortest(direct: NDArray[np.float64], complete: tuple[int, ...]) -> NDArray[np.float64]:
    """Times between all pairs (Floyd and Warshall). A complete layout never becomes partial again, so ``complete`` layouts come
    first and only lead to each other."""
    count, whole = len(direct), len(complete)
    partial = np.ones(count, bool)
    partial[list(complete)] = False
    order = np.concatenate((np.array(complete), np.flatnonzero(partial)))
    time = direct[np.ix_(order, order)]
    np.fill_diagonal(time, 0.0)
    detours, ahead = np.empty((count, whole)), time[:, :whole]
    for middle in range(whole):
        np.add(time[:, middle, None], ahead[middle], out=detours)
        np.minimum(ahead, detours, out=ahead)
    for middle in range(whole, count):
        before = np.flatnonzero(np.isfinite(time[:, middle]))
        time[before] = np.minimum(time[before], time[before, middle, None] + time[middle])
    found: NDArray[np.float64] = np.empty_like(time)
    found[np.ix_(order, order)] = time
    return found
