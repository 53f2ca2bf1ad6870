"""Rewrites: functions from a tree to a tree that computes the same.

A path lists child indices from the root (`halley.ir.mapping.walk` yields them). What does not apply raises IllegalMapping with
the reason. Rewrites that move data or work about take the workload and the chip, and return no tree that `check` rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halley.errors import Fault, IllegalMapping
from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    children,
)
from halley.ir.text import to_text
from halley.ir.workload import Workload
from halley.rewrite.legality import check, findings
from halley.rewrite.residence import Missing
from halley.rewrite.scopes import Path
from halley.rewrite.state import meeting


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


def split(tree: Node, path: Path, tile: int) -> Node:
    """Cut the tiles of a loop in time out of larger tiles, or cut smaller ones out of them.

    before:             after ``split(tree, (), 64)``:

        for m by 16         for m by 64
          compute C           for m by 16
                                compute C

    The larger tile must be a multiple of the smaller, so that the iterations stay what they were.
    """
    node = node_at(tree, path)
    if not isinstance(node, Temporal) or node.visible:
        raise _refusal(node, "split", "a loop in time", "give the path of a 'for'")
    large, small = max(tile, node.tile), min(tile, node.tile)
    if small < 1 or large % small or large == small:
        expected = f"a tile that is another multiple or divisor of {node.tile}"
        raise IllegalMapping(Fault(f"split for {node.dim} by {node.tile}", expected, str(tile), "choose another tile"))
    return replace_at(tree, path, lambda _: Temporal(node.dim, large, Temporal(node.dim, small, node.body)))


def interchange(tree: Node, path: Path, workload: Workload, chip: Chip) -> Node:
    """Swap a loop, split or Hold with the one right inside it.

    before:             after ``interchange(tree, ())``:

        for m by 4          for n by 8
          for n by 8          for m by 4
            compute C           compute C

    Two cuts of one dim do not commute.
    """
    outer = node_at(tree, path)
    if not isinstance(outer, Temporal | Spatial | Hold):
        raise _refusal(outer, "interchange", "a loop, split or hold", "give the path of the outer one")
    inner = outer.body
    if not isinstance(inner, Temporal | Spatial | Hold):
        raise _refusal(inner, "interchange", "a loop, split or hold right inside", "only perfect nests can be swapped")
    if not isinstance(outer, Hold) and not isinstance(inner, Hold) and outer.dim == inner.dim:
        raise _refusal(inner, "interchange", f"cuts of two dims (the outer cuts {outer.dim})", "leave their order")
    swapped = replace(inner, body=replace(outer, body=inner.body))
    return _legal(replace_at(tree, path, lambda _: swapped), workload, chip)


def hold_at(
    tree: Node,
    path: Path,
    memory: str,
    tensors: tuple[tuple[str, ...], ...],
    workload: Workload,
    chip: Chip,
    buffers: int = 1,
) -> Node:
    """Keep tensors in a memory from the node at ``path`` inward.

    before:             after ``hold_at(tree, (0,), "glb", (("A",),), ...)``:

        for m by 4          for m by 4
          compute C           hold glb: A
                                compute C
    """
    return _legal(replace_at(tree, path, lambda node: Hold(memory, tensors, node, buffers)), workload, chip)


def bypass(tree: Node, path: Path, tensor: str, workload: Workload, chip: Chip) -> Node:
    """Let a tensor pass by the memory of the Hold at ``path``; an empty Hold goes away.

    before:             after ``bypass(tree, (), "A", ...)``:

        hold glb: A B       hold glb: B
          compute C           compute C
    """
    node = node_at(tree, path)
    if not isinstance(node, Hold) or tensor not in node.names:
        raise _refusal(node, "bypass", f"a hold of {tensor}", "give the path of a hold that has it")
    left = (tuple(name for name in group if name != tensor) for group in node.tensors)
    groups = tuple(group for group in left if group)
    without = replace(node, tensors=groups) if groups else node.body
    return _legal(replace_at(tree, path, lambda _: without), workload, chip)


def double_buffer(tree: Node, path: Path) -> Node:
    """Let the Hold at ``path`` fetch its next tile behind the work on the present one. Needs twice the room.

    before:             after ``double_buffer(tree, ())``:

        hold glb: A         hold glb x2: A
          compute C           compute C
    """
    node = node_at(tree, path)
    if not isinstance(node, Hold) or node.buffers != 1:
        raise _refusal(node, "double_buffer", "a hold with one buffer", "give the path of such a hold")
    return replace_at(tree, path, lambda _: replace(node, buffers=2))


def prefetch(tree: Node, path: Path, workload: Workload, chip: Chip) -> Node:
    """Let the first tiles of each child of the sequence at ``path`` come in, and its last results go out, beside its neighbours.
    Needs room for both.

    before:                 after ``prefetch(tree, (), ...)``:

        sequence                sequence prefetch
          hold ibuf x2: A         hold ibuf x2: A
            compute C               compute C
          hold ibuf x2: B         hold ibuf x2: B
            compute D               compute D
    """
    node = node_at(tree, path)
    if not isinstance(node, Sequence) or node.prefetch:
        raise _refusal(node, "prefetch", "a sequence whose phases end before the next begins", "give the path of such a sequence")
    return _legal(replace_at(tree, path, lambda _: replace(node, prefetch=True)), workload, chip)


def spread(tree: Node, path: Path, dim: str, tile: int, level: str, axis: str, workload: Workload, chip: Chip) -> Node:
    """Deal the work inside the node at ``path`` out over the members of an axis.

    before:                     after ``spread(tree, (), "n", 8, "cluster", "x", ...)``:

        hold obuf: A B C            spread n by 8 over cluster.x
          compute C                   hold obuf: A B C
                                        compute C

    Where the split leaves parts that must be brought together, add them first: `insert_collectives`.
    """
    return _legal(replace_at(tree, path, lambda node: Spatial(dim, tile, level, axis, node)), workload, chip)


def fuse_loops(tree: Node, path: Path, workload: Workload, chip: Chip) -> Node:
    """Make one loop (or split) of the equal ones that are the children of a Sequence.

    before:             after ``fuse_loops(tree, (), ...)``:

        sequence            for m by 4
          for m by 4          sequence
            compute S           compute S
          for m by 4            compute E
            compute E
    """
    node = node_at(tree, path)
    if not isinstance(node, Sequence):
        raise _refusal(node, "fuse_loops", "a sequence", "give the path of a sequence of loops")
    first = node.children[0] if node.children else node
    if not isinstance(first, Temporal | Spatial):
        raise _refusal(first, "fuse_loops", "a loop or split as each child", "fuse other children first")
    bodies = []
    for child in node.children:
        if not isinstance(child, Temporal | Spatial) or replace(child, body=first.body) != first:
            raise _refusal(child, "fuse_loops", f"'{_header(first)}' as each child", "fuse equal loops only")
        bodies.append(child.body)
    fused = replace(first, body=_series(*bodies))
    return _legal(replace_at(tree, path, lambda _: fused), workload, chip)


def insert_collectives(tree: Node, workload: Workload, chip: Chip, algorithm: str = "") -> Node:
    """Add the collectives that `findings` misses, each right before its reader or at the end of the Hold that is to drain.

    before:                             after:

        spread n by 8 over cluster.x        spread n by 8 over cluster.x
          sequence                            sequence
            compute mx                          compute mx
            compute E                           all-reduce mx over cluster.x with ring
                                                compute E

    ``algorithm``: the one to use; by default, for each collective the first that serves it. Raises IllegalMapping with the
    faults that no collective mends.
    """
    # each collective changes how one tensor lies along one axis; more than a few per pair would be going round in circles
    for _ in range(4 * len(workload.tensors) * max(len(chip.axes), 1)):
        missing = next((finding.missing for finding in findings(tree, workload, chip) if finding.missing), None)
        if missing is None:
            break
        node = replace(missing.node, algorithm=algorithm) if algorithm else missing.node
        tree = _insert(tree, missing, node)
    return _legal(tree, workload, chip)


def _insert(tree: Node, missing: Missing, node: Collective) -> Node:
    if missing.at_end:
        return replace_at(tree, (*missing.before, 0), lambda body: _series(body, node))
    around = meeting(missing.setter, missing.before)
    if around == missing.setter:  # the reader is inside the Hold that was filled
        return replace_at(tree, (*around, 0), lambda body: _series(node, body))
    between = node_at(tree, around)
    if not isinstance(between, Sequence):
        expected = "a sequence around the writer and the reader"
        raise _refusal(between, f"insert {node.kind} {' '.join(node.tensors)}", expected, "let a shared memory hold it")
    at = missing.before[len(around)]
    return replace_at(tree, around, lambda _: replace(between, children=(*between.children[:at], node, *between.children[at:])))


def _series(*nodes: Node) -> Sequence:
    """The nodes one after the other, without a Sequence in a Sequence."""
    flat: list[Node] = []
    for node in nodes:
        flat.extend(node.children if isinstance(node, Sequence) and not node.prefetch else (node,))
    return Sequence(tuple(flat))


def _legal(tree: Node, workload: Workload, chip: Chip) -> Node:
    check(tree, workload, chip)
    return tree


def _header(node: Node) -> str:
    return to_text(node).partition("\n")[0]


def _refusal(node: Node, what: str, expected: str, remedy: str) -> IllegalMapping:
    return IllegalMapping(Fault(what, expected, f"'{_header(node)}'", remedy))
