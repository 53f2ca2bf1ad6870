"""The least cost whose use of a resource stays within a capacity: exactly, by prices and branching.

A price per unit of the resource turns use into cost; whatever the price, the least of cost + price x (use - capacity) is a bound of
all choices that fit. The best price is where a choice that fits and one that does not cost the same (Lagrangian relaxation; Handler
and Zang, Networks 10, 1980). What gap is left is closed by branching on the variables of the resource, the lowest bound first.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, Infeasible
from halley.planning.elimination import Eliminated, Table, cost, eliminate, weighted

TOLERANCE = 1e-9
"""Relative difference of costs that counts as none; of equals, the choice with the least use is taken."""

NODES = 500
"""Most nodes of the search; what is left of the gap is reported."""


Describe: TypeAlias = Callable[[float, Mapping[str, int] | None], str]
"""Words for a use of the resource, and for the choice that has it."""


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
        """How far the cost may be from the optimum, relative."""
        gap = (self.cost - self.bound) / self.cost if self.cost > self.bound else 0.0
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
    """The best choice that was met and fits, a bound of all that fit, and the best choice that does not fit, if it matters."""

    best: _Point
    bound: float
    over: _Point | None


def least(
    costs: Sequence[Table],
    uses: Sequence[Table],
    capacity: float = math.inf,
    where: str = "choice",
    describe: Describe = lambda use, values: f"{use:.6g}",
) -> Least:
    """The choice of least cost among those whose use is at most ``capacity``. ``where`` and ``describe`` word the error.

    >>> costs = [Table(("x",), np.array([1.0, 4.0])), Table(("y",), np.array([2.0, 3.0]))]
    >>> uses = [Table(("x",), np.array([8.0, 1.0])), Table(("y",), np.array([4.0, 2.0]))]
    >>> [(found.cost, found.use, found.values["x"]) for found in (least(costs, uses), least(costs, uses, 6.0))]
    [(3.0, 12.0, 0), (6.0, 5.0, 1)]

    Raises BadInput: no choice is allowed; Infeasible: none fits.
    """
    search = _Search(costs, uses, capacity)
    root = search.relaxed(())
    if root is None:
        frugal = search.frugal(())
        if frugal is None:
            raise BadInput(Fault(where, "a choice that is allowed", "none", "free a layout or a split"))
        expected, got = f"a choice of at most {describe(capacity, None)}", f"at least {describe(frugal.use, frugal.values)}"
        raise Infeasible(Fault(where, expected, got, "take more ranks, or keep less"))
    best, nodes, order = root.best, 1, itertools.count()
    heap: list[tuple[float, int, _Relaxed, _Masks]] = [(root.bound, next(order), root, {})]
    while heap and heap[0][0] < best.cost * (1 - TOLERANCE) and nodes < NODES:
        bound, _, node, masks = heapq.heappop(heap)
        for branch in search.branches(node, masks):
            nodes += 1
            found = search.relaxed(tuple(Table((name,), mask) for name, mask in branch.items()))
            if found is not None:
                best = min(best, found.best, key=lambda point: point.cost)
                heapq.heappush(heap, (max(found.bound, bound), next(order), found, branch))
    bound = min((item[0] for item in heap), default=best.cost)
    return Least(best.values, best.cost, best.use, min(bound, best.cost), nodes, search.entries)


_Masks: TypeAlias = Mapping[str, NDArray[np.float64]]
"""By variable, 0 for values that are allowed and infinity for the others."""


@dataclass(slots=True)
class _Search:
    """The tables, and how much was joined so far."""

    costs: Sequence[Table]
    uses: Sequence[Table]
    capacity: float
    entries: int = 0

    @property
    def slight(self) -> float:
        return slight(self.costs, self.uses)

    def relaxed(self, masks: Sequence[Table]) -> _Relaxed | None:
        """The best price of the resource; None if nothing fits."""
        over = self._solve(masks, self.slight)
        if over is None or over.use <= self.capacity:
            return None if over is None else _Relaxed(over, over.cost * (1 - TOLERANCE), None)
        fits = self.frugal(masks)
        if fits is None or fits.use > self.capacity:
            return None
        best, bound = fits, over.cost * (1 - TOLERANCE)
        while True:
            price = max((fits.cost - over.cost) / (over.use - fits.use), self.slight)
            point = self._solve(masks, price)
            if point is None:
                return None
            bound = max(bound, point.value - price * self.capacity)
            if point.value >= (over.cost + price * over.use) * (1 - TOLERANCE) or point.values in (fits.values, over.values):
                return _Relaxed(best, bound, over)
            if point.use <= self.capacity:
                fits, best = point, min(best, point, key=lambda each: each.cost)
            else:
                over = point

    def frugal(self, masks: Sequence[Table]) -> _Point | None:
        """The least use; of equals, the least cost."""
        scale = TOLERANCE / 4 * (_most(self.uses) or 1.0) / (_most(self.costs) or 1.0)
        faint = (Table(item.variables, item.values * scale) for item in self.costs)
        return self._point(eliminate((*masks, *faint, *self.uses)))

    def branches(self, node: _Relaxed, masks: _Masks) -> Iterator[_Masks]:
        """A variable of the resource by which the best choice differs from one that takes too much: with that value, and without."""
        if node.over is None:
            return
        over = node.over.values
        item, name = next(
            (item, name) for item in self.uses for name in item.variables if over[name] != node.best.values[name]
        )
        size = item.values.shape[item.variables.index(name)]
        allowed = masks.get(name, np.zeros(size))
        this = np.arange(size) == over[name]
        for keep in (this, ~this):
            yield {**masks, name: np.where(keep, allowed, np.inf)}

    def _solve(self, masks: Sequence[Table], price: float) -> _Point | None:
        return self._point(eliminate((*masks, *weighted(self.costs, self.uses, price))))

    def _point(self, done: Eliminated) -> _Point | None:
        self.entries += done.entries
        value = float(done.rest.values)
        if math.isinf(value):
            return None
        values = done.complete({})
        return _Point(values, cost(self.costs, values), cost(self.uses, values), value)


def slight(costs: Sequence[Table], uses: Sequence[Table]) -> float:
    """A price that decides between choices of equal cost, and between no others."""
    most, finite = _most(uses), [item.values[np.isfinite(item.values)] for item in costs]
    scale = math.fsum(float(values.min()) for values in finite if values.size) or _most(costs) or 1.0
    return TOLERANCE / 4 * scale / most if most else 0.0


def _most(tables: Sequence[Table]) -> float:
    """A bound of the sum of finite entries."""
    return math.fsum(float(np.max(item.values, where=np.isfinite(item.values), initial=0.0)) for item in tables)
