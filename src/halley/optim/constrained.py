"""The least cost whose use of a resource stays within a capacity: exactly, by prices and branching.

A price per unit of the resource turns use into cost; whatever the price, the least of cost + price x (use - capacity) is a
bound of all choices that fit. The best price is where a choice that fits and one that does not cost the same (Lagrangian
relaxation; Handler and Zang, Networks 10, 1980). What gap is left is closed by branching on the variables of the resource, the
lowest bound first.

What is done before the search gives up is counted in entries of tables, not in seconds, so that bounds depend neither on the
machine nor on what else it does.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.answer import relative_gap
from halley.errors import BadInput, Fault, Infeasible
from halley.optim.elimination import Table, Thinned, cost, elimination_order, thinned, weighted
from halley.optim.least_sum import DIRECT, least_below, least_sum

TOLERANCE = 1e-9
"""Relative difference of costs that counts as none; of equals, the choice with the least use is taken."""

EFFORT = 1 << 35
"""Entries of tables that are joined or passed over before the best so far is taken: about a minute."""

THIN = 1 << 14
"""Entries up to which tables are joined over variables that have no part in the resource: more would make tables larger than
they are in the best order of all variables."""


Describe: TypeAlias = Callable[[float, Mapping[str, int] | None], str]
"""Words for a use of the resource, and for the choice that has it."""


def _plain(use: float, values: Mapping[str, int] | None) -> str:
    return f"{use:.6g}"


class TooMuch(Infeasible):
    """No choice fits; ``use``: none has less."""

    def __init__(self, fault: Fault, use: float) -> None:
        super().__init__(fault)
        self.use = use


@dataclass(frozen=True, slots=True)
class Least:
    """The best choice found. ``cost`` and ``use`` are its own, ``bound`` is below the cost of all that fit; ``nodes`` searched,
    ``entries`` of joined tables."""

    values: Mapping[str, int]
    cost: float
    use: float
    bound: float
    nodes: int
    entries: int

    @property
    def gap(self) -> float:
        """How far the cost may be from the optimum, relative to the bound; 0 where that is rounding."""
        gap = relative_gap(self.cost, self.bound)
        return gap if gap > 2 * TOLERANCE else 0.0


@dataclass(frozen=True, slots=True)
class _Point:
    """A choice, and ``value``: the least of cost + price x use that it attains."""

    values: Mapping[str, int]
    cost: float
    use: float
    value: float


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The best choice that was met and fits, a bound of all that fit, and, if the two differ, the price of the bound and a choice
    that costs less and does not fit."""

    best: _Point
    bound: float
    price: float = 0.0
    over: _Point | None = None


_Allowed: TypeAlias = Mapping[str, NDArray[np.intp]]
"""By variable, the values that are left; those of other variables all are."""


def least(
    costs: Sequence[Table],
    uses: Sequence[Table],
    capacity: float = math.inf,
    where: str = "choice",
    describe: Describe = _plain,
    seconds: float = math.inf,
    effort: float = EFFORT,
) -> Least:
    """The choice of least cost among those whose use is at most ``capacity``. ``where`` and ``describe`` word the error. After
    ``effort``, in entries of tables, the best so far is given, with a bound that tells how far it may be from the optimum: the
    same for the same tables. After ``seconds`` [s] too, where somebody waits.

    >>> costs = [Table(("x",), np.array([1.0, 4.0])), Table(("y",), np.array([2.0, 3.0]))]
    >>> uses = [Table(("x",), np.array([8.0, 1.0])), Table(("y",), np.array([4.0, 2.0]))]
    >>> [(found.cost, found.use, found.values["x"]) for found in (least(costs, uses), least(costs, uses, 6.0))]
    [(3.0, 12.0, 0), (6.0, 5.0, 1)]

    Raises BadInput: no choice is allowed; TooMuch: none fits.
    """
    end = time.monotonic() + seconds
    thin = _thinned(costs, uses)
    search = _Search(thin.tables, uses, capacity, slight(costs, uses), thin.entries)
    # whether anything fits takes little to find out, and what costs least does not
    frugal = search.frugal({}) if capacity < math.inf else None
    root = search.relaxed({}, search.slight, math.inf) if frugal is None or frugal.use <= capacity else None
    if root is None and frugal is None:
        raise BadInput(Fault(where, "a choice that is allowed", "none", "free a layout or a split"))
    if root is None:
        assert frugal is not None  # as above
        raise _too_much(frugal.use, frugal.values, capacity, where, describe)
    best, nodes, order = root.best, 1, itertools.count()
    heap: list[tuple[float, int, _Relaxed, _Allowed]] = [(root.bound, next(order), root, {})]
    while heap and heap[0][0] < best.cost * (1 - TOLERANCE) and search.entries < effort and time.monotonic() < end:
        bound, _, node, allowed = heapq.heappop(heap)
        for branch in search.branches(node, allowed):
            nodes += 1
            found = search.relaxed(branch, node.price, best.cost, node)
            if found is not None:
                best = min(best, found.best, key=lambda point: point.cost)
                heapq.heappush(heap, (max(found.bound, bound), next(order), found, branch))
    # branches that were left out may be better by the tolerance
    bound = min((item[0] for item in heap), default=math.inf)
    return Least(thin.complete(best.values), best.cost, best.use, min(bound, best.cost * (1 - TOLERANCE)), nodes, search.entries)


