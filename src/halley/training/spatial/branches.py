"""Branch and bound for the least time of a part on a spatial chip: where a mixture of shardings is below the best single one,
multipliers alone leave a gap.

The shardings of a part are divided in two by one value of a variable: the variable in which the shardings found differ most in
time. Each half is bounded with multipliers of its own (`halley.training.spatial.relaxation`). The half of lowest bound is
divided next. The bound of a layout is the lowest of all halves; the shardings found on the way are candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.optim.branch_and_bound import LowestFirst, branch_and_bound
from halley.optim.elimination import CostTable, cost
from halley.optim.least_sum import MinMarginals
from halley.training.spatial.relaxation import PartTables, RelaxedBounds, ShardingChoice, by_section, least_by_layout

Floats = NDArray[np.float64]

MAX_BRANCHES = 40
"""Largest number of halves that are bounded."""

MAX_BRANCHING_ENTRIES = 1 << 28
"""Largest number of table entries joined for a part by branching: some seconds."""

CHEAP_BOUND_ENTRIES = 1 << 24
"""Entries joined for one bound up to which branching is worthwhile: some hundredths of a second."""

BRANCHES_BEFORE_CHECK, LEAST_GAP_SHARE = 8, 0.1
"""Number of halves after which branching ends if, at the rate so far, `MAX_BRANCHES` would not close this share of the gap."""

CANDIDATE_BRANCHES, TIE_BREAK_WEIGHT = 3, 0.02
"""Number of branches in which further candidates are searched, and the weight of the tie-breaking times in it."""

ROUNDS_PER_BRANCH = 4
"""Multipliers that are tried in one branch."""


class Branch(NamedTuple):
    """Shardings without those that are ``barred``; ordered by their bounds."""

    bound: float
    number: int
    barred: tuple[CostTable, ...]
    relaxed: RelaxedBounds


@dataclass(slots=True, eq=False)
class Branches:
    """The shardings of a part. ``relaxed``: bounds of all of them, at first with multipliers by pass; ``choices``: those found;
    ``entries`` of joined tables. ``stopped``: whether a time limit has passed, after which little more is done."""

    tables: PartTables
    stopped: Callable[[], bool] = lambda: False
    relaxed: RelaxedBounds = field(init=False)
    choices: list[ShardingChoice] = field(init=False)
    entries: int = field(init=False)
    _open: LowestFirst[Branch] = field(init=False)
    _unsplit: list[Branch] = field(init=False, default_factory=list)
    _number: int = field(init=False, default=0)
    _refined: bool = field(init=False, default=False)

    @property
    def cheap(self) -> bool:
        """Whether a bound takes little time."""
        return self.relaxed.entries <= CHEAP_BOUND_ENTRIES * len(self.relaxed.choices)

    def __post_init__(self) -> None:
        self._start(least_by_layout(self.tables, by_pass=True, stop=self.stopped))

    def _start(self, relaxed: RelaxedBounds) -> None:
        self.relaxed, self.choices, self.entries = relaxed, list(relaxed.choices), relaxed.entries
        self._open = LowestFirst([Branch(float(relaxed.bounds.min()), 0, (), relaxed)], lambda bound: False)

    def refine(self) -> None:
        """Bounds with multipliers by section, which take longer."""
        if not self._refined and not self.stopped():
            self._refined = True
            self._start(by_section(self.tables, self.relaxed, self.stopped))

    @property
    def bounds(self) -> Floats:
        """[layouts] lower bounds over the shardings [s]."""
        return np.asarray(np.min([each.relaxed.bounds for each in (*self._open, *self._unsplit)], axis=0))

    def raise_to(self, time: float, gap: float = 0.0) -> None:
        """Branches until the bound is within ``gap`` [s] of ``time`` [s] or of a sharding found, until the limits are reached,
        or until the bound hardly rises."""
        self.refine()
        start = float(self.relaxed.bounds.min())

        def enough() -> float:
            return min(time, *(each.time for each in self.choices)) - gap

        def stalled() -> bool:
            hoped = LEAST_GAP_SHARE * (enough() - start) * self._number / MAX_BRANCHES
            return self._number >= BRANCHES_BEFORE_CHECK and self._open.bound - start < hoped

        def stop() -> bool:
            spent = self._number >= MAX_BRANCHES or self.entries >= MAX_BRANCHING_ENTRIES
            return not self.cheap or spent or stalled() or self.stopped()

        self._open.pruned = lambda bound: bound >= enough()
        branch_and_bound(self._open, lambda branch: self._halves(branch, enough()), stop)

    def candidates(self, layout: int, beside: Sequence[CostTable]) -> list[ShardingChoice]:
        """Shardings with the part's end in this layout, the most promising first: all that were found, and a few more where
        that is cheap.

        Where one resource dominates, the others have no weight, and shardings may waste them. So some are searched with small
        weights of ``beside`` [s] that break ties, in the branches of lowest bounds.
        """
        place = CostTable((self.tables.end,), np.where(np.arange(len(self.relaxed.bounds)) == layout, 0.0, math.inf))
        added = [CostTable(item.variables, TIE_BREAK_WEIGHT * item.values) for item in beside]
        branches = sorted((*self._open, *self._unsplit), key=lambda each: float(each.relaxed.bounds[layout]))
        found = {_key(each): each for each in self.choices if each.values[self.tables.end] == layout}
        for branch in branches[:CANDIDATE_BRANCHES] if self.cheap else ():
            if self.stopped():
                break
            multipliers = branch.relaxed.multipliers
            solved = MinMarginals([*self.tables.relaxed(multipliers), *added, *branch.barred, place], self.tables.end)
            self.entries += solved.entries
            if (least := solved.solved(layout)) is not None:
                choice = ShardingChoice(least.values, *self.tables.times(least.values, multipliers))
                found[_key(choice)] = choice
        return sorted(found.values(), key=lambda each: each.time + cost(added, each.values))

    def _halves(self, branch: Branch, enough: float) -> Iterator[Branch]:
        """The branch divided in two by one value of a variable; nothing, where no variable differs. ``enough`` [s]: a bound that
        needs no improvement."""
        name = _most_different(self.tables, branch.relaxed.choices)
        if name is None:
            self._unsplit.append(branch)
            return
        for barred in self._bars(name, branch.relaxed.choices):
            yield self._bounded(branch, barred, enough)

    def _bars(self, name: str, choices: Sequence[ShardingChoice]) -> tuple[CostTable, CostTable]:
        """Tables that bar the value of the best choice, and all other values."""
        best = min(choices, key=lambda each: each.time)
        item = next(item for item in self.tables.items if name in item.variables)
        size = item.relaxed(self.relaxed.multipliers[0]).shape[item.variables.index(name)]
        own = np.arange(size) == best.values[name]
        return CostTable((name,), np.where(own, math.inf, 0.0)), CostTable((name,), np.where(own, 0.0, math.inf))

    def _bounded(self, branch: Branch, barred: CostTable, enough: float) -> Branch:
        """The part of a branch without what is barred, with its bounds."""
        met = [each for each in branch.relaxed.choices if np.isfinite(barred.values[each.values[barred.variables[0]]])]
        relaxed = least_by_layout(self.tables, (*branch.barred, barred), met, enough, ROUNDS_PER_BRANCH, stop=self.stopped)
        self.choices += relaxed.choices[len(met) :]
        self.entries += relaxed.entries
        # a bound of all shardings also holds for half of them
        bounds = np.maximum(relaxed.bounds, branch.relaxed.bounds)
        self._number += 1
        return Branch(float(bounds.min()), self._number, (*branch.barred, barred), relaxed._replace(bounds=bounds))


def _key(choice: ShardingChoice) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(choice.values.items()))


def _most_different(tables: PartTables, choices: Sequence[ShardingChoice]) -> str | None:
    """The variable in which the best choice differs most from others, by the time that depends on it; None where none differs."""
    best = min(choices, key=lambda each: each.time).values if choices else {}
    found: dict[str, float] = {}
    for other in choices:
        for item in tables.items:
            here, there = _place(item.variables, best), _place(item.variables, other.values)
            if here != there:
                apart = item.difference(here, there)
                for name in item.variables:
                    if best[name] != other.values[name]:
                        found[name] = found.get(name, 0.0) + apart
    return max(found, key=lambda name: found[name]) if found else None


def _place(variables: Sequence[str], values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(values[name] for name in variables)
