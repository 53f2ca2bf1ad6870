"""The power limit of a chip: in its file and in results."""

from __future__ import annotations

import pytest

from halley.cost.evaluate import evaluate
from halley.cost.figures import sustained
from halley.errors import BadInput
from halley.io.chips.load import load_chip, parse_chip
from halley.io.chips.save import chip_text
from halley.ir.hardware import Chip
from halley.ir.text import parse
from halley.library import CHIPS
from halley.report.mapping.facts import summary
from halley.workloads import build

TREE = """
hold dram: A B C
  spread m by 128 over cluster.x
    hold ibuf: A
      hold wbuf: B
        hold obuf: C
          compute gemm
"""


def limited(limit: str) -> Chip:
    """`edge` with a power limit."""
    return parse_chip(CHIPS.text("edge").replace("\nlevels:", f"\npower_limit: {limit}\n\nlevels:", 1), "edge.yaml")


def test_the_limit_is_read_and_written() -> None:
    chip = limited("3 W")
    assert chip.power_limit == 3.0
    assert parse_chip(chip_text(chip), "edge.yaml").power_limit == 3.0
    assert load_chip("edge").power_limit == float("inf")


def test_a_limit_below_the_static_power_is_refused() -> None:
    with pytest.raises(BadInput, match=r"power_limit: expected more than the static power of 0.2 W; got 0.1 W"):
        limited("100 mW")


def test_a_mapping_over_the_limit_says_what_it_takes_there() -> None:
    """By hand: energy of the actions over the limit less the static power; the mapping itself is as before."""
    work, tree = build("gemm", {"m": 512, "n": 64, "k": 64}), parse(TREE)
    free = evaluate(work, load_chip("edge"), tree)
    actions = float(free.energy) - 0.2 * float(free.time)
    drawn = float(free.energy) / float(free.time)
    for factor in (0.5, 0.9, 1.1):
        chip = limited(f"{factor * drawn:.9f} W")
        found = evaluate(work, chip, tree)
        assert (found.time, found.energy) == (free.time, free.energy)
        there = actions / (factor * drawn - 0.2)
        assert sustained(chip, found) == pytest.approx(max(there, float(free.time)), rel=1e-6)
        text = dict(row[:2] for row in summary(chip, found).rows)["power"]
        assert ("repeated without a pause" in text) == (factor < 1)
    assert sustained(load_chip("edge"), free) == free.time
