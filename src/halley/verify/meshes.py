"""Runs a sharding on arrays: members of a mesh that have what their layouts give them, and the collectives between them.

Every member has each tensor as an array of its full shape, NaN where it has nothing. Ops see only what their layouts say, so
that a collective that is missing shows as NaN or as a wrong number. Only the ways and moves of a sharding are read, none of its
costs; bytes are counted here from what members really have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.execute.arithmetic import evaluate
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Partial, Shard
from halley.ir.workload import Op, OpKind, Workload
from halley.sharding.layouts import CollectiveStep, Layout, Mesh
from halley.sharding.solution import Redistribution, Sharding

Member = tuple[int, ...]
Array = NDArray[Any]
Parts = dict[Member, Array]
Arrays = Mapping[str, Array]
Copies = list[tuple[Redistribution, Layout, Parts]]


class WrongShare(Exception):
    """A member lacks what an op or a collective needs, or has something else."""


def _require(holds: bool | np.bool_, message: str) -> None:
    if not holds:
        raise WrongShare(message)


def whole_graph(workload: Workload, given: Arrays) -> dict[str, Array]:
    """All tensors of the graph on one member."""
    known = {name: np.asarray(array, dtype=float) for name, array in given.items()}
    for op in workload.ops:
        ranges = {dim: (0, extent) for dim, extent in workload.dims.items()}
        result = evaluate(workload, op, workload.reduced(op), ranges, [known[name] for name in op.inputs])
        known |= {name: np.asarray(array) for name, array in zip(op.outputs, result.state, strict=True)}
    return known


@dataclass
class MeshRun:
    """A sharding at work. ``bytes``: of each collective that was made, as members saw it. ``counts``: indices of a dim that each
    member has, by the axes that split it."""

    plan: Sharding
    given: Arrays
    kept: dict[str, Parts] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    bytes: list[tuple[CollectiveStep, int]] = field(default_factory=list)
    history: dict[str, list[tuple[Layout, Parts]]] = field(default_factory=dict)
    counts: dict[tuple[str, tuple[bool, ...]], NDArray[np.int64]] = field(default_factory=dict)

    @property
    def work(self) -> Workload:
        return self.plan.problem.workload

    @property
    def mesh(self) -> Mesh:
        return self.plan.problem.mesh

    @property
    def members(self) -> list[Member]:
        return list(itertools.product(*(range(axis.ranks) for axis in self.mesh)))

    def run(self) -> dict[str, Array]:
        """The outputs, put together from the members' shares."""
        for name, layout in self.plan.ends.items():
            if name in self.given:
                self.layouts[name] = layout
                self.kept[name] = {m: self.share(name, np.asarray(self.given[name], float), layout, m) for m in self.members}
        for number, op in enumerate(self.work.ops):
            copies = self.moved(number)
            self.compute(op, copies)
        copies = self.moved(len(self.work.ops))
        for name in self.work.outputs:
            if name not in self.outputs:
                self.leave(name, copies)
        return self.outputs

    # -- who has what

    def mine(self, dim: str, layout: Layout, member: Member) -> Array:
        """Which indices of a dim a member has: a digit of the block's number per axis."""
        extent = self.work.dims[dim]
        blocks = math.prod(axis.ranks for axis in self.mesh)
        number = np.arange(extent) // -(-extent // blocks)
        found = np.ones(extent, bool)
        for axis, place, coordinate in zip(reversed(self.mesh), reversed(layout), reversed(member), strict=True):
            if place == Shard(dim):
                found &= number % axis.ranks == coordinate
            number = number // axis.ranks
        return np.flatnonzero(found)

    def elements(self, tensor: str, layout: Layout) -> int:
        """Elements of a tensor on the member that has most, counted index by index."""
        totals = np.ones(len(self.members), np.int64)
        for dim in self.work.tensors[tensor].dims:
            key = dim, tuple(place == Shard(dim) for place in layout)
            if key not in self.counts:
                self.counts[key] = np.array([self.mine(dim, layout, member).size for member in self.members], np.int64)
            totals *= self.counts[key]
        return int(totals.max())

    def equal(self, layout: Layout) -> bool:
        """Whether all members have equally many elements, however the blocks of each dim are divided among the axes."""
        blocks = math.prod(axis.ranks for axis in self.mesh)
        return all(self.work.dims[place.dim] % blocks == 0 for place in layout if isinstance(place, Shard))

    def carried(self, tensor: str, step: CollectiveStep) -> int:
        """Bytes of a collective by the convention of its kind: what a member has after an all-gather, before the others."""
        layout = step.after if step.kind is CollectiveKind.ALL_GATHER else step.before
        return self.elements(tensor, layout) * self.work.tensors[tensor].word

    def box(self, tensor: str, layout: Layout, member: Member) -> tuple[Array, ...]:
        return np.ix_(*(self.mine(dim, layout, member) for dim in self.work.tensors[tensor].dims))

    def share(self, tensor: str, array: Array, layout: Layout, member: Member) -> Array:
        """The array with NaN where the layout gives the member nothing."""
        found = np.full(array.shape, np.nan)
        box = self.box(tensor, layout, member)
        found[box] = array[box]
        return found

    def groups(self, axes: tuple[str, ...]) -> list[list[Member]]:
        """Members that differ along these axes alone."""
        found: dict[Member, list[Member]] = {}
        for member in self.members:
            key = tuple(-1 if axis.name in axes else place for axis, place in zip(self.mesh, member, strict=True))
            found.setdefault(key, []).append(member)
        return list(found.values())

    # -- collectives

    def moved(self, number: int) -> Copies:
        """Makes the moves before an op; gives the copies."""
        copies: Copies = []
        self.history = {name: [(self.layouts[name], parts)] for name, parts in self.kept.items()}
        for move in self.plan.redistributions:
            if move.at != number or move.inside:
                continue
            parts, layout = self.kept[move.tensor], self.layouts[move.tensor]
            for step in move.steps:
                _require(step.before == layout, f"{move.tensor} has the layout {layout}; the step expects {step.before}")
                parts, layout = self.step(move.tensor, parts, step), step.after
            if move.copy:
                copies.append((move, layout, parts))
            else:
                self.kept[move.tensor], self.layouts[move.tensor] = parts, layout
                self.history[move.tensor].append((layout, parts))
        if number == self.between:
            for name in self.work.outputs:
                if name in self.plan.saved:
                    self.leave(name, copies)
        return copies

    @property
    def between(self) -> int:
        names = [op.name for op in self.work.ops]
        backward = self.plan.problem.backward
        return names.index(backward) if backward else len(names)

    def step(self, tensor: str, parts: Parts, step: CollectiveStep) -> Parts:
        """One collective: members of a group see each other's shares and nothing else."""
        found: Parts = {}
        for group in self.groups(step.axes):
            joined = joined_by(step, self.mesh, [parts[member] for member in group]) if step.kind else None
            for member in group:
                seen = parts[member] if joined is None else joined
                found[member] = self.share(tensor, seen, step.after, member)
                have = ~np.isnan(found[member][self.box(tensor, step.after, member)])
                _require(have.all(), f"after the {step.kind} of {tensor}, {member} lacks elements of {step.after}")
        if step.kind is not None:
            counted = found if step.kind is CollectiveKind.ALL_GATHER else parts
            held = max(int((~np.isnan(array)).sum()) for array in counted.values())
            size = held * self.work.tensors[tensor].word
            _require(size == self.carried(tensor, step), f"{step.kind} of {tensor} carries {size} B, not what its layout says")
            self.bytes.append((step, size))
        return found

    def leave(self, name: str, copies: Copies) -> None:
        wanted = self.plan.ends[name]
        versions = list(self.history[name])
        versions += [(layout, parts) for move, layout, parts in copies if move.tensor == name and not move.reader]
        found = [parts for layout, parts in versions if layout == wanted]
        _require(bool(found), f"{name} has to end as {wanted}; known layouts: {[layout for layout, _ in versions]}")
        parts = found[0]
        whole = np.full(parts[self.members[0]].shape, np.nan)
        for member in self.members:
            box = self.box(name, wanted, member)
            same = np.isnan(whole[box]).all() or np.allclose(whole[box], parts[member][box], equal_nan=False)
            _require(bool(same), f"members have different values of {name}")
            whole[box] = parts[member][box]
        self.outputs[name] = whole

    # -- ops

    def compute(self, op: Op, copies: Copies) -> None:
        strategy = self.plan.strategy(op.name)
        operands = [self.operand(op, place, copies) for place in range(len(op.inputs))]
        results: list[Parts] = [{} for _ in op.outputs]
        counts: dict[Member, int] = {}
        for member in self.members:
            own = [
                self.share(name, array[member], tuple(way.reads[place] for way in strategy), member)
                for place, (name, array) in enumerate(zip(op.inputs, operands, strict=True))
            ]
            made, counts[member] = self.local(op, member, own)
            for parts, array in zip(results, made, strict=True):
                parts[member] = array
        axes = tuple(axis.name for axis, way in zip(self.mesh, strategy, strict=True) if way.collective is not None)
        if axes:
            results = self.inherent(op, results, counts, axes)
        for place, (name, parts) in enumerate(zip(op.outputs, results, strict=True)):
            layout = tuple(way.writes[place] for way in strategy)
            self.kept[name] = {member: self.share(name, array, layout, member) for member, array in parts.items()}
            self.layouts[name] = layout

    def operand(self, op: Op, place: int, copies: Copies) -> Parts:
        name = op.inputs[place]
        wanted = tuple(way.reads[place] for way in self.plan.strategy(op.name))
        # an op that reads a tensor twice may find it in what was kept between the two reads
        versions = list(self.history[name] if op.inputs.count(name) > 1 else self.history[name][-1:])
        versions += [(layout, parts) for move, layout, parts in copies if move.tensor == name and move.reader == op.name]
        found = [parts for layout, parts in versions if layout == wanted]
        _require(bool(found), f"{op.name} reads {name} as {wanted}; known layouts: {[layout for layout, _ in versions]}")
        return found[0]

    def local(self, op: Op, member: Member, own: list[Array]) -> tuple[list[Array], int]:
        """What a member makes of its shares, in arrays of full shape, and how many points it reduced."""
        ranges = {dim: (0, extent) for dim, extent in self.work.dims.items()}
        if op.kind is OpKind.GATHER:
            return [self.gathered(op, own)], 1
        if op.kind is OpKind.SCATTER:
            if len(op.inputs) == 1:
                box = self.box(op.inputs[0], tuple(way.reads[0] for way in self.plan.strategy(op.name)), member)
                _require(not np.isnan(own[0][box]).any(), f"{member} lacks elements of {op.inputs[0]}")
            return [self.scattered(op, own)], 1
        if op.kind in (OpKind.MAP, OpKind.WINDOW):  # a window's taps are numbered as in the whole op
            return list(evaluate(self.work, op, (), ranges, own).state), 1
        strategy = self.plan.strategy(op.name)
        boxes = [self.box(name, tuple(way.reads[place] for way in strategy), member) for place, name in enumerate(op.inputs)]
        shares = [array[box] for array, box in zip(own, boxes, strict=True)]
        extents = dict(self.work.dims)
        for name, array in zip(op.inputs, shares, strict=True):
            extents |= dict(zip(self.work.tensors[name].dims, array.shape, strict=True))
        outs = [self.box(name, tuple(way.writes[place] for way in strategy), member) for place, name in enumerate(op.outputs)]
        for name, box in zip(op.outputs, outs, strict=True):
            extents |= {dim: index.size for dim, index in zip(self.work.tensors[name].dims, box, strict=True)}
        if not all(extents.values()):
            return [self.neutral(op, place, box) for place, box in enumerate(outs)], 0
        small = replace(self.work, dims=extents)
        result = evaluate(small, op, small.reduced(op), {dim: (0, extent) for dim, extent in extents.items()}, shares)
        made = []
        for name, box, array in zip(op.outputs, outs, result.state, strict=True):
            full = np.full([self.work.dims[dim] for dim in self.work.tensors[name].dims], np.nan)
            full[box] = array
            made.append(full)
        return made, math.prod(extents[dim] for dim in small.reduced(op))

    def neutral(self, op: Op, place: int, box: tuple[Array, ...]) -> Array:
        """What a member without points adds."""
        full = np.full([self.work.dims[dim] for dim in self.work.tensors[op.outputs[place]].dims], np.nan)
        full[box] = -np.inf if op.monoid == "max" or (op.monoid == "softmax" and place == 0) else 0.0
        return full

    def gathered(self, op: Op, own: list[Array]) -> Array:
        """Rows that the member lacks count as zero, where another member adds them."""
        at = next(place for place, name in enumerate(op.inputs) if self.work.tensors[name].dtype.startswith("int"))
        known = ~np.isnan(own[at])
        rows = [np.where(known, own[at], 0), own[1 - at]] if at == 0 else [own[1 - at], np.where(known, own[at], 0)]
        apart = any(way.split == op.along or way.collective is not None for way in self.plan.strategy(op.name))
        filled = [array if place == at or not apart else np.nan_to_num(array) for place, array in enumerate(rows)]
        return np.asarray(evaluate(self.work, op, (), {d: (0, e) for d, e in self.work.dims.items()}, filled).state[0])

    def scattered(self, op: Op, own: list[Array]) -> Array:
        """Elements that the member lacks count as zero: they are those of other members, whose results it does not leave."""
        ranges = {dim: (0, extent) for dim, extent in self.work.dims.items()}
        if len(op.inputs) == 1:  # windows, added where they overlap
            return np.asarray(evaluate(self.work, op, (), ranges, [np.nan_to_num(own[0])]).state[0])
        at = next(place for place, name in enumerate(op.inputs) if self.work.tensors[name].dtype.startswith("int"))
        filled = [np.nan_to_num(array) for array in own]
        index, source = self.work.tensors[op.inputs[at]].dims, self.work.tensors[op.inputs[1 - at]].dims
        unknown = np.isnan(own[at])
        spread = [dim for dim in source if dim not in index]
        order = [*(dim for dim in source if dim in index)]
        wide = np.transpose(unknown, [index.index(dim) for dim in order])
        for place, dim in enumerate(source):
            if dim in spread:
                wide = np.expand_dims(wide, place)
        _require((np.isnan(own[1 - at]) | ~np.broadcast_to(wide, own[1 - at].shape)).all(), "an index is missing")
        return np.asarray(evaluate(self.work, op, (), ranges, filled).state[0])

    def inherent(self, op: Op, results: list[Parts], counts: Mapping[Member, int], axes: tuple[str, ...]) -> list[Parts]:
        """Rows that members exchange; states that they combine."""
        found: list[Parts] = [{} for _ in results]
        for group in self.groups(axes):
            states: list[Any] = [([parts[member] for parts in results], counts[member]) for member in group]
            if op.kind in (OpKind.GATHER, OpKind.SCATTER):
                state = [np.sum([each[0] for each, _ in states], axis=0)]
            else:
                state = list(reduce(lambda a, b: merged(op.monoid, a, b), states)[0])
            for parts, array in zip(found, state, strict=True):
                parts |= dict.fromkeys(group, array)
        return found


