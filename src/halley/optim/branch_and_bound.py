"""Branch and bound: the loop that all searches over sets of candidates share.

A node is a set of candidates with a lower bound of their values. Branching divides it into smaller sets. Nodes whose bound is no
better than the incumbent are pruned, and the search ends when no node is open (Land and Doig, Econometrica 28, 1960). The caller
holds the incumbent; the order in which open nodes are taken is one of three:

    LowestFirst   the lowest bound first: the fewest nodes, and a bound of all open nodes that rises
    LastFirst     depth first: little memory, and an early incumbent
    Batches       rows of arrays, many nodes at once: depth first, in each batch the lowest bounds first
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Node = TypeVar("Node")

Values = NDArray[np.float64]
Rows = NDArray[np.int64]


class OpenNodes(Protocol[Node]):
    """The nodes that are still to be divided."""

    def take(self) -> Node | None:
        """Removes the next node and returns it; None if there is none that is not pruned."""

    def add(self, node: Node, /) -> None:
        """Adds a node."""


def branch_and_bound(
    open_nodes: OpenNodes[Node], branch: Callable[[Node], Iterable[Node]], stop: Callable[[], bool] = lambda: False
) -> None:
    """Divides open nodes until none is left, or until ``stop``, which is asked before each node.

    ``branch`` returns the parts of a node, and records what it finds in the caller's incumbent; no parts: the node is done. If it
    raises, for instance on Ctrl-C, the node is open again, so that the open nodes always cover what was not searched.

    The subset of least sum among those of at least 10, a node being the numbers left and the sum so far:

    >>> best, numbers = [math.inf], (7, 6, 5, 3)
    >>> def branch(node):
    ...     left, total = node
    ...     if total >= 10:
    ...         best[0] = min(best[0], total)
    ...         return []
    ...     return [(left[1:], total), (left[1:], total + left[0])] if left else []
    >>> branch_and_bound(LastFirst([(numbers, 0)], lambda node: node[1] >= best[0]), branch)
    >>> best
    [10]
    """
    for _ in explored(open_nodes, branch, stop):
        pass


def explored(
    open_nodes: OpenNodes[Node], branch: Callable[[Node], Iterable[Node]], stop: Callable[[], bool] = lambda: False
) -> Iterator[Node]:
    """The same, step by step: each node after it was divided."""
    while not stop() and (node := open_nodes.take()) is not None:
        divide(open_nodes, node, branch)
        yield node


def divide(open_nodes: OpenNodes[Node], node: Node, branch: Callable[[Node], Iterable[Node]]) -> None:
    """Replaces a node that was taken by its parts; if ``branch`` raises, the node is open again."""
    try:
        for part in branch(node):
            open_nodes.add(part)
    except BaseException:
        open_nodes.add(node)
        raise


class Bounded(Protocol):
    """A node with its lower bound, ordered by it."""

    @property
    def bound(self) -> float: ...

    def __lt__(self, other: Any, /) -> bool: ...


BoundedNode = TypeVar("BoundedNode", bound=Bounded)


class LowestFirst(Generic[BoundedNode]):
    """Open nodes, the lowest bound first. ``pruned`` says of a bound whether no candidate can be better than the incumbent; then
    it must say so of all higher bounds. Pruned nodes stay here, for `bound` and for a later search."""

    def __init__(self, nodes: Iterable[BoundedNode], pruned: Callable[[float], bool]) -> None:
        self._heap, self.pruned = list(nodes), pruned
        heapq.heapify(self._heap)

    @property
    def bound(self) -> float:
        """Lower bound of all open nodes; infinite if there is none."""
        return self._heap[0].bound if self._heap else math.inf

    @property
    def closed(self) -> bool:
        """Whether all open nodes are pruned."""
        return not self._heap or self.pruned(self._heap[0].bound)

    def take(self) -> BoundedNode | None:
        return None if self.closed else heapq.heappop(self._heap)

    def add(self, node: BoundedNode, /) -> None:
        heapq.heappush(self._heap, node)

    def remove(self, node: BoundedNode) -> None:
        """Removes a node out of the order of bounds."""
        self._heap.remove(node)
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[BoundedNode]:
        """The open nodes, pruned ones included, in no particular order."""
        return iter(self._heap)

    def __len__(self) -> int:
        return len(self._heap)


class LastFirst(Generic[Node]):
    """Open nodes, the last one added first: depth first. ``pruned`` is asked when a node is taken."""

    def __init__(self, nodes: Iterable[Node], pruned: Callable[[Node], bool] = lambda node: False) -> None:
        self._stack, self.pruned = list(nodes), pruned

    def take(self) -> Node | None:
        while self._stack:
            node = self._stack.pop()
            if not self.pruned(node):
                return node
        return None

    def add(self, node: Node, /) -> None:
        self._stack.append(node)

    def __len__(self) -> int:
        return len(self._stack)


Batch = tuple[Values, Rows]
"""Nodes as arrays: their bounds [nodes, objectives], and what describes each [nodes, columns]."""

NODES_PER_BATCH = 1 << 10
"""Number of nodes that are divided at once."""


class Batches:
    """Open nodes as arrays, the last ones added first, and in each batch the lowest bounds first. ``pruned`` says which bounds
    (rows) are no better than the incumbents. ``beam``: the search is heuristic, and follows only so many nodes of a batch;
    ``left_out``: whether there were more."""

    def __init__(self, batch: Batch, pruned: Callable[[Values], NDArray[np.bool_]], beam: int = 0) -> None:
        self._stack, self.pruned, self.beam, self.left_out = [batch], pruned, beam, False

    def take(self) -> Batch | None:
        while self._stack:
            bounds, rows = self._last()
            alive = np.flatnonzero(~self.pruned(bounds))
            alive = alive[np.lexsort(bounds[alive].T[::-1])]
            if self.beam:
                self.left_out |= len(alive) > self.beam
            else:
                self._put_back(bounds[alive[NODES_PER_BATCH:]], rows[alive[NODES_PER_BATCH:]])
            alive = alive[: self.beam or NODES_PER_BATCH]
            if len(alive):
                return bounds[alive], rows[alive]
        return None

    def add(self, batch: Batch, /) -> None:
        self._stack.append(batch)

    def _last(self) -> Batch:
        """Removes arrays from the end until they have enough nodes."""
        taken = [self._stack.pop()]
        count = len(taken[0][0])
        while self._stack and count < NODES_PER_BATCH:
            taken.append(self._stack.pop())
            count += len(taken[-1][0])
        return np.vstack([bounds for bounds, _ in taken]), np.vstack([rows for _, rows in taken])

    def _put_back(self, bounds: Values, rows: Rows) -> None:
        """Adds sorted nodes, one array a batch, the lowest bounds last, so that they are not sorted with all others again."""
        for start in reversed(range(0, len(bounds), NODES_PER_BATCH)):
            self._stack.append((bounds[start : start + NODES_PER_BATCH], rows[start : start + NODES_PER_BATCH]))
