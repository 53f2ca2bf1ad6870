"""The least of a part on a spatial chip, branch by branch: where a mixture of shardings is below the best single one, prices
alone leave a gap.

The shardings of a part are split in two by one value of a variable, that in which those that were met differ most in what they
take, and each half is bounded by prices of its own (`halley.training.spatial.prices`). The half of the lowest bound is split
next.
The bound of a layout is the lowest of all halves; the shardings that are met on the way are candidates.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.optim.elimination import CostTable, cost
from halley.optim.least_sum import MinMarginals
from halley.training.spatial.prices import Choice, PartTables, Priced, by_section, least_by_layout

Floats = NDArray[np.float64]

BRANCHES = 40
"""Halves that are bounded at most."""

BRANCHED = 1 << 28
"""Entries of tables that are joined for a part at most when it is split: some seconds."""

CHEAP = 1 << 24
"""Entries of tables that are joined for one bound, up to which more bounds are looked for than those of all shardings: some
hundredths of a second."""

PATIENT, SLOW = 8, 0.1
"""After how many halves splitting ends if all `BRANCHES` would not close this share of the gap at the pace so far."""

LOOKED_AT, SPARING = 3, 0.02
"""In how many branches shardings are looked for that waste nothing, and at what price."""

ROUNDS = 4
"""Prices that are tried in one of them."""


class Branch(NamedTuple):
    """Shardings without those that are ``barred``; in order of their bounds."""

    lowest: float
    number: int
    barred: tuple[CostTable, ...]
    priced: Priced


@dataclass(slots=True, eq=False)
class Branches:
    """The shardings of a part. ``priced``: what is known of all of them, at first by prices of passes; ``choices``: those that
    were met; ``entries`` of tables that were joined."""

    tables: PartTables
    priced: Priced = field(init=False)
    choices: list[Choice] = field(init=False)
    entries: int = field(init=False)
    _open: list[Branch] = field(init=False)
    _whole: list[Branch] = field(init=False, default_factory=list)
    _number: int = field(init=False, default=0)
    _refined: bool = field(init=False, default=False)

    @property
    def cheap(self) -> bool:
        """Whether a bound takes little."""
        return self.priced.entries <= CHEAP * len(self.priced.choices)

    def __post_init__(self) -> None:
        self._start(least_by_layout(self.tables, by_pass=True))

    def _start(self, priced: Priced) -> None:
        self.priced, self.choices, self.entries = priced, list(priced.choices), priced.entries
        self._open = [Branch(float(priced.bounds.min()), 0, (), priced)]

    def refine(self) -> None:
        """Bounds by prices of sections, which take longer."""
        if not self._refined:
            self._refined = True
            self._start(by_section(self.tables, self.priced))

    @property
    def bounds(self) -> Floats:
        """[layouts] [s] no sharding takes less."""
        return np.asarray(np.min([each.priced.bounds for each in (*self._open, *self._whole)], axis=0))

    def raise_to(self, time: float, gap: float = 0.0) -> None:
        """Split until the bound is within ``gap`` [s] of ``time`` [s], or of what is met, or until it has been tried for long or
        hardly rises."""
        self.refine()
        start = float(self.priced.bounds.min())
        while self.cheap and self._open and self._number < BRANCHES and self.entries < BRANCHED:
            enough, lowest = min(time, *(each.time for each in self.choices)) - gap, self._open[0].lowest
            hoped = SLOW * (enough - start) * self._number / BRANCHES
            if lowest >= enough or (self._number >= PATIENT and lowest - start < hoped):
                return
            branch = heapq.heappop(self._open)
            name = _apart(self.tables, branch.priced.choices)
            if name is None:
                self._whole.append(branch)
                continue
            for barred in self._halves(name, branch.priced.choices):
                self._add(branch, barred, enough)

    def candidates(self, layout: int, beside: Sequence[CostTable]) -> list[Choice]:
        """Shardings with the part's end in this layout, those first that look best: all that were met, and a few more where that
        takes little.

        Where one resource decides, its price is all that there is, and shardings may waste the others. So some are looked for
        with a little added that tells them apart, ``beside`` [s], in the branches of the lowest bounds."""
        place = CostTable((self.tables.end,), np.where(np.arange(len(self.priced.bounds)) == layout, 0.0, math.inf))
        added = [CostTable(item.variables, SPARING * item.values) for item in beside]
        branches = sorted((*self._open, *self._whole), key=lambda each: float(each.priced.bounds[layout]))
        found = {_key(each): each for each in self.choices if each.values[self.tables.end] == layout}
        for branch in branches[:LOOKED_AT] if self.cheap else ():
            shares = branch.priced.shares
            solved = MinMarginals([*self.tables.priced(shares), *added, *branch.barred, place], self.tables.end)
            self.entries += solved.entries
            if (least := solved.solved(layout)) is not None:
                choice = Choice(least.values, *self.tables.times(least.values, shares))
                found[_key(choice)] = choice
        return sorted(found.values(), key=lambda each: each.time + cost(added, each.values))

    def _halves(self, name: str, choices: Sequence[Choice]) -> tuple[CostTable, CostTable]:
        """Tables that bar the value of the best choice, and all others."""
        best = min(choices, key=lambda each: each.time)
        item = next(item for item in self.tables.items if name in item.variables)
        size = item.priced(self.priced.shares[0]).shape[item.variables.index(name)]
        own = np.arange(size) == best.values[name]
        return CostTable((name,), np.where(own, math.inf, 0.0)), CostTable((name,), np.where(own, 0.0, math.inf))

    def _add(self, branch: Branch, barred: CostTable, enough: float) -> None:
        met = [each for each in branch.priced.choices if np.isfinite(barred.values[each.values[barred.variables[0]]])]
        priced = least_by_layout(self.tables, (*branch.barred, barred), met, enough, ROUNDS)
        self.choices += priced.choices[len(met) :]
        self.entries += priced.entries
        # what holds for all holds for half of them
        bounds = np.maximum(priced.bounds, branch.priced.bounds)
        self._number += 1
        made = Branch(float(bounds.min()), self._number, (*branch.barred, barred), priced._replace(bounds=bounds))
        heapq.heappush(self._open, made)


def _key(choice: Choice) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(choice.values.items()))


def _apart(tables: PartTables, choices: Sequence[Choice]) -> str | None:
    """The variable in which the best choice differs most from others, by the time that goes with it; None where none differs."""
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
