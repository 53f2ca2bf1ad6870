"""Stages of vector operations: rows resident in the clusters, filled in chunks, or streamed in passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from halley.formulas.numbers import Number
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Temporal
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, Workload
from halley.mapping.space.hierarchy import Hierarchy
from halley.mapping.space.stages import (
    Join,
    Ranges,
    Skeleton,
    Slot,
    Split,
    Tiles,
    buffers,
    in_place,
    join_text,
    member_ranges,
    named,
    of_dim,
    passes,
    spread,
)
from halley.mapping.space.tile_sizes import Sizes
from halley.rewrite.rounds import buffers_needed, touches_of


@dataclass(frozen=True, slots=True)
class RowStage:
    """What a vector stage works on: its ops, the long dim that may be split or streamed, tensors that already lie in the
    clusters, and the all-reduces that ``join`` what it reduces over the long dim, one for each axis that splits it."""

    workload: Workload
    hierarchy: Hierarchy
    ops: tuple[Op, ...]
    long: str
    resident: frozenset[str]
    join: Join = ()

    @property
    def made(self) -> tuple[str, ...]:
        return tuple(name for op in self.ops for name in op.outputs)

    @property
    def arriving(self) -> tuple[str, ...]:
        """Tensors from further out."""
        names = dict.fromkeys(name for op in self.ops for name in op.inputs)
        return tuple(name for name in names if name not in self.made and name not in self.resident)

    def main(self) -> str:
        """The first arriving tensor over the long dim: the buffer that the maps work in."""
        return next(name for name in self.arriving if self.long in self.workload.selectors(name))

    def steps(self, ops: Sequence[Op]) -> list[Node]:
        """Computes in order, with the all-reduce after each reduction over the split dim."""
        nodes: list[Node] = []
        for op in ops:
            nodes.append(Compute(op.name))
            if self.long in self.workload.reduced(op):
                nodes += self.combine(op.outputs)
        return nodes

    def combine(self, tensors: tuple[str, ...]) -> list[Node]:
        return [replace(part, tensors=tensors) for part in self.join]

    def statistics(self) -> tuple[str, ...]:
        """Tensors made here that lack the long dim."""
        return tuple(name for name in self.made if self.long not in self.workload.tensors[name].dims)


def overlapped(stage: RowStage, nodes: Sequence[Node], moved: Sequence[tuple[str, ...]]) -> Node:
    """Each of the `parts` as a child that works on another tile of rows than its neighbours, so that collectives and vector
    operations are concurrent. Statistics, and the groups of tensors that are ``moved`` (filled or drained), have a buffer for
    each tile in flight."""
    runs = parts(nodes)
    found = [touches_of(run, stage.workload).all for run in runs]
    node: Node = Overlap(runs)
    held = [(name,) for name in stage.statistics() if name not in stage.resident and (name,) not in moved]
    for group in (*held, *reversed(moved)):
        users = [at for at, names in enumerate(found) if not names.isdisjoint(group)]
        drained = any(stage.workload.leaves(name, {op.name for op in stage.ops}) for name in group)
        node = Hold(stage.hierarchy.vector, (group,), node, buffers_needed(users[0], users[-1], drained or group in moved))
    return node


def parts(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Each run of ops and each run of collectives, in order."""
    return tuple(one(list(run)) for _, run in groupby(nodes, lambda node: isinstance(node, Collective)))


def passed(stage: RowStage) -> frozenset[str]:
    """Tensors that the group holds and several of the stage's `parts` use."""
    users = [touches_of(part, stage.workload).all for part in parts(stage.steps(stage.ops))]
    return frozenset(name for name in stage.resident if sum(name in names for names in users) > 1)


