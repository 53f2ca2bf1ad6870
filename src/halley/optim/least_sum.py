"""The least sum of many tables, exactly, where joined tables would be too large: values that cannot be part of it are given up
first, and variables are eliminated only over those that are left.

Bounds by value (`halley.optim.value_bounds`) rise while passes over the tables go on, and sums that are met on the way fall:
the least over the few values of each variable that look best is found by elimination. A value whose bound is above a sum that was
met is in no better one. When what is left is small, elimination ends the matter; when bounds stop rising before that, a variable
is branched on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halley.optim.elimination import Eliminated, Table, cost, eliminate, eliminate_within
from halley.optim.value_bounds import SLACK, ValueBounds, value_bounds

ROUNDS = 2
"""Passes there and back between looks at what is left."""

PROMISING = 10
"""Values of each variable, those of least bound, over which a sum is looked for between passes."""

LOOKING = 1 << 24
"""Entries that are passed over between two such looks, which take about as long."""

NEAR, NEARER = 0.01, 0.0003
"""Relative gaps at which bounds of all values are left as they are, and then those of values that may be in a sum close to the
least."""

CLOSE = 0.003
"""How far above the least sum, relative, sums of the values of one variable are distinguished by their bounds."""

SHRUNK = 0.85
"""Share of the values that is left when tables are made anew without the others."""

EACH = 10
"""Values that are left of a variable, on average, when elimination is tried; then at each half of what is above one."""

STALLED = 0.995
"""Share of the gap that is left after some rounds when bounds are taken to rise no more."""

DIRECT = 1 << 26
"""Entries of all joined tables for which elimination alone is faster than bounds: a tenth of a second, in memory for some
tens of MB."""

FEW, MANY = 1 << 24, 1 << 26
"""Entries of all joined tables that elimination over what is left may have: some hundredths of a second; and where only equals
are left, of which the price of another resource decides."""


@dataclass(frozen=True, slots=True)
class Solved:
    """``values`` of all variables and their ``total``; ``entries`` of the tables that were joined, or passed over."""

    values: Mapping[str, int]
    total: float
    entries: int


def least_sum(tables: Iterable[Table], any_of_equals: bool = False) -> Solved | None:
    """The values that cost least; None if nothing is allowed. ``any_of_equals``: sums that differ by less than `SLACK` count as
    equal, and any of them will do.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = least_sum(chain)
    >>> found.total, sorted(found.values.items())
    (4.0, [('x', 1), ('y', 1), ('z', 0)])

    Raises BadInput: tables of more than two variables that would join to too large ones.
    """
    return least_below(tables, math.inf, any_of_equals)[0]


def least_below(tables: Iterable[Table], limit: float, any_of_equals: bool = False) -> tuple[Solved | None, int]:
    """As `least_sum`, or None if nothing costs less than ``limit``, which takes less to find out than what costs least; and the
    entries of the tables that were joined, or passed over."""
    items = list(tables)
    done = _plainly(items)
    if done is None:
        return _searched(items, value_bounds(items), any_of_equals, limit)
    found = _solved(done, {})
    return found if found is not None and found.total < limit else None, done.entries


def _plainly(items: Sequence[Table], keep: Sequence[str] = ()) -> Eliminated | None:
    """All eliminated without bounds, where that is little work or bounds are not known; else None."""
    if any(len(item.variables) > 2 for item in items):
        return eliminate(items, keep)
    return eliminate_within(items, DIRECT, keep)


@dataclass(slots=True, eq=False)
class LeastBy:
    """The least sum for each value of one variable. ``bounds``: by value, below the least sum with it; exact sums are found when
    they are asked for, and so are the bounds. ``entries`` of the tables that were joined, or passed over, for the bounds. (Joined
    tables take some MB, and many a search asks for no exact sum: they are not kept. With one value of the variable, tables to
    join are small.)

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> by = LeastBy(chain, "x")
    >>> by.floor, by.bounds.tolist(), by.solved(0).total
    (4.0, [8.0, 4.0], 8.0)
    """

    tables: Sequence[Table]
    variable: str
    entries: int = field(init=False, default=0)
    _bounds: NDArray[np.float64] | None = field(init=False, default=None)
    _start: ValueBounds | None = field(init=False, default=None)
    _solved: dict[int, Solved | None] = field(init=False, default_factory=dict)
    _narrow: ValueBounds | None = field(init=False, default=None)
    _most: float = field(init=False, default=math.inf)

    @property
    def floor(self) -> float:
        """No sum is less: most of what ``bounds`` say, for a third of the effort where they do not come from elimination."""
        if self._bounds is None and self._start is None and not self._eliminated():
            self._start = node = value_bounds(self.tables)
            lowest = -math.inf
            while not node.impossible and not node.lowest - lowest <= (1 - STALLED) * abs(node.lowest):
                lowest = node.lowest
                node.sweep(ROUNDS)
                self.entries += 2 * ROUNDS * len(node.double)
        if self._start is not None:
            return math.inf if self._start.impossible else self._start.lowest - SLACK * abs(self._start.lowest)
        return float(self.bounds.min(initial=math.inf))

    @property
    def bounds(self) -> NDArray[np.float64]:
        """By value, below the least sum with it."""
        if self._bounds is None and not self._eliminated():
            start, passed = _risen(self.tables, self._start or value_bounds(self.tables), math.inf, NEAR)
            count = int(start.pairs.sizes[start.names.index(self.variable)])
            found = start.bounds(self.variable, count)
            self._most = start.best + CLOSE * abs(start.best)
            self._narrow, again = _risen(self.tables, start, self._most, NEARER)
            self.entries += passed + again
            found = np.maximum(found, np.minimum(self._narrow.bounds(self.variable, count, self._most), self._most))
            self._bounds, self._start = found - SLACK * abs(start.lowest), None
        assert self._bounds is not None  # one of the two has found it
        return self._bounds

    def _eliminated(self) -> bool:
        """Whether the bounds were found by elimination, which makes them exact."""
        done = _plainly(self.tables, (self.variable,))
        if done is not None:
            self._bounds, self.entries = done.rest.values, done.entries
        return done is not None

    def solved(self, value: int, limit: float = math.inf) -> Solved | None:
        """The least sum with this value; None if there is none, or none below ``limit``."""
        if self.bounds[value] >= limit:
            return None
        found = self._solved.get(value)
        if value not in self._solved:
            found = self._found(value, limit)
            if found is not None or math.isinf(limit):
                self._solved[value] = found
        return found if found is not None and found.total < limit else None

    def _found(self, value: int, limit: float) -> Solved | None:
        if self._narrow is not None:
            return self._searched(value, limit)
        total = float(self.bounds[value])
        if math.isinf(total):
            return None
        done = eliminate(_with_value(item, self.variable, value) for item in self.tables)
        return Solved({**done.complete({}), self.variable: value}, total, done.entries)

    def _searched(self, value: int, limit: float) -> Solved | None:
        """By bounds: among the values that may be in a sum close to the least, and, if that is in vain, among all."""
        narrow = self._narrow
        if narrow is not None and value in narrow.left[narrow.names.index(self.variable)]:
            found, _ = _searched(self.tables, narrow.with_value(self.variable, value), limit=min(limit, self._most))
            if found is not None:
                return found
        if limit <= self._most:
            return None
        return _searched(self.tables, value_bounds(self.tables).with_value(self.variable, value), limit=limit)[0]


def _risen(items: Sequence[Table], node: ValueBounds, most: float, near: float) -> tuple[ValueBounds, int]:
    """Bounds that have risen until the gap is ``near``, relative, or they rise no more, and the entries that were passed over.
    Values that no sum up to ``most`` has are left out."""
    entries = look = 0
    while not node.impossible:
        keep = node.needed(most)
        if np.count_nonzero(keep) < SHRUNK * len(keep) and np.logical_or.reduceat(keep, node.pairs.places[:-1]).all():
            node = node.restricted(keep)
        distance, lowest = node.distance, node.lowest
        node.sweep(ROUNDS)
        entries += 2 * ROUNDS * len(node.double)
        if entries >= look:
            entries += _look(items, node)
            look = entries + LOOKING
        if node.closed or node.distance <= near * abs(node.best) < math.inf or _stalled(node, distance, lowest):
            break
    return node, entries


def _searched(
    items: Sequence[Table], start: ValueBounds, any_of_equals: bool = False, limit: float = math.inf
) -> tuple[Solved | None, int]:
    """Bounds, elimination of what is left, and branches, the more promising first. None if no sum is below ``limit``; and the
    entries that were joined or passed over."""
    best: Solved | None = None
    entries, nodes = 0, [start]
    while nodes:
        node = nodes.pop()
        node.best = min(node.best, limit if best is None else best.total)
        passed, tight, done = _tightened(items, node, any_of_equals)
        entries += passed
        if tight is None:
            continue
        if done is not None:
            found = _solved(done, dict(zip(tight.names, tight.left, strict=True)))
        elif tight.closed and tight.chosen is not None:
            found = Solved(tight.chosen, cost(items, tight.chosen), 0)
        else:
            nodes += _branches(tight)
            continue
        if found is not None:
            entries += found.entries
            if found.total < (limit if best is None else best.total):
                best = found
    return None if best is None else Solved(best.values, best.total, entries), entries


def _tightened(
    items: Sequence[Table], node: ValueBounds, any_of_equals: bool
) -> tuple[int, ValueBounds | None, Eliminated | None]:
    """Bounds that have risen until few values are left, with the elimination of these; or until they rise no more, with none.
    No bounds if no value is left. First the entries that were passed over."""
    entries, tried, look = 0, EACH * len(node.names), 0
    while True:
        distance, lowest = node.distance, node.lowest
        node.sweep(ROUNDS)
        entries += 2 * ROUNDS * len(node.double)
        if entries >= look and not node.closed:
            entries += _look(items, node)
            look = entries + LOOKING
        keep = node.needed()
        if node.impossible or not np.logical_or.reduceat(keep, node.pairs.places[:-1]).all():
            return entries, None, None
        if node.closed and any_of_equals and node.chosen is not None:
            return entries, node, None
        stalled, left = node.closed or _stalled(node, distance, lowest), int(np.count_nonzero(keep))
        if not stalled and left > SHRUNK * len(keep):
            continue
        shrunk = left < len(keep)
        node = node.restricted(keep)
        if stalled or left <= tried:
            tried = (left + len(node.names)) // 2
            left_of = dict(zip(node.names, node.left, strict=True))
            done = eliminate_within(_left(items, left_of), MANY if node.closed else FEW)
            if done is not None or (stalled and not shrunk):
                return entries, node, done


def _stalled(node: ValueBounds, gap: float, lowest: float) -> bool:
    """Whether the bounds have hardly risen. Before a sum is met, they rise to what is forbidden or stop."""
    if math.isfinite(gap):
        return node.distance > STALLED * gap
    return math.isinf(node.distance) and node.lowest - lowest <= (1 - STALLED) * abs(node.lowest)


def _look(items: Sequence[Table], node: ValueBounds) -> int:
    """Looks for a sum that is less than the best over the most promising values; gives the entries that were joined."""
    left = node.promising(PROMISING)
    done = eliminate_within(_left(items, left), FEW)
    found = _solved(done, left) if done is not None else None
    if found is not None and found.total < node.best:
        node.best, node.chosen = found.total, found.values
    return 0 if done is None else done.entries


def _with_value(item: Table, name: str, value: int) -> Table:
    """A table where a variable has one value, without that variable."""
    if name not in item.variables:
        return item
    axis = item.variables.index(name)
    return Table((*item.variables[:axis], *item.variables[axis + 1 :]), np.asarray(item.values.take(value, axis)))


def _left(items: Sequence[Table], left: Mapping[str, NDArray[np.int64]]) -> list[Table]:
    """The tables over the values that are left, by their place among these; without variables that have only one."""
    found = []
    for item in items:
        values = item.values
        for axis, name in enumerate(item.variables):
            if len(left[name]) < values.shape[axis]:
                values = values.take(left[name], axis)
        names = tuple(name for name in item.variables if len(left[name]) > 1)
        found.append(Table(names, values.reshape([len(left[name]) for name in names])))
    return found


def _solved(done: Eliminated, left: Mapping[str, NDArray[np.int64]]) -> Solved | None:
    """``left``: by variable, the values that the tables are over, if not all; of some variables one, and no table has them."""
    total, found = float(done.rest.values), done.complete({})
    if math.isinf(total):
        return None
    places = {**dict.fromkeys(left, 0), **found}
    values = {name: int(left[name][place]) if name in left else place for name, place in places.items()}
    return Solved(values, total, done.entries)


def _branches(node: ValueBounds) -> Iterator[ValueBounds]:
    """The variable with most values: without the one of least bound, and with it alone."""
    at = int(np.argmax(node.pairs.sizes))
    start, end = node.pairs.places[at], node.pairs.places[at + 1]
    alone = np.ones(len(node.single), bool)
    alone[start:end] = False
    alone[start + int(np.argmin(node.of_values[start:end]))] = True
    without = ~alone
    without[:start] = without[end:] = True
    yield node.restricted(without)
    yield node.restricted(alone)
