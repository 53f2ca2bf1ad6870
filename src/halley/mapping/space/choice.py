"""A complete mapping of a group."""

from __future__ import annotations

from dataclasses import dataclass

from halley.ir.mapping import Node
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import Skeleton, Tiles


@dataclass(frozen=True, slots=True)
class GroupMapping:
    """A complete mapping of a group: frame, one skeleton per stage, a size per slot (arrays for several at once)."""

    frame: Frame
    skeletons: tuple[Skeleton, ...]
    tiles: Tiles

    def tree(self) -> Node:
        return self.frame.tree(self.tiles, [skeleton.build(self.tiles) for skeleton in self.skeletons])
