"""Small workloads with the op kinds scan, fft, gather, scatter and permute."""

from __future__ import annotations

from halley.errors import Fault
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import elementwise, tensors
from halley.workloads.construction.parameters import Rule, WorkloadKind, check, element_type, size


def gated_scan(length: int, channels: int, dtype: str = "bf16") -> Workload:
    """A gated linear recurrence: ``H[t] = A[t] H[t-1] + X[t]`` with ``H[-1] = 0``, then ``Y = silu(Z) * H``.

    The core of a selective state-space layer (Gu and Dao, arXiv 2312.00752) with one state per channel.
    Dims: length t, channels n.

    >>> gated_scan(length=8, channels=4).op("scan").along
    't'

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"length": length, "channels": channels, "dtype": dtype}
    check(GATED_SCAN, given)
    return Workload(
        GATED_SCAN.name,
        {"t": length, "n": channels},
        tensors(dtype, dict.fromkeys(("A", "X", "Z", "H", "Y"), "t n")),
        (
            Op("scan", OpKind.SCAN, ("A", "X"), ("H",), ("t", "n"), monoid="linear", along="t"),
            elementwise("gate", "silu_mul", "Z H", "Y", "t n"),
        ),
        ("Y",),
        kernels=(("scan",), ("gate",)),
        parameters=given,
    )


def power_spectrum(m: int, n: int, dtype: str = "fp32") -> Workload:
    """``P = |FFT of each row of X|^2`` for m complex rows of n points (radix-2, unnormalised, ``exp(-2 pi i)``).

    Complex numbers are planar: the op reads two tensors (real, imaginary) and writes two, so no complex element type is needed.
    The frequency dim has the name n of the time dim that it replaces.

    >>> power_spectrum(m=2, n=8).op("fft").outputs
    ('Fr', 'Fi')

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"m": m, "n": n, "dtype": dtype}
    check(POWER_SPECTRUM, given)
    return Workload(
        POWER_SPECTRUM.name,
        {"m": m, "n": n},
        tensors(dtype, dict.fromkeys(("Xr", "Xi", "Fr", "Fi", "Rr", "Ri", "P"), "m n")),
        (
            Op("fft", OpKind.FFT, ("Xr", "Xi"), ("Fr", "Fi"), ("m", "n"), along="n"),
            elementwise("square_real", "square", "Fr", "Rr", "m n"),
            elementwise("square_imaginary", "square", "Fi", "Ri", "m n"),
            elementwise("add", "add", "Rr Ri", "P", "m n"),
        ),
        ("P",),
        kernels=(("fft",), ("square_real", "square_imaginary", "add")),
        parameters=given,
    )


def embedding(tokens: int, vocabulary: int, width: int, dtype: str = "bf16") -> Workload:
    """``Y[m, n] = table[index[m], n]``: one row of the table per token.

    Dims: tokens m, width n, vocabulary v. v is a dim of the table only: ``along`` names it, and it is not in the iteration space.

    >>> embedding(tokens=3, vocabulary=10, width=4).op("gather").dims
    ('m', 'n')

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"tokens": tokens, "vocabulary": vocabulary, "width": width, "dtype": dtype}
    check(EMBEDDING, given)
    return Workload(
        EMBEDDING.name,
        {"m": tokens, "n": width, "v": vocabulary},
        tensors(dtype, {"table": "v n", "Y": "m n"}) | tensors("int32", {"index": "m"}),
        (Op("gather", OpKind.GATHER, ("table", "index"), ("Y",), ("m", "n"), along="v"),),
        ("Y",),
        kernels=(("gather",),),
        parameters=given,
    )


def scatter_add(tokens: int, slots: int, width: int, dtype: str = "bf16") -> Workload:
    """``Y[index[m], n] += X[m, n]`` from zero: the combine of a mixture of experts, the gradient of an embedding.

    Dims: tokens m, width n, slots v; ``along`` names v.

    >>> scatter_add(tokens=3, slots=2, width=4).op("scatter").along
    'v'

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"tokens": tokens, "slots": slots, "width": width, "dtype": dtype}
    check(SCATTER_ADD, given)
    return Workload(
        SCATTER_ADD.name,
        {"m": tokens, "n": width, "v": slots},
        tensors(dtype, {"X": "m n", "Y": "v n"}) | tensors("int32", {"index": "m"}),
        (Op("scatter", OpKind.SCATTER, ("X", "index"), ("Y",), ("m", "n"), along="v"),),
        ("Y",),
        kernels=(("scatter",),),
        parameters=given,
    )


def merge_heads(tokens: int, heads: int, head_dim: int, dtype: str = "bf16") -> Workload:
    """``Y[m, h, d] = X[h, m, d]``: from heads outermost, the layout of attention's result, to tokens outermost.

    >>> merge_heads(tokens=3, heads=2, head_dim=4).tensors["Y"].dims
    ('m', 'h', 'd')

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"tokens": tokens, "heads": heads, "head_dim": head_dim, "dtype": dtype}
    check(MERGE_HEADS, given)
    return Workload(
        MERGE_HEADS.name,
        {"h": heads, "m": tokens, "d": head_dim},
        tensors(dtype, {"X": "h m d", "Y": "m h d"}),
        (Op("permute", OpKind.PERMUTE, ("X",), ("Y",), ("m", "h", "d")),),
        ("Y",),
        kernels=(("permute",),),
        parameters=given,
    )


def _power_of_two(n: int) -> Fault | None:
    if n & (n - 1) == 0:
        return None
    remedy = f"pad the rows to {1 << n.bit_length()}"
    return Fault("workload power-spectrum, parameter n", "a power of two (the butterflies are radix-2)", str(n), remedy)


GATED_SCAN = WorkloadKind(
    "gated-scan",
    "silu(Z) * linear recurrence of A and X",
    gated_scan,
    (size("length", "steps of the recurrence"), size("channels", "independent channels"), element_type()),
)
POWER_SPECTRUM = WorkloadKind(
    "power-spectrum",
    "|FFT of the rows|^2",
    power_spectrum,
    (size("m", "rows"), size("n", "points per row, a power of two"), element_type("fp32")),
    (Rule(("n",), _power_of_two),),
)
EMBEDDING = WorkloadKind(
    "embedding",
    "rows of a table by index",
    embedding,
    (size("tokens", "rows to fetch"), size("vocabulary", "rows of the table"), size("width", "columns"), element_type()),
)
SCATTER_ADD = WorkloadKind(
    "scatter-add",
    "rows added up by index",
    scatter_add,
    (size("tokens", "rows to add"), size("slots", "rows of the result"), size("width", "columns"), element_type()),
)
MERGE_HEADS = WorkloadKind(
    "merge-heads",
    "heads to the side of their tokens",
    merge_heads,
    (size("tokens", "tokens"), size("heads", "heads"), size("head_dim", "head dim"), element_type()),
)
