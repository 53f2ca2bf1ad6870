"""Stages whose own tiles are as large as what they cut: no choice of tile sizes takes less, if room is left out of account.

A loop over tiles moves, sums up, computes and waits no less than its body does once for all of them: visits to what it does not
index add up, tiles cover all points, rounded-up shares and passes of the parts are no fewer than those of the whole, and an entry
waits for no more latencies than many. Only the first fill and the last drain are longer for a large tile: without what they take
by size (`ramps` of `halley.cost.evaluate`) the whole is a lower bound of all times, energies and busy times. Shapes that differ
in the order of their loops are then the same, so that most are seen to be hopeless before their formulas run.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from halley.formulas.numbers import Number
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Spatial, Temporal
from halley.ir.mapping import Sequence as Steps
from halley.mapping.space.stages import BUFFERS, Slot, Tiles

Loops = Set[tuple[str, Number]]
"""Dims and tiles of loops that take one step."""


def whole_sizes(slots: Sequence[Slot], given: Tiles) -> dict[str, Number]:
    """The sizes that are given, and those of a stage's slots as large as they can be; numbers of buffers stay as they are."""
    sizes = dict(given)
    for slot in slots:
        if slot.dim != BUFFERS:
            sizes[slot.name] = slot.limit(sizes)
    return sizes


def without_loops(node: Node, slots: Sequence[Slot], sizes: Tiles) -> Node:
    """A stage built on whole sizes, without its loops over them: each takes one step."""
    return _unlooped(node, {(slot.dim, sizes[slot.name]) for slot in slots if slot.dim != BUFFERS})


def _unlooped(node: Node, loops: Loops) -> Node:
    match node:
        case Temporal():
            body = _unlooped(node.body, loops)
            return body if (node.dim, node.tile) in loops else replace(node, body=body)
        case Hold():
            return _held(node, _unlooped(node.body, loops))
        case Spatial():
            return replace(node, body=_unlooped(node.body, loops))
        case Steps() | Overlap() | Parallel() | Pipeline():
            return replace(node, children=tuple(_unlooped(child, loops) for child in node.children))
        case Compute() | Collective():
            return node


def _held(hold: Hold, body: Node) -> Node:
    """A Hold around what may begin with others, in the order of their tensors: which is around which makes no difference, unless
    one makes a phase of what is inside and the other does not."""
    if isinstance(body, Hold) and body.tensors < hold.tensors and _alike(body.buffers, hold.buffers):
        return replace(body, body=_held(hold, body.body))
    return replace(hold, body=body)


def _alike(first: Number, second: Number) -> bool:
    """Whether both numbers of buffers are open, or the same."""
    given = [type(number) is int for number in (first, second)]
    return first == second if all(given) else not any(given)
