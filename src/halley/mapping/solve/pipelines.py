"""Search of an implicit set of frames with stages on partitions of an axis, which may contain millions of frames.

Such a frame is a pipeline: a sequence of runs of stages, each on a number of members of an axis. Its time is that of the longest
run or of a shared resource, plus pipeline fill and drain, which depend on the sum of the runs; energies add up. Dynamic programs
over stages and members give the least costs of all runs before a stage, and after it, on a given number of members. With them a
run on a number of members is pruned in all its frames at once. Costs of a run are bounded first by the work of its engines, then
by the least costs of its stages alone, which are computed only for the remaining runs. A depth-first traversal of the rest
constructs only frames that pass these bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from halley.cost.programs.program import Array, Indices
from halley.formulas.timing import waiting_time
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.solve.axis_partitions import common_resources, least_alone
from halley.mapping.solve.group import GroupState
from halley.mapping.solve.outside_stages import holds_fit, rounds
from halley.mapping.space.compose import Cut
from halley.mapping.space.frame_sets import Frame, ImplicitFrames
from halley.optim.branch_and_bound import LastFirst, explored

LONGEST, SUM, ENERGY, BUSY = range(4)
"""Components of the least costs of runs: the time [s] of the longest, the sum of their times [s], their energy [J] without
leakage, and from there on the busy time [s] of each shared resource."""


class _FirstRuns(NamedTuple):
    """The first runs of a pipeline: their stages (``cut``), their numbers of members, and their costs."""

    cut: Cut
    counts: tuple[int, ...]
    costs: Array


class Pipelines:
    """Search state of an implicit set of frames.

    For each run, from one stage to before another, on each number of members: ``work``, the least time [s] at the engines,
    infinite if the run is pruned; ``alone``, the least time [s], energy [J] without leakage, and busy times [s] of its stages
    alone, as far as known (first axis: these components; last axis: combinations of the shared sizes, or a single one while they
    are equal). ``rounds``: number of rounds of each combination, once known; ``fitting``: whether its Holds fit."""

    def __init__(self, group: GroupState, implicit_set: ImplicitFrames) -> None:
        self.group, self.implicit_set = group, implicit_set
        self.stages, self.members = len(implicit_set.sequential.stages), implicit_set.members
        self.runs = [(first, end) for first, end in product(range(self.stages), range(self.stages + 1)) if first < end]
        self.floor = group.least(implicit_set.sequential, None)
        self.work: Array = np.full((self.stages, self.stages + 1, self.members + 1), np.inf)
        for first, end in self.runs:
            run = tuple(range(first, end))
            parts = (implicit_set.part(run, count) for count in range(1, self.members))
            self.work[first, end, 1:-1] = [group.engines(part) for part in parts]
        resources = common_resources(group, implicit_set.part((0,), 1))
        self.alone: Array = np.zeros((2 + len(resources), *self.work.shape, 1))
        self.rounds: Array = np.full(1, np.inf)
        self.fitting: Flags = np.full(1, True)
        self._narrow()

    def bounds(self) -> Values:
        """Lower bounds of the objectives of all frames, a row for each combination of the shared sizes."""
        return self._objectives(self.behind[:, 0, self.members])

    def frames(self) -> Iterator[Frame]:
        """The frames that may improve on the incumbents when they are generated, most promising runs first."""
        self._narrow()
        if np.isfinite(self.bounds()).all():
            self._expand_shared_sizes()
        shapes = [len(stage.skeletons) for stage in self.implicit_set.sequential.stages]
        for stage in sorted(range(self.stages), key=shapes.__getitem__):
            self._look_alone(stage)
            self._narrow()
        start = _FirstRuns((), (), np.zeros((len(self.alone) + 1, 1)))
        for runs in explored(LastFirst([start], self._no_better), self._longer):
            if sum(map(len, runs.cut)) == self.stages:
                yield self.implicit_set.frame(runs.cut, runs.counts)

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _objectives(self, costs: Array) -> Values:
        """Lower bounds of the objectives (last axis) from the costs of all runs together (first axis)."""
        floor, static = self.floor, self.group.chip.static_power
        possible = np.isfinite(costs[LONGEST]) & self.fitting
        every = np.where(possible, costs[SUM], 0.0)
        busiest = np.where(possible, np.maximum(costs[LONGEST], costs[BUSY:].max(axis=0, initial=0.0)), 0.0)
        time = np.maximum(busiest + waiting_time(every, busiest, self.rounds), floor["time"])
        energy = np.maximum(costs[ENERGY] + static * time, floor["energy"] + static * (time - floor["time"]))
        least = {"time": np.where(possible, time, np.inf), "energy": np.where(possible, energy, np.inf)}
        found: Values = np.stack([least[name] for name in self.group.objectives], axis=-1)
        return found

    def _pruned(self, costs: Array) -> Flags:
        """Which costs are pruned for all shared sizes (the last axis)."""
        bounds = self._objectives(costs)
        flags = self.group.found.pruned(bounds.reshape(-1, bounds.shape[-1]))
        return np.asarray(flags.reshape(bounds.shape[:-1]).all(axis=-1))

    def _left(self, first: int, end: int) -> Indices:
        """Numbers of members on which a run is not pruned."""
        return np.flatnonzero(np.isfinite(self.work[first, end]))

    def _costs(self, first: int, end: int, count: int | Indices) -> Array:
        """Least costs of a run on a number of members."""
        alone = self.alone[:, first, end, count]
        time = np.maximum(alone[:1], self.work[first, end, count, None])
        return np.concatenate([time, time, alone[1:]])

    def _expand_shared_sizes(self) -> None:
        """Expand the last axis to one row for each combination of the shared sizes."""
        self.rounds = rounds(self.group.costs, self.implicit_set.sequential)
        self.fitting = np.any([holds_fit(self.group.costs, frame) for frame in self.implicit_set.coarsest()], axis=0)
        self.alone = np.repeat(self.alone, len(self.rounds), axis=-1)

    def _look_alone(self, stage: int) -> None:
        """Tighten the bounds of the runs with a stage by the least costs of the stage alone on their members."""
        runs = [(first, end) for first, end in self.runs if first <= stage < end]
        for count in range(1, self.members):
            having = [run for run in runs if np.isfinite(self.work[*run, count])]
            if having:
                self.group.tally.tick()
                alone = least_alone(self.group, self.implicit_set.alone(stage, count), stage)
                for first, end in having:
                    self.alone[:, first, end, count] += alone.T

    def _narrow(self) -> None:
        """Prune runs on numbers of members for all runs before and after them."""
        self.group.tally.tick()
        before, behind = self._beside(behind=False), self._beside(behind=True)
        for first, end in self.runs:
            for count in self._left(first, end):
                most = self.members + 1 - count
                others = _together(before[:, first, :most], behind[:, end, :most][:, ::-1])
                if self._pruned(_together(others, self._costs(first, end, count)[:, None])).all():
                    self.work[first, end, count] = np.inf
        self.behind = self._beside(behind=True)

    def _beside(self, behind: bool) -> Array:
        """Least costs of the stages from each one on (``behind``), or before each one, on a total number of members (components x
        (stages + 1) x members x combinations)."""
        least = np.full((len(self.alone) + 1, self.stages + 1, self.members + 1, self.alone.shape[-1]), np.inf)
        least[:, self.stages if behind else 0, 0] = 0.0
        for first, end in reversed(self.runs) if behind else self.runs:
            here, there = (first, end) if behind else (end, first)
            for count in self._left(first, end):
                made = _together(least[:, there, : self.members + 1 - count], self._costs(first, end, count)[:, None])
                least[:, here, count:] = np.minimum(least[:, here, count:], made)
        return least

    # --- depth-first search ---------------------------------------------------------------------------------------------

    def _no_better(self, runs: _FirstRuns) -> bool:
        """Whether no frame that starts with these runs is better than the incumbents."""
        end, left = sum(map(len, runs.cut)), self.members - sum(runs.counts)
        return bool(self._pruned(_together(runs.costs, self.behind[:, end, left])))

    def _longer(self, runs: _FirstRuns) -> Iterator[_FirstRuns]:
        """The runs with one more, the most promising last."""
        first, left = sum(map(len, runs.cut)), self.members - sum(runs.counts)
        if first == self.stages:
            return
        self.group.tally.tick()
        for end, count in reversed(self._promising(first, left, runs.costs)):
            costs = _together(runs.costs, self._costs(first, end, count))
            yield _FirstRuns((*runs.cut, tuple(range(first, end))), (*runs.counts, count), costs)

    def _promising(self, first: int, left: int, costs: Array) -> list[tuple[int, int]]:
        """The next runs that are not pruned, as (stage after the run, members), most promising first."""
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
    """Least costs of two sets of runs combined."""
    result: Array = first + second
    result[LONGEST] = np.maximum(first[LONGEST], second[LONGEST])
    return result
