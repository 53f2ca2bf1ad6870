"""The least sum of tables over variables with few values each, exactly: variables are eliminated one after the other.

A table gives a cost to each combination of values of some variables. To eliminate a variable, the tables that have it are added
up and the least over its values is kept, with the value that gives it (bucket elimination: Dechter, Artificial Intelligence
113, 1999). The order decides how large tables grow. It is chosen greedily: first the variable that brings the fewest pairs of
values of others into one table that shared none before (min-fill, weighted by sizes), of equals the one with the smallest
joined table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault

LARGEST = 1 << 30
"""Most entries of a joined table: what takes some ten seconds."""

SLAB = 1 << 18
"""Entries that are joined at once: 2 MiB."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The best value of a variable for each combination of those that were left."""

    variable: str
    given: tuple[str, ...]
    best: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Eliminated:
    """``rest``: the least cost for each combination of the variables that were kept; ``entries``: of all tables that were joined,
    a measure of the work."""

    rest: Table
    choices: tuple[Choice, ...]
    entries: int

    def complete(self, kept: Mapping[str, int]) -> dict[str, int]:
        """Values of all variables that cost least for these of the kept ones."""
        found = dict(kept)
        for choice in reversed(self.choices):
            found[choice.variable] = int(choice.best[tuple(found[name] for name in choice.given)])
        return found


def eliminate(tables: Iterable[Table], keep: Sequence[str] = ()) -> Eliminated:
    """Eliminates all variables but ``keep``, which become the axes of ``rest`` in this order.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> done = eliminate(chain)
    >>> float(done.rest.values), sorted(done.complete({}).items())
    (4.0, [('x', 1), ('y', 1), ('z', 0)])

    Raises BadInput: a table would be too large.
    """
    pool = _Pool(tables, keep)
    done, too_large = _eliminated(pool, keep, LARGEST)
    if done is None:
        remedy = "use fewer axes, or fix a layout"
        raise BadInput(Fault("elimination", f"tables of at most {LARGEST} entries", too_large, remedy))
    return done


def eliminate_within(tables: Iterable[Table], most: int) -> Eliminated | None:
    """The same for all variables; None where a joined table would have more than ``most`` entries."""
    return _eliminated(_Pool(tables, ()), (), most)[0]


def _eliminated(pool: _Pool, keep: Sequence[str], most: int) -> tuple[Eliminated | None, str]:
    """What is left, or the table that is too large."""
    choices = []
    while (name := pool.next()) is not None:
        items, given, size = pool.take(name)
        if size > most:
            return None, f"{size} over {', '.join((name, *given))}"
        values, best = _least(items, given, name, pool.sizes)
        choices.append(Choice(name, given, best))
        pool.put(Table(given, values))
    rest = np.zeros([pool.sizes[name] for name in keep])
    for item in pool.all():
        rest += aligned(item, keep)
    return Eliminated(Table(tuple(keep), rest), tuple(choices), pool.entries), ""


def _least(
    items: Sequence[Table], given: tuple[str, ...], name: str, sizes: Mapping[str, int]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The least sum over the values of a variable, and the value that gives it, for each combination of the others; large tables
    are joined in slabs that stay in a cache."""
    shape = [sizes[other] for other in given]
    if math.prod(shape) * sizes[name] <= SLAB or not given:
        total = np.zeros((*shape, sizes[name]))
        for item in items:
            total += aligned(item, (*given, name))
        return total.min(axis=-1), total.argmin(axis=-1)
    first, *others = given
    values, best = np.empty(shape), np.empty(shape, np.intp)
    for place in range(sizes[first]):
        slab = [_at(item, first, place) for item in items]
        values[place], best[place] = _least(slab, tuple(others), name, sizes)
    return values, best


def _at(item: Table, name: str, place: int) -> Table:
    """The table at one value of a variable."""
    if name not in item.variables:
        return item
    axis = item.variables.index(name)
    return Table((*item.variables[:axis], *item.variables[axis + 1 :]), np.asarray(item.values.take(place, axis)))


class _Pool:
    """Tables by variable, the graph of variables that share a table, and the price of each variable that is still to go."""

    def __init__(self, tables: Iterable[Table], keep: Sequence[str]) -> None:
        self.entries = 0
        self.sizes: dict[str, int] = {}
        self.having: dict[str, list[Table]] = {name: [] for name in keep}
        self.around: dict[str, set[str]] = {name: set() for name in keep}
        self.scalars: list[Table] = []
        for item in tables:
            self._add(item)
        self.prices = {name: self._price(name) for name in self.having if name not in set(keep)}

    def _add(self, item: Table) -> None:
        if not item.variables:
            self.scalars.append(item)
        for name, size in zip(item.variables, item.values.shape, strict=True):
            self.sizes[name] = size
            self.having.setdefault(name, []).append(item)
            self.around.setdefault(name, set()).update(item.variables)
            self.around[name].discard(name)

    def _price(self, name: str) -> tuple[int, int, str]:
        """Size of the pairs of neighbours that would share a table for the first time, and of the joined table."""
        around, sizes = self.around[name], self.sizes
        joined = sizes[name] * math.prod([sizes[other] for other in around])
        pairs = sum([sizes[one] * sizes[other] for one in around for other in around - self.around[one] if one < other])
        return pairs, joined, name

    def next(self) -> str | None:
        """The variable that is cheapest to eliminate."""
        return min(self.prices.values())[-1] if self.prices else None

    def take(self, name: str) -> tuple[list[Table], tuple[str, ...], int]:
        """The variable's tables, which leave the pool, the other variables that they have, and the entries of all joined."""
        items, around = self.having.pop(name), self.around.pop(name)
        for other in around:
            self.having[other] = [item for item in self.having[other] if name not in item.variables]
            self.around[other].discard(name)
        del self.prices[name]
        given = tuple(sorted(around))
        size = self.sizes[name] * math.prod([self.sizes[other] for other in given])
        self.entries += size
        return items, given, size

    def put(self, item: Table) -> None:
        """Adds a table and prices anew all who see two of its variables."""
        self._add(item)
        for name in set(item.variables).union(*(self.around[name] for name in item.variables)):
            if name in self.prices:
                self.prices[name] = self._price(name)

    def all(self) -> list[Table]:
        """Each table that is left, once."""
        return [*self.scalars, *{id(item): item for items in self.having.values() for item in items}.values()]


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
