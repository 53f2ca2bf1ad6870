"""The least of a part on a spatial chip, branch by branch: where a mixture of shardings is below the best single one, prices
alone leave a gap.

The shardings of a part are split in two by one value of a variable, that in which those that were met differ most in what they
take, and each half is bounded by prices of its own (`halley.planning.spatial_prices`). The half of the lowest bound is split
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

from halley.planning.elimination import Table, cost
from halley.planning.least_sum import LeastBy
from halley.planning.spatial_prices import Choice, PartTables, Priced, least_by_layout

Floats = NDArray[np.float64]

BRANCHES = 40
"""Halves that are bounded at most."""

BRANCHED = 1 << 28
"""Entries of tables that are joined for them at most: some seconds."""

CLOSE = 5e-4
"""Relative gap that is no matter."""

LOOKED_AT, SPARING = 3, 0.02
"""In how many branches shardings are looked for that waste nothing, and at what price."""

ROUNDS = 4
"""Prices that are tried in one of them."""


class Branch(NamedTuple):
    """Shardings without those that are ``barred``; in order of their bounds."""

    lowest: float
    number: int
    barred: tuple[Table, ...]
    priced: Priced


@dataclass(slots=True, eq=False)
class Branches:
    """The shardings of a part. ``priced``: what is known of all of them; ``choices``: those that were met; ``entries`` of tables
    that were joined."""

    tables: PartTables
    priced: Priced
    choices: list[Choice] = field(init=False)
    entries: int = field(init=False)
    _open: list[Branch] = field(init=False)
    _whole: list[Branch] = field(init=False, default_factory=list)
    _number: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.choices, self.entries = list(self.priced.choices), self.priced.entries
        self._open = [Branch(float(self.priced.bounds.min()), 0, (), self.priced)]

    @property
    def bounds(self) -> Floats:
        """[layouts] [s] no sharding takes less."""
        return np.asarray(np.min([each.priced.bounds for each in (*self._open, *self._whole)], axis=0))

    def raise_to(self, time: float) -> None:
        """Split until the bound is close to ``time`` [s], or to what is met, or until it has been tried for long."""
        while self._open and self._number < BRANCHES and self.entries < BRANCHED:
            enough = min(time, *(each.time for each in self.choices)) * (1 - CLOSE)
            if self._open[0].lowest >= enough:
                return
            branch = heapq.heappop(self._open)
            name = _apart(self.tables, branch.priced.choices)
            if name is None:
                self._whole.append(branch)
                continue
            for barred in self._halves(name, branch.priced.choices):
                self._add(branch, barred, enough)

    def candidates(self, layout: int, beside: Sequence[Table]) -> list[Choice]:
        """Shardings with the part's end in this layout, those first that look best.

        Where one resource decides, its price is all that there is, and shardings may waste the others. So some are looked for
        with a little added that tells them apart, ``beside`` [s], in the branches of the lowest bounds."""
        place = Table((self.tables.end,), np.where(np.arange(len(self.priced.bounds)) == layout, 0.0, math.inf))
        added = [Table(item.variables, SPARING * item.values) for item in beside]
        branches = sorted((*self._open, *self._whole), key=lambda each: float(each.priced.bounds[layout]))
        found: dict[tuple[tuple[str, int], ...], Choice] = {}
        for branch in branches[:LOOKED_AT]:
            shares = branch.priced.shares
            solved = LeastBy([*self.tables.priced(shares), *added, *branch.barred, place], self.tables.end)
            self.entries += solved.entries
            if (least := solved.solved(layout)) is not None:
                choice = Choice(least.values, *self.tables.times(least.values, shares))
                found[tuple(sorted(choice.values.items()))] = choice
        return sorted(found.values(), key=lambda each: each.time + cost(added, each.values))

    def _halves(self, name: str, choices: Sequence[Choice]) -> tuple[Table, Table]:
        """Tables that bar the value of the best choice, and all others."""
        best = min(choices, key=lambda each: each.time)
        item = next(item for item in self.tables.items if name in item.variables)
        size = item.priced(self.priced.shares[0]).shape[item.variables.index(name)]
        own = np.arange(size) == best.values[name]
        return Table((name,), np.where(own, math.inf, 0.0)), Table((name,), np.where(own, 0.0, math.inf))

    def _add(self, branch: Branch, barred: Table, enough: float) -> None:
        met = [each for each in branch.priced.choices if np.isfinite(barred.values[each.values[barred.variables[0]]])]
        priced = least_by_layout(self.tables, (*branch.barred, barred), met, enough, ROUNDS)
        self.choices += priced.choices[len(met) :]
        self.entries += priced.entries
        # what holds for all holds for half of them
        bounds = np.maximum(priced.bounds, branch.priced.bounds)
        self._number += 1
        made = Branch(float(bounds.min()), self._number, (*branch.barred, barred), priced._replace(bounds=bounds))
        heapq.heappush(self._open, made)


def _apart(tables: PartTables, choices: Sequence[Choice]) -> str | None:
    """The variable in which the best choice differs most from others, by the time that goes with it; None where none differs."""
    best = min(choices, key=lambda each: each.time).values if choices else {}
    found: dict[str, float] = {}
    for other in choices:
        for item in tables.items:
            here, there = _place(item.variables, best), _place(item.variables, other.values)
            if here != there:
                apart = item.apart(here, there)
                for name in item.variables:
                    if best[name] != other.values[name]:
                        found[name] = found.get(name, 0.0) + apart
    return max(found, key=lambda name: found[name]) if found else None


def _place(variables: Sequence[str], values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(values[name] for name in variables)
