"""The least sum of tables over variables with few values each, exactly: variables are eliminated one after the other.

A table gives a cost to each combination of values of some variables. To eliminate a variable, the tables that have it are added
up and the least over its values is kept, with the value that gives it (bucket elimination: Dechter, Artificial Intelligence
113, 1999). The order decides how large tables grow. It is chosen greedily: first the variable with the smallest joined table, of
equals the one that brings the fewest pairs of values of others into one table that shared none before. It depends on the
sizes of tables alone, and is kept for others of these sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault

LARGEST = 1 << 30
"""Most entries of a joined table: what takes some ten seconds."""

SLAB = 1 << 18
"""Entries that are joined at once where a table is large: 2 MiB."""

TOGETHER = 1 << 15
"""Entries up to which all values of a variable are joined at once."""

STEP = 1 << 13
"""What it takes to eliminate a variable from small tables, in entries that are joined in this time."""

SMALL = 1 << 11
"""Entries of a joined table up to which its parts are added up as they come."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """``values`` has an axis per variable; infinite where a combination is not allowed."""

    variables: tuple[str, ...]
    values: NDArray[np.float64]


def table(variables: Sequence[str], values: NDArray[np.float64]) -> Table:
    """A table in which a variable may come twice: both axes then have the same index.

    >>> table(("x", "x"), np.array([[1.0, 2.0], [3.0, 4.0]])).values.tolist()
    [1.0, 4.0]
    """
    names = list(variables)
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            values = np.diagonal(values, axis1=first, axis2=second)
            names = [*(each for place, each in enumerate(names) if place not in (first, second)), name]
    return Table(tuple(names), np.asarray(values, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Part:
    """A table as it is added to others: number ``slot``, its axes turned by ``axes`` so that the variable to go comes first and
    the rest, ``names``, are in the order of the joined table; ``extents``: the same with an axis of 1 for each that it lacks."""

    slot: int
    axes: tuple[int, ...]
    names: tuple[str, ...]
    extents: tuple[int, ...]

    def aligned(self, tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The table with the axes of the joined one."""
        return tables[self.slot].transpose(self.axes).reshape(self.extents)


