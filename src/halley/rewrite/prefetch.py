"""What a `Sequence` with ``prefetch`` brings in early and lets go out late (docs/model.md, "Prefetch across phases").

A Hold of several buffers *runs on* across the ends of its phase where no other child of the sequence changes or needs what it
holds: its first fill then comes in beside the child before, its last drain goes out beside the next one.
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
    """Tensors that one child changes and another touches: what they bring in has to wait, and what they leave as well."""
    found = [touches_of(child, workload) for child in node.children]
    return frozenset(name for name in workload.tensors if is_handed_over(name, found))


def is_single(node: Hold) -> bool:
    """Whether a Hold has one buffer, whatever else is open: it ends what runs on."""
    return type(node.buffers) is int and node.buffers == 1


def makes_steps(node: Hold, lockstep: Set[str]) -> bool:
    """Whether what is inside a Hold of several buffers is one step between barriers: no such Hold lies further in."""
    deeper = (inner for _, inner in walk(node.body) if isinstance(inner, Hold))
    return node.memory in lockstep and not any(inner.memory in lockstep and not is_single(inner) for inner in deeper)


def ends_prefetch(node: Hold, lockstep: Set[str]) -> bool:
    """Whether nothing that is inside a Hold runs on beside what is around it: what is inside is a phase."""
    return is_single(node) or makes_steps(node, lockstep)


def prefetched_holds(node: Node, waits: Set[str], lockstep: Set[str]) -> Iterator[tuple[Node, ...]]:
    """The way to each Hold that runs on in a child of a sequence, as the nodes passed; the Hold is the last. ``waits``: the
    tensors of which nothing may come early."""
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
    """Sequences that say `prefetch` where nothing runs on. Names in the tree must be known."""
    lockstep = in_lockstep(chip)
    for path, node in walk(tree):
        if isinstance(node, Sequence) and node.prefetch:
            waits = handed_over(node, workload)
            if not any(True for child in node.children for _ in prefetched_holds(child, waits, lockstep)):
                expected = "a child that holds, in several buffers, what no other child changes or needs"
                got = f"none; children hand over {' '.join(sorted(waits)) or 'nothing'}"
                yield path, Fault("sequence prefetch", expected, got, "write 'sequence', or give a hold two buffers")
