"""Plans of one variant: its partitions into fused groups, evaluated over all partitions by dynamic programming."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Sequence
from halley.ir.workload import Workload
from halley.mapping.bounds.incumbents import Values, minimal
from halley.mapping.groups import FusedGroup
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import Kernels, Partitions, before, group_ops, partitions
from halley.rewrite.canonical import canonical

Picks = tuple[tuple[Kernels, int], ...]
"""Groups of a partition, each with the index of one of its points."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Partitions of a variant's kernels, and the function from kernels to their fused group; ``division``: of the chip's axes,
    the same throughout a plan (`halley.mapping.space.hierarchy.divisions`)."""

    workload: Workload
    partitions: Partitions
    group: Callable[[Kernels], FusedGroup]
    division: int = 0
    _cuts: dict[Kernels, Partitions] = field(default_factory=dict)

    def size(self, tick: Callable[[], None]) -> int:
        """Number of mappings of all partitions. ``tick`` may end the count with `Interrupted`."""
        return self.partitions.total(lambda value, kernels: value * self.group(kernels).size(tick))

    def lower(self, width: int) -> tuple[Values, list[Picks]]:
        """Non-dominated lower bounds (rows of ``width`` objectives) of all plans, and the groups of each."""
        return best_sums(self.partitions, lambda kernels: self.group(kernels).lower, width)

    def reached(self, width: int) -> tuple[Values, list[Picks]]:
        """Non-dominated objectives of the plans found so far, and these plans."""
        return best_sums(self.partitions, lambda kernels: self.group(kernels).points, width)

    def apart(self, kernels: Kernels, width: int) -> Values:
        """Non-dominated objectives of what kernels of one group reach by now in smaller groups."""
        if kernels not in self._cuts:
            smaller = [other for other in self.partitions.groups if not other & ~kernels and other != kernels]
            self._cuts[kernels] = partitions(before(self.workload), smaller, inside=kernels)
        return best_sums(self._cuts[kernels], lambda part: self.group(part).points, width)[0]

    def choices(self, picks: Picks) -> list[tuple[Kernels, GroupMapping]]:
        """The mapping of each group of a plan that was found."""
        return [(kernels, self.group(kernels).choices[row]) for kernels, row in picks]

    def least_beside(self) -> dict[Kernels, Values]:
        """For each group, the minimum of each objective over the rest of a partition with it; infinite if another group has no
        mapping."""
        groups = self.partitions.groups
        lower = [self.group(kernels).lower.min(axis=0, initial=np.inf).tolist() for kernels in groups]
        columns = [self._beside(dict(zip(groups, column, strict=True))) for column in zip(*lower, strict=True)]
        return {kernels: np.array([column[kernels] for column in columns]) for kernels in groups}

    def _beside(self, least: Mapping[Kernels, float]) -> dict[Kernels, float]:
        """The same for one objective, from the ``least`` value of each group. It runs after every search of a group, and plain
        numbers take a tenth of the time of arrays."""
        ahead, behind = (
            self.partitions.fold(0.0, lambda value, kernels: value + least[kernels], min, back=back) for back in (False, True)
        )
        found = dict.fromkeys(least, math.inf)
        for source, kernels, target in self.partitions.steps:
            if (rest := ahead[source] + behind[target]) < found[kernels]:
                found[kernels] = rest
        return found


def plan_tree(workload: Workload, chip: Chip, choices: Mapping[Kernels, GroupMapping]) -> Node:
    """The tree of groups that run one after the other: the outermost memory holds what leaves any of them."""
    owner = {op.name: kernels for kernels in choices for op in group_ops(workload, kernels)}
    handed = []
    for name in workload.tensors:
        maker = workload.producer(name)
        readers = {owner[op.name] for op in workload.consumers(name)}
        if maker is None or name in workload.outputs or readers - {owner[maker.name]}:
            handed.append(name)
    trees = [choice.tree() for choice in choices.values()]
    body = trees[0] if len(trees) == 1 else Sequence(tuple(trees))
    return canonical(Hold(hierarchy(chip).outer, tuple((name,) for name in handed), body, 1), workload.dims)


def best_sums(partitions: Partitions, rows: Callable[[Kernels], Values], width: int) -> tuple[Values, list[Picks]]:
    """The non-dominated sums of one row per group, over all partitions, and the rows of each."""
    empty = np.empty((0, width))
    if not partitions.steps:
        return empty, []
    if width == 1:
        return _least_sum(partitions, {kernels: rows(kernels)[:, 0].tolist() for kernels in partitions.groups})
    arriving = partitions.arriving
    points: list[Values] = [np.zeros((1, width))]
    origins: list[list[tuple[int, int, Kernels, int]]] = [[]]  # state before, its row, the group, the group's row
    for state in range(1, partitions.states):
        sums, places = [empty], []
        for source, kernels in arriving[state]:
            own = rows(kernels)
            sums.append((points[source][:, None, :] + own[None, :, :]).reshape(-1, width))
            places += [(source, kernels, len(own))] * (len(points[source]) > 0 and len(own) > 0)
        joined = np.vstack(sums)
        kept = minimal(joined) if len(joined) else np.empty(0, dtype=np.int64)
        points.append(joined[kept])
        starts = np.cumsum([0, *(len(points[source]) * count for source, _, count in places)])
        origins.append([])
        for row, at in zip(kept.tolist(), np.searchsorted(starts, kept, side="right") - 1, strict=True):
            source, kernels, count = places[at]
            before, own_row = divmod(row - int(starts[at]), count)
            origins[-1].append((source, before, kernels, own_row))

    def picks(row: int) -> Picks:
        found, state = [], partitions.states - 1
        while state:
            state, row, kernels, own_row = origins[state][row]
            found.append((kernels, own_row))
        return tuple(found)

    return points[-1], [picks(row) for row in range(len(points[-1]))]


def _least_sum(partitions: Partitions, rows: Mapping[Kernels, list[float]]) -> tuple[Values, list[Picks]]:
    """The same for one objective, for which only the least row of each group matters."""
    least = {kernels: min(own, default=math.inf) for kernels, own in rows.items()}
    reached = partitions.fold(0.0, lambda value, kernels: value + least[kernels], min)
    if math.isinf(reached[-1]):
        return np.empty((0, 1)), []
    picks, state = [], partitions.states - 1
    while state:
        back, sum_here = partitions.arriving[state], reached[state]
        state, kernels = next(step for step in back if reached[step[0]] + least[step[1]] == sum_here)
        picks.append((kernels, rows[kernels].index(least[kernels])))
    return np.array([[reached[-1]]]), [tuple(picks)]
