"""The Hyena operator: projections, short convolutions, gates, and long convolutions by Fourier transform."""

from __future__ import annotations

from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import batch as batched
from halley.workloads.construction.graph import contract, elementwise, tensors
from halley.workloads.construction.parameters import WorkloadKind, check, element_type, size
from halley.workloads.convolution import causal_convolution


def hyena(length: int, model: int, taps: int = 3, batch: int = 1, dtype: str = "bf16") -> Workload:
    """The operator of order 2 (Poli et al., arXiv 2302.10866, definition 3.1), with its projections.

    ``v, x1, x2`` are projections of X, each followed by a causal convolution of ``taps`` along the sequence; ``z1 = v``,
    ``z2 = x1 * (h1 conv z1)``, ``z3 = x2 * (h2 conv z2)``, ``Y = z3 Wy``. The filters h1 and h2 are inputs, as long as the
    sequence. Left out: the network that generates them, and biases.

    A long convolution is a product of spectra: both operands are padded with zeros to N points, the least power of two that is at
    least 2 length - 1, so that the convolution is linear. Spectra are pairs of real tensors. The transform of a real row is
    counted as that of a complex row.

    Dims: sequence t, frequency u (N), model m, channels e (the same extent), taps j, output o.

    >>> work = hyena(length=6, model=4)
    >>> work.dims["u"], work.op("spectrum_v").sequence
    (16, ('u',))

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"length": length, "model": model, "taps": taps, "batch": batch, "dtype": dtype}
    check(HYENA, given)
    b, extents = batched(batch)
    row, column, bins = f"{b}t e", "t e", f"{b}u e"
    walk, spectrum = f"{b}e t", f"{b}e u"  # lanes run along the sequence, which is untiled
    names = {"v": "V", "1": "X1", "2": "X2"}
    projections = tuple(contract(f"project_{mark}", f"X W{mark}", f"P{mark}", f"{b}t m e") for mark in names)
    shorts = tuple(causal_convolution(f"P{mark}", name, f"short_{mark}", f"{b}t", "t", "e", mark) for mark, name in names.items())
    first = _long_convolution("V", "h1", "L1", spectrum, "v", "1")
    second = _long_convolution("Z2", "h2", "L2", spectrum, "z", "2")
    gates = (elementwise("gate_1", "mul", "X1 L1", "Z2", walk), elementwise("gate_2", "mul", "X2 L2", "Z3", walk))
    output = contract("project_out", "Z3 Wy", "Y", f"{b}t e o")
    dims = {"X": f"{b}t m", "Wy": "e o", "Y": f"{b}t o", "h1": column, "h2": column}
    dims |= dict.fromkeys(("L1", "Z2", "L2", "Z3"), row)
    for mark, short in zip(names, shorts, strict=True):
        dims |= {f"W{mark}": "m e", f"P{mark}": row, f"short_{mark}": "j e"} | short.made
    for signal, index in (("v", "1"), ("z", "2")):
        dims |= {f"F{signal}{part}": bins for part in "ri"} | {f"G{index}{part}": "u e" for part in "ri"}
        dims |= {f"C{index}{part}": bins for part in "ri"}
    return Workload(
        HYENA.name,
        extents | {"t": length, "u": points_of(length), "m": model, "e": model, "j": taps, "o": model},
        tensors(dtype, dims),
        (*projections, *(op for short in shorts for op in short.ops), *first, gates[0], *second, gates[1], output),
        ("Y",),
        kernels=(
            *((op.name,) for op in projections),
            *(kernel for short in shorts for kernel in short.kernels),
            tuple(op.name for op in (*first, gates[0])),
            tuple(op.name for op in (*second, gates[1])),
            (output.name,),
        ),
        parameters=given,
        divisible=True,
    )


def points_of(length: int) -> int:
    """Points of the transform: the least power of two that holds the linear convolution of two rows.

    >>> points_of(6), points_of(8), points_of(1)
    (16, 16, 1)
    """
    return 1 << (2 * length - 2).bit_length()


def _long_convolution(source: str, kernel: str, result: str, bins: str, signal: str, index: str) -> tuple[Op, ...]:
    """``result = kernel conv source`` along the sequence: transform both, multiply, transform back."""
    frequency = tuple(bins.split())
    spectrum, response, product = f"F{signal}", f"G{index}", f"C{index}"
    both = f"{spectrum}r {response}r {spectrum}i {response}i"
    crossed = f"{spectrum}r {response}i {spectrum}i {response}r"
    return (
        Op(f"spectrum_{signal}", OpKind.FFT, (source,), (f"{spectrum}r", f"{spectrum}i"), frequency, along="u"),
        Op(f"response_{index}", OpKind.FFT, (kernel,), (f"{response}r", f"{response}i"), ("e", "u"), along="u"),
        elementwise(f"real_{index}", "product_difference", both, f"{product}r", bins),
        elementwise(f"imaginary_{index}", "product_sum", crossed, f"{product}i", bins),
        Op(
            f"back_{index}",
            OpKind.FFT,
            (f"{product}r", f"{product}i"),
            (result,),
            frequency,
            along="u",
            constants=(("inverse", 1.0),),
        ),
    )


HYENA = WorkloadKind(
    "hyena",
    "gated long convolutions by Fourier transform",
    hyena,
    (
        size("length", "tokens of a sequence"),
        size("model", "model dim, and channels"),
        size("taps", "taps of the short convolutions", 3),
        size("batch", "sequences", 1),
        element_type(),
    ),
)
