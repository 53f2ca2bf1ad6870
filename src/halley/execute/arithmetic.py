"""Evaluation of one op on a tile with NumPy, and how often the engines read and write the tile's elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halley.errors import Fault, IllegalMapping
from halley.execute.functions import (
    DEFINITIONS,
    MONOID_DEFINITIONS,
    Array,
    FunctionSite,
    State,
    causal_windows,
    scan,
    transform,
)
from halley.execute.members import Ranges
from halley.ir.hardware import Dataflow, MatrixEngine
from halley.ir.workload import Op, OpKind, Workload


@dataclass(frozen=True, slots=True)
class TileResult:
    """A tile of each output, and the number of points of the reduction that each of its elements contains."""

    state: State
    points: int


def align(array: Array, dims: Sequence[str], target: Sequence[str]) -> Array:
    """The array with its dims in the order of ``target``; dims that it lacks get extent 1.

    >>> align(np.zeros((2, 3)), ("n", "m"), ("m", "k", "n")).shape
    (3, 1, 2)
    """
    kept = [dim for dim in target if dim in dims]
    turned = array.transpose([dims.index(dim) for dim in kept])
    return turned.reshape([turned.shape[kept.index(dim)] if dim in kept else 1 for dim in target])


def evaluate(workload: Workload, op: Op, reduced: Sequence[str], ranges: Ranges, operands: Sequence[Array]) -> TileResult:
    """Run an op on the operands that the ranges select; each output has the order of its tensor's dims."""
    dims: list[tuple[str, ...]] = [workload.tensors[name].dims for name in op.inputs]
    shape = tuple(ranges[dim][1] - ranges[dim][0] for dim in op.dims)
    points = int(np.prod([ranges[dim][1] - ranges[dim][0] for dim in reduced], dtype=int))
    site = FunctionSite(op.name, dict(op.constants), tuple(ranges[dim][0] for dim in op.dims))
    for dim in workload.whole(op):
        _check_untiled(workload, op, dim, ranges)
    inside: Array = np.ones(1, bool)
    if op.indices and op.kind is not OpKind.SCATTER:
        read = [_read_at_sums(workload, op, own, array, ranges) for own, array in zip(dims, operands, strict=True)]
        operands, dims = [values for values, _, _ in read], [own for _, own, _ in read]
        for _, own, present in read:
            inside = inside & align(present, own, op.dims)
    aligned = [align(array, own, op.dims) for array, own in zip(operands, dims, strict=True)] if _aligns(op) else []
    target = workload.tensors[op.outputs[0]].dims
    with np.errstate(all="ignore"):
        match op.kind:
            case OpKind.CONTRACT:
                letters = {dim: index for index, dim in enumerate(op.dims)}
                terms = [x for array, own in zip(operands, dims, strict=True) for x in (array, [letters[d] for d in own])]
                return TileResult((np.asarray(np.einsum(*terms, [letters[d] for d in target])),), points)
            case OpKind.REDUCE:
                value = np.broadcast_to(DEFINITIONS[op.function](site, *aligned), shape)
                value = np.where(inside, value, _PADDING[op.monoid]) if not inside.all() else value
                axes = tuple(op.dims.index(dim) for dim in reduced)
                state = MONOID_DEFINITIONS[op.monoid].reduce(site, value, axes)
                kept = [dim for dim in op.dims if dim not in reduced]
                outputs = [workload.tensors[name].dims for name in op.outputs]
                return TileResult(tuple(align(part, kept, own) for part, own in zip(state, outputs, strict=True)), points)
            case OpKind.MAP:
                value = np.broadcast_to(DEFINITIONS[op.function](site, *aligned), shape)
            case OpKind.PERMUTE:
                return TileResult((_copied(op, operands[0], dims[0], target),), points)
            case OpKind.SCAN:
                if len(aligned) == 1:  # the inputs of a linear scan play different roles; a function of one value does not apply
                    aligned = [DEFINITIONS[op.function](site, *aligned)]
                reverse = dict(op.constants).get("reverse", 0.0) == 1.0
                value = np.broadcast_to(scan(op.monoid, aligned, [op.dims.index(dim) for dim in op.sequence], reverse), shape)
            case OpKind.FFT:
                return TileResult(_transformed(workload, op, operands, dims[0], target), points)
            case OpKind.WINDOW:
                return TileResult((_windows(workload, op, operands[0], dims[0], target, ranges),), points)
            case OpKind.GATHER:
                return TileResult((_gather(workload, op, ranges, operands),), points)
            case OpKind.SCATTER:
                scattered = _scatter if len(op.inputs) == 2 else _overlapped
                return TileResult((scattered(workload, op, ranges, operands),), points)
    return TileResult((align(value, op.dims, target),), points)


