"""The time of one kernel on one chip: GEMM, streams (elementwise), passes over rows (softmax, normalisation), fused attention,
scans by chunks.

A kernel is a set of tiles on cores. Its time is the longer of two: waves of tiles, each fed from the shared cache, and the
traffic of the memory. Libraries choose the fastest tile for a shape; so does the model, among the tiles that libraries provide.
All extents are numbers or arrays that broadcast; times have the shape of the broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.efficiency import (
    causal_keys,
    gathered_bandwidth,
    host_time,
    interleaved_time,
    partial_bytes,
    refetched_bytes,
    refetched_share,
    wave_bytes,
    waves_time,
)
from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time, longest, total, transfer_time
from halley.ir.workload import DTYPE_BYTES, FUNCTIONS, MONOIDS
from halley.kernels.machine import Efficiency, Machine
from halley.optim.distinct import distinct_together

Array: TypeAlias = NDArray[np.float64]

TILE_ROWS, TILE_COLUMNS = (64, 128, 256), (16, 32, 48, 64, 96, 128, 192, 256)
"""Output tiles that libraries are compiled for (shapes of CUTLASS and DeepGEMM); 64 rows are one warp group's instruction."""
LARGEST_TILE_ELEMENTS = 128 * 256
"""Largest tile [elements]: its fp32 accumulators take half of a core's 256 KiB of registers, operand fragments the rest."""
CONTRACTION_SPLITS = (1, 2, 4, 8)
"""Parts into which libraries split the contraction when there are few tiles (split-K)."""
SWIZZLE_TILE_ROWS = 8
"""Rows of tiles that a library processes together, so that a wave shares operands (the swizzle of CUTLASS and DeepGEMM)."""
ACCUMULATOR_BYTES = 4
"""Partial results are fp32."""
ATTENTION_ROWS, KEY_SPLITS = (16, 64, 128), (1, 2, 4, 8, 16, 32, 64)
"""Query rows of an attention tile (one warp's instruction, one or two warp groups), and parts of the keys (FlashDecoding)."""
KEYS_PER_BLOCK = 128
"""Keys that an attention tile processes together."""
MAX_REGISTER_COLUMNS = 1024
"""Longest row that a warp keeps in registers between passes: 32 elements per thread (PyTorch's persistent softmax)."""
POINTS_PER_CORE = 1024
"""Points of a stream that one core processes at a time: eight warps of four elements per thread."""
SHAPES_PER_BLOCK = 256
"""Shapes that are evaluated together."""
ROW_QUANTILES = (np.arange(16) + 0.5) / 16
"""Quantiles at which an uneven distribution of rows over groups is evaluated."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """``batch`` products of [rows, depth] by [depth, columns].

    ``result``: dtype of the output. ``spread``: rows of a group are uniformly distributed within this share around ``rows``
    (experts with more and fewer tokens; whole tokens, so some groups have none). ``weight`` [B]: an element of the second operand
    in memory and cache, where it is stored in fewer bytes than ``dtype`` and converted on the core; 0: as ``dtype``.
    """

    rows: Number
    columns: Number
    depth: Number
    batch: Number = 1
    dtype: str = "bf16"
    result: str = "bf16"
    spread: float = 0.0
    weight: float = 0.0

    @property
    def stored(self) -> float:
        """Bytes of an element of the second operand."""
        return self.weight or DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class RowPass:
    """One pass over a row: elementary functions per element, tensors that it reads and writes."""

    work: Mapping[str, float]
    reads: int = 1
    writes: int = 0


@dataclass(frozen=True, slots=True)
class RowKernel:
    """Passes over rows, one after the other. ``resident``: rows that a core processes concurrently: its threads over those of a
    row."""

    rows: Number
    columns: Number
    passes: tuple[RowPass, ...]
    dtype: str = "bf16"
    resident: int = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """Tensors that are streamed once: ``points`` with elementary functions at each; ``read`` and ``written`` [B] in memory;
    ``cached`` [B] read from the shared cache instead."""

    points: Number
    read: Number
    written: Number
    work: Mapping[str, float]
    cached: Number = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Fused attention: softmax(Q K^T) V per head, scores on chip (FlashAttention; FlashDecoding where queries are few).

    ``heads`` query heads share ``kv_heads`` heads of keys and values. ``head_dim`` of queries and keys, ``value_dim`` of values
    (as head_dim if 0). ``latent``: values are part of the keys' bytes (MLA). ``backward``: the pass for the gradients instead.
    """

    batch: Number
    queries: Number
    keys: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    value_dim: Number = 0
    causal: bool = False
    latent: bool = False
    backward: bool = False
    dtype: str = "bf16"
    cached: str = "bf16"


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan by chunks, with the products inside chunks, as one kernel (the SSD of Mamba-2).

    ``heads``: recurrences of all sequences, each over ``chunks``. Of all of them together: ``macs``, elementary functions
    (``work``), and bytes ``read`` from and ``written`` to memory. ``state`` [B]: of one chunk in fp32; ``kept`` [B]: states of
    all chunks that the backward pass writes on its way forward, and reads on its way back. ``backward``: the pass for the
    gradients, which repeats the forward one.
    """

    heads: Number
    chunks: Number
    macs: Number
    work: Mapping[str, Number]
    read: Number
    written: Number
    state: Number
    kept: Number = 0
    backward: bool = False
    dtype: str = "bf16"


Kernel: TypeAlias = Gemm | Stream | RowKernel | Attention | Scan


def softmax(rows: Number, columns: Number, dtype: str = "bf16") -> RowKernel:
    """Maximum, sum of exponentials, quotient; 1,024 threads per row."""
    seek = RowPass(MONOIDS["max"].work)
    add = RowPass(_sum(FUNCTIONS["exp_difference"].work, MONOIDS["sum"].work))
    return RowKernel(rows, columns, (seek, add, RowPass(FUNCTIONS["softmax_from_stats"].work, 1, 1)), dtype, resident=2)


def layer_norm(rows: Number, columns: Number, dtype: str = "bf16") -> RowKernel:
    """Mean and variance in one pass, then normalise, scale and shift; 128 threads per row."""
    scale = RowPass(FUNCTIONS["normalise_affine"].work, 1, 1)
    return RowKernel(rows, columns, (RowPass(MONOIDS["welford"].work), scale), dtype, resident=16)


def rms_norm(rows: Number, columns: Number, dtype: str = "bf16") -> RowKernel:
    """Mean of squares, then normalise and scale; 128 threads per row."""
    squares = RowPass(_sum(FUNCTIONS["square"].work, MONOIDS["mean"].work))
    return RowKernel(rows, columns, (squares, RowPass(FUNCTIONS["normalise_gain"].work, 1, 1)), dtype, resident=16)


def elementwise(elements: Number, function: str = "identity", dtype: str = "bf16") -> Stream:
    """One function at every element. Raises BadInput: no function of that name.

    >>> elementwise(4096, "gelu").read
    8192
    """
    if function not in FUNCTIONS:
        raise BadInput(Fault("kernel", "an elementwise function", repr(function), did_you_mean(function, FUNCTIONS)))
    known, moved = FUNCTIONS[function], elements * DTYPE_BYTES[dtype]
    return Stream(elements, known.arity * moved, moved, known.work)


def kernel_time(kernel: Kernel, chip: Machine, efficiency: Efficiency) -> Array:
    """Time [s] of the kernel on the chip, with its launch; of the shape that the extents broadcast to.

    Whatever shares were fitted, no product is faster than the arrays allow (`Machine.most_products`).

    Raises BadInput: the chip lacks the dtype or a function.
    """
    match kernel:
        case Gemm():
            found = np.maximum(_gemm_time(kernel, chip, efficiency), _array_time(kernel, chip, kernel.result))
            return np.asarray(found + efficiency.launch)
        case Stream():
            return _stream_time(kernel, chip, efficiency) + efficiency.launch
        case RowKernel():
            return _rows_time(kernel, chip, efficiency) + efficiency.launch
        case Attention():
            found = np.maximum(_attention_time(kernel, chip, efficiency), _array_time(kernel, chip, kernel.dtype))
            return np.asarray(found + efficiency.launch)
        case Scan():
            found = np.maximum(_scan_time(kernel, chip, efficiency), _array_time(kernel, chip, kernel.dtype))
            return np.asarray(found + efficiency.launch)


def call_time(operator: str, kernel: Kernel, chip: Machine, efficiency: Efficiency) -> Array:
    """Time [s] of the kernel as measured: with the host's time if the host timed that operator."""
    time = kernel_time(kernel, chip, efficiency)
    host = efficiency.hosts.get(operator)
    return time if host is None else np.asarray(host_time(host.call, host.hidden, time))


