"""The order in which fused groups are searched: it affects how soon a good plan is found, not the optimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from halley.ir.workload import OpKind
from halley.mapping.bounds.incumbents import Values
from halley.mapping.groups import FusedGroup
from halley.mapping.plans import Plans
from halley.mapping.space.partitions import Kernels, group_ops

EARLY_CONTRACTIONS = 2
"""Largest number of contractions in a group that is searched early."""

SIMILAR_VALUE_RATIO = 1.1
"""Plans with lower bounds within this ratio count as similar."""

LIMITING_RATIO = 1.02
"""Plans with lower bounds within this ratio of the least limit the proven bound."""

Candidates = Mapping[FusedGroup, tuple[Plans, Kernels, Values]]
"""Groups that are left: one place of each, and lower bounds of the plans with it."""

ObjectiveOf = Callable[[Values], Values]
"""The objective of rows of values."""


def worst_mapping(left: Candidates, objective: ObjectiveOf) -> FusedGroup:
    """The group with the largest difference between what is known for its kernels and the bound."""
    return max(left, key=lambda group: _excess(left, group, objective))


def _excess(left: Candidates, group: FusedGroup, objective: ObjectiveOf) -> float:
    """The difference between what is known for the kernels of a group, in it or in smaller ones, and its bound."""
    plans, kernels, _ = left[group]
    known = np.vstack([group.points, plans.apart(kernels, group.points.shape[1])])
    return float(objective(known).min(initial=np.inf) - objective(group.lower).min())


def most_promising(left: Candidates, objective: ObjectiveOf) -> FusedGroup:
    """The group of the most promising plan, for its value may prune many others; before it a kernel by itself of a plan that
    promises nearly as much, for that is quick. Groups with many contractions come last: they have by far the most shapes, and a
    good incumbent prunes them."""
    turns: dict[FusedGroup, tuple[int, float]] = {}
    for group, (plans, kernels, least) in left.items():
        contractions = sum(op.kind is OpKind.CONTRACT for op in group_ops(plans.workload, kernels))
        turns[group] = max(contractions, EARLY_CONTRACTIONS), float(objective(least).min())
    few, promise = min(turns.values())
    near = {group: turn for group, turn in turns.items() if turn[0] == few and turn[1] <= promise * SIMILAR_VALUE_RATIO}
    return min(near, key=lambda group: (left[group][1].bit_count() > 1, near[group]))


def limiting(left: Candidates, objective: ObjectiveOf) -> FusedGroup:
    """Of the groups of plans with about the least bound, which limit the proven bound of the best plan, the one with the largest
    difference between what is known for its kernels and the bound. Groups with many contractions come last."""
    turns: dict[FusedGroup, tuple[int, float]] = {}
    for group, (plans, kernels, least) in left.items():
        contractions = sum(op.kind is OpKind.CONTRACT for op in group_ops(plans.workload, kernels))
        turns[group] = max(contractions, EARLY_CONTRACTIONS), float(objective(least).min())
    few, promise = min(turns.values())
    most = few, promise * LIMITING_RATIO
    return max((group for group, turn in turns.items() if turn <= most), key=lambda group: _excess(left, group, objective))
