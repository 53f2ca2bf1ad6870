"""Nodes of a tree by their path: child indices from the root, as `halley.ir.mapping.walk` yields them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halley.errors import Fault, IllegalMapping
from halley.ir.mapping import Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, children
from halley.rewrite.scopes import Path


def node_at(tree: Node, path: Path) -> Node:
    """The node at a path. Raises IllegalMapping if there is none."""
    for depth, index in enumerate(path):
        inside = children(tree)
        if not 0 <= index < len(inside):
            got = f"a node with {len(inside)} children at {path[:depth]}"
            raise IllegalMapping(Fault(f"path {path}", f"a child {index}", got, "take paths from walk(tree)"))
        tree = inside[index]
    return tree


def replace_at(tree: Node, path: Path, change: Callable[[Node], Node]) -> Node:
    """The tree with the node at a path changed."""
    node_at(tree, path)
    if not path:
        return change(tree)
    match tree:
        case Temporal() | Spatial() | Hold():
            return replace(tree, body=replace_at(tree.body, path[1:], change))
        case Sequence() | Overlap() | Parallel() | Pipeline():
            items = list(tree.children)
            items[path[0]] = replace_at(items[path[0]], path[1:], change)
            return replace(tree, children=tuple(items))
        case _:
            return tree
