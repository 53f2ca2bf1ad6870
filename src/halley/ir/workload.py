"""Workloads: a DAG of elementary operations over named dims.

A compound operation (GEMM-Softmax, attention, ...) is a `Workload` that still holds its
elementary operations, so that a reduction over a dim that is split over clusters or chips
shows itself. Tensors are indexed by dim names only; `Op.dims` is the iteration space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from halley.errors import BadInput, Fault, did_you_mean

DTYPE_BYTES: dict[str, int] = {"int8": 1, "fp8": 1, "fp16": 2, "bf16": 2, "fp32": 4, "int32": 4, "fp64": 8}
"""Bytes of one element, by dtype."""


class OpKind(StrEnum):
    """The closed set of elementary operations."""

    CONTRACT = "contract"  # sum of products: GEMM, batched GEMM
    MAP = "map"  # elementwise
    REDUCE = "reduce"  # a monoid over the dims that the output lacks
    SCAN = "scan"  # associative scan along `along`
    FFT = "fft"  # butterflies along `along`
    GATHER = "gather"  # out[i, ...] = table[index[i], ...]
    SCATTER = "scatter"  # out[index[i], ...] += x[i, ...]
    PERMUTE = "permute"  # a copy with the dims in another order


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function: how often each elementary function runs per element."""

    work: Mapping[str, float]
    arity: int
    equation: str


FUNCTIONS: dict[str, Function] = {
    "identity": Function({}, 1, "x"),
    "add": Function({"add": 1}, 2, "x + y"),
    "mul": Function({"mul": 1}, 2, "x * y"),
    "square": Function({"mul": 1}, 1, "x^2"),
    "divide": Function({"div": 1}, 2, "x / y"),
    "scale": Function({"mul": 1}, 1, "x * scale"),
    "scale_mask": Function({"mul": 1, "add": 1}, 1, "x * scale where key <= query + offset, else -inf"),
    "exp_difference": Function({"add": 1, "exp": 1}, 2, "exp(x - y)"),
    "square_difference": Function({"add": 1, "mul": 1}, 2, "(x - y)^2"),
    "softmax_from_stats": Function({"add": 1, "exp": 1, "div": 1}, 3, "exp(x - max) / sum"),
    "rsqrt_mean": Function({"mul": 1, "add": 1, "rsqrt": 1}, 1, "1 / sqrt(x / count + epsilon)"),
    "normalise": Function({"add": 1, "mul": 1}, 3, "(x - mean) * rstd"),
    "affine": Function({"mul": 1, "add": 1}, 3, "x * gain + bias"),
    "normalise_gain": Function({"mul": 2}, 3, "x * rstd * gain"),
    "normalise_affine": Function({"add": 2, "mul": 2}, 5, "(x - mean) * rstd * gain + bias"),
    "silu": Function({"exp": 1, "add": 1, "div": 1}, 1, "x / (1 + exp(-x))"),
    "silu_mul": Function({"exp": 1, "add": 1, "div": 1, "mul": 1}, 2, "x / (1 + exp(-x)) * y"),
    "gelu": Function({"mul": 4, "add": 2, "exp": 1, "div": 1}, 1, "x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"),
}
"""Elementwise functions by name, with their elementary functions counted per element."""

