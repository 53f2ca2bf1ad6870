"""No mapping draws more power on average than the peak power of its chip."""

from __future__ import annotations

import pytest
from tests.reference.generate import all_grown

from halley import evaluate
from halley.silicon.power import peak_power


@pytest.mark.parametrize("part", range(4))
def test_power_of_drawn_mappings(part: int) -> None:
    largest = 0.0
    for seed in range(part * 100, part * 100 + 100):
        _, workload, chip, trees = all_grown(seed, 4)
        most = peak_power(chip)
        for tree in trees:
            cost = evaluate(workload, chip, tree)
            assert float(cost.energy) <= most * float(cost.time) * (1 + 1e-9), (seed, tree)
            largest = max(largest, float(cost.energy) / (most * float(cost.time)))
    assert largest > 0.2