@dataclass(frozen=True, slots=True)
class Step:
    """A variable goes: its tables are added up over it and ``given``; the least over its values is the next table. First come
    ``sums`` of few variables: of two parts by number, the second takes up the first; those that are ``left`` are then joined."""

    variable: str
    given: tuple[str, ...]
    parts: tuple[Part, ...]
    size: int
    sums: tuple[tuple[int, int], ...]
    left: tuple[int, ...]

    def least(self, tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The next table."""
        found = [part.aligned(tables) for part in self.parts]
        if self.size <= TOGETHER and not self.sums:
            return np.asarray(_sum(found).min(axis=0))
        for one, other in self.sums:
            found[other] = found[other] + found[one]
        return _least([found[number] for number in self.left])


@dataclass(frozen=True, slots=True)
class Order:
    """In which order variables go, for tables of certain variables and sizes; ``rest``: the tables that are left, over variables
    of ``shape``. ``largest`` and ``entries``: of the joined tables, the most in one and those in all."""

    steps: tuple[Step, ...]
    rest: tuple[Part, ...]
    shape: tuple[int, ...]

    @property
    def largest(self) -> int:
        return max((step.size for step in self.steps), default=0)

    @property
    def entries(self) -> int:
        return sum(step.size for step in self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Eliminated:
    """``rest``: the least cost for each combination of the variables that were kept; ``entries``: of all tables that were joined,
    and `STEP` for each, a measure of the work."""

    rest: Table
    entries: int
    _order: Order
    _tables: Sequence[NDArray[np.float64]]

    def complete(self, kept: Mapping[str, int]) -> dict[str, int]:
        """Values of all variables that cost least for these of the kept ones."""
        return _completed(self._order.steps, self._tables, kept)


@dataclass(frozen=True, slots=True, eq=False)
class Thinned:
    """``tables`` over fewer variables, whose sum is the least of those that were given; ``entries`` as in `Eliminated`."""

    tables: list[Table]
    entries: int
    _steps: Sequence[Step]
    _known: Sequence[NDArray[np.float64]]

    def complete(self, kept: Mapping[str, int]) -> dict[str, int]:
        """Values of all variables that cost least for these of the ones that are left."""
        return _completed(self._steps, self._known, kept)


def thinned(tables: Iterable[Table], keep: Iterable[str], most: int) -> Thinned:
    """Eliminates variables but ``keep`` as long as joined tables have at most so many entries: for tables that are added to many
    others over the variables that are kept.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = thinned(chain, ("x",), 4)
    >>> [(item.variables, item.values.tolist()) for item in found.tables], sorted(found.complete({"x": 1}).items())
    ([(('x',), [8.0, 4.0])], [('x', 1), ('y', 1), ('z', 0)])
    """
    items = list(tables)
    steps, left = _thinning(tuple((item.variables, item.values.shape) for item in items), frozenset(keep), most)
    known = [item.values for item in items]
    for step in steps:
        known.append(step.least(known))
    joined: dict[tuple[str, ...], NDArray[np.float64]] = {}
    for slot, names in left:
        order = tuple(sorted(names))
        values = known[slot].transpose([names.index(name) for name in order])
        joined[order] = joined[order] + values if order in joined else values
    rest = [Table(names, values) for names, values in joined.items()]
    return Thinned(rest, sum(step.size + STEP for step in steps), steps, known)


def _completed(steps: Sequence[Step], tables: Sequence[NDArray[np.float64]], kept: Mapping[str, int]) -> dict[str, int]:
    found = dict(kept)
    for step in reversed(steps):
        columns = [_column(tables[part.slot], part, found) for part in step.parts]
        found[step.variable] = int(_sum(columns).argmin())
    return found


def eliminate(tables: Iterable[Table], keep: Sequence[str] = ()) -> Eliminated:
    """Eliminates all variables but ``keep``, which become the axes of ``rest`` in this order.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> done = eliminate(chain)
    >>> float(done.rest.values), sorted(done.complete({}).items())
    (4.0, [('x', 1), ('y', 1), ('z', 0)])

    Raises BadInput: a table would be too large.
    """
    items = list(tables)
    order = _order_of(items, keep)
    if order.largest > LARGEST:
        step = next(step for step in order.steps if step.size > LARGEST)
        expected, got = f"tables of at most {LARGEST} entries", f"{step.size} over {', '.join((step.variable, *step.given))}"
        raise BadInput(Fault("elimination", expected, got, "use fewer axes, or fix a layout"))
    return _eliminated(items, keep, order)


def eliminate_within(tables: Iterable[Table], most: int, keep: Sequence[str] = ()) -> Eliminated | None:
    """The same; None where all joined tables would have more than ``most`` entries."""
    items = list(tables)
    order = _order_of(items, keep)
    return _eliminated(items, keep, order) if order.entries <= most else None


def _eliminated(items: Sequence[Table], keep: Sequence[str], order: Order) -> Eliminated:
    known = [item.values for item in items]
    for step in order.steps:
        known.append(step.least(known))
    rest = np.zeros(order.shape)
    for part in order.rest:
        rest += part.aligned(known)
    return Eliminated(Table(tuple(keep), rest), order.entries + STEP * len(order.steps), order, known)


def _least(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The least over the first axis of a sum of tables that broadcast; where it is large, in slabs that stay in a cache."""
    count, shape = len(parts[0]), np.broadcast_shapes(*(part.shape[1:] for part in parts))
    size = math.prod(shape)
    if count * size <= TOGETHER or not shape:
        return np.asarray(_sum(parts).min(axis=0))
    if size <= SLAB:
        least = _sum([part[0] for part in parts])
        for value in range(1, count):
            np.minimum(least, _sum([part[value] for part in parts]), out=least)
        return least
    found = np.empty(shape)
    for place in range(shape[0]):
        found[place] = _least([part[:, place if part.shape[1] > 1 else 0] for part in parts])
    return found


def _sum(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """A new array."""
    found = parts[0] + parts[1] if len(parts) > 1 else parts[0].copy()
    for part in parts[2:]:
        found = found + part
    return found


def _column(values: NDArray[np.float64], part: Part, at: Mapping[str, int]) -> NDArray[np.float64]:
    """A table by the variable that goes, at these values of the others."""
    places: tuple[slice | int, ...] = (slice(None), *(at[name] for name in part.names))
    column: NDArray[np.float64] = values.transpose(part.axes)[places]
    return column


@lru_cache(maxsize=32)
def _thinning(
    tables: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...], keep: frozenset[str], most: int
) -> tuple[tuple[Step, ...], tuple[tuple[int, tuple[str, ...]], ...]]:
    """In which order variables go, for tables of these variables and shapes; the tables that are left, by number."""
    pool, steps = _Pool(tables, sorted(keep)), list[Step]()
    while (name := pool.next()) is not None and pool.joined[name] <= most:
        steps.append(pool.take(name))
    return tuple(steps), tuple((slot, pool.names[slot]) for slot in sorted(pool.left()))


def _order_of(items: Sequence[Table], keep: Sequence[str]) -> Order:
    return elimination_order(tuple((item.variables, item.values.shape) for item in items), tuple(keep))


@lru_cache(maxsize=128)
def elimination_order(tables: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...], keep: tuple[str, ...]) -> Order:
    """For tables of these variables and shapes; the same tables with other costs need none of their own.

    >>> order = elimination_order(((("x", "y"), (2, 3)), (("y", "z"), (3, 4))), ())
    >>> [(step.variable, step.given, step.size) for step in order.steps]
    [('x', ('y',), 6), ('y', ('z',), 12), ('z', (), 4)]
    """
    pool, steps = _Pool(tables, keep), []
    while (name := pool.next()) is not None:
        steps.append(pool.take(name))
    shape = tuple(pool.sizes[name] for name in keep)
    return Order(tuple(steps), tuple(pool.part(slot, (), keep) for slot in sorted(pool.left())), shape)


