"""The interval of a plan's time, and its rank under drawn errors (`halley.training.uncertainty.plans`)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import halley
from halley.formulas.uncertainty import deviation
from halley.io.chips.software import load_software
from halley.kernels.software import Software
from halley.report.plans.plan import plan_tables, short_tables, uncertainty_rows
from halley.sharding.decisions import decisions_of
from halley.training.plan import TrainingResult
from halley.training.search.decided import decided_cost
from halley.training.uncertainty.changed import with_system
from halley.training.uncertainty.plans import (
    COVERAGE,
    DRAWS,
    KERNELS,
    UNMEASURED_ERROR,
    ErrorSource,
    PlanUncertainty,
    _changes,
    _draws,
    _slower_axis,
    interval_reach,
    uncertainty,
)

QUANTILE = 1.2815515655446004
"""Of the normal distribution, at 90 %."""


@cache
def planned(system: str, fix: str = "", software: str | None = None) -> TrainingResult:
    return halley.plan("gpt2-xl", system, batch=64, fix=fix or None, software=software)


def test_one_chip_has_the_interval_of_its_software() -> None:
    result = planned("1 x h100")
    found = uncertainty(result)
    assert found is not None
    software = load_software("pytorch-compiled")
    assert software.reach is not None
    assert math.log(found.high / result.cost.time) == pytest.approx(software.reach)
    assert math.log(result.cost.time / found.low) == pytest.approx(software.reach)
    assert [(source.name, source.elasticity) for source in found.sources] == [(KERNELS, 1.0)]
    other = uncertainty(replace(result, problem=replace(result.problem, software=replace(software, reach=None))))
    assert other is not None
    assert math.log(other.high / result.cost.time) == pytest.approx(QUANTILE * math.sqrt(math.pi / 2) * (software.error or 0))


def test_errors_of_other_kinds_widen_the_interval_by_their_effect() -> None:
    result = planned("16 x h100, nvlink 8, ib", "tp=8")
    found = uncertainty(result)
    assert found is not None
    names = {source.name: source for source in found.sources}
    ib, nvlink = names["collectives and transfers on ib"], names["collectives and transfers on nvlink"]
    assert (ib.assumed, ib.error) == (True, UNMEASURED_ERROR)
    assert not nvlink.assumed
    assert 0.01 < nvlink.error < 0.1
    assert nvlink.elasticity > 0.1 > names[KERNELS].error
    assert math.fsum(source.elasticity for source in found.sources) == pytest.approx(1)
    own = names[KERNELS].elasticity * (load_software("pytorch-compiled").reach or 0)
    others = (QUANTILE * source.elasticity * deviation(source.error) for source in (ib, nvlink))
    assert math.log(found.high / found.low) == pytest.approx(2 * math.hypot(own, *others))


def test_first_order_is_enough_for_errors_of_this_size() -> None:
    """Links that are changed together, costed again, against the sum of the effects of each."""
    result = planned("16 x h100, nvlink 8, ib", "tp=8")
    found = uncertainty(result)
    assert found is not None
    elasticity = {source.name.rpartition(" ")[2]: source.elasticity for source in found.sources}
    parts = [decisions_of(item) for item in result.cost.shardings.values()]
    for factors in ({"ib": 1.2, "nvlink": 1.06}, {"ib": 0.8, "nvlink": 1.06}, {"ib": 1.2, "nvlink": 0.94}):
        system, expected = result.problem.system, math.log(result.cost.time)
        for place, axis in enumerate(system.axes):
            system = _slower_axis(system, place, factors[axis.name])
            expected += elasticity[axis.name] * math.log(factors[axis.name])
        again = decided_cost(with_system(result.problem, system), result.plan, parts).time
        assert math.log(again) == pytest.approx(expected, abs=0.005)


def test_draws_are_normal_and_evenly_spread() -> None:
    for kinds in (1, 2, 4):
        drawn = _draws(kinds)
        assert drawn.shape == (kinds, DRAWS)
        assert np.abs(drawn.mean(axis=1)).max() < 0.02
        assert np.abs(drawn.std(axis=1) - 1).max() < 0.02
        assert np.abs(drawn @ drawn.T / DRAWS - np.eye(kinds)).max() < 0.03


def test_a_plan_that_uses_the_network_less_is_the_more_robust() -> None:
    """Two plans of equal time on normal errors: each is the faster in half of the draws, and the regrets have a closed form."""
    elasticities = np.array([[[1.0, 1.0], [0.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])
    deviations = np.array([0.05, 0.2])
    first, second = _changes(elasticities, deviations)
    assert (first < second).mean() == pytest.approx(0.5, abs=0.02)
    difference = math.hypot(0.5 * 0.05, 0.5 * 0.2)
    # the mean of the positive part of a normal number
    assert np.maximum(first - second, 0).mean() == pytest.approx(difference / math.sqrt(2 * math.pi), rel=0.05)


@pytest.mark.parametrize("count", [4, 9, 30])
def test_a_further_case_lies_in_the_interval_of_the_others(count: int) -> None:
    """By the order of equal chances among the cases and the further one: the share of them that the others' interval covers."""
    errors = np.random.default_rng(count).standard_cauchy(count + 1)
    inside = [abs(error) <= interval_reach(np.delete(errors, place).tolist()) for place, error in enumerate(errors)]
    assert COVERAGE <= np.mean(inside) <= COVERAGE + 1 / (count + 1)
    assert interval_reach([0.1, -0.2]) == 0.2


def test_nothing_is_said_where_no_error_is_known() -> None:
    result = planned("1 x h100", software="none")
    assert uncertainty(result) is None
    assert not [row for table in plan_tables(result) for row in table.rows if "interval" in row[0]]
    unmeasured = replace(result, problem=replace(result.problem, software=Software("mine")))
    assert uncertainty(unmeasured) is None
    assert list(uncertainty_rows(None)) == []


def test_the_screen_has_the_interval_and_a_rank_that_is_not_certain() -> None:
    rows = dict(row[:2] for row in short_tables(planned("16 x h100, nvlink 8, ib", "tp=8"))[0].rows)
    assert rows["interval of 80 %"].endswith("not measured: collectives and transfers on ib")
    sources = (ErrorSource(KERNELS, 0.04, False, 1.0),)
    said = dict(uncertainty_rows(PlanUncertainty(1.0, 2.0, sources, (0.4, 0.35, 0.25), (0.02, 0.03, 0.01))))
    assert said == {
        "interval of 80 %": "1 s to 2 s, by the errors on held-out measurements",
        "rank": "the fastest in 40.0 % of draws of these errors, plan 1 in 35.0 %; "
        "most robust: plan 2, 1.0 % slower than the fastest on average, the best plan 2.0 %",
    }
