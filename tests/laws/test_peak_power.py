"""No mapping draws more power on average than the peak power of its chip."""

from __future__ import annotations

import random

import pytest
from tests.certificates.exhaustive import draw_chip, draw_hierarchy, draw_workload
from tests.reference.generate import all_grown

from halley import evaluate
from halley.cost.power import peak_power


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("draw", [draw_chip, draw_hierarchy])
def test_power_of_drawn_mappings(part: int, draw: object) -> None:
    checked = 0
    for seed in range(part * 25, part * 25 + 25):
        dice = random.Random(seed)
        workload, chip = draw_workload(dice), draw(dice)  # type: ignore[operator]
        most = peak_power(chip)
        for tree in all_grown(workload, chip, dice, 4):
            cost = evaluate(workload, chip, tree)
            assert float(cost.energy) <= most * float(cost.time) * (1 + 1e-9), (seed, tree)
            checked += 1
    assert checked > 20
