"""Convolutions: single 2-D convolutions, chains of them, and the causal depthwise convolution of state-space blocks.

A 2-D convolution is one contraction that reads its image at affine indices. The causal convolution runs along a sequence, which
may be several dims; a window op copies its windows, and a weighted sum follows.
"""

from __future__ import annotations

from itertools import pairwise

from halley.errors import Fault
from halley.ir.affine import AffineIndex
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import elementwise, reduction, tensors
from halley.workloads.construction.parameters import Rule, WorkloadKind, check, count, element_type, size
from halley.workloads.construction.steps import OpSequence


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
        windows(f"window_{mark}", source, unfolded, copies, sequence),
        reduction(f"convolve_{mark}", "sum", f"{unfolded} {weights}", result, copies, function="mul"),
    )
    return OpSequence(ops, {unfolded: copies, result: f"{places} {channels}"}, {}, (tuple(op.name for op in ops),))


def windows(name: str, source: str, result: str, dims: str, along: str) -> Op:
    """Copies of the causal windows of a sequence."""
    return Op(name, OpKind.WINDOW, (source,), (result,), tuple(dims.split()), along=along)


def conv(
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    images: int = 1,
    dtype: str = "bf16",
) -> Workload:
    """One 2-D convolution: ``O[p, q, f] = sum_{r, s, c} I[stride p + dilation r - padding, ..., c] W[r, s, c, f]``, zeros outside
    the image.

    Dims: images b, groups g (if there are several), filters f and channels c of a group, rows p and columns q of the result, taps
    r and s, rows h and columns w of the image. Dims b, g, f and c of extent 1 are left out, but for f without groups and c
    without taps. A kernel of one tap without padding has no h and w: the image has only the rows and columns that are read.

    >>> work = conv(height=56, width=56, channels=64, filters=128, stride=2, padding=1)
    >>> work.dims["p"], work.macs() == 28 * 28 * 64 * 128 * 9
    (28, True)
    >>> [str(index) for index in work.op("convolve").indices]
    ['2p+r-1', '2q+s-1']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "height": height,
        "width": width,
        "channels": channels,
        "filters": filters,
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "images": images,
        "dtype": dtype,
    }
    check(CONV, given)
    extents = {"b": images, "g": groups, "f": filters // groups, "c": channels // groups}
    needed = {"f"} if groups == 1 else set[str]()
    needed |= {"c"} if kernel == 1 else set()  # there is something to sum over
    extents = {dim: extent for dim, extent in extents.items() if extent > 1 or dim in needed}
    indices: list[AffineIndex] = []
    image: list[str] = []
    taps: list[str] = []
    for place, out, tap, most in (("h", "p", "r", height), ("w", "q", "s", width)):
        extents[out] = (most + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        if kernel > 1:
            extents[tap] = kernel
            taps.append(tap)
        if kernel == 1 and padding == 0:
            image.append(out)
            continue
        terms = ((out, stride), *(((tap, dilation),) if kernel > 1 else ()))
        extents[place] = most
        indices.append(AffineIndex(place, terms, -padding))
        image.append(place)

    def present(*dims: str) -> tuple[str, ...]:
        return tuple(dim for dim in dims if dim in extents)

    result, summed = present("b", "p", "q", "g", "f"), present(*taps, "c")
    dims = {"I": present("b", *image, "g", "c"), "W": present(*taps, "g", "c", "f"), "O": result}
    # the sum before the dim that is contiguous in the result
    over = (*result[:-1], *summed, result[-1])
    op = Op("convolve", OpKind.CONTRACT, ("I", "W"), ("O",), over, indices=tuple(indices))
    named = tensors(dtype, {name: " ".join(own) for name, own in dims.items()})
    return Workload(CONV.name, extents, named, (op,), ("O",), kernels=(("convolve",),), parameters=given)


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
    for before, i in pairwise(range(layers + 1)):
        extents |= {f"p{i}": height - i * (kernel - 1), f"q{i}": width - i * (kernel - 1), f"f{i}": filters}
        extents |= {f"r{i}": kernel, f"s{i}": kernel}
        indices = tuple(AffineIndex(f"{at}{before}", ((f"{at}{i}", 1), (f"{tap}{i}", 1))) for at, tap in ("pr", "qs"))
        made, last = f"{b}p{i} q{i} f{i}", i == layers
        dims |= {f"W{i}": f"r{i} s{i} f{before} f{i}", f"S{i}": made}
        over = f"{b}p{i} q{i} r{i} s{i} f{before} f{i}"
        inputs = (f"x{before}", f"W{i}")
        ops.append(Op(f"convolve_{i}", OpKind.CONTRACT, inputs, (f"S{i}",), tuple(over.split()), indices=indices))
        if not last:
            dims[f"x{i}"] = made
            ops.append(elementwise(f"activate_{i}", "relu", f"S{i}", f"x{i}", made))
    return Workload(
        CONV_CHAIN.name, extents, tensors(dtype, dims), tuple(ops), (f"S{layers}",), kernels=tuple((op.name,) for op in ops),
        parameters=given,
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


def _groups_fault(channels: int, filters: int, groups: int) -> Fault | None:
    if channels % groups == 0 and filters % groups == 0:
        return None
    return Fault("workload conv, parameter groups", f"a divisor of channels {channels} and filters {filters}", str(groups))


def _reach_fault(height: int, width: int, kernel: int, padding: int, dilation: int) -> Fault | None:
    reach = dilation * (kernel - 1) + 1
    if padding >= reach:
        return Fault("workload conv, parameter padding", f"less than the reach of the kernel, {reach}", str(padding))
    if min(height, width) + 2 * padding < reach:
        expected = f"height and width of at least {reach - 2 * padding} for a kernel that reaches over {reach}"
        return Fault("workload conv", expected, f"{height} x {width}")
    return None


CONV = WorkloadKind(
    "conv",
    "one 2-D convolution, with strides, padding, dilation, groups",
    conv,
    (
        size("height", "rows of the image"),
        size("width", "columns of the image"),
        size("channels", "channels of the image"),
        size("filters", "channels of the result"),
        size("kernel", "taps along rows, and along columns", 3),
        size("stride", "rows, and columns, of the image from one point of the result to the next", 1),
        count("padding", "rows and columns of zeros on each side of the image"),
        size("dilation", "rows, and columns, from one tap to the next", 1),
        size("groups", "groups of channels, each with its own filters; as many as channels: depthwise", 1),
        size("images", "images", 1),
        element_type(),
    ),
    (
        Rule(("channels", "filters", "groups"), _groups_fault),
        Rule(("height", "width", "kernel", "padding", "dilation"), _reach_fault),
    ),
)

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
