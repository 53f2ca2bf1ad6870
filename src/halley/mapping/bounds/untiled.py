"""Untiled relaxation of a stage: its own tiles have full size, and capacities are ignored. No tile sizes have lower costs.

A loop over tiles has at least the traffic, work and waits of one full-size tile: repeated visits add up, the tiles cover all
points, rounded-up parts and passes are at least those of the full tile, and every entry pays latencies. Only the first fill and
the last drain of a full-size tile are longer: without their transfer times (`ramps` of `halley.cost.evaluate`) the untiled stage
is a lower bound of all times, energies and busy times. Shapes that differ only in the order of their loops have the same
relaxation, so most of them are pruned before their formulas are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from halley.formulas.numbers import Number
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Spatial, Temporal
from halley.ir.mapping import Sequence as Steps
from halley.mapping.space.stages import BUFFERS, Slot, Tiles

Loops = Set[tuple[str, Number]]
"""Dims and tiles of loops with one iteration."""


def untiled_sizes(slots: Sequence[Slot], given: Tiles) -> dict[str, Number]:
    """The given sizes, and the largest sizes of a stage's slots; numbers of buffers are unchanged."""
    sizes = dict(given)
    for slot in slots:
        if slot.dim != BUFFERS:
            sizes[slot.name] = slot.limit(sizes)
    return sizes


def without_loops(node: Node, slots: Sequence[Slot], sizes: Tiles) -> Node:
    """A stage built with the largest sizes, without its loops, which have one iteration."""
    return _unlooped(node, {(slot.dim, sizes[slot.name]) for slot in slots if slot.dim != BUFFERS})


def _unlooped(node: Node, loops: Loops) -> Node:
    match node:
        case Temporal():
            body = _unlooped(node.body, loops)
            return body if (node.dim, node.tile) in loops else Temporal(node.dim, node.tile, body, node.visible)
        case Hold():
            return _held(node, _unlooped(node.body, loops))
        case Spatial():
            return Spatial(node.dim, node.tile, node.level, node.axis, _unlooped(node.body, loops))
        case Steps() | Overlap() | Parallel() | Pipeline():
            return replace(node, children=tuple(_unlooped(child, loops) for child in node.children))
        case Compute() | Collective():
            return node


def _held(hold: Hold, body: Node) -> Node:
    """A Hold around a body that may start with other Holds, sorted by their tensors: their nesting order does not matter, unless
    one of them makes its body a phase and the other does not."""
    if isinstance(body, Hold) and body.tensors < hold.tensors and _alike(body.buffers, hold.buffers):
        return Hold(body.memory, body.tensors, _held(hold, body.body), body.buffers)
    return Hold(hold.memory, hold.tensors, body, hold.buffers)


def _alike(first: Number, second: Number) -> bool:
    """Whether both numbers of buffers are open, or equal."""
    given = [type(number) is int for number in (first, second)]
    return first == second if all(given) else not any(given)
