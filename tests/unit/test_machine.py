"""A chip as kernels use it: cores, rates, and what feeds the cores."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from halley.errors import BadInput
from halley.io.chips.load import load_chip
from halley.kernels.bounds import product_bound, rate_time
from halley.kernels.groups import GroupKernel, pattern_of
from halley.kernels.machine import MAC_ON_LANES, PEAK, machine
from halley.kernels.searched import SearchedKernels, shape_of
from halley.kernels.times import Gemm, kernel_time
from halley.workloads.gemm import gemm_softmax


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


ROUTER = Gemm(4096, 256, 1024, dtype="fp32", result="fp32")


@pytest.mark.parametrize("name", ["cloud", "edge", "tpu-v4i-like", "tile-mesh"])
def test_products_in_a_type_without_a_matrix_rate_run_on_the_lanes(name: str) -> None:
    """A multiplication and an addition for each multiply-accumulate, on all lanes; bound, rate and formula agree on it."""
    chip = load_chip(name)
    found, macs = machine(chip), 4096 * 256 * 1024
    assert chip.vector is not None
    least = macs * found.lane_cycles(MAC_ON_LANES) / found.lanes
    assert macs / found.most_products("fp32", "fp32") == pytest.approx(least)
    assert float(product_bound(ROUTER, chip, found)) >= least * (1 - 1e-9)
    assert least * (1 - 1e-9) <= float(rate_time(ROUTER, 1, found, PEAK))
    assert (
        least * (1 - 1e-9)
        <= float(kernel_time(ROUTER, found, PEAK))
        <= 1.5 * max(least, float(product_bound(ROUTER, chip, found)))
    )
    slow = replace(PEAK, vector=0.5)
    assert float(kernel_time(ROUTER, found, slow)) >= 2 * least * (1 - 1e-9)  # the lanes' share, not that of the matrix engine
    assert float(kernel_time(ROUTER, found, replace(PEAK, matrix=0.5))) == float(kernel_time(ROUTER, found, PEAK))


def test_lanes_that_lack_a_function_refuse_products() -> None:
    found = machine(load_chip("cloud"))
    without = replace(found, rates={name: rate for name, rate in found.rates.items() if name != "add"})
    with pytest.raises(BadInput, match="expected a type that its matrix engine has; got fp32; use one of: bf16, fp16, int8"):
        kernel_time(ROUTER, without, PEAK)
    with pytest.raises(BadInput, match="got fp8"):
        kernel_time(replace(ROUTER, dtype="fp8"), found, PEAK)


def test_products_on_the_lanes_are_not_searched() -> None:
    """They take their times from the formula, and a group that contains one runs as separate kernels."""
    kernels = SearchedKernels(load_chip("cloud"))
    assert shape_of(ROUTER) is not None
    assert kernels.missing([ROUTER]) == []
    expected = max(float(kernel_time(ROUTER, kernels.rates, PEAK)), float(product_bound(ROUTER, kernels.chip, kernels.rates)))
    assert float(kernels.times(ROUTER)) == expected
    for dtype, fits in (("fp32", False), ("bf16", True)):
        found = pattern_of(gemm_softmax(4, 5, 6, dtype=dtype), ["gemm"], ["max", "exp", "sum", "divide"])
        assert found is not None
        group = GroupKernel(found.pattern, (4, 5, 6))
        assert np.isfinite(float(kernels.times(group))) == fits
        assert bool(kernels.missing([group])) == fits
