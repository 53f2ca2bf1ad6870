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
also with stages on shares of the clusters (`halley.search.compose`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, product

from halley.formulas.numbers import minimum
from halley.ir.hardware import Axis
from halley.ir.mapping import Hold, Node, Temporal
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.search.compose import Cut, Handover, Shares
from halley.search.joins import all_reduces, joins
from halley.search.rows import RowStage, chunked_skeletons, resident_skeletons
from halley.search.space import Family, Frame, Space
from halley.search.stages import (
    NO_LOOPS,
    Join,
    Ranges,
    Skeleton,
    Slot,
    Split,
    Stage,
    Tiles,
    always,
    buffers,
    gemm_skeletons,
    in_place,
    loop_orders,
    member_ranges,
    named,
    outer_orders,
    splits,
    spread,
    told,
)
from halley.search.template import Template
from halley.search.tiles import Sizes, TileSizes, halvings, whole


def runs(workload: Workload, ops: Sequence[Op]) -> list[tuple[Op, ...]]:
    """Cut ops into stages: each contraction alone, vector operations that follow each other together."""
    result: list[tuple[Op, ...]] = []
    for op in ops:
        alone = op.kind is OpKind.CONTRACT
        if alone or not result or result[-1][0].kind is OpKind.CONTRACT:
            result.append((op,))
        else:
            result[-1] = (*result[-1], op)
    return result


def _touches(run: Sequence[Op], name: str) -> bool:
    return any(name in (*op.inputs, *op.outputs) for op in run)


def _prefix(run: Sequence[Op]) -> str:
    """What the sizes of a stage are named by: its first op rather than its place, so that the stage has the same open sizes, and
    what is known of it, in every group that it is in."""
    return f"{run[0].name} "


def walked(workload: Workload, op: Op) -> frozenset[str]:
    """The dims of an op that a group may walk as its rows. Ops have a frame together only where they have one of these in
    common."""
    able = op.dims if op.kind is not OpKind.CONTRACT else roles(workload, op).rows
    return frozenset(able) - {*workload.reduced(op), *workload.whole(op)}


@dataclass(frozen=True, slots=True)
class Laid:
    """What groups of one workload have in common on one machine: the ``stages`` that hand over through the shared buffer, by all
    that their shapes depend on of their group, and their ``tiles`` of the dims that groups walk. One group has few that no
    smaller one has."""

    stages: dict[Hashable, Stage] = field(default_factory=dict)
    tiles: dict[tuple[str, str], Slot] = field(default_factory=dict)


def frames(workload: Workload, template: Template, ops: Sequence[Op], laid: Laid | None = None) -> Space:
    """Every frame of the declared space for a group of ops that is fused. ``laid``: what other groups have of it."""
    maker = _Maker(workload, template, tuple(ops), laid or Laid())
    if any(op.running or op.scaled_by for op in ops):
        streamed = tuple(maker.streamed()) if maker.can_stream() else ()
        return Space((*streamed, *(made for frame in streamed for made in frame.overlapped())))
    if not maker.walks_rows():
        return Space()
    if len(maker.runs) == 1:
        return Space(tuple(maker.single() if maker.runs[0][0].kind is OpKind.CONTRACT else maker.rows()))
    if not maker.connected():
        return Space()
    first_contracts = maker.runs[0][0].kind is OpKind.CONTRACT
    through_shared = maker.through_shared()
    in_turn = [*(maker.resident() if first_contracts else ()), through_shared]
    plain = (*in_turn, *(made for frame in in_turn for made in frame.overlapped()), *maker.walking())
    return Space(plain, tuple(maker.pipelined(through_shared)))


class _Maker:
    """Makes the frames of a group. ``walk``: a dim that stages through the shared buffer walk inside their rows, if any;
    ``kept``: what lies in that buffer around it."""

    def __init__(
        self, workload: Workload, template: Template, ops: tuple[Op, ...], laid: Laid, walk: str = "", kept: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        self.workload, self.template, self.ops, self.laid, self.walk, self.kept = workload, template, ops, laid, walk, kept
        self.runs = runs(workload, ops)
        read = {name for op in ops for name in op.inputs}
        self.inside = tuple(name for op in ops for name in op.outputs if name in read)
        dims = dict.fromkeys(dim for op in ops for dim in op.dims)
        reduced = {dim for op in ops for dim in workload.reduced(op)}
        self.whole = {dim for op in ops for dim in workload.whole(op)}
        common = [dim for dim in dims if all(dim in op.dims for op in ops) and dim not in reduced | self.whole]
        contractions = [op for op in ops if op.kind is OpKind.CONTRACT]
        self.batch = tuple(d for d in common if contractions and all(d in roles(workload, op).batch for op in contractions))
        if not contractions:
            self.batch = tuple(common[:-1])
        rows = [dim for dim in common if dim not in self.batch]
        self.row = rows[0] if rows else ""
        self.ranges: Ranges = dict(workload.dims)
        self.tiles = TileSizes(template.widths)

    def connected(self) -> bool:
        """Whether every stage but the first reads what another made."""
        handed = set(self._handed_over())
        return all(handed & {name for op in run for name in (*op.inputs, *op.outputs)} for run in self.runs)

    def walks_rows(self) -> bool:
        """Whether there are rows that all ops can walk together: a dim in common, which several contractions have as rows."""
        if len(self.runs) == 1 and self.runs[0][0].kind is OpKind.CONTRACT:
            return True
        contractions = [op for op in self.ops if op.kind is OpKind.CONTRACT]
        return bool(self.row) and all(self.row in roles(self.workload, op).rows for op in contractions)

    def can_stream(self) -> bool:
        """Whether the ops are scores, running statistics, values and a closing, which need nothing else: what the streamed frame
        knows."""
        kinds = [run[0].kind is OpKind.CONTRACT for run in self.runs]
        if kinds != [True, False, True, False]:
            return False
        made = {name for op in self.ops for name in op.outputs}
        vector = [op for run in (self.runs[1], self.runs[3]) for op in run]
        scaled = {op.scaled_by for op in self.ops if op.scaled_by}
        return scaled <= made and all(name in made for op in vector for name in op.inputs)

    def _splits(self, dims: Iterable[str], ops: Sequence[Op] = ()) -> tuple[Split, ...]:
        """Splits of dims that lie around some ops; around all of them, if none are given."""
        return splits(self.template, self.workload, self._splittable(dims, ops))

    def _splittable(self, dims: Iterable[str], ops: Sequence[Op] = ()) -> list[str]:
        """The dims that clusters may split around some ops; around all of them, if none are given."""
        barred = frozenset().union(*(own for op in ops or self.ops for own in self.workload.unsplit(op)))
        return [dim for dim in dims if dim not in barred | self.whole]

    def _sizes(self, dim: str) -> Sizes:
        """Tile sizes to try; a dim that an op runs along (a scan, a transform) stays whole."""
        return whole if dim in self.whole else self.tiles

    def _axes_of(self, split: Split, dim: str) -> tuple[Axis, ...]:
        return tuple(axis for axis, name in zip(self.template.axes, split, strict=True) if name == dim)

    def _joins(self, split: Split, long: str, run: Iterable[Op]) -> tuple[Join, ...]:
        """Every way to make what vector operations reduce over a dim whole on all members that a split of it gives parts to."""
        reduces = any(long in self.workload.reduced(op) for op in run)
        return tuple(all_reduces(self.template, (), self._axes_of(split, long) if reduces else ()))

    def single(self) -> Iterator[Frame]:
        """One contraction from and to the outer memory."""
        (op,) = self.runs[0]
        role = roles(self.workload, op)
        dims = (*role.batch, *role.rows, *role.columns, *role.reduced)
        for split in self._splits(dims):
            inside = member_ranges(self.template, split, self.ranges)
            joined = joins(self.template, self.workload, op, split, stays=False)
            skeletons = gemm_skeletons(
                self.workload, self.template, op, "", always(inside), self._sizes, loop_orders(role), op.inputs,
                False, joined, None, True,
            )  # fmt: skip
            stage = Stage(op.name, (op.name,), tuple(skeletons))
            yield self._frame("single", split, (), (stage,), (), bool(set(split) & set(role.reduced)))

    def _frame(
        self,
        kind: str,
        split: Split,
        shared: tuple[Slot, ...],
        stages: tuple[Stage, ...],
        holds: tuple[tuple[str, ...], ...],
        reduces: bool,
    ) -> Frame:
        """A frame whose split lies outside all loops: batch dims one by one, then rows by the shared tile, then holds."""
        handover = Handover(self.workload, self.template.output, holds, tuple(self.runs))

        def wrap(tiles: Tiles, nodes: Sequence[Node], cut: Cut, shares: Shares | None) -> Node:
            node = handover.body(nodes, cut, shares)
            for slot in reversed(shared):
                node = Temporal(slot.dim, tiles[slot.name], node)
            for dim in reversed(self.batch):
                node = Temporal(dim, 1, node)
            return spread(self.template, split, self.ranges, node)

        return Frame(f"{kind}, clusters split {named(split)}", shared, stages, wrap, reduces)

    def _long(self, ops: Sequence[Op]) -> str:
        """The dim of vector operations that they reduce over, or their last that may be cut."""
        for op in ops:
            if self.workload.reduced(op):
                return self.workload.reduced(op)[0]
        return next((dim for dim in reversed(ops[0].dims) if dim not in self.whole), ops[0].dims[-1])

    def rows(self) -> Iterator[Frame]:
        """One run of vector operations from and to the outer memory."""
        ops = self.runs[0]
        long = self._long(ops)
        free = dict.fromkeys(dim for dim in (*self.batch, self.row, long) if dim not in self.whole)
        for split in self._splits(free):
            joined = self._joins(split, long, ops)
            inside = member_ranges(self.template, split, self.ranges)
            skeletons: list[Skeleton] = []
            for join in joined:
                stage = RowStage(self.workload, self.template, ops, long, frozenset(), join)
                skeletons += chunked_skeletons(stage, always(inside), self._sizes, "v", self.row, (), None)
            stages = (Stage("rows", tuple(op.name for op in ops), tuple(skeletons)),)
            yield self._frame("rows", split, (), stages, (), any(joined))

    def _row_slot(self, ranges: Ranges) -> Slot:
        return Slot("rows", self.row, self._sizes(self.row), lambda t: ranges[self.row])

    def _resident_groups(self) -> tuple[tuple[str, ...], ...]:
        """Intermediates in the output buffers: chains in place share one buffer."""
        left = list(self.inside)
        result: list[tuple[str, ...]] = []
        while left:
            chain = tuple(name for name in in_place(self.workload, self.ops, left[0]) if name in self.inside)
            result.append(chain)
            left = [name for name in left if name not in chain]
        return tuple(result)

    def resident(self) -> Iterator[Frame]:
        """Contractions and vector runs whose intermediates stay in the clusters."""
        columns = roles(self.workload, self.runs[0][0]).columns
        vector = [op for run in self.runs for op in run if op.kind is not OpKind.CONTRACT]
        long = self._long(vector) if vector else next(reversed(columns), "")
        # other dims that vector operations reduce over would leave their results partial
        summed = {dim for op in vector for dim in self.workload.reduced(op)} - {long}
        dims = tuple(dict.fromkeys(dim for dim in (*self.batch, self.row, *columns) if dim not in summed))
        for split in self._splits(dims):
            inside = member_ranges(self.template, split, self.ranges)
            reduces = long in split and any(long in self.workload.reduced(op) for op in self.ops)
            shared = (self._row_slot(inside),)

            def ranges(tiles: Tiles, inside: Ranges = inside) -> Ranges:
                return {**inside, self.row: minimum(inside[self.row], tiles["rows"]), **dict.fromkeys(self.batch, 1)}

            stages = self._resident_stages(inside, ranges, split, long)
            yield self._frame("resident", split, shared, tuple(stages), self._resident_groups(), reduces)

    def _resident_stages(self, inside: Ranges, ranges: Callable[[Tiles], Ranges], split: Split, long: str) -> list[Stage]:
        stages: list[Stage] = []
        for index, run in enumerate(self.runs):
            name, prefix = run[0].name if run[0].kind is OpKind.CONTRACT else f"rows {index}", _prefix(run)
            if run[0].kind is OpKind.CONTRACT:
                skeletons = self._resident_gemm(run[0], prefix, inside, ranges, split)
            else:
                skeletons = []
                for join in self._joins(split, long, run):
                    stage = RowStage(self.workload, self.template, run, long, frozenset(self.inside), join)
                    skeletons += resident_skeletons(stage, ranges, self._sizes, prefix, self.row)
            stages.append(Stage(name, tuple(op.name for op in run), tuple(skeletons)))
        return stages

    def _resident_gemm(
        self, op: Op, prefix: str, inside: Ranges, ranges: Callable[[Tiles], Ranges], split: Split
    ) -> list[Skeleton]:
        role = roles(self.workload, op)
        stays = op.outputs[0] in self.inside
        from_outside = tuple(name for name in op.inputs if name not in self.inside)
        return gemm_skeletons(
            self.workload, self.template, op, prefix, ranges, self._sizes, outer_orders(role, not stays), from_outside,
            stays, joins(self.template, self.workload, op, split, stays),
        )  # fmt: skip

    def walkable(self) -> Iterator[str]:
        """Dims that stages through the shared buffer may walk inside their rows: those of every op, which none reduces over but
        contractions whose sums leave. These sums grow from tile to tile; what else leaves, or is handed over, is done with. None
        where something is handed over and leaves."""
        here = {op.name for op in self.ops}
        if any(self.workload.leaves(name, here) for name in self._handed_over()):
            return
        barred = {*self.batch, self.row, *self.whole}
        for dim in self.ops[0].dims:
            reducing = [op for op in self.ops if dim in self.workload.reduced(op)]
            leave = all(op.kind is OpKind.CONTRACT and not set(op.outputs) & set(self.inside) for op in reducing)
            if leave and self.workload.dims[dim] > 1 and dim not in barred and all(dim in op.dims for op in self.ops):
                yield dim

    def walking(self) -> Iterator[Frame]:
        """Stages through the shared buffer that walk a dim inside their rows. What lacks the dim, and so is the same for all of
        its tiles, is held around these: sums, for they grow, and any of the inputs, or else each stage brings its own. Where
        all of it is, stages also overlap."""
        made = {name for op in self.ops for name in op.outputs}
        for dim in self.walkable():
            touched = dict.fromkeys(name for op in self.ops for name in (*op.inputs, *op.outputs))
            same = [name for name in touched if dim not in self.workload.tensors[name].dims]
            for chosen in product(*((True,) if name in made else (False, True) for name in same)):
                kept = tuple(compress(same, chosen))
                frame = _Maker(self.workload, self.template, self.ops, self.laid, dim, kept).through_shared()
                yield frame
                if all(chosen):
                    yield from frame.overlapped()

    def through_shared(self) -> Frame:
        """Contractions and vector runs that hand over through the shared buffer, each with its own split."""
        groups = tuple((handed,) for handed in self._handed_over())
        handover = Handover(self.workload, self.template.shared, groups, tuple(self.runs))
        stages = tuple(map(self.shared_stage, range(len(self.runs))))
        rows = self._slot(self.row)
        shared = [rows, *([self._slot(self.walk)] if self.walk else ())]
        around = buffers(f"{' '.join(self.kept)} in {self.template.shared}")

        def wrap(tiles: Tiles, nodes: Sequence[Node], cut: Cut, shares: Shares | None) -> Node:
            node = handover.body(nodes, cut, shares)
            for slot in shared[1:]:
                node = Temporal(slot.dim, tiles[slot.name], node)
            if self.kept:
                node = Hold(self.template.shared, tuple((name,) for name in self.kept), node, tiles[around.name])
            node = Temporal(self.row, tiles[rows.name], node)
            for dim in reversed(self.batch):
                node = Temporal(dim, 1, node)
            return node

        reduces = any(skeleton.splits_reduction for stage in stages for skeleton in stage.skeletons)
        slots = (*shared, around) if self.kept else tuple(shared)
        kept = tuple((name, frozenset(at for at, run in enumerate(self.runs) if _touches(run, name))) for name in self.kept)
        return Frame(self._name(), slots, stages, wrap, reduces, kept=kept)

    def _name(self) -> str:
        if not self.walk:
            return "through the shared buffer"
        return f"through the shared buffer, {self.walk} walked" + (f" beside {' '.join(self.kept)}" if self.kept else "")

    def _slot(self, dim: str) -> Slot:
        """The tile that all stages through the shared buffer have of a dim."""
        name, sizes = ("rows", self._sizes(dim)) if dim == self.row else (f"tile of {dim}", halvings)
        return self.laid.tiles.setdefault((name, dim), Slot(name, dim, sizes, lambda tiles: self.ranges[dim]))

    def pipelined(self, whole: Frame) -> Iterator[Family]:
        """The same with stages on shares of the clusters: of each axis that is not like one before, in every way."""
        for axis in {replace(axis, name=""): axis for axis in reversed(self.template.axes)}.values():
            if axis.size > 1:
                yield Family(self.template.level, axis.name, axis.size, whole, partial(self._on_share, axis.name))

    def _on_share(self, axis: str, stage: int, members: int) -> Stage:
        """A stage as it is laid out on some members of an axis."""
        return _Maker(self.workload, self.template.narrowed(axis, members), self.ops, self.laid).shared_stage(stage)

    def shared_stage(self, index: int) -> Stage:
        """A stage that reads from and writes to the shared buffer, with its own split: the same in all groups that walk the same
        rows and batch around it, hand over the same of its tensors, and leave the same of its dims whole."""
        run = self.runs[index]
        there = (*self._handed_over(), *self.kept)
        handed = tuple(name for name in there if _touches(run, name))
        whole = frozenset(dim for op in run for dim in op.dims if dim in self.whole)
        key = self.template.axes, run, self.row, self.walk, self.batch, handed, whole
        if key not in self.laid.stages:
            self.laid.stages[key] = self._shared_stage(run, handed)
        return self.laid.stages[key]

    def _shared_stage(self, run: tuple[Op, ...], handed: tuple[str, ...]) -> Stage:
        slots = [self._slot(dim) for dim in (self.row, self.walk) if dim]

        def ranges(tiles: Tiles) -> Ranges:
            cut = {slot.dim: minimum(self.ranges[slot.dim], tiles[slot.name]) for slot in slots}
            return {**self.ranges, **cut, **dict.fromkeys(self.batch, 1)}

        if run[0].kind is OpKind.CONTRACT:
            skeletons = self._shared_gemm(run[0], _prefix(run), handed, ranges)
        else:
            skeletons = self._shared_rows(run, _prefix(run), ranges)
        return Stage(run[0].name, tuple(op.name for op in run), tuple(skeletons))

    def _shared_gemm(
        self, op: Op, prefix: str, handed: tuple[str, ...], ranges: Callable[[Tiles], Ranges]
    ) -> list[Skeleton]:
        role = roles(self.workload, op)
        staged = tuple(name for name in op.inputs if name not in handed)
        leaves = op.outputs[0] not in handed
        skeletons: list[Skeleton] = []
        dims, reduced = (self._splittable(dims, (op,)) for dims in ((*role.rows, *role.columns), role.reduced))
        for split in splits(self.template, self.workload, (*dims, *reduced)):
            skeletons += gemm_skeletons(
                self.workload, self.template, op, prefix, ranges, self._sizes, outer_orders(role, leaves), staged,
                False, joins(self.template, self.workload, op, split, stays=False), split, leaves,
            )  # fmt: skip
        return skeletons

    def _shared_rows(self, run: tuple[Op, ...], prefix: str, ranges: Callable[[Tiles], Ranges]) -> list[Skeleton]:
        long = self._long(run)
        skeletons: list[Skeleton] = []
        for split in self._splits((self.row, long), run):
            for join in self._joins(split, long, run):
                stage = RowStage(self.workload, self.template, run, long, frozenset(), join)
                skeletons += chunked_skeletons(stage, ranges, self._sizes, prefix, self.row, (), split)
        return skeletons

    def _handed_over(self) -> tuple[str, ...]:
        """Intermediates that one stage makes and another reads."""
        result = []
        for run in self.runs:
            mine = {name for op in run for name in op.outputs}
            readers = {name for other in self.runs if other is not run for op in other for name in op.inputs}
            result += [name for name in dict.fromkeys(n for op in run for n in op.outputs) if name in mine & readers]
        return tuple(result)

    def streamed(self) -> Iterator[Frame]:
        """Attention with running softmax: scores of one tile of keys at a time, accumulators in the clusters."""
        scores, values = (op for op in self.ops if op.kind is OpKind.CONTRACT)
        running = [op for op in self.ops if self.ops.index(scores) < self.ops.index(op) < self.ops.index(values)]
        closing = [op for op in self.ops if self.ops.index(op) > self.ops.index(values)]
        key = roles(self.workload, scores).columns[0]
        statistics = tuple(name for op in running for name in op.outputs if key not in self.workload.tensors[name].dims)
        state = (*((name,) for name in statistics), values.outputs)
        for split in self._splits((*self.batch, self.row, key)):
            axes = self._axes_of(split, key)
            inside = member_ranges(self.template, split, self.ranges)
            yield self._streamed_frame(scores, values, running, closing, key, statistics, state, split, axes, inside)

    def _streamed_frame(
        self, scores: Op, values: Op, running: list[Op], closing: list[Op], key: str, statistics: tuple[str, ...],
        state: tuple[tuple[str, ...], ...], split: Split, axes: tuple[Axis, ...], inside: Ranges,
    ) -> Frame:  # fmt: skip
        template, workload = self.template, self.workload
        key_slot = Slot("keys", key, self._sizes(key), lambda t: inside[key])
        staged = tuple(name for name in (scores.inputs[1], values.inputs[1]))
        queries, keys = buffers(f"{scores.inputs[0]} in {template.shared}"), buffers(f"{' '.join(staged)} in {template.shared}")
        shared = (self._row_slot(inside), key_slot, queries, keys)
        sizes = self._sizes

        def ranges(tiles: Tiles) -> Ranges:
            cut = {self.row: minimum(inside[self.row], tiles["rows"]), key: minimum(inside[key], tiles["keys"])}
            return {**inside, **cut, **dict.fromkeys(self.batch, 1)}

        def after_keys(tiles: Tiles) -> Ranges:
            return {**ranges(tiles), key: inside[key]}

        middle = RowStage(workload, template, tuple(running), key, frozenset(self.inside))
        end = RowStage(workload, template, tuple(closing), closing[0].dims[-1], frozenset(self.inside))
        first = gemm_skeletons(workload, template, scores, "0", ranges, sizes, (NO_LOOPS,), (), True)
        second = gemm_skeletons(workload, template, values, "2", ranges, sizes, (NO_LOOPS,), (), True)
        (last,) = resident_skeletons(end, after_keys, sizes, "3", self.row)
        stages = (
            Stage(scores.name, (scores.name,), tuple(first)),
            Stage("rows 1", tuple(op.name for op in running), tuple(resident_skeletons(middle, ranges, sizes, "1", self.row))),
            Stage(values.name, (values.name,), tuple(second)),
            Stage("close", tuple(op.name for op in closing), tuple(self._joined(last, (statistics, values.outputs), axes))),
        )
        chain = in_place(workload, [scores, *running], scores.outputs[0])
        handover = Handover(workload, template.output, (chain,), tuple(self.runs[:3]))

        def wrap(tiles: Tiles, nodes: Sequence[Node], cut: Cut, shares: Shares | None) -> Node:
            inner = Hold(template.shared, tuple((t,) for t in staged), handover.body(nodes[:3], cut, shares), tiles[keys.name])
            node = handover.carried(state, Steps((Temporal(key, tiles["keys"], inner), nodes[3])), cut)
            node = Hold(template.shared, ((scores.inputs[0],),), node, tiles[queries.name])
            node = Temporal(self.row, tiles["rows"], node)
            for dim in reversed(self.batch):
                node = Temporal(dim, 1, node)
            return spread(template, split, self.ranges, node)

        return Frame(f"streamed, clusters split {named(split)}", shared, stages, wrap, bool(axes), streamed=True, behind=1)

    def _joined(self, last: Skeleton, states: Sequence[tuple[str, ...]], axes: tuple[Axis, ...]) -> Iterator[Skeleton]:
        """The closing stage after the all-reduces that join the members' states, one shape per way to do that."""
        for join in all_reduces(self.template, (), axes):
            joins = tuple(replace(part, tensors=tensors) for tensors in states for part in join)

            def build(tiles: Tiles, joins: tuple[Node, ...] = joins) -> Node:
                return Steps((*joins, last.build(tiles))) if joins else last.build(tiles)

            name = last.name + (f", after{told(join)[1:]}" if join else "")
            yield Skeleton(name, last.slots, build, bool(joins))
