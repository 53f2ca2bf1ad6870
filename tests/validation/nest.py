"""Timeloop's loop nest, run step by step: the oracle of `validation.timeloop`, with which it shares only the values of a case.

At each step every level's instance holds, of each tensor that it keeps, the tile that the loops outside it select. A tile that
is not the one from the step before is fetched from the next level out that keeps the tensor; siblings that fetch the same tile
at the same step share one read. A tile of the output goes back when it is replaced; siblings' parts are added on the way. Old
values are fetched and read only where there are any.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from validation.timeloop.files import Block, Problem

Key = tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    level: int
    spatial: bool
    dim: str
    count: int


class Nest:
    """``counts[level, tensor, what]`` for the first instance of each level; ``level`` counts from the outermost."""

    def __init__(self, blocks: tuple[Block, ...], problem: Problem) -> None:
        self.problem, self.blocks = problem, blocks
        self.loops = [
            Loop(level, spatial, dim, count)
            for level, block in enumerate(blocks)
            for spatial, part in ((False, block.temporal), (True, block.spatial))
            for dim, count in part
        ]
        self.counts: Counter[tuple[int, str, str]] = Counter()
        self.members = list(self._points(True))
        for tensor in problem.tensors:
            self._run(tensor)

    def _points(self, spatial: bool) -> Iterator[dict[int, int]]:
        """Index by position of the loop, in the order of execution."""
        places = [place for place, loop in enumerate(self.loops) if loop.spatial is spatial]
        for point in itertools.product(*(range(self.loops[place].count) for place in places)):
            yield dict(zip(places, point, strict=True))

    def _instance(self, level: int, member: dict[int, int]) -> Key:
        """The instance of the level in which the member is."""
        return tuple(index for place, index in member.items() if self.loops[place].level < level)

    def _tile(self, level: int, tensor: str, indices: dict[int, int]) -> Key:
        """Name of the tile: the indices of the tensor's loops outside the level."""
        dims = self.problem.tensors[tensor]
        return tuple(indices[p] for p, loop in enumerate(self.loops) if loop.level < level and loop.dim in dims)

    def size(self, level: int, tensor: str) -> int:
        """Words of the tile that the level keeps."""
        dims = self.problem.tensors[tensor]
        return math.prod(loop.count for loop in self.loops if loop.level >= level and loop.dim in dims)

    def _run(self, tensor: str) -> None:
        """From level to level of those that keep the tensor, down to the MACs, which replace their tile on every step."""
        macs = len(self.blocks)
        chain = [level for level, block in enumerate(self.blocks) if tensor in block.keeps] + [macs]
        for outer, inner in itertools.pairwise(chain):
            held: dict[Key, Key] = {}
            returned: set[tuple[Key, Key]] = set()
            for step in self._points(False):
                moved = {
                    self._instance(inner, member): (self._instance(outer, member), self._tile(inner, tensor, step | member))
                    for member in self.members
                }
                fresh = {child: place for child, place in moved.items() if inner == macs or held.get(child) != place[1]}
                if tensor == self.problem.output:
                    replaced = {(moved[child][0], held[child]) for child in fresh if child in held}
                    self._drain(replaced, returned, outer, inner, tensor)
                    # a result of the MACs is read by the level that adds it, just before it is written
                    fetched = {child: place for child, place in fresh.items() if place in returned}
                else:
                    fetched = fresh
                self._fetch(fetched, outer, inner, tensor)
                held |= {child: place[1] for child, place in fresh.items()}
            if tensor == self.problem.output:
                self._drain({(moved[child][0], tile) for child, tile in held.items()}, returned, outer, inner, tensor)

    def _fetch(self, fetched: dict[Key, tuple[Key, Key]], outer: int, inner: int, tensor: str) -> None:
        size = self.size(inner, tensor)
        mine = self._instance(outer, self.members[0])
        self.counts[outer, tensor, "reads"] += size * len({place for place in fetched.values() if place[0] == mine})
        if self._instance(inner, self.members[0]) in fetched:
            self.counts[inner, tensor, "fills"] += size

    def _drain(self, tiles: set[tuple[Key, Key]], returned: set[tuple[Key, Key]], outer: int, inner: int, tensor: str) -> None:
        mine = self._instance(outer, self.members[0])
        self.counts[outer, tensor, "updates"] += self.size(inner, tensor) * len({place for place in tiles if place[0] == mine})
        returned |= tiles
