"""Exact size of a declared map space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halley.search.frames import Frame
from halley.search.stages import Skeleton, Slot


def count_frames(frames: Sequence[Frame]) -> int:
    """Mappings of a group: over frames, shared tile sizes, shapes of each stage, and its tile sizes; sizes with the same
    effect count once.

    Dims are independent of each other, so each stage's count is a product over dims of sums over small grids, kept as
    Python integers: exact at any size.
    """
    return sum(_count_frame(frame) for frame in frames)


def _count_frame(frame: Frame) -> int:
    shape = tuple(len(slot.sizes) for slot in frame.shared)
    total = _as_objects(_valid(frame.shared, frame.shared))
    for stage in frame.stages:
        per_stage = np.zeros(shape, dtype=object)
        for skeleton in stage.skeletons:
            per_stage = per_stage + _count_skeleton(frame.shared, skeleton)
        total = total * per_stage
    return int(np.sum(total))


def _count_skeleton(shared: Sequence[Slot], skeleton: Skeleton) -> object:
    """Combinations of the skeleton's own slots, for each point of the shared grid."""
    result: object = 1
    for dim in dict.fromkeys(slot.dim for slot in skeleton.slots):
        own = [slot for slot in skeleton.slots if slot.dim == dim]
        valid = _valid([*shared, *skeleton.slots], own, axes_of=[*shared, *own])
        counts = valid.sum(axis=tuple(range(len(shared), valid.ndim)))
        result = result * _as_objects(counts)
    return result


def _valid(known: Sequence[Slot], checked: Sequence[Slot], axes_of: Sequence[Slot] | None = None) -> np.ndarray:
    """Which size combinations count: smaller than the range they cut, or the last size, which stands for the whole range."""
    axes = list(axes_of if axes_of is not None else checked)
    tiles: dict[str, object] = {slot.name: 1 << 60 for slot in known}
    for position, slot in enumerate(axes):
        shape = [1] * len(axes)
        shape[position] = len(slot.sizes)
        tiles[slot.name] = np.array(slot.sizes, dtype=np.float64).reshape(shape)
    valid = np.ones(tuple(len(slot.sizes) for slot in axes), dtype=bool)
    for slot in checked:
        size = tiles[slot.name]
        valid = valid & ((size < slot.limit(tiles)) | (size == slot.sizes[-1]))
    return valid


def _as_objects(counts: np.ndarray) -> np.ndarray:
    """Python integers instead of machine words."""
    return np.array([int(value) for value in np.ravel(counts)], dtype=object).reshape(np.shape(counts))
