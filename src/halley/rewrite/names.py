"""The first check of a tree: all names exist, all numbers are valid, and every op occurs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, assert_never

from halley.errors import Fault, did_you_mean
from halley.ir.array import NO_DIM, Side, side_text, sides
from halley.ir.hardware import Chip, Dataflow
from halley.ir.mapping import (
    Collective,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.workload import OpKind, Workload, roles
from halley.rewrite.scopes import Path


def name_faults(tree: Node, workload: Workload, chip: Chip) -> Iterator[tuple[Path, Fault]]:
    """Faults of single nodes, each with the path of its node; the root's path for a missing op."""
    seen = Counter(node.op for _, node in walk(tree) if isinstance(node, Compute))
    last = {node.op: path for path, node in walk(tree) if isinstance(node, Compute)}
    for path, node in walk(tree):
        yield from ((path, fault) for fault in _node_faults(node, workload, chip))
    ops = {op.name for op in workload.ops}
    for name, count in seen.items():
        if count > 1 and name in ops:
            yield last[name], Fault(f"compute {name}", "one compute per op", f"{count}", "keep one")
    for name in (op.name for op in workload.ops):
        if name not in seen:
            yield (), Fault(f"compute {name}", "every op of the workload once", "none", f"add 'compute {name}'")


def _node_faults(node: Node, workload: Workload, chip: Chip) -> Iterator[Fault]:
    match node:
        case Temporal():
            yield from _loop(f"for {node.dim} by {node.tile}", node.dim, node.tile, workload)
        case Spatial():
            where = f"spread {node.dim} by {node.tile}"
            yield from _loop(where, node.dim, node.tile, workload)
            yield from _place(where, node.level, node.axis, chip)
        case Hold():
            yield from _hold(node, workload, chip)
        case Collective():
            where = f"{node.kind} {' '.join(node.tensors)}"
            yield from _place(where, node.level, node.axis, chip)
            yield from _known(where, "tensor", node.tensors, workload.tensors)
            yield from _known(where, "dim", [node.dim] if node.dim else [], workload.dims)
            yield from _distinct(where, node.tensors)
        case Compute():
            yield from _known(f"compute {node.op}", "op", [node.op], [op.name for op in workload.ops])
            yield from _array(node, workload, chip)
        case Sequence() | Overlap():
            if not node.children:
                yield Fault(type(node).__name__.lower(), "at least one child", "none", "remove it")
        case Parallel():
            where = f"parallel over {node.level}.{node.axis}"
            yield from _place(where, node.level, node.axis, chip)
        case Pipeline():
            where = f"pipeline {node.dim} by {node.tile}"
            yield from _loop(where, node.dim, node.tile, workload)
            yield from _place(where, node.level, node.axis, chip)
        case _:
            assert_never(node)


def _array(node: Compute, workload: Workload, chip: Chip) -> Iterator[Fault]:
    """Faults of the array dims of a `Compute`: dims of a contraction, on each side of the role that the dataflow allows."""
    op, where = next((op for op in workload.ops if op.name == node.op), None), f"compute {node.op}"
    if not node.array or op is None:
        return
    remedy = "leave 'array' and what follows it out"
    if op.kind is not OpKind.CONTRACT:
        yield Fault(where, "dims on an array for a contraction only", f"a {op.kind}", remedy)
    elif chip.matrix is None or chip.matrix.dataflow is Dataflow.NONE:
        got = "no matrix engine" if chip.matrix is None else f"{chip.matrix.name}, whose dataflow is none"
        yield Fault(where, f"a matrix engine of {chip.name} that is an array", got, remedy)
    elif len(node.array) != 2:
        yield Fault(where, "two sides of the array, rows and columns", f"{len(node.array)}", "name the dims of both")
    else:
        able = sides(roles(workload, op), chip.matrix.dataflow)
        for side, named, its in zip(("rows", "columns"), node.array, able, strict=True):
            yield from _side(f"{where}, array {side}", named, its, chip.matrix.dataflow)


def _side(where: str, named: Side, able: Side, dataflow: Dataflow) -> Iterator[Fault]:
    for dim in (dim for dim in named if dim not in able):
        remedy = did_you_mean(dim, able) if able else f"write '{NO_DIM}' for this side"
        yield Fault(where, f"a dim that {dataflow} puts there ({side_text(able)})", repr(dim), remedy)
    for dim, count in Counter(named).items():
        if count > 1:
            yield Fault(where, "each dim once", f"{dim} {count} times", "name it once")
    if able and not named:
        yield Fault(where, f"a dim that {dataflow} puts there ({side_text(able)})", "none", f"name one of: {', '.join(able)}")


def _known(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> Iterator[Fault]:
    options = list(known)
    for name in names:
        if name not in options:
            article = "an" if what[0] in "aeiou" else "a"
            yield Fault(where, f"{article} {what} that exists", repr(name), did_you_mean(name, options))


def _distinct(where: str, names: tuple[str, ...]) -> Iterator[Fault]:
    if not names:
        yield Fault(where, "at least one tensor", "none", "name one, or remove the node")
    for name, count in Counter(names).items():
        if count > 1:
            yield Fault(where, "each tensor once", f"{name} {count} times", "name it once")


def _loop(where: str, dim: str, tile: Any, workload: Workload) -> Iterator[Fault]:
    yield from _known(where, "dim", [dim], workload.dims)
    if not _is_whole(tile):
        yield Fault(where, "a tile that is a whole number of at least 1", repr(tile))


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and not getattr(value, "shape", ()) and int(value) >= 1


def _place(where: str, level: str, axis: str, chip: Chip) -> Iterator[Fault]:
    levels = {item.name: item for item in chip.levels}
    if level not in levels:
        yield Fault(where, f"a level of {chip.name}", repr(level), did_you_mean(level, levels))
        return
    network = levels[level].network
    axes = [item.name for item in network.axes] if network else []
    if axis not in axes:
        remedy = did_you_mean(axis, axes) if axes else "the level has no axes"
        yield Fault(where, f"an axis of {level}", repr(axis), remedy)


def _hold(node: Hold, workload: Workload, chip: Chip) -> Iterator[Fault]:
    where = f"hold {node.memory}"
    yield from _known(where, "memory", [node.memory], [memory.name for memory in chip.memories])
    yield from _known(where, "tensor", node.names, workload.tensors)
    yield from _distinct(where, node.names)
    if not _is_whole(node.buffers):
        yield Fault(where, "a whole number of buffers of at least 1", repr(node.buffers), "2 buffers prefetch")
    for group in node.tensors:
        for before, after in pairwise(group):
            yield from _in_place(f"{where}: {'|'.join(group)}", before, after, workload)


def _in_place(where: str, before: str, after: str, workload: Workload) -> Iterator[Fault]:
    """``after`` may overwrite ``before`` only if each of its elements is computed from the element at the same index."""
    tensors, op = workload.tensors, workload.producer(after)
    if before not in tensors or after not in tensors:
        return
    if op is None or op.kind is not OpKind.MAP or before not in op.inputs or tensors[before].dims != tensors[after].dims:
        got = f"the result of {op.name}, a {op.kind} of {' '.join(op.inputs)}" if op else "an input of the workload"
        yield Fault(where, f"{after} to be a map of {before} over the same dims", got, f"give {after} a buffer of its own")
