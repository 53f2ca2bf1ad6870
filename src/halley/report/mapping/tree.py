"""The mapping as text, with the time of each node beside it."""

from __future__ import annotations

from dataclasses import dataclass

from halley.cost.estimate import Estimate, NodeCost, Resource
from halley.errors import BadInput, Fault
from halley.ir.mapping import Node, Overlap, Parallel, Pipeline, Sequence, walk
from halley.ir.text import to_text

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One node of the printed tree: its ``number`` from 1, its path, its text with indentation, its cost.

    ``time`` [s] is its share of the whole; ``bound`` names what sets it: a resource, or () for the work inside the node.
    """

    number: int
    path: Path
    node: Node
    text: str
    cost: NodeCost
    time: float
    bound: Resource


def lines(tree: Node, estimate: Estimate) -> tuple[TreeLine, ...]:
    """The printed tree, one node a line, parents first."""
    found = []
    phases = phase_paths(tree)
    for number, ((path, node), text) in enumerate(zip(walk(tree), to_text(tree).splitlines(), strict=True), 1):
        cost = estimate.nodes[path]
        # ramps belong to the phase around a node, so only a phase shows them as its own time
        time = float(cost.time) if path in phases else steady(cost)
        found.append(TreeLine(number, path, node, text, cost, time, binding(cost)))
    return tuple(found)


def phase_paths(tree: Node) -> frozenset[Path]:
    """Paths of the phases: the root and each child of a node that composes (docs/model.md, "Time")."""
    found: set[Path] = {()}
    for path, node in walk(tree):
        if isinstance(node, Sequence | Overlap | Parallel | Pipeline):
            found.update((*path, index) for index in range(len(node.children)))
    return frozenset(found)


def steady(cost: NodeCost) -> float:
    """Time [s] of a node once its pipeline is full: its work or its busiest resource."""
    return max([float(cost.work), *(float(value) for value in cost.busy.values())])


def binding(cost: NodeCost) -> Resource:
    """The resource that sets the node's time; () if the work inside takes longer than any resource is busy."""
    if not cost.busy:
        return ()
    resource, busy = max(cost.busy.items(), key=lambda item: (float(item[1]), item[0][0] == "engine"))
    return resource if float(busy) >= float(cost.work) else ()


def find(shown: tuple[TreeLine, ...], name: str, where: str) -> TreeLine:
    """The line that a path such as 0.0.1 ("." for the root) or a line number names.

    A lone number is a line number. Raises BadInput: there is no such node.
    """
    words = name.strip()
    if _is_number(words):
        found = [line for line in shown if line.number == int(words)]
    else:
        parts = words.strip(".").split(".") if words.strip(".") else []
        wanted = tuple(int(part) if _is_number(part) else -1 for part in parts)
        found = [line for line in shown if line.path == wanted and (words == "." or wanted)]
    if not found:
        expected = f"a line number from 1 to {len(shown)}, or a path such as 0.0 ('.' is the root)"
        raise BadInput(Fault(where, expected, repr(name), "see the numbered tree of 'halley show'"))
    return found[0]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 6


def path_name(path: Path) -> str:
    """A path as text.

    >>> path_name((0, 1)), path_name(())
    ('0.1', '.')
    """
    return ".".join(map(str, path)) or "."
