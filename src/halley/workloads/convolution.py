"""Convolutions: the causal depthwise convolution of state-space blocks, and chains of 2-D convolutions.

A convolution reads overlapping windows. A window op copies them (``U[p, r] = x[p + r]``), and a contraction or weighted sum
follows; if both are fused, the copies exist in a local buffer only.
"""

from __future__ import annotations

from itertools import pairwise

from halley.errors import Fault
from halley.ir.affine import AffineIndex
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.graph import contract, elementwise, reduction, tensors
from halley.workloads.parameters import Rule, WorkloadKind, check, element_type, size
from halley.workloads.steps import OpSequence


def causal_convolution(
    source: str, result: str, weights: str, places: str, sequence: str, channels: str, mark: str
) -> OpSequence:
    """``result[t, c] = sum_j weights[j, c] source[t + j - (taps - 1), c]``, zeros before the first: depthwise.

    ``places``: the dims of a position (batch, sequence); ``sequence``: those of them along which the taps j run, untiled;
    ``channels``: the dims of a channel. ``mark`` is the suffix of the names of the ops and of the windows U.
    """
    copies = f"{places} j {channels}"
    unfolded = f"U{mark}"
    ops = (
        windows(f"window_{mark}", source, unfolded, copies, along=sequence),
        reduction(f"convolve_{mark}", "sum", f"{unfolded} {weights}", result, copies, function="mul"),
    )
    return OpSequence(ops, {unfolded: copies, result: f"{places} {channels}"}, {}, (tuple(op.name for op in ops),))


def windows(name: str, source: str, result: str, dims: str, sums: tuple[AffineIndex, ...] = (), along: str = "") -> Op:
    """Copies of the windows of a tensor: at sums of dims (``sums``), or the causal windows of a sequence (``along``)."""
    kind = OpKind.WINDOW if along else OpKind.MAP
    return Op(name, kind, (source,), (result,), tuple(dims.split()), along=along, indices=sums)


def conv_chain(
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int = 3,
    layers: int = 2,
    images: int = 1,
    dtype: str = "bf16",
) -> Workload:
    """One to three 2-D convolutions with ReLU between: ``S[p, q, f] = sum_{r, s, c} x[p + r, q + s, c] W[r, s, c, f]``.

    Stride 1, no padding: each layer is ``kernel - 1`` smaller than the one before. ``height`` and ``width`` are the image's.
    Dims of layer i: rows p_i, columns q_i, filters f_i, taps r_i and s_i; those of the image have i = 0.

    Layers cannot be fused with tiles of p or q: a tile of the next layer needs a halo of this layer, and no op computes a point
    twice. Layers are fused with tiles of images or filters, or untiled.

    >>> work = conv_chain(height=6, width=6, channels=2, filters=4)
    >>> work.macs() == 4 * 4 * 9 * 2 * 4 + 2 * 2 * 9 * 4 * 4
    True

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "height": height,
        "width": width,
        "channels": channels,
        "filters": filters,
        "kernel": kernel,
        "layers": layers,
        "images": images,
        "dtype": dtype,
    }
    check(CONV_CHAIN, given)
    b = "b " if images > 1 else ""
    extents = ({"b": images} if images > 1 else {}) | {"p0": height, "q0": width, "f0": channels}
    dims = {"x0": f"{b}p0 q0 f0"}
    ops: list[Op] = []
    kernels: list[tuple[str, ...]] = []
    for before, i in pairwise(range(layers + 1)):
        extents |= {f"p{i}": height - i * (kernel - 1), f"q{i}": width - i * (kernel - 1), f"f{i}": filters}
        extents |= {f"r{i}": kernel, f"s{i}": kernel}
        copies = f"{b}p{i} q{i} r{i} s{i} f{before}"
        sums = (AffineIndex(f"p{before}", ((f"p{i}", 1), (f"r{i}", 1))), AffineIndex(f"q{before}", ((f"q{i}", 1), (f"s{i}", 1))))
        made, last = f"{b}p{i} q{i} f{i}", i == layers
        dims |= {f"U{i}": copies, f"W{i}": f"r{i} s{i} f{before} f{i}", f"S{i}": made}
        ops.append(windows(f"window_{i}", f"x{before}", f"U{i}", copies, sums))
        ops.append(contract(f"convolve_{i}", f"U{i} W{i}", f"S{i}", f"{copies} f{i}"))
        kernels.append((f"window_{i}", f"convolve_{i}"))
        if not last:
            dims[f"x{i}"] = made
            ops.append(elementwise(f"activate_{i}", "relu", f"S{i}", f"x{i}", made))
            kernels.append((f"activate_{i}",))
    return Workload(
        CONV_CHAIN.name, extents, tensors(dtype, dims), tuple(ops), (f"S{layers}",), kernels=tuple(kernels), parameters=given,
        divisible=True,
    )  # fmt: skip


def _layer_count_fault(layers: int) -> Fault | None:
    return None if layers <= 3 else Fault("workload conv-chain, parameter layers", "1, 2 or 3", str(layers))


def _kernel_fault(kernel: int) -> Fault | None:
    remedy = "a convolution with a single tap is a gemm"
    return None if kernel > 1 else Fault("workload conv-chain, parameter kernel", "at least 2", str(kernel), remedy)


def _image_fault(height: int, width: int, kernel: int, layers: int) -> Fault | None:
    needed = layers * (kernel - 1) + 1
    if min(height, width) >= needed or layers > 3:
        return None
    return Fault("workload conv-chain", f"height and width of at least {needed} for {layers} layers", f"{height} x {width}")


CONV_CHAIN = WorkloadKind(
    "conv-chain",
    "2-D convolutions with ReLU between",
    conv_chain,
    (
        size("height", "rows of the image"),
        size("width", "columns of the image"),
        size("channels", "channels of the image"),
        size("filters", "channels of every layer's result"),
        size("kernel", "taps along rows, and along columns", 3),
        size("layers", "convolutions, 1 to 3", 2),
        size("images", "images", 1),
        element_type(),
    ),
    (
        Rule(("layers",), _layer_count_fault),
        Rule(("kernel",), _kernel_fault),
        Rule(("height", "width", "kernel", "layers"), _image_fault),
    ),
)
