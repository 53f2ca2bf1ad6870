"""A complete mapping of a group."""

from __future__ import annotations

from dataclasses import dataclass

from halley.ir.mapping import Node
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import Skeleton, Slot, Tiles


@dataclass(frozen=True, slots=True)
class GroupMapping:
    """A complete mapping of a group: frame, one skeleton per stage, a size per slot (arrays for several at once)."""

    frame: Frame
    skeletons: tuple[Skeleton, ...]
    tiles: Tiles

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What is open: the frame's sizes, which several stages share, then those of each stage, outer ones first."""
        return (*self.frame.shared, *(slot for skeleton in self.skeletons for slot in skeleton.slots))

    def tree(self) -> Node:
        return self.frame.tree(self.tiles, [skeleton.build(self.tiles) for skeleton in self.skeletons])
