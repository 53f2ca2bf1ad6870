"""Bytes that a memory moves in whole bursts (docs/model.md, "Bursts").

A box of a row-major tensor consists of contiguous runs. Its last dims that are whole lie in one run with the dim before them:
with dims 1 to n, of which those after j are whole in the box, a run has e_j E_{j+1} ... E_n elements, and there are
e_1 ... e_{j-1} runs. A dim is whole in all boxes of a transfer or in none, as all its tiles are at least its extent, or one is
smaller. So the sum over all boxes is, for each j, a product of sums over one dim each, like all other counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from halley.cost.counting import Axes, Counter, CountingScope, DimFactor, Loop
from halley.formulas.numbers import Number, ceil_div, positive
from halley.ir.workload import Tensor


def burst_bytes(
    counter: Counter,
    tensor: Tensor,
    scope: CountingScope,
    loops: tuple[Loop, ...],
    each: Axes,
    critical: Axes,
    skip: tuple[str, ...],
    burst: int,
) -> Number:
    """Bytes [B] of whole bursts of ``burst`` [B] for the boxes into which the loops divide a tensor. ``each``, ``critical`` and
    ``skip``: as for `Counter.boxes`."""
    extents = counter.workload.dims
    bursts: Number = 0
    whole: Number = 1  # whether all dims after the current one are
    run = tensor.word  # bytes of a run for each point of the current dim
    for at in range(len(tensor.dims) - 1, -1, -1):
        dim, inner = tensor.dims[at], tensor.dims[at + 1 :]
        along = DimFactor(counter, dim, loops, "folds", burst, run)
        runs = counter.boxes(tensor.dims[: at + 1], scope, loops, each, critical, {dim: along}, (*skip, *inner))
        tiled = positive(extents[dim] - counter.first_tile(dim, loops)) if at else 1
        bursts = bursts + whole * tiled * runs
        whole, run = whole * (1 - tiled), run * extents[dim]
    if not tensor.dims:
        bursts = counter.boxes((), scope, loops, each, critical, skip=skip) * ceil_div(run, burst)
    return bursts * burst


Boxes = tuple[tuple[Number, tuple[Loop, ...]], ...]
"""Loops that divide a tensor into boxes, each with 1 if these are the ones, else 0: which of them divide may be open."""


def drained_boxes(counter: Counter, loops: tuple[Loop, ...], outside: int, dims: Sequence[str], own: Axes) -> Boxes:
    """The loops that divide what a Hold drains into boxes. ``loops``: the first ``outside`` are around the Hold, the others are
    inside; ``dims``: those that select the tensor; ``own``: axes that have an instance of the memory each.

    Visits and instances drain separately: loops in time around the Hold, and splits over own axes, divide. The boxes that other
    loops make of one dim in one instance are neighbours and drain as one, unless a dividing loop inside leaves gaps between
    them."""

    def divides(at: int) -> bool:
        return loops[at].axis in own or (loops[at].axis is None and at < outside)

    found: list[tuple[Number, tuple[Loop, ...]]] = [(1, tuple(loop for loop in loops if loop.dim not in dims))]
    for dim in dims:
        kept = list(_dividing(counter, dim, [(loop, divides(at)) for at, loop in enumerate(loops) if loop.dim == dim]))
        found = [(there * here, (*rest, *inner)) for there, rest in found for here, inner in kept]
    places = {id(loop): at for at, loop in enumerate(loops)}
    return tuple((there, tuple(sorted(kept, key=lambda loop: places[id(loop)]))) for there, kept in found)


def _dividing(counter: Counter, dim: str, chain: Sequence[tuple[Loop, bool]]) -> Iterator[tuple[Number, tuple[Loop, ...]]]:
    """The loops over one dim, each with whether it divides, up to the last one that does, by cases (1 or 0): if those that
    divide after the last one that does not are no smaller than its tile, all of these leave no gaps."""
    while chain and not chain[-1][1]:
        chain = chain[:-1]
    loops = tuple(loop for loop, _ in chain)
    inner = next((at for at in range(len(chain) - 1, -1, -1) if not chain[at][1]), -1)
    if inner < 0:
        yield 1, loops
        return
    gaps = positive(counter.first_tile(dim, loops[: inner + 1]) - counter.first_tile(dim, loops))
    yield gaps, loops
    for there, fewer in _dividing(counter, dim, chain[:inner]):
        yield (1 - gaps) * there, fewer
