"""Frames whose intermediates are in a shared memory, further out than that of the results. Each stage has its own split inside
it. Variants: one more dim that all stages loop over, and stages on partitions of an axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, product

from halley.formulas.numbers import Number
from halley.ir.mapping import Hold, Node, Temporal
from halley.ir.workload import Op, OpKind, roles
from halley.mapping.space.compose import AxisPartition, Cut, Handover
from halley.mapping.space.frame_sets import Frame, ImplicitFrames
from halley.mapping.space.fused_group import FusedOps, prefix
from halley.mapping.space.hierarchy import OPERANDS
from halley.mapping.space.joins import joins
from halley.mapping.space.rows import RowStage, chunked_skeletons
from halley.mapping.space.stages import (
    GroupStage,
    Ranges,
    Skeleton,
    Slot,
    Split,
    Tiles,
    gemm_skeletons,
    named,
    outer_buffers,
    outer_orders,
    splits,
    spread,
)
from halley.mapping.space.tile_sizes import halvings


@dataclass(frozen=True, slots=True)
class Laid:
    """Cache of what groups of one workload share on one machine: the ``stages`` that hand over through the shared buffer, by all
    that their shapes depend on, and the ``tiles`` of the dims that groups loop over. Most stages of a group occur in a smaller
    one too."""

    stages: dict[Hashable, GroupStage] = field(default_factory=dict)
    tiles: dict[tuple[str, str, Number], Slot] = field(default_factory=dict)


def through_shared(group: FusedOps, laid: Laid) -> Iterator[ThroughShared]:
    """Every memory outside that of the results that may hold intermediates, with every split of the rows and of batch dims over
    the axes outside it."""
    chip = group.hierarchy
    for tier in chip.hands_over():
        outer = range(tier + 1)
        for split in group.splits((*group.batch, group.row), (), outer):
            for memory in chip.tiers[tier].memories:
                yield ThroughShared(group, laid, tier, memory, split)


@dataclass(frozen=True, slots=True, eq=False)
class ThroughShared:
    """The stages of a group that hand over through a ``memory`` of a ``tier``. ``split``: of all of them, over the axes outside
    that memory; ``walk``: a dim that they loop over inside their rows, if any; ``kept``: what that memory holds outside the loop
    over it."""

    group: FusedOps
    laid: Laid
    tier: int
    memory: str
    split: Split
    walk: str = ""
    kept: tuple[str, ...] = ()

    @property
    def ranges(self) -> Ranges:
        """What a member on the axes around the memory has of each dim."""
        return self.group.of_member(self.split)

    @property
    def inside(self) -> range:
        """The tiers over whose axes each stage has a split of its own."""
        return range(self.tier + 1, len(self.group.hierarchy.tiers))

    def frame(self) -> Frame:
        """Contractions and vector runs, each with its own split."""
        group, shared = self.group, self.memory
        handover = Handover(group.workload, shared, tuple((handed,) for handed in group.handed_over), group.runs)
        stages = tuple(map(self.stage, range(len(group.runs))))
        rows, *further = slots = self._slots()
        outer = outer_buffers(f"{' '.join(self.kept)} in {shared}", group.hierarchy.memory(shared))

        def wrap(tiles: Tiles, nodes: Sequence[Node], cut: Cut, partition: AxisPartition | None) -> Node:
            node = handover.body(nodes, cut, partition)
            for slot in further:
                node = Temporal(slot.dim, tiles[slot.name], node)
            if self.kept:
                node = Hold(shared, tuple((name,) for name in self.kept), node, tiles[outer.name])
            node = group.one_by_one(Temporal(rows.dim, tiles[rows.name], node))
            return spread(group.hierarchy, self.split, group.workload.dims, node)

        reduces = any(skeleton.splits_reduction for stage in stages for skeleton in stage.skeletons)
        kept = tuple((name, frozenset(at for at, run in enumerate(group.runs) if _touches(run, name))) for name in self.kept)
        return Frame(self._name(), (*slots, outer) if self.kept else tuple(slots), stages, wrap, reduces, kept=kept)

    def _name(self) -> str:
        name = f"through {self.memory}" + (f", all split {named(self.split)}" if any(self.split) else "")
        if not self.walk:
            return name
        return f"{name}, {self.walk} walked" + (f" beside {' '.join(self.kept)}" if self.kept else "")

    def _slots(self) -> list[Slot]:
        """The tiles that all stages have: of the rows, and of the dim that is walked inside them."""
        return [self._slot(dim) for dim in (self.group.row, self.walk) if dim]

    def _slot(self, dim: str) -> Slot:
        extent, known = self.ranges[dim], self.laid.tiles
        if dim == self.group.row:
            return known.setdefault(("rows", dim, extent), self.group.row_slot(self.ranges))
        name = f"tile of {dim}"
        return known.setdefault((name, dim, extent), Slot(name, dim, halvings, lambda tiles: extent))

    def walking(self) -> Iterator[Frame]:
        """The same with a further dim walked inside the rows. What lacks the dim, and so is the same for all of its tiles, is
        held around these: sums, for they grow, and any of the inputs, or else each stage brings its own. Where all of it is,
        stages also overlap."""
        group = self.group
        made = {name for op in group.ops for name in op.outputs}
        for dim in walkable(group):
            touched = dict.fromkeys(name for op in group.ops for name in (*op.inputs, *op.outputs))
            same = [name for name in touched if dim not in group.workload.selectors(name)]
            for chosen in product(*((True,) if name in made else (False, True) for name in same)):
                frame = replace(self, walk=dim, kept=tuple(compress(same, chosen))).frame()
                yield frame
                if all(chosen):
                    yield from frame.overlapped(group.hierarchy.memory(self.memory))

    def pipelined(self, whole: Frame) -> Iterator[ImplicitFrames]:
        """The same with stages on parts of an axis: of each axis inside the memory that is not like one before, in every way.
        None if the memory is in lockstep."""
        if self.group.hierarchy.memory(self.memory).lockstep:
            return
        inside = [own for own in self.group.hierarchy.axes if own.tier in self.inside]
        for own in {own.alike: own for own in reversed(inside)}.values():
            if own.axis.size > 1:
                on_part = partial(self._on_part, own.level, own.axis.name)
                yield ImplicitFrames(own.level, own.axis.name, own.axis.size, whole, on_part)

    def _on_part(self, level: str, axis: str, stage: int, members: int) -> GroupStage:
        """A stage as it is laid out on some members of an axis."""
        narrowed = replace(self.group, hierarchy=self.group.hierarchy.narrowed(level, axis, members))
        return replace(self, group=narrowed).stage(stage)

    def stage(self, index: int) -> GroupStage:
        """A stage that reads from and writes to the shared buffer, with its own split: the same in all groups that walk the
        same rows and batch around it, hand over the same of its tensors, and leave the same of its dims whole."""
        group, run = self.group, self.group.runs[index]
        handed = tuple(name for name in (*group.handed_over, *self.kept) if _touches(run, name))
        whole = frozenset(dim for op in run for dim in op.dims if dim in group.whole)
        place = group.hierarchy.axes, self.memory, self.split
        key = place, run, group.row, self.walk, group.batch, handed, whole
        if key not in self.laid.stages:
            self.laid.stages[key] = self._made(run, handed)
        return self.laid.stages[key]

    def _made(self, run: tuple[Op, ...], handed: tuple[str, ...]) -> GroupStage:
        ranges = self.group.walking(self.ranges, self._slots())
        skeletons = self._gemm(run[0], handed, ranges) if run[0].kind is OpKind.CONTRACT else self._rows(run, ranges)
        return GroupStage(run[0].name, tuple(op.name for op in run), tuple(skeletons))

    def _gemm(self, op: Op, handed: tuple[str, ...], ranges: Callable[[Tiles], Ranges]) -> list[Skeleton]:
        group, chip = self.group, self.group.hierarchy
        role, by_role = roles(group.workload, op), zip(OPERANDS, (*op.inputs, op.outputs[0]), strict=True)
        first = {name: chip.inside(role_name, self.tier) for role_name, name in by_role if name in handed}
        skeletons: list[Skeleton] = []
        dims, reduced = (group.splittable(dims, (op,)) for dims in ((*role.rows, *role.columns), role.reduced))
        for split in splits(chip, group.workload, (*dims, *reduced), self.inside, reduced):
            skeletons += gemm_skeletons(
                group.workload, chip, op, prefix((op,)), ranges, group.sizes, outer_orders(role, op.outputs[0] not in handed),
                first, False, joins(chip, group.workload, op, split, stays=False), split,
            )  # fmt: skip
        return skeletons

    def _rows(self, run: tuple[Op, ...], ranges: Callable[[Tiles], Ranges]) -> list[Skeleton]:
        group, long = self.group, self.group.long(run)
        skeletons: list[Skeleton] = []
        summed = [long] if group.reduces(run, long) else []
        for split in group.splits((group.row, long), run, self.inside, summed):
            for join in group.row_joins(split, long, run):
                stage = RowStage(group.workload, group.hierarchy, run, long, frozenset(), join)
                skeletons += chunked_skeletons(stage, ranges, group.sizes, prefix(run), group.row, (), split)
        return skeletons


def _touches(run: Sequence[Op], name: str) -> bool:
    return any(name in (*op.inputs, *op.outputs) for op in run)


def walkable(group: FusedOps) -> Iterator[str]:
    """Dims that stages through the shared buffer may walk inside their rows: those of every op, which none reduces over but
    contractions whose sums leave. These sums grow from tile to tile; what else leaves, or is handed over, is done with. None
    where something is handed over and leaves."""
    here = {op.name for op in group.ops}
    if any(group.workload.leaves(name, here) for name in group.handed_over):
        return
    barred = {*group.batch, group.row, *group.whole}
    for dim in group.ops[0].dims:
        reducing = [op for op in group.ops if dim in group.workload.reduced(op)]
        leave = all(op.kind is OpKind.CONTRACT and not set(op.outputs) & set(group.inside) for op in reducing)
        if leave and group.workload.dims[dim] > 1 and dim not in barred and all(dim in op.dims for op in group.ops):
            yield dim