MONOIDS: dict[str, Function] = {
    "sum": Function({"add": 1}, 1, "sum x"),
    "mean": Function({"add": 1}, 1, "sum x / count (the division is folded into the last write)"),
    "max": Function({"max": 1}, 1, "max x"),
    # running maximum and sum of exponentials, one pass (Milakov & Gimelshein, arXiv 1805.02867)
    "softmax": Function({"max": 1, "add": 2, "exp": 1}, 1, "(max x, sum exp(x - max x))"),
    # mean and sum of squared deviations, one pass (Welford 1962; merging: Chan et al. 1979)
    "welford": Function({"add": 4, "mul": 2}, 1, "(mean x, sum (x - mean x)^2)"),
    "linear": Function({"mul": 1, "add": 1}, 2, "h[t] = a[t] h[t-1] + x[t]"),
}
"""Reductions and scans by name; `softmax` and `welford` carry a state of two tensors."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array over dims. ``dims`` are names; extents live in the workload."""

    name: str
    dims: tuple[str, ...]
    dtype: str = "bf16"

    @property
    def word(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Op:
    """One elementary operation.

    ``dims`` is the iteration space, its last dim runs along the vector lanes. ``function`` is applied
    to the inputs before the monoid accumulates. ``running`` names inputs that may be read while their
    reduction still runs (online softmax). ``scaled_by`` names the running maximum that the accumulator
    is relative to: when it grows, the accumulator is multiplied by exp(old - new).
    ``constants`` are numbers that the function needs (scale, epsilon, ...).
    """

    name: str
    kind: OpKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: tuple[str, ...]
    function: str = "identity"
    monoid: str = ""
    running: tuple[str, ...] = ()
    scaled_by: str = ""
    along: str = ""
    constants: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """Ops in topological order over dims with extents; ``kernels`` groups op names into the
    kernels that a library without cross-kernel fusion would run one after the other."""

    name: str
    dims: Mapping[str, int]
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    kernels: tuple[tuple[str, ...], ...] = ()
    variant: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise BadInput(faults)

    def op(self, name: str) -> Op:
        for op in self.ops:
            if op.name == name:
                return op
        known = did_you_mean(name, (op.name for op in self.ops))
        raise BadInput(Fault(f"workload {self.name}", "the name of an op", repr(name), known))

    def producer(self, tensor: str) -> Op | None:
        """The op that writes the tensor, or None for an input of the workload."""
        return next((op for op in self.ops if tensor in op.outputs), None)

    def consumers(self, tensor: str) -> tuple[Op, ...]:
        return tuple(op for op in self.ops if tensor in op.inputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that no op writes."""
        produced = {name for op in self.ops for name in op.outputs}
        return tuple(name for name in self.tensors if name not in produced)

    def reduced(self, op: Op) -> tuple[str, ...]:
        """Dims that the op accumulates over: in its iteration space, in none of its outputs."""
        if op.kind not in (OpKind.CONTRACT, OpKind.REDUCE, OpKind.SCATTER):
            return ()
        kept = {dim for name in op.outputs for dim in self.tensors[name].dims}
        return tuple(dim for dim in op.dims if dim not in kept)

    def bytes(self, tensor: str) -> int:
        """Size of the whole tensor in bytes."""
        item = self.tensors[tensor]
        return math.prod(self.dims[dim] for dim in item.dims) * item.word

    def work(self, op: Op) -> dict[str, float]:
        """Elementary functions per point of the iteration space (empty for `contract`)."""
        return work_per_point(op, self.dims)

    def macs(self) -> int:
        """Multiply-accumulates of all contractions."""
        return sum(math.prod(self.dims[d] for d in op.dims) for op in self.ops if op.kind is OpKind.CONTRACT)


@dataclass(frozen=True, slots=True)
class Roles:
    """Dims of a contraction by what they index: rows (M), columns (N), reduced (K), batch (B)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduced: tuple[str, ...]
    batch: tuple[str, ...]


def roles(workload: Workload, op: Op) -> Roles:
    """The dims of a contraction: in input 0 and the output, in input 1 and the output, in no output, in all three."""
    first, second = (set(workload.tensors[name].dims) for name in op.inputs)
    out = set(workload.tensors[op.outputs[0]].dims)
    return Roles(
        rows=tuple(d for d in op.dims if d in out and d in first and d not in second),
        columns=tuple(d for d in op.dims if d in out and d in second and d not in first),
        reduced=tuple(d for d in op.dims if d not in out),
        batch=tuple(d for d in op.dims if d in out and d in first and d in second),
    )


def work_per_point(op: Op, dims: Mapping[str, int]) -> dict[str, float]:
    """Elementary functions per point of the iteration space of a non-GEMM op."""
    total: dict[str, float] = {}
    sources = [FUNCTIONS[op.function]] + ([MONOIDS[op.monoid]] if op.monoid else [])
    if op.kind is OpKind.FFT:
        # radix-2: per point log2(N)/2 butterflies of one complex product (4 mul, 2 add) and two sums (4 add)
        stages = math.log2(dims[op.along]) if dims[op.along] > 1 else 0.0
        sources.append(Function({"mul": 2 * stages, "add": 3 * stages}, 1, "fft"))
    if op.kind is OpKind.SCATTER:
        sources.append(Function({"add": 1}, 1, "scatter-add"))
    for source in sources:
        for name, count in source.work.items():
            total[name] = total.get(name, 0.0) + count
    return total


def _faults(workload: Workload) -> list[Fault]:
    where = f"workload {workload.name}"
    faults: list[Fault] = []
    for dim, extent in workload.dims.items():
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            faults.append(Fault(f"{where}, dim {dim}", "a whole number of at least 1", repr(extent)))
    for tensor in workload.tensors.values():
        for dim in tensor.dims:
            if dim not in workload.dims:
                remedy = did_you_mean(dim, workload.dims)
                faults.append(Fault(f"{where}, tensor {tensor.name}", "known dims", repr(dim), remedy))
        if tensor.dtype not in DTYPE_BYTES:
            remedy = did_you_mean(tensor.dtype, DTYPE_BYTES)
            faults.append(Fault(f"{where}, tensor {tensor.name}", "a known dtype", repr(tensor.dtype), remedy))
    written: set[str] = set()
    produced = {name for op in workload.ops for name in op.outputs}
    for op in workload.ops:
        at = f"{where}, op {op.name}"
        for name in (*op.inputs, *op.outputs):
            if name not in workload.tensors:
                faults.append(Fault(at, "known tensors", repr(name), did_you_mean(name, workload.tensors)))
        for name in op.inputs:
            if name in produced and name not in written:
                faults.append(Fault(at, f"{name} to be written by an earlier op", "a later or the same op"))
        for name in op.outputs:
            if name in written:
                faults.append(Fault(at, f"{name} to be written once", "a second writer"))
        written.update(op.outputs)
        for dim in op.dims:
            if dim not in workload.dims:
                faults.append(Fault(at, "known dims", repr(dim), did_you_mean(dim, workload.dims)))
        if op.function not in FUNCTIONS:
            faults.append(Fault(at, "a known function", repr(op.function), did_you_mean(op.function, FUNCTIONS)))
        if op.monoid and op.monoid not in MONOIDS:
            faults.append(Fault(at, "a known monoid", repr(op.monoid), did_you_mean(op.monoid, MONOIDS)))
    for name in workload.outputs:
        if name not in written:
            faults.append(Fault(where, "outputs that an op writes", repr(name)))
    return faults
