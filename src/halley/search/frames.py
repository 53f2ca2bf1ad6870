"""Frames: how a group of fused operations hangs together, around its stages.

A frame says where the intermediate tensors live and which tile sizes its stages share. Given these, stages do not
influence each other: they run one after the other and hand over through buffers that the frame holds. The search uses that.

| frame | ops | intermediates |
|---|---|---|
| single | one contraction | none |
| rows | one run of vector operations | none |
| resident | contractions and vector runs | in the clusters' output buffers; one split for all stages |
| shared | contractions and vector runs | in the shared buffer; each stage has its own split |
| walked | the same, all over one more dim, walked inside the rows | the same, of a tile of it; around: sums, inputs without it |
| streamed | attention with running softmax | tiles of scores in the output buffers, keys walked in an outer loop |

All with several stages come with these in turn and overlapped (of streamed ones, those inside the loop over keys), shared ones
also with stages on shares of the clusters (`halley.search.compose`). Resident, shared (walked among them) and streamed frames
have a module each; all ask `halley.search.fused` about the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from halley.ir.workload import Op, OpKind, Workload, roles
from halley.search.fused import Fused
from halley.search.joins import joins
from halley.search.resident import resident, split_around
from halley.search.rows import RowStage, chunked_skeletons
from halley.search.space import Frame, Space
from halley.search.stages import Skeleton, Stage, always, gemm_skeletons, loop_orders
from halley.search.streamed import streamed
from halley.search.template import Template
from halley.search.through_shared import Laid, ThroughShared


def frames(workload: Workload, template: Template, ops: Sequence[Op], laid: Laid | None = None) -> Space:
    """Every frame of the declared space for a group of ops that is fused. ``laid``: what other groups have of it."""
    group = Fused(workload, template, tuple(ops))
    if any(op.running or op.scaled_by for op in ops):
        over_keys = tuple(streamed(group))
        return Space((*over_keys, *(made for frame in over_keys for made in frame.overlapped())))
    if not group.walks_rows():
        return Space()
    first_contracts = group.runs[0][0].kind is OpKind.CONTRACT
    if len(group.runs) == 1:
        return Space(tuple(_single(group) if first_contracts else _rows(group)))
    if not group.connected():
        return Space()
    through_shared = ThroughShared(group, laid or Laid())
    shared = through_shared.frame()
    in_turn = [*(resident(group) if first_contracts else ()), shared]
    plain = (*in_turn, *(made for frame in in_turn for made in frame.overlapped()), *through_shared.walking())
    return Space(plain, tuple(through_shared.pipelined(shared)))


def _single(group: Fused) -> Iterator[Frame]:
    """One contraction from and to the outer memory."""
    (op,) = group.ops
    role = roles(group.workload, op)
    for split in group.splits((*role.batch, *role.rows, *role.columns, *role.reduced)):
        skeletons = gemm_skeletons(
            group.workload, group.template, op, "", always(group.of_member(split)), group.sizes, loop_orders(role), op.inputs,
            False, joins(group.template, group.workload, op, split, stays=False), None, True,
        )  # fmt: skip
        stage = Stage(op.name, (op.name,), tuple(skeletons))
        yield split_around(group, "single", split, (stage,), bool(set(split) & set(role.reduced)))


def _rows(group: Fused) -> Iterator[Frame]:
    """One run of vector operations from and to the outer memory."""
    long = group.long(group.ops)
    for split in group.splits(dict.fromkeys((*group.batch, group.row, long))):
        ranges, joined = always(group.of_member(split)), group.row_joins(split, long, group.ops)
        skeletons: list[Skeleton] = []
        for join in joined:
            stage = RowStage(group.workload, group.template, group.ops, long, frozenset(), join)
            skeletons += chunked_skeletons(stage, ranges, group.sizes, "v", group.row, (), None)
        stages = (Stage("rows", tuple(op.name for op in group.ops), tuple(skeletons)),)
        yield split_around(group, "rows", split, stages, any(joined))
