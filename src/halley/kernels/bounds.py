"""Lower bounds of the times of kernels: under any mapping of the search, which planners take before a kernel is searched; and at
the rates of a chip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from halley.formulas.efficiency import causal_keys
from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time, longest
from halley.ir.hardware import Chip
from halley.ir.workload import DTYPE_BYTES, Op, OpKind, work_per_point
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.times import Array, Attention, Gemm, Kernel, RowKernel, Scan, Stream, demand, scan_cycles
from halley.rewrite.backward import backward
from halley.workloads.attention import ATTENTION, attention

RELATIVE_ROUNDING = 1e-12
"""By which a bound may exceed the same number computed in another order."""


def product_bound(kernel: Gemm, chip: Chip, rates: Machine) -> Array:
    """Lower bound of the time [s] of a product under any mapping, of the shape that the extents broadcast to.

    At least the time of its multiply-accumulates on the arrays (`Machine.most_products`), and that of its operands and results in
    the outermost memory. Groups of uneven sizes have whole rows, on average at most one less than given; the matrices of groups
    that may be empty do not count.
    """
    m, n, k, batch = (np.asarray(extent, np.float64) for extent in (kernel.rows, kernel.columns, kernel.depth, kernel.batch))
    filled = np.ones(())
    if kernel.spread:
        filled, m = np.where(np.floor(m * (1 - kernel.spread)) >= 1, 1.0, 0.0), np.maximum(m - 1, 0.0)
    word, written = DTYPE_BYTES[kernel.dtype], DTYPE_BYTES[kernel.result]
    arrays = busy_time(batch * m * n * k, rates.most_products(kernel.dtype, kernel.result))
    return longest_time(
        arrays, memory_time(chip, batch * (m * k * word + filled * k * n * kernel.stored), batch * m * n * written)
    )


def attention_bound(kernel: Attention, chip: Chip, rates: Machine) -> Array:
    """Lower bound of the time [s] of attention, forward or backward, under any mapping of any of its variants, of the shape that
    the extents broadcast to.

    At least the time of its products on the arrays (`Machine.most_products`), that of the elementary functions of its scores on
    the lanes, and that of its tensors in the outermost memory: queries, keys, values and results, or backward queries, keys,
    values, and the gradients of all four. Of a causal mask, only scores that it shows count. The backward pass repeats the
    scores, as the graphs of training do.

    Raises BadInput: the chip lacks the dtype or a function.
    """
    queries, keys, heads, kv_heads = (
        np.asarray(extent, np.float64) for extent in (kernel.queries, kernel.keys, kernel.heads, kernel.kv_heads)
    )
    dim, given = np.asarray(kernel.head_dim, np.float64), np.asarray(kernel.value_dim, np.float64)
    value, batch = np.where(given > 0, given, dim), np.asarray(kernel.batch, np.float64)
    scores = batch * heads * queries * (causal_keys(queries, keys, 1) if kernel.causal else keys)
    widths = 3 * dim + 2 * value if kernel.backward else dim + value
    arrays = busy_time(scores * widths, rates.most_products(kernel.dtype, kernel.dtype))
    functions = busy_time(
        scores * min(rates.lane_cycles(work) for work in _score_work(kernel.causal, kernel.backward)), rates.lanes
    )
    word, rows = DTYPE_BYTES[kernel.dtype], batch * queries * heads
    stored = batch * kv_heads * keys * (dim if kernel.latent else dim + value) * DTYPE_BYTES[kernel.cached]
    if kernel.backward:
        return longest_time(
            arrays, functions, memory_time(chip, stored + rows * (dim + value) * word, stored + rows * dim * word)
        )
    return longest_time(arrays, functions, memory_time(chip, stored + rows * dim * word, rows * value * word))


def kernel_bound(kernel: Kernel, chip: Chip, rates: Machine) -> Array:
    """Lower bound of the time [s] of any kernel under any mapping, of the shape that the extents broadcast to.

    Of products `product_bound`, of attention `attention_bound`; of scans their products on the arrays; of these and of others
    their elementary functions on the lanes and their bytes in the outermost memory, each tensor once.

    Raises BadInput: the chip lacks the dtype or a function.
    """
    match kernel:
        case Gemm():
            return product_bound(kernel, chip, rates)
        case Attention():
            return attention_bound(kernel, chip, rates)
        case Stream():
            lanes = busy_time(np.asarray(kernel.points, np.float64) * rates.lane_cycles(kernel.work), rates.lanes)
            moved = (np.asarray(size, np.float64) for size in (kernel.read, kernel.written))
            return longest_time(np.asarray(lanes), memory_time(chip, *moved))
        case Scan():
            arrays = busy_time(np.asarray(kernel.macs, np.float64), rates.most_products(kernel.dtype, kernel.dtype))
            lanes = busy_time(np.asarray(scan_cycles(kernel, rates), np.float64), rates.lanes)
            moved = (np.asarray(size, np.float64) for size in (kernel.read, kernel.written))
            return longest_time(arrays, lanes, memory_time(chip, *moved))
        case RowKernel():
            elements = np.asarray(kernel.rows, np.float64) * kernel.columns
            lanes = busy_time(elements * sum(rates.lane_cycles(each.work) for each in kernel.passes), rates.lanes)
            size = elements * DTYPE_BYTES[kernel.dtype]
            read, written = (size * min(count, 1) for count in (kernel.passes[0].reads, kernel.passes[-1].writes))
            return longest_time(lanes, memory_time(chip, read, written))


def fastest_memory(chip: Chip, rates: Machine) -> Machine:
    """The chip's rates with a bandwidth that no mapping exceeds, reads and writes together: where they have ports of their own,
    or where several memories are outermost, more than one memory reads."""
    outer = chip.levels[0].memories
    if len(outer) == 1 and outer[0].shared_bus:
        return replace(rates, memory=max(outer[0].read_bandwidth, outer[0].write_bandwidth))
    return replace(rates, memory=sum(memory.read_bandwidth + memory.write_bandwidth for memory in outer))


@lru_cache(maxsize=4)
def _score_work(causal: bool, behind: bool) -> tuple[dict[str, float], ...]:
    """Elementary functions for each score, by variant of attention; ``behind``: of the backward pass, which repeats the maps of
    the forward one."""
    found = []
    for variant in ATTENTION.variants[:1] if behind else ATTENTION.variants:
        work, total = attention(1, 1, 1, 2, 2, 1, causal=causal, variant=variant), dict[str, float]()
        ops: Iterable[Op] = work.ops
        if behind:
            both = backward(work)
            work, ops = both.workload, (*(op for op in work.ops if op.kind is OpKind.MAP), *both.backward)
        for op in ops:
            if op.kind is not OpKind.CONTRACT and {"h", "m", "n"} == set(op.dims):
                for name, count in work_per_point(op, work.dims).items():
                    total[name] = total.get(name, 0.0) + count
        found.append(total)
    return tuple(found)


def memory_time(chip: Chip, read: Array, written: Array) -> Array:
    """Time [s] of bytes that the outermost memory reads and writes, on one bus or on separate ports."""
    outer = chip.levels[0].memories
    reads, writes = (max(getattr(memory, f"{way}_bandwidth") for memory in outer) for way in ("read", "write"))
    both = busy_time(read, reads), busy_time(written, writes)
    if len(outer) == 1 and outer[0].shared_bus:
        return np.asarray(both[0] + both[1])
    return np.asarray(np.maximum(*both) / len(outer))


def longest_time(*times: Number) -> Array:
    """The longest of lower bounds [s], less their rounding."""
    found = times[0]
    for time in times[1:]:
        found = np.maximum(found, time)
    return np.asarray(found * (1 - RELATIVE_ROUNDING))


def rate_time(kernel: Kernel, ranks: Number, chip: Machine, efficiency: Efficiency) -> Number:
    """1/ranks of a kernel at the rates of the chip, without launch and latency [s]."""
    memory, cache = efficiency.memory * chip.memory, efficiency.cache * chip.cache
    macs, traffic = (part / ranks for part in demand(kernel))
    match kernel:
        case Gemm() | Attention():
            products = busy_time(macs, chip.product_rate(kernel.dtype, efficiency))
            return longest((products, busy_time(traffic, memory)))
        case Scan():
            products = busy_time(macs, chip.product_rate(kernel.dtype, efficiency))
            functions = busy_time(scan_cycles(kernel, chip) / ranks, efficiency.vector * chip.lanes)
            return longest((products, functions, busy_time(traffic, memory)))
        case Stream():
            near = busy_time(traffic + kernel.cached / ranks, cache)
            lanes = busy_time(_lane_cycles(kernel, chip) / ranks, efficiency.vector * chip.lanes)
            return longest((busy_time(traffic, memory), near, lanes))
        case _:
            raise ValueError(f"no op is a kernel of kind {type(kernel).__name__}")


def _lane_cycles(kernel: Stream, chip: Machine) -> Number:
    return kernel.points * chip.lane_cycles(kernel.work)
