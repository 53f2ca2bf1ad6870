"""The least sum of tables against all combinations of values, with a limit and without."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halley.optim import least_sum as module
from halley.optim.constrained import constrained_minimum
from halley.optim.elimination import CostTable, cost
from halley.optim.least_sum import least_below


def tables(seed: int, names: str = "abcd") -> list[CostTable]:
    """Tables of one variable and of two, in any order, some twice; some entries are forbidden."""
    random = np.random.default_rng(seed)
    sizes = {name: int(random.integers(1, 4)) for name in names}
    pairs = [tuple(random.permutation(list(names))[:2].tolist()) for _ in range(int(random.integers(1, 7)))]
    found = [CostTable(pair, random.integers(0, 9, [sizes[name] for name in pair]).astype(float)) for pair in pairs]
    found += [CostTable((name,), random.integers(0, 9, sizes[name]).astype(float)) for name in names]
    for item in found:
        item.values[random.random(item.values.shape) < 0.1] = np.inf
    return [*found, CostTable((), np.array(2.0))]


def sums(items: list[CostTable]) -> dict[tuple[int, ...], float]:
    """By values of the variables, in the order of their names."""
    sizes = {name: size for item in items for name, size in zip(item.variables, item.values.shape, strict=True)}
    names = sorted(sizes)
    every = itertools.product(*(range(sizes[name]) for name in names))
    return {values: cost(items, dict(zip(names, values, strict=True))) for values in every}


@given(st.integers(0, 2**32 - 1), st.floats(-3.0, 3.0), st.booleans())
def test_what_is_found_is_the_least_and_below_the_limit(seed: int, off: float, bounds: bool) -> None:
    items = tables(seed)
    lowest = min(sums(items).values())
    limit = math.inf if abs(off) > 2.5 or math.isinf(lowest) else lowest + off
    with pytest.MonkeyPatch.context() as patch:
        if bounds:  # not eliminated at once
            patch.setattr(module, "DIRECT_ELIMINATION_ENTRIES", 0)
        found, _ = least_below(items, limit)
    if abs(limit - lowest) < 1e-6:
        return
    if lowest < limit:
        assert found is not None
        assert found.total == pytest.approx(lowest, rel=1e-9)
        assert cost(items, found.values) == pytest.approx(lowest, rel=1e-9)
    else:
        assert found is None


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0), st.booleans())
def test_the_least_that_fits_is_that_of_all_combinations(seed: int, share: float, bounds: bool) -> None:
    costs, uses = tables(seed), single(seed)
    every, used = sums(costs), sums(uses)
    allowed = [values for values, total in every.items() if math.isfinite(total)]
    if not allowed:
        return
    least_use, most_use = min(used[values] for values in allowed), max(used[values] for values in allowed)
    capacity = least_use + share * (most_use - least_use) + 1e-6
    with pytest.MonkeyPatch.context() as patch:
        if bounds:
            patch.setattr(module, "DIRECT_ELIMINATION_ENTRIES", 0)
        found = constrained_minimum(costs, uses, capacity)
    best = min(every[values] for values in allowed if used[values] <= capacity)
    assert found.cost == pytest.approx(best, rel=1e-8)
    assert found.use <= capacity * (1 + 1e-9)
    assert found.bound <= best
    assert found.gap == 0.0


def single(seed: int) -> list[CostTable]:
    """Of each variable as many uses as it has values."""
    random = np.random.default_rng(seed + 1)
    sizes = {name: size for item in tables(seed) for name, size in zip(item.variables, item.values.shape, strict=True)}
    return [CostTable((name,), random.integers(0, 9, sizes[name]).astype(float)) for name in "abcd"]
