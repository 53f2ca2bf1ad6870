"""What one op computes on a tile, and how often the engines touch the tile's elements while they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halley.errors import Fault, IllegalMapping
from halley.execute.functions import DEFINITIONS, MONOID_DEFINITIONS, SCANS, Array, Site, State
from halley.execute.members import Ranges
from halley.ir.hardware import Dataflow, MatrixEngine
from halley.ir.workload import Op, OpKind, Workload


@dataclass(frozen=True, slots=True)
class Result:
    """A tile of each output, and how many points of the reduction each of its elements has seen."""

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


def evaluate(workload: Workload, op: Op, reduced: Sequence[str], ranges: Ranges, operands: Sequence[Array]) -> Result:
    """Run an op on the operands that the ranges select; each output comes in the order of its tensor's dims."""
    dims = [workload.tensors[name].dims for name in op.inputs]
    shape = tuple(ranges[dim][1] - ranges[dim][0] for dim in op.dims)
    points = int(np.prod([ranges[dim][1] - ranges[dim][0] for dim in reduced], dtype=int))
    site = Site(op.name, dict(op.constants), tuple(ranges[dim][0] for dim in op.dims))
    aligned = [align(array, own, op.dims) for array, own in zip(operands, dims, strict=True)] if _aligns(op) else []
    target = workload.tensors[op.outputs[0]].dims
    with np.errstate(all="ignore"):
        match op.kind:
            case OpKind.CONTRACT:
                letters = {dim: index for index, dim in enumerate(op.dims)}
                terms = [x for array, own in zip(operands, dims, strict=True) for x in (array, [letters[d] for d in own])]
                return Result((np.asarray(np.einsum(*terms, [letters[d] for d in target])),), points)
            case OpKind.REDUCE:
                value = np.broadcast_to(DEFINITIONS[op.function](site, *aligned), shape)
                axes = tuple(op.dims.index(dim) for dim in reduced)
                state = MONOID_DEFINITIONS[op.monoid].reduce(site, value, axes)
                kept = [dim for dim in op.dims if dim not in reduced]
                outputs = [workload.tensors[name].dims for name in op.outputs]
                return Result(tuple(align(part, kept, own) for part, own in zip(state, outputs, strict=True)), points)
            case OpKind.MAP | OpKind.PERMUTE:
                value = np.broadcast_to(DEFINITIONS[op.function](site, *aligned), shape)
            case OpKind.SCAN:
                _whole(workload, op, op.along, ranges)
                if op.monoid != "linear":  # its two inputs play different roles; a function of one value does not apply
                    aligned = [DEFINITIONS[op.function](site, *aligned)]
                value = np.broadcast_to(SCANS[op.monoid](aligned, op.dims.index(op.along)), shape)
            case OpKind.FFT:
                _whole(workload, op, op.along, ranges)
                # one complex tensor, or a planar pair (real, imaginary) in and out
                points_in = aligned[0] if len(aligned) == 1 else aligned[0] + 1j * aligned[1]
                value = np.fft.fft(points_in, axis=op.dims.index(op.along))
                planes = (value.real, value.imag) if len(op.outputs) == 2 else (value,)
                return Result(tuple(align(plane, op.dims, target) for plane in planes), points)
            case OpKind.GATHER:
                return Result((_gather(workload, op, ranges, operands),), points)
            case OpKind.SCATTER:
                return Result((_scatter(workload, op, ranges, operands),), points)
    return Result((align(value, op.dims, target),), points)


def _aligns(op: Op) -> bool:
    return op.kind not in (OpKind.CONTRACT, OpKind.GATHER, OpKind.SCATTER)


def _whole(workload: Workload, op: Op, dim: str, ranges: Ranges) -> None:
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
    """The dim that the index selects: the table's only dim that the other side lacks. It must be whole."""
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
    _whole(workload, op, found[0], ranges)
    return found[0]


def index_input(workload: Workload, op: Op) -> int:
    """Which input of a gather or scatter is the index: the one of an integer dtype, else the first."""
    return next((i for i, name in enumerate(op.inputs) if workload.tensors[name].dtype.startswith("int")), 0)


def _selected(workload: Workload, op: Op, operands: Sequence[Array]) -> tuple[Array, tuple[str, ...], Array, tuple[str, ...]]:
    """(index, its dims, the other input, its dims)."""
    at = index_input(workload, op)
    index, other = op.inputs[at], op.inputs[1 - at]
    rows = np.rint(operands[at]).astype(int)
    return rows, workload.tensors[index].dims, operands[1 - at], workload.tensors[other].dims


def _gather(workload: Workload, op: Op, ranges: Ranges, operands: Sequence[Array]) -> Array:
    index, dims, table, table_dims = _selected(workload, op, operands)
    target = workload.tensors[op.outputs[0]].dims
    row = _rows(workload, op, table_dims, target, ranges)
    rest = [dim for dim in table_dims if dim != row]
    return align(align(table, table_dims, [row, *rest])[index], [*dims, *rest], target)


def _scatter(workload: Workload, op: Op, ranges: Ranges, operands: Sequence[Array]) -> Array:
    index, dims, source, source_dims = _selected(workload, op, operands)
    target = workload.tensors[op.outputs[0]].dims
    row = _rows(workload, op, target, source_dims, ranges)
    rest = [dim for dim in target if dim != row]
    result = np.zeros([ranges[dim][1] - ranges[dim][0] for dim in [row, *rest]], source.dtype)
    np.add.at(result, index, align(source, source_dims, [*dims, *rest]))
    return align(result, [row, *rest], target)


def passes(workload: Workload, op: Op, ranges: Ranges, engine: MatrixEngine | None) -> tuple[tuple[int, ...], int]:
    """How many elements of each input the engine reads for one tile, and how many of each output it writes, as multiples
    of the tile's elements: an array that is smaller than the tile takes it in folds."""
    if op.kind is not OpKind.CONTRACT or engine is None:
        return (1,) * len(op.inputs), 1
    first, second = (workload.tensors[name].dims for name in op.inputs)
    out = workload.tensors[op.outputs[0]].dims
    extent = {dim: ranges[dim][1] - ranges[dim][0] for dim in op.dims}

    def product(*which: bool) -> int:
        picked = (extent[dim] for dim in op.dims if (dim in first, dim in second, dim in out) == which)
        return int(np.prod(list(picked), dtype=int))

    m, n = product(True, False, True), product(False, True, True)
    k = int(np.prod([extent[dim] for dim in op.dims if dim not in out], dtype=int))
    reads = {"input": 0, "weight": 0, "output": 0}
    match engine.dataflow:
        case Dataflow.WEIGHT:  # a fold keeps rows x cols weights and streams all M past them
            folds = [(m, cols, rows) for rows in _cuts(k, engine.rows) for cols in _cuts(n, engine.cols)]
        case Dataflow.INPUT:
            folds = [(cols, n, rows) for rows in _cuts(k, engine.rows) for cols in _cuts(m, engine.cols)]
        case Dataflow.OUTPUT:
            folds = [(rows, cols, k) for rows in _cuts(m, engine.rows) for cols in _cuts(n, engine.cols)]
        case Dataflow.NONE:
            return (n, m), k
    for fm, fn, fk in folds:
        reads["input"] += fm * fk
        reads["weight"] += fk * fn
        reads["output"] += fm * fn
    return (reads["input"] // (m * k), reads["weight"] // (k * n)), reads["output"] // (m * n)


def _cuts(extent: int, part: int) -> list[int]:
    return [min(part, extent - start) for start in range(0, extent, part)]
