"""Chips that stand for products: their peaks, capacities and bandwidths are those of the vendor's data sheet or the paper.

The figures below are typed from the data sheets, apart from the chip files, and in the vendors' units: TFLOPS (TOPS) are 1e12
operations per second, dense, two per multiply-accumulate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from halley.answer import Status
from halley.errors import BadInput
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.workload import DTYPE_BYTES
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.space.hierarchy import hierarchy
from halley.workloads.gemm import gemm

KB, MB, GB, TB, PB = (10**power for power in (3, 6, 9, 12, 15))
KIB, MIB, GIB, TIB = (2**power for power in (10, 20, 30, 40))


@dataclass(frozen=True)
class Product:
    """What is published. ``tera``: peak per element type; ``vector``: fp32 peak of the lanes; ``members``: cores, SMs, PEs;
    ``outer``: (capacity [B], read bandwidth [B/s]); ``inner``: capacities [B] of the memories further in, in each member;
    ``within``: how far the rounded published figure may lie from the file's."""

    tera: dict[str, float]
    members: int
    outer: tuple[float, float]
    inner: dict[str, float]
    vector: float | None = None
    bandwidth: dict[str, float] = field(default_factory=dict)
    within: float = 0.003


PRODUCTS = {
    "a100": Product(
        {"fp16": 312, "bf16": 312, "int8": 624, "fp32": 19.5, "fp64": 19.5},
        108,
        (80 * GB, 2039 * GB),
        {"l2": 40 * MIB, "smem": 164 * KIB, "rf": 256 * KIB},
        vector=19.5,
        bandwidth={"l2": 5120 * 1.41e9, "smem": 32 * 4 * 1.41e9},
    ),
    "h100": Product(
        {"fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9, "fp32": 66.9, "fp64": 66.9},
        132,
        (80 * GB, 3.35 * TB),
        {"l2": 50 * MIB, "smem": 228 * KIB, "rf": 256 * KIB},
        vector=66.9,
        bandwidth={"smem": 32 * 4 * 1.83e9},
    ),
    "mi300x": Product(
        {"fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9, "fp32": 163.4, "fp64": 163.4},
        304,
        (192 * GB, 5.3 * TB),
        {"mall": 256 * MIB, "lds": 64 * KIB, "vgpr": 512 * KIB},
        vector=163.4,
        bandwidth={"mall": 17.2 * TB},
    ),
    "tpu-v5e": Product({"bf16": 197, "int8": 393}, 4, (16 * GB, 819 * GB), {}),
    "sn10": Product({"bf16": 307.2}, 640, (1.5 * TB, 6 * 8 * 2.667 * GB), {}, within=0.001),
    "sn40l": Product({"bf16": 638}, 1040, (1.5 * TIB, 200 * GB), {"hbm": 64 * GIB, "pmu": 512 * KIB}, bandwidth={"hbm": 2 * TB}),
    "wse-2": Product({"fp16": 7500}, 850_000, (2.4 * PB, 1.2e12 / 8), {}, bandwidth={"sram": 2 * 8 * 1.1e9}),
    "eyeriss-like": Product(
        {"fp16": 0.0672},
        168,
        (1 * GB, 8 * 90 * MB),
        {"glb": 108 * KIB, "ispad": 12 * 2, "wspad": 224 * 2, "pspad": 24 * 2},
    ),
    "simba-like": Product(
        {"int8": 4.01},
        16,
        (8 * GIB, 25.6 * GB),
        {"glb": 64 * KIB, "ibuf": 8 * KIB, "wbuf": 32 * KIB, "abuf": 3 * KIB},
    ),
    "simba": Product(
        {"int8": 127.8},
        36 * 16,
        (8 * GIB, 25.6 * GB),
        {"glb": 64 * KIB, "ibuf": 8 * KIB, "wbuf": 32 * KIB, "abuf": 3 * KIB},
    ),
}
PRODUCTS["h100-clusters"] = PRODUCTS["h100"]
POOLED = {"tpu-v5e": 128 * MIB, "sn10": 320 * MIB, "sn40l": 520 * MIB, "wse-2": 40 * GB}
"""On-chip memory [B] of chips with one pool that is described as a shared and a local part; for SN40L the local part is all."""


def members(chip: Chip) -> int:
    return math.prod(axis.size for _, axis in chip.axes)


def peak(chip: Chip, dtype: str) -> float:
    """Operations per second [op/s]."""
    assert chip.matrix is not None
    return 2 * members(chip) * chip.matrix.rows * chip.matrix.cols * chip.matrix.rate[dtype] * chip.matrix.clock


@pytest.mark.parametrize("name", PRODUCTS)
def test_peaks_are_the_published_ones(name: str) -> None:
    chip, product = load_chip(name), PRODUCTS[name]
    assert members(chip) == product.members
    found = {dtype: peak(chip, dtype) / 1e12 for dtype in product.tera}
    assert found == pytest.approx(product.tera, rel=product.within)


@pytest.mark.parametrize("name", [name for name, product in PRODUCTS.items() if product.vector])
def test_lanes_have_the_published_fp32_peak(name: str) -> None:
    chip = load_chip(name)
    assert chip.vector is not None
    assert 2 * members(chip) * chip.vector.lanes * chip.vector.clock / 1e12 == pytest.approx(PRODUCTS[name].vector, rel=0.003)


@pytest.mark.parametrize("name", PRODUCTS)
def test_memories_are_the_published_ones(name: str) -> None:
    chip, product = load_chip(name), PRODUCTS[name]
    outer = chip.memories[0]
    assert (outer.capacity, outer.read_bandwidth) == pytest.approx(product.outer, rel=0.001)
    assert outer.shared_bus or name == "wse-2"  # Ethernet goes both ways at once, the pins of a DRAM do not
    assert {memory: chip.memory(memory).capacity for memory in product.inner} == product.inner
    found = {memory: chip.memory(memory).read_bandwidth for memory in product.bandwidth}
    assert found == pytest.approx(product.bandwidth, rel=1e-9)


@pytest.mark.parametrize("name", POOLED)
def test_the_parts_of_a_pool_make_the_published_whole(name: str) -> None:
    _, shared, local = load_chip(name).levels
    parts = sum(memory.capacity for memory in local.memories) * local.count
    whole = parts if name == "sn40l" else parts + shared.memories[0].capacity
    assert whole == pytest.approx(POOLED[name], rel=0.02)


def test_on_chip_bandwidth_of_rdu_and_wafer() -> None:
    """150 TB/s over all memory units of the SN10, 20 PB/s for the wafer: reads and writes of all cores."""
    sn10, wafer = load_chip("sn10"), load_chip("wse-2")
    assert members(sn10) * sn10.memory("pmu").read_bandwidth == pytest.approx(150e12)
    sram = wafer.memory("sram")
    assert members(wafer) * (sram.read_bandwidth + sram.write_bandwidth) == pytest.approx(20e15, rel=0.15)


@pytest.mark.parametrize("name", PRODUCTS)
def test_an_element_type_has_a_rate_and_an_energy(name: str) -> None:
    matrix = load_chip(name).matrix
    assert matrix is not None
    assert set(matrix.rate) == set(matrix.energy)
    assert set(matrix.rate) <= set(DTYPE_BYTES)


def fits(name: str) -> bool:
    """Whether the search knows a machine of this shape."""
    try:
        hierarchy(load_chip(name))
    except BadInput:
        return False
    return True


def roofline(name: str, size: int, dtype: str) -> float:
    """Least time [s] of a square GEMM from the published peak and memory bandwidth alone; three matrices take turns on a bus."""
    product, word = PRODUCTS[name], DTYPE_BYTES[dtype]
    work = 2 * size**3 / (product.tera[dtype] * 1e12 * (1 + product.within))
    matrices = 3 if load_chip(name).memories[0].shared_bus else 2
    return max(work, matrices * size**2 * word / (product.outer[1] * 1.001))


def optimum(name: str, size: int, gap: float = 0.0) -> tuple[float, float]:
    """(time of a mapping that is proven to be within the ``gap``, roofline) [s]."""
    dtype = next(iter(PRODUCTS[name].tera))
    result = optimise(Problem(gemm(size, size, size, dtype=dtype), load_chip(name), baselines=False, gap=gap))
    assert result.best.status is (Status.WITHIN if gap else Status.OPTIMAL)
    return float(result.best.estimate.time), roofline(name, size, dtype)


@pytest.mark.parametrize("name", ["tpu-v5e", "a100"])
def test_a_gemm_runs_no_faster_than_the_roofline(name: str) -> None:
    time, bound = optimum(name, 512)
    assert bound <= time < 20 * bound


UNCLOSED = {"simba": 0.1, "wse-2": 0.1}
"""Gaps at which searches stop on chips whose sizes are no powers of two: three minutes do not prove an optimum there."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRODUCTS if fits(name)])
def test_a_gemm_of_1024_comes_near_the_roofline(name: str) -> None:
    """Ramps and shares that do not divide cost some of it, on the largest GPUs most of it; none is faster."""
    time, bound = optimum(name, 1024, UNCLOSED.get(name, 0.0))
    assert bound <= time < 4 * bound
