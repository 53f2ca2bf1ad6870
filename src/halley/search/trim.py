"""What the cost of a stage depends on, of the tree around it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.ir.workload import Workload


def trimmed(tree: Node, workload: Workload) -> Node:
    """The tree without the tensors that nothing in it touches and without empty sequences: neither moves or computes anything, so
    that stages in different groups have equal costs where their trimmed trees are equal."""
    touched: set[str] = set()
    for _, node in walk(tree):
        if isinstance(node, Compute):
            touched.update(workload.op(node.op).inputs, workload.op(node.op).outputs)
        elif isinstance(node, Collective):
            touched.update(node.tensors)
    return _trimmed(tree, touched) or Sequence(())


def _trimmed(node: Node, touched: Set[str]) -> Node | None:
    match node:
        case Hold():
            body = _trimmed(node.body, touched)
            kept = tuple(own for group in node.tensors if (own := tuple(name for name in group if name in touched)))
            if body is None or not kept:
                return body
            return replace(node, tensors=kept, body=body)
        case Temporal() | Spatial():
            body = _trimmed(node.body, touched)
            return None if body is None else replace(node, body=body)
        case Sequence():
            children = tuple(made for child in node.children if (made := _trimmed(child, touched)) is not None)
            return Sequence(children) if children else None
        case Compute() | Collective() | Overlap() | Parallel() | Pipeline():
            return node
