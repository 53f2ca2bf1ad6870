"""Affine indices in the search: which of their terms are tiled, and which indices it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from halley.errors import BadInput, Fault
from halley.ir.affine import AffineIndex
from halley.ir.workload import Op, Workload

MOST_POSITIONS = 1 << 24
"""Most combinations of terms whose positions are listed to count the elements that are read."""


def tiled(workload: Workload, index: AffineIndex) -> str:
    """The dim of a sum that loops and splits may tile: the longest of those whose stride is no longer than what the others take,
    so that the boxes of its tiles leave no gaps; the longest, if there is none."""
    able = [dim for dim in index.dims if not _leaves_gaps(workload, index, dim)]
    return max(able or index.dims, key=workload.dims.__getitem__)


def _leaves_gaps(workload: Workload, index: AffineIndex, dim: str) -> bool:
    return workload.dims[dim] > 1 and abs(index.coefficient(dim)) > index.span(workload.dims, dim)


def taps(workload: Workload, op: Op) -> Iterator[str]:
    """Dims of an op that stay whole because of its affine indices: all terms but one (`tiled`) of a sum with strides, dilation or
    padding. So the boxes of tiles have no gaps, and their points depend on the tiles of one dim alone."""
    for index in op.indices:
        if index.padded(workload.dims) or any(coefficient != 1 for _, coefficient in index.terms):
            yield from (dim for dim in index.dims if dim != tiled(workload, index))


def check_indices(workload: Workload) -> None:
    """Raises BadInput: an index whose boxes leave gaps between tiles, or are no products of one part for each dim. There larger
    tiles may move more, and the bounds of the search do not hold."""
    faults = []
    for op in workload.ops:
        where = f"search, op {op.name}"
        for index in op.indices:
            dim = tiled(workload, index)
            if _leaves_gaps(workload, index, dim):
                stride, taken = abs(index.coefficient(dim)), index.span(workload.dims, dim)
                got = f"{index.dim} at {index}: a stride of {stride} over {taken}"
                remedy = f"leave out of {index.dim} what is not read, and read it at {dim}"
                faults.append(Fault(where, "strides no longer than what is read at each point", got, remedy))
        for name in op.inputs:
            sums = {index.dim: index.dims for index in op.indices}
            used = [each for dim in workload.tensors[name].dims for each in sums.get(dim, (dim,))]
            twice = sorted({dim for dim in used if used.count(dim) > 1})
            if twice:
                remedy = "cost a mapping of your own (halley estimate)"
                faults.append(Fault(where, f"each dim once in the places of {name}", f"{' and '.join(twice)} twice", remedy))
    if faults:
        raise BadInput(faults)


def read_bytes(workload: Workload, tensor: str) -> int:
    """Bytes of a tensor that some op reads at least once: all of it, but for positions that no affine index takes."""
    item = workload.tensors[tensor]
    return math.prod(_read(workload, dim) for dim in item.dims) * item.word


def _read(workload: Workload, dim: str) -> int:
    indices = [index for index in workload.indices if index.dim == dim]
    start, stop = workload.read_part(dim)
    if not indices or ((start, stop) == (0, workload.dims[dim]) and any(dim in op.dims for op in workload.ops)):
        return stop - start
    taken: set[int] = set()
    for index in indices:
        if math.prod(workload.dims[each] for each in index.dims) > MOST_POSITIONS:
            return 1
        at = np.array([index.constant])
        for each, coefficient in index.terms:
            at = np.unique(at[:, None] + coefficient * np.arange(workload.dims[each]))
        taken.update(at[(at >= 0) & (at < workload.dims[dim])].tolist())
    return max(len(taken), 1)
