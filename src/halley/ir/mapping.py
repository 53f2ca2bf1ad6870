"""The mapping language: a closed set of frozen nodes.

A mapping is one program that every sibling of every level runs (SPMD). Each member carries, per dim, the
half-open range that it works on; loops narrow the range.

- `Temporal`  for dim by tile: the range is iterated in tiles; the last one may be ragged.
- `Spatial`   spread dim by tile over level.axis: member i takes the i-th tile; members beyond the range idle. An axis may be
  divided into groups, ``x/8`` and ``x%8`` (`halley.ir.axis_groups`).
- `Hold`      inside it these tensors are held in this memory. Entry fills, exit drains (see `Hold`).
- `Collective` moves or combines tensors between the members along one axis.
- `Compute`   runs one op over the member's ranges.
- `Sequence`, `Overlap`, `Parallel`, `Pipeline` compose.

A loop's ``tile`` is a whole number; in batched evaluation it is an array, one entry per mapping.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from halley.ir.array import Array


class CollectiveKind(StrEnum):
    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    REDUCE = "reduce"
    ALL_GATHER = "all-gather"
    GATHER = "gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    SCATTER = "scatter"
    SHIFT = "shift"  # point-to-point: member i sends to member i + 1


@dataclass(frozen=True, slots=True)
class Temporal:
    """``for dim by tile [visible]`` - a loop in time over tiles of the member's range.

    ``visible``: a loop over the keys of a mask; each member iterates only from the first to the last tile that any of its rows
    sees.
    """

    dim: str
    tile: Any
    body: Node
    visible: bool = False


@dataclass(frozen=True, slots=True)
class Spatial:
    """``spread dim by tile over level.axis`` - member i of the axis takes the i-th tile of its range.

    ``tile >= extent`` puts everything on member 0; no `Spatial` on an axis makes its members repeat the work.
    """

    dim: str
    tile: Any
    level: str
    axis: str
    body: Node


@dataclass(frozen=True, slots=True)
class Hold:
    """``hold memory: tensors`` - a buffer for the tile that the current ranges select.

    Entry: a tensor that the body reads before writing is filled from the next outer Hold of the tensor. So is an accumulator
    that earlier iterations of an outer reduction loop drained there; its first visit starts from zero. Exit: a tensor that the
    body writes and that has an outer Hold is drained to it. A tensor without an outer Hold exists only inside. ``buffers=2``
    overlaps transfers with the work; more buffers serve overlapped rounds. ``tensors`` is a tuple of groups; the tensors of one
    group share one buffer (in place: ``S|E|P``). Spatial splits over the memory's own axes may lie inside the Hold: then each
    member holds its own part.
    """

    memory: str
    tensors: tuple[tuple[str, ...], ...]
    body: Node
    buffers: Any = 1  # a whole number; in the cost model also an array or a term, where 0 omits the Hold

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for group in self.tensors for name in group)


@dataclass(frozen=True, slots=True)
class Collective:
    """``kind tensors over level.axis [to dim] with algorithm``.

    ``dim`` is the dim that the result is sharded over (reduce-scatter, scatter, all-to-all). The result of
    reduce and gather is on member 0; broadcast and scatter start there. The tensors are combined in
    each member's innermost Hold at that level.
    """

    kind: CollectiveKind
    tensors: tuple[str, ...]
    level: str
    axis: str
    algorithm: str
    dim: str = ""


@dataclass(frozen=True, slots=True)
class Compute:
    """``compute op [array rows x columns]`` - the op over the member's ranges, on the engine for its kind.

    ``array``: the dims of a contraction that are mapped to the rows and the columns of the matrix engine's array (``c|r|s x f``),
    from the roles that the dataflow allows there; the other dims are iterated. All dims of a side but the first are untiled.
    Without ``array``, each side has the last dim of its role.
    """

    op: str
    array: Array = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """Children one after the other, sharing the resources.

    ``prefetch``: the first fills and the last drains of a child overlap with the work of its neighbours (docs/model.md,
    "Prefetch across phases").
    """

    children: tuple[Node, ...]
    prefetch: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    """Concurrent children that share the resources.

    They are independent, or form a pipeline over successive rounds: while a child works on one tile, the child before it works
    on the next (docs/model.md, "Rounds").
    """

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Concurrent children on disjoint members of an axis: child i gets ``shares[i]`` consecutive members and
    sees an axis of that size. They are independent, or work on successive rounds like those of `Overlap`."""

    level: str
    axis: str
    shares: tuple[int, ...]
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``pipeline dim by tile over level.axis shares ...`` - a loop whose children are pipeline stages on
    disjoint members of an axis; tile i is in stage s while tile i + 1 is in stage s - 1."""

    dim: str
    tile: Any
    level: str
    axis: str
    shares: tuple[int, ...]
    children: tuple[Node, ...]


Node: TypeAlias = Temporal | Spatial | Hold | Collective | Compute | Sequence | Overlap | Parallel | Pipeline


def children(node: Node) -> tuple[Node, ...]:
    """The direct children of a node."""
    match node:
        case Temporal() | Spatial() | Hold():
            return (node.body,)
        case Sequence() | Overlap() | Parallel() | Pipeline():
            return node.children
        case _:
            return ()


def filling_broadcast(hold: Hold, tensor: str, readers: Container[str]) -> Collective | None:
    """The broadcast that is the first in a Hold's body to touch a tensor that the body only reads, if no further Hold of the
    tensor is between them. A fill then brings the tensor to member 0 of the broadcast's axis only. ``readers``: the ops that read
    the tensor."""
    left: list[Node] = [hold.body]
    while left:
        node = left.pop()
        match node:
            case Hold() if tensor in node.names:
                return None
            case Collective() if tensor in node.tensors:
                return node if node.kind is CollectiveKind.BROADCAST else None
            case Compute() if node.op in readers:
                return None
            case _:
                left += reversed(children(node))
    return None


def walk(node: Node, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Node]]:
    """Every (path, node), parents first. A path lists child indices from the root."""
    left = [(path, node)]
    while left:
        path, node = left.pop()
        yield path, node
        inner = children(node)
        if len(inner) == 1:
            left.append(((*path, 0), inner[0]))
        elif inner:
            left += [((*path, index), inner[index]) for index in range(len(inner) - 1, -1, -1)]
