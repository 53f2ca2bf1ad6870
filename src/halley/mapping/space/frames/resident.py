"""Resident frames: intermediates stay in the clusters' output buffers, with one split around all stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from halley.ir.mapping import Node, Temporal
from halley.ir.workload import Op, OpKind, roles
from halley.mapping.space.compose import AxisPartition, Cut, Handover
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.fused_group import FusedOps, prefix
from halley.mapping.space.hierarchy import OPERANDS
from halley.mapping.space.joins import broadcasts, joins
from halley.mapping.space.rows import RowStage, resident_skeletons
from halley.mapping.space.stages import (
    GroupStage,
    Ranges,
    Skeleton,
    Slot,
    Split,
    Tiles,
    gemm_skeletons,
    in_place,
    named,
    outer_orders,
    spread,
)


def resident(group: FusedOps) -> Iterator[Frame]:
    """Contractions and vector runs whose intermediates stay in the clusters."""
    if not group.hierarchy.takes_results():
        return
    columns = roles(group.workload, group.runs[0][0]).columns
    vector = [op for op in group.ops if op.kind is not OpKind.CONTRACT]
    long = group.long(vector) if vector else next(reversed(columns), "")
    # other dims that vector operations reduce over would leave their results partial
    summed = {dim for op in vector for dim in group.workload.reduced(op)} - {long}
    dims = tuple(dict.fromkeys(dim for dim in (*group.batch, group.row, *columns) if dim not in summed))
    joined = [long] if group.reduces(group.ops, long) else []
    for split in group.splits(dims, summed=joined):
        inside = group.of_member(split)
        shared = (*group.batch_slots(inside), group.row_slot(inside))
        stages = tuple(_stages(group, group.walking(inside, shared), split, long))
        reduces = long in split and bool(joined)
        yield split_outside(group, "resident", split, stages, reduces, shared, _chains(group))


def split_outside(
    group: FusedOps,
    kind: str,
    split: Split,
    stages: tuple[GroupStage, ...],
    reduces: bool,
    shared: tuple[Slot, ...] = (),
    holds: tuple[tuple[str, ...], ...] = (),
) -> Frame:
    """A frame whose split lies outside all loops: those of the ``shared`` slots, or batch dims one by one; then holds."""
    handover = Handover(group.workload, group.hierarchy.output, holds, group.runs)

    def wrap(tiles: Tiles, nodes: Sequence[Node], cut: Cut, partition: AxisPartition | None) -> Node:
        node = handover.body(nodes, cut, partition)
        for slot in reversed(shared):
            node = Temporal(slot.dim, tiles[slot.name], node)
        walked = node if shared else group.one_by_one(node)
        return spread(group.hierarchy, split, group.workload.dims, walked, tiles)

    bounded = split if group.hierarchy.copies else ()
    name = f"{kind}, clusters split {named(split)}"
    return Frame(name, shared, stages, wrap, reduces, split=bounded, held_outside=handover.held_outside)


def _chains(group: FusedOps) -> tuple[tuple[str, ...], ...]:
    """Intermediates in the output buffers: chains in place share one buffer."""
    left = list(group.inside)
    result: list[tuple[str, ...]] = []
    while left:
        chain = tuple(name for name in in_place(group.workload, group.ops, left[0]) if name in group.inside)
        result.append(chain)
        left = [name for name in left if name not in chain]
    return tuple(result)


def _stages(group: FusedOps, ranges: Callable[[Tiles], Ranges], split: Split, long: str) -> Iterator[GroupStage]:
    for index, run in enumerate(group.runs):
        if run[0].kind is OpKind.CONTRACT:
            name, skeletons = run[0].name, _gemm(group, run[0], ranges, split)
        else:
            name, skeletons = f"rows {index}", []
            for join in group.row_joins(split, long, run):
                stage = RowStage(group.workload, group.hierarchy, run, long, frozenset(group.inside), join)
                skeletons += resident_skeletons(stage, ranges, group.sizes, prefix(run), group.row)
        yield GroupStage(name, tuple(op.name for op in run), tuple(skeletons))


def _gemm(group: FusedOps, op: Op, ranges: Callable[[Tiles], Ranges], split: Split) -> list[Skeleton]:
    role = roles(group.workload, op)
    stays = op.outputs[0] in group.inside
    chip, output = group.hierarchy, group.hierarchy.read_at("output")
    first = {name: 0 for name in op.inputs if name not in group.inside}
    for role_name, name in zip(OPERANDS[:2], op.inputs, strict=True):
        if name in group.inside:
            first[name] = chip.inside(role_name, output)
    first[op.outputs[0]] = len(chip.tiers) if stays else output
    return gemm_skeletons(
        group.workload, chip, op, prefix((op,)), ranges, group.sizes, outer_orders(role, not stays), first, stays,
        joins(chip, group.workload, op, split, stays), sends=broadcasts(chip, group.workload, op, split),
    )  # fmt: skip
