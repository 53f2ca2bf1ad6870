"""Drawn trees made legal: the collectives that the rule book misses are put in."""

from __future__ import annotations

from dataclasses import replace

from halley.errors import Fault, IllegalMapping
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Node, Sequence
from halley.ir.workload import Workload
from halley.rewrite.hold_state import Missing
from halley.rewrite.legality import check, findings
from halley.rewrite.paths import node_at, replace_at
from halley.rewrite.walk_state import meeting


def insert_collectives(tree: Node, workload: Workload, chip: Chip) -> Node:
    """Add the collectives that `findings` misses, each right before its reader or at the end of the Hold that is to drain.

    before:                             after:

        spread n by 8 over cluster.x        spread n by 8 over cluster.x
          sequence                            sequence
            compute mx                          compute mx
            compute E                           all-reduce mx over cluster.x with ring
                                                compute E

    Raises IllegalMapping with the faults that no collective mends, or where there is no sequence for one.
    """
    # each collective changes how one tensor lies along one axis; more than a few per pair would be going round in circles
    for _ in range(4 * len(workload.tensors) * max(len(chip.axes), 1)):
        missing = next((finding.missing for finding in findings(tree, workload, chip) if finding.missing), None)
        if missing is None:
            break
        tree = _insert(tree, missing, missing.node)
    check(tree, workload, chip)
    return tree


def _insert(tree: Node, missing: Missing, node: Collective) -> Node:
    if missing.at_end:
        return replace_at(tree, (*missing.before, 0), lambda body: _series(body, node))
    around = meeting(missing.setter, missing.before)
    if around == missing.setter:  # the reader is inside the Hold that was filled
        return replace_at(tree, (*around, 0), lambda body: _series(node, body))
    between = node_at(tree, around)
    if not isinstance(between, Sequence):
        raise IllegalMapping(Fault("insert", "a sequence around the writer and the reader", str(between), "leave it out"))
    at = missing.before[len(around)]
    return replace_at(tree, around, lambda _: replace(between, children=(*between.children[:at], node, *between.children[at:])))


def _series(*nodes: Node) -> Sequence:
    """The nodes one after the other, without a Sequence in a Sequence."""
    flat: list[Node] = []
    for node in nodes:
        flat.extend(node.children if isinstance(node, Sequence) and not node.prefetch else (node,))
    return Sequence(tuple(flat))
