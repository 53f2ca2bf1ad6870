"""Kernels of a chip under load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halley.errors import BadInput
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.kernels.machine import machine
from halley.kernels.sustained import sustained
from halley.kernels.times import Gemm, kernel_time

CHIP = machine(load_chip("a100"))
FIT = load_chip_fit("a100").efficiency


def test_sustained_meets_the_time_that_was_measured() -> None:
    large = Gemm(8192, 8192, 8192)
    short = float(kernel_time(large, CHIP, FIT))
    slower = sustained(FIT, CHIP, large, 1.2 * short)
    assert float(kernel_time(large, CHIP, slower)) == pytest.approx(1.2 * short)
    assert replace(slower, matrix=FIT.matrix) == FIT
    with pytest.raises(BadInput, match="sustained GEMM: expected a time of at least"):
        sustained(FIT, CHIP, large, 0.5 * short)
