"""Predicted and measured speed-up of fused attention, forward + backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from validation.attention import graphs, plans
from validation.attention.gpu import BUS_FRACTION, MATRIX_FRACTION, TABLE, Measurement, gpu, measurements
from validation.outcome import Case, Line, Outcome

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Fault, InternalError
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload

PREFIX = "attention_fwd+bwd_"
UNFUSED, FUSED = "pytorch", ("fa2", "fa1")
MEAN, WORST = 0.10, 0.25
"""What is allowed of the relative error of a speed-up."""

BLOCK = 128
"""Keys of a block: a causal mask skips blocks, not single scores."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Self-attention: sequences, heads of each, their length, head dim."""

    batch: int
    heads: int
    seq: int
    head_dim: int
    causal: bool

    @property
    def name(self) -> str:
        return f"{self.batch} x {self.heads} heads of {self.head_dim}, {self.seq} {'causal' if self.causal else 'tokens'}"

    @property
    def seen(self) -> int:
        """Keys that fused kernels look at per query, on average: half of them and half of the block on the diagonal."""
        return (self.seq + BLOCK) // 2 if self.causal else self.seq


def unfused_time(shape: Shape, matrix: float = MATRIX_FRACTION, bus: float = BUS_FRACTION) -> float:
    """Predicted time [s], kernel by kernel. Masked scores are computed all the same."""
    work = graphs.standard(shape.batch * shape.heads, shape.seq, shape.seq, shape.head_dim, shape.causal)
    return fastest(work, gpu(matrix, bus), lambda deal: plans.standard(deal, shape.causal))


def fused_time(shape: Shape, matrix: float = MATRIX_FRACTION, bus: float = BUS_FRACTION, first: bool = False) -> float:
    """Predicted time [s] of the fused kernels; ``first``: as FlashAttention-1 has them, else FlashAttention-2."""
    sizes = (shape.batch * shape.heads, shape.seq, shape.seen, shape.head_dim)
    chip = gpu(matrix, bus, atomics=True)
    if first:
        block = 256 if shape.head_dim <= 64 else 128
        ahead, back = graphs.forward_by_blocks(*sizes, block), graphs.backward_by_blocks(*sizes, block)
        return fastest(ahead, chip, plans.forward_by_blocks) + fastest(back, chip, plans.backward_by_blocks)
    return fastest(graphs.forward(*sizes), chip, plans.forward) + fastest(graphs.backward(*sizes), chip, plans.backward)


def fastest(work: Workload, chip: Chip, plan: Callable[[plans.Deal], tuple[Node, ...]]) -> float:
    """Time [s] of the kernels one after the other, each in the fastest distribution that fits."""
    return sum(time for time, _ in chosen(work, chip, plan))


def chosen(work: Workload, chip: Chip, plan: Callable[[plans.Deal], tuple[Node, ...]]) -> list[tuple[float, Node]]:
    """Each kernel's (time [s], tree): heads and rows, heads or rows dealt to the SMs, with operands in L2 twice, once or not at
    all."""
    ways = [plan(plans.Deal(chip, dict(work.dims), along)) for along in plans.Along]
    outside = plans.passed(work, ways[0])
    alike = zip(*ways, strict=True)
    choices = ([plans.in_cache(kernel, buffers) for kernel in kernels for buffers in (2, 1, 0)] for kernels in alike)
    return [_best(work, chip, kernels, outside) for kernels in choices]


def _best(work: Workload, chip: Chip, kernels: list[Node], outside: frozenset[str]) -> tuple[float, Node]:
    """Raises InternalError: none fits."""
    capacity = {memory.name: memory.capacity for memory in chip.memories}
    found = []
    for kernel in kernels:
        estimate = evaluate(work, chip, plans.in_memory(work, (kernel,), outside))
        if all(estimate.footprint[name] <= capacity[name] for name in estimate.footprint):
            found.append((float(estimate.time), kernel))
    if not found:
        raise InternalError(Fault(f"{work.name} on {chip.name}", "a kernel that fits", "none of the plans"))
    return min(found, key=lambda item: item[0])


def compare(data: Path | None) -> Outcome:
    """Every shape that was measured unfused and fused, where the folder of data has the table."""
    if data is None or not (data / TABLE).is_file():
        return Outcome("attention", skipped=f"no data: {TABLE.as_posix()}")
    times: dict[Shape, dict[str, float]] = {}
    for row in measurements(data / TABLE):
        if row.op.startswith(PREFIX):
            times.setdefault(_shape(row), {})[row.op.removeprefix(PREFIX)] = row.time
    shapes = {shape: found for shape, found in times.items() if UNFUSED in found}
    unfused = {shape: unfused_time(shape) for shape in shapes}
    cases = {
        kernel: tuple(
            Case(shape.name, unfused[shape] / fused_time(shape, first=kernel == "fa1"), found[UNFUSED] / found[kernel])
            for shape, found in shapes.items()
            if kernel in found
        )
        for kernel in FUSED
    }
    if not all(cases.values()):
        raise BadInput(Fault(str(data / TABLE), "attention, measured unfused and by both fused kernels", "none"))
    return Outcome(
        "attention",
        (
            Line("speed-ups", cases["fa2"] + cases["fa1"], MEAN, WORST),
            Line("speed-ups, second kernel", cases["fa2"], MEAN, WORST),
            Line("speed-ups, first kernel", cases["fa1"], MEAN, WORST),
        ),
    )


def _shape(row: Measurement) -> Shape:
    return Shape(row.size("batch"), row.size("heads"), row.size("seq"), row.size("head_dim"), causal=row.size("causal") > 0)


__all__ = ["Shape", "chosen", "compare", "fused_time", "unfused_time"]
