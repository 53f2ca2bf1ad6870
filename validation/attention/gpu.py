"""The GPU as real kernels find it: two fractions of its peaks, fitted on measured GEMMs and elementwise kernels.

Reads and writes of device memory share one bus, and atomic additions to L2 add on the way up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from validation.attention import plans
from validation.outcome import positive, read_figures, whole

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip, Granularity, Level
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.workloads.construction.graph import STATISTIC, contract, elementwise, reduction, tensors

TABLE = Path("measured_ops.csv")
"""Name of the table of measurements in the folder of data."""

DEVICE = "A100"

LARGE = 2**28
"""Bytes that an elementwise kernel must move, and thousands of multiply-accumulates that a GEMM must do, for launch and host time
not to count: 0.2 ms and 2 ms."""

MATRIX_FRACTION, BUS_FRACTION = 1.299, 0.595
"""What `fit` finds. The first is above 1: the chip's array fills and drains with every tile of 128 rows, which leaves 0.74 of its
peak; tensor cores do not, and reach 0.74 x 1.299 = 0.96 of it where all SMs have equal shares."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured kernel: its sizes by name, and its time [s]."""

    op: str
    sizes: dict[str, int]
    time: float
    where: str

    def size(self, name: str) -> int:
        """Raises BadInput: the row gives no such size."""
        if name not in self.sizes:
            raise BadInput(Fault(f"{self.where}, shape", f"a size {name}", ", ".join(self.sizes)))
        return self.sizes[name]


def measurements(path: Path) -> list[Measurement]:
    """The rows of the table that were measured on the device. Raises BadInput: a row that cannot be read."""
    found = []
    for number, row in enumerate(read_figures(path, ("hardware", "op", "shape", "measured_latency_s")), start=1):
        where = f"{path}, row {number}"
        if DEVICE in row["hardware"]:
            parts = dict(item.partition("=")[::2] for item in row["shape"].split(";"))
            sizes = {name: whole(parts, name, where) for name in parts if name and parts[name].isdigit()}
            found.append(Measurement(row["op"], sizes, positive(row, "measured_latency_s", where), where))
    return found


def gpu(matrix: float, bus: float, atomics: bool = False) -> Chip:
    """The A100 with these fractions of its matrix rate and of its memory bandwidth; ``atomics``: sums are added in L2."""
    base = load_chip("a100")
    if base.matrix is None:
        raise BadInput(Fault("a100.yaml", "a matrix engine", "none"))

    def changed(level: Level) -> Level:
        memories = tuple(
            replace(m, read_bandwidth=bus * m.read_bandwidth, write_bandwidth=bus * m.write_bandwidth, shared_bus=True)
            if m.name == "dram"
            else m
            for m in level.memories
        )
        network = replace(level.network, reduction=atomics) if level.network else None
        return replace(level, memories=memories, network=network)

    # as in version 2 of the file: with fp32 sums the backward kernels of published tiles do not fit into the registers
    engine = replace(base.matrix, clock=matrix * base.matrix.clock, accumulators={}, granularity=Granularity())
    return replace(base, levels=tuple(changed(level) for level in base.levels), matrix=engine)


def gemm_time(chip: Chip, m: int, n: int, k: int) -> float:
    """Time [s] of a GEMM; columns are cut over the axis that heads have in attention."""
    columns = math.ceil(n / chip.axis("sm", "x").size)
    heads = math.ceil(n / columns)
    work = Workload(
        "gemm",
        {"h": heads, "m": m, "n": columns, "k": k},
        tensors("fp16", {"A": "m k", "B": "h k n", "C": "h m n"}),
        (contract("gemm", "A B", "C", "h m k n"),),
        ("C",),
    )
    return _time(work, chip, plans.gemm(plans.Deal(chip, dict(work.dims)), "gemm", "A B C", "m n k"))


def map_time(chip: Chip, elements: int) -> float:
    """Time [s] of GELU over so many elements."""
    columns = 1024
    sizes = {"h": 12, "m": math.ceil(elements / 12 / columns), "n": columns}
    op = elementwise("gelu", "gelu", "X", "Y", "h m n")
    work = Workload("gelu", sizes, tensors("fp16", {"X": "h m n", "Y": "h m n"}), (op,), ("Y",))
    kernel = plans.rowwise(plans.Deal(chip, sizes), "X Y", ["gelu"], 4)
    return _time(work, chip, kernel)


def softmax_time(chip: Chip, rows: int, columns: int) -> float:
    """Time [s] of a softmax along rows."""
    sizes = {"h": 12, "m": math.ceil(rows / 12), "n": columns}
    work = Workload(
        "softmax",
        sizes,
        tensors("fp16", dict.fromkeys(("S", "E", "P"), "h m n")) | tensors(STATISTIC, {"mx": "h m", "z": "h m"}),
        (
            reduction("max", "max", "S", "mx", "h m n"),
            elementwise("exp", "exp_difference", "S mx", "E", "h m n"),
            reduction("sum", "sum", "E", "z", "h m n"),
            elementwise("divide", "divide", "E z", "P", "h m n"),
        ),
        ("P",),
    )
    kernel = plans.rowwise(plans.Deal(chip, sizes), "S E P mx z", ["max", "exp", "sum", "divide"])
    return _time(work, chip, kernel)


def fit(rows: Iterable[Measurement]) -> tuple[float, float]:
    """The two fractions: peak time over measured time, as a geometric mean over the large GEMMs, and over the large softmax and
    GELU kernels. Attention is not looked at."""
    peak = gpu(1.0, 1.0)
    matrix, bus = [], []
    for row in rows:
        if row.op == "matmul" and row.size("M") * row.size("N") * row.size("K") >= 1000 * LARGE:
            matrix.append(gemm_time(peak, row.size("M"), row.size("N"), row.size("K")) / row.time)
        if row.op == "gelu" and 4 * row.size("M") >= LARGE:
            bus.append(map_time(peak, row.size("M")) / row.time)
        if row.op == "softmax" and 4 * row.size("M") * row.size("N") >= LARGE:
            bus.append(softmax_time(peak, row.size("M"), row.size("N")) / row.time)
    if not matrix or not bus:
        raise BadInput(Fault("the table of measurements", f"large GEMMs and elementwise kernels on {DEVICE}", "none"))
    return _geometric_mean(matrix), _geometric_mean(bus)


def _time(work: Workload, chip: Chip, kernel: Node) -> float:
    return float(evaluate(work, chip, plans.in_memory(work, (kernel,), plans.passed(work, (kernel,)))).time)


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


__all__ = ["Measurement", "fit", "gpu", "measurements"]
