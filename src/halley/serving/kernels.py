"""Where the times of a step's kernels come from. A step asks three questions only, so that the source can be changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from halley.formulas.numbers import Number
from halley.ir.system import System
from halley.kernels.machine import PEAK, Efficiency, Machine, machine
from halley.kernels.times import Array, Attention, Gemm, Kernel, Stream, kernel_time
from halley.serving.software import Software

NVFP4_SHARE = 9 / 16
"""Bytes of an nvfp4 weight, its scale included, relative to one of fp8."""


class StepKernels(Protocol):
    """Times [s] of kernels that follow each other on one chip, without launches; extents are numbers or arrays."""

    def product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1, dtype: str = "bf16") -> Array:
        """``batch`` products of [rows, depth] by [depth, columns]; ``dtype`` of the weights and the multiplication."""

    def attention(self, kernel: Attention) -> Array:
        """Fused attention."""

    def stream(self, read: Number, written: Number) -> Array:
        """Bytes that are read and written once."""


@dataclass(frozen=True, slots=True)
class LibraryKernels:
    """Kernels by the formulas of `halley.kernels`, as close to the data sheet as the chip was fitted."""

    chip: Machine
    efficiency: Efficiency
    time: Callable[[Kernel, Machine, Efficiency], Array] = kernel_time

    def product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1, dtype: str = "bf16") -> Array:
        if dtype == "nvfp4" and dtype not in self.chip.macs:
            # twice the rate of fp8 and 9/16 of its bytes: about a product of fp8 that is shorter by as much
            depth, dtype = depth * NVFP4_SHARE, "fp8"
        return self.time(Gemm(rows, columns, depth, batch, dtype, "bf16"), self.chip, self.efficiency)

    def attention(self, kernel: Attention) -> Array:
        return self.time(kernel, self.chip, self.efficiency)

    def stream(self, read: Number, written: Number) -> Array:
        return self.time(Stream(read / 2, read, written, {"add": 1.0}), self.chip, self.efficiency)


def serving_machine(system: System) -> Machine:
    """The chip around the nearest memory that holds weights and cache."""
    chip, nearest = machine(system.chip), system.tiers[0]
    return replace(chip, memory=nearest.read_bandwidth)


def library_kernels(system: System, efficiency: Efficiency, software: Software) -> LibraryKernels:
    """The library's kernels in a running server: launches are the software's, shares are reduced to what it reaches."""
    reached = replace(
        efficiency,
        memory=efficiency.memory * software.memory,
        matrix=efficiency.matrix * software.matrix,
        launch=0.0,
    )
    return LibraryKernels(serving_machine(system), reached)


def peak_kernels(system: System) -> LibraryKernels:
    """Kernels at the data sheet's rates."""
    return LibraryKernels(serving_machine(system), PEAK)
