"""Timeloop's counts of a convolution, by a walk over the loops of its mapping with the rules of its own analysis of tiles.

The rules, as they stand in github.com/NVlabs/timeloop at 01319973:

- A tile is the box (``AxisAlignedHyperRectangle``) from the lowest to the highest point of each coordinate, gaps of strides
  included. The data that an instance of a level fetches is its new tile less the one that it held before
  (`src/loop-analysis/nest-analysis.cpp`, ``ComputeDeltas``).
- Two boxes that do not overlap, or differ along several coordinates, have no difference that is a box: the new one counts whole.
  So does one that moves along another coordinate, or the other way, than the move before, unless the move before had no overlap
  (`src/loop-analysis/point-set-aahr.cpp`, ``Subtract`` and ``operator-``).
- Siblings share a read if the data that they fetch at a step are equal as a whole (``ComputeAccurateMulticastedAccesses``);
  parts in common are read by each. The MACs fetch a word each at every step.
- Of a loop in time the first two iterations are walked; all further ones count as the second (``ComputeTemporalWorkingSet``).
- A sibling may get its data from a neighbour of the array that fetched the same at the step before, if that saves reads
  (``ComputeNetworkLinkTransfers``). The walk only says whether it would: `Windows.passed_on`.
- Results: every tile that leaves is an update of the level outside; old values are read but for the first of each
  (`src/loop-analysis/tiling.cpp`, ``ComputeReadUpdateReductionAccesses_Legacy``).

With ``whole``, tiles are never subtracted: what machines do that move whole tiles. A tile at other indices that happens to be the
box that is held (one column on, one tap back) is not moved in either; `Windows.coincided` says whether there was one. With
``every``, all iterations are walked at every sibling; else siblings fetch what the first one does, moved as their tiles are.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.validation.nest import Loop
from validation.timeloop.files import Block, Coordinate, Problem

Box = tuple[tuple[int, int], ...]
"""First and last point, by coordinate."""

Member = tuple[int, ...]
"""A sibling: its index in each spatial loop."""


@dataclass
class Held:
    """What an instance has: its tile, the indices at which it was fetched, and along which coordinate and which way (1, -1) it
    moved there with an overlap."""

    box: Box
    at: tuple[int, ...]
    moved: tuple[int, int] | None = None


def size(box: Box) -> int:
    return math.prod(last - first + 1 for first, last in box)


def part_left(new: Box, old: Box) -> tuple[Box | None, tuple[int, int] | None]:
    """What of a box is not in another, if that is a box, and the move; None: nothing is left. Else the whole box, and no move."""
    if new == old:
        return None, None
    apart = any(n[1] < o[0] or n[0] > o[1] for n, o in zip(new, old, strict=True))
    changed = [place for place, (n, o) in enumerate(zip(new, old, strict=True)) if n != o]
    if apart or len(changed) > 1:
        return new, None
    (place,) = changed
    way = 1 if new[place][0] > old[place][0] else -1
    kept = (old[place][1] + 1, new[place][1]) if way > 0 else (new[place][0], old[place][0] - 1)
    return (*new[:place], kept, *new[place + 1 :]), (place, way)


class Windows:
    """``counts[level, tensor, what]`` for the first instance of each level; ``level`` counts from the outermost."""

    def __init__(self, blocks: tuple[Block, ...], problem: Problem, whole: bool = False, every: bool = False) -> None:
        self.blocks, self.problem, self.whole, self.every = blocks, problem, whole, every
        self.loops = [
            Loop(level, spatial, dim, count)
            for level, block in enumerate(blocks)
            for spatial, part in ((False, block.temporal), (True, block.spatial))
            for dim, count in part
        ]
        left = dict(problem.extents)
        self.steps = []  # by loop: points of its dim that an iteration takes
        for loop in self.loops:
            left[loop.dim] //= loop.count
            self.steps.append(left[loop.dim])
        self.counts: Counter[tuple[int, str, str]] = Counter()
        self.passed_on = self.coincided = False
        for tensor in problem.tensors:
            self._run(tensor)

    def coordinates(self, tensor: str) -> tuple[Coordinate, ...]:
        return self.problem.windows.get(tensor) or tuple(((dim, 1),) for dim in self.problem.tensors[tensor])

    def _run(self, tensor: str) -> None:
        macs = len(self.blocks)
        chain = [level for level, block in enumerate(self.blocks) if tensor in block.keeps]
        for outer, inner in itertools.pairwise((*chain, macs)):
            moved, mine = self._moved(outer, inner, tensor)
            if tensor == self.problem.output:
                self.counts[outer, tensor, "updates"] += moved
                self.counts[outer, tensor, "reads"] += moved - self._ever(outer, tensor)
                if inner != macs:
                    self.counts[inner, tensor, "fills"] += mine - self._ever(inner, tensor)
            else:
                self.counts[outer, tensor, "reads"] += moved
                if inner != macs:
                    self.counts[inner, tensor, "fills"] += mine

    def _ever(self, level: int, tensor: str) -> int:
        """Different points that the first instance of a level ever has."""
        loops = (loop for loop in self.loops if loop.dim in self.problem.tensors[tensor])
        return math.prod(loop.count for loop in loops if not loop.spatial or loop.level >= level)

    def _moved(self, outer: int, inner: int, tensor: str) -> tuple[int, int]:
        """Words read at the first instance of the outer level, and fetched by the first one of the inner."""
        spatial = [p for p, loop in enumerate(self.loops) if loop.spatial and outer <= loop.level < inner]
        members = {
            member: self._low(dict(zip(spatial, member, strict=True)), tensor)
            for member in itertools.product(*(range(self.loops[place].count) for place in spatial))
        }
        different, first = len(set(members.values())), next(iter(members))
        extents = self._extents(inner, tensor)
        held: dict[Member, Held] = {}
        last: dict[Member, Box | None] = {}
        read = fetched = 0
        for weight, step in self._visits(inner):
            at = tuple(index for place, index in step.items() if self.loops[place].dim in self.problem.tensors[tensor])
            now: dict[Member, Box | None] = {}
            for member in members if self.every else (first,):
                low = _sum(self._low(step, tensor), members[member])
                box = tuple((at, at + extent - 1) for at, extent in zip(low, extents, strict=True))
                now[member] = box if inner == len(self.blocks) else self._new(held, member, box, at)
            mine = now[first]
            if self.every:
                read += weight * sum(size(box) for box in set(now.values()) if box is not None)
            elif mine is not None:
                read += weight * different * size(mine)
                if tensor in self.problem.windows and inner != len(self.blocks):
                    now = {member: _moved_by(mine, offset) for member, offset in members.items()}
            fetched += weight * (size(mine) if mine else 0)
            self.passed_on |= inner != len(self.blocks) and self._saves(now, last)
            last = now
        return read, fetched

    def _new(self, held: dict[Member, Held], member: Member, box: Box, at: tuple[int, ...]) -> Box | None:
        """What the member fetches of its new tile."""
        before = held.get(member)
        if before is None:
            held[member] = Held(box, at)
            return box
        self.coincided |= box == before.box and at != before.at
        left, move = part_left(box, before.box)
        if left is not None and (self.whole or (before.moved is not None and before.moved != move)):
            left, move = box, None
        held[member] = Held(box, at, move)
        return left

    def _saves(self, now: Mapping[Member, Box | None], last: Mapping[Member, Box | None]) -> bool:
        """Whether a neighbour had at the step before what a sibling fetches, which no other sibling fetches."""
        found = Counter(box for box in now.values() if box is not None)
        for member, box in now.items():
            for place, way in itertools.product(range(len(member)), (1, -1)):
                neighbour = (*member[:place], member[place] + way, *member[place + 1 :])
                if box is not None and found[box] == 1 and last.get(neighbour) == box:
                    return True
        return False

    def _visits(self, inner: int) -> Iterator[tuple[int, dict[int, int]]]:
        """(how often a step counts, index by place of the loop) over the temporal loops outside the level."""
        places = [place for place, loop in enumerate(self.loops) if not loop.spatial and loop.level < inner]
        for step in itertools.product(*(self._iterations(self.loops[place].count) for place in places)):
            yield math.prod(weight for _, weight in step), {p: index for p, (index, _) in zip(places, step, strict=True)}

    def _iterations(self, count: int) -> list[tuple[int, int]]:
        """(index, how often it counts)."""
        if self.every or count == 1:
            return [(index, 1) for index in range(count)]
        return [(0, 1), (1, count - 1)]

    def _low(self, indices: Mapping[int, int], tensor: str) -> tuple[int, ...]:
        """Where the loops at these indices put the lowest point, by coordinate."""
        low = dict.fromkeys(self.problem.extents, 0)
        for place, index in indices.items():
            low[self.loops[place].dim] += index * self.steps[place]
        return tuple(sum(coefficient * low[dim] for dim, coefficient in coordinate) for coordinate in self.coordinates(tensor))

    def _extents(self, level: int, tensor: str) -> tuple[int, ...]:
        """Points of a tile of the level along each coordinate."""
        inside = dict.fromkeys(self.problem.extents, 1)
        for loop in self.loops:
            if loop.level >= level:
                inside[loop.dim] *= loop.count
        return tuple(1 + sum(factor * (inside[dim] - 1) for dim, factor in terms) for terms in self.coordinates(tensor))


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _moved_by(box: Box, offset: tuple[int, ...]) -> Box:
    return tuple((first + by, last + by) for (first, last), by in zip(box, offset, strict=True))
