"""Which frames of a family may beat what is found, without a look at the others: there can be millions.

A pipeline is a row of runs of stages, each on so many members of an axis. The longest of its runs sets its time, or a resource
that they have in common, together with their sum, which the first and the last round take; energies add up. So the least that
the runs before some stage take, and those behind it, on so many members, are dynamic programmes over stages and members, and with
them a run on so many members is seen to be hopeless in all of its frames at once. What a run takes is bounded first by the work
at the engines, then by what its stages take alone, which is only found of those that are still left. A walk over the rest makes
just the frames that these bounds let through.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from halley.cost.program import Array, Indices
from halley.formulas.timing import waiting_time
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.solve.axis_partitions import common_resources, least_alone
from halley.mapping.solve.outside_stages import holds_fit, rounds
from halley.mapping.space.compose import Cut
from halley.mapping.space.frame_sets import Frame, ImplicitFrames

if TYPE_CHECKING:
    from halley.mapping.solve.group_search import GroupSearch


LONGEST, SUM, ENERGY, BUSY = range(4)
"""Parts of what some runs take at least: the time [s] of the longest, of all, their energy [J] but for what leaks, and, from
there on, the busy time [s] of each resource that they have in common."""


class Pipelines:
    """The frames of a family, as a search sees them.

    Of the run from one stage to before another on so many members: ``work``, the least time [s] at the engines, infinite where
    the run cannot matter; ``alone``, the time [s], energy [J] but for what leaks, and busy times [s] that its stages take alone
    at least, as far as that is known (a first axis of these parts; a last one of combinations of the shared sizes, or one for all
    as long as nothing tells them apart). ``rounds``: of each combination, as soon as it is known; ``fitting``: whether there is
    room for it."""

    def __init__(self, search: GroupSearch, family: ImplicitFrames) -> None:
        self.search, self.family = search, family
        self.stages, self.members = len(family.whole.stages), family.members
        self.runs = [(first, end) for first, end in product(range(self.stages), range(self.stages + 1)) if first < end]
        self.floor = search.least(family.whole, None)
        self.work: Array = np.full((self.stages, self.stages + 1, self.members + 1), np.inf)
        for first, end in self.runs:
            run = tuple(range(first, end))
            parts = (family.part(run, count) for count in range(1, self.members))
            self.work[first, end, 1:-1] = [search.least(part, None)["time"] for part in parts]
        resources = common_resources(search, family.part((0,), 1))
        self.alone: Array = np.zeros((2 + len(resources), *self.work.shape, 1))
        self.rounds: Array = np.full(1, np.inf)
        self.fitting: Flags = np.full(1, True)
        self._narrow()

    def bounds(self) -> Values:
        """Lower bounds of the objectives of all frames, a row for each combination of the shared sizes."""
        return self._objectives(self.behind[:, 0, self.members])

    def frames(self) -> Iterator[Frame]:
        """The frames that may beat what is found by the time they are asked for, most promising runs first."""
        self._narrow()
        if np.isfinite(self.bounds()).all():
            self._tell_apart()
        shapes = [len(stage.skeletons) for stage in self.family.whole.stages]
        for stage in sorted(range(self.stages), key=shapes.__getitem__):
            self._look_alone(stage)
            self._narrow()
        yield from self._walk((), (), np.zeros((len(self.alone) + 1, 1)))

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _objectives(self, costs: Array) -> Values:
        """Lower bounds of the objectives (last axis) where all runs take these costs (first axis)."""
        floor, static = self.floor, self.search.chip.static_power
        possible = np.isfinite(costs[LONGEST]) & self.fitting
        every = np.where(possible, costs[SUM], 0.0)
        busiest = np.where(possible, np.maximum(costs[LONGEST], costs[BUSY:].max(axis=0, initial=0.0)), 0.0)
        time = np.maximum(busiest + waiting_time(every, busiest, self.rounds), floor["time"])
        energy = np.maximum(costs[ENERGY] + static * time, floor["energy"] + static * (time - floor["time"]))
        least = {"time": np.where(possible, time, np.inf), "energy": np.where(possible, energy, np.inf)}
        found: Values = np.stack([least[name] for name in self.search.objectives], axis=-1)
        return found

    def _pruned(self, costs: Array) -> Flags:
        """Where nothing can beat what is found, whatever the shared sizes (the last axis)."""
        bounds = self._objectives(costs)
        flags = self.search.found.pruned(bounds.reshape(-1, bounds.shape[-1]))
        return np.asarray(flags.reshape(bounds.shape[:-1]).all(axis=-1))

    def _left(self, first: int, end: int) -> Indices:
        """On how many members a run can matter."""
        return np.flatnonzero(np.isfinite(self.work[first, end]))

    def _costs(self, first: int, end: int, count: int | Indices) -> Array:
        """What a run takes at least on so many members."""
        alone = self.alone[:, first, end, count]
        time = np.maximum(alone[:1], self.work[first, end, count, None])
        return np.concatenate([time, time, alone[1:]])

    def _tell_apart(self) -> None:
        """Have a row for each combination of the shared sizes."""
        self.rounds = rounds(self.search, self.family.whole)
        self.fitting = np.any([holds_fit(self.search, frame) for frame in self.family.coarsest()], axis=0)
        self.alone = np.repeat(self.alone, len(self.rounds), axis=-1)

    def _look_alone(self, stage: int) -> None:
        """Raise the bounds of the runs with a stage by what that takes alone on their members."""
        runs = [(first, end) for first, end in self.runs if first <= stage < end]
        for count in range(1, self.members):
            having = [run for run in runs if np.isfinite(self.work[*run, count])]
            if having:
                self.search.tally.tick()
                alone = least_alone(self.search, self.family.alone(stage, count), stage)
                for first, end in having:
                    self.alone[:, first, end, count] += alone.T

    def _narrow(self) -> None:
        """Leave out runs on numbers of members with which no frame can matter, whatever runs are before and behind them."""
        self.search.tally.tick()
        before, behind = self._beside(behind=False), self._beside(behind=True)
        for first, end in self.runs:
            for count in self._left(first, end):
                most = self.members + 1 - count
                others = _together(before[:, first, :most], behind[:, end, :most][:, ::-1])
                if self._pruned(_together(others, self._costs(first, end, count)[:, None])).all():
                    self.work[first, end, count] = np.inf
        self.behind = self._beside(behind=True)

    def _beside(self, behind: bool) -> Array:
        """The least that the stages from each one on (``behind``) or before each one take, on so many members altogether (parts x
        stages and one more x members x combinations)."""
        least = np.full((len(self.alone) + 1, self.stages + 1, self.members + 1, self.alone.shape[-1]), np.inf)
        least[:, self.stages if behind else 0, 0] = 0.0
        for first, end in reversed(self.runs) if behind else self.runs:
            here, there = (first, end) if behind else (end, first)
            for count in self._left(first, end):
                made = _together(least[:, there, : self.members + 1 - count], self._costs(first, end, count)[:, None])
                least[:, here, count:] = np.minimum(least[:, here, count:], made)
        return least

    # --- the walk -----------------------------------------------------------------------------------------------------

    def _walk(self, cut: Cut, counts: tuple[int, ...], costs: Array) -> Iterator[Frame]:
        """The frames that begin with some runs, which take these costs."""
        first, left = sum(map(len, cut)), self.members - sum(counts)
        if first == self.stages:
            yield self.family.frame(cut, counts)
            return
        self.search.tally.tick()
        for end, count in self._promising(first, left, costs):
            own = _together(costs, self._costs(first, end, count))
            if not self._pruned(_together(own, self.behind[:, end, left - count])):  # by what is found meanwhile
                yield from self._walk((*cut, tuple(range(first, end))), (*counts, count), own)

    def _promising(self, first: int, left: int, costs: Array) -> list[tuple[int, int]]:
        """The next runs, by the stage behind them and their members, that may matter; the most promising first."""
        found: list[tuple[tuple[float, ...], int, int]] = []
        for end in range(first + 1, self.stages + 1):
            counts = self._left(first, end)
            counts = counts[counts <= left]
            own = _together(costs[:, None], self._costs(first, end, counts))
            every = _together(own, self.behind[:, end, left - counts])
            least = self._objectives(every).min(axis=1)
            found += [(tuple(least[at]), end, int(counts[at])) for at in np.flatnonzero(~self._pruned(every))]
        return [(end, count) for _, end, count in sorted(found)]


def _together(first: Array, second: Array) -> Array:
    """What runs take at least with others."""
    result: Array = first + second
    result[LONGEST] = np.maximum(first[LONGEST], second[LONGEST])
    return result