def _aligns(op: Op) -> bool:
    return op.kind in (OpKind.MAP, OpKind.REDUCE, OpKind.SCAN)


def _copied(op: Op, source: Array, dims: Sequence[str], target: Sequence[str]) -> Array:
    """A copy; dims that the result lacks are renamed, in order, to those that the source lacks."""
    named = dict(zip((d for d in dims if d not in target), (d for d in target if d not in dims), strict=True))
    return align(source, [named.get(dim, dim) for dim in dims], target)


def _transformed(
    workload: Workload, op: Op, operands: Sequence[Array], dims: Sequence[str], target: Sequence[str]
) -> tuple[Array, ...]:
    """Planar transform: rows (real, or two planes), padded with zeros, to two planes or the real plane only, truncated to the
    result's extent. A single complex tensor is transformed to a complex tensor."""
    if len(operands) == len(op.outputs) == 1:
        return (np.fft.fft(operands[0], axis=dims.index(op.along)),)
    entry = next((dim for dim in dims if dim not in op.dims), op.along)
    inverse = dict(op.constants).get("inverse", 0.0) == 1.0
    planes = transform(operands, dims.index(entry), workload.dims[op.along], inverse)[: len(op.outputs)]
    left = [op.along if dim == entry else dim for dim in dims]
    end = next((dim for dim in target if dim not in op.dims), op.along)
    cut = [plane.take(range(workload.dims[end]), left.index(op.along)) for plane in planes]
    return tuple(align(plane, [end if dim == op.along else dim for dim in left], target) for plane in cut)


def _windows(workload: Workload, op: Op, source: Array, dims: Sequence[str], target: Sequence[str], ranges: Ranges) -> Array:
    """The causal windows of a sequence, with zeros before the first element."""
    (offset,) = (dim for dim in target if dim not in dims)
    found = causal_windows(source, [dims.index(dim) for dim in op.sequence], workload.dims[offset])
    return align(found[..., slice(*ranges[offset])], [*dims, offset], target)


_PADDING = {"sum": 0.0, "mean": 0.0, "max": -np.inf}
"""What a point in the padding adds to a reduction: the neutral element."""


def _read_at_sums(
    workload: Workload, op: Op, dims: tuple[str, ...], source: Array, ranges: Ranges
) -> tuple[Array, tuple[str, ...], Array]:
    """An operand read at affine indices: (its value at each point of the dims that select an element, 0 in the padding; these
    dims; whether the point is inside the tensor). ``source`` has the region of the tensor."""
    indices = {index.dim: index for index in op.indices}
    points = tuple(dict.fromkeys(each for dim in dims for each in (indices[dim].dims if dim in indices else (dim,))))
    grid = {dim: align(np.arange(*ranges[dim]), (dim,), points) for dim in points}
    inside = np.ones([ranges[dim][1] - ranges[dim][0] for dim in points], bool)
    places = []
    for axis, dim in enumerate(dims):
        at = grid[dim] if dim not in indices else indices[dim].constant
        for term, coefficient in indices[dim].terms if dim in indices else ():
            at = at + coefficient * grid[term]
        inside &= (at >= 0) & (at < workload.dims[dim])
        place = at - max(ranges[dim][0], 0)
        if (inside & ((place < 0) | (place >= source.shape[axis]))).any():
            got = f"{dim} from {ranges[dim][0]} to {ranges[dim][1]}"
            expected = f"{dim} at {indices.get(dim, dim)} in the tile"
            raise IllegalMapping(Fault(f"compute {op.name}", expected, got, f"do not loop over or split {dim}"))
        places.append(place)
    if not source.size:
        return np.zeros(inside.shape, source.dtype), points, inside
    kept = [np.clip(place, 0, most - 1) for place, most in zip(places, source.shape, strict=True)]
    return np.where(inside, source[tuple(kept)], 0.0), points, inside


