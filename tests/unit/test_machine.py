"""A chip as kernels use it: cores, rates, and what feeds the cores."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from halley.io.chips.load import load_chip
from halley.kernels.machine import PEAK, machine
from halley.kernels.times import Gemm, kernel_time


def test_cache_is_the_innermost_shared_memory() -> None:
    chip = load_chip("a100")
    assert machine(chip).cache == chip.memory("l2").read_bandwidth
    assert machine(chip).capacity == chip.memory("l2").capacity


@pytest.mark.parametrize(("name", "sram"), [("sn10", 320), ("sn30", 640), ("sn40l", 520)])
def test_cores_of_a_spatial_chip_feed_each_other(name: str, sram: float) -> None:
    """A product whose operands fit on the chip is limited by the array, not by the memory beyond the chip, from which every core
    would read its operands anew. ``sram`` [MiB] of the data sheet."""
    chip = load_chip(name)
    found = replace(machine(chip), memory=math.inf)
    assert math.isinf(found.cache)
    assert found.capacity == pytest.approx(sram * 2**20)
    time = float(kernel_time(Gemm(8192, 8192, 4096), found, PEAK))
    assert time == pytest.approx(8192 * 8192 * 4096 / found.macs["bf16"], rel=0.25)  # the last wave of tiles is not full
