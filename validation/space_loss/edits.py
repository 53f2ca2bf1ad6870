"""Random edits of a mapping: one loop, split, Hold, collective or composition more, fewer, elsewhere or of another size.

An edit knows nothing of the declared space of the search, and most edited mappings are illegal: whoever calls checks them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.workload import Workload
from halley.network.algorithms import ALGORITHMS
from halley.rewrite.canonical import canonical
from halley.rewrite.paths import node_at, replace_at
from halley.rewrite.scopes import Path

WITH_ROUNDS = 5
"""Most buffers of a Hold around concurrent children, which may need more than the chip file grants a Hold of one tile."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits of mappings of a workload on a chip, drawn at random."""

    workload: Workload
    chip: Chip
    draw: random.Random

    def edited(self, tree: Node, edits: int) -> Node | None:
        """The mapping after so many edits, in canonical form; None where one of them found no place."""
        for _ in range(edits):
            changed = self.draw.choice(MOVES)(self, tree)
            if changed is None:
                return None
            tree = changed
        return canonical(tree, self.workload.dims)

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def place(self, tree: Node, *kinds: type[Node]) -> Path | None:
        """The path of a node of these kinds, of any where none is given; but for the root. None where there is none."""
        found = [path for path, node in walk(tree) if path and (not kinds or isinstance(node, kinds))]
        return self.draw.choice(found) if found else None

    def tile(self, dim: str, now: int = 0) -> int:
        """A tile size: a number of equal parts of the whole dim or of the size that it has ``now``, or that size a little
        changed."""
        extent = self.workload.dims[dim]
        if now and self.draw.random() < 0.5:
            near = (now // 2, 2 * now, now - 1, now + 1, now - now // 4, now + now // 4)
            return min(max(1, self.draw.choice(near)), extent)
        whole = now if now and self.draw.random() < 0.5 else extent
        parts = int(2 ** self.draw.uniform(0.0, whole.bit_length()))
        return max(1, -(-whole // max(1, parts)))

    def buffers(self, tree: Node, memory: str) -> int:
        """A number of buffers: what the chip file grants, or what rounds of concurrent children may need."""
        rounds = any(isinstance(node, Overlap | Parallel) for _, node in walk(tree))
        return self.draw.randint(1, max(self.chip.memory(memory).buffers, WITH_ROUNDS if rounds else 1))


Move = Callable[[Edits, Node], Node | None]


def resize(edits: Edits, tree: Node) -> Node | None:
    """``for m by 8`` -> ``for m by 12``; a split and a pipeline likewise."""
    path = edits.place(tree, Temporal, Spatial, Pipeline)
    if path is None:
        return None
    node = node_at(tree, path)
    return replace_at(tree, path, lambda own: replace(own, tile=edits.tile(node.dim, node.tile)))


def rebuffer(edits: Edits, tree: Node) -> Node | None:
    """``hold wbuf: B`` -> ``hold wbuf x2: B``"""
    path = edits.place(tree, Hold)
    if path is None:
        return None
    node = node_at(tree, path)
    return replace_at(tree, path, lambda own: replace(own, buffers=edits.buffers(tree, node.memory)))


def loop(edits: Edits, tree: Node) -> Node | None:
    """``X`` -> ``for m by 8`` around ``X``"""
    path, dim = edits.place(tree), edits.draw.choice(list(edits.workload.dims))
    return None if path is None else replace_at(tree, path, lambda own: Temporal(dim, edits.tile(dim), own))


def drop(edits: Edits, tree: Node) -> Node | None:
    """A loop, split or Hold around ``X`` -> ``X``"""
    path = edits.place(tree, Temporal, Spatial, Hold)
    return None if path is None else replace_at(tree, path, lambda own: own.body)


def release(edits: Edits, tree: Node) -> Node | None:
    """``hold obuf: A B`` -> ``hold obuf: A``"""
    path = edits.place(tree, Hold)
    if path is None or len(groups := node_at(tree, path).tensors) < 2:
        return None
    gone = edits.draw.randrange(len(groups))
    return replace_at(tree, path, lambda own: replace(own, tensors=(*groups[:gone], *groups[gone + 1 :])))


def part(edits: Edits, tree: Node) -> Node | None:
    """``hold obuf: A B`` -> ``hold obuf: A`` around ``hold obuf: B``"""
    path = edits.place(tree, Hold)
    if path is None or len(groups := node_at(tree, path).tensors) < 2:
        return None
    own = edits.draw.randrange(len(groups))
    rest = (*groups[:own], *groups[own + 1 :])
    return replace_at(tree, path, lambda node: replace(node, tensors=(groups[own],), body=replace(node, tensors=rest)))


def swap(edits: Edits, tree: Node) -> Node | None:
    """Two nodes, one just inside the other, change places."""
    path = edits.place(tree, Temporal, Spatial, Hold)
    if path is None or not isinstance(inner := node_at(tree, path).body, Temporal | Spatial | Hold):
        return None
    return replace_at(tree, path, lambda own: replace(inner, body=replace(own, body=inner.body)))


def move(edits: Edits, tree: Node) -> Node | None:
    """A loop, split or Hold is taken out and put around another node."""
    path = edits.place(tree, Temporal, Spatial, Hold)
    if path is None:
        return None
    node = node_at(tree, path)
    without = replace_at(tree, path, lambda own: own.body)
    to = edits.place(without)
    return None if to is None else replace_at(without, to, lambda own: replace(node, body=own))


def hold(edits: Edits, tree: Node) -> Node | None:
    """``X`` -> ``hold wbuf x2: B`` around ``X``"""
    path, memory = edits.place(tree), edits.draw.choice([memory.name for memory in edits.chip.memories[1:]])
    name = edits.draw.choice(list(edits.workload.tensors))
    count = edits.buffers(tree, memory)
    return None if path is None else replace_at(tree, path, lambda own: Hold(memory, ((name,),), own, count))


def rehome(edits: Edits, tree: Node) -> Node | None:
    """``hold wbuf: B`` -> ``hold glb: B``"""
    path, memory = edits.place(tree, Hold), edits.draw.choice([memory.name for memory in edits.chip.memories[1:]])
    return None if path is None else replace_at(tree, path, lambda own: replace(own, memory=memory))


def redirect(edits: Edits, tree: Node) -> Node | None:
    """``spread m by 8 over cluster.x`` -> ``spread n by 16 over cluster.x``; a loop likewise."""
    path, dim = edits.place(tree, Spatial, Temporal), edits.draw.choice(list(edits.workload.dims))
    return None if path is None else replace_at(tree, path, lambda own: replace(own, dim=dim, tile=edits.tile(dim)))


def spread(edits: Edits, tree: Node) -> Node | None:
    """``X`` -> ``spread m by 8 over cluster.x`` around ``X``"""
    path, axes = edits.place(tree), [(level, axis) for level, axis in edits.chip.axes if axis.size > 1]
    if path is None or not axes:
        return None
    (level, axis), dim = edits.draw.choice(axes), edits.draw.choice(list(edits.workload.dims))
    tile = -(-edits.workload.dims[dim] // axis.size)
    return replace_at(tree, path, lambda own: Spatial(dim, tile, level, axis.name, own))


def concur(edits: Edits, tree: Node) -> Node | None:
    """``sequence`` -> ``overlap`` or ``sequence prefetch``, and back."""
    path = edits.place(tree, Sequence, Overlap)
    if path is None:
        return None
    children = node_at(tree, path).children
    made: list[Node] = [Sequence(children), Sequence(children, prefetch=True), Overlap(children)]
    chosen = edits.draw.choice([node for node in made if node != node_at(tree, path)])
    return replace_at(tree, path, lambda own: chosen)


def group(edits: Edits, tree: Node) -> Node | None:
    """Some children of a ``sequence`` or ``overlap`` that follow each other -> a ``sequence`` of them, or back."""
    path = edits.place(tree, Sequence, Overlap)
    if path is None:
        return None
    children = node_at(tree, path).children
    nested = [at for at, child in enumerate(children) if isinstance(child, Sequence)]
    if nested and edits.draw.random() < 0.5:
        at = edits.draw.choice(nested)
        changed = (*children[:at], *children[at].children, *children[at + 1 :])  # type: ignore[union-attr]
    else:
        start, stop = sorted(edits.draw.sample(range(len(children) + 1), 2))
        if stop - start in (1, len(children)):
            return None
        changed = (*children[:start], Sequence(children[start:stop]), *children[stop:])
    return replace_at(tree, path, lambda own: replace(own, children=changed))


def exchange(edits: Edits, tree: Node) -> Node | None:
    """Two children of a ``sequence`` that follow each other change places."""
    path = edits.place(tree, Sequence)
    if path is None or len(children := node_at(tree, path).children) < 2:
        return None
    at = edits.draw.randrange(len(children) - 1)
    changed = (*children[:at], children[at + 1], children[at], *children[at + 2 :])
    return replace_at(tree, path, lambda own: replace(own, children=changed))


def communicate(edits: Edits, tree: Node) -> Node | None:
    """A collective with another algorithm or of another kind."""
    path = edits.place(tree, Collective)
    if path is None:
        return None
    node = node_at(tree, path)
    kind = node.kind if edits.draw.random() < 0.7 else edits.draw.choice(list(CollectiveKind))
    dim = node.dim if edits.draw.random() < 0.7 else edits.draw.choice(["", *edits.workload.dims])
    return replace_at(tree, path, lambda own: replace(own, kind=kind, algorithm=edits.draw.choice(list(ALGORITHMS)), dim=dim))


MOVES: tuple[Move, ...] = (
    resize, resize, rebuffer, loop, loop, drop, release, part, swap, move, move, hold, rehome, redirect, spread, concur, group,
    exchange, communicate,
)  # fmt: skip
"""The edits; what stands here twice is tried twice as often."""
