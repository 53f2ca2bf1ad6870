"""A fused group of kernels: its search and what is known of it; and the rows of groups that make up a partition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

import numpy as np

from halley.ir.workload import Workload
from halley.search.baselines import Shapes
from halley.search.frontier import Values, minimal
from halley.search.partitions import Partition
from halley.search.solve import Choice, GroupSearch, Interrupted


@dataclass(slots=True)
class Group:
    """Kernels start..stop of one variant, fused, in ``shapes``: the search, and what is known of them.

    ``lower``: rows of objectives such that every mapping is no better than one of them (but for the gap that is allowed).
    ``points`` are reached by ``choices``; ``exact``: there is nothing better than these.
    """

    search: GroupSearch
    size: int
    lower: Values
    points: Values
    choices: list[Choice] = field(default_factory=list)
    exact: bool = False
    done: bool = False

    def run(self, rivals: Values) -> None:
        """Search all of it for what beats the rivals. On `Interrupted` the best so far and a bound are kept."""
        try:
            self.search.run(rivals)
            self.done, self.lower = True, self.search.found.points
            self.exact = None not in self.search.found.payloads
        except (Interrupted, KeyboardInterrupt):
            if self.search.open_bounds:
                left = np.array([*self.search.open_bounds, *self.search.found.points])
                # of two true bounds the higher one; fronts have no order, and the later one comes from more work
                self.lower = left if left.shape[1] > 1 or left.min() > self.lower.min() else self.lower
            raise
        finally:
            self.collect()

    def dive(self) -> None:
        """A first mapping, quickly."""
        try:
            self.search.dive()
        finally:
            self.collect()

    def collect(self) -> None:
        own = [i for i, choice in enumerate(self.search.found.payloads) if choice is not None]
        self.points, self.choices = self.search.found.points[own], [self.search.found.payloads[i] for i in own]


@dataclass(frozen=True, slots=True)
class Row:
    """A partition of one variant's kernels with its groups."""

    workload: Workload
    partition: Partition
    groups: tuple[Group, ...]

    @property
    def exact(self) -> bool:
        return all(group.exact for group in self.groups)

    @property
    def size(self) -> int:
        return math.prod(group.size for group in self.groups)

    def lower(self) -> Values:
        """No mapping of this partition is better than one of these."""
        return reduce(sums_of, (group.lower for group in self.groups))

    def reached(self) -> tuple[Values, list[tuple[Choice, ...]]]:
        """Sums over the groups, one row per combination of their choices."""
        sums = self.groups[0].points
        for group in self.groups[1:]:
            sums = (sums[:, None, :] + group.points[None, :, :]).reshape(-1, sums.shape[1])
        return sums, list(product(*(group.choices for group in self.groups)))


def sums_of(first: Values, second: Values) -> Values:
    """The minimal sums of a row of each."""
    sums: Values = (first[:, None, :] + second[None, :, :]).reshape(-1, first.shape[1])
    return sums[minimal(sums)] if len(sums) else sums


def again(search: GroupSearch, shapes: Shapes, objectives: tuple[str, ...]) -> GroupSearch:
    """A new search of some of the shapes."""
    parts = [(number, part) for number, frame in enumerate(search.frames) for part in shapes.of([frame])]
    return search.narrowed(parts, objectives)
