"""Joint bounds of a stage's shapes that differ only in the order of their loops.

A tensor moves at least once in any order. With this traffic, and with the first fill and the last drain of the tiles, all orders
have one lower bound over tile sizes and numbers of buffers (``once`` of `halley.cost.evaluate`). If it prunes all mappings, no
shape has to be compiled. Small problems are limited by ramps, not by traffic, so it prunes most of their shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from halley.cost.programs.program import Indices
from halley.mapping.bounds.chain_sets import opened, split_in, starts
from halley.mapping.bounds.incumbents import Values
from halley.mapping.solve.group import GroupState, JointBound
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import BUFFERS, Skeleton
from halley.optim.branch_and_bound import Batch, Batches, branch_and_bound

SETS_BEFORE_SINGLE_SHAPES = 1 << 15
"""Largest number of sets bounded jointly before the shapes are bounded one by one: enough for small problems."""

MORE_OPEN_THAN_RULED_OUT = 3
"""Joint bounds are no longer tried against the same incumbents once those that failed to prune exceed those that pruned by this
number. A shape that has too many sets counts as so many failures: the others of the group usually have as many."""


def ruled_out(group: GroupState, frame: Frame, skeleton: Skeleton) -> bool:
    """Whether no mapping of a shape, or of another order of its loops, improves on the incumbents. Only for groups of one stage;
    with several stages the cost depends on the stages in the same loops. It is computed once for all orders, and again where
    better incumbents may prune what earlier ones did not.

    The bound of shapes that hold a tensor just inside the last loop that indexes it holds for those that hold it around all inner
    loops, too: that moves as much once, and its first tile is larger.
    """
    if skeleton.kin is None or len(frame.stages) > 1 or frame.joint or not (frame.idles or group.costs.combinations(frame) == 1):
        return False
    if not len(group.found.points):
        return False
    incumbents = group.found.points
    for kin in filter(None, (skeleton.plain, skeleton.kin)):
        key = id(frame), kin
        known = group.orders.get(key)
        if known is None or known.open_to(incumbents):
            tried = (own for own in group.orders.values() if not own.open_to(incumbents))
            failed = sum(-1 if own.pruned else MORE_OPEN_THAN_RULED_OUT if own.large else 1 for own in tried)
            if failed >= MORE_OPEN_THAN_RULED_OUT:
                return False
            shape = next((own for own in frame.stages[0].skeletons if own.kin == kin), None)
            if shape is None:  # a baseline may lack it
                continue
            known = group.orders[key] = JointBound(frame, incumbents, *_ruled_out(group, frame, shape))
        if known.pruned:
            return True
    return False


def _ruled_out(group: GroupState, frame: Frame, skeleton: Skeleton) -> tuple[bool, bool]:
    """Whether all sets of sizes are pruned while being split, most promising first, before one of them is a single mapping, whose
    loop order matters; and whether they are too many."""
    costs = group.costs
    chains = costs.trees.of(costs.searched_slots(frame.shared), costs.searched_slots(skeleton.slots))
    least = costs.in_any_order(frame, skeleton)
    trees, at = tuple(chains.values()), {dim: index for index, dim in enumerate(chains)}

    def bounded(nodes: Indices) -> Values:
        return least({dim: np.ascontiguousarray(nodes[:, index]) for dim, index in at.items()}, len(nodes))

    first = starts(chains, costs.searched_slots(frame.shared), costs.combinations(frame))
    nodes = np.stack([first[dim] for dim in at], axis=1)
    if BUFFERS in at:  # bounds with open ones are poor, and there are few
        nodes = opened(nodes, at[BUFFERS], chains[BUFFERS].singles)
    left, asked = False, 0

    def branch(batch: Batch) -> Iterator[Batch]:
        nonlocal left, asked
        group.tally.tick()
        _, nodes = batch
        sizes = np.array([tree.size[nodes[:, index]] for index, tree in enumerate(trees)])
        left = asked > SETS_BEFORE_SINGLE_SHAPES or bool((sizes.max(axis=0) == 1).any())
        if not left:
            children = split_in(trees, nodes, sizes.argmax(axis=0))
            asked += len(children)
            group.tally.bounds += len(children)
            yield bounded(children), children

    branch_and_bound(Batches((bounded(nodes), nodes), group.found.pruned), branch, lambda: left)
    return not left, asked > SETS_BEFORE_SINGLE_SHAPES
