"""Workloads: a DAG of elementary operations over named dims.

A compound operation (GEMM-Softmax, attention, ...) is a `Workload` of elementary operations, so that a
reduction over a dim that is split over clusters or chips is visible. Tensors are indexed by dim names
only; `Op.dims` is the iteration space.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.affine import AffineIndex

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
    SCATTER = "scatter"  # out[index[i], ...] += x[i, ...]; with affine indices or along: out[p + r, ...] += x[p, r, ...]
    PERMUTE = "permute"  # a copy with the dims in another order, or under other names
    WINDOW = "window"  # causal windows along a sequence, copied: out[t, r, ...] = x[t + r - (R - 1), ...]


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function: how often each elementary function runs per element, its number of arguments, its equation, and
    the names of the constants that it needs."""

    work: Mapping[str, float]
    arity: int
    equation: str
    constants: tuple[str, ...] = ()


FUNCTIONS: dict[str, Function] = {
    "identity": Function({}, 1, "x"),
    "add": Function({"add": 1}, 2, "x + y"),
    "mul": Function({"mul": 1}, 2, "x * y"),
    "square": Function({"mul": 1}, 1, "x^2"),
    "subtract": Function({"add": 1}, 2, "x - y"),
    "divide": Function({"div": 1}, 2, "x / y"),
    "reciprocal": Function({"div": 1}, 1, "1 / x"),
    "maximum": Function({"max": 1}, 2, "max(x, y)"),
    "minimum": Function({"max": 1}, 2, "min(x, y)"),
    "multiply_add": Function({"mul": 1, "add": 1}, 3, "x * y + z"),
    "exp": Function({"exp": 1}, 1, "exp(x)"),
    "rsqrt": Function({"rsqrt": 1}, 1, "1 / sqrt(x)"),
    "sqrt": Function({"rsqrt": 1, "mul": 1}, 1, "sqrt(x) = x * rsqrt(x), and 0 at 0"),
    "relu": Function({"max": 1}, 1, "max(x, 0)"),
    "sigmoid": Function({"exp": 1, "add": 1, "div": 1}, 1, "1 / (1 + exp(-x))"),
    "tanh": Function({"mul": 1, "exp": 1, "add": 2, "div": 1}, 1, "1 - 2 / (exp(2 x) + 1)"),
    "scale": Function({"mul": 1}, 1, "x * scale", ("scale",)),
    "scale_mask": Function(
        {"mul": 1, "add": 1},
        1,
        "x * scale where key <= row modulo queries + offset, else -inf; everywhere x * scale if causal is 0",
        ("scale", "causal", "queries", "offset"),
    ),
    "exp_difference": Function({"add": 1, "exp": 1}, 2, "exp(x - y)"),
    # the two steps of a top-k gate; a comparison is counted as a maximum
    "below": Function({"max": 1}, 2, "x where x < y, else -inf"),
    "exp_selected": Function({"add": 1, "exp": 1, "max": 1}, 3, "exp(x - y) where x >= z, else 0"),
    "square_difference": Function({"add": 1, "mul": 1}, 2, "(x - y)^2"),
    "softmax_from_stats": Function({"add": 1, "exp": 1, "div": 1}, 3, "exp(x - max) / sum"),
    "rsqrt_mean": Function({"mul": 1, "add": 1, "rsqrt": 1}, 1, "1 / sqrt(x / count + epsilon)", ("count", "epsilon")),
    "normalise": Function({"add": 1, "mul": 1}, 3, "(x - mean) * rstd"),
    "affine": Function({"mul": 1, "add": 1}, 3, "x * gain + bias"),
    "normalise_gain": Function({"mul": 2}, 3, "x * rstd * gain"),
    "normalise_affine": Function({"add": 2, "mul": 2}, 5, "(x - mean) * rstd * gain + bias"),
    "silu": Function({"exp": 1, "add": 1, "div": 1}, 1, "x / (1 + exp(-x))"),
    "silu_bias": Function({"exp": 1, "add": 2, "div": 1}, 2, "silu(x + y)"),
    # a logarithm is counted as an exponential: both are series or tables of the same unit
    "softplus_bias": Function({"add": 3, "max": 1, "exp": 2}, 2, "log(1 + exp(x + y)) = max(s, 0) + log(1 + exp(-|s|))"),
    "exp_product": Function({"mul": 1, "exp": 1}, 2, "exp(x * y)"),
    "product": Function({"mul": 2}, 3, "x * y * z"),
    "product_difference": Function({"mul": 2, "add": 1}, 4, "x * y - z * w"),
    "product_sum": Function({"mul": 2, "add": 1}, 4, "x * y + z * w"),
    "scale_window": Function(
        {"mul": 1, "add": 1},
        1,
        "x * scale where row modulo queries + offset - window < key <= row modulo queries + offset, else -inf",
        ("scale", "queries", "offset", "window"),
    ),
    "decay_mask": Function({"add": 1, "exp": 1, "mul": 1}, 3, "x * exp(y - z) where source <= target, else 0"),
    "add_decayed": Function({"add": 1, "exp": 1, "mul": 1}, 3, "x + y * exp(z)"),
    "silu_mul": Function({"exp": 1, "add": 1, "div": 1, "mul": 1}, 2, "x / (1 + exp(-x)) * y"),
    "gelu": Function({"mul": 4, "add": 2, "exp": 1, "div": 1}, 1, "x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"),
    # erf by a polynomial of degree 5 in 1 / (1 + p |x|), times exp(-x^2)
    "gelu_erf": Function({"mul": 10, "add": 7, "exp": 1, "div": 1}, 1, "x/2 * (1 + erf(x / sqrt(2)))"),
    "log": Function({"exp": 1}, 1, "log(x)"),
    # used by derivatives (`halley.rewrite.derivatives`); a change of sign is part of the product
    "scaled_product": Function({"mul": 2}, 2, "x * y * scale", ("scale",)),
    "negative_product": Function({"mul": 2}, 3, "-x * y * z"),
    "scaled_quotient": Function({"div": 1, "mul": 1}, 2, "x / y * scale", ("scale",)),
    "quotient_gradient": Function({"mul": 1, "div": 1}, 3, "-x * y / z"),
    "cube_product": Function({"mul": 4}, 2, "x * y^3 * scale", ("scale",)),
    "scaled_difference": Function({"add": 1, "mul": 2}, 3, "x * (y - z) * scale", ("scale",)),
    "difference_product": Function({"add": 1, "mul": 2}, 4, "x * (y - z) * w"),
    "mul_exp": Function({"exp": 1, "mul": 1}, 2, "x * exp(y)"),
    "product_exp": Function({"exp": 1, "mul": 2}, 3, "x * y * exp(z)"),
    "mul_exp_difference": Function({"add": 1, "exp": 1, "mul": 1}, 3, "x * exp(y - z)"),
    "select_equal": Function({"max": 1}, 3, "x where y = z, else 0"),
    "select_above": Function({"max": 1}, 3, "x where y > z, else 0"),
    "select_not_below": Function({"max": 1}, 3, "x where y >= z, else 0"),
    "scale_visible": Function(
        {"mul": 1, "add": 1},
        1,
        "x * scale where key <= row modulo queries + offset, else 0; everywhere x * scale if causal is 0",
        ("scale", "causal", "queries", "offset"),
    ),
    "scale_in_window": Function(
        {"mul": 1, "add": 1},
        1,
        "x * scale where row modulo queries + offset - window < key <= row modulo queries + offset, else 0",
        ("scale", "queries", "offset", "window"),
    ),
    "relu_gradient": Function({"max": 1}, 2, "x where y > 0, else 0"),
    "sigmoid_gradient": Function({"mul": 2, "add": 1}, 2, "x * y * (1 - y)"),
    "tanh_gradient": Function({"mul": 2, "add": 1}, 2, "x * (1 - y^2)"),
    "softplus_bias_gradient": Function({"exp": 1, "add": 2, "div": 1}, 3, "x / (1 + exp(-(y + z)))"),
    "silu_gradient": Function({"exp": 1, "add": 3, "mul": 3, "div": 1}, 2, "x * s (1 + y (1 - s)), s = 1 / (1 + exp(-y))"),
    "silu_bias_gradient": Function({"exp": 1, "add": 4, "mul": 3, "div": 1}, 3, "silu_gradient(x, y + z)"),
    "silu_mul_gradient": Function({"exp": 1, "add": 3, "mul": 4, "div": 1}, 3, "silu_gradient(x * z, y)"),
    "gelu_erf_gradient": Function({"mul": 12, "add": 8, "exp": 1, "div": 1}, 2, "x * derivative of gelu_erf at y"),
    "gelu_gradient": Function({"mul": 11, "add": 7, "exp": 1, "div": 1}, 2, "x * derivative of gelu at y"),
}
"""Elementwise functions by name, with their elementary functions counted per element."""

