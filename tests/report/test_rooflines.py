"""Rooflines on the pages of whole networks and of serving: the same figures as the answers beside them."""

from __future__ import annotations

import math

import pytest
from tests.reference.serving_cases import deployment
from tests.report.made import made_result

from halley.answers.serving import ServingAnswer
from halley.cost.estimate import Estimate
from halley.report.document import ROOFLINE_WORDS
from halley.report.mapping.roofline import Roofline, joined_roofline, roofline
from halley.serving.deployment import Load
from halley.serving.served import served
from halley.serving.steady import Lengths


def parts() -> tuple[Roofline, Estimate]:
    result = made_result()
    return roofline(result.problem.chip, result.best.estimate), result.best.estimate


def test_a_kernel_that_runs_thrice_has_the_roofline_of_one() -> None:
    one, cost = parts()
    joined = joined_roofline([(one, 3, float(cost.time))])
    assert joined.operations == pytest.approx(3 * one.operations)
    assert joined.reached == pytest.approx(one.reached)
    for mine, theirs in zip((*joined.roofs, *joined.peaks), (*one.roofs, *one.peaks), strict=True):
        assert (mine.name, mine.limit, mine.used) == (theirs.name, pytest.approx(theirs.limit), pytest.approx(theirs.used))


def test_an_idle_kernel_beside_it_halves_what_is_used() -> None:
    one, cost = parts()
    joined = joined_roofline([(one, 1, float(cost.time)), (Roofline(0.0, 0.0, (), ()), 1, float(cost.time))])
    assert joined.reached == pytest.approx(one.reached / 2)
    assert all(mine.used == pytest.approx(theirs.used / 2) for mine, theirs in zip(joined.roofs, one.roofs, strict=True))


def test_bounds_of_serving_state_what_a_request_asks_for() -> None:
    value = served(deployment(), Load(Lengths(512, 64), concurrency=8))
    resources = [item for item in value.bounds if item.capacity > 0]
    assert {"matrix rate", "memory bandwidth"} <= {item.name for item in resources}
    for item in resources:
        assert item.rate == pytest.approx(item.capacity / item.demand)
        assert not any(math.isinf(number) for number in (item.demand, item.capacity))
    page = ServingAnswer(value).page()
    assert ROOFLINE_WORDS in page
    assert "roofline" in ServingAnswer(value).pictures()