def _overlapped(workload: Workload, op: Op, ranges: Ranges, operands: Sequence[Array]) -> Array:
    """Values added at sums of their dims: out[2 base + offset] += source[base, offset]; what is outside the result is dropped.
    Along a sequence, causal windows."""
    source, names = operands[0], list(workload.tensors[op.inputs[0]].dims)
    target = workload.tensors[op.outputs[0]].dims
    if op.indices:
        sums = {index.dim: index for index in op.indices}
        result = np.zeros([ranges[dim][1] - ranges[dim][0] for dim in target], source.dtype)
        grid = {dim: align(np.arange(*ranges[dim]), (dim,), names) for dim in names}
        places, inside = [], np.ones(source.shape, bool)
        for dim in target:
            if dim in sums:
                at = sums[dim].constant + sum(coefficient * grid[term] for term, coefficient in sums[dim].terms)
                inside &= (at >= 0) & (at < workload.dims[dim])
            else:
                at = grid[dim] - ranges[dim][0]
            places.append(np.broadcast_to(at, source.shape))
        np.add.at(result, tuple(place[inside] for place in places), source[inside])
        return result
    if op.along:
        (offset,) = (dim for dim in names if dim not in target)
        front = range(len(op.sequence) + 1)
        moved = np.moveaxis(source, [names.index(dim) for dim in (*op.sequence, offset)], front)
        shape = moved.shape
        flat = moved.reshape(-1, *shape[len(op.sequence) :])
        before = workload.dims[offset] - 1 - ranges[offset][0]
        source = _folded(flat, 0, 1)[before : before + len(flat)]
        source = np.concatenate([source, np.zeros((len(flat) - len(source), *source.shape[1:]), source.dtype)])
        source = source.reshape(*shape[: len(op.sequence)], *shape[len(op.sequence) + 1 :])
        names = [*op.sequence, *(name for name in names if name not in (*op.sequence, offset))]
    return align(source, names, target)


def _folded(source: Array, base: int, offset: int) -> Array:
    """The sums along the anti-diagonals of two axes, as the first axis."""
    moved = np.moveaxis(source, (base, offset), (0, 1))
    total = np.zeros((moved.shape[0] + moved.shape[1] - 1, *moved.shape[2:]), source.dtype)
    for shift in range(moved.shape[1]):
        total[shift : shift + moved.shape[0]] += moved[:, shift]
    return np.moveaxis(total, 0, base - (offset < base))


def _check_untiled(workload: Workload, op: Op, dim: str, ranges: Ranges) -> None:
    if ranges[dim] != (0, workload.dims[dim]):
        start, stop = ranges[dim]
        raise IllegalMapping(
            Fault(
                f"compute {op.name}",
                f"{dim} whole in the tile",
                f"{dim} from {start} to {stop}",
                f"do not loop over or split {dim}",
            )
        )


def _rows(workload: Workload, op: Op, table: Sequence[str], other: Sequence[str], ranges: Ranges) -> str:
    """The dim that the index selects: the only dim of the table that the other side lacks. It must be untiled."""
    found = [dim for dim in table if dim not in other]
    if len(found) != 1:
        raise IllegalMapping(
            Fault(
                f"compute {op.name}",
                "one dim that the index selects",
                ", ".join(found) or "none",
                "give the table one dim of rows",
            )
        )
    _check_untiled(workload, op, found[0], ranges)
    return found[0]


def _selected(workload: Workload, op: Op, operands: Sequence[Array]) -> tuple[Array, tuple[str, ...], Array, tuple[str, ...]]:
    """(index, its dims, the other input, its dims)."""
    at = workload.index_input(op)
    index, other = op.inputs[at], op.inputs[1 - at]
    rows = np.rint(operands[at]).astype(int)
    return rows, workload.tensors[index].dims, operands[1 - at], workload.tensors[other].dims


