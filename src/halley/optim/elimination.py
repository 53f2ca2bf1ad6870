"""Exact minimum of a sum of tables over variables with few values each, by eliminating one variable after the other.

A table gives a cost for each combination of values of some variables. Eliminating a variable adds up the tables that contain it
and takes the least over its values (bucket elimination: Dechter, Artificial Intelligence 113, 1999). The order determines how
large joined tables grow. It is chosen greedily: the variable with the smallest joined table first; among equal ones, the one
that adds the fewest entries of new pairs of neighbours (fill). The order depends on the tables' variables and sizes alone and
is cached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault

LARGEST_JOINED_TABLE = 1 << 30
"""Largest number of entries of a joined table: about ten seconds."""

ENTRIES_PER_SLAB = 1 << 18
"""Entries that are joined at once where a table is large: 2 MiB."""

ENTRIES_JOINED_AT_ONCE = 1 << 15
"""Largest joined table that is formed with all values of the eliminated variable at once."""

STEP_OVERHEAD_ENTRIES = 1 << 13
"""Fixed time of an elimination step, as the number of entries that are joined in it."""

ENTRIES_SUMMED_DIRECTLY = 1 << 11
"""Largest joined table whose operands are added in the given order."""


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Costs with one axis per variable; infinite where a combination is not allowed."""

    variables: tuple[str, ...]
    values: NDArray[np.float64]


