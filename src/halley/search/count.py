"""Exact size of a declared map space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from halley.search.frames import Frame
from halley.search.shapes import Trees
from halley.search.stages import Stage

Counts = np.ndarray[Any, np.dtype[np.object_]]


def count_frames(frames: Sequence[Frame], trees: Trees) -> int:
    """Mappings of a group: over frames, shared tile sizes, shapes of each stage, and its tile sizes.

    Dims are independent of each other once the shared sizes are given, so each stage's count is a product over dims of numbers of
    chains; Python integers, exact at any size.
    """
    known: dict[tuple[int, ...], Counts] = {}
    return sum(_count_frame(frame, trees, known) for frame in frames)


def _count_frame(frame: Frame, trees: Trees, known: dict[tuple[int, ...], Counts]) -> int:
    """``known``: counts of stages, by stage and shared tile sizes: many frames have the same ones."""
    grid = trees.of(frame.shared, ())
    total = np.ones([tree.count for tree in grid.values()], dtype=object)
    for stage in frame.stages:
        key = id(stage), *map(id, grid.values())
        if key not in known:
            known[key] = _count_stage(frame, stage, trees)
        total = total * known[key]
    return int(np.sum(total))


def _count_stage(frame: Frame, stage: Stage, trees: Trees) -> Counts:
    """For each combination of the shared tile sizes."""
    shared = list(trees.of(frame.shared, ()))
    shape = [tree.count for tree in trees.of(frame.shared, ()).values()]
    per_stage = np.zeros(shape, dtype=object)
    for skeleton in stage.skeletons:
        own = trees.of(frame.shared, skeleton.slots)
        counts = np.array(math.prod(tree.count for dim, tree in own.items() if dim not in shared), dtype=object)
        for axis, dim in enumerate(shared):
            sizes = own[dim].size[own[dim].given].astype(object)
            counts = counts * sizes.reshape([-1 if at == axis else 1 for at in range(len(shape))])
        per_stage = per_stage + counts
    return per_stage
