"""The ten best plans by formula: the winner, and the best of what differs from it by a few tiles or numbers of buffers.

No memory gets more buffers for a tensor than its chip file allows, or than the winner has in it.

The search keeps the best plan alone, so its neighbours are generated from it: each loop, split or Hold is changed at a time,
what is legal and fits is costed, and the best of these are changed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.ir.workload import Workload
from halley.rewrite import legality
from halley.rewrite.canonical import canonical

PLANS = 10
ROUNDS = 2
COSTED = 250
"""Most plans that are costed around one winner."""


def ten_best(workload: Workload, chip: Chip, winner: Node, plans: int = PLANS) -> list[tuple[float, Node]]:
    """(time by formula [s], plan), the winner first and then by time."""
    known: dict[Node, float] = {canonical(winner, workload.dims): _time(workload, chip, winner) or 0.0}
    allowed = {memory.name: memory.buffers for level in chip.levels for memory in level.memories}
    for hold in _holds(winner):
        allowed[hold.memory] = max(allowed[hold.memory], hold.buffers)
    best = [winner]
    for _ in range(ROUNDS):
        for tree in best:
            for made in _changed(tree, workload):
                if any(hold.buffers > allowed[hold.memory] for hold in _holds(made)):
                    continue
                if made not in known and len(known) < COSTED:
                    known[made] = _time(workload, chip, made) or float("inf")
        best = sorted(known, key=known.__getitem__)[: plans // 2]
    first, *others = known
    ordered = [first, *sorted(others, key=known.__getitem__)]
    return [(known[tree], tree) for tree in ordered if known[tree] < float("inf")][:plans]


def _holds(tree: Node) -> Iterator[Hold]:
    return (node for _, node in walk(tree) if isinstance(node, Hold))


def _time(workload: Workload, chip: Chip, tree: Node) -> float | None:
    """None for what is illegal or does not fit."""
    if legality.faults(tree, workload, chip):
        return None
    estimate = evaluate(workload, chip, tree)
    if any(float(used) > chip.memory(name).capacity for name, used in estimate.footprint.items()):
        return None
    return float(estimate.time)


def _changed(tree: Node, workload: Workload) -> Iterator[Node]:
    """The tree with one change, as the search would write it."""
    for made in _one(tree):
        yield canonical(made, workload.dims)


def _one(node: Node) -> Iterator[Node]:
    match node:
        case Temporal() | Spatial():
            for tile in _tiles(node.tile):
                yield replace(node, tile=tile)
            yield from (replace(node, body=body) for body in _one(node.body))
        case Hold():
            for buffers in {1, 2, 3, node.buffers + 1} - {node.buffers}:
                yield replace(node, buffers=buffers)
            yield from (replace(node, body=body) for body in _one(node.body))
        case Pipeline():
            for tile in _tiles(node.tile):
                yield replace(node, tile=tile)
            yield from _among(node)
        case Sequence() | Overlap() | Parallel():
            yield from _among(node)


def _among(node: Pipeline | Sequence | Overlap | Parallel) -> Iterator[Node]:
    for index, child in enumerate(node.children):
        for made in _one(child):
            yield replace(node, children=(*node.children[:index], made, *node.children[index + 1 :]))


def _tiles(tile: int) -> list[int]:
    """Half, twice, and a little less or more."""
    return sorted({max(1, tile // 2), 2 * tile, max(1, tile - tile // 8), tile + max(1, tile // 8), 4 * tile} - {tile})
