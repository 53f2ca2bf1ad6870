"""Layouts of a tensor over the axes of a mesh, and the cheapest collectives that lead from one to another.

A layout has a placement per axis. Which elements of a dim a rank has along an axis depends on the rank's coordinate there
alone, not on other axes that split the same dim (blocks are distributed by digits of their number). So a collective over some
axes changes the placements of these and no others, and every change of layout is a sequence of such collectives: a shortest
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
"""Time [s] of a collective over axes, by name; bytes as `halley.network.time.collective.CONVENTIONS` counts them."""

REMEMBERED = 1 << 20
"""Pairs of layouts whose ways a `Router` keeps, those of the last shapes that were made: some 20 MB; over two axes that is all a
search meets, over three some dozens of shapes."""

SHORTER = 1 - 1e-12
"""What is shorter by less than this share is put down to rounding."""


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


KINDS = (
    None,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""What changes a layout; None is a slice."""


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The ways between the layouts of all tensors of one shape, by the numbers of the layouts. ``bytes`` [options]: on the rank
    that has most. ``time`` [from, to] [s]: of the cheapest sequence of changes. A single change takes ``direct`` [from, to] [s];
    it is one of `KINDS` (``kind``) over ``axes``, a bit each."""

    bytes: NDArray[np.int64]
    time: NDArray[np.float64]
    direct: NDArray[np.float64]
    kind: NDArray[np.int8]
    axes: NDArray[np.int8]

    def through(self, before: int, after: int) -> list[int]:
        """The layouts of the cheapest sequence, the last one too; of equals, one of fewest changes."""
        reached, came = self.direct[before], list[NDArray[np.intp]]()
        while reached[after] * SHORTER > self.time[before, after]:
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
class Options:
    """All layouts of tensors that may lie alike: the products of ``placements``, one per axis, in the order of
    `itertools.product`. ``complete``: those that need no reduction; ``digits`` [layouts, axes]: which placements each has."""

    placements: tuple[Placement, ...]
    layouts: tuple[Layout, ...]
    complete: tuple[int, ...]
    digits: NDArray[np.intp]

    def numbers(self, along: Sequence[Placement], chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """The numbers of many layouts: ``chosen`` [layouts, axes] are places in ``along``, placements along one axis."""
        digits = np.array([self.placements.index(item) for item in along], np.intp)[chosen]
        scale = len(self.placements) ** np.arange(chosen.shape[1] - 1, -1, -1, dtype=np.intp)
        return np.asarray(digits @ scale, np.intp)


@lru_cache(maxsize=1 << 10)
def _options(placements: tuple[Placement, ...], axes: int) -> Options:
    count = len(placements)
    digits = np.array(list(itertools.product(range(count), repeat=axes)), np.intp).reshape(count**axes, axes)
    partial = np.array([isinstance(item, Partial) for item in placements])
    complete = tuple(np.flatnonzero(~partial[digits].any(axis=1)).tolist())
    return Options(placements, tuple(itertools.product(placements, repeat=axes)), complete, digits)


def options_of(tensor: Tensor, extents: Mapping[str, int], monoid: str, axes: int) -> Options:
    """The layouts of a tensor over so many axes; ``monoid``: by which it may be partial, "" if never. Dims of one element are not
    split.

    >>> [str(item) for item in options_of(Tensor("A", ("m", "n")), {"m": 4, "n": 1}, "sum", 1).placements]
    ['Replicate', 'Shard(m)', 'Partial(sum)']
    """
    split = (Shard(dim) for dim in tensor.dims if extents[dim] > 1)
    return _options((Replicate(), *split, *([Partial(monoid)] if monoid else [])), axes)


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """All layouts of a tensor over a mesh and the ways between them."""

    tensor: Tensor
    mesh: Mesh
    known: Options
    ways: Ways

    @property
    def options(self) -> tuple[Layout, ...]:
        return self.known.layouts

    @property
    def bytes(self) -> NDArray[np.int64]:
        return self.ways.bytes

    @property
    def time(self) -> NDArray[np.float64]:
        return self.ways.time

    def index(self, layout: Layout) -> int:
        """The number of a layout. Raises BadInput: the tensor cannot lie so."""
        if len(layout) == len(self.mesh) and all(item in self.known.placements for item in layout):
            return self.number(self.known.placements.index(item) for item in layout)
        where, known = f"layout of {self.tensor.name}", [layout_text(option, self.mesh) for option in self.options]
        if len(layout) != len(self.mesh):
            raise BadInput(Fault(where, f"a placement for each of {len(self.mesh)} axes", str(len(layout))))
        got = layout_text(layout, self.mesh)
        raise BadInput(Fault(where, "one that the tensor can have", got, did_you_mean(got, known)))

    def number(self, digits: Iterable[int]) -> int:
        """The number of the layout with these placements."""
        found = 0
        for digit in digits:
            found = found * len(self.known.placements) + digit
        return found

    @property
    def complete(self) -> tuple[int, ...]:
        """Layouts that need no reduction."""
        return self.known.complete

    def path(self, before: int, after: int) -> tuple[Step, ...]:
        """The collectives of the cheapest way, slices among them."""
        found, ways = list[Step](), self.ways
        for through in ways.through(before, after) if before != after else ():
            kind = KINDS[ways.kind[before, through]]
            axes = tuple(axis.name for place, axis in enumerate(self.mesh) if ways.axes[before, through] >> place & 1)
            # a gathered whole is what a rank has afterwards; the other kinds count what it has before
            sender = through if kind is CollectiveKind.ALL_GATHER else before
            size = 0 if kind is None else int(ways.bytes[sender])
            layouts = self.options[before], self.options[through]
            found.append(Step(kind, axes, *layouts, size, float(ways.direct[before, through])))
            before = through
        return tuple(found)


@dataclass(slots=True, eq=False)
class Router:
    """Makes `Layouts` over a mesh; tensors of one shape share their ways."""

    mesh: Mesh
    collective_time: CollectiveTime
    _ways: dict[tuple[tuple[int, ...], int, int], Ways] = field(default_factory=dict)
    _prices: dict[tuple[CollectiveKind, tuple[str, ...], int], float] = field(default_factory=dict)
    _pairs: int = 0

    def layouts(self, tensor: Tensor, extents: Mapping[str, int], known: Options) -> Layouts:
        """The layouts of a tensor, as `options_of` it. Raises InternalError: a collective with a time below 0 or that is not a
        number."""
        dims = [dim for dim in tensor.dims if extents[dim] > 1]
        key = (tuple(extents[dim] for dim in dims), tensor.word, len(known.placements))
        if key not in self._ways:
            sizes = np.full(len(known.layouts), tensor.word, np.int64)
            for place, dim in enumerate(dims, 1):
                sizes *= local_counts(extents[dim], known.digits == place, self.mesh)
            self._ways[key] = self._routed(known, sizes)
            self._pairs += len(sizes) ** 2
            while self._pairs > REMEMBERED and len(self._ways) > 1:
                self._pairs -= len(self._ways.pop(next(iter(self._ways))).bytes) ** 2
        return Layouts(tensor, self.mesh, known, self._ways[key])

    def _routed(self, known: Options, sizes: NDArray[np.int64]) -> Ways:
        """Every change of layout that a single collective, or a slice, makes, over any subset of the axes; and the cheapest
        sequences of them."""
        changes, (distinct, place) = _changes(known), np.unique(sizes, return_inverse=True)
        asked = changes.number * len(distinct) + place[changes.sender]
        times = np.zeros(len(changes.made) * len(distinct))
        for each in np.flatnonzero(np.bincount(asked, minlength=len(times))).tolist():
            number, size = divmod(each, len(distinct))
            kind, over = changes.made[number]
            if kind is not None:
                times[each] = self.price(kind, tuple(self.mesh[axis].name for axis in over), int(distinct[size]))
        direct = np.full((len(sizes), len(sizes)), np.inf)
        direct[changes.before, changes.after] = times[asked]
        return Ways(sizes, _shortest(direct, known.complete), direct, changes.kind, changes.axes)

    def price(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        """Time of a collective [s]. Raises InternalError: it is below 0 or not a number."""
        known = self._prices.get((kind, axes, size))
        if known is not None:
            return known
        time = float(self.collective_time(kind, axes, size))
        if not time >= 0:
            raise InternalError(Fault(f"time of {kind} of {size} B over {', '.join(axes)}", "at least 0 s", repr(time)))
        self._prices[kind, axes, size] = time
        return time


@lru_cache(maxsize=16)
def shared_router(mesh: Mesh, collective: CollectiveTime) -> Router:
    """The router of all problems on a mesh: parts of a model, and graphs that differ in recomputation, have tensors of equal
    shapes."""
    return Router(mesh, collective)


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What single collectives and slices make of layouts. ``made``: the kinds of change, each with the places of its axes. Per
    change [changes]: which of them it is (``number``), the layouts ``before`` and ``after``, and the ``sender``, the one whose
    bytes count. ``kind`` and ``axes`` [from, to]: as in `Ways`."""

    made: tuple[tuple[CollectiveKind | None, tuple[int, ...]], ...]
    number: NDArray[np.intp]
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    sender: NDArray[np.intp]
    kind: NDArray[np.int8]
    axes: NDArray[np.int8]


@lru_cache(maxsize=1 << 10)
def _changes(known: Options) -> Changes:
    """Over any subset of the axes; the rest of a layout stays."""
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
            kinds[before, after], over[before, after] = KINDS.index(kind), bits
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
    """Elements along a dim on the rank that has most; ``split`` [..., axes]: which axes split it. ``extent`` broadcasts.

    >>> local_counts(10, np.array([[True, False], [True, True]]), (MeshAxis("x", 2), MeshAxis("y", 4))).tolist()
    [5, 2]
    """
    ranks = np.array([axis.ranks for axis in mesh], np.int64)
    parts = np.where(split, ranks, 1).prod(axis=-1)
    return np.asarray(ceil_div(np.asarray(extent), parts), np.int64)


def _shortest(direct: NDArray[np.float64], complete: tuple[int, ...]) -> NDArray[np.float64]:
    """Times between all pairs (Floyd and Warshall). Nothing complete becomes partial again: so layouts that are ``complete`` come
    first, and lead to each other alone."""
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
