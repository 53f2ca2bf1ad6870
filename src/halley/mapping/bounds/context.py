"""The context of a stage: the parts of the surrounding tree on which its cost depends."""

from __future__ import annotations

from collections.abc import Hashable, Set

from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.ir.workload import Workload


def cost_context(tree: Node, workload: Workload) -> Hashable:
    """A key for a tree's cost: stages in different groups or variants have equal costs if their keys are equal. It has the tree
    without unused tensors and without empty sequences, the ops in it, their tensors, and the dims."""
    nodes = [node for _, node in walk(tree)]
    ops = tuple(workload.op(node.op) for node in nodes if type(node) is Compute)
    touched = {name for op in ops for name in (*op.inputs, *op.outputs)}
    touched.update(name for node in nodes if type(node) is Collective for name in node.tensors)
    tensors = tuple(workload.tensors[name] for name in sorted(touched))
    shape = tuple(workload.dims.items()), workload.indices
    return _trimmed(tree, touched) or Sequence(()), ops, tensors, shape


def _trimmed(node: Node, touched: Set[str]) -> Node | None:
    match node:
        case Hold():
            body = _trimmed(node.body, touched)
            kept = tuple(own for group in node.tensors if (own := tuple(name for name in group if name in touched)))
            if body is None or not kept:
                return body
            return node if body is node.body and kept == node.tensors else Hold(node.memory, kept, body, node.buffers)
        case Temporal():
            body = _trimmed(node.body, touched)
            if body is None:
                return None
            return node if body is node.body else Temporal(node.dim, node.tile, body, node.visible)
        case Spatial():
            body = _trimmed(node.body, touched)
            if body is None:
                return None
            return node if body is node.body else Spatial(node.dim, node.tile, node.level, node.axis, body)
        case Sequence():
            children = tuple(made for child in node.children if (made := _trimmed(child, touched)) is not None)
            return Sequence(children, node.prefetch) if children else None
        case Compute() | Collective() | Overlap() | Parallel() | Pipeline():
            return node