def cost_table(variables: Sequence[str], values: NDArray[np.float64]) -> CostTable:
    """A table in which a variable may occur twice: both axes then have the same index.

    >>> cost_table(("x", "x"), np.array([[1.0, 2.0], [3.0, 4.0]])).values.tolist()
    [1.0, 4.0]
    """
    names = list(variables)
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            values = np.diagonal(values, axis1=first, axis2=second)
            names = [*(each for place, each in enumerate(names) if place not in (first, second)), name]
    return CostTable(tuple(names), np.asarray(values, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Operand:
    """A table as an operand of a join: table number ``slot``, transposed by ``axes`` so that the eliminated variable comes
    first and the others, ``names``, follow in the order of the joined table. ``extents``: its shape there, 1 for each
    variable that it lacks."""

    slot: int
    axes: tuple[int, ...]
    names: tuple[str, ...]
    extents: tuple[int, ...]

    def aligned(self, tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The table with the axes of the joined one."""
        return tables[self.slot].transpose(self.axes).reshape(self.extents)


@dataclass(frozen=True, slots=True)
class EliminationStep:
    """Eliminates ``variable``: joins its tables over it and ``given``, and takes the least over its values. First ``sums``
    adds, for each pair (one, other) of operand numbers, operand one to operand other; the operands ``left`` are then joined.
    ``size`` [entries] of the joined table."""

    variable: str
    given: tuple[str, ...]
    parts: tuple[Operand, ...]
    size: int
    sums: tuple[tuple[int, int], ...]
    left: tuple[int, ...]

    def least(self, tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The resulting table."""
        found = [part.aligned(tables) for part in self.parts]
        if self.size <= ENTRIES_JOINED_AT_ONCE and not self.sums:
            return np.asarray(_sum(found).min(axis=0))
        for one, other in self.sums:
            found[other] = found[other] + found[one]
        return _least([found[number] for number in self.left])


@dataclass(frozen=True, slots=True)
class EliminationOrder:
    """The steps for tables of given variables and sizes. ``rest``: the remaining operands, over variables of ``shape``.
    ``largest`` and ``entries``: of the largest joined table, and of all."""

    steps: tuple[EliminationStep, ...]
    rest: tuple[Operand, ...]
    shape: tuple[int, ...]

    @property
    def largest(self) -> int:
        return max((step.size for step in self.steps), default=0)

    @property
    def entries(self) -> int:
        return sum(step.size for step in self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Eliminated:
    """``rest``: the least cost for each combination of the remaining variables. ``entries``: of all joined tables, plus
    `STEP_OVERHEAD_ENTRIES` per step; a measure of the work."""

    rest: CostTable
    entries: int
    _order: EliminationOrder
    _tables: Sequence[NDArray[np.float64]]

    def complete(self, kept: Mapping[str, int]) -> dict[str, int]:
        """Values of all variables that attain the least cost, given those of the remaining ones."""
        return _completed(self._order.steps, self._tables, kept)


@dataclass(frozen=True, slots=True, eq=False)
class PartlyEliminated:
    """``tables`` over fewer variables, with the same least sum as those given; ``entries`` as in `Eliminated`."""

    tables: list[CostTable]
    entries: int
    _steps: Sequence[EliminationStep]
    _known: Sequence[NDArray[np.float64]]
    _constants: Mapping[str, int]

    def complete(self, kept: Mapping[str, int]) -> dict[str, int]:
        """Values of all variables that attain the least cost, given those of the remaining ones."""
        return _completed(self._steps, self._known, {**self._constants, **kept})


def eliminate_partly(tables: Iterable[CostTable], keep: Iterable[str], most: int) -> PartlyEliminated:
    """Eliminates variables other than ``keep`` while joined tables have at most ``most`` entries. For tables that are added to
    many others over the remaining variables. Variables with one value are left out first.

    >>> chain = [CostTable(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), CostTable(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = eliminate_partly(chain, ("x",), 4)
    >>> [(item.variables, item.values.tolist()) for item in found.tables], sorted(found.complete({"x": 1}).items())
    ([(('x',), [8.0, 4.0])], [('x', 1), ('y', 1), ('z', 0)])
    """
    given, kept = list(tables), frozenset(keep)
    sizes = {name: size for item in given for name, size in zip(item.variables, item.values.shape, strict=True)}
    constants = {name: 0 for name, size in sizes.items() if size == 1 and name not in kept}
    items = [_without(constants, item) for item in given]
    steps, left = _partial_order(tuple((item.variables, item.values.shape) for item in items), kept, most)
    known = [item.values for item in items]
    for step in steps:
        known.append(step.least(known))
    joined: dict[tuple[str, ...], NDArray[np.float64]] = {}
    for slot, names in left:
        order = tuple(sorted(names))
        values = known[slot].transpose([names.index(name) for name in order])
        joined[order] = joined[order] + values if order in joined else values
    rest = [CostTable(names, values) for names, values in joined.items()]
    return PartlyEliminated(rest, sum(step.size + STEP_OVERHEAD_ENTRIES for step in steps), steps, known, constants)


def _without(constants: Mapping[str, int], item: CostTable) -> CostTable:
    """The table without variables that have one value."""
    if constants.keys().isdisjoint(item.variables):
        return item
    places = [place for place, name in enumerate(item.variables) if name not in constants]
    names = tuple(item.variables[place] for place in places)
    return CostTable(names, item.values.reshape([item.values.shape[place] for place in places]))


def _completed(
    steps: Sequence[EliminationStep], tables: Sequence[NDArray[np.float64]], kept: Mapping[str, int]
) -> dict[str, int]:
    found = dict(kept)
    for step in reversed(steps):
        columns = [_column(tables[part.slot], part, found) for part in step.parts]
        found[step.variable] = int(_sum(columns).argmin())
    return found


def eliminate(tables: Iterable[CostTable], keep: Sequence[str] = ()) -> Eliminated:
    """Eliminates all variables but ``keep``, which become the axes of ``rest`` in this order.

    >>> chain = [CostTable(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), CostTable(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> done = eliminate(chain)
    >>> float(done.rest.values), sorted(done.complete({}).items())
    (4.0, [('x', 1), ('y', 1), ('z', 0)])

    Raises BadInput: a joined table would have more than `LARGEST_JOINED_TABLE` entries.
    """
    items = list(tables)
    order = _order_of(items, keep)
    if order.largest > LARGEST_JOINED_TABLE:
        step = next(step for step in order.steps if step.size > LARGEST_JOINED_TABLE)
        expected, got = (
            f"tables of at most {LARGEST_JOINED_TABLE} entries",
            f"{step.size} over {', '.join((step.variable, *step.given))}",
        )
        raise BadInput(Fault("elimination", expected, got, "use fewer axes, or fix a layout"))
    return _eliminated(items, keep, order)


def eliminate_within(tables: Iterable[CostTable], most: int, keep: Sequence[str] = ()) -> Eliminated | None:
    """As `eliminate`; None if the joined tables would have more than ``most`` entries in all."""
    items = list(tables)
    order = _order_of(items, keep)
    return _eliminated(items, keep, order) if order.entries <= most else None


def _eliminated(items: Sequence[CostTable], keep: Sequence[str], order: EliminationOrder) -> Eliminated:
    known = [item.values for item in items]
    for step in order.steps:
        known.append(step.least(known))
    rest = np.zeros(order.shape)
    for part in order.rest:
        rest += part.aligned(known)
    return Eliminated(CostTable(tuple(keep), rest), order.entries + STEP_OVERHEAD_ENTRIES * len(order.steps), order, known)


def _least(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The least over the first axis of a sum of tables that broadcast; large ones in slabs that fit the cache."""
    count, shape = len(parts[0]), np.broadcast_shapes(*(part.shape[1:] for part in parts))
    size = math.prod(shape)
    if count * size <= ENTRIES_JOINED_AT_ONCE or not shape:
        return np.asarray(_sum(parts).min(axis=0))
    if size <= ENTRIES_PER_SLAB:
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


def _column(values: NDArray[np.float64], part: Operand, at: Mapping[str, int]) -> NDArray[np.float64]:
    """A table along the eliminated variable, at the given values of the others."""
    places: tuple[slice | int, ...] = (slice(None), *(at[name] for name in part.names))
    column: NDArray[np.float64] = values.transpose(part.axes)[places]
    return column


@lru_cache(maxsize=32)
def _partial_order(
    tables: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...], keep: frozenset[str], most: int
) -> tuple[tuple[EliminationStep, ...], tuple[tuple[int, tuple[str, ...]], ...]]:
    """The steps for tables of these variables and shapes; number and variables of the tables that remain."""
    pool, steps = _Pool(tables, sorted(keep)), list[EliminationStep]()
    while (name := pool.next()) is not None and pool.joined[name] <= most:
        steps.append(pool.take(name))
    return tuple(steps), tuple((slot, pool.names[slot]) for slot in sorted(pool.left()))


def _order_of(items: Sequence[CostTable], keep: Sequence[str]) -> EliminationOrder:
    return elimination_order(tuple((item.variables, item.values.shape) for item in items), tuple(keep))


@lru_cache(maxsize=128)
def elimination_order(tables: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...], keep: tuple[str, ...]) -> EliminationOrder:
    """The order for tables of these variables and shapes; cached, because it does not depend on costs.

    >>> order = elimination_order(((("x", "y"), (2, 3)), (("y", "z"), (3, 4))), ())
    >>> [(step.variable, step.given, step.size) for step in order.steps]
    [('x', ('y',), 6), ('y', ('z',), 12), ('z', (), 4)]
    """
    pool, steps = _Pool(tables, keep), []
    while (name := pool.next()) is not None:
        steps.append(pool.take(name))
    shape = tuple(pool.sizes[name] for name in keep)
    return EliminationOrder(tuple(steps), tuple(pool.part(slot, (), keep) for slot in sorted(pool.left())), shape)


class _Pool:
    """The remaining tables by number and by variable; the ``neighbours`` of each variable (those that share a table with it);
    the size of the ``joined`` table of each variable; and, where several have the smallest one, the entries of new ``pairs``
    of neighbours."""

    def __init__(self, tables: Iterable[tuple[tuple[str, ...], tuple[int, ...]]], keep: Sequence[str]) -> None:
        self.names: list[tuple[str, ...]] = []
        self.sizes: dict[str, int] = {}
        self.having: dict[str, list[int]] = {name: [] for name in keep}
        self.neighbours: dict[str, set[str]] = {name: set() for name in keep}
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
            self.neighbours.setdefault(name, set()).update(names)
            self.neighbours[name].discard(name)

    def _joined(self, name: str) -> int:
        return self.sizes[name] * math.prod([self.sizes[other] for other in self.neighbours[name]])

    def _paired(self, name: str) -> int:
        """Entries of the pairs of neighbours that would share a table for the first time."""
        if name not in self.pairs:
            neighbours, sizes = self.neighbours[name], self.sizes
            new = [sizes[one] * sizes[other] for one in neighbours for other in neighbours - self.neighbours[one] if one < other]
            self.pairs[name] = sum(new)
        return self.pairs[name]

    def next(self) -> str | None:
        """The variable to eliminate next."""
        least = min(self.joined.values(), default=0)
        return min((name for name, size in self.joined.items() if size == least), key=self._order, default=None)

    def _order(self, name: str) -> tuple[int, str]:
        return self._paired(name), name

    def take(self, name: str) -> EliminationStep:
        """Replaces the variable's tables by the joined one; pairs of variables near it are counted anew."""
        slots, neighbours = self.having.pop(name), self.neighbours.pop(name)
        for other in neighbours:
            self.having[other] = [slot for slot in self.having[other] if name not in self.names[slot]]
            self.neighbours[other].discard(name)
        del self.joined[name]
        # the longest loops are innermost
        given = tuple(sorted(neighbours, key=lambda other: (self.sizes[other], other)))
        size = self.sizes[name] * math.prod([self.sizes[other] for other in given])
        step = EliminationStep(
            name, given, tuple(self.part(slot, (name,), given) for slot in slots), size, *self._sums(slots, size)
        )
        self._add(given)
        for other in given:
            if other in self.joined:
                self.joined[other] = self._joined(other)
        for other in set(given).union(*(self.neighbours[each] for each in given)):
            self.pairs.pop(other, None)
        return step

    def _sums(self, slots: Sequence[int], size: int) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """``sums`` and ``left`` of an `EliminationStep` with a large joined table: each operand is added to the smallest that
        has all of its variables, small operands first."""
        if size <= ENTRIES_SUMMED_DIRECTLY:
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

    def part(self, slot: int, first: tuple[str, ...], order: Sequence[str]) -> Operand:
        own = self.names[slot]
        names = tuple(name for name in order if name in own)
        axes = tuple(own.index(name) for name in (*first, *names))
        return Operand(slot, axes, names, tuple(self.sizes[name] if name in own else 1 for name in (*first, *order)))

    def left(self) -> set[int]:
        """Numbers of the remaining tables."""
        return {*self.scalars, *(slot for slots in self.having.values() for slot in slots)}


def aligned(item: CostTable, order: Sequence[str]) -> NDArray[np.float64]:
    """The values with an axis per name of ``order``; extent 1 for variables that the table lacks."""
    kept = [name for name in order if name in item.variables]
    turned = item.values.transpose([item.variables.index(name) for name in kept])
    extents = iter(turned.shape)
    return turned.reshape([next(extents) if name in item.variables else 1 for name in order])


def cost(tables: Iterable[CostTable], values: Mapping[str, int]) -> float:
    """The sum of the tables at these values of the variables."""
    return math.fsum(float(item.values[tuple(values[name] for name in item.variables)]) for item in tables)


def weighted(first: Iterable[CostTable], second: Iterable[CostTable], weight: float) -> Iterator[CostTable]:
    """The first tables, and the second ones times a weight."""
    yield from first
    if weight:
        yield from (CostTable(item.variables, item.values * weight) for item in second)
