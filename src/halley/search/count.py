"""Exact size of a declared map space."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from halley.search.frames import Frame
from halley.search.shapes import Trees


def count_frames(frames: Sequence[Frame], trees: Trees) -> int:
    """Mappings of a group: over frames, shared tile sizes, shapes of each stage, and its tile sizes.

    Dims are independent of each other once the shared sizes are given, so each stage's count is a product over dims of numbers of
    chains; Python integers, exact at any size.
    """
    return sum(_count_frame(frame, trees) for frame in frames)


def _count_frame(frame: Frame, trees: Trees) -> int:
    shared = list(trees.of(frame.shared, ()))
    shape = [tree.count for tree in trees.of(frame.shared, ()).values()]
    total = np.ones(shape, dtype=object)
    for stage in frame.stages:
        per_stage = np.zeros(shape, dtype=object)
        for skeleton in stage.skeletons:
            own = trees.of(frame.shared, skeleton.slots)
            counts = np.array(math.prod(tree.count for dim, tree in own.items() if dim not in shared), dtype=object)
            for axis, dim in enumerate(shared):
                sizes = own[dim].size[own[dim].given].astype(object)
                counts = counts * sizes.reshape([-1 if at == axis else 1 for at in range(len(shape))])
            per_stage = per_stage + counts
        total = total * per_stage
    return int(np.sum(total))