PLACED = "queries"
"""A function with this constant depends on the position of an element in its row."""

MONOIDS: dict[str, Function] = {
    "sum": Function({"add": 1}, 1, "sum x"),
    "mean": Function({"add": 1}, 1, "sum x / count (the division is folded into the last write)", ("count",)),
    "max": Function({"max": 1}, 1, "max x"),
    # running maximum and sum of exponentials, one pass (Milakov & Gimelshein, arXiv 1805.02867)
    "softmax": Function({"max": 1, "add": 2, "exp": 1}, 1, "(max x, sum exp(x - max x))"),
    # mean and sum of squared deviations, one pass (Welford 1962; merging: Chan et al. 1979)
    "welford": Function({"add": 4, "mul": 2}, 1, "(mean x, sum (x - mean x)^2)"),
    "linear": Function({"mul": 1, "add": 1}, 2, "h[t] = a[t] h[t-1] + x[t]"),
    "linear_before": Function({"mul": 1, "add": 1}, 2, "h[t] = a[t-1] h[t-1] + x[t-1], h[0] = 0: the state that t finds"),
    "linear_lagged": Function({"mul": 1, "add": 1}, 2, "h[t] = a[t-1] h[t-1] + x[t]"),
}
"""Reductions and scans by name; `softmax` and `welford` carry a state of two tensors."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array over dims. ``dims`` are names; the workload has their extents."""

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

    ``dims`` is the iteration space; its last dim runs along the vector lanes. ``function`` is applied
    to the inputs before the monoid accumulates. ``running`` names inputs that may be read while their
    reduction is incomplete (online softmax). ``scaled_by`` names the running maximum that the accumulator
    is relative to: when it grows, the accumulator is multiplied by exp(old - new).
    ``along``: the dim of a scan, transform, index or causal window; several dims, separated by spaces, form one sequence, the
    last dim fastest. ``indices``: the dims of its inputs (of a scatter: its output) that it does not iterate itself, but reads at
    sums of its own dims.
    ``constants`` are numbers that the function needs (scale, epsilon, ...); ``inverse`` = 1 makes a transform the inverse one,
    ``reverse`` = 1 runs a scan from the end of its sequence.
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
    indices: tuple[AffineIndex, ...] = ()

    @property
    def sequence(self) -> tuple[str, ...]:
        """The dims of ``along``, the fastest one last."""
        return tuple(self.along.split())


