"""Kernels at the rates of a chip: lower bounds of their times."""

from __future__ import annotations

from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time, longest
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.times import Attention, Gemm, Kernel, Stream, demand


def rate_time(kernel: Kernel, ranks: Number, chip: Machine, efficiency: Efficiency) -> Number:
    """1/ranks of a kernel at the rates of the chip, without launch and latency [s]."""
    memory, cache = efficiency.memory * chip.memory, efficiency.cache * chip.cache
    macs, traffic = (part / ranks for part in demand(kernel))
    match kernel:
        case Gemm() | Attention():
            products = busy_time(macs, efficiency.matrix * chip.mac_rate(kernel.dtype))
            return longest((products, busy_time(traffic, memory)))
        case Stream():
            near = busy_time(traffic + kernel.cached / ranks, cache)
            lanes = busy_time(_lane_cycles(kernel, chip) / ranks, efficiency.vector * chip.lanes)
            return longest((busy_time(traffic, memory), near, lanes))
        case _:
            raise ValueError(f"no op is a kernel of kind {type(kernel).__name__}")


def _lane_cycles(kernel: Stream, chip: Machine) -> Number:
    return kernel.points * chip.lane_cycles(kernel.work)
