"""Exact minimum of a sum of many tables whose joined tables would be too large: values are pruned by bounds first, then the
remaining variables are eliminated.

Passes over the tables raise a bound of each value (`halley.optim.value_bounds`). Elimination over the few most promising values
of each variable finds good sums. A value whose bound exceeds the best sum found is pruned. When few values remain, elimination
solves the rest exactly; when bounds stop rising before that, the search branches on a variable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halley.optim.branch_and_bound import LastFirst, branch_and_bound
from halley.optim.elimination import CostTable, Eliminated, cost, eliminate, eliminate_within
from halley.optim.value_bounds import RELATIVE_ROUNDING, ValueBounds, value_bounds

SWEEPS_PER_ROUND = 2
"""Passes forward and back between two checks of which values remain."""

PROBED_VALUES = 10
"""Values of each variable, those of lowest bound, over which a probe eliminates."""

ENTRIES_BETWEEN_PROBES = 1 << 24
"""Entries swept between two probes, which take about as long."""

ALL_VALUES_GAP, NEAR_OPTIMAL_GAP = 0.01, 0.0003
"""Relative gaps at which the bounds stop being raised: those of all values; then those of values that may be in a sum within
`NEAR_OPTIMAL_RANGE` of the least."""

NEAR_OPTIMAL_RANGE = 0.003
"""How far above the least sum, relative, the bounds distinguish sums by the value of one variable."""

REBUILD_SHARE = 0.85
"""Share of remaining values below which the tables are rebuilt without the pruned ones."""

VALUES_PER_VARIABLE_TO_ELIMINATE = 10
"""Average number of remaining values per variable at which elimination is first tried; then each time the excess over one value
halves."""

STALLED_GAP_RATIO = 0.995
"""Share of the gap that remains after a round when the bounds are considered stalled."""

DIRECT_ELIMINATION_ENTRIES = 1 << 26
"""Entries of all joined tables up to which elimination alone is faster than bounds: a tenth of a second, and some tens of MB.
"""

RESIDUAL_ENTRIES, RESIDUAL_ENTRIES_CLOSED = 1 << 24, 1 << 26
"""Entries of all joined tables up to which the remaining values are eliminated: some hundredths of a second. The second limit
holds once the gap is closed and only equal sums remain, between which the weight of another resource decides."""


@dataclass(frozen=True, slots=True)
class Solved:
    """``values`` of all variables and their ``total``; ``entries`` of the tables joined or swept."""

    values: Mapping[str, int]
    total: float
    entries: int


def least_sum(tables: Iterable[CostTable], any_of_equals: bool = False) -> Solved | None:
    """The values of least cost; None if nothing is allowed. ``any_of_equals``: sums that differ by less than
    `RELATIVE_ROUNDING` count as equal, and any of them may be returned.

    >>> chain = [CostTable(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), CostTable(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = least_sum(chain)
    >>> found.total, sorted(found.values.items())
    (4.0, [('x', 1), ('y', 1), ('z', 0)])

    Raises BadInput: tables of more than two variables whose joined tables would be too large.
    """
    return least_below(tables, math.inf, any_of_equals)[0]


def least_below(tables: Iterable[CostTable], limit: float, any_of_equals: bool = False) -> tuple[Solved | None, int]:
    """As `least_sum`, or None if no sum is below ``limit``, which takes less time to decide; and the entries of the tables
    joined or swept."""
    items = list(tables)
    done = _directly(items)
    if done is None:
        return _searched(items, value_bounds(items), any_of_equals, limit)
    found = _solved(done, {})
    return found if found is not None and found.total < limit else None, done.entries


def _directly(items: Sequence[CostTable], keep: Sequence[str] = ()) -> Eliminated | None:
    """Eliminates all variables without bounds, where that is little work or a table has more than two variables; else None."""
    if any(len(item.variables) > 2 for item in items):
        return eliminate(items, keep)
    return eliminate_within(items, DIRECT_ELIMINATION_ENTRIES, keep)


@dataclass(slots=True, eq=False)
class MinMarginals:
    """The least sum for each value of one variable (its min-marginals).

    ``bounds``: lower bounds by value, computed on demand; exact sums too. ``entries`` of the tables joined or swept for the
    bounds. Joined tables are not kept: they take some MB, few searches ask for exact sums, and with one value fixed they are
    small.

    >>> chain = [CostTable(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), CostTable(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> by = MinMarginals(chain, "x")
    >>> by.floor, by.bounds.tolist(), by.solved(0).total
    (4.0, [8.0, 4.0], 8.0)
    """

    tables: Sequence[CostTable]
    variable: str
    entries: int = field(init=False, default=0)
    _bounds: NDArray[np.float64] | None = field(init=False, default=None)
    _start: ValueBounds | None = field(init=False, default=None)
    _solved: dict[int, Solved | None] = field(init=False, default_factory=dict)
    _narrow: ValueBounds | None = field(init=False, default=None)
    _most: float = field(init=False, default=math.inf)

    @property
    def floor(self) -> float:
        """A lower bound of all sums: nearly the least of ``bounds``, for a third of the work where they do not come from
        elimination."""
        if self._bounds is None and self._start is None and not self._eliminated():
            self._start = node = value_bounds(self.tables)
            lowest = -math.inf
            while not node.impossible and not node.lowest - lowest <= (1 - STALLED_GAP_RATIO) * abs(node.lowest):
                lowest = node.lowest
                node.sweep(SWEEPS_PER_ROUND)
                self.entries += 2 * SWEEPS_PER_ROUND * len(node.double)
        if self._start is not None:
            return math.inf if self._start.impossible else self._start.lowest - RELATIVE_ROUNDING * abs(self._start.lowest)
        return float(self.bounds.min(initial=math.inf))

    @property
    def bounds(self) -> NDArray[np.float64]:
        """By value, a lower bound of the sums with it."""
        if self._bounds is None and not self._eliminated():
            start, passed = _raised(self.tables, self._start or value_bounds(self.tables), math.inf, ALL_VALUES_GAP)
            count = int(start.pairs.sizes[start.names.index(self.variable)])
            found = start.bounds(self.variable, count)
            self._most = start.best + NEAR_OPTIMAL_RANGE * abs(start.best)
            self._narrow, again = _raised(self.tables, start, self._most, NEAR_OPTIMAL_GAP)
            self.entries += passed + again
            found = np.maximum(found, np.minimum(self._narrow.bounds(self.variable, count, self._most), self._most))
            self._bounds, self._start = found - RELATIVE_ROUNDING * abs(start.lowest), None
        assert self._bounds is not None  # one of the two has found it
        return self._bounds

    def _eliminated(self) -> bool:
        """Computes the bounds by elimination if that is little work; they are then exact."""
        done = _directly(self.tables, (self.variable,))
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
        """By bounds: first among the values of near-optimal sums; if none is found there, among all."""
        narrow = self._narrow
        if narrow is not None and value in narrow.left[narrow.names.index(self.variable)]:
            found, _ = _searched(self.tables, narrow.with_value(self.variable, value), limit=min(limit, self._most))
            if found is not None:
                return found
        if limit <= self._most:
            return None
        return _searched(self.tables, value_bounds(self.tables).with_value(self.variable, value), limit=limit)[0]


def _raised(items: Sequence[CostTable], node: ValueBounds, most: float, near: float) -> tuple[ValueBounds, int]:
    """Raises bounds until the relative gap is ``near`` or they stall; and the entries swept. Values without a sum up to
    ``most`` are pruned."""
    entries = look = 0
    while not node.impossible:
        keep = node.needed(most)
        if np.count_nonzero(keep) < REBUILD_SHARE * len(keep) and np.logical_or.reduceat(keep, node.pairs.places[:-1]).all():
            node = node.restricted(keep)
        distance, lowest = node.distance, node.lowest
        node.sweep(SWEEPS_PER_ROUND)
        entries += 2 * SWEEPS_PER_ROUND * len(node.double)
        if entries >= look:
            entries += _probe(items, node)
            look = entries + ENTRIES_BETWEEN_PROBES
        if node.closed or node.distance <= near * abs(node.best) < math.inf or _stalled(node, distance, lowest):
            break
    return node, entries


def _searched(
    items: Sequence[CostTable], start: ValueBounds, any_of_equals: bool = False, limit: float = math.inf
) -> tuple[Solved | None, int]:
    """Branch and bound: bounds, elimination of what remains, and branches, the more promising first. The least sum, None if
    none is below ``limit``; and the entries joined or swept."""
    best: Solved | None = None
    entries = 0

    def branch(node: ValueBounds) -> Iterable[ValueBounds]:
        nonlocal best, entries
        node.best = min(node.best, limit if best is None else best.total)
        passed, tight, done = _tightened(items, node, any_of_equals)
        entries += passed
        if tight is None:
            return ()
        if done is not None:
            found = _solved(done, dict(zip(tight.names, tight.left, strict=True)))
        elif tight.closed and tight.chosen is not None:
            found = Solved(tight.chosen, cost(items, tight.chosen), 0)
        else:
            return _branches(tight)
        if found is not None:
            entries += found.entries
            if found.total < (limit if best is None else best.total):
                best = found
        return ()

    branch_and_bound(LastFirst([start]), branch)
    return None if best is None else Solved(best.values, best.total, entries), entries


def _tightened(
    items: Sequence[CostTable], node: ValueBounds, any_of_equals: bool
) -> tuple[int, ValueBounds | None, Eliminated | None]:
    """Raises bounds until few values remain, and eliminates these; or until the bounds stall, without elimination. Returns the
    entries swept, the bounds (None if no value remains), and the elimination."""
    entries, tried, look = 0, VALUES_PER_VARIABLE_TO_ELIMINATE * len(node.names), 0
    while True:
        distance, lowest = node.distance, node.lowest
        node.sweep(SWEEPS_PER_ROUND)
        entries += 2 * SWEEPS_PER_ROUND * len(node.double)
        if entries >= look and not node.closed:
            entries += _probe(items, node)
            look = entries + ENTRIES_BETWEEN_PROBES
        keep = node.needed()
        if node.impossible or not np.logical_or.reduceat(keep, node.pairs.places[:-1]).all():
            return entries, None, None
        if node.closed and any_of_equals and node.chosen is not None:
            return entries, node, None
        stalled, left = node.closed or _stalled(node, distance, lowest), int(np.count_nonzero(keep))
        if not stalled and left > REBUILD_SHARE * len(keep):
            continue
        shrunk = left < len(keep)
        node = node.restricted(keep)
        if stalled or left <= tried:
            tried = (left + len(node.names)) // 2
            left_of = dict(zip(node.names, node.left, strict=True))
            done = eliminate_within(_restricted(items, left_of), RESIDUAL_ENTRIES_CLOSED if node.closed else RESIDUAL_ENTRIES)
            if done is not None or (stalled and not shrunk):
                return entries, node, done


def _stalled(node: ValueBounds, gap: float, lowest: float) -> bool:
    """Whether the last round hardly raised the bounds. Until a sum is found, they rise to infinity or stop."""
    if math.isfinite(gap):
        return node.distance > STALLED_GAP_RATIO * gap
    return math.isinf(node.distance) and node.lowest - lowest <= (1 - STALLED_GAP_RATIO) * abs(node.lowest)


def _probe(items: Sequence[CostTable], node: ValueBounds) -> int:
    """Looks for a better sum among the most promising values; returns the entries joined."""
    left = node.promising(PROBED_VALUES)
    done = eliminate_within(_restricted(items, left), RESIDUAL_ENTRIES)
    found = _solved(done, left) if done is not None else None
    if found is not None and found.total < node.best:
        node.best, node.chosen = found.total, found.values
    return 0 if done is None else done.entries


def _with_value(item: CostTable, name: str, value: int) -> CostTable:
    """A table at one value of a variable, without that variable."""
    if name not in item.variables:
        return item
    axis = item.variables.index(name)
    return CostTable((*item.variables[:axis], *item.variables[axis + 1 :]), np.asarray(item.values.take(value, axis)))


def _restricted(items: Sequence[CostTable], left: Mapping[str, NDArray[np.int64]]) -> list[CostTable]:
    """The tables over the remaining values, indexed by their position among these; without variables of one value."""
    found = []
    for item in items:
        values = item.values
        for axis, name in enumerate(item.variables):
            if len(left[name]) < values.shape[axis]:
                values = values.take(left[name], axis)
        names = tuple(name for name in item.variables if len(left[name]) > 1)
        found.append(CostTable(names, values.reshape([len(left[name]) for name in names])))
    return found


def _solved(done: Eliminated, left: Mapping[str, NDArray[np.int64]]) -> Solved | None:
    """The solution in values of the original tables. ``left``: remaining values by variable, where not all; variables with one
    value are in no table."""
    total, found = float(done.rest.values), done.complete({})
    if math.isinf(total):
        return None
    places = {**dict.fromkeys(left, 0), **found}
    values = {name: int(left[name][place]) if name in left else place for name, place in places.items()}
    return Solved(values, total, done.entries)


def _branches(node: ValueBounds) -> Iterator[ValueBounds]:
    """Branches on the variable with most values: without the value of lowest bound, and with it alone."""
    at = int(np.argmax(node.pairs.sizes))
    start, end = node.pairs.places[at], node.pairs.places[at + 1]
    alone = np.ones(len(node.single), bool)
    alone[start:end] = False
    alone[start + int(np.argmin(node.of_values[start:end]))] = True
    without = ~alone
    without[:start] = without[end:] = True
    yield node.restricted(without)
    yield node.restricted(alone)
