"""Which designs a sweep searches: fronts of drawn numbers, whose values are known in advance."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.sweeps.explore import Exploration, Standing


class Given:
    """An order of designs from drawn figures, of which more is better, within classes."""

    def __init__(self, better: np.ndarray, kinds: np.ndarray) -> None:
        self.better, self.kinds = better, kinds

    def alike(self, design: int) -> np.ndarray:
        return np.flatnonzero(self.kinds == self.kinds[design])

    def no_worse(self, design: int) -> np.ndarray:
        alike = self.alike(design)
        return alike[(self.better[alike] >= self.better[design]).all(axis=1)]

    def no_better(self, design: int) -> np.ndarray:
        alike = self.alike(design)
        return alike[(self.better[alike] <= self.better[design]).all(axis=1)]


class Drawn:
    """Designs with drawn values that respect their order, bounds below these, and figures."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        count, parts, figures = random.randint(1, 14), random.randint(1, 3), random.randint(0, 2)
        better = np.array([[random.randint(0, 2) for _ in range(2)] for _ in range(count)])
        kinds = np.array([random.randint(0, 1) for _ in range(count)])
        self.order = Given(better, kinds)
        self.figures = np.array([[float(random.randint(0, 3)) for _ in range(figures)] for _ in range(count)]).reshape(
            count, figures
        )
        raw = np.array([[float(random.randint(1, 12)) for _ in range(parts)] for _ in range(count)])
        raw[[random.random() < 0.05 for _ in range(count)]] = math.inf
        self.values = np.array([raw[self.order.no_better(design)].min(axis=0) for design in range(count)])
        first = np.array([[random.choice((0.3, 0.8, 1.0)) for _ in range(parts)] for _ in range(count)])
        finite = np.where(np.isinf(self.values), 13.0, self.values)
        self.bounds = finite * first
        self.weights = [float(random.randint(1, 3)) for _ in range(parts)]
        self.random = random

    @property
    def totals(self) -> np.ndarray:
        return self.values @ np.array(self.weights)

    def explored(self, gap: float = 0.0, everything: bool = False, workers: int = 1) -> tuple[Exploration, int]:
        state = Exploration(self.figures, self.bounds, self.weights, self.order, gap, everything)  # type: ignore[arg-type]
        running: list[tuple[int, int]] = []
        made = 0
        while True:
            while len(running) < workers and (task := state.next()) is not None:
                running.append(task)
                assert running.count(task) == 1
            if not running:
                return state, made
            design, part = running.pop(self.random.randrange(len(running)))
            made += 1
            value = self.values[design, part]
            within = value * (1 + gap * self.random.random())
            state.learn(design, part, float(within), float(within / (1 + gap)) if math.isfinite(value) else math.inf)


def naive_front(totals: np.ndarray, figures: np.ndarray) -> set[tuple[float, ...]]:
    """Non-dominated points by comparing all pairs."""
    points = {(float(total), *map(float, row)) for total, row in zip(totals, figures, strict=True) if math.isfinite(total)}
    return {
        point
        for point in points
        if not any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points)
    }


@settings(max_examples=150, deadline=None, database=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_the_front_is_that_of_all_values(seed: int, workers: int, everything: bool) -> None:
    drawn = Drawn(seed)
    state, _ = drawn.explored(everything=everything, workers=workers)
    found = {(round(state.total_upper(design), 6), *map(float, state.figures[design])) for design in state.front()}
    assert found == {(round(point[0], 6), *point[1:]) for point in naive_front(drawn.totals, drawn.figures)}
    assert len(found) == len(state.front())
    assert state.left() == 0
    assert state.reached_gap() == 0.0
    for design in range(len(drawn.values)):
        assert state.total_lower(design) <= drawn.totals[design] * (1 + 1e-9) <= state.total_upper(design) * (1 + 2e-9)
        assert state.standing(design) is not Standing.OPEN
        assert (state.standing(design) is Standing.INFEASIBLE) == math.isinf(drawn.totals[design]) or not everything


@settings(max_examples=100, deadline=None, database=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.5]))
def test_with_a_gap_every_design_has_a_point_that_is_nearly_as_good(seed: int, gap: float) -> None:
    drawn = Drawn(seed)
    state, _ = drawn.explored(gap)
    front = [(state.total_upper(design), state.figures[design]) for design in state.front()]
    for total, figures in zip(drawn.totals, drawn.figures, strict=True):
        if math.isfinite(total):
            assert any(value <= total * (1 + gap) * (1 + 1e-8) and (own <= figures).all() for value, own in front)
    assert state.reached_gap() <= gap + 1e-8


def test_no_search_is_made_that_bounds_make_needless() -> None:
    """Without an order among designs, those are searched whose bound is below all values of no larger figures, and no others."""
    made = 0
    for seed in range(60):
        drawn = Drawn(seed)
        drawn.order.kinds = np.arange(len(drawn.values))
        drawn.values = np.where(np.isinf(drawn.values), 50.0, drawn.values)
        state, _ = drawn.explored()
        lower, totals = drawn.bounds @ np.array(drawn.weights), drawn.totals
        for design in range(len(totals)):
            rivals = [
                other for other in range(len(totals)) if (drawn.figures[other] <= drawn.figures[design]).all() and other != design
            ]
            if any(totals[other] < lower[design] * (1 - 1e-6) for other in rivals):
                assert not state.searched[design].any()
                made += 1
    assert made > 50


def test_one_search_bounds_a_box() -> None:
    """Six designs that differ in one figure of which more is never worse, and none gains by it: two searches are enough."""
    order = Given(np.array([[float(size)] for size in range(6)]), np.zeros(6, int))
    state = Exploration(np.arange(6.0).reshape(6, 1), np.full((6, 1), 1.0), [1.0], order)  # type: ignore[arg-type]
    made = []
    while (task := state.next()) is not None:
        made.append(task[0])
        state.learn(*task, 5.0, 5.0)
    assert made == [5, 0]
    assert state.front() == [0]
    assert [state.standing(design) for design in range(1, 5)] == [Standing.EXCLUDED] * 4


@pytest.mark.parametrize("value", [2.0, math.inf])
def test_a_limit_leaves_a_gap(value: float) -> None:
    order = Given(np.zeros((1, 1)), np.zeros(1, int))
    state = Exploration(np.zeros((1, 0)), np.array([[1.0]]), [1.0], order)  # type: ignore[arg-type]
    assert state.next() == (0, 0)
    state.learn(0, 0, value, 1.0)
    assert state.next() is None
    assert state.reached_gap() == value - 1


def test_orders_of_learning_do_not_matter() -> None:
    drawn = Drawn(7)
    fronts = set()
    for order in itertools.islice(itertools.permutations(range(len(drawn.values))), 24):
        state = Exploration(drawn.figures, drawn.bounds, drawn.weights, drawn.order)  # type: ignore[arg-type]
        for design in order:
            for part in range(drawn.values.shape[1]):
                state.learn(design, part, float(drawn.values[design, part]), float(drawn.values[design, part]))
        fronts.add(tuple(sorted((round(state.total_upper(each), 6), *state.figures[each]) for each in state.front())))
    assert len(fronts) == 1