def _thinned(costs: Sequence[Table], uses: Sequence[Table]) -> Thinned:
    """What the resource does not depend on is chosen once, whatever its price; not where that leaves tables of more than two
    variables, which bounds by value do not take, and too many to eliminate."""
    names = {name for item in uses for name in item.variables}
    found = thinned(costs, names, THIN)
    if all(len(item.variables) <= 2 for item in found.tables):
        return found
    order = elimination_order(tuple((item.variables, item.values.shape) for item in (*found.tables, *uses)), ())
    return found if order.entries <= DIRECT else thinned(costs, names, 0)


def check_fits(uses: Sequence[Table], capacity: float, where: str = "choice", describe: Describe = _plain) -> None:
    """Raises TooMuch where no choice fits, whatever the costs forbid: found out from the uses alone, which is little beside what
    `least` does. Nothing is said of uses in tables of more than two variables."""
    if any(len(item.variables) > 2 for item in uses):
        return
    floor = least_sum(uses, any_of_equals=True)
    if floor is not None and floor.total * (1 - TOLERANCE) > capacity:
        raise _too_much(floor.total, floor.values, capacity, where, describe)


def _too_much(use: float, values: Mapping[str, int], capacity: float, where: str, describe: Describe) -> TooMuch:
    expected, got = f"a choice of at most {describe(capacity, None)}", f"at least {describe(use, values)}"
    return TooMuch(Fault(where, expected, got, "take more ranks, or keep less"), use)


def least_use(costs: Sequence[Table], uses: Sequence[Table]) -> float:
    """The least use of a resource that any choice which is allowed has, whatever it costs; infinite if none is allowed.

    >>> costs = [Table(("x",), np.array([1.0, 4.0, np.inf]))]
    >>> least_use(costs, [Table(("x",), np.array([8.0, 2.0, 1.0]))])
    2.0
    """
    found = _Search(costs, uses, math.inf, 0.0).frugal({})
    return math.inf if found is None else found.use


