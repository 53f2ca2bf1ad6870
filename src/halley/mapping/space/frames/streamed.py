"""Streamed frames: attention with running softmax, the scores of one tile of keys at a time, accumulators in the clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from halley.formulas.numbers import Number
from halley.ir.mapping import Hold, Node, Spatial, Temporal
from halley.ir.mapping import Sequence as Steps
from halley.ir.masks import mask_over, masks
from halley.ir.workload import Op, OpKind, roles
from halley.mapping.space.compose import AxisPartition, Cut, Handover
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.joins import all_reduces, broadcasts
from halley.mapping.space.rows import RowStage, resident_skeletons
from halley.mapping.space.stages import (
    NO_LOOPS,
    GroupStage,
    Ranges,
    Skeleton,
    Slot,
    Split,
    Tiles,
    gemm_skeletons,
    in_place,
    join_text,
    named,
    outer_buffers,
    spread,
)


def streamed(group: FusedOps) -> Iterator[Frame]:
    """Attention with running softmax, clusters split over batch, rows and keys; none where the ops are not that."""
    if not can_stream(group) or not group.hierarchy.takes_results():
        return
    (scores,), running, (values,), closing = group.runs
    attention = _Attention(group, scores, running, values, closing)
    yield from map(attention.frame, group.splits((*group.batch, group.row, attention.key), summed=[attention.key]))


def can_stream(group: FusedOps) -> bool:
    """Whether the ops are scores, running statistics, values and a closing, which need nothing else: what the streamed frame
    knows."""
    kinds = [run[0].kind is OpKind.CONTRACT for run in group.runs]
    if kinds != [True, False, True, False]:
        return False
    made = {name for op in group.ops for name in op.outputs}
    vector = [op for run in (group.runs[1], group.runs[3]) for op in run]
    scaled = {op.scaled_by for op in group.ops if op.scaled_by}
    return scaled <= made and all(name in made for op in vector for name in op.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class _Attention:
    """The ops of a group by the stage that they are in."""

    group: FusedOps
    scores: Op
    running: tuple[Op, ...]
    values: Op
    closing: tuple[Op, ...]

    @property
    def key(self) -> str:
        return roles(self.group.workload, self.scores).columns[0]

    @property
    def statistics(self) -> tuple[str, ...]:
        """What is carried from tile to tile of keys beside the sum of values."""
        tensors = self.group.workload.tensors
        return tuple(name for op in self.running for name in op.outputs if self.key not in tensors[name].dims)

    def frame(self, split: Split) -> Frame:
        """The frame with a split around all loops."""
        group, hierarchy, scores, key = self.group, self.group.hierarchy, self.scores, self.key
        inside = group.of_member(split)
        visible = self._visible(split)
        rows = group.row_slot(inside)
        tile = Slot("keys", key, group.sizes(key), lambda tiles: inside[key], rows=group.row if visible else "")
        staged = scores.inputs[1], self.values.inputs[1]
        outermost = hierarchy.tiers[0].memories[0] if len(hierarchy.tiers) > 1 else ""
        slots: tuple[Slot, ...] = (rows, tile)
        if outermost:
            shared = hierarchy.memory(outermost)
            queries, keys = (
                outer_buffers(f"{' '.join(names)} in {outermost}", shared) for names in ((scores.inputs[0],), staged)
            )
            slots += queries, keys
        state = (*((name,) for name in self.statistics), self.values.outputs)
        chain = in_place(group.workload, (scores, *self.running), scores.outputs[0])
        handover = Handover(group.workload, hierarchy.output, (chain,), group.runs[:3])

        def wrap(tiles: Tiles, nodes: Sequence[Node], cut: Cut, partition: AxisPartition | None) -> Node:
            inner = handover.body(nodes[:3], cut, partition)
            if outermost:
                inner = Hold(outermost, tuple((t,) for t in staged), inner, tiles[keys.name])
            node = handover.carried(state, Steps((Temporal(key, tiles[tile.name], inner, visible), nodes[3])), cut)
            if outermost:
                node = Hold(outermost, ((scores.inputs[0],),), node, tiles[queries.name])
            if visible:  # rows distributed cyclically: each member has as many of the later ones as any other
                node = self._row_loop(split, tiles[rows.name], node)
                return spread(hierarchy, self._others(split), group.workload.dims, group.one_by_one(node))
            node = group.one_by_one(Temporal(group.row, tiles[rows.name], node))
            return spread(hierarchy, split, group.workload.dims, node)

        stages = self._stages(inside, group.walking(inside, (rows, tile)), split)
        bounded = split if hierarchy.copies and not visible else ()
        name = f"streamed, clusters split {named(split)}"
        return Frame(name, slots, stages, wrap, key in split, streamed=True, behind=1, split=bounded)

    def _visible(self, split: Split) -> bool:
        """Whether the loop over keys can leave out what no row sees (docs/model.md, "Masks")."""
        workload, mask = self.group.workload, mask_over(self.group.workload, self.key)
        inside = (self.scores, *self.running, self.values)
        if mask is None or mask.rows != self.group.row or self.key in split or workload.indices:
            return False
        names, have = {op.name for op in inside}, masks(workload)
        planes = [name for op in inside for name in op.outputs if {mask.rows, mask.keys} <= set(workload.tensors[name].dims)]
        return all(have.get(name) == mask for name in names) and not any(workload.leaves(name, names) for name in planes)

    def _others(self, split: Split) -> Split:
        """A split without what it has of the rows."""
        return tuple("" if dim == self.group.row else dim for dim in split)

    def _row_loop(self, split: Split, rows: Number, node: Node) -> Node:
        """A loop over tiles of rows for all members that split them, each with ``rows`` of these."""
        row = self.group.row
        for own in reversed(self.group.axes_of(split, row)):
            node = Spatial(row, rows, own.level, own.axis.name, node)
            rows = rows * own.axis.size
        return Temporal(row, rows, node)

    def _stages(self, inside: Ranges, ranges: Callable[[Tiles], Ranges], split: Split) -> tuple[GroupStage, ...]:
        """``inside``: what a member has of each dim; ``ranges``: what is left of it inside the loops over rows and keys."""
        workload, hierarchy, sizes, row = self.group.workload, self.group.hierarchy, self.group.sizes, self.group.row

        def after_keys(tiles: Tiles) -> Ranges:
            return {**ranges(tiles), self.key: inside[self.key]}

        resident = frozenset(self.group.inside)
        middle = RowStage(workload, hierarchy, self.running, self.key, resident)
        end = RowStage(workload, hierarchy, self.closing, self.closing[0].dims[-1], resident)
        # where keys are skipped, members that split rows see different numbers of tiles
        sent = () if self._visible(split) else (self.scores, self.values)
        sends = {op.name: broadcasts(hierarchy, workload, op, split) for op in sent}
        first, second = (
            gemm_skeletons(
                workload, hierarchy, op, name, ranges, sizes, (NO_LOOPS,), hierarchy.beside(op), True,
                sends=sends.get(op.name, {}),
            )
            for op, name in ((self.scores, "0"), (self.values, "2"))
        )  # fmt: skip
        (last,) = resident_skeletons(end, after_keys, sizes, "3", row)
        return (
            GroupStage(self.scores.name, (self.scores.name,), tuple(first)),
            GroupStage(
                "rows 1", tuple(op.name for op in self.running), tuple(resident_skeletons(middle, ranges, sizes, "1", row))
            ),
            GroupStage(self.values.name, (self.values.name,), tuple(second)),
            GroupStage("close", tuple(op.name for op in self.closing), tuple(self._joined(last, split))),
        )

    def _joined(self, last: Skeleton, split: Split) -> Iterator[Skeleton]:
        """The closing stage after the all-reduces that join the members' states, one shape per way to do that."""
        for join in all_reduces(self.group.hierarchy, (), self.group.axes_of(split, self.key)):
            states = *((name,) for name in self.statistics), self.values.outputs
            joins = tuple(replace(part, tensors=tensors) for tensors in states for part in join)

            def build(tiles: Tiles, joins: tuple[Node, ...] = joins) -> Node:
                return Steps((*joins, last.build(tiles))) if joins else last.build(tiles)

            name = last.name + (f", after{join_text(join)[1:]}" if join else "")
            yield Skeleton(partial(str, name), last.slots, build, bool(joins))
