"""Concurrent flow by weights on the links: cheap, certified, and stoppable at any time.

The largest utilisation is smoothed to a potential, the logarithm of a sum of exponentials. Its gradient are weights of the
links; lengths after the weights give a lower bound (duality) and a direction, flows along short paths. A block of sources at a
time moves towards its short paths, as far as lowers the potential most (Frank and Wolfe, Nav. Res. Logist. Q. 3, 1956, block by
block; weights as of Garg and Koenemann, SIAM J. Comput. 37, 2007; the potential after Bienstock, Potential Function Methods,
2002). The sharpness of the smoothing is increased when the smoothing, not the flow, causes most of the gap."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from halley.network.bounds.concurrent import FlowProblem, Progress
from halley.network.bounds.shortest import Floats, Indices, Shortest

SOURCE_BLOCKS = 16
"""Blocks of sources: the lengths of the links are updated after each."""

FIRST_SHARPNESS = 10.0
"""Sharpness of the potential at the start, per unit of relative utilisation."""

SHARPNESS_FACTOR = 1.5
"""Factor of each increase of the sharpness."""

SHORTEST_PATHS_SHARPNESS = 1e9
"""Sharpness at which all traffic is on shortest paths."""

SMOOTHING_GAP_RATIO = 2.0
"""The sharpness is increased when the flow's part of the gap is below this many times the smoothing's part."""

LEAST_RELATIVE_WEIGHT = 1e-6
"""Least weight of a link, relative to the busiest one's: distances must tell every link from none."""

BISECTIONS = 24
"""Steps of the search for the best move: near the optimum it is a small part of the way, and less than one is none."""


class MultiplicativeWeights:
    """A routing and a lower bound, improved round by round. ``flows`` [sources, links] B and ``time`` [s] are of the best
    routing, ``lengths`` [links] and ``bound`` [s] of the best lower bound."""

    def __init__(self, problem: FlowProblem) -> None:
        self.problem = problem
        self.paths = Shortest(problem.graph)
        self.sharpness = FIRST_SHARPNESS
        count = len(problem.sources)
        # shuffled, always the same way: neighbours in one block would all move to the same links
        self.blocks = np.array_split(np.random.default_rng(0).permutation(count), min(SOURCE_BLOCKS, count))
        lengths = 1 / problem.graph.bandwidths
        distances = self.paths.distances(lengths, problem.sources)
        self._flows = self.paths.spread(lengths, distances, problem.sources, problem.wanted, SHORTEST_PATHS_SHARPNESS)
        self._loads = problem.loads(self._flows)
        self.flows, self.time = self._flows.copy(), float(np.max(self._loads / problem.capacities))
        self.bound, self.lengths = 0.0, lengths
        self._raise_bound(problem.symmetry.class_sizes / problem.symmetry.class_sizes.sum())

    def rounds(self) -> Iterator[Progress]:
        """One round after the other, without end."""
        start = time.perf_counter()
        while True:
            weights = self._weights()
            self._raise_bound(weights)
            yield Progress(time.perf_counter() - start, self.time, self.bound)
            self._raise_sharpness(weights)
            for block in self.blocks:
                self._move(block)
            reached = float(np.max(self._loads / self.problem.capacities))
            if reached < self.time:
                self.flows, self.time = self._flows.copy(), reached

    def _weights(self) -> Floats:
        """[classes] the gradient of the potential; they sum up to 1."""
        used = self._loads / self.problem.capacities
        weights = np.maximum(np.exp(self.sharpness * (used / used.max() - 1)), LEAST_RELATIVE_WEIGHT)
        return np.asarray(weights / weights.sum())

    def _raise_bound(self, weights: Floats) -> None:
        lengths = self.problem.lengths(weights)
        self._distances = self.paths.distances(lengths, self.problem.sources)
        self._bound = self.problem.bound(self._distances)
        if self._bound > self.bound:
            self.bound, self.lengths = self._bound, lengths

    def _raise_sharpness(self, weights: Floats) -> None:
        used = self._loads / self.problem.capacities
        mean = float(weights @ used)
        if mean - self._bound < SMOOTHING_GAP_RATIO * (float(used.max()) - mean):
            self.sharpness *= SHARPNESS_FACTOR

    def _move(self, of: Indices) -> None:
        """Move some sources towards short paths under the lengths of the moment.

        Traffic spread over paths that are nearly the shortest does not all move to the same links, but may not lower the
        potential. All of it on the shortest paths does, unless the potential is at its minimum."""
        problem = self.problem
        lengths = problem.lengths(self._weights())
        sources, wanted = problem.sources[of], problem.wanted[:, of]
        distances, now = self.paths.distances(lengths, sources), problem.loads(self._flows[of], of)
        for sharpness in (self.sharpness, SHORTEST_PATHS_SHARPNESS):
            target = self.paths.spread(lengths, distances, sources, wanted, sharpness)
            change = problem.loads(target, of) - now
            step = self._step(change)
            if step > 0:
                self._flows[of] += step * (target - self._flows[of])
                self._loads = self._loads + step * change
                return

    def _step(self, change: Floats) -> float:
        """How far along ``change`` [classes] the potential is least, from 0 to 1."""
        used = self._loads / self.problem.capacities
        base, slope = used / used.max(), change / self.problem.capacities / used.max()
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            at = self.sharpness * (base + middle * slope)
            if float(np.exp(at - at.max()) @ slope) > 0:
                high = middle
            else:
                low = middle
        return low
