"""Legality rules of loops that skip tiles that a mask hides (docs/model.md, "Masks")."""

from __future__ import annotations

from collections.abc import Iterator

from halley.errors import Fault
from halley.ir.mapping import Collective, Compute, Hold, Node, Parallel, Pipeline, Spatial, Temporal, walk
from halley.ir.masks import Mask, mask_over, masks
from halley.ir.workload import Workload

Path = tuple[int, ...]


def mask_faults(tree: Node, workload: Workload) -> Iterator[tuple[Path, Fault]]:
    """Faults of visible loops. Names in the tree must be known."""
    nodes = dict(walk(tree))
    for path, node in nodes.items():
        if isinstance(node, Temporal) and node.visible:
            where = f"for {node.dim} by {node.tile} visible"
            mask = mask_over(workload, node.dim)
            if mask is None:
                yield path, Fault(where, "the keys of one mask", node.dim, "leave 'visible' out")
                continue
            enclosing = [nodes[path[:depth]] for depth in range(len(path))]
            for expected, got in (*_loops(node, enclosing, workload), *_ops(node, enclosing, workload, mask)):
                yield path, Fault(where, expected, got, "leave 'visible' out")


def _loops(node: Temporal, enclosing: list[Node], workload: Workload) -> Iterator[tuple[str, str]]:
    """(expected, got): its dim is tiled only by loops inside it, and no members with other tiles take part."""
    for outer in enclosing:
        if isinstance(outer, Temporal | Spatial | Pipeline) and outer.dim == node.dim:
            yield f"no other loop or split of {node.dim} around it", "one"
    for _, inner in walk(node.body):
        if isinstance(inner, Spatial) and inner.dim == node.dim:
            yield f"no split of {node.dim} inside it", "one"
        elif isinstance(inner, Temporal) and inner.visible:
            yield "no other visible loop inside it", "one"
        elif isinstance(inner, Collective | Parallel | Pipeline):
            yield f"no {type(inner).__name__.lower()} inside it", "one"
    if workload.indices:
        yield "a workload without affine indices", f"indices into {', '.join(index.dim for index in workload.indices)}"


def _ops(node: Temporal, enclosing: list[Node], workload: Workload, mask: Mask) -> Iterator[tuple[str, str]]:
    """(expected, got): no op outside it reads skipped points, and sums over the keys are held outside it."""
    have = masks(workload)
    inside = {inner.op: workload.op(inner.op) for _, inner in walk(node.body) if isinstance(inner, Compute)}
    held = {name for _, inner in walk(node.body) if isinstance(inner, Hold) for name in inner.names}
    outside = {name for outer in enclosing if isinstance(outer, Hold) for name in outer.names}
    for op in inside.values():
        if have.get(op.name) != mask:
            yield f"ops with the mask {mask} alone", op.name
        for name in op.outputs:
            spans = {mask.rows, mask.keys} <= set(workload.tensors[name].dims)
            others = name in workload.outputs or any(reader.name not in inside for reader in workload.consumers(name))
            if spans and (others or name in outside):
                yield f"{name} made, held and read inside it alone", "more"
            if not spans and name in held:
                yield f"{name} held around it", "inside it"
