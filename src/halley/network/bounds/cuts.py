"""The tightest cut: what has to cross into some part of a network, over the links that lead there, exactly.

Data that start at ranks (each has a weight, in bytes) are wanted whole by each of some targets. Every set U of vertices that
lacks a target t has to let out all that started inside. So no algorithm takes less than

    T = max over targets t and sets U without t of m(U) / C(U)

m(U) [B] what starts in U, C(U) [B/s] the bandwidth of the links that leave U. By max-flow min-cut, T is the least time in
which a flow brings everything to each target on its own. Where all vertices want everything, an algorithm brings it to all of
them at once in T (Edmonds' theorem on arborescences, Combinatorial Algorithms, 1973), and so it does through switches that let
out as much as they take in (Zhao and Krishnamurthy, arXiv 2305.18461).

The arithmetic is on whole numbers of any length: no rounding, no tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from halley.errors import BadInput, Fault
from halley.network.bounds.reasons import MOST_NAMED, listed
from halley.network.graph.graph import Graph

Arc: TypeAlias = tuple[int, int, int]
"""(source, target, capacity)"""

Steps: TypeAlias = dict[int, tuple[int, int]]
"""vertex -> (the next one towards the target, the arc to it; its complement where flow on an arc the other way is taken back)"""


@dataclass(frozen=True, slots=True)
class Cut:
    """A set of vertices, the bytes that have to leave it, and the bandwidth [B/s] of the links that do."""

    inside: frozenset[int]
    crossing: Fraction
    capacity: Fraction

    @property
    def time(self) -> Fraction:
        """[s]"""
        return self.crossing / self.capacity


def tightest_cut(graph: Graph, weights: Mapping[int, float | Fraction], targets: Iterable[int]) -> Cut:
    """The set of vertices that takes longest to let out what starts in it: the optimum of the module's formula.

    ``weights``: bytes that start at each vertex, not negative; ``targets``: vertices that want all of them. Some target has to
    want what starts elsewhere. Raises BadInput that names the ranks that cannot be reached.

    A broadcast on a line of three, whose last link is the slow one:

    >>> from halley.ir.hardware import Link
    >>> from halley.network.graph.graph import Edge
    >>> line = Graph("line", 3, (Edge(0, 1, Link(4.0)), Edge(1, 2, Link(2.0))))
    >>> cut = tightest_cut(line, {0: 12}, range(3))
    >>> sorted(cut.inside), cut.time
    ([0, 1], Fraction(6, 1))
    """
    starts = {vertex: Fraction(weight) for vertex, weight in weights.items() if weight}
    wanting = [target for target in dict.fromkeys(targets) if starts.keys() - {target}]
    check_reach(graph, dict.fromkeys(starts, wanting))
    byte = _unit(starts.values())
    bandwidths = [Fraction(edge.link.bandwidth) for edge in graph.edges]
    rate = _unit(bandwidths)
    arcs = [(edge.source, edge.target, int(value / rate)) for edge, value in zip(graph.edges, bandwidths, strict=True)]
    search = _Search(graph.vertices, arcs, {vertex: int(value / byte) for vertex, value in starts.items()})
    inside, crossing, capacity = search.tightest(wanting)
    return Cut(frozenset(inside), crossing * byte, capacity * rate)


def check_reach(graph: Graph, wanted: Mapping[int, Collection[int]]) -> None:
    """BadInput unless each source reaches the targets that are wanted of it; it names the ranks that cannot."""
    sources, targets = set(wanted), {target for each in wanted.values() for target in each}
    middle = next(iter(targets), None)
    if middle is None or (targets <= _reached(graph, middle) and sources <= _reached(graph, middle, back=True)):
        return
    remedy = "add a link, or leave them out of the group"
    faults = []
    for source in sorted(sources):
        missing = set(wanted[source]) - _reached(graph, source)
        if missing:
            faults.append(Fault(f"network {graph.name}, rank {source}", f"a way to rank {listed(missing)}", "none", remedy))
        if len(faults) == MOST_NAMED:
            break
    if faults:
        raise BadInput(faults)


def _reached(graph: Graph, start: int, back: bool = False) -> set[int]:
    """Vertices that ``start`` reaches; ``back``: that reach it."""
    after: list[list[int]] = [[] for _ in range(graph.vertices)]
    for edge in graph.edges:
        source, target = (edge.target, edge.source) if back else (edge.source, edge.target)
        after[source].append(target)
    found = {start}
    for vertex in (queue := [start]):
        fresh = [other for other in after[vertex] if other not in found]
        found.update(fresh)
        queue += fresh
    return found


def _unit(values: Iterable[Fraction]) -> Fraction:
    """The largest number of which all are whole multiples."""
    numbers = list(values)
    below = math.lcm(*(value.denominator for value in numbers))
    return Fraction(math.gcd(*(int(value * below) for value in numbers)), below)


class _Search:
    """The parametric search. ``time`` is raised from cut to cut (Dinkelbach's method), so that whatever was shown for a target
    holds on. A target that has got all it wants counts as a source from then on: a cut that parts it from the
    next target and lies with it was looked at already (Hao and Orlin, J. Algorithms 17, 1994), so most flows are short.
    """

    def __init__(self, vertices: int, arcs: Sequence[Arc], weights: Mapping[int, int]) -> None:
        self.arcs, self.weights = arcs, weights
        self.total = sum(weights.values())
        self.entering: list[list[tuple[int, int]]] = [[] for _ in range(vertices)]
        self.leaving: list[list[tuple[int, int]]] = [[] for _ in range(vertices)]
        for index, (source, target, _) in enumerate(arcs):
            self.entering[target].append((source, index))
            self.leaving[source].append((target, index))

    def tightest(self, targets: Sequence[int]) -> tuple[set[int], int, int]:
        """(U, m(U), C(U)) of the greatest quotient."""
        best = max((self._excluding(target) for target in targets), key=lambda cut: Fraction(cut[1], cut[2]))
        served: set[int] = set()
        for target in self._nearby(targets):
            while (inside := self._short(target, served, Fraction(best[1], best[2]))) is not None:
                best = (inside, *self._measure(inside))
            served.add(target)
        return best

    def _excluding(self, target: int) -> tuple[set[int], int, int]:
        """The cut of all vertices but the target: it has to take in everything over its own links."""
        inside = set(range(len(self.entering))) - {target}
        return inside, self.total - self.weights.get(target, 0), sum(self.arcs[index][2] for _, index in self.entering[target])

    def _measure(self, inside: set[int]) -> tuple[int, int]:
        leaving = sum(capacity for source, target, capacity in self.arcs if source in inside and target not in inside)
        return sum(weight for vertex, weight in self.weights.items() if vertex in inside), leaving

    def _nearby(self, targets: Sequence[int]) -> list[int]:
        """The targets, each near to those before it."""
        order, seen, wanted = [], {targets[0]}, set(targets)
        for vertex in (queue := [targets[0]]):
            order += [vertex] if vertex in wanted else []
            for other, _ in (*self.leaving[vertex], *self.entering[vertex]):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return order

    def _short(self, target: int, served: set[int], time: Fraction) -> set[int] | None:
        """None if a flow brings the target everything within the time; otherwise the source side of a least cut.

        Capacities are times ``time.denominator``, so that they are whole."""
        numerator, denominator = time.numerator, time.denominator
        residual = [capacity * numerator for _, _, capacity in self.arcs]
        flow = [0] * len(residual)
        supply = {vertex: weight * denominator for vertex, weight in self.weights.items()}
        wanted = self.total * denominator - supply.pop(target, 0)
        for source, index in self.entering[target]:  # what neighbours have needs no search
            sent = min(residual[index], wanted if source in served else min(wanted, supply.get(source, 0)))
            if sent:
                residual[index], flow[index], wanted = residual[index] - sent, sent, wanted - sent
                if source not in served:
                    supply[source] -= sent
        while wanted:
            end, behind = self._backwards(target, served, supply, residual, flow)
            if end is None:
                return set(range(len(self.entering))) - behind.keys()
            most = wanted if end in served else min(wanted, supply[end])
            sent = _push(_path(end, target, behind), most, residual, flow)
            wanted -= sent
            if end not in served:
                supply[end] -= sent
        return None

    def _backwards(
        self, target: int, served: set[int], supply: Mapping[int, int], residual: Sequence[int], flow: Sequence[int]
    ) -> tuple[int | None, Steps]:
        """Breadth-first from the target against the residual arcs, up to the first vertex that has something to give (None: there
        is none), and the way from each vertex found."""
        behind: Steps = {target: (target, 0)}
        for vertex in (queue := [target]):
            for source, index in self.entering[vertex]:
                if residual[index] and source not in behind:
                    behind[source] = (vertex, index)
                    if source in served or supply.get(source):
                        return source, behind
                    queue.append(source)
            for after, index in self.leaving[vertex]:
                if flow[index] and after not in behind:
                    behind[after] = (vertex, ~index)
                    if after in served or supply.get(after):
                        return after, behind
                    queue.append(after)
        return None, behind


def _path(end: int, target: int, behind: Steps) -> list[int]:
    path, vertex = [], end
    while vertex != target:
        vertex, index = behind[vertex]
        path.append(index)
    return path


def _push(path: Sequence[int], most: int, residual: list[int], flow: list[int]) -> int:
    """Send as much as the path lets through, up to ``most``."""
    sent = min(most, *(residual[index] if index >= 0 else flow[~index] for index in path))
    for index in path:
        if index >= 0:
            residual[index], flow[index] = residual[index] - sent, flow[index] + sent
        else:
            residual[~index], flow[~index] = residual[~index] + sent, flow[~index] - sent
    return sent
