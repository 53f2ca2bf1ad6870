"""Compiled shapes of an overlapped stage (`halley.mapping.solve.overlap`), and its Pareto set as a tree of sets with bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from halley.cost.estimate import Resource
from halley.cost.programs.program import Array, Indices
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.bounds.shapes import Compiled, least_of_buffers
from halley.mapping.space.stages import Skeleton
from halley.mapping.space.tile_chains import ChainTree

STATES_PER_COMPARISON = 1 << 8
"""Number of states that are compared with each other at once."""

CHILDREN_PER_SET = 8
"""Number of children of a node in the tree of a Pareto set."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A compiled shape of a stage: lower bounds of its time, its energy without leakage, the busy time of each resource and the
    footprint of each memory that may overflow (rows in this order); the time of single mappings (``exact``). ``starts``: the sets
    of all tiles, one for each combination of the shared sizes, whose bounds `at_least` caches; ``times``: tightened least times
    by combination."""

    skeleton: Skeleton
    costs: Compiled
    trees: Mapping[str, ChainTree]
    resources: tuple[Resource, ...]
    starts: Mapping[str, Indices]
    exact: Callable[[], Compiled]
    times: dict[int, float] = field(default_factory=dict)
    _least: dict[int, Array] = field(default_factory=dict)

    def at_least(self, rows: Indices) -> Array:
        """Bounds for some combinations of the shared sizes, cached: frames with the same shape need different combinations."""
        new = np.array([row for row in rows.tolist() if row not in self._least], dtype=np.int64)
        if len(new):
            nodes = {dim: own[new] for dim, own in self.starts.items()}
            self._least.update(zip(new.tolist(), least_of_buffers(self.costs, self.trees, nodes, len(new)), strict=True))
        return np.stack([self._least[row] for row in rows.tolist()], axis=1)

    def bounds(self, nodes: Mapping[str, Indices], rows: int) -> Array:
        """Bounds of sets, a column each; exact for single mappings."""
        found = self.costs(nodes, rows).T
        alone = np.ones(rows, dtype=bool)
        for dim, tree in self.trees.items():
            alone &= tree.size[nodes[dim]] == 1
        if alone.any():
            times = self.exact()({dim: own[alone] for dim, own in nodes.items()}, int(alone.sum()))
            found[0, alone] = np.maximum(found[0, alone], times[:, 0])
        return found


Pick = tuple[Vector, tuple[int, ...]]
"""A shape of a stage, and a node per dim."""


class Fronts:
    """A Pareto set as a tree: ``states`` by node, the root first, are componentwise minima over the leaves below; the leaves are
    the last nodes, with their ``picks``."""

    def __init__(self, states: Values, picks: Sequence[Pick]) -> None:
        order = _alike(states, np.arange(len(picks)))
        levels, sizes = [states[:, order]], [np.ones(len(picks), dtype=np.int64)]
        children = [np.zeros(len(picks), dtype=np.int64)]
        while len(sizes[0]) > 1:
            start = np.arange(0, len(sizes[0]), CHILDREN_PER_SET)
            children.insert(0, np.diff(np.append(start, len(sizes[0]))))
            levels.insert(0, np.minimum.reduceat(levels[0], start, axis=1))
            sizes.insert(0, np.add.reduceat(sizes[0], start))
        self.states: Values = np.hstack(levels)
        self.size: Indices = np.concatenate(sizes)
        self.children: Indices = np.concatenate(children)
        self.first_child: Indices = 1 + np.cumsum(self.children) - self.children  # level by level
        self._picks = [picks[place] for place in order]

    def pick(self, node: int) -> Pick:
        """The only pick of a node of size 1, which may be some levels above its leaf."""
        node = int(node)
        while self.children[node]:
            node = int(self.first_child[node])
        return self._picks[node - len(self.size) + len(self._picks)]


def _alike(states: Values, places: Indices) -> list[int]:
    """An order with similar states adjacent, by recursive bisection along the component that differs most."""
    if len(places) <= CHILDREN_PER_SET:
        return [int(place) for place in places]
    own = states[:, places]
    least, most = own.min(axis=1), own.max(axis=1)
    part = int(np.argmax((most - least) / np.where(most > 0, most, 1.0)))
    order = places[np.argsort(own[part], kind="stable")]
    half = -(-len(order) // (2 * CHILDREN_PER_SET)) * CHILDREN_PER_SET
    return [*_alike(states, order[:half]), *_alike(states, order[half:])]


def dominated(states: Values, front: Values) -> Flags:
    """Which states are dominated: no less than some state of the front in every component."""
    result = np.zeros(states.shape[1], dtype=bool)
    for start in range(0, front.shape[1], STATES_PER_COMPARISON):
        block, left = front[:, start : start + STATES_PER_COMPARISON], np.flatnonzero(~result)
        if not len(left):
            break
        less = np.ones((len(left), block.shape[1]), dtype=bool)
        for part in np.flatnonzero(block.max(axis=1) > states[:, left].min(axis=1)):
            less &= block[part] <= states[part, left][:, None]
        result[left] = less.any(axis=1)
    return result


def undominated(states: Values) -> Indices:
    """The non-dominated states; of equal ones the first."""
    order = np.lexsort((*states[::-1], states.sum(axis=0)))  # whoever dominates comes before
    kept: Indices = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), STATES_PER_COMPARISON):
        block = order[start : start + STATES_PER_COMPARISON]
        block = block[~dominated(states[:, block], states[:, kept])]
        own = states[:, block]
        less = np.ones((len(block), len(block)), dtype=bool)
        for row in own:
            less &= row <= row[:, None]
        kept = np.concatenate([kept, block[~np.tril(less, -1).any(axis=1)]])
    return np.sort(kept)
