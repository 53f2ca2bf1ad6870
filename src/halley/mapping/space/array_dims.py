"""Choices of the dims of a contraction that are mapped to the array (docs/model.md, "Matrix engine")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import product

from halley.formulas.numbers import Number
from halley.ir.array import Array, Side, on_sides, sides
from halley.ir.hardware import MatrixEngine
from halley.ir.workload import Op, Workload, roles


def arrays(workload: Workload, engine: MatrixEngine, op: Op, whole_dims: Collection[str]) -> tuple[Array, ...]:
    """Every choice of the dims on the two sides, nothing for the usual ones where there is no choice.

    On each side: every dim of the role by itself that is no shorter than the side, the others walked, or the longest where all
    are; and all dims that nothing outside the stage cuts (``whole_dims``) together, beside one that something does cut, or with
    the longest of them first, which the stage's own loops may cut; this unless one of them fills the side evenly by itself. Dims
    of one point count for neither.
    """
    role = roles(workload, op)
    usual, able = on_sides((), role, engine.dataflow), sides(role, engine.dataflow)
    choices = [
        _side([dim for dim in dims if workload.dims[dim] > 1], workload.dims, its, width, whole_dims)
        for dims, its, width in zip(able, usual, (engine.rows, engine.cols), strict=True)
    ]
    found: list[Array] = list(product(*choices))
    return ((),) if found == [usual] else tuple(found)


def _side(dims: list[str], extents: Mapping[str, int], usual: Side, width: int, whole_dims: Collection[str]) -> list[Side]:
    """The choices of one side. A side of one row or column takes as many passes whatever lies there: one for each point of all
    dims, as ceil(t / 1) = t. So the usual one stands for all. Of whole dims, fewer together are no choice: ceil(s t / w) is at
    most s ceil(t / w), so that passes only grow where one of them is walked instead. Nor are all together beside one that is
    cut, where one of the whole ones, of e points, fills the side evenly: ceil(s e / w) is s e / w then, as with that one alone.
    A shorter dim by itself could save passes only in tiles that cut a longer one shorter still, and dims that lie together here:
    it is left out.
    """
    if width == 1 or not dims:
        return [usual]
    beside = [dim for dim in dims if dim in whole_dims]
    longest = max(reversed(dims), key=extents.__getitem__)
    alone: list[Side] = [(dim,) for dim in dims if extents[dim] >= width or dim == longest]
    if not beside or any(extents[dim] % width == 0 for dim in beside):
        return alone
    first = [dim for dim in dims if dim not in whole_dims] or [longest]
    together = [(dim, *(other for other in beside if other != dim)) for dim in first]
    return list(dict.fromkeys([*alone, *together]))


def uncut(workload: Workload, ranges: Callable[[Mapping[str, Number]], Mapping[str, Number]]) -> frozenset[str]:
    """The dims of which a stage has the whole extent, for any tile sizes of the enclosing loops."""
    smallest = ranges(defaultdict(lambda: 1))
    return frozenset(dim for dim, extent in workload.dims.items() if smallest[dim] == extent)
