"""No time of a kernel of a library is below what the chip's data sheet allows, whatever shares were fitted.

The bounds are counted here, from the chip's file: products on all arrays in every cycle, each operand and result once through the
outermost memory, and the functions that libraries evaluate on all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.laws.test_kernel_bounds import NAMES, dtype, many_kernels

from halley.io.chips.fits import fit_of_chip, load_chip_fit
from halley.io.chips.kernel_fits import KIN, load_kernel_fits
from halley.io.chips.load import load_chip
from halley.io.chips.software import load_software
from halley.ir.hardware import Chip
from halley.kernels.bounds import kernel_bound
from halley.kernels.library.formats import number_format
from halley.kernels.library.rows import Stratum
from halley.kernels.library.times import KernelFits
from halley.kernels.library.times import kernel_time as measured_time
from halley.kernels.machine import PEAK, Efficiency, machine
from halley.kernels.sustained import under_load
from halley.kernels.times import Array, Attention, Gemm, Kernel, demand, kernel_time, lane_work
from halley.library import CHIP_FITS, KERNEL_FITS, SOFTWARE
from halley.serving.kernels import LibraryKernels

MEASURED = tuple(sorted({*KERNEL_FITS.names(), *KIN}))
"""Chips whose kernels were measured, or those of their kin."""
ROUNDING = 1e-9


def counted(kernel: Kernel, chip: Chip) -> Array:
    """Least time [s] of a kernel by the chip's file. Of uneven groups, only whole rows count."""
    macs, moved = demand(kernel)
    if isinstance(kernel, Gemm) and kernel.spread:
        macs, moved = demand(replace(kernel, rows=np.maximum(kernel.rows - 1, 0)))[0], 0 * moved
    word = "fp32" if not isinstance(kernel, Gemm | Attention) else kernel.dtype
    products = macs / rate(chip, word) if np.any(macs) else macs
    outer, cycles = chip.levels[0].memories[0], machine(chip).lane_cycles
    most = outer.read_bandwidth if outer.shared_bus else outer.read_bandwidth + outer.write_bandwidth
    members = math.prod(axis.size for _, axis in chip.axes)
    lanes = sum((count * cycles({name: 1.0}) for name, count in lane_work(kernel).items()), np.zeros(()))
    return np.maximum(np.maximum(products, moved / most), lanes / (members * chip.vector.lanes * chip.vector.clock))


def rate(chip: Chip, word: str) -> float:
    """Multiply-accumulates per second of all arrays."""
    members = math.prod(axis.size for _, axis in chip.axes)
    return members * chip.matrix.rows * chip.matrix.cols * chip.matrix.rate[word] * chip.matrix.clock


@cache
def efficiencies() -> tuple[Efficiency, ...]:
    """The data sheet, and every shipped fit, in short runs and under load, with every shipped software; each once."""
    found = [PEAK]
    for fit in map(load_chip_fit, CHIP_FITS.names()):
        for share in (fit.efficiency, under_load(fit, machine(load_chip(fit.chip)))):
            found += [share, *(load_software(software).of(share) for software in SOFTWARE.names())]
    return tuple(share for place, share in enumerate(found) if share not in found[:place])


@pytest.mark.parametrize("name", NAMES)
def test_no_formula_with_fitted_shares_is_below_the_bound(name: str) -> None:
    """What plans, servers and sharded graphs take for any kernel: on every chip that ships, with every fit. Of attention the
    functions of the library count: it folds the scale into the exponential, and saves one statistic in the place of two."""
    chip, random = load_chip(name), np.random.default_rng(len(name))
    rates = machine(chip)
    for kernel in many_kernels(random, 200, dtype(chip)):
        least = counted(kernel, chip) * (1 - ROUNDING)
        if isinstance(kernel, Attention):
            arrays = demand(kernel)[0] / rates.most_products(kernel.dtype, kernel.dtype)
            least = np.maximum(least, arrays * (1 - ROUNDING))
        else:
            least = np.maximum(least, kernel_bound(kernel, chip, rates))
        for share in efficiencies():
            assert (kernel_time(kernel, rates, share) >= least).all(), (share, kernel)


