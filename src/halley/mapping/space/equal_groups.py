"""Groups that are equal except for the names of dims, tensors and ops, which share one search."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count

from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import GroupSpace


class _Numbers:
    """A number for each name, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self._next = count()

    def __call__(self, *names: str) -> tuple[int, ...]:
        return tuple(self.of[name] if name in self.of else self.of.setdefault(name, next(self._next)) for name in names)


def form(workload: Workload, ops: Sequence[Op], kept: Sequence[str]) -> Hashable:
    """All that a group's space and costs depend on, without names: groups of equal forms have equal frames, in the same order.

    ``kept``: the tensors that the outer memory holds."""
    dims, tensors = _Numbers(), _Numbers()
    made = tuple(
        (
            op.kind, op.function, op.monoid, op.constants,
            tensors(*op.inputs), tensors(*op.outputs), tensors(*op.running), tensors(*filter(None, [op.scaled_by])),
            dims(*op.dims), dims(*op.sequence),
        )
        for op in ops
    )  # fmt: skip
    inside = {op.name for op in ops}
    mapped = {op.inputs[0] for op in ops if op.kind is OpKind.MAP and op.inputs}
    # of one that others need, too, no map may work in its place
    shapes = tuple(
        (dims(*workload.tensors[name].dims), workload.tensors[name].dtype, name in mapped and workload.leaves(name, inside))
        for name in tensors.of
    )
    # whoever reads a dim at a sum, be it outside the group, lets loops over the terms narrow it
    sums = tuple(
        (dims(each.dim, *each.dims), tuple(coefficient for _, coefficient in each.terms), each.constant)
        for each in workload.indices
        if each.dim in dims.of
    )
    extents = tuple(workload.dims[dim] for dim in dims.of)
    return made, shapes, sums, extents, tensors(*kept)


def renamed(choice: GroupMapping, space: GroupSpace, own: GroupSpace) -> GroupMapping:
    """The mapping of a group with the names of one like it: what stands at the same place in its ``own`` frames as the choice in
    ``space``, with the same tile sizes."""
    theirs, frame = space.counterpart(choice.frame, space), own.counterpart(choice.frame, space)
    shapes = [
        mine.skeletons[next(at for at, skeleton in enumerate(stage.skeletons) if skeleton is chosen)]
        for mine, stage, chosen in zip(frame.stages, theirs.stages, choice.skeletons, strict=True)
    ]
    others = (*choice.frame.shared, *(slot for skeleton in choice.skeletons for slot in skeleton.slots))
    slots = (*frame.shared, *(slot for skeleton in shapes for slot in skeleton.slots))
    tiles = {slot.name: choice.tiles[other.name] for slot, other in zip(slots, others, strict=True)}
    return GroupMapping(frame, tuple(shapes), tiles)
