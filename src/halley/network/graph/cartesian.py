"""Cartesian products of graphs, and routing in dimension order.

Ranks of the product are the points of a grid, row-major: the first block's coordinate changes slowest. A *fibre* of a block is a
set of ranks that differ in its coordinate alone; each fibre is a copy of the block with switches and links of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from halley.network.graph.graph import Edge, Graph, Path, Switch
from halley.network.graph.routes import Integers, RoutingMatrix, joined, paths, routing_matrix

_I = TypeVar("_I", int, Integers)


@dataclass(frozen=True)
class DimensionOrder:
    """Routing in a product, dimension by dimension: a message first reaches its target's coordinate in the last block, at the end
    that in the first block. Each block routes by its own router.

    On a mesh of (row, column), this is XY routing: along the row, then along the column. On a pod of (node, GPU) a message first
    goes, inside its node, to the GPU that shares a rail with its target.
    """

    blocks: tuple[Graph, ...]

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Per block: the difference of the numbers of two ranks whose coordinates in it differ by one."""
        return tuple(math.prod(block.ranks for block in self.blocks[place + 1 :]) for place in range(len(self.blocks)))

    @cached_property
    def bases(self) -> tuple[int, ...]:
        """Per block: the index of its first edge. The edges of its fibres are consecutive."""
        ranks = math.prod(block.ranks for block in self.blocks)
        counts = [ranks // block.ranks * len(block.edges) for block in self.blocks]
        return tuple(sum(counts[:place]) for place in range(len(counts)))

    def __call__(self, graph: Graph, source: int, target: int) -> tuple[Path, ...]:
        found: list[Path] = [()]
        for place in reversed(range(len(self.blocks))):
            block, stride = self.blocks[place], self.strides[place]
            start, stop = source // stride % block.ranks, target // stride % block.ranks
            if start != stop:
                offset = self.bases[place] + self._fibre(place, source) * len(block.edges)
                tails = [tuple(offset + edge for edge in way) for way in paths(block, start, stop)]
                found = [way + tail for way in found for tail in tails]
                source += (stop - start) * stride
        return tuple(found)

    def _fibre(self, place: int, rank: _I) -> _I:
        """The fibre that a rank, or each of an array of ranks, is in."""
        stride, extent = self.strides[place], self.blocks[place].ranks
        return rank // (stride * extent) * stride + rank % stride

    def fibre(self, ranks: Sequence[int]) -> tuple[Graph, int, tuple[int, ...]] | None:
        """The fibre that all of some ranks are in: its block, the index of its first edge, and the ranks' coordinates in the
        block; None if they differ in the coordinates of several blocks. The routes between them stay inside the fibre.

        >>> from halley.ir.hardware import Axis, Link, Topology
        >>> from halley.network.graph.topologies import build
        >>> order = DimensionOrder(tuple(build(Axis(name, 3, Topology.RING, Link(1.0))) for name in "xy"))
        >>> [order.fibre(ranks)[1:] for ranks in ([1, 4, 7], [3, 4, 5])], order.fibre([0, 4])   # 6 links to a ring
        ([(6, (0, 1, 2)), (24, (0, 1, 2))], None)
        """
        for place, (block, stride) in enumerate(zip(self.blocks, self.strides, strict=True)):
            number = self._fibre(place, ranks[0])
            if all(self._fibre(place, rank) == number for rank in ranks):
                return block, self.bases[place] + number * len(block.edges), tuple(r // stride % block.ranks for r in ranks)
        return None

    def table(self, graph: Graph, sources: Integers, targets: Integers) -> RoutingMatrix:
        """The matrix of many pairs: the matrix of each block, once per pair of coordinates, moved to the pair's fibre."""
        parts, here = [], sources
        for place in reversed(range(len(self.blocks))):
            block, stride = self.blocks[place], self.strides[place]
            start, stop = here // stride % block.ranks, targets // stride % block.ranks
            needed, which = np.unique(start * block.ranks + stop, return_inverse=True)
            inside = routing_matrix(block, np.stack([needed // block.ranks, needed % block.ranks], axis=1))
            offsets = self.bases[place] + self._fibre(place, here) * len(block.edges)
            parts.append(inside.taken(which, offsets, len(graph.edges)))
            here = here + (stop - start) * stride
        return joined(parts)


def cartesian(name: str, blocks: tuple[Graph, ...]) -> Graph:
    """The product of the blocks, routed in dimension order; ``dimension`` of an edge is the place of its block.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.graph.topologies import build
    >>> pair = build(Axis("x", 2, Topology.LINE, Link(1.0)))
    >>> [(edge.source, edge.target, edge.dimension) for edge in cartesian("square", (pair, pair)).edges][:6]
    [(0, 2, 0), (2, 0, 0), (1, 3, 0), (3, 1, 0), (0, 1, 1), (1, 0, 1)]
    """
    ranks = math.prod(block.ranks for block in blocks)
    edges: list[Edge] = []
    switches: list[Switch] = []
    for place, block in enumerate(blocks):
        stride = math.prod(later.ranks for later in blocks[place + 1 :])
        for fibre in range(ranks // block.ranks):
            corner = fibre // stride * stride * block.ranks + fibre % stride
            vertices = [corner + member * stride for member in range(block.ranks)]
            vertices += range(ranks + len(switches), ranks + len(switches) + len(block.switches))
            switches += [replace(switch, name=f"{switch.name} of {block.name} {fibre}") for switch in block.switches]
            edges += [Edge(vertices[edge.source], vertices[edge.target], edge.link, place) for edge in block.edges]
    return Graph(name, ranks, tuple(edges), tuple(switches), DimensionOrder(blocks))
