"""The bound of chips for prompts and chips for decoding, for any order and batching of requests.

Each pool has whole replicas of one layout. Both have one precision and one window of speculation, as the caches that move from
one to the other are those of the model and of its draft.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.candidates import CandidateBounds
from halley.serving.plans.pools import most_requests, pool_costs
from halley.serving.plans.problem import ServingProblem
from halley.serving.speculation import Speculation
from halley.serving.tables import Array

PROMPTS, DECODING = 0, 1
"""Rows of `_Layouts.rates`."""


@dataclass(frozen=True, slots=True)
class PoolsBound:
    """The least ``cost`` (`objective_cost`) of pools; most requests per second ``rate`` of the pair of layouts that has it, and
    ``why``."""

    cost: float
    rate: float
    why: str


class _Layouts:
    """Layouts of one model and window: ``chips`` of a replica of each, bounds ``rates`` [1/s] of a replica for prompts and for
    decoding, and whether these are ``fine``."""

    def __init__(self, made: Sequence[Deployment], bounds: CandidateBounds) -> None:
        self.made = made
        self.chips = np.array([each.layout.chips for each in made], dtype=np.float64)
        self.rates = np.array([[bounds.phase(each, decoding, False) for each in made] for decoding in (False, True)])
        self.fine = np.zeros(self.rates.shape, dtype=bool)

    def best(self, problem: ServingProblem) -> tuple[float, tuple[int, int]]:
        """The least cost, and the layouts of both pools that have it."""
        first, second = (self._fastest(row) for row in (PROMPTS, DECODING))
        prompts = np.stack([self.chips[first], self.rates[PROMPTS, first]])[:, :, None]
        costs = pool_costs(problem, prompts, np.stack([self.chips[second], self.rates[DECODING, second]]))
        place = np.unravel_index(int(costs.argmin()), costs.shape)
        return float(costs.min()), (int(first[place[0]]), int(second[place[1]]))

    def _fastest(self, row: int) -> Array:
        """Of the layouts with equal chips that with the largest rate."""
        order = np.lexsort((-self.rates[row], self.chips))
        return np.asarray(order[np.unique(self.chips[order], return_index=True)[1]])

    def refine(self, bounds: CandidateBounds, pair: tuple[int, int]) -> bool:
        """Makes the rates of a pair of layouts fine; whether one was not."""
        rough = [(row, place) for row, place in enumerate(pair) if not self.fine[row, place]]
        for row, place in rough:
            self.rates[row, place] = bounds.phase(self.made[place], row == DECODING, True)
            self.fine[row, place] = True
        return bool(rough)


def pools_bound(problem: ServingProblem, made: Sequence[Deployment], bounds: CandidateBounds) -> PoolsBound:
    """The bound of all pairs of layouts. Rough rates come first; those of the best pair are made fine until all of it is."""
    groups: dict[tuple[ServedModel, Speculation | None], dict[ReplicaLayout, Deployment]] = {}
    for each in made:
        groups.setdefault((each.model, each.speculation), {})[each.layout] = each
    layouts = [_Layouts(list(group.values()), bounds) for group in groups.values()]
    found = [each.best(problem) for each in layouts]
    while True:
        place = min(range(len(found)), key=lambda item: found[item][0])
        cost, pair = found[place]
        if not math.isfinite(cost) or cost == 0 or not layouts[place].refine(bounds, pair):
            return _said(problem, layouts[place], cost, pair)
        found[place] = layouts[place].best(problem)


def _said(problem: ServingProblem, layouts: _Layouts, cost: float, pair: tuple[int, int]) -> PoolsBound:
    chips, rates = layouts.chips[list(pair)], layouts.rates[[PROMPTS, DECODING], list(pair)]
    rate = float(most_requests(problem.system.chips, chips[:1], rates[:1], chips[1:], rates[1:])[0])
    if not rate:
        return PoolsBound(cost, rate, "no pools")
    where, there = (layouts.made[place].layout.text for place in pair)
    each = f"{rates[PROMPTS]:.3g} prompts/s and {rates[DECODING]:.3g} requests/s decoded a replica"
    return PoolsBound(cost, rate, f"pools of {where} and {there}: {each}, in any order and batching")