def one(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Steps(tuple(nodes))


def groups(*groups: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(group for group in groups if group)


def resident_skeletons(
    stage: RowStage, ranges: Callable[[Tiles], Ranges], sizes: Callable[[str], Sizes], prefix: str, rows: str
) -> list[Skeleton]:
    """Rows already in the clusters: each op over the whole part, results that leave go out in chunks of rows."""
    memory = stage.hierarchy.memory(stage.hierarchy.vector)
    coming, leaving = (buffers(f"{prefix}rows that {way}", memory) for way in ("arrive", "leave"))
    # none of the stage reads what leaves, or it would stay
    last = [op for op in stage.ops if not set(op.outputs) & stage.resident]
    leaves = tuple((name,) for op in last for name in op.outputs)
    tile = Slot(f"{prefix}{rows}2", rows, sizes(rows), of_dim(ranges, rows))

    def with_arriving(node: Node, tiles: Tiles) -> Node:
        if not stage.arriving:
            return node
        return Hold(stage.hierarchy.vector, tuple((name,) for name in stage.arriving), node, tiles[coming.name])

    stays_last = not _overwritten(stage, last)

    def build(tiles: Tiles) -> Node:
        nodes: list[Node] = []
        order = sorted(stage.ops, key=lambda op: op in last) if stays_last else stage.ops
        for leave, run in groupby(order, lambda op: op in last):
            ops = list(run)
            nodes += [_in_chunks(stage, ops, rows, tiles[tile.name], tiles[leaving.name])] if leave else stage.steps(ops)
        return with_arriving(one(nodes), tiles)

    def in_rounds(tiles: Tiles) -> Node:
        return with_arriving(Temporal(rows, tiles[tile.name], overlapped(stage, stage.steps(stage.ops), leaves)), tiles)

    arriving = (coming,) if stage.arriving else ()
    slots = (*arriving, *((tile, leaving) if last else ()))
    name = join_text(stage.join)
    found = [Skeleton(lambda: f"rows in place{name}", slots, build, bool(stage.join))]
    if stage.join:
        rounds = (*arriving, tile)
        found.append(Skeleton(lambda: f"rows in place, overlapped{name}", rounds, in_rounds, True, passed=passed(stage)))
    return found


def _overwritten(stage: RowStage, last: Sequence[Op]) -> bool:
    """Whether one of the ``last`` ops reads a tensor in whose buffer a later op of the others writes its result."""
    workload = stage.workload
    pairs = ((op, later) for at, op in enumerate(stage.ops) if op in last for later in stage.ops[at + 1 :] if later not in last)
    return any(
        later.inputs[0] in op.inputs and later.outputs[0] in in_place(workload, workload.ops, later.inputs[0])
        for op, later in pairs
        if later.inputs
    )


def _in_chunks(stage: RowStage, ops: Sequence[Op], rows: str, tile: Number, count: Number) -> Node:
    """Ops whose results leave in chunks of rows."""
    leaves = tuple((name,) for op in ops for name in op.outputs)
    return Temporal(rows, tile, Hold(stage.hierarchy.vector, leaves, one(stage.steps(ops)), count))


def chunked_skeletons(
    stage: RowStage,
    ranges: Callable[[Tiles], Ranges],
    sizes: Callable[[str], Sizes],
    prefix: str,
    rows: str,
    outer: Sequence[str],
    inner_split: Split | None,
) -> list[Skeleton]:
    """Rows brought from further out, in chunks of whole rows, or streamed along the long dim in passes. ``outer``: dims of
    the loops outside the rows."""
    workload, hierarchy = stage.workload, stage.hierarchy
    main = stage.main()
    chain = in_place(workload, stage.ops, main)
    others = tuple(name for name in stage.arriving if name != main)
    extra = tuple(name for name in stage.made if name not in chain and name not in stage.statistics())
    held = groups(chain, *((name,) for name in (*others, *extra)))
    reduces = bool(stage.join)
    split_name = f", clusters split {named(inner_split)}" if inner_split else ""
    split_name += join_text(stage.join)

    vector = hierarchy.memory(hierarchy.vector)
    chunk, outer_buffer = (buffers(f"{prefix}{what}", vector) for what in ("chunks", "rows around passes"))
    short = tuple((name,) for name in others if stage.long not in workload.selectors(name))

    def wrap(tiles: Tiles, node: Node) -> Node:
        node = Temporal(rows, tiles[f"{prefix}{rows}2"], node)
        for slot in reversed(outer_slots):
            node = Temporal(slot.dim, tiles[slot.name], node)
        return spread(hierarchy, inner_split, ranges(tiles), node, tiles) if inner_split is not None else node

    def statistics(node: Node) -> Node:
        kept = tuple((name,) for name in stage.statistics())
        return Hold(hierarchy.vector, kept, node, 1) if kept else node

    def every_row(tiles: Tiles) -> Node:
        return wrap(tiles, Hold(hierarchy.vector, held, statistics(one(stage.steps(stage.ops))), tiles[chunk.name]))

    def in_rounds(tiles: Tiles) -> Node:
        return wrap(tiles, overlapped(stage, stage.steps(stage.ops), held))

    def here(tiles: Tiles) -> Ranges:
        return member_ranges(hierarchy, inner_split, ranges(tiles), tiles)

    row_slot, *outer_slots = (Slot(f"{prefix}{dim}2", dim, sizes(dim), of_dim(here, dim)) for dim in (rows, *outer))
    found = [Skeleton(lambda: f"whole rows{split_name}", (row_slot, *outer_slots, chunk), every_row, reduces)]
    if reduces:
        found.append(Skeleton(lambda: f"whole rows, overlapped{split_name}", (row_slot, *outer_slots), in_rounds, True))
    tiled = {slot.dim: slot for slot in (row_slot, *outer_slots)}
    cut = passes(workload, stage.ops, stage.long)
    if cut is not None and (stage.long not in tiled or short):  # along such a dim, with nothing kept around: as whole rows

        def streamed(tiles: Tiles) -> Node:
            nodes: list[Node] = []
            for part in cut:
                nodes += _pass(stage, part, tiles[long_slot.name], tiles[chunk.name])
            node = statistics(one(nodes))
            return wrap(tiles, Hold(hierarchy.vector, short, node, tiles[outer_buffer.name]) if short else node)

        if stage.long in tiled:  # tiles of its own tiles
            long_slot = Slot(f"{prefix}{stage.long}3", stage.long, sizes(stage.long), lambda t: t[tiled[stage.long].name])
        else:
            long_slot = Slot(f"{prefix}{stage.long}2", stage.long, sizes(stage.long), lambda t: here(t)[stage.long])
        slots = (row_slot, *outer_slots, long_slot, chunk, *((outer_buffer,) if short else ()))
        number = len(cut)
        found.append(Skeleton(lambda: f"rows streamed in {number} passes{split_name}", slots, streamed, reduces))
    return found


def _pass(stage: RowStage, ops: Sequence[Op], tile: Number, count: Number) -> list[Node]:
    """One pass: ops over the long dim in a loop over its tiles, the others around it."""
    workload = stage.workload
    flat_before: list[Node] = []
    inside = [op for op in ops if stage.long in op.dims]
    for op in ops:
        if stage.long not in op.dims and not any(set(op.inputs) & set(x.outputs) for x in inside):
            flat_before.append(Compute(op.name))
    nodes = flat_before
    if inside:
        touched = dict.fromkeys(name for op in inside for name in (*op.inputs, *op.outputs))
        tensors = [name for name in touched if stage.long in workload.selectors(name)]
        # none arrives where windows of a tensor that lacks the dim are copied
        start = next((name for name in tensors if name in stage.arriving), tensors[0])
        chain = in_place(workload, inside, start)
        rest = tuple((name,) for name in tensors if name not in chain)
        body = one([Compute(op.name) for op in inside])
        nodes.append(Temporal(stage.long, tile, Hold(stage.hierarchy.vector, (chain, *rest), body, count)))
        for op in inside:
            if stage.long in workload.reduced(op):
                nodes += stage.combine(op.outputs)
    nodes += [
        Compute(op.name) for op in ops if stage.long not in op.dims and any(set(op.inputs) & set(x.outputs) for x in inside)
    ]
    return nodes
