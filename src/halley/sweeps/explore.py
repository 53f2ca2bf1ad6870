"""Which designs of a study must be searched for its front, and which their lower bounds exclude.

Every design d has known figures f(d), and a value V(d) that only searches tell: the weighted sum over the workloads of the
objective of the best mapping. L(d) <= V(d) is a lower bound, U(d) >= V(d) what some known mapping reaches. A design is *covered*
if some design e (it itself may be) has no larger figure and U(e) <= (1 + gap) L(d): then a point that is known is as good in all
figures, and as good in value within the gap. Uncovered designs are searched in the order of L. No design that is searched in this
order could have been spared by these bounds: those that come later have values above its bound. When all are covered, the
non-dominated points (U, f) are the front, exact within the gap.

What a search tells of one design holds for others in the order of `halley.sweeps.order`: its value is reached on every design
that is no worse, and its bound holds on every design that is no better. So before several designs of such a box are searched one
by one, the best of the box is: it may be of no interest itself, but bounds the others more tightly than their compulsory work.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from halley.sweeps.order import Order

RELATIVE_ROUNDING = 4e-9
"""Relative difference that is put down to rounding."""

LEAST_BOX_DESIGNS = 4
"""Least number of uncovered designs for which one that is no worse than all of them is searched first."""

Matrix = NDArray[np.float64]


class Standing(StrEnum):
    """What became of a design."""

    SEARCHED = "searched"
    INFERRED = "a known mapping reaches its bound"
    EXCLUDED = "excluded by its bound"
    PARTLY = "excluded by its bound after some searches"
    INFEASIBLE = "nothing fits"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Cover:
    """Why a design needs no further search: ``by`` has no larger figure, and its ``value`` is within the gap of the ``bound``."""

    by: int
    value: float
    bound: float


class Exploration:
    """The state of a sweep, without its searches.

    ``figures``: designs x figures that are minimised; ``bounds``: designs x workloads, the first lower bounds; ``weights`` of the
    workloads; ``order`` of the chips; ``gap``: relative one that is allowed. ``everything``: every design is to be searched.

    >>> from halley.io.chips.load import load_chip
    >>> from halley.mapping.problem import Objective
    >>> order = Order([load_chip("edge"), load_chip("cloud")], Objective.TIME)
    >>> state = Exploration(np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]]), [1.0], order)
    >>> state.next(), state.learn(0, 0, 4.0, 4.0), state.next(), state.front()
    ((0, 0), None, None, [0])
    """

    def __init__(
        self,
        figures: Matrix,
        bounds: Matrix,
        weights: Sequence[float],
        order: Order,
        gap: float = 0.0,
        everything: bool = False,
    ) -> None:
        self.figures, self.lower, self.order = figures, bounds.copy(), order
        self.weights, self.gap, self.everything = np.asarray(weights, np.float64), gap, everything
        self.upper = np.full(bounds.shape, math.inf)
        self.searched = np.zeros(bounds.shape, bool)
        self.running = np.zeros(bounds.shape, bool)
        self.reached_on = np.full(bounds.shape, -1)
        self.bounded_by = np.full(bounds.shape, -1)
        self.covers: dict[int, Cover] = {}
        self._pool: list[int] = []
        self._queue: list[tuple[float, ...]] = []
        self._waiting: set[int] = set()
        for design in range(len(bounds)):
            self._push(design)

    def total_lower(self, design: int) -> float:
        """L of a design."""
        return float(self.lower[design] @ self.weights)

    def total_upper(self, design: int) -> float:
        """U of a design; infinite where no mapping of some workload is known."""
        return float(self.upper[design] @ self.weights)

    def learn(self, design: int, workload: int, value: float, bound: float) -> None:
        """What the search of a workload on a design found: the value of its best mapping, infinite for none, and its bound."""
        self.searched[design, workload], self.running[design, workload] = True, False
        bound = min(bound, value)
        worse = self.order.no_better(design)
        raised = worse[self.lower[worse, workload] < bound]
        self.lower[raised, workload] = bound
        self.bounded_by[raised, workload] = design
        self.reach(design, workload, value, design)
        for waiting in [other for other in self._waiting if other == design or not self.running[other].any()]:
            self._waiting.discard(waiting)
            self._push(waiting)

    def reach(self, design: int, workload: int, value: float, found_on: int) -> None:
        """A mapping that was found on another design reaches this value here, and on every design that is no worse."""
        better = self.order.no_worse(design)
        lowered = better[self.upper[better, workload] > value]
        self.upper[lowered, workload] = value
        self.reached_on[lowered, workload] = found_on
        self._enlarge(lowered.tolist())

    def sources(self, design: int, workload: int) -> list[int]:
        """Searched designs of the same structure, those with the least values first: their mappings may fit here."""
        alike = self.order.alike(design)
        found = alike[self.searched[alike, workload]]
        return sorted((int(each) for each in found), key=lambda each: (self.upper[each, workload], each))

    def needed(self, design: int, workload: int) -> bool:
        """Whether a search that `next` gave is still worth making."""
        return self.everything or not (self._closed(design)[workload] or self.cover(design) is not None)

    def cancel(self, design: int, workload: int) -> None:
        """The search was not made after all."""
        self.running[design, workload] = False
        self._push(design)

    def next(self) -> tuple[int, int] | None:
        """The design and the workload to search next, which count as running from then on; None: nothing is left, or all that is
        left waits for searches that run."""
        while self._queue:
            key = heapq.heappop(self._queue)
            design = int(key[-1])
            if self._key(design) > key:  # its bound has been raised since
                self._push(design)
            elif math.isinf(self.total_lower(design)):
                continue
            elif not self.everything and (cover := self.cover(design)) is not None:
                self.covers[design] = cover
            else:
                left = np.flatnonzero(~(self.searched[design] | self.running[design] | self._closed(design)))
                if not len(left):
                    if self.running[design].any():
                        self._waiting.add(design)
                    continue
                spread = self.weights * (np.where(np.isinf(self.upper[design]), 2 * self.lower[design], self.upper[design]))
                workload = int(max(left, key=lambda place: spread[place] - self.weights[place] * self.lower[design, place]))
                self._push(design)
                chosen = self._head(design, workload)
                self.running[chosen, workload] = True
                return chosen, workload
        return None

    def _head(self, design: int, workload: int) -> int:
        """The design itself, or one that is no worse than it and than many others that are not covered: its search bounds all of
        them at once. Each design is bounded so at most once for a workload."""
        if self.everything or self.bounded_by[design, workload] >= 0:
            return design
        able = [other for other in self.order.no_worse(design).tolist() if not math.isinf(self.lower[other, workload])]
        below = {other: self.order.no_better(other) for other in able}
        head = max(able, key=lambda other: (len(below[other]), -other))
        if self.searched[head, workload] or self.running[head, workload]:
            return design
        return head if int(self._uncovered(below[head]).sum()) >= LEAST_BOX_DESIGNS else design

    def _uncovered(self, designs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the designs have some mapping, perhaps, and no cover."""
        enough = self.lower[designs] @ self.weights * (1 + self.gap) * (1 + RELATIVE_ROUNDING)
        left = np.isfinite(enough) & (self.upper[designs] @ self.weights > enough)
        for other in self._pool:
            left &= (enough < self.total_upper(other)) | (self.figures[other] > self.figures[designs]).any(axis=1)
        return np.asarray(left)

    def _closed(self, design: int) -> NDArray[np.bool_]:
        """The workloads of a design of which the known mapping needs no search: one of another design reaches the bound."""
        if self.everything:
            return np.zeros(len(self.weights), bool)
        return np.asarray(self.upper[design] <= self.lower[design] * (1 + self.gap) * (1 + RELATIVE_ROUNDING))

    def cover(self, design: int) -> Cover | None:
        """A known point that is as good as any of the design's mappings, within the gap."""
        bound = self.total_lower(design)
        for other in self._pool:
            value = self.total_upper(other)
            if value <= bound * (1 + self.gap) * (1 + RELATIVE_ROUNDING) and (self.figures[other] <= self.figures[design]).all():
                return Cover(other, value, bound)
        value = self.total_upper(design)
        return Cover(design, value, bound) if value <= bound * (1 + self.gap) * (1 + RELATIVE_ROUNDING) else None

    def front(self) -> list[int]:
        """The designs of the front, by value; of equal points the first."""
        return sorted(self._pool, key=lambda design: (self.total_upper(design), *self.figures[design], design))

    def left(self) -> int:
        """Searches that may still be needed, at most: those of designs that are not covered yet."""
        every = np.arange(len(self.lower))
        open_ = np.isfinite(self.lower @ self.weights) if self.everything else self._uncovered(every)
        return int((~self.searched[open_]).sum())

    def standing(self, design: int) -> Standing:
        """What became of a design by now."""
        if math.isinf(self.total_lower(design)):
            return Standing.INFEASIBLE
        if self.searched[design].all():
            return Standing.SEARCHED
        cover = self.covers.get(design) or self.cover(design)
        if cover is None:
            return Standing.OPEN
        if cover.by == design:
            return Standing.INFERRED
        return Standing.PARTLY if self.searched[design].any() else Standing.EXCLUDED

    def reached_gap(self) -> float:
        """How far the front may be from the exact one: for the design that is covered worst, the least value of a point that has
        no larger figure over its lower bound, less 1."""
        bounds, least = self.lower @ self.weights, self.upper @ self.weights
        for other in self._pool:
            able = (self.figures[other] <= self.figures).all(axis=1)
            least[able] = np.minimum(least[able], self.total_upper(other))
        if ((bounds == 0) & (least > 0)).any():
            return math.inf
        able = np.isfinite(bounds) & (bounds > 0)
        worst = float((least[able] / bounds[able]).max(initial=1.0)) - 1
        return worst if worst > RELATIVE_ROUNDING else 0.0

    def _enlarge(self, designs: Sequence[int]) -> None:
        """Points that became better join the pool of non-dominated ones."""
        changed = np.asarray(designs, np.int64)
        values = self.upper[changed] @ self.weights
        able = np.isfinite(values)
        for other in self._pool:  # most are dominated by what was known before
            value, figures = self.total_upper(other), self.figures[other]
            no_better = (value <= values * (1 + RELATIVE_ROUNDING)) & (figures <= self.figures[changed]).all(axis=1)
            worse = (values > value * (1 + RELATIVE_ROUNDING)) | (self.figures[changed] > figures).any(axis=1)
            able &= ~(no_better & (worse | (changed > other)))
        for design in changed[able].tolist():
            others = [other for other in self._pool if other != design]
            if any(self._dominates(other, design) for other in others):
                self._pool = others
            else:
                self._pool = [other for other in others if not self._dominates(design, other)] + [design]

    def _dominates(self, one: int, other: int) -> bool:
        """Whether a point is no worse than another, and better in something or, where they are equal, the first."""
        value, against = self.total_upper(one), self.total_upper(other)
        if value > against * (1 + RELATIVE_ROUNDING) or (self.figures[one] > self.figures[other]).any():
            return False
        equal = against <= value * (1 + RELATIVE_ROUNDING) and (self.figures[one] == self.figures[other]).all()
        return not equal or one < other

    def _key(self, design: int) -> tuple[float, ...]:
        return (self.total_lower(design), *map(float, self.figures[design]), design)

    def _push(self, design: int) -> None:
        heapq.heappush(self._queue, self._key(design))