def demand(kernel: Kernel) -> tuple[Array, Array]:
    """Multiply-accumulates, and the least bytes of memory traffic: the inputs of a roofline."""
    match kernel:
        case Gemm():
            word, written = DTYPE_BYTES[kernel.dtype], DTYPE_BYTES[kernel.result]
            m, n, k, batch = (_array(extent) for extent in (kernel.rows, kernel.columns, kernel.depth, kernel.batch))
            return batch * m * n * k, batch * (m * k * word + k * n * kernel.stored) + batch * m * n * written
        case Stream():
            return 0 * _array(kernel.points), _array(kernel.read) + _array(kernel.written)
        case RowKernel():
            elements = _array(kernel.rows) * _array(kernel.columns)
            tensors = kernel.passes[0].reads + kernel.passes[-1].writes
            return 0 * elements, elements * tensors * DTYPE_BYTES[kernel.dtype]
        case Attention():
            return _attention_demand(kernel)
        case Scan():
            return _array(kernel.macs), _array(kernel.read) + _array(kernel.written)


def _array_time(kernel: Gemm | Attention | Scan, chip: Machine, result: str) -> Array:
    """Least time [s] of the products on the arrays. The sizes of uneven groups are whole: on average at most one row less."""
    if isinstance(kernel, Gemm) and kernel.spread:
        kernel = replace(kernel, rows=np.maximum(_array(kernel.rows) - 1, 0))
    return np.asarray(busy_time(demand(kernel)[0], chip.most_products(kernel.dtype, result)))