@dataclass(slots=True)
class _Search:
    """The tables, a price that only decides between equals, how much was joined, and, once known, the choice of least use."""

    costs: Sequence[Table]
    uses: Sequence[Table]
    capacity: float
    slight: float
    entries: int = 0
    thrift: _Point | None = None

    def relaxed(self, allowed: _Allowed, price: float, limit: float, near: _Relaxed | None = None) -> _Relaxed | None:
        """The best price of the resource, beginning with one that was good nearby, as were the choices of ``near`` that are
        allowed; None if nothing fits that costs less than ``limit``."""
        point = self.priced(allowed, price, limit + price * self.capacity if price > self.slight else math.inf)
        if point is None or self._bound(point, price) >= limit * (1 - TOLERANCE):
            return None
        fits: _Point | None = point
        over: _Point | None = point
        if point.use > self.capacity:
            fits = near.best if near and _is_allowed(near.best, allowed) else self.frugal(allowed)
        elif price > self.slight:
            over = near.over if near and near.over and _is_allowed(near.over, allowed) else self.priced(allowed, self.slight)
        if fits is None or over is None or fits.use > self.capacity:
            return None
        if over.use <= self.capacity:
            return _Relaxed(over, over.cost * (1 - TOLERANCE))
        return self._bracketed(allowed, fits, over, self._bound(point, price))

    def _bracketed(self, allowed: _Allowed, fits: _Point, over: _Point, bound: float) -> _Relaxed:
        """Prices between a choice that fits and one that does not, until none lies below the line through both."""
        best = fits
        while True:
            price = max((fits.cost - over.cost) / (over.use - fits.use), self.slight)
            line = (over.cost + price * over.use) * (1 - TOLERANCE)
            point = self.priced(allowed, price, line)
            # whatever fits costs no less than the line, less the price of all that it may use
            bound = max(bound, line - price * self.capacity if point is None else self._bound(point, price))
            if point is None or point.values in (fits.values, over.values):
                return _Relaxed(best, bound, price, over)
            if point.use <= self.capacity:
                fits, best = point, min(best, point, key=lambda each: each.cost)
            else:
                over = point

    def _bound(self, point: _Point, price: float) -> float:
        # what decides between equals may make a choice look dearer by as much as the tolerance
        return point.value - price * self.capacity if price > self.slight else point.cost * (1 - TOLERANCE)

    def priced(self, allowed: _Allowed, price: float, limit: float = math.inf) -> _Point | None:
        """The least of cost + price x use; None if nothing is allowed, or nothing below ``limit``."""
        return self._solve(weighted(self.costs, self.uses, price), allowed, limit=limit)

    def frugal(self, allowed: _Allowed) -> _Point | None:
        """The least use; of equals, one that costs little. That of all choices is looked for once."""
        if not allowed and self.thrift is not None:
            return self.thrift
        found = self._floor(allowed) or self._frugal(allowed)
        if not allowed:
            self.thrift = found
        return found

    def _floor(self, allowed: _Allowed) -> _Point | None:
        """The least use whatever the costs forbid, and what costs least with it; None if they forbid that."""
        uses = list(self.uses)
        if any(len(item.variables) > 2 for item in uses):
            return None
        floor = least_sum((_restricted(item, allowed) for item in uses), any_of_equals=True)
        if floor is None:
            return None
        self.entries += floor.entries
        fixed = {name: allowed[name][at : at + 1] if name in allowed else np.array([at]) for name, at in floor.values.items()}
        return self._solve(weighted(self.costs, self.uses, self.slight or 1.0), {**allowed, **fixed}, True)

    def _frugal(self, allowed: _Allowed) -> _Point | None:
        """The least use of what is allowed: uses and costs in one sum."""
        scale = TOLERANCE / 4 * (_most(self.uses) or 1.0) / (_most(self.costs) or 1.0)
        return self._solve(weighted(self.uses, self.costs, scale), allowed, any_of_equals=True)

    def branches(self, node: _Relaxed, allowed: _Allowed) -> Iterator[_Allowed]:
        """A variable of the resource by which the best choice differs from one that takes too much: with that value, and
        without."""
        if node.over is None:
            return
        over = node.over.values
        item, name = next((item, name) for item in self.uses for name in item.variables if over[name] != node.best.values[name])
        values = allowed.get(name, np.arange(item.values.shape[item.variables.index(name)]))
        for left in (values[values == over[name]], values[values != over[name]]):
            yield {**allowed, name: left}

    def _solve(
        self, tables: Iterable[Table], allowed: _Allowed, any_of_equals: bool = False, limit: float = math.inf
    ) -> _Point | None:
        found, entries = least_below((_restricted(item, allowed) for item in tables), limit, any_of_equals)
        self.entries += entries
        if found is None:
            return None
        values = {name: int(allowed[name][at]) if name in allowed else at for name, at in found.values.items()}
        return _Point(values, cost(self.costs, values), cost(self.uses, values), found.total)


def _is_allowed(point: _Point, allowed: _Allowed) -> bool:
    return all(point.values[name] in values for name, values in allowed.items())


def _restricted(item: Table, allowed: _Allowed) -> Table:
    values = item.values
    for axis, name in enumerate(item.variables):
        if name in allowed:
            values = values.take(allowed[name], axis)
    return Table(item.variables, values)


def slight(costs: Sequence[Table], uses: Sequence[Table]) -> float:
    """A price that decides between choices of equal cost, and between no others."""
    most, finite = _most(uses), [item.values[np.isfinite(item.values)] for item in costs]
    scale = math.fsum(float(values.min()) for values in finite if values.size) or _most(costs) or 1.0
    return TOLERANCE / 4 * scale / most if most else 0.0


def _most(tables: Sequence[Table]) -> float:
    """A bound of the sum of finite entries."""
    return math.fsum(float(np.max(item.values, where=np.isfinite(item.values), initial=0.0)) for item in tables)