def merged(monoid: str, a: Any, b: Any) -> Any:
    """Two states with the points that each has seen: of a softmax (maximum, sum), or Chan's rule (mean, squared deviations)."""
    (first, second), (third, fourth), n, k = a[0], b[0], a[1], b[1]
    if not n or not k:
        return a if n else b
    if monoid == "softmax":
        top = np.maximum(first, third)
        return [top, second * np.exp(first - top) + fourth * np.exp(third - top)], n + k
    return [(first * n + third * k) / (n + k), second + fourth + (third - first) ** 2 * n * k / (n + k)], n + k


def joined_by(step: CollectiveStep, mesh: Mesh, arrays: list[Array]) -> Array:
    """What the members of a group know together: sums or maxima of partial values, the union of shares."""
    stack = np.stack(arrays)
    if step.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
        monoid = next(
            place.monoid
            for place, axis in zip(step.before, mesh, strict=True)
            if axis.name in step.axes and isinstance(place, Partial)
        )
        _require((np.isnan(stack).all(axis=0) | ~np.isnan(stack).any(axis=0)).all(), "members add up different elements")
        return np.asarray(stack.sum(axis=0) if monoid == "sum" else stack.max(axis=0))
    seen = (~np.isnan(stack)).sum(axis=0)
    _require((seen <= 1).all(), "two members have the same element")
    return np.where(seen > 0, np.nan_to_num(stack, nan=0.0, posinf=np.inf, neginf=-np.inf).sum(axis=0), np.nan)
