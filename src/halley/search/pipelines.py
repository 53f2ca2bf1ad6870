"""Which frames of a family may beat what is found, without a look at the others: there can be millions.

A pipeline is a row of runs of stages, each on so many members of an axis. The longest of its runs sets its time, their energies
add up. So the least that the runs before some stage take, and those behind it, on so many members, are dynamic programmes over
stages and members, and with them a run on so many members is seen to be hopeless in all of its frames at once. What a run takes
is bounded first by the work at the engines, then by what its stages take alone, which is only found of those that are still left.
A walk over the rest makes just the frames that these bounds let through.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from halley.cost.program import Array, Indices
from halley.search.compose import Cut
from halley.search.frontier import Flags, Values
from halley.search.shares import least_alone
from halley.search.space import Family, Frame

if TYPE_CHECKING:
    from halley.search.solve import GroupSearch


class Pipelines:
    """The frames of a family, as a search sees them.

    Of the run from one stage to before another on so many members: ``work``, the least time [s] at the engines, infinite where
    the run cannot matter; ``time`` [s] and ``energy`` [J] that its stages take alone at least, but for what leaks, as far as that
    is known (one more axis: combinations of the shared sizes, or one for all as long as nothing tells them apart)."""

    def __init__(self, search: GroupSearch, family: Family) -> None:
        self.search, self.family = search, family
        self.stages, self.members = len(family.whole.stages), family.members
        self.runs = [(first, end) for first, end in product(range(self.stages), range(self.stages + 1)) if first < end]
        self.floor = search.least(family.whole)
        self.work: Array = np.full((self.stages, self.stages + 1, self.members + 1), np.inf)
        for first, end in self.runs:
            run = tuple(range(first, end))
            self.work[first, end, 1:-1] = [search.least(family.part(run, count))["time"] for count in range(1, self.members)]
        self.time: Array = np.zeros((*self.work.shape, 1))
        self.energy: Array = np.zeros((*self.work.shape, 1))
        self._narrow()

    def bounds(self) -> Values:
        """Lower bounds of the objectives of all frames, a row for each combination of the shared sizes."""
        time, energy = self.behind
        return self._objectives(time[0, self.members], energy[0, self.members])

    def frames(self) -> Iterator[Frame]:
        """The frames that may beat what is found by the time they are asked for, most promising runs first."""
        self._narrow()
        shapes = [len(stage.skeletons) for stage in self.family.whole.stages]
        for stage in sorted(range(self.stages), key=shapes.__getitem__):
            self._look_alone(stage)
            self._narrow()
        yield from self._walk((), (), np.zeros(1), np.zeros(1))

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _objectives(self, time: Array, energy: Array) -> Values:
        """Lower bounds of the objectives (last axis) where the longest run takes that long, and all take this energy."""
        floor, static = self.floor, self.search.chip.static_power
        time = np.maximum(time, floor["time"])
        leaks = static * time if static else np.zeros(1)
        more = leaks - static * floor["time"]
        costs = {"time": time, "energy": np.maximum(energy + leaks, floor["energy"] + more)}
        found: Values = np.stack(np.broadcast_arrays(*(costs[name] for name in self.search.objectives)), axis=-1)
        return found

    def _hopeless(self, time: Array, energy: Array) -> Flags:
        """Where nothing can beat what is found, whatever the shared sizes (the last axis)."""
        bounds = self._objectives(time, energy)
        flags = self.search.found.hopeless(bounds.reshape(-1, bounds.shape[-1]))
        return np.asarray(flags.reshape(bounds.shape[:-1]).all(axis=-1))

    def _left(self, first: int, end: int) -> Indices:
        """On how many members a run can matter."""
        return np.flatnonzero(np.isfinite(self.work[first, end]))

    def _costs(self, first: int, end: int, count: int | Indices) -> tuple[Array, Array]:
        """Least time and energy of a run on so many members."""
        time = np.maximum(self.time[first, end, count], self.work[first, end, count, None])
        return time, np.where(np.isfinite(time), self.energy[first, end, count], np.inf)

    def _look_alone(self, stage: int) -> None:
        """Raise the bounds of the runs with a stage by what that takes alone on their members."""
        rows = self.search.combinations(self.family.whole)
        shape = (*self.work.shape, rows)
        self.time, self.energy = np.broadcast_to(self.time, shape).copy(), np.broadcast_to(self.energy, shape).copy()
        runs = [(first, end) for first, end in self.runs if first <= stage < end]
        for count in range(1, self.members):
            having = [run for run in runs if np.isfinite(self.work[*run, count])]
            if having:
                self.search.tally.tick()
                alone = least_alone(self.search, self.family.alone(stage, count), stage)
                for run in having:
                    self.time[*run, count] += alone[:, 0]
                    self.energy[*run, count] += alone[:, 1]

    def _narrow(self) -> None:
        """Leave out runs on numbers of members with which no frame can matter, whatever runs are before and behind them."""
        self.search.tally.tick()
        before, behind = self._beside(behind=False), self._beside(behind=True)
        for first, end in self.runs:
            for count in self._left(first, end):
                time, energy = self._costs(first, end, count)
                most = self.members + 1 - count
                ahead = [table[first, :most] for table in before]
                left = [table[end, :most][::-1] for table in behind]
                if self._hopeless(np.maximum(np.maximum(ahead[0], left[0]), time), ahead[1] + left[1] + energy).all():
                    self.work[first, end, count] = np.inf
        self.behind = self._beside(behind=True)

    def _beside(self, behind: bool) -> tuple[Array, Array]:
        """The least time of the longest run, and the least energy of all runs, of the stages from each one on (``behind``) or
        before each one, on so many members altogether (stages and one more x members x combinations)."""
        time = np.full((self.stages + 1, self.members + 1, self.time.shape[-1]), np.inf)
        time[self.stages if behind else 0, 0] = 0.0
        energy = time.copy()
        for first, end in reversed(self.runs) if behind else self.runs:
            here, there = (first, end) if behind else (end, first)
            for count in self._left(first, end):
                own, most = self._costs(first, end, count), self.members + 1 - count
                time[here, count:] = np.minimum(time[here, count:], np.maximum(time[there, :most], own[0]))
                energy[here, count:] = np.minimum(energy[here, count:], energy[there, :most] + own[1])
        return time, energy

    # --- the walk -----------------------------------------------------------------------------------------------------

    def _walk(self, cut: Cut, counts: tuple[int, ...], time: Array, energy: Array) -> Iterator[Frame]:
        """The frames that begin with some runs, which take that long and this energy."""
        first, left = sum(map(len, cut)), self.members - sum(counts)
        if first == self.stages:
            yield self.family.frame(cut, counts)
            return
        self.search.tally.tick()
        for end, count in self._promising(first, left, time, energy):
            own = self._costs(first, end, count)
            longest, together = np.maximum(time, own[0]), energy + own[1]
            rest = [table[end, left - count] for table in self.behind]
            if not self._hopeless(np.maximum(longest, rest[0]), together + rest[1]):  # by what is found meanwhile
                yield from self._walk((*cut, tuple(range(first, end))), (*counts, count), longest, together)

    def _promising(self, first: int, left: int, time: Array, energy: Array) -> list[tuple[int, int]]:
        """The next runs, by the stage behind them and their members, that may matter; the most promising first."""
        found: list[tuple[tuple[float, ...], int, int]] = []
        for end in range(first + 1, self.stages + 1):
            counts = self._left(first, end)
            counts = counts[counts <= left]
            own = self._costs(first, end, counts)
            rest = [table[end, left - counts] for table in self.behind]
            times, energies = np.maximum(np.maximum(time, own[0]), rest[0]), energy + own[1] + rest[1]
            least = self._objectives(times, energies).min(axis=1)
            found += [
                (tuple(least[at]), end, int(counts[at])) for at in np.flatnonzero(~self._hopeless(times, energies))
            ]
        return [(end, count) for _, end, count in sorted(found)]