def test_a_formula_is_limited_by_the_arrays_where_nothing_else_is_slow() -> None:
    """At the rates of its data sheet a large product takes the cycles of its arrays, with the skew of their folds."""
    chip = load_chip("h20")
    assert chip.matrix is not None
    chip = replace(chip, matrix=replace(chip.matrix, back_to_back=False))
    rates, product = machine(chip), Gemm(8192, 8192, 8192)
    assert float(kernel_time(product, rates, PEAK)) == pytest.approx(8192**3 / rates.most_products("bf16", "bf16"), rel=1e-12)
    assert rates.most_products("bf16", "bf16") < 0.95 * rates.mac_rate("bf16")


@pytest.mark.parametrize("name", [name for name in NAMES if load_chip(name).matrix.nvfp4])
def test_products_of_four_bits_are_not_below_the_bound(name: str) -> None:
    """In serving, a product of nvfp4 is one of fp8 with fewer terms."""
    chip = load_chip(name)
    kernels, rows = LibraryKernels(machine(chip), PEAK), 2.0 ** np.arange(0, 15)
    products = rows * 8192 * 8192 / (rate(chip, "bf16") / chip.matrix.rate["bf16"] * chip.matrix.nvfp4)
    weights = 8192 * 8192 * 0.5 / chip.levels[0].memories[0].read_bandwidth
    assert (kernels.product(rows, 8192, 8192, dtype="nvfp4") >= np.maximum(products, weights) * (1 - ROUNDING)).all()


# --- kernels of measured tables -----------------------------------------------------------------------------------------

Count = Callable[[Mapping[str, Array], Stratum], tuple[Array, Array]]
"""Multiply-accumulates and bytes of a kernel from its sizes."""


def of_gemm(size: Mapping[str, Array], stratum: Stratum) -> tuple[Array, Array]:
    known, (m, n, k) = number_format(stratum.dtype), (size[name] for name in "mnk")
    return m * n * k, m * k * known.activation + n * k * known.weight + 2 * m * n


def of_decode(size: Mapping[str, Array], stratum: Stratum) -> tuple[Array, Array]:
    keys = size["cached"] + 1
    keys = np.where(size["window"] > 0, np.minimum(keys, size["window"]), keys)
    stored = size["batch"] * size["kv_heads"] * keys * 2 * size["head_dim"] * number_format(stratum.cache).activation
    return size["batch"] * size["heads"] * keys * 2 * size["head_dim"], stored


def of_encoder(size: Mapping[str, Array], stratum: Stratum) -> tuple[Array, Array]:
    points = size["batch"] * size["queries"] * size["heads"] * size["head_dim"]
    return 2 * points * size["queries"], 4 * points * number_format(stratum.dtype).activation


def of_prefill(size: Mapping[str, Array], stratum: Stratum) -> tuple[Array, Array]:
    """Pairs of queries and keys one by one."""
    pairs = []
    for queries, cached, window in zip(size["queries"], size["cached"], size["window"], strict=True):
        seen = np.arange(cached + 1, cached + queries + 1)
        pairs.append(np.minimum(seen, window).sum() if window else seen.sum())
    points = size["batch"] * size["queries"] * size["heads"] * size["head_dim"]
    return size["batch"] * size["heads"] * np.array(pairs) * 2 * size["head_dim"], 2 * points * number_format(
        stratum.dtype
    ).activation


def of_rows(tensors: int) -> Count:
    def count(size: Mapping[str, Array], stratum: Stratum) -> tuple[Array, Array]:
        moved = tensors * size["rows"] * size["columns"] * number_format(stratum.dtype).activation
        return 0 * moved, moved

    return count


