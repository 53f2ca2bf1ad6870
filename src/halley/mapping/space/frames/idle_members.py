"""Splits over fewer members of an axis than it has: frames of one stage in which the tile sizes of the split are open.

A split with equal parts gives every member of an axis a part, if there are enough. A larger tile leaves members idle. It can be a
whole number of widths of the array, or need less traffic; small problems are often faster, or need less energy, on fewer members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from halley.formulas.numbers import Number
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.stages import Slot, Split, Tiles, member_ranges, split_tile
from halley.mapping.space.tile_sizes import SplitSizes


def with_idle_members(group: FusedOps, dims: Sequence[str], split: Split, frame: Frame) -> Iterator[Frame]:
    """A frame with open tile sizes of its split, on one axis or on two. Each combination of sizes with at least one that differs
    from equal parts is in one of the frames. ``dims``: those that members may split. The ranges of the frame's stages depend on
    the sizes of the split (`halley.mapping.space.stages.split_tile`).

    On which dim one member has the whole range makes no difference, so only the first one that can be split has that choice."""
    axes = [place for place, dim in enumerate(split) if dim] if frame.stages[0].skeletons else []
    if len(axes) == 1:
        yield from _opened(frame, (_slot(group, dims, split, axes[0], even=False),))
    for first, second in combinations(axes, 2):
        last = second == axes[-1]
        # with the last axis also those where one of the two has equal parts; where both have, that is the frame itself
        own = _slot(group, dims, split, first, even=last and first == axes[0])
        yield from _opened(frame, (own, _slot(group, dims, split, second, even=last)))


def _opened(frame: Frame, slots: tuple[Slot, ...]) -> Iterator[Frame]:
    """The frame with these slots, if they have any sizes beside equal parts."""
    every: list[dict[str, Number]] = [{}]
    for slot in slots:
        every = [{**tiles, slot.name: size} for tiles in every for size in slot.sizes(int(slot.limit(tiles)))]
    even = all(isinstance(slot.sizes, SplitSizes) and slot.sizes.even for slot in slots)
    if len(every) > even:
        yield replace(frame, name=f"{frame.name}, idle members", shared=slots, idles=True, known_first=even, split=())


def _slot(group: FusedOps, dims: Sequence[str], split: Split, place: int, even: bool) -> Slot:
    """The tile size of the split over the axis at a place. It cuts what the axes before leave of the dim."""
    own, dim = group.hierarchy.axes[place], split[place]
    before = tuple(other if at < place else "" for at, other in enumerate(split))

    def limit(tiles: Tiles) -> Number:
        return member_ranges(group.hierarchy, before, group.workload.dims, tiles)[dim]

    lone = dim == next((other for other in dims if group.workload.dims[other] > 1), "")
    return Slot(split_tile(own.level, own.axis.name), dim, SplitSizes(group.hierarchy.widths, own.axis.size, even, lone), limit)
