"""What a lower bound is made of, in numbers and in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from halley.network.graph.graph import Graph
from halley.units import counted, format_bytes, format_rate

MOST_NAMED = 8
"""Runs of ranks that a sentence names at most."""


@dataclass(frozen=True, slots=True)
class BoundPart:
    """One lower bound: its name, its value [s], and the rank, cut or way that it comes from."""

    name: str
    value: float
    why: str


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of one collective, the strongest first."""

    parts: tuple[BoundPart, ...]

    @classmethod
    def of(cls, latency: BoundPart, transfers: Iterable[BoundPart], lockstep: bool) -> Bound:
        """From the bound of the fixed delays and those of the transfers.

        In lockstep a step takes its longest latency, then its longest transfer, and no step starts before the last has
        ended: the two sums add up. Otherwise one transfer may hide the latency of another."""
        parts = [latency, *transfers]
        if lockstep:
            longest = max(parts[1:], key=lambda part: part.value)
            parts.append(
                BoundPart("steps", latency.value + longest.value, f"latency ({latency.why}), then transfer ({longest.why})")
            )
        return cls(tuple(sorted(parts, key=lambda part: -part.value)))

    @property
    def value(self) -> float:
        """The strongest [s]; 0 where nothing has to move."""
        return self.parts[0].value if self.parts else 0.0

    @property
    def why(self) -> str:
        return self.parts[0].why if self.parts else "nothing has to move"


def crossing_words(graph: Graph, inside: Collection[int], crossing: float, into: bool = False) -> str:
    """What has to leave a set of vertices (``into``: to reach it), over which links.

    >>> from halley.ir.hardware import Link
    >>> from halley.network.graph.graph import Edge
    >>> line = Graph("line", 3, (Edge(0, 1, Link(2.0)), Edge(1, 2, Link(4.0))))
    >>> crossing_words(line, {0, 1}, 8.0), crossing_words(line, {2}, 8.0, into=True)
    ('8 B have to leave ranks 0-1 over 1 link of 4 B/s', '8 B have to reach rank 2 over 1 link of 4 B/s')
    """
    edges = [edge for edge in graph.edges if (edge.target in inside) == into and (edge.source in inside) != into]
    bandwidths = {edge.link.bandwidth for edge in edges}
    each = f"of {format_rate(bandwidths.pop())}" + (" each" if len(edges) > 1 else "") if len(bandwidths) == 1 else ""
    together = each or f"of {format_rate(sum(edge.link.bandwidth for edge in edges))} together"
    verb, links = "reach" if into else "leave", counted(len(edges), "link")
    return f"{format_bytes(crossing)} have to {verb} {ranks_of(graph, inside)} over {links} {together}"


def ranks_of(graph: Graph, vertices: Collection[int]) -> str:
    """The ranks among the vertices, in words."""
    inside = [vertex for vertex in vertices if vertex < graph.ranks]
    if 2 * len(inside) > graph.ranks and len(inside) > 2:
        outside = set(range(graph.ranks)).difference(inside)
        return f"all ranks but {listed(outside)}" if outside else "all ranks"
    return f"rank{'s' * (len(inside) != 1)} {listed(inside)}"


def listed(numbers: Iterable[int]) -> str:
    """Numbers for a sentence, neighbours drawn together.

    >>> listed([0, 1, 2, 3, 7, 9, 10])
    '0-3, 7, 9-10'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    words = ["-".join(map(str, run)) for run in runs]
    return ", ".join(words[:MOST_NAMED]) + (f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else "")