COUNTS: dict[str, Count] = {
    "gemm": of_gemm,
    "attention_decode": of_decode,
    "attention_encoder": of_encoder,
    "attention_prefill": of_prefill,
    "add": of_rows(3),
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "gelu", "silu", "copy"), of_rows(2)),
}
ATTENTION = ("attention_decode", "attention_encoder", "attention_prefill")
DRAWN: dict[str, dict[str, tuple[float, float]]] = {
    "gemm": {"m": (0, 15), "n": (4, 15), "k": (4, 15)},
    "attention_decode": {"batch": (0, 9), "cached": (0, 17), "kv_heads": (0, 6), "head_dim": (5, 8), "window": (-1, 14)},
    "attention_encoder": {"batch": (0, 6), "queries": (0, 13), "heads": (0, 7), "head_dim": (5, 8)},
    "attention_prefill": {
        "batch": (0, 6), "queries": (0, 13), "cached": (-1, 13), "kv_heads": (0, 5), "head_dim": (5, 8), "window": (-1, 13),
    },
    "mla_prefill": {"batch": (0, 6), "queries": (0, 13), "cached": (-1, 13), "heads": (0, 7)},
    "mla_decode": {"batch": (0, 9), "cached": (0, 17), "heads": (0, 7)},
    "moe": {"tokens": (0, 15), "hidden": (8, 14), "inter": (8, 13), "topk": (0, 3)},
    "mamba2": {"batch": (0, 6), "queries": (0, 13), "heads": (3, 7)},
    **{name: {"rows": (0, 18), "columns": (5, 14)} for name in COUNTS if name not in ("gemm", *ATTENTION)},
}  # fmt: skip
"""Sizes of each family, as powers of two; below one: 0."""
FIXED = {"moe": {"experts": 64, "tp": 1, "ep": 1, "alpha": 0, "gated": 1}, "mamba2": {"head_dim": 64, "groups": 8, "state": 128}}


def drawn_sizes(family: str, random: np.random.Generator, count: int) -> dict[str, Array]:
    found = {name: np.floor(2 ** random.uniform(low, high, count)) for name, (low, high) in DRAWN[family].items()}
    if "kv_heads" in found:
        found["heads"] = found["kv_heads"] * 2.0 ** random.integers(0, 4, count)
    return found | {name: np.full(count, float(value)) for name, value in FIXED.get(family, {}).items()}


def least_time(size: Mapping[str, Array], stratum: Stratum, chip: Chip, kept: float) -> Array:
    """Least time [s] where ``kept`` bytes of the operands may be in the cache."""
    macs, moved = COUNTS[stratum.family](size, stratum)
    known = number_format("bf16" if stratum.family == "attention_decode" else stratum.dtype)
    have = known.rate in chip.matrix.rate
    speed = rate(chip, known.rate) if have else known.multiple * rate(chip, "bf16")
    if known.rate == "fp4" and chip.matrix.nvfp4:
        speed = max(speed, rate(chip, "bf16") / chip.matrix.rate["bf16"] * chip.matrix.nvfp4)
    return np.maximum(macs / speed, (moved - kept) / chip.levels[0].memories[0].read_bandwidth)


def judge(name: str, fits: KernelFits, count: int) -> int:
    """Every measured stratum of a chip at drawn sizes, cold and warm; how many were judged by a count of their own."""
    chip, random, judged = load_chip(name), np.random.default_rng(len(name)), 0
    for stratum in dict.fromkeys(fit.stratum for fit in fits.fits):
        size = drawn_sizes(stratum.family, random, count)
        asked = (stratum.dtype, stratum.cache or None, stratum.framework, stratum.kernel)
        for cold in (True, False):
            found = measured_time(fits, stratum.family, size, *asked, cold=cold)
            kept = 0.0 if cold else fits.machine.capacity
            assert (found.low <= found.time).all()
            assert (found.time <= found.high).all()
            least = np.maximum(found.compute, found.bound - kept / fits.machine.memory)
            if stratum.family in COUNTS:
                least, judged = np.maximum(least, least_time(size, stratum, chip, kept)), judged + count
            assert (found.low >= least * (1 - ROUNDING)).all(), (stratum, cold)
    return judged


@pytest.mark.parametrize("name", MEASURED)
def test_no_measured_kernel_is_below_the_bound(name: str) -> None:
    assert judge(name, load_kernel_fits(name), 100) >= 1000


def test_families_are_drawn() -> None:
    assert set(DRAWN) == {fit.stratum.family for name in KERNEL_FITS.names() for fit in load_kernel_fits(name).fits}
    assert fit_of_chip("cloud")[0].chip in CHIP_FITS.names()