@dataclass(frozen=True, slots=True)
class Workload:
    """Ops in topological order over dims with extents. ``kernels`` groups op names into the kernels that a library without
    cross-kernel fusion would run one after the other. ``divisible``: a search may split these kernels between any ops; otherwise
    a kernel is mapped as one unit, alone or fused with others."""

    name: str
    dims: Mapping[str, int]
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    kernels: tuple[tuple[str, ...], ...] = ()
    variant: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    divisible: bool = False
    _selectors: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _reduced: dict[int, tuple[Op, tuple[str, ...]]] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    def leaves(self, tensor: str, ops: Collection[str]) -> bool:
        """Whether a tensor is needed outside a group of ``ops``: by another op, or as an output."""
        return tensor in self.outputs or any(op.name not in ops for op in self.consumers(tensor))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that no op writes."""
        produced = {name for op in self.ops for name in op.outputs}
        return tuple(name for name in self.tensors if name not in produced)

    @property
    def indices(self) -> tuple[AffineIndex, ...]:
        """The affine indices of all ops, each once."""
        return tuple(dict.fromkeys(index for op in self.ops for index in op.indices))

    def selectors(self, tensor: str) -> tuple[str, ...]:
        """The dims whose loops and splits narrow a region of the tensor: its own, and those of its affine indices."""
        found = self._selectors.get(tensor)
        if found is None:
            dims = self.tensors[tensor].dims
            terms = (each for index in self.indices if index.dim in dims for each in index.dims)
            found = self._selectors[tensor] = tuple(dict.fromkeys((*dims, *terms)))
        return found

    def points(self, op: Op, tensor: str) -> tuple[str, ...]:
        """The dims of the op that select an element of one of its tensors: the tensor's own, with those of the index in place of
        each dim that the op reads at an affine index."""
        if not op.indices:
            return tuple(dict.fromkeys(self.tensors[tensor].dims))
        sums = {index.dim: index.dims for index in op.indices}
        return tuple(dict.fromkeys(each for dim in self.tensors[tensor].dims for each in sums.get(dim, (dim,))))

    def read_part(self, dim: str) -> tuple[int, int]:
        """The part [start, stop) of a dim that the ops use: everything, unless all of them read it at affine indices, which may
        leave out its ends."""
        sums = [index for index in self.indices if index.dim == dim]
        if not sums:
            return 0, self.dims[dim]
        users = [op for op in self.ops if any(dim in self.tensors[name].dims for name in (*op.inputs, *op.outputs))]
        if any(op.kind is OpKind.SCATTER or all(own.dim != dim for own in op.indices) for op in users):
            return 0, self.dims[dim]
        first, last = zip(*(index.positions(self.dims) for index in sums), strict=True)
        return max(min(first), 0), min(max(last) + 1, self.dims[dim])

    def whole(self, op: Op) -> tuple[str, ...]:
        """Dims that must be untiled in an op: its sequence, and dims of its tensors outside its iteration space (rows that an
        index selects, the end of a padded transform, the old and new name of a dim), except for those read at affine indices."""
        touched = [self.tensors[name].dims for name in (*op.inputs, *op.outputs)]
        found = [*op.sequence, *(dim for dims in touched for dim in dims if dim not in op.dims)]
        if op.kind is OpKind.PERMUTE:
            found += [dim for dim in touched[-1] if dim not in touched[0]]
        # a dim that is read at a sum is narrowed with its terms; the dim that a scatter adds to is not: its parts overlap
        summed = {index.dim for index in op.indices} if op.kind is not OpKind.SCATTER else set()
        return tuple(dim for dim in dict.fromkeys(found) if dim not in summed)

    def unsplit(self, op: Op) -> tuple[frozenset[str], ...]:
        """Dims that must not be split over members around an op, as members would have overlapping or equal parts. For an affine
        index of its own: the dim that is read, and dims of which two tiles may select the same part. For an index of another op
        into a dim that this op iterates or reads: the dims of that index."""
        mine = {*op.dims, *(index.dim for index in op.indices)}
        own = [index.unsplit(self.dims) | {index.dim} for index in op.indices]
        return (*own, *(frozenset(index.dims) for index in self.indices if index not in op.indices and index.dim in mine))

    def reduced(self, op: Op) -> tuple[str, ...]:
        """Dims that the op accumulates over: in its iteration space, in none of its outputs."""
        if op.kind not in (OpKind.CONTRACT, OpKind.REDUCE, OpKind.SCATTER):
            return ()
        found = self._reduced.get(id(op))
        if found is None or found[0] is not op:  # a freed op's id could be another's
            kept = {dim for name in op.outputs for dim in self.tensors[name].dims}
            found = self._reduced[id(op)] = op, tuple(dim for dim in op.dims if dim not in kept)
        return found[1]

    def index_input(self, op: Op) -> int:
        """Which input of a gather or scatter is the index: the one of an integer dtype, else the first."""
        return next((place for place, name in enumerate(op.inputs) if self.tensors[name].dtype.startswith("int")), 0)

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
    """Dims of a contraction by role: rows (M), columns (N), reduced (K), batch (B)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduced: tuple[str, ...]
    batch: tuple[str, ...]


