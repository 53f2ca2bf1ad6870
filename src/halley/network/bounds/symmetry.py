"""Symmetries of a network: permutations of its vertices that leave links, bandwidths and demands as they are.

Where symmetries take a rank to another, an optimal flow of one source gives that of the other; links that they take to each
other carry the same. So a flow problem shrinks to one source per orbit of ranks and one constraint per orbit of links.
Candidates are guessed by colours and then checked: a wrong guess costs time and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.network.bounds.demands import Demands
from halley.network.bounds.shortest import Floats, Indices
from halley.network.graph.graph import Graph

Colours: TypeAlias = NDArray[np.uint64]

MAX_FAILED_RANKS = 12
"""Ranks that may turn out to have no symmetry to a representative before no more are tried."""

MAX_FIXED_VERTICES = 40
"""Vertices that one search for a symmetry fixes before it gives up."""


@dataclass(frozen=True, eq=False)
class Symmetry:
    """``generators``: permutations [vertices]; ``representatives``: a rank of each orbit; ``orbits`` [ranks]: index of the
    representative; ``carriers[r]``: a permutation that takes it to rank r; ``classes`` [links]: the orbit of each link."""

    graph: Graph
    generators: tuple[Indices, ...]
    representatives: Indices
    orbits: Indices
    carriers: Indices
    classes: Indices

    @cached_property
    def counts(self) -> Floats:
        """[representatives] ranks of each orbit."""
        return np.bincount(self.orbits, minlength=len(self.representatives)).astype(np.float64)

    @cached_property
    def class_sizes(self) -> Floats:
        """[classes] links of each."""
        return np.bincount(self.classes).astype(np.float64)

    def expanded(self, flows: Floats) -> Floats:
        """[ranks, links] flows of all sources from those of the representatives [representatives, links].

        A representative's flow is first made even over the links that symmetries take to each other without moving the
        representative, so that it does not matter which symmetry carries it on."""
        result = np.empty((self.graph.ranks, len(self.graph.edges)))
        for index, flow in enumerate(flows):
            ranks = np.flatnonzero(self.orbits == index)
            carried = _edge_images(self.graph, self.carriers[ranks])
            alike = self._stabiliser_classes(ranks, carried)
            even = (np.bincount(alike, flow) / np.maximum(np.bincount(alike), 1))[alike]
            result[ranks[:, None], carried] = even
        return result

    def _stabiliser_classes(self, ranks: Indices, carried: Indices) -> Indices:
        """[links] orbits under the symmetries that fix the representative, which Schreier's generators make: carry to a rank,
        apply a generator, carry back."""
        place = np.full(self.graph.vertices, -1)
        place[ranks] = np.arange(len(ranks))
        back = np.argsort(carried, axis=1)
        images = [np.arange(carried.shape[1])[None, :]]
        generators = np.array(self.generators, dtype=np.intp).reshape(-1, self.graph.vertices)
        for generator, on_edges in zip(generators, _edge_images(self.graph, generators), strict=True):
            reached = place[generator[ranks]]
            images.append(np.take_along_axis(back[reached], on_edges[carried], axis=1))
        return _classes(np.concatenate(images))


def find_symmetry(graph: Graph, demands: Demands) -> Symmetry:
    """Symmetries of a network and of demands [ranks, ranks]; the identity alone where none is found."""
    found: list[Indices] = []
    orbit = np.arange(graph.vertices)
    search = _Search(graph, demands)
    colours = search.refined(search.colours)
    for colour in np.unique(colours[: graph.ranks]):
        cell = np.flatnonzero(colours[: graph.ranks] == colour)
        representatives, failures = [int(cell[0])], 0
        for rank in map(int, cell[1:]):
            if failures > MAX_FAILED_RANKS:
                break
            if orbit[rank] in orbit[representatives]:
                continue
            for first in representatives:
                symmetry = search.taking(first, rank, colours)
                if symmetry is not None:
                    found.append(symmetry)
                    orbit = _classes(np.array([np.arange(graph.vertices), *found]))
                    break
            else:
                representatives.append(rank)
                failures += 1
    return _symmetry(graph, tuple(found))


def _symmetry(graph: Graph, generators: tuple[Indices, ...]) -> Symmetry:
    identity = np.arange(graph.vertices)
    carriers = np.tile(identity, (graph.ranks, 1))
    orbits = np.full(graph.ranks, -1)
    representatives: list[int] = []
    for rank in range(graph.ranks):
        if orbits[rank] >= 0:
            continue
        orbits[rank] = len(representatives)
        for reached in (queue := [rank]):
            for generator in generators:
                image = int(generator[reached])
                if orbits[image] < 0:
                    orbits[image], carriers[image] = len(representatives), generator[carriers[reached]]
                    queue.append(image)
        representatives.append(rank)
    classes = _classes(_edge_images(graph, np.array([identity, *generators])))
    return Symmetry(graph, generators, np.array(representatives), orbits, carriers, classes)


def _classes(images: Indices) -> Indices:
    """[points] numbers of the orbits under maps [maps, points]: what a map takes to each other is of one class."""
    label = np.arange(images.shape[1])
    while True:
        before = label.copy()
        label = np.minimum(label, label[images].min(axis=0))
        np.minimum.at(label, images, np.broadcast_to(label, images.shape))
        label = label[label]
        if np.array_equal(label, before):
            return np.unique(label, return_inverse=True)[1]


def _edge_images(graph: Graph, permutations: Indices) -> Indices:
    """[permutations, links] the link that each is taken to."""
    source, target = _ends(graph)
    key = source * graph.vertices + target
    order = np.argsort(key)
    images = permutations[:, source] * graph.vertices + permutations[:, target]
    return order[np.searchsorted(key[order], images)]


def _ends(graph: Graph) -> tuple[Indices, Indices]:
    ends = np.array([(edge.source, edge.target) for edge in graph.edges], dtype=np.intp).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


class _Search:
    """Colour refinement: vertices are distinguished by the colours of their neighbours, until a symmetry can be read off."""

    def __init__(self, graph: Graph, demands: Demands) -> None:
        self.graph, self.demands = graph, demands
        self.source, self.target = _ends(graph)
        self.kinds = np.unique(graph.bandwidths, return_inverse=True)[1].astype(np.uint64)
        self.links = {(edge.source, edge.target): edge.link.bandwidth for edge in graph.edges}
        self.colours: Colours = np.zeros(graph.vertices, dtype=np.uint64)
        profile = np.column_stack([np.sort(demands, axis=1), np.sort(demands.T, axis=1)])
        self.colours[: graph.ranks] = np.unique(profile, axis=0, return_inverse=True)[1].ravel() + 1

    def refined(self, colours: Colours) -> Colours:
        """Colours that depend on colours around until no more vertices differ. They are the same function of the network for
        every call, so that colours of two calls can be compared."""
        count = len(np.unique(colours))
        while True:
            around = _mixed(colours)
            np.add.at(around, self.source, _mixed(colours[self.target] + _mixed(self.kinds)))
            np.add.at(around, self.target, _mixed(_mixed(colours[self.source]) ^ self.kinds))
            colours, before = around, count
            count = len(np.unique(colours))
            if count == before:
                return colours

    def taking(self, first: int, second: int, colours: Colours) -> Indices | None:
        """A symmetry that takes ``first`` to ``second``, if one is found within `MAX_FIXED_VERTICES`."""
        left, right = self._fixed(colours, first, 0), self._fixed(colours, second, 0)
        if not np.array_equal(np.sort(left), np.sort(right)):
            return None
        for step in range(1, MAX_FIXED_VERTICES):
            order = np.argsort(right, kind="stable")
            guess = np.empty(len(left), dtype=np.intp)
            guess[np.argsort(left, kind="stable")] = order
            if self.holds(guess):
                return guess
            vertex = self._undecided(left)
            if vertex is None:
                return None
            choices = (self._fixed(right, int(other), step) for other in np.flatnonzero(right == left[vertex]))
            left = self._fixed(left, vertex, step)
            wanted = np.sort(left)
            matching = next((choice for choice in choices if np.array_equal(np.sort(choice), wanted)), None)
            if matching is None:
                return None
            right = matching
        return None

    def holds(self, permutation: Indices) -> bool:
        """Whether a permutation keeps ranks apart from switches, and leaves links, bandwidths and demands as they are."""
        ranks = permutation[: self.graph.ranks]
        if ranks.max(initial=0) >= self.graph.ranks or not np.array_equal(self.demands[np.ix_(ranks, ranks)], self.demands):
            return False
        images = zip(permutation[self.source].tolist(), permutation[self.target].tolist(), strict=True)
        return all(self.links.get(ends) == edge.link.bandwidth for ends, edge in zip(images, self.graph.edges, strict=True))

    def _fixed(self, colours: Colours, vertex: int, number: int) -> Colours:
        """With one vertex of a colour of its own."""
        changed = colours.copy()
        changed[vertex] = _mixed(np.array([number + 1], dtype=np.uint64))[0]
        return self.refined(changed)

    def _undecided(self, colours: Colours) -> int | None:
        """A vertex of the smallest set of vertices that have the same colour."""
        _, first, counts = np.unique(colours, return_index=True, return_counts=True)
        several = counts > 1
        return int(first[several][np.argmin(counts[several])]) if several.any() else None


def _mixed(values: Colours) -> Colours:
    """Bits stirred (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
