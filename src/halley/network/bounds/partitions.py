"""Lower bound of an all-reduce from partitions of the network: partial sums and results both cross between parts.

Cut the vertices into k parts that hold members. Per element of the vector, some part is the first to know the sum: before, at
least k - 1 messages had to enter parts, to join all contributions; afterwards each of the other k - 1 parts is
entered once more. So

    t >= 2 (k - 1) S / C

C [B/s] bandwidth of the links that enter the parts from elsewhere. It holds for any traffic inside the parts. Vertices
without members may stand outside of all parts as long as they do not add: what they pass on, even to several, is counted where
it enters. Parts of one rank: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009. Where links are two-way and all vertices
are members, the best parts give the optimum: spanning trees packed by the theorem of Tutte and Nash-Williams (J. London Math.
Soc. 36, 1961), each to add up and to spread a share of the vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from halley.formulas.collectives import all_reduce_bound
from halley.network.bounds.reasons import BoundPart
from halley.network.graph.graph import Graph
from halley.units import format_bytes, format_rate


def partition_part(graph: Graph, group: Sequence[int], size: float) -> BoundPart | None:
    """The strongest of the bounds for parts that slow links join; None where adding switches leave no parts.

    Parts are what hangs together by links of at least some bandwidth, for each bandwidth that occurs, and the single members.
    """
    members = set(group)
    found = [_bound(graph, members, size, parts) for parts in _partitions(graph)]
    return max((part for part in found if part is not None), key=lambda part: part.value, default=None)


def _partitions(graph: Graph) -> Iterator[list[int]]:
    """The part of each vertex, by its first vertex: at first all by themselves, then joined by ever slower links."""
    part = list(range(graph.vertices))
    yield list(part)

    def first(vertex: int) -> int:
        while part[vertex] != vertex:
            part[vertex] = part[part[vertex]]
            vertex = part[vertex]
        return vertex

    for edge, slower in pairwise(sorted(graph.edges, key=lambda edge: -edge.link.bandwidth)):
        low, high = sorted((first(edge.source), first(edge.target)))
        part[high] = low
        if slower.link.bandwidth < edge.link.bandwidth:
            yield [first(vertex) for vertex in range(graph.vertices)]


def _bound(graph: Graph, members: set[int], size: float, parts: Sequence[int]) -> BoundPart | None:
    holding = {parts[member] for member in members}
    adding = any(switch.reduction and parts[graph.ranks + index] not in holding for index, switch in enumerate(graph.switches))
    if len(holding) < 2 or adding:
        return None
    entering = sum(
        edge.link.bandwidth for edge in graph.edges if parts[edge.target] in holding and parts[edge.source] != parts[edge.target]
    )
    value = float(all_reduce_bound(len(holding), size, entering))
    what = f"{len(holding)} ranks" if len(holding) == len(members) else f"{len(holding)} parts joined by fast links"
    times = f"{2 * (len(holding) - 1)} x {format_bytes(size)}"
    why = f"to reduce and to distribute the result, {times} have to enter {what}, over {format_rate(entering)} in all"
    return BoundPart("partition", value, why)