def lane_work(kernel: Kernel) -> dict[str, Array]:
    """Elementary functions on the lanes, by name.

    >>> {name: float(count) for name, count in lane_work(elementwise(100, "add")).items()}
    {'add': 100.0}
    """
    match kernel:
        case Gemm():
            return {}
        case Stream():
            return {name: _array(kernel.points) * count for name, count in kernel.work.items()}
        case RowKernel():
            elements = _array(kernel.rows) * _array(kernel.columns)
            return {name: elements * count for name, count in _sum(*(item.work for item in kernel.passes)).items()}
        case Attention():
            queries, keys = _array(kernel.queries), _array(kernel.keys)
            seen = causal_keys(queries, keys, 1) if kernel.causal else keys
            scores = np.asarray(kernel.batch * kernel.heads * queries * seen)
            return {name: scores * count for name, count in (_GRADIENT_WORK if kernel.backward else _SCORE_WORK).items()}
        case Scan():
            return {name: _array(count) for name, count in kernel.work.items()}


# --- GEMM ---------------------------------------------------------------------------------------------------------------


def _cuts(parts: Sequence[int]) -> tuple[Array, Array, Array]:
    """(rows, columns, parts) of every tiling of a GEMM with these splits of the contraction."""
    shapes = [(rows, columns) for rows in TILE_ROWS for columns in TILE_COLUMNS if rows * columns <= LARGEST_TILE_ELEMENTS]
    table = np.array([(*shape, number) for shape in shapes for number in parts], dtype=np.float64)
    return table[:, 0], table[:, 1], table[:, 2]


_WHOLE, _CUT = _cuts(CONTRACTION_SPLITS[:1]), _cuts(CONTRACTION_SPLITS[1:])


def _gemm_time(kernel: Gemm, chip: Machine, share: Efficiency) -> Array:
    """The fastest tile's time. The contraction is split only where there are fewer tiles of 128 x 128 than cores, as libraries
    do."""

    def cut(extents: Array) -> Array:
        rows, columns, _, batch = extents
        found = _cut_time(extents, _WHOLE, kernel, chip, share)
        few = batch * np.ceil(rows / 128) * np.ceil(columns / 128) < chip.cores
        if few.any():
            found[few] = np.minimum(found[few], _cut_time(extents[:, few], _CUT, kernel, chip, share))
        return found

    return _in_blocks(cut, (kernel.rows, kernel.columns, kernel.depth, kernel.batch))


