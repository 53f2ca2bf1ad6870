"""Least squares within bounds: optima that are known, bounds that hold, and parameters without effect."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from halley.optim.least_squares import least_squares


def test_a_straight_line_is_found() -> None:
    def residuals(values: Sequence[float]) -> list[float]:
        return [values[0] * x + values[1] - y for x, y in ((1, 3.1), (2, 4.9), (3, 7.2), (4, 8.8))]

    found, least = least_squares(residuals, [1.0, 1.0], [(1e-3, 1e3), (1e-3, 1e3)])
    assert found == pytest.approx((1.94, 1.15), rel=1e-4)  # by the normal equations
    assert least == pytest.approx((sum(each**2 for each in residuals((1.94, 1.15))) / 4) ** 0.5)


def test_an_optimum_on_a_bound() -> None:
    """The other parameter is that which is best there."""
    found, least = least_squares(lambda x: [x[0] + x[1] - 10, x[0] - x[1] - 4], [1.0, 1.0], [(0.1, 5.0), (0.1, 9.0)])
    assert found == pytest.approx((5.0, 3.0), rel=1e-4)
    assert least == pytest.approx(2.0)


def test_a_start_on_the_wrong_bound() -> None:
    found, _ = least_squares(lambda x: [x[0] - 3], [8.0], [(1.0, 8.0)])
    assert found == pytest.approx((3.0,), rel=1e-4)


def test_a_parameter_without_effect_keeps_its_start() -> None:
    found, least = least_squares(lambda x: [x[0] - 3], [1.0, 2.0], [(0.1, 9.0), (0.1, 9.0)])
    assert found == pytest.approx((3.0, 2.0), rel=1e-6)
    assert least < 1e-4
    assert least_squares(lambda x: [2.0], [1.0], [(0.1, 9.0)])[0] == pytest.approx((1.0,))


def test_a_kink() -> None:
    """A time is the longer of two, as of a chip and its host."""
    rows = [(1.0, 6.0), (2.0, 6.0), (5.0, 10.0), (8.0, 16.0)]
    found, least = least_squares(
        lambda x: [max(x[0] * work, x[1]) - time for work, time in rows], [1.0, 4.0], [(0.1, 9), (0.1, 9)]
    )
    assert found == pytest.approx((2.0, 6.0), rel=1e-4)
    assert least < 1e-3