def _gather(workload: Workload, op: Op, ranges: Ranges, operands: Sequence[Array]) -> Array:
    """A dim of both table and index is read at the output's own position: out[x, c] = table[index[x, c], x]."""
    index, dims, table, table_dims = _selected(workload, op, operands)
    target = workload.tensors[op.outputs[0]].dims
    row = _rows(workload, op, table_dims, target, ranges)
    places = [
        align(index, dims, target) if dim == row else align(np.arange(extent), (dim,), target)
        for dim, extent in zip(table_dims, table.shape, strict=True)
    ]
    return np.asarray(table[tuple(places)])


def _scatter(workload: Workload, op: Op, ranges: Ranges, operands: Sequence[Array]) -> Array:
    """A dim of both result and index is written at the source's own position: out[x, index[x, c]] += source[x, c]."""
    index, dims, source, source_dims = _selected(workload, op, operands)
    target = workload.tensors[op.outputs[0]].dims
    row = _rows(workload, op, target, source_dims, ranges)
    result = np.zeros([ranges[dim][1] - ranges[dim][0] for dim in target], source.dtype)
    places = [
        align(index, dims, source_dims) if dim == row else align(np.arange(extent), (dim,), source_dims)
        for dim, extent in zip(target, result.shape, strict=True)
    ]
    np.add.at(result, tuple(places), source)
    return result


def passes(
    workload: Workload, op: Op, ranges: Ranges, engine: MatrixEngine | None, array: tuple[tuple[str, ...], ...] = ()
) -> tuple[tuple[int, ...], int]:
    """How often the engine reads each element of each input of one tile, and writes each element of the output: an array smaller
    than the tile processes it in folds. ``array``: dims mapped to its sides."""
    if op.kind is not OpKind.CONTRACT or engine is None:
        return (1,) * len(op.inputs), 1
    extent = {dim: ranges[dim][1] - ranges[dim][0] for dim in op.dims}
    named = [dim for side in array for dim in side]

    def cuts(dims: list[str], part: int) -> list[int]:
        # the named dims (by default the last) are mapped to the array together; the others are iterated index by index
        here = [dim for dim in dims if dim in named] or dims[-1:]
        walked = math.prod(extent[dim] for dim in dims if dim not in here)
        return _cuts(math.prod(extent[dim] for dim in here), part) * walked

    all_m, all_n, all_k = dims_by_role(workload, op)
    m, n, k = (math.prod(extent[dim] for dim in dims) for dims in (all_m, all_n, all_k))
    reads = {"input": 0, "weight": 0, "output": 0}
    match engine.dataflow:
        case Dataflow.WEIGHT:  # a fold has rows x cols stationary weights and streams all M past them
            folds = [(m, cols, rows) for rows in cuts(all_k, engine.rows) for cols in cuts(all_n, engine.cols)]
        case Dataflow.INPUT:
            folds = [(cols, n, rows) for rows in cuts(all_k, engine.rows) for cols in cuts(all_m, engine.cols)]
        case Dataflow.OUTPUT:
            folds = [(rows, cols, k) for rows in cuts(all_m, engine.rows) for cols in cuts(all_n, engine.cols)]
        case Dataflow.NONE:
            return (n, m), k
    for fm, fn, fk in folds:
        reads["input"] += fm * fk
        reads["weight"] += fk * fn
        reads["output"] += fm * fn
    return (reads["input"] // (m * k), reads["weight"] // (k * n)), reads["output"] // (m * n)


def dims_by_role(workload: Workload, op: Op) -> tuple[list[str], list[str], list[str]]:
    """The dims of a contraction (M, N, K): in the first input and the output, in the second and the output, not in the output."""
    sums = {index.dim: index.dims for index in op.indices}
    first, second, out = (
        {each for dim in workload.tensors[name].dims for each in sums.get(dim, (dim,))} for name in (*op.inputs, op.outputs[0])
    )

    def along(*which: bool) -> list[str]:
        return [dim for dim in op.dims if (dim in first, dim in second, dim in out) == which]

    return along(True, False, True), along(False, True, True), [dim for dim in op.dims if dim not in out]


def _cuts(extent: int, part: int) -> list[int]:
    return [min(part, extent - start) for start in range(0, extent, part)]
