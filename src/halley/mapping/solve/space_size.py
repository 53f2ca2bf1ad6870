"""Exact size of a declared map space."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halley.mapping.bounds.shapes import Trees
from halley.mapping.space.frame_sets import Frame, GroupSpace, ImplicitFrames
from halley.mapping.space.stages import GroupStage, Slot
from halley.mapping.space.tile_chains import ChainTree

Counts = np.ndarray[Any, np.dtype[np.object_]]


def count_mappings(space: GroupSpace, trees: Trees, tick: Callable[[], None] = lambda: None) -> int:
    """Mappings of a group: over frames, shared tile sizes, shapes of each stage, and its tile sizes.

    Dims are independent once the shared sizes are given, so each stage's count is a product over dims of numbers of chains.
    Counts are Python integers, exact at any size. ``tick`` is called often.
    """
    counter = _Counter(trees, tick)
    return sum(map(counter.frame, space.plain)) + sum(map(counter.implicit_set, space.implicit_sets))


def has_mappings(space: GroupSpace, trees: Trees) -> bool:
    """Whether a group has any mapping: whether `count_mappings` is above 0, found at the first frame with one."""
    counter = _Counter(trees)
    return any(map(counter.frame, space.plain)) or any(map(counter.implicit_set, space.implicit_sets))


@dataclass(frozen=True, slots=True)
class _Counter:
    """``known``: cached counts of stages by stage and shared tile sizes, as many frames have the same ones."""

    trees: Trees
    tick: Callable[[], None] = lambda: None
    known: dict[tuple[int, ...], Counts] = field(default_factory=dict)

    def frame(self, frame: Frame) -> int:
        """The mappings of one frame."""
        counts = math.prod((self._stage(frame.shared, stage) for stage in frame.stages), start=self._one(frame.shared))
        return int(np.sum(counts)) - (int(counts.flat[0]) if frame.known_first else 0)

    def implicit_set(self, implicit_set: ImplicitFrames) -> int:
        """The mappings of all frames of an implicit set, by a dynamic program over the first stages and their total members.

        The last run starts at some stage and has some of the members. A single run is excluded, as it has all members."""
        shared, stages, members = implicit_set.sequential.shared, len(implicit_set.sequential.stages), implicit_set.members
        one = self._one(shared)
        first = np.zeros((stages + 1, members + 1, *one.shape), dtype=object)
        first[0, 0] = one
        for start in range(stages):
            for count in range(1, members):
                run = one
                for end in range(start + 1, stages + 1):
                    run = run * self._stage(shared, implicit_set.stage(end - 1, count))
                    first[end, count:] += first[start, : members + 1 - count] * run
        return int(np.sum(first[stages, members]))

    def _one(self, shared: Sequence[Slot]) -> Counts:
        """One for each combination of the shared tile sizes."""
        return np.ones([tree.count for tree in self.trees.of(shared, ()).values()], dtype=object)

    def _stage(self, shared: Sequence[Slot], stage: GroupStage) -> Counts:
        """The mappings of a stage, for each combination of the shared tile sizes."""
        key = id(stage), *map(id, self.trees.of(shared, ()).values())
        if key not in self.known:
            self.tick()
            self.known[key] = self._counted(shared, stage)
        return self.known[key]

    def _counted(self, shared: Sequence[Slot], stage: GroupStage) -> Counts:
        dims = self.trees.of(shared, ())
        alike: dict[tuple[ChainTree, ...], int] = {}  # most shapes have the same chains of the shared dims
        for skeleton in stage.skeletons:
            own = self.trees.of(shared, skeleton.slots)
            cut = tuple(own[dim] for dim in dims)
            alike[cut] = alike.get(cut, 0) + math.prod(tree.count for dim, tree in own.items() if dim not in dims)
        result = np.zeros([tree.count for tree in dims.values()], dtype=object)
        for cut, others in alike.items():
            counts = np.array(others, dtype=object)
            for axis, tree in enumerate(cut):
                sizes = tree.size[tree.given].astype(object)
                counts = counts * sizes.reshape([-1 if at == axis else 1 for at in range(len(dims))])
            result = result + counts
        return result