def _cut_time(extents: Array, cuts: tuple[Array, Array, Array], kernel: Gemm, chip: Machine, share: Efficiency) -> Array:
    """Least time over the tilings; ``extents`` [4, shapes] in the order of `_gemm_time`."""
    m, n, k, batch = extents[:, :, None]
    tile_rows, tile_columns, parts = cuts
    word, written = DTYPE_BYTES[kernel.dtype], DTYPE_BYTES[kernel.result]
    row_tiles, filled = _row_tiles(m, tile_rows, kernel.spread)
    column_tiles = np.ceil(n / tile_columns)
    tiles, depth = batch * row_tiles * column_tiles * parts, np.ceil(k / parts)
    row_bytes, column_bytes = np.minimum(tile_rows, m) * depth * word, np.minimum(tile_columns, n) * depth * kernel.stored
    active = np.minimum(tiles, chip.cores)
    cache = gathered_bandwidth(active, chip.port, share.cache * chip.cache)
    rate = np.where(tile_rows * tile_columns < LARGEST_TILE_ELEMENTS, share.smaller, 1.0) * chip.product_rate(kernel.dtype, share)
    products = busy_time(tile_rows * tile_columns * depth * chip.cores, rate)
    feed = busy_time(active * (row_bytes + column_bytes), cache)
    results = batch * m * n * written
    on_cores = waves_time(tiles, chip.cores, transfer_time(share.latency, products, feed))
    operands = batch * (m * k * word + filled * k * n * kernel.stored)
    # groups without rows have no tiles, the others at least one
    wave = wave_bytes(active, SWIZZLE_TILE_ROWS, np.maximum(row_tiles, 1.0), column_tiles, row_bytes, column_bytes)
    streamed = tiles / active * wave
    lost = refetched_share(operands, max(chip.capacity, 1.0))
    traffic = refetched_bytes(operands, streamed, lost) + results
    memory = transfer_time(share.latency, busy_time(traffic, gathered_bandwidth(active, chip.port, share.memory * chip.memory)))
    combine = busy_time(partial_bytes(parts, batch * m * n * ACCUMULATOR_BYTES), share.cache * chip.cache)
    synchronise = np.where(parts > 1, share.latency, 0.0)
    return _least(total((longest((on_cores, memory)), combine, synchronise)))


def _row_tiles(rows: Array, tile: Array, spread: float) -> tuple[Array, Array | float]:
    """Row tiles per group, and the share of groups with rows; means over the groups."""
    if not spread:
        return np.ceil(rows / tile), 1.0
    drawn = np.floor(rows[..., None] * (1 + spread * (2 * ROW_QUANTILES - 1)))
    return np.ceil(drawn / tile[:, None]).mean(axis=-1), (drawn > 0).mean(axis=-1)


# --- streams, and passes over rows --------------------------------------------------------------------------------------


def _stream_time(kernel: Stream, chip: Machine, share: Efficiency) -> Array:
    """Streams in units of `POINTS_PER_CORE`, so few points use few cores."""
    points, read, written = (_array(extent) for extent in (kernel.points, kernel.read, kernel.written))
    active = np.minimum(np.ceil(points / POINTS_PER_CORE), chip.cores)
    moved = read + written
    return _pass_time(points * chip.lane_cycles(kernel.work), moved, moved + _array(kernel.cached), active, chip, share)


def _rows_time(kernel: RowKernel, chip: Machine, share: Efficiency) -> Array:
    """Passes one after the other, or merged into one where a row stays in registers."""
    rows, columns = np.broadcast_arrays(_array(kernel.rows), _array(kernel.columns))
    size, active = rows * columns * DTYPE_BYTES[kernel.dtype], np.minimum(rows, chip.cores)
    in_flight = np.minimum(rows, chip.cores * kernel.resident) * columns * DTYPE_BYTES[kernel.dtype]
    missed = refetched_share(in_flight, max(chip.capacity, 1.0))

    def walk(item: RowPass, found: Number) -> Array:
        """One pass that reads the share ``found`` from memory, the rest from the cache."""
        traffic = size * (item.reads * found + item.writes)
        cycles = rows * columns * chip.lane_cycles(item.work)
        return _pass_time(cycles, traffic, size * (item.reads + item.writes), active, chip, share)

    whole = RowPass(_sum(*(item.work for item in kernel.passes)), kernel.passes[0].reads, kernel.passes[-1].writes)
    each = total(walk(item, missed if index else 1.0) for index, item in enumerate(kernel.passes))
    return np.where(columns <= MAX_REGISTER_COLUMNS, walk(whole, 1.0), each)


def _pass_time(cycles: Array, traffic: Array, cached: Array, active: Array, chip: Machine, share: Efficiency) -> Array:
    """The slowest of memory, cache and lanes, with ``active`` cores; ``cycles`` of one lane, bytes of both."""
    memory = busy_time(traffic, gathered_bandwidth(active, chip.port, share.memory * chip.memory))
    cache = busy_time(cached, gathered_bandwidth(active, chip.port, share.cache * chip.cache))
    vector = busy_time(cycles, share.vector * chip.lanes * active / chip.cores)
    return np.asarray(transfer_time(share.latency, memory, cache, vector))


