"""One long Fourier transform as two rounds of short ones (Bailey's four-step method, 1990), the usual form on several chips.

Dims: p and q. The points form a matrix [p, q] in row-major order. The first round transforms along p and is sharded by q, the
second along q and is sharded by p, with an all-to-all in between, and another one to restore the natural order.
"""

from __future__ import annotations

from halley.errors import Fault
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import elementwise, tensors
from halley.workloads.construction.parameters import SIZE_LIMIT, Rule, WorkloadKind, check, element_type, size


def fft(rows: int, columns: int, dtype: str = "fp32") -> Workload:
    """``Y = DFT(X)`` of ``rows x columns`` complex points, both powers of two, not divided, ``exp(-2 pi i)``.

    With x[p Q + q] in the matrix [p, q]: transform the columns along p; multiply by ``W[p, q] = exp(-2 pi i p q / (P Q))``;
    transform the rows along q; transpose, so that y[q P + p] is at [q, p]. Complex numbers are planar, real (r) and imaginary
    (i). The twiddle factors W are inputs.

    >>> work = fft(rows=4, columns=8)
    >>> [op.name for op in work.ops]
    ['columns', 'twiddle_real', 'twiddle_imaginary', 'rows', 'transpose_real', 'transpose_imaginary']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"rows": rows, "columns": columns, "dtype": dtype}
    check(FFT, given)
    planes = [f"{name}{part}" for name in "XFWGH" for part in "ri"]
    ops = (
        Op("columns", OpKind.FFT, ("Xr", "Xi"), ("Fr", "Fi"), ("p", "q"), along="p"),
        elementwise("twiddle_real", "product_difference", "Fr Wr Fi Wi", "Gr", "p q"),
        elementwise("twiddle_imaginary", "product_sum", "Fr Wi Fi Wr", "Gi", "p q"),
        Op("rows", OpKind.FFT, ("Gr", "Gi"), ("Hr", "Hi"), ("p", "q"), along="q"),
        Op("transpose_real", OpKind.PERMUTE, ("Hr",), ("Yr",), ("q", "p")),
        Op("transpose_imaginary", OpKind.PERMUTE, ("Hi",), ("Yi",), ("q", "p")),
    )
    return Workload(
        FFT.name,
        {"p": rows, "q": columns},
        tensors(dtype, dict.fromkeys(planes, "p q") | dict.fromkeys(("Yr", "Yi"), "q p")),
        ops,
        ("Yr", "Yi"),
        kernels=(("columns",), ("twiddle_real", "twiddle_imaginary"), ("rows",), ("transpose_real", "transpose_imaginary")),
        parameters=given,
    )


def _power_of_two(name: str) -> Rule:
    def check(points: int) -> Fault | None:
        if points & (points - 1) == 0:
            return None
        remedy = f"pad to {1 << points.bit_length()}"
        return Fault(f"workload fft, parameter {name}", "a power of two (the butterflies are radix-2)", str(points), remedy)

    return Rule((name,), check)


def _points(rows: int, columns: int) -> Fault | None:
    if rows * columns <= SIZE_LIMIT:
        return None
    return Fault("workload fft", f"rows x columns of at most {SIZE_LIMIT}", str(rows * columns))


FFT = WorkloadKind(
    "fft",
    "a long Fourier transform in two rounds of short ones",
    fft,
    (
        size("rows", "points of the first round, a power of two"),
        size("columns", "points of the second round, a power of two"),
        element_type("fp32"),
    ),
    (_power_of_two("rows"), _power_of_two("columns"), Rule(("rows", "columns"), _points)),
)
