"""Holds of a `Sequence` with prefetch that are filled before or drained after their child runs (docs/model.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from halley.errors import Fault
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Compute, Hold, Node, Sequence, Spatial, Temporal, children, walk
from halley.ir.workload import Workload


@dataclass(frozen=True, slots=True)
class PrefetchedHolds:
    """``holds``: of each child, the ids of the Holds that are also open while its neighbours run; ``beside``: the indices of
    these neighbours."""

    holds: tuple[frozenset[int], ...]
    beside: tuple[frozenset[int], ...]


def prefetched_holds(workload: Workload, chip: Chip, tree: Node) -> Mapping[int, PrefetchedHolds]:
    """The prefetched Holds of each sequence with prefetch, by the id of the sequence."""
    found: dict[int, PrefetchedHolds] = {}
    _look(workload, chip, tree, False, found)
    return found


def prefetch_faults(tree: Node, early: Mapping[int, PrefetchedHolds]) -> list[Fault]:
    """Faults of sequences with prefetch in which no Hold can be prefetched."""
    expected = "a child that holds, in several buffers, what no other child changes or needs"
    empty = [node for _, node in walk(tree) if id(node) in early and not any(early[id(node)].holds)]
    return [Fault("sequence prefetch", expected, "none", "write 'sequence', or give a hold two buffers") for _ in empty]


def _look(workload: Workload, chip: Chip, node: Node, repeated: bool, found: dict[int, PrefetchedHolds]) -> None:
    """``repeated``: there is a loop in time between the start of the phase and the node."""
    match node:
        case Temporal():
            repeated = True
        case Spatial():
            pass
        case Hold():
            repeated = repeated and not _closed(chip, node)
        case Sequence() if node.prefetch:
            found[id(node)] = _early(workload, chip, node, repeated)
            repeated = False
        case _:
            repeated = False
    for child in children(node):
        _look(workload, chip, child, repeated, found)


def _early(workload: Workload, chip: Chip, node: Sequence, repeated: bool) -> PrefetchedHolds:
    count = len(node.children)
    uses, changes = zip(*(_touches(workload, child) for child in node.children), strict=True)
    handed = {name for i in range(count) for j in range(count) if i != j for name in changes[i] & uses[j]}
    early = [[hold for hold in _prefetched(chip, child) if not handed.intersection(hold.names)] for child in node.children]
    pairs = [(i, i + 1) for i in range(count - 1)] + ([(count - 1, 0)] if repeated else [])
    beside = [frozenset({b for a, b in pairs if a == i} | {a for a, b in pairs if b == i}) - {i} for i in range(count)]
    return PrefetchedHolds(tuple(frozenset(map(id, holds)) for holds in early), tuple(beside))


def _touches(workload: Workload, tree: Node) -> tuple[set[str], set[str]]:
    """Tensors that ops and collectives in a tree access, and those that they change."""
    uses: set[str] = set()
    changes: set[str] = set()
    for _, node in walk(tree):
        if isinstance(node, Compute):
            op = workload.op(node.op)
            uses.update(op.inputs, op.outputs, (op.scaled_by,) if op.scaled_by else ())
            changes.update(op.outputs)
        elif isinstance(node, Collective):
            uses.update(node.tensors)
            changes.update(node.tensors)
    return uses, changes


def _prefetched(chip: Chip, node: Node) -> Iterator[Hold]:
    """Holds of several buffers on the path from a child to its first node that is no loop, split or Hold."""
    while isinstance(node, Temporal | Spatial | Hold):
        if isinstance(node, Hold):
            if node.buffers == 1:
                return
            yield node
            if _closed(chip, node):
                return
        node = node.body


def _closed(chip: Chip, node: Hold) -> bool:
    """Whether the body ends before the next visit: the Hold has one buffer, or each visit is a lockstep step."""
    if node.buffers == 1:
        return True
    inner = [other for _, other in walk(node.body) if isinstance(other, Hold) and other.buffers > 1]
    return chip.memory(node.memory).lockstep and not any(chip.memory(other.memory).lockstep for other in inner)
