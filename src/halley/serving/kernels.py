"""Where the times of a step's kernels come from. A step asks three questions only, so that the source can be changed.

The formulas answer all of them. Where the chip has fits of the framework's kernels, attention of sequences that decode has their
times; docs/serving.md says why no other kernel has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from halley.formulas.numbers import Number
from halley.ir.system import System
from halley.kernels.library.decode import DECODE
from halley.kernels.library.times import KernelFits
from halley.kernels.library.times import kernel_time as measured_time
from halley.kernels.machine import Efficiency, Machine, machine
from halley.kernels.times import Array, Attention, Gemm, Kernel, Stream, kernel_time
from halley.serving.model import WEIGHT_ONLY
from halley.serving.software import ServingSoftware

NVFP4_SHARE = 9 / 16
"""Bytes of an nvfp4 weight, its scale included, relative to one of fp8."""
ADDITION = {"add": 1.0}
"""Work at a point of an elementwise kernel."""


class StepKernels(Protocol):
    """Times [s] of kernels that follow each other on one chip, without launches; extents are numbers or arrays."""

    def product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1, dtype: str = "bf16") -> Array:
        """``batch`` products of [rows, depth] by [depth, columns]; ``dtype`` of the weights, in which they are multiplied unless
        it is a format of weights alone (`WEIGHT_ONLY`)."""

    def attention(self, kernel: Attention) -> Array:
        """Fused attention."""

    def stream(self, read: Number, written: Number, points: Number | None = None, work: Mapping[str, float] = ADDITION) -> Array:
        """Bytes that are read and written once; ``work``: elementary functions at each of the ``points``, by default one for each
        two bytes read."""


@dataclass(frozen=True, slots=True)
class LibraryKernels:
    """Kernels by the formulas of `halley.kernels`, as close to the data sheet as the chip was fitted."""

    chip: Machine
    efficiency: Efficiency
    time: Callable[[Kernel, Machine, Efficiency], Array] = kernel_time

    def product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1, dtype: str = "bf16") -> Array:
        if dtype == "nvfp4":
            self.chip.mac_rate(dtype)  # a chip that has it
            # twice the rate of fp8 and 9/16 of its bytes: about a product of fp8 that is shorter by as much
            depth, dtype = depth * NVFP4_SHARE, "fp8"
        weight = WEIGHT_ONLY.get(dtype, 0.0)
        product = Gemm(rows, columns, depth, batch, "bf16" if weight else dtype, "bf16", weight=weight)
        return self.time(product, self.chip, self.efficiency)

    def attention(self, kernel: Attention) -> Array:
        return self.time(kernel, self.chip, self.efficiency)

    def stream(self, read: Number, written: Number, points: Number | None = None, work: Mapping[str, float] = ADDITION) -> Array:
        return self.time(Stream(read / 2 if points is None else points, read, written, work), self.chip, self.efficiency)


@dataclass(frozen=True, slots=True)
class MeasuredDecode:
    """The formulas' kernels, but for attention of sequences that decode: that of the ``framework`` as the fits of the chip have
    it, for ``caches`` of these dtypes.

    The tables time it behind other kernels, with its launch, which counts with the ``gap`` [s] of the software: it is taken off.
    Keys come from memory, as they do between the layers of a model, so that no time is below that of the data sheet.
    """

    formula: LibraryKernels
    fits: KernelFits
    framework: str
    caches: frozenset[str]
    gap: float

    def product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1, dtype: str = "bf16") -> Array:
        return self.formula.product(rows, columns, depth, batch, dtype)

    def attention(self, kernel: Attention) -> Array:
        if kernel.causal or kernel.latent or kernel.cached not in self.caches:
            return self.formula.attention(kernel)
        sizes = {"batch": kernel.batch, "cached": kernel.keys - 1, "heads": kernel.heads}
        sizes |= {"kv_heads": kernel.kv_heads, "head_dim": kernel.head_dim}
        found = measured_time(self.fits, DECODE.name, sizes, kernel.dtype, kernel.cached, self.framework, cold=True)
        return np.maximum(found.time - self.gap, found.bound)

    def stream(self, read: Number, written: Number, points: Number | None = None, work: Mapping[str, float] = ADDITION) -> Array:
        return self.formula.stream(read, written, points, work)


def measured_caches(fits: KernelFits | None, software: ServingSoftware) -> frozenset[str]:
    """Dtypes of the cache for which the fits have the framework's attention of sequences that decode."""
    if fits is None:
        return frozenset()
    strata = (item.stratum for item in fits.fits)
    return frozenset(each.cache for each in strata if each.family == DECODE.name and each.framework == software.kernels)


def serving_machine(system: System) -> Machine:
    """The chip around the nearest memory that holds weights and cache."""
    chip, nearest = machine(system.chip), system.tiers[0]
    return replace(chip, memory=nearest.read_bandwidth)


def library_kernels(
    system: System, efficiency: Efficiency, software: ServingSoftware, fits: KernelFits | None = None
) -> StepKernels:
    """The library's kernels in a running server: launches are the software's, shares are reduced to what it reaches. ``fits`` of
    the chip's measured kernels, where there are some."""
    reached = replace(
        efficiency,
        memory=efficiency.memory * software.memory,
        matrix=efficiency.matrix * software.matrix,
        launch=0.0,
    )
    formula, caches = LibraryKernels(serving_machine(system), reached), measured_caches(fits, software)
    if fits is None or not caches:
        return formula
    return MeasuredDecode(formula, replace(fits, machine=formula.chip), software.kernels, caches, software.gap)
