"""Properties of a fused group of ops that its frames need: its stages, the tensors between them, common dims, and dims that
clusters may split."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from halley.formulas.numbers import Number, minimum
from halley.ir.mapping import Node, Temporal
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.mapping.space.affine import taps, tiled
from halley.mapping.space.hierarchy import Hierarchy, LevelAxis
from halley.mapping.space.joins import all_reduces
from halley.mapping.space.stages import NOTHING, Join, Ranges, Slot, Split, Tiles, member_ranges, of_dim, splits
from halley.mapping.space.tile_sizes import Sizes, TileSizes, undivided


def walked(workload: Workload, op: Op) -> frozenset[str]:
    """The dims of an op that a group may walk as its rows. Ops have a frame together only where they have one of these in
    common."""
    able = op.dims if op.kind is not OpKind.CONTRACT else roles(workload, op).rows
    return frozenset(able) - {*workload.reduced(op), *workload.whole(op)}


def prefix(run: Sequence[Op]) -> str:
    """What the sizes of a stage are named by: its first op rather than its place, so that the stage has the same open sizes,
    and what is known of it, in every group that it is in."""
    return f"{run[0].name} "


def one_or_all(extent: int) -> tuple[int, ...]:
    """The sizes 1 and the whole extent.

    >>> one_or_all(1), one_or_all(6)
    ((1,), (1, 6))
    """
    return tuple(dict.fromkeys((1, extent)))


@dataclass(frozen=True, eq=False)
class FusedOps:
    """A fused group of ops, in the order of the workload, on a chip template."""

    workload: Workload
    hierarchy: Hierarchy
    ops: tuple[Op, ...]

    @cached_property
    def runs(self) -> tuple[tuple[Op, ...], ...]:
        """The ops of each stage: each contraction alone, vector operations that follow each other together."""
        result: list[tuple[Op, ...]] = []
        for op in self.ops:
            alone = op.kind is OpKind.CONTRACT
            if alone or not result or result[-1][0].kind is OpKind.CONTRACT:
                result.append((op,))
            else:
                result[-1] = (*result[-1], op)
        return tuple(result)

    @cached_property
    def inside(self) -> tuple[str, ...]:
        """Intermediates: tensors that one of the ops makes and one of them reads."""
        read = {name for op in self.ops for name in op.inputs}
        return tuple(name for op in self.ops for name in op.outputs if name in read)

    @cached_property
    def handed_over(self) -> tuple[str, ...]:
        """Intermediates that one stage makes and another reads."""
        result = []
        for run in self.runs:
            mine = {name for op in run for name in op.outputs}
            readers = {name for other in self.runs if other is not run for op in other for name in op.inputs}
            result += [name for name in dict.fromkeys(n for op in run for n in op.outputs) if name in mine & readers]
        return tuple(result)

    @cached_property
    def whole(self) -> frozenset[str]:
        """Dims that an op runs along (a scan, a transform), and further terms of affine indices: they stay whole."""
        along = (dim for op in self.ops for dim in self.workload.whole(op))
        return frozenset((*along, *(dim for op in self.ops for dim in taps(self.workload, op))))

    @cached_property
    def common(self) -> tuple[str, ...]:
        """Dims of every op that none reduces over, or needs whole."""
        dims = dict.fromkeys(dim for op in self.ops for dim in op.dims)
        reduced = {dim for op in self.ops for dim in self.workload.reduced(op)}
        return tuple(dim for dim in dims if all(dim in op.dims for op in self.ops) and dim not in reduced | self.whole)

    @cached_property
    def contractions(self) -> tuple[Op, ...]:
        return tuple(op for op in self.ops if op.kind is OpKind.CONTRACT)

    @cached_property
    def batch(self) -> tuple[str, ...]:
        """Dims that are walked one by one around the rows."""
        if not self.contractions:
            return ()
        return tuple(dim for dim in self.common if all(dim in roles(self.workload, op).batch for op in self.contractions))

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """Dims that vector operations alone walk tile by tile around the rows."""
        return () if self.contractions else self.common[:-1]

    @cached_property
    def row(self) -> str:
        """The dim that all stages walk tile by tile, if there is one. With several stages, contractions have it as rows: a batch
        dim of one that is a column of another, as heads of a projection and of attention, is none."""
        able = (dim for dim in self.common if dim not in (*self.batch, *self.outer))
        if len(self.runs) > 1:
            able = (dim for dim in able if all(dim in roles(self.workload, op).rows for op in self.contractions))
        return next(able, "")

    def connected(self) -> bool:
        """Whether every stage but the first reads what another made."""
        handed = set(self.handed_over)
        return all(handed & {name for op in run for name in (*op.inputs, *op.outputs)} for run in self.runs)

    def walks_rows(self) -> bool:
        """Whether there are rows that all ops can walk together, or there is one contraction alone."""
        return bool(self.row) or (len(self.runs) == 1 and bool(self.contractions))

    def splits(
        self, dims: Iterable[str], ops: Sequence[Op] = (), tiers: Collection[int] | None = None, summed: Collection[str] = ()
    ) -> tuple[Split, ...]:
        """Splits of dims that lie around some ops; around all of them, if none are given. ``tiers``, ``summed``: as for
        `halley.mapping.space.stages.splits`."""
        return splits(self.hierarchy, self.workload, self.splittable(dims, ops), tiers, summed)

    def splittable(self, dims: Iterable[str], ops: Sequence[Op] = ()) -> list[str]:
        """The dims that clusters may split around some ops; around all of them, if none are given."""
        among = ops or self.ops
        barred = frozenset().union(*(own for op in among for own in self.workload.unsplit(op)))
        # of the terms of a sum, members may split one
        barred |= {dim for op in among for index in op.indices for dim in set(index.dims) - {tiled(self.workload, index)}}
        return [dim for dim in dims if dim not in barred | self.whole]

    def axes_of(self, split: Split, dim: str) -> tuple[LevelAxis, ...]:
        """The axes that split a dim."""
        return tuple(axis for axis, name in zip(self.hierarchy.axes, split, strict=True) if name == dim)

    def row_joins(self, split: Split, long: str, run: Iterable[Op]) -> tuple[Join, ...]:
        """Every join of what vector operations reduce over a dim that is split: all members get the full result."""
        return tuple(all_reduces(self.hierarchy, (), self.axes_of(split, long) if self.reduces(run, long) else ()))

    def reduces(self, run: Iterable[Op], dim: str) -> bool:
        """Whether any of some ops reduces over a dim."""
        return any(dim in self.workload.reduced(op) for op in run)

    def long(self, ops: Sequence[Op]) -> str:
        """The dim of vector operations that they reduce over, or their last that may be cut."""
        for op in ops:
            if self.workload.reduced(op):
                return self.workload.reduced(op)[0]
        return next((dim for dim in reversed(ops[0].dims) if dim not in self.whole), ops[0].dims[-1])

    @cached_property
    def _tiles(self) -> TileSizes:
        return TileSizes(self.hierarchy.widths)

    def sizes(self, dim: str) -> Sizes:
        """Tile sizes to try for a dim; all of it where it stays whole."""
        return undivided if dim in self.whole else self._tiles

    def row_slot(self, ranges: Ranges) -> Slot:
        """The tile that all stages have of the rows, of these ranges."""
        return Slot("rows", self.row, self.sizes(self.row), lambda tiles: ranges[self.row])

    def batch_slots(self, ranges: Ranges) -> tuple[Slot, ...]:
        """How many items of each batch dim a round has: one, or all of these ranges."""
        return tuple(Slot(f"items of {dim}", dim, one_or_all, of_dim(lambda tiles: ranges, dim)) for dim in self.batch)

    def of_member(self, split: Split, tiles: Tiles = NOTHING) -> dict[str, Number]:
        """What a member has of each dim under a split around all ops. ``tiles`` may have the tile sizes of the split."""
        return member_ranges(self.hierarchy, split, self.workload.dims, tiles)

    def walking(self, ranges: Ranges, slots: Sequence[Slot]) -> Callable[[Tiles], Ranges]:
        """What stages have of each dim, in ranges that are walked by the tiles of some slots, and by batch dims one by one."""

        def inside(tiles: Tiles) -> Ranges:
            cut = {slot.dim: minimum(ranges[slot.dim], tiles[slot.name]) for slot in slots}
            return {**ranges, **dict.fromkeys(self.batch, 1), **cut}

        return inside

    def one_by_one(self, node: Node) -> Node:
        """A node in the loops over batch dims."""
        for dim in reversed(self.batch):
            node = Temporal(dim, 1, node)
        return node