def roles(workload: Workload, op: Op) -> Roles:
    """The roles of a contraction's dims. Rows: in input 0 and the output; columns: in input 1 and the output; reduced: not in the
    output; batch: in all three."""
    first, second = op.inputs
    return _roles(op.dims, *(workload.points(op, name) for name in (first, second, op.outputs[0])))


@lru_cache(maxsize=1 << 12)
def _roles(dims: tuple[str, ...], first: tuple[str, ...], second: tuple[str, ...], out: tuple[str, ...]) -> Roles:
    return Roles(
        rows=tuple(d for d in dims if d in out and d in first and d not in second),
        columns=tuple(d for d in dims if d in out and d in second and d not in first),
        reduced=tuple(d for d in dims if d not in out),
        batch=tuple(d for d in dims if d in out and d in first and d in second),
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
        if op.kind is OpKind.WINDOW and not op.along:
            remedy = "or a map that reads its input at affine indices"
            faults.append(Fault(at, "the sequence of the windows (along)", "none", remedy))
        if op.monoid and op.monoid not in MONOIDS:
            faults.append(Fault(at, "a known monoid", repr(op.monoid), did_you_mean(op.monoid, MONOIDS)))
    for name in workload.outputs:
        if name not in written:
            faults.append(Fault(where, "outputs that an op writes", repr(name)))
    return faults or list(_index_faults(workload))


_AFFINE_KINDS = (OpKind.CONTRACT, OpKind.MAP, OpKind.REDUCE, OpKind.SCATTER)

_PADDED_MONOIDS = ("sum", "mean", "max")
"""Reductions whose neutral element padding can have: 0, or minus infinity."""


def _index_faults(workload: Workload) -> Iterator[Fault]:
    """Faults of affine indices. Every loop must narrow a dim in one way: indices into one dim are equal or have no dim in
    common."""
    dims = workload.dims
    for op in workload.ops:
        where = f"workload {workload.name}, op {op.name}"
        written = op.outputs if op.kind is OpKind.SCATTER else op.inputs
        touched = {dim for name in written for dim in workload.tensors[name].dims}
        for index in op.indices:
            at = f"{where}, {index.dim} at {index}"
            if op.kind not in _AFFINE_KINDS:
                yield Fault(at, f"an op of the kinds {', '.join(_AFFINE_KINDS)}", str(op.kind))
            if not index.terms or any(each not in op.dims or not count for each, count in index.terms):
                yield Fault(at, f"a sum of the op's dims ({', '.join(op.dims)}) with coefficients", str(index) or "nothing")
                continue
            if len(set(index.dims)) < len(index.dims):
                yield Fault(at, "each dim once in the sum", str(index), "add up the coefficients")
            if index.dim in op.dims or index.dim not in touched:
                yield Fault(at, f"a dim of {', '.join(written)} that the op does not iterate", index.dim)
                continue
            first, last = index.positions(dims)
            if last < 0 or first >= dims[index.dim]:
                yield Fault(at, f"positions within {index.dim} = {dims[index.dim]}", f"{first} to {last}")
            if index.padded(dims) and op.kind is OpKind.REDUCE and op.monoid not in _PADDED_MONOIDS:
                expected = f"positions inside the tensor, for {op.monoid} has no value for padding"
                yield Fault(at, expected, f"{first} to {last} of {dims[index.dim]}", "pad the tensor itself")
            for other in workload.indices:
                together = other in op.indices or set(other.dims) & set(index.dims)
                if other != index and other.dim == index.dim and together:
                    remedy = "copy the tensor for one of them"
                    yield Fault(at, "one index over these dims everywhere", f"also {other}", remedy)
        yield from _repeated_dims(workload, op, where)
        for index in workload.indices:
            touches = index.dim in {dim for name in (*op.inputs, *op.outputs) for dim in workload.tensors[name].dims}
            if (touches or index.dim in op.dims) and not any(own.dim == index.dim for own in op.indices):
                if index.dim not in op.dims:
                    yield Fault(where, f"{index.dim} in its dims, or read at {index}", f"{op.dims}")
                elif not set(index.dims).isdisjoint(op.dims):
                    remedy = f"give the dims of {index} names of their own"
                    yield Fault(where, f"{index.dim}, or dims that it is read at ({index})", "both", remedy)


def _repeated_dims(workload: Workload, op: Op, where: str) -> Iterator[Fault]:
    """A dim of the op that selects several dims of one tensor, as in A[i, i+j]: none of them may leave the tensor, because their
    parts are then no product."""
    for name in op.inputs:
        sums = {index.dim: index for index in op.indices}
        used = [each for dim in workload.tensors[name].dims for each in (sums[dim].dims if dim in sums else (dim,))]
        for index in op.indices:
            repeated = [dim for dim in index.dims if used.count(dim) > 1]
            if index.dim in workload.tensors[name].dims and repeated and index.padded(workload.dims):
                expected = f"no padding where {repeated[0]} selects several dims of {name}"
                yield Fault(where, expected, f"{index.dim} at {index}", f"pad {name} itself")
