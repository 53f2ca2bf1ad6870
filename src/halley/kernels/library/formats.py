"""Number formats of kernels: bytes of an activation and of a weight, and the rate of the matrix engine."""

from __future__ import annotations

from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.kernels.machine import Machine


@dataclass(frozen=True, slots=True)
class Format:
    """``activation``, ``weight`` [B] of an element, with scales; ``rate``: dtype whose rate the products have; ``multiple`` of
    the bf16 rate where a chip has no rate for that dtype; ``cast``: activations are converted from bf16 by a kernel before."""

    activation: float
    weight: float
    rate: str
    multiple: float
    cast: bool = False


FORMATS: dict[str, Format] = {
    "bf16": Format(2, 2, "bf16", 1),
    "fp16": Format(2, 2, "fp16", 1),
    "fp8": Format(1, 1, "fp8", 2, cast=True),
    "fp8_block": Format(1 + 4 / 128, 1, "fp8", 2, cast=True),
    "nvfp4": Format(0.5625, 0.5625, "fp4", 4, cast=True),
    "fp8_static": Format(1, 1, "fp8", 2),
    "mxfp8": Format(1.03125, 1.03125, "fp8", 2, cast=True),
    "mxfp4": Format(0.53125, 0.53125, "fp4", 4, cast=True),
    "int8": Format(1, 1, "int8", 2),
    "int8_sq": Format(1, 1, "int8", 2, cast=True),
    "int8_wo": Format(2, 1, "bf16", 1),
    "int4_wo": Format(2, 0.5, "bf16", 1),
    "w4afp8": Format(1, 0.53125, "fp8", 2),
    "w4a16_mxfp4": Format(2, 0.53125, "bf16", 1),
    "w4a8_mxfp4_mxfp8": Format(1.03125, 0.53125, "fp8", 2),
}
"""Formats by name. fp8_block: a scale of 4 bytes for 128 activations; nvfp4: a scale of a byte for 16 values; mxfp4 and mxfp8:
one for 32 values; int8_sq: both operands of int8 (SmoothQuant); _wo: weights only; w4afp8: weights of int4;
fp8_static: activations come in fp8."""

OTHER_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float8": "fp8", "fp8_ootb": "fp8", "sq": "int8_sq"}
"""Names that tables use for formats."""


def number_format(name: str) -> Format:
    """The format of that name. Raises BadInput: no such format.

    >>> number_format("nvfp4").weight
    0.5625
    """
    known = OTHER_NAMES.get(name, name)
    if known not in FORMATS:
        remedy = did_you_mean(name, FORMATS)
        raise BadInput(Fault("dtype", f"a number format ({', '.join(FORMATS)})", repr(name), remedy))
    return FORMATS[known]


def core_rate(chip: Machine, name: str) -> float:
    """Multiply-accumulates a second [1/s] of one core in this format, by the data sheet.

    Raises BadInput: no such format, or the chip has no matrix rate for it and none for bf16.
    """
    known = number_format(name)
    rate = chip.macs.get(known.rate)
    return (rate if rate is not None else known.multiple * chip.mac_rate("bf16")) / chip.cores
