"""Sets of tile-size chains, given by one tree node per dim: their initial nodes, and how they are split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from halley.cost.programs.program import Indices
from halley.mapping.space.masked_tiles import PairTree
from halley.mapping.space.stages import Slot
from halley.mapping.space.tile_chains import ChainTree

CHAINS_WITH_OPEN_BUFFERS = 1 << 6
"""Numbers of buffers are fixed once every dim has at most this many chains left. Bounds with open numbers of buffers are weak,
but fixing all of their hundreds of combinations first would multiply the number of bounds."""

DIVE_BEAM_WIDTHS = 128, 2048, 8192
"""Beam widths of dives for a first mapping [sets]: each where the one before left out sets and ended far from the bound."""

DIVE_SHAPES = 4
"""Number of shapes of a stage, the most promising ones, that are tried for a first mapping."""


class Tree(Protocol):
    """Sets as nodes of a tree: by node, the number of elements, the number of children, and the first child."""

    size: Indices
    children: Indices
    first_child: Indices


def split_in(trees: Sequence[Tree], parents: Indices, split: Indices) -> Indices:
    """The subsets of ``parents`` (a node of each tree per row), each split in one tree (``split``)."""
    made: list[Indices] = []
    for at, tree in enumerate(trees):
        own = parents[split == at]
        if not len(own):
            continue
        nodes = own[:, at]
        number = tree.children[nodes]
        parent = np.arange(len(own)).repeat(number)
        children = own.take(parent, axis=0)
        before = number.cumsum() - number
        children[:, at] = (tree.first_child[nodes] - before).take(parent) + np.arange(len(parent))
        made.append(children)
    return np.vstack(made) if made else parents[:0]


def opened(rows: Indices, column: int, parts: Callable[[Indices], tuple[Indices, Indices]]) -> Indices:
    """Sets (a node per dim and row) with the node in one ``column`` replaced by its ``parts``; and the number of parts of
    each."""
    nodes, number = parts(rows[:, column])
    result: Indices = rows.take(np.arange(len(rows)).repeat(number), axis=0)
    result[:, column] = nodes
    return result


def starts(trees: Mapping[str, ChainTree], shared: Sequence[Slot], rows: int) -> dict[str, Indices]:
    """For each combination of shared sizes, the node of each dim that fixes it."""
    order = tuple(dict.fromkeys(slot.dim for slot in shared))
    grids = np.meshgrid(*(trees[dim].given for dim in order), indexing="ij") if order else []
    found = {dim: grid.ravel() for dim, grid in zip(order, grids, strict=True)}
    result = {dim: found.get(dim, np.zeros(rows, dtype=np.int64)) for dim in trees}
    return result | {dim: tree.node(result) for dim, tree in trees.items() if isinstance(tree, PairTree)}
