"""Published iterations of Megatron-LM: splits of ops that are free are no slower than those that ran."""

from __future__ import annotations

import pytest
from validation.megatron.compare import Point, iteration, points


@pytest.mark.parametrize("point", points(), ids=lambda point: point.name)
def test_free_shardings_are_no_slower_than_those_that_ran(point: Point) -> None:
    assert iteration(point, as_it_ran=False).time <= iteration(point).time