class _Pool:
    """Tables by number and by variable, the graph of variables that share a table, and for each that is still to go the size of
    its ``joined`` table; its ``pairs`` are counted when it is one of several with the smallest."""

    def __init__(self, tables: Iterable[tuple[tuple[str, ...], tuple[int, ...]]], keep: Sequence[str]) -> None:
        self.names: list[tuple[str, ...]] = []
        self.sizes: dict[str, int] = {}
        self.having: dict[str, list[int]] = {name: [] for name in keep}
        self.around: dict[str, set[str]] = {name: set() for name in keep}
        self.scalars: list[int] = []
        for names, shape in tables:
            self.sizes.update(zip(names, shape, strict=True))
            self._add(names)
        self.joined = {name: self._joined(name) for name in self.having if name not in set(keep)}
        self.pairs: dict[str, int] = {}

    def _add(self, names: tuple[str, ...]) -> None:
        slot = len(self.names)
        self.names.append(names)
        if not names:
            self.scalars.append(slot)
        for name in names:
            self.having.setdefault(name, []).append(slot)
            self.around.setdefault(name, set()).update(names)
            self.around[name].discard(name)

    def _joined(self, name: str) -> int:
        return self.sizes[name] * math.prod([self.sizes[other] for other in self.around[name]])

    def _paired(self, name: str) -> int:
        """Size of the pairs of neighbours that would share a table for the first time."""
        if name not in self.pairs:
            around, sizes = self.around[name], self.sizes
            new = [sizes[one] * sizes[other] for one in around for other in around - self.around[one] if one < other]
            self.pairs[name] = sum(new)
        return self.pairs[name]

    def next(self) -> str | None:
        """The variable that is cheapest to eliminate."""
        least = min(self.joined.values(), default=0)
        return min((name for name, size in self.joined.items() if size == least), key=self._order, default=None)

    def _order(self, name: str) -> tuple[int, str]:
        return self._paired(name), name

    def take(self, name: str) -> Step:
        """The variable's tables leave the pool, and what is left of them comes in; the pairs of all who see two of its variables
        are counted anew."""
        slots, around = self.having.pop(name), self.around.pop(name)
        for other in around:
            self.having[other] = [slot for slot in self.having[other] if name not in self.names[slot]]
            self.around[other].discard(name)
        del self.joined[name]
        # loops over many values come innermost
        given = tuple(sorted(around, key=lambda other: (self.sizes[other], other)))
        size = self.sizes[name] * math.prod([self.sizes[other] for other in given])
        step = Step(name, given, tuple(self.part(slot, (name,), given) for slot in slots), size, *self._sums(slots, size))
        self._add(given)
        for other in given:
            if other in self.joined:
                self.joined[other] = self._joined(other)
        for other in set(given).union(*(self.around[each] for each in given)):
            self.pairs.pop(other, None)
        return step

    def _sums(self, slots: Sequence[int], size: int) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """``sums`` and ``left`` of a `Step`, where tables are large: each table goes to the smallest that has all of its
        variables, the small ones first."""
        if size <= SMALL:
            return (), tuple(range(len(slots)))
        names = [frozenset(self.names[slot]) for slot in slots]
        order = sorted(range(len(slots)), key=lambda number: math.prod([self.sizes[name] for name in names[number]]))
        sums, left = list[tuple[int, int]](), list[int]()
        for place, one in enumerate(order):
            other = next((other for other in order[place + 1 :] if names[one] <= names[other]), None)
            if other is None:
                left.append(one)
            else:
                sums.append((one, other))
        return tuple(sums), tuple(left)

    def part(self, slot: int, first: tuple[str, ...], order: Sequence[str]) -> Part:
        own = self.names[slot]
        names = tuple(name for name in order if name in own)
        axes = tuple(own.index(name) for name in (*first, *names))
        return Part(slot, axes, names, tuple(self.sizes[name] if name in own else 1 for name in (*first, *order)))

    def left(self) -> set[int]:
        """The tables that are left."""
        return {*self.scalars, *(slot for slots in self.having.values() for slot in slots)}


def aligned(item: Table, order: Sequence[str]) -> NDArray[np.float64]:
    """The values with an axis per name of ``order``; extent 1 for those that the table lacks."""
    kept = [name for name in order if name in item.variables]
    turned = item.values.transpose([item.variables.index(name) for name in kept])
    extents = iter(turned.shape)
    return turned.reshape([next(extents) if name in item.variables else 1 for name in order])


def cost(tables: Iterable[Table], values: Mapping[str, int]) -> float:
    """The sum at these values of the variables."""
    return math.fsum(float(item.values[tuple(values[name] for name in item.variables)]) for item in tables)


def weighted(first: Iterable[Table], second: Iterable[Table], weight: float) -> Iterator[Table]:
    """Tables of the first kind, and of the second times a weight."""
    yield from first
    if weight:
        yield from (Table(item.variables, item.values * weight) for item in second)
