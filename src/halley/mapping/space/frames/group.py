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
from functools import partial
from types import MappingProxyType

from halley.ir.workload import Op, OpKind, Workload, roles
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.frames.idle_members import with_idle_members
from halley.mapping.space.frames.resident import resident, split_outside
from halley.mapping.space.frames.shared_buffer import Laid, through_shared
from halley.mapping.space.frames.streamed import can_stream, streamed
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import Hierarchy
from halley.mapping.space.joins import broadcasts, joins
from halley.mapping.space.rows import RowStage, chunked_skeletons
from halley.mapping.space.stages import GroupStage, Sends, Skeleton, Split, gemm_skeletons, loop_orders


def frames(workload: Workload, hierarchy: Hierarchy, ops: Sequence[Op], laid: Laid | None = None) -> GroupSpace:
    """Every frame of the declared space for a group of ops that is fused. ``laid``: what other groups have of it."""
    group = FusedOps(workload, hierarchy, tuple(ops))
    if not fusible(group):
        return GroupSpace()
    if runs_on_parts(group):
        over_keys = tuple(streamed(group))
        return GroupSpace((*over_keys, *(made for frame in over_keys for made in frame.overlapped(hierarchy.sums))))
    first_contracts = group.runs[0][0].kind is OpKind.CONTRACT
    if len(group.runs) == 1:
        return GroupSpace(tuple(_single(group) if first_contracts else _rows(group)))
    through = [] if hierarchy.grouped else list(through_shared(group, laid or Laid()))
    shared = [each.frame() for each in through]
    stay = list(resident(group)) if first_contracts else []
    handing_over = [
        *((frame, hierarchy.output) for frame in stay),
        *((frame, each.memory) for each, frame in zip(through, shared, strict=True)),
    ]
    overlapped = (made for frame, memory in handing_over for made in frame.overlapped(hierarchy.memory(memory)))
    plain = (*stay, *shared, *overlapped, *(frame for each in through for frame in each.walking()))
    implicit_sets = (implicit_set for each, frame in zip(through, shared, strict=True) for implicit_set in each.pipelined(frame))
    return GroupSpace(plain, tuple(implicit_sets))


def fusible(group: FusedOps) -> bool:
    """Whether a group may have frames, by its ops alone: most groups of a large workload have none."""
    if runs_on_parts(group):
        return can_stream(group) and group.hierarchy.takes_results()
    return group.walks_rows() and (len(group.runs) == 1 or group.connected())


def runs_on_parts(group: FusedOps) -> bool:
    """Whether an op works with a reduction that is not complete: a running softmax."""
    return any(op.running or op.scaled_by for op in group.ops)


def _single(group: FusedOps) -> Iterator[Frame]:
    """One contraction from and to the outer memory."""
    (op,) = group.ops
    role = roles(group.workload, op)
    dims = group.splittable((*role.batch, *role.rows, *role.columns, *role.reduced))
    for split in group.splits(dims, summed=role.reduced):
        sums, sends = bool(set(split) & set(role.reduced)), broadcasts(group.hierarchy, group.workload, op, split)
        yield split_outside(group, "single", split, (_contraction(group, op, split, not sums, sends),), sums)
        if group.hierarchy.grouped:
            continue
        even = split_outside(group, "single", split, (_contraction(group, op, split),), sums)
        yield from with_idle_members(group, dims, split, even)


def _contraction(group: FusedOps, op: Op, split: Split, uneven: bool = False, sends: Sends = MappingProxyType({})) -> GroupStage:
    """A contraction alone on the members of a split; ``uneven``: also with operands held around its inner loops; ``sends``: with
    operands that one member loads for others."""
    orders, joined = loop_orders(roles(group.workload, op)), joins(group.hierarchy, group.workload, op, split, stays=False)
    ranges = partial(group.of_member, split)
    skeletons = gemm_skeletons(
        group.workload, group.hierarchy, op, "", ranges, group.sizes, orders, {}, False, joined,
        uneven=uneven, sends=sends,
    )  # fmt: skip
    return GroupStage(op.name, (op.name,), tuple(skeletons))


def _rows(group: FusedOps) -> Iterator[Frame]:
    """One run of vector operations from and to the outer memory."""
    long = group.long(group.ops)
    dims = group.splittable(dict.fromkeys((*group.outer, group.row, long)))
    summed = [dim for dim in dims if group.reduces(group.ops, dim)]
    for split in group.splits(dims, summed=summed):
        ranges, joined = partial(group.of_member, split), group.row_joins(split, long, group.ops)
        skeletons: list[Skeleton] = []
        for join in joined:
            stage = RowStage(group.workload, group.hierarchy, group.ops, long, frozenset(), join)
            skeletons += chunked_skeletons(stage, ranges, group.sizes, "v", group.row, group.outer, None)
        stages = (GroupStage("rows", tuple(op.name for op in group.ops), tuple(skeletons)),)
        frame = split_outside(group, "rows", split, stages, any(joined))
        yield frame
        if not group.hierarchy.grouped:
            yield from with_idle_members(group, dims, split, frame)
