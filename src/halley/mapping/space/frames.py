"""Frames: the part of a fused group's mapping outside its stages.

A frame says where the intermediate tensors are held and which tile sizes its stages share. Given these, the stages are
independent of each other: they run one after the other and hand over through buffers that the frame holds.

| frame | ops | intermediates |
|---|---|---|
| single | one contraction | none |
| rows | one run of vector operations | none |
| resident | contractions and vector runs | in the clusters' output buffers; one split for all stages |
| shared | contractions and vector runs | in the shared buffer; each stage has its own split |
| walked | the same, with a loop over one more dim inside the rows | a tile of it; outside the loop: sums, inputs without it |
| streamed | attention with running softmax | tiles of scores in the output buffers, keys in an outer loop |

Frames with several stages exist with sequential and with overlapped stages (of streamed ones, those inside the loop over keys);
shared ones also with each stage on a partition of the clusters (`halley.mapping.space.compose`). Resident, shared and streamed
frames have a module each; `halley.mapping.space.fused_group` has properties of the group that all of them need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from halley.ir.workload import Op, OpKind, Workload, roles
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import Hierarchy
from halley.mapping.space.joins import joins
from halley.mapping.space.resident import resident, split_around
from halley.mapping.space.rows import RowStage, chunked_skeletons
from halley.mapping.space.shared_buffer import Laid, through_shared
from halley.mapping.space.stages import GroupStage, Skeleton, always, gemm_skeletons, loop_orders
from halley.mapping.space.streamed import streamed


def frames(workload: Workload, hierarchy: Hierarchy, ops: Sequence[Op], laid: Laid | None = None) -> GroupSpace:
    """Every frame of the declared space for a group of ops that is fused. ``laid``: what other groups have of it."""
    group = FusedOps(workload, hierarchy, tuple(ops))
    if any(op.running or op.scaled_by for op in ops):
        over_keys = tuple(streamed(group))
        return GroupSpace((*over_keys, *(made for frame in over_keys for made in frame.overlapped(hierarchy.sums))))
    if not group.walks_rows():
        return GroupSpace()
    first_contracts = group.runs[0][0].kind is OpKind.CONTRACT
    if len(group.runs) == 1:
        return GroupSpace(tuple(_single(group) if first_contracts else _rows(group)))
    if not group.connected():
        return GroupSpace()
    through = list(through_shared(group, laid or Laid()))
    shared = [each.frame() for each in through]
    stay = list(resident(group)) if first_contracts else []
    handing_over = [
        *((frame, hierarchy.output) for frame in stay),
        *((frame, each.memory) for each, frame in zip(through, shared, strict=True)),
    ]
    overlapped = (made for frame, memory in handing_over for made in frame.overlapped(hierarchy.memory(memory)))
    plain = (*stay, *shared, *overlapped, *(frame for each in through for frame in each.walking()))
    families = (family for each, frame in zip(through, shared, strict=True) for family in each.pipelined(frame))
    return GroupSpace(plain, tuple(families))


def _single(group: FusedOps) -> Iterator[Frame]:
    """One contraction from and to the outer memory."""
    (op,) = group.ops
    role = roles(group.workload, op)
    for split in group.splits((*role.batch, *role.rows, *role.columns, *role.reduced)):
        skeletons = gemm_skeletons(
            group.workload, group.hierarchy, op, "", always(group.of_member(split)), group.sizes, loop_orders(role), {}, False,
            joins(group.hierarchy, group.workload, op, split, stays=False),
        )  # fmt: skip
        stage = GroupStage(op.name, (op.name,), tuple(skeletons))
        yield split_around(group, "single", split, (stage,), bool(set(split) & set(role.reduced)))


def _rows(group: FusedOps) -> Iterator[Frame]:
    """One run of vector operations from and to the outer memory."""
    long = group.long(group.ops)
    for split in group.splits(dict.fromkeys((*group.batch, group.row, long))):
        ranges, joined = always(group.of_member(split)), group.row_joins(split, long, group.ops)
        skeletons: list[Skeleton] = []
        for join in joined:
            stage = RowStage(group.workload, group.hierarchy, group.ops, long, frozenset(), join)
            skeletons += chunked_skeletons(stage, ranges, group.sizes, "v", group.row, (), None)
        stages = (GroupStage("rows", tuple(op.name for op in group.ops), tuple(skeletons)),)
        yield split_around(group, "rows", split, stages, any(joined))
