"""The least sum of many tables, exactly, where joined tables would be too large: values that cannot be part of it are given up
first, and variables are eliminated only over those that are left.

Bounds by value (`halley.planning.value_bounds`) rise while passes over the tables go on, and sums that are met on the way fall. A
value whose bound is above a sum that was met is in no better one. When what is left is small, elimination ends the matter; when
bounds stop rising before that, a variable is branched on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halley.planning.elimination import Eliminated, Table, cost, eliminate, eliminate_within
from halley.planning.value_bounds import SLACK, ValueBounds, value_bounds

ROUNDS = 4
"""Passes there and back between looks at what is left."""

SHRUNK = 0.85
"""Share of the values that is left when tables are made anew without the others."""

EACH = 3
"""Values that are left of a variable, on average, when elimination is tried; then at each half of what is above one."""

STALLED = 0.99
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
    items = list(tables)
    done = _plainly(items)
    return _solved(done, {}) if done is not None else _searched(items, value_bounds(items), any_of_equals)


def _plainly(items: Sequence[Table], keep: Sequence[str] = ()) -> Eliminated | None:
    """All eliminated without bounds, where that is little work or bounds are not known; else None."""
    if any(len(item.variables) > 2 for item in items):
        return eliminate(items, keep)
    return eliminate_within(items, DIRECT, keep)


@dataclass(slots=True, eq=False)
class LeastBy:
    """The least sum for each value of one variable. ``bounds``: by value, below the least sum with it; exact sums are found when
    they are asked for.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> by = LeastBy(chain, "x")
    >>> by.bounds.tolist(), by.solved(0).total
    ([8.0, 4.0], 8.0)
    """

    tables: Sequence[Table]
    variable: str
    bounds: NDArray[np.float64] = field(init=False)
    _solved: dict[int, Solved | None] = field(init=False, default_factory=dict)
    _done: Eliminated | None = field(init=False, default=None)
    _start: ValueBounds | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._done = _plainly(self.tables, (self.variable,))
        if self._done is not None:
            self.bounds = self._done.rest.values
            return
        self._start = value_bounds(self.tables)
        count = int(self._start.pairs.sizes[self._start.names.index(self.variable)])
        while True:
            gap, lowest = self._start.gap, self._start.lowest
            self._start.sweep(ROUNDS)
            if self._start.closed or self._start.impossible or _stalled(self._start, gap, lowest):
                break
        self.bounds = self._start.bounds(self.variable, count) - SLACK * abs(self._start.lowest)

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
        if self._start is not None:
            return _searched(self.tables, self._start.with_value(self.variable, value), limit=limit)
        assert self._done is not None  # one of both is there
        total = float(self.bounds[value])
        return Solved(self._done.complete({self.variable: value}), total, self._done.entries) if math.isfinite(total) else None


def _searched(items: Sequence[Table], start: ValueBounds, any_of_equals: bool = False, limit: float = math.inf) -> Solved | None:
    """Bounds, elimination of what is left, and branches, the more promising first. None if no sum is below ``limit``."""
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
    return None if best is None else Solved(best.values, best.total, entries)


def _tightened(
    items: Sequence[Table], node: ValueBounds, any_of_equals: bool
) -> tuple[int, ValueBounds | None, Eliminated | None]:
    """Bounds that have risen until few values are left, with the elimination of these; or until they rise no more, with none.
    No bounds if no value is left. First the entries that were passed over."""
    entries, tried = 0, EACH * len(node.names)
    while True:
        gap, lowest = node.gap, node.lowest
        node.sweep(ROUNDS)
        entries += 2 * ROUNDS * len(node.double)
        keep = node.needed()
        if node.impossible or not np.logical_or.reduceat(keep, node.pairs.places[:-1]).all():
            return entries, None, None
        if node.closed and any_of_equals and node.chosen is not None:
            return entries, node, None
        stalled, left = node.closed or _stalled(node, gap, lowest), int(np.count_nonzero(keep))
        if not stalled and left > SHRUNK * len(keep):
            continue
        shrunk = left < len(keep)
        node = node.restricted(keep)
        if stalled or left <= tried:
            tried = (left + len(node.names)) // 2
            done = eliminate_within(_left(items, node), MANY if node.closed else FEW)
            if done is not None or (stalled and not shrunk):
                return entries, node, done


def _stalled(node: ValueBounds, gap: float, lowest: float) -> bool:
    """Whether the bounds have hardly risen. Before a sum is met, they rise to what is forbidden or stop."""
    if math.isfinite(gap):
        return node.gap > STALLED * gap
    return math.isinf(node.gap) and node.lowest - lowest <= (1 - STALLED) * abs(node.lowest)


def _left(items: Sequence[Table], node: ValueBounds) -> list[Table]:
    """The tables over the values that are left, by their place among these; without variables that have only one."""
    left = dict(zip(node.names, node.left, strict=True))
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
