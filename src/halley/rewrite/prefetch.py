"""Holds that a `Sequence` with ``prefetch`` fills early and drains late (docs/model.md, "Prefetch across phases").

A Hold of several buffers is *prefetched* across the boundaries of its phase if no other child of the sequence writes or reads
what it holds: its first fill overlaps the child before, its last drain the child after.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from halley.errors import Fault
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Sequence, Spatial, Temporal, walk
from halley.ir.workload import Workload
from halley.rewrite.rounds import is_handed_over, touches_of
from halley.rewrite.scopes import Path


def in_lockstep(chip: Chip) -> frozenset[str]:
    """The memories whose buffers swap at a barrier."""
    return frozenset(memory.name for memory in chip.memories if memory.lockstep)


def handed_over(node: Sequence, workload: Workload) -> frozenset[str]:
    """Tensors that one child changes and another accesses: their fills and drains must not cross phase boundaries."""
    found = [touches_of(child, workload) for child in node.children]
    return frozenset(name for name in workload.tensors if is_handed_over(name, found))


def is_single(node: Hold) -> bool:
    """Whether a Hold is known to have one buffer (a number, not an open term)."""
    return type(node.buffers) is int and node.buffers == 1


def makes_steps(node: Hold, lockstep: Set[str]) -> bool:
    """Whether the body of a lockstep Hold is one step between barriers: it contains no other lockstep Hold of several buffers."""
    deeper = (inner for _, inner in walk(node.body) if isinstance(inner, Hold))
    return node.memory in lockstep and not any(inner.memory in lockstep and not is_single(inner) for inner in deeper)


def ends_prefetch(node: Hold, lockstep: Set[str]) -> bool:
    """Whether the body of a Hold is a phase of its own, so that nothing inside is prefetched across its boundaries."""
    return is_single(node) or makes_steps(node, lockstep)


def prefetched_holds(node: Node, waits: Set[str], lockstep: Set[str]) -> Iterator[tuple[Node, ...]]:
    """The nodes on the path to each prefetched Hold in a child of a sequence, the Hold last. ``waits``: tensors that must not be
    prefetched."""
    match node:
        case Temporal() | Spatial():
            yield from ((node, *way) for way in prefetched_holds(node.body, waits, lockstep))
        case Hold() if not is_single(node):
            if waits.isdisjoint(node.names):
                yield (node,)
            if not ends_prefetch(node, lockstep):
                yield from ((node, *way) for way in prefetched_holds(node.body, waits, lockstep))
        case _:
            return


def prefetch_faults(tree: Node, workload: Workload, chip: Chip) -> Iterator[tuple[Path, Fault]]:
    """Sequences with `prefetch` in which no Hold can be prefetched. Names in the tree must be known."""
    lockstep = in_lockstep(chip)
    for path, node in walk(tree):
        if isinstance(node, Sequence) and node.prefetch:
            waits = handed_over(node, workload)
            if not any(True for child in node.children for _ in prefetched_holds(child, waits, lockstep)):
                expected = "a child that holds, in several buffers, what no other child changes or needs"
                got = f"none; children hand over {' '.join(sorted(waits)) or 'nothing'}"
                yield path, Fault("sequence prefetch", expected, got, "write 'sequence', or give a hold two buffers")
