"""The families of kernels by name."""

from __future__ import annotations

from halley.errors import BadInput, Fault, did_you_mean
from halley.kernels.library.attention import ENCODER, MLA_PREFILL, PREFILL
from halley.kernels.library.decode import DECODE, MLA_DECODE
from halley.kernels.library.experts import EXPERTS
from halley.kernels.library.family import KernelFamily
from halley.kernels.library.gemm import GEMM
from halley.kernels.library.scan import CONVOLUTION
from halley.kernels.library.streams import ADD, COPY, GELU, LAYER_NORM, RMS_NORM, SILU, SOFTMAX

FAMILIES: dict[str, KernelFamily] = {
    item.name: item
    for item in (
        GEMM,
        PREFILL,
        DECODE,
        ENCODER,
        MLA_PREFILL,
        MLA_DECODE,
        EXPERTS,
        CONVOLUTION,
        SOFTMAX,
        LAYER_NORM,
        RMS_NORM,
        GELU,
        SILU,
        ADD,
        COPY,
    )
}


def family(name: str) -> KernelFamily:
    """The family of that name. Raises BadInput: no such family.

    >>> family("gemm").sizes
    ('m', 'n', 'k')
    """
    if name not in FAMILIES:
        raise BadInput(Fault("kernel", f"one of {', '.join(FAMILIES)}", repr(name), did_you_mean(name, FAMILIES)))
    return FAMILIES[name]