# --- fused attention ----------------------------------------------------------------------------------------------------


def _attention_time(kernel: Attention, chip: Machine, share: Efficiency) -> Array:
    """The fastest tile's time; queries of the heads that share keys are in one tile."""
    extents = (kernel.batch, kernel.queries, kernel.keys, kernel.heads, kernel.kv_heads, kernel.head_dim, kernel.value_dim)
    return _in_blocks(lambda block: _heads_time(block, kernel, chip, share), extents)


_ATTENTION_CUTS = np.array([(rows, parts) for rows in ATTENTION_ROWS for parts in KEY_SPLITS], dtype=np.float64).T


def _heads_time(extents: Array, kernel: Attention, chip: Machine, share: Efficiency) -> Array:
    """Least time over the tilings; ``extents`` [7, shapes] in the order of `_attention_time`."""
    batch, queries, keys, heads, kv_heads, dim, given = extents[:, :, None]
    tile_rows, parts = _ATTENTION_CUTS
    value, group = np.where(given > 0, given, dim), heads / kv_heads
    tiles = batch * kv_heads * np.ceil(queries * group / tile_rows) * parts
    # keys are processed in whole blocks, so half a block beyond the mask is wasted on average
    masked = np.minimum(keys, causal_keys(queries, keys, tile_rows / group) + KEYS_PER_BLOCK / 2)
    seen = (masked if kernel.causal else keys) / parts
    # the gradients recompute the scores, and need one product each for dP, dV, dQ and dK
    widths, reached = (3 * dim + 2 * value, share.gradient) if kernel.backward else (dim + value, 1.0)
    products = busy_time(tile_rows * seen * widths * chip.cores, reached * chip.product_rate(kernel.dtype, share))
    work = chip.lane_cycles(_GRADIENT_WORK if kernel.backward else _SCORE_WORK)
    vector = busy_time(tile_rows * seen * work * chip.cores, reached * share.vector * chip.lanes)
    stored = (dim if kernel.latent else dim + value) * DTYPE_BYTES[kernel.cached]
    active = np.minimum(tiles, chip.cores)
    feed = busy_time(active * seen * stored, gathered_bandwidth(active, chip.port, share.cache * chip.cache))
    tile = transfer_time(share.latency, interleaved_time(products, vector, share.overlap), feed)
    memory = share.memory * chip.memory
    word, twice = DTYPE_BYTES[kernel.dtype], 2 if kernel.backward else 1
    traffic = twice * (batch * kv_heads * keys * stored + batch * queries * heads * (dim + value) * word)
    stream = transfer_time(share.latency, busy_time(traffic, gathered_bandwidth(active, chip.port, memory)))
    combine = busy_time(partial_bytes(parts, batch * queries * heads * value * ACCUMULATOR_BYTES), share.cache * chip.cache)
    synchronise = np.where(parts > 1, share.latency + share.launch, 0.0)
    if kernel.backward:  # separate kernels: row sums of O dO; clearing of dQ in fp32 before, and its rounding after
        around = 2 * value * word + dim * (2 * ACCUMULATOR_BYTES + word)
        synchronise = synchronise + 2 * share.launch + busy_time(batch * queries * heads * around, memory)
    on_cores = waves_time(tiles, chip.cores, tile)
    return _least(total((longest((on_cores, stream)), combine, synchronise)))


def _attention_demand(kernel: Attention) -> tuple[Array, Array]:
    dim = _array(kernel.head_dim)
    value = np.where(_array(kernel.value_dim) > 0, _array(kernel.value_dim), dim)
    queries, keys = _array(kernel.queries), _array(kernel.keys)
    seen = causal_keys(queries, keys, 1) if kernel.causal else keys
    widths = 3 * dim + 2 * value if kernel.backward else dim + value
    stored = (dim if kernel.latent else dim + value) * DTYPE_BYTES[kernel.cached]
    cached = kernel.kv_heads * keys * stored
    rows = queries * kernel.heads * (dim + value) * DTYPE_BYTES[kernel.dtype]
    macs = kernel.batch * kernel.heads * queries * seen * widths
    return np.asarray(macs), np.asarray(kernel.batch * (cached + rows) * (2 if kernel.backward else 1))


