"""Losses of a kernel against its chip's peaks: wave quantisation, shared bandwidth, cache misses, launches.

A kernel runs as tiles, one per core; if there are more tiles than cores they run in waves. `halley.kernels.times` combines the
terms below. Symbols throughout: P [1] cores; T [1] tiles; lambda [s] latency.
"""

from __future__ import annotations

from halley.formulas.numbers import Number, ceil_div, maximum, minimum, positive


def waves_time(tiles: Number, cores: Number, tile_time: Number) -> Number:
    """Time of equal tiles on equal cores: the last wave takes as long as a full one.

    .. math:: t = \\lceil T / P \\rceil t_T

    Symbols: T [1] tiles, P [1] cores, t_T [s] time of one tile. Holds for: tiles that take equally long, one per core at a time.
    Does not model: tiles of the last wave that run faster because fewer of them share bandwidth. Source: list scheduling of equal
    jobs; NVIDIA, Matrix Multiplication Background User's Guide, "wave quantization".

    >>> waves_time(256, 108, 2.0)
    6.0
    """
    return ceil_div(tiles, cores) * tile_time


def gathered_bandwidth(active: Number, port: Number, shared: Number) -> Number:
    """Bandwidth that cores draw together from a memory that they share.

    .. math:: B = \\min(n b, B_S)

    Symbols: n [1] active cores, b [B/s] port of a core, B_S [B/s] bandwidth of the shared memory. Source:
    definition of a bottleneck.

    >>> gathered_bandwidth(8, 90, 5000), gathered_bandwidth(108, 90, 5000)
    (720, 5000)
    """
    return minimum(active * port, shared)


def wave_bytes(
    active: Number,
    band: Number,
    row_tiles: Number,
    column_tiles: Number,
    row_bytes: Number,
    column_bytes: Number,
) -> Number:
    """Bytes of both operands that one wave of a GEMM's tiles reads, each byte once.

    .. math:: D = \\frac{n}{g h} (g a + h b), \\quad g = \\min(G, T_M), \\quad h = \\min(\\lceil n / g \\rceil, T_N)

    Symbols: n [1] active tiles, processed in bands of G [1] rows of tiles, T_M, T_N [1] tiles along rows and columns, a, b [B]
    operand bytes of one row and of one column of tiles over the whole contraction. Holds for: a shared cache that serves all
    cores of a wave from one fetch. Source: threadblock swizzle; Kerr et al., CUTLASS: Fast Linear Algebra in CUDA C++, 2017.

    >>> wave_bytes(100, 8, 40, 30, 16, 64)   # 8 x 13 tiles
    923.0769230769231
    """
    high = minimum(band, row_tiles)
    wide = minimum(ceil_div(active, high), column_tiles)
    return active / (high * wide) * (high * row_bytes + wide * column_bytes)


def refetched_share(working_set: Number, capacity: Number) -> Number:
    """Miss rate of a cache for a working set that is read cyclically.

    .. math:: s = \\min(1, \\max(0, W / C - 1))

    Symbols: W [B] working set, C [B] capacity. Holds for: cyclic reads through a cache with least-recently-used replacement: only
    hits up to C, only misses from 2 C on, and a straight line between, as real caches deviate from this policy. Source: Denning,
    The working set model for program behavior, CACM 11, 1968, for the limits.

    >>> refetched_share(50, 40), refetched_share(30, 45), refetched_share(95, 41)
    (0.25, 0, 1)
    """
    return minimum(1, maximum(0, working_set / capacity - 1))


def refetched_bytes(compulsory: Number, streamed: Number, share: Number) -> Number:
    """Bytes read from memory: between the compulsory bytes and all bytes that are requested from the cache.

    .. math:: D = D_0 + s \\max(0, D_1 - D_0)

    Symbols: D_0 [B] each byte once, D_1 [B] each byte as often as it is requested, s [1] miss rate (`refetched_share`). Source:
    definition.

    >>> refetched_bytes(40, 100, 0.5)
    70.0
    """
    return compulsory + share * maximum(0 * compulsory, streamed - compulsory)


def partial_bytes(parts: Number, results: Number) -> Number:
    """Bytes of partial results that split-K writes and reads again to add them up.

    .. math:: D = 2 s R \\quad (s > 1)

    Symbols: s [1] parts of the contraction, R [B] results in the accumulator's type. Source: split-K; Kerr et al., CUTLASS, 2017.

    >>> partial_bytes(4, 10), partial_bytes(1, 11)
    (80, 0)
    """
    return 2 * parts * results * positive(parts - 1)


def interleaved_time(first: Number, second: Number, overlap: Number) -> Number:
    """Time of two engines that process the same tiles, partly overlapped.

    .. math:: t = \\max(a, b) + (1 - o) \\min(a, b)

    Symbols: a, b [s] time of each engine alone, o [1] overlap, from 0 (sequential) to 1 (concurrent). Source: definition.

    >>> interleaved_time(6.0, 4.0, 0.25)
    9.0
    """
    return maximum(first, second) + (1 - overlap) * minimum(first, second)


def causal_keys(queries: Number, keys: Number, tile: Number) -> Number:
    """Keys that a tile of queries processes on average under a causal mask.

    .. math:: k = K - \\frac{Q - \\min(Q, t)}{2}

    Symbols: Q [1] queries, which are the last of K [1] positions, t [1] queries of a tile, which all process the keys of the last
    of them. Source: mean over the tiles.

    >>> causal_keys(1024, 4096, 128), causal_keys(1, 4095, 64)
    (3648.0, 4095.0)
    """
    return keys - (queries - minimum(queries, tile)) / 2


def host_time(call: Number, hidden: Number, kernel: Number) -> Number:
    """Time of one synchronous kernel call, measured on the host.

    .. math:: t = c + \\max(h, k)

    Symbols: c [s] time of the call before the kernel starts and after it ends, h [s] host work that overlaps the kernel, k [s]
    kernel. Source: definition of a synchronous call.

    >>> host_time(38.5, 9.0, 4.0), host_time(38.0, 9.5, 20.0)
    (47.5, 58.0)
    """
    return call + maximum(hidden, kernel)
