"""One more buffer for tensors that concurrent children hand over, if it costs nothing.

With exactly as many buffers as rounds in flight, a small delay of a child stalls the child before it. The time formula does not
model that; the simulation does. The decision is docs/decisions/0049-buffers-from-the-chip-file.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Pipeline
from halley.ir.workload import Workload
from halley.mapping.solve.group import fits
from halley.mapping.solve.ties import EQUAL
from halley.rewrite.paths import replace_at
from halley.rewrite.rounds import concurrent_nodes, is_handed_over, touches_of
from halley.rewrite.scopes import Path


def with_spare_buffers(workload: Workload, chip: Chip, tree: Node, estimate: Estimate) -> tuple[Node, Estimate]:
    """The mapping and its estimate, with one more buffer in each Hold of several buffers through which children hand over, if
    that fits and does not change the time of the formula."""
    for path in _homes(tree, workload):
        roomier = replace_at(tree, path, _with_one_more)
        found = evaluate(workload, chip, roomier)
        if fits(chip, found) and abs(float(found.time) - float(estimate.time)) <= EQUAL * float(estimate.time):
            tree, estimate = roomier, found
    return tree, estimate


def _with_one_more(node: Node) -> Node:
    return replace(node, buffers=node.buffers + 1) if isinstance(node, Hold) else node


def _homes(tree: Node, workload: Workload) -> Iterable[Path]:
    """The Holds of several buffers through which concurrent children hand over."""
    found: dict[Path, None] = {}
    for _, node, homes in concurrent_nodes(tree):
        if isinstance(node, Pipeline):
            continue
        touched = [touches_of(child, workload) for child in node.children]
        found |= {home.path: None for name, home in homes.items() if home.node.buffers > 1 and is_handed_over(name, touched)}
    return found
