"""Least distances from many vertices at once, for any lengths of the links, and traffic spread over short paths.

Arrays have one row per vertex or link and one column per source, so that a round over all links is a few NumPy calls.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.network.graph.graph import Graph

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

BLOCK = 256
"""Sources at a time where all pairs are asked for: bounds the memory."""

LEAST_RELATIVE_PART = 0.01
"""A link that is to get a smaller part than this of what the shortest one gets is left out."""


class Shortest:
    """The links of a graph in the order of their targets, ready for rounds of relaxation (Bellman and Ford)."""

    def __init__(self, graph: Graph) -> None:
        source = np.array([edge.source for edge in graph.edges], dtype=np.intp)
        target = np.array([edge.target for edge in graph.edges], dtype=np.intp)
        self.vertices = graph.vertices
        self.order: Indices = np.argsort(target, kind="stable")
        self.source, self.target = source[self.order], target[self.order]
        self.firsts, self.heads, self.slot = _runs(self.target)
        self.by_source: Indices = np.argsort(self.source, kind="stable")
        self.first_leaving, self.tails, _ = _runs(self.source[self.by_source])

    def distances(self, lengths: Floats, sources: Indices) -> Floats:
        """[vertices, sources] least sums of lengths (not negative) from each source; infinite where there is no way.

        >>> from halley.ir.hardware import Link
        >>> from halley.network.graph.graph import Edge
        >>> pair = Graph("pair", 2, (Edge(0, 1, Link(1.0)),))
        >>> Shortest(pair).distances(np.array([3.0]), np.array([0, 1])).tolist()
        [[0.0, inf], [3.0, 0.0]]
        """
        distance = np.full((self.vertices, len(sources)), np.inf)
        distance[sources, np.arange(len(sources))] = 0.0
        if not len(self.order):
            return distance
        ordered = lengths[self.order][:, None]
        while True:
            by_link = distance[self.source]
            by_link += ordered
            nearest = np.minimum.reduceat(by_link, self.firsts, axis=0)
            before = distance[self.heads]
            if not (nearest < before).any():
                return distance
            distance[self.heads] = np.minimum(before, nearest)

    def spread(self, lengths: Floats, distance: Floats, sources: Indices, demands: Floats, sharpness: float) -> Floats:
        """[sources, links] traffic that brings ``demands`` [vertices, sources] from each source along short paths.

        What comes into a vertex is shared by the links that lead there from nearer to the source: a link that makes the way
        longer than the shortest by x mean distances gets exp(-sharpness x) of what the shortest gets (Dial, Transp. Res. 5,
        1971). ``distance``: from `distances`; ``lengths`` are above zero.
        """
        columns = np.arange(len(sources))
        near, far = distance[self.source], distance[self.target]
        part = np.full_like(near, np.inf)  # a vertex without a way from the source has no shares
        np.subtract(near + lengths[self.order][:, None], far, out=part, where=np.isfinite(near))
        part = np.exp(part * (-sharpness / distance[np.isfinite(distance)].mean()))
        part[(part < LEAST_RELATIVE_PART) | ~(near < far)] = 0.0
        whole = np.add.reduceat(part, self.firsts, axis=0)
        part /= np.where(whole > 0, whole, 1.0)[self.slot]
        carried = np.zeros_like(part)
        arriving = demands.copy()
        arriving[sources, columns] = 0.0
        while arriving.any():
            moved = part * arriving[self.target]
            carried += moved
            arriving = np.zeros_like(arriving)
            arriving[self.tails] = np.add.reduceat(moved[self.by_source], self.first_leaving, axis=0)
            arriving[sources, columns] = 0.0
        result = np.empty((len(sources), len(self.order)))
        result[:, self.order] = carried.T
        return result


def all_distances(graph: Graph, lengths: Floats, sources: Indices) -> Floats:
    """[sources, vertices] as `Shortest.distances`, a block of sources at a time."""
    paths = Shortest(graph)
    blocks = [paths.distances(lengths, sources[start : start + BLOCK]).T for start in range(0, len(sources), BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros((0, graph.vertices))


def _runs(values: Indices) -> tuple[Indices, Indices, Indices]:
    """Of sorted values: where each run of equal ones starts, its value, and to which run each place belongs."""
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    return starts, values[starts], np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