# --- scans by chunks ----------------------------------------------------------------------------------------------------


def scan_cycles(kernel: Scan, chip: Machine) -> Number:
    """Lane cycles of all elementary functions. Raises BadInput: the chip lacks one."""
    return sum((count * chip.lane_cycles({name: 1.0}) for name, count in kernel.work.items()), 0.0)


def _scan_time(kernel: Scan, chip: Machine, share: Efficiency) -> Array:
    """The fastest tile's time. A tile walks the chunks of a head, or a part of them, in order, with its state on the core; parts
    hand on their states through the cache. Products and functions of a chunk interleave as those of attention do."""
    traffic = _array(kernel.read) + _array(kernel.written) + 2 * _array(kernel.kept)
    extents = (kernel.heads, kernel.chunks, kernel.macs, scan_cycles(kernel, chip), traffic, kernel.state)
    return _in_blocks(lambda block: _chunks_time(block, kernel, chip, share), extents)


_SCAN_CUTS = np.array(KEY_SPLITS, dtype=np.float64)


def _chunks_time(extents: Array, kernel: Scan, chip: Machine, share: Efficiency) -> Array:
    """Least time over the tilings; ``extents`` [6, shapes] in the order of `_scan_time`."""
    heads, chunks, macs, cycles, traffic, state = extents[:, :, None]
    parts = np.minimum(_SCAN_CUTS, chunks)
    tiles, walked = heads * parts, np.ceil(chunks / parts) / (heads * chunks)  # walked: a tile's share of all work
    active, reached = np.minimum(tiles, chip.cores), share.gradient if kernel.backward else 1.0
    products = busy_time(macs * walked * chip.cores, reached * chip.product_rate(kernel.dtype, share))
    vector = busy_time(cycles * walked * chip.cores, reached * share.vector * chip.lanes)
    feed = busy_time(active * traffic * walked, gathered_bandwidth(active, chip.port, share.cache * chip.cache))
    tile = transfer_time(share.latency, interleaved_time(products, vector, share.overlap), feed)
    memory = share.memory * chip.memory
    stream = transfer_time(share.latency, busy_time(traffic, gathered_bandwidth(active, chip.port, memory)))
    combine = busy_time(partial_bytes(parts, state), share.cache * chip.cache)
    synchronise = np.where(parts > 1, share.latency + share.launch, 0.0)
    return _least(total((longest((waves_time(tiles, chip.cores, tile), stream)), combine, synchronise)))


def _in_blocks(function: Callable[[Array], Array], extents: Sequence[Number]) -> Array:
    """Evaluates ``function`` of [extents, shapes] in blocks that fit the host's cache, each distinct shape once; the result has
    the broadcast shape."""
    given = [_array(extent) for extent in extents]
    if math.prod(np.broadcast_shapes(*(extent.shape for extent in given))) > SHAPES_PER_BLOCK:
        kinds, which = distinct_together(given)
        return _each_block(function, np.stack(kinds))[which]
    spread = np.broadcast_arrays(*given)
    return _each_block(function, np.stack([extent.ravel() for extent in spread])).reshape(spread[0].shape)


def _each_block(function: Callable[[Array], Array], flat: Array) -> Array:
    blocks = [function(flat[:, start : start + SHAPES_PER_BLOCK]) for start in range(0, flat.shape[1], SHAPES_PER_BLOCK)]
    return np.concatenate(blocks or [np.zeros(0)])


def _least(times: Number) -> Array:
    """The least over the tilings, the last axis."""
    return np.asarray(np.min(times, axis=-1))


def _array(extent: Number) -> Array:
    return np.asarray(extent, dtype=np.float64)


def _sum(*works: Mapping[str, float]) -> dict[str, float]:
    """Elementary functions of several steps together."""
    names = dict.fromkeys(name for work in works for name in work)
    return {name: math.fsum(work.get(name, 0.0) for work in works) for name in names}


_SCORE_WORK = _sum(MONOIDS["max"].work, FUNCTIONS["exp_difference"].work, MONOIDS["sum"].work)
"""Per score, with its scale folded into the exponential's argument: running maximum, exponential, sum."""
_GRADIENT_WORK = _sum(FUNCTIONS["exp_difference"].work, FUNCTIONS["subtract"].work, FUNCTIONS["mul"].work)
"""Per score: the weight again, and dS = P (dP - D)."""
