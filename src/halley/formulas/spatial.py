"""A spatial chip: concurrent kernels on compute tiles of its array, tensors that stream between them, sequential partitions.

Symbols throughout: a compute tile has W lanes and H stages and does W H multiply-accumulates per cycle; n [1] sequence tiles that
stream through a partition per sample; D [1] kernels on the longest path of a partition.
"""

from __future__ import annotations

from halley.formulas.numbers import Number, ceil_div, floor_div, maximum, minimum


def peak_rate(units: Number, clock: Number) -> Number:
    """Operations per second of an array; a multiply-accumulate is two.

    .. math:: P = 2 U f

    Symbols: U [1] multiply-accumulate units: lanes x stages x compute tiles, f [1/s] clock. Source: definition.

    >>> peak_rate(32 * 6 * 640, 1.25e9)
    307200000000000.0
    """
    return 2 * units * clock


def matrix_tile_cycles(rows: Number, columns: Number, depth: Number, lanes: Number, stages: Number) -> Number:
    """Cycles of a matrix product on a block of compute tiles.

    .. math:: c = \\lceil M / w \\rceil \\lceil N / h \\rceil K

    Symbols: M, N, K [1] rows, columns and contraction, w, h [1] lanes and stages of all tiles of the block. Does not model:
    filling the array. Source: DFModel (arXiv 2412.16432), published code; after SCALE-Sim's folds.

    >>> matrix_tile_cycles(1536, 33, 100, 768, 30)   # 2 x 2 folds of 100
    400
    """
    return ceil_div(rows, lanes) * ceil_div(columns, stages) * depth


def vector_tile_cycles(rows: Number, columns: Number, lanes: Number) -> Number:
    """Cycles of an elementwise kernel on several compute tiles.

    .. math:: c = \\lceil M / w \\rceil N

    Symbols: M, N [1] rows and columns, w [1] lanes of all tiles. Does not model: functions that take several cycles. Source:
    DFModel (arXiv 2412.16432), published code.

    >>> vector_tile_cycles(12288, 31, 224)
    1705
    """
    return ceil_div(rows, lanes) * columns


def streamed_time(cycles: Number, tiles: Number, clock: Number) -> Number:
    """Time in which a kernel processes the sequence tiles of a sample.

    .. math:: t = c n / f

    Symbols: c [1] cycles per sequence tile, n [1] sequence tiles, f [1/s] clock. Source: definition.

    >>> streamed_time(24576, 64, 2e9)
    0.000786432
    """
    return cycles * tiles / clock


def two_stage_time(first: Number, second: Number, slices: Number) -> Number:
    """Time in which slices of tokens pass two resources one after the other, such as compute tiles and links.

    .. math:: t = \\max(A, B) + \\min(A, B) / k

    Symbols: A, B [s] time of each resource for all slices, k [1] slices. Holds for: equal slices, one on each resource at a time.
    Source: a pipeline of two stages.

    >>> two_stage_time(12.0, 8.0, 1), two_stage_time(12.0, 8.0, 4)
    (20.0, 14.0)
    """
    return maximum(first, second) + minimum(first, second) / slices


def ramp_time(time: Number, tiles: Number, kernels: Number) -> Number:
    """Time to fill and drain a pipeline of kernels that advance in lockstep.

    .. math:: t = (D - 1) \\theta / n

    Symbols: theta [s] time of the slowest kernel for a sample, n [1] sequence tiles, D [1] kernels on the longest path. Paid once
    for all consecutive samples of a partition. Source: a pipeline of D stages takes n + D - 1 steps.

    >>> ramp_time(60.0, 20, 5)
    12.0
    """
    return (kernels - 1) * time / tiles


def buffer_bytes(tile: Number, distance: Number) -> Number:
    """On-chip memory of a tensor that streams from one kernel to another.

    .. math:: M = (d + 1) b

    Symbols: b [B] bytes of a sequence tile, d [1] steps of the pipeline between writer and reader; 1 to or from memory (a double
    buffer). Source: DFModel (arXiv 2412.16432), published code.

    >>> buffer_bytes(512, 4)
    2560
    """
    return (distance + 1) * tile


def resident_samples(capacity: Number, stages: Number, layers: Number, weights: Number, kept: Number) -> Number:
    """Consecutive samples that a partition can process, limited by the memory for tensors between partitions.

    .. math:: m = \\lfloor (C S / L - W) / x \\rfloor

    Symbols: C [B] memory of a chip, S [1] pipeline stages, L [1] layers of all stages, W [B] weights of a layer, x [B] bytes
    per sample that a layer stores in memory. Source: DFModel (arXiv 2412.16432), published code.

    >>> resident_samples(1000, 2, 8, 50, 30)
    6.0
    """
    return floor_div(capacity * stages / layers - weights, kept)


def amortised_time(steady: Number, once: Number, samples: Number) -> Number:
    """Time per sample with a cost that is paid once for several samples.

    .. math:: t = a + b / m

    Symbols: a [s] time of a sample, b [s] time paid once, m [1] consecutive samples. Source: definition.

    >>> amortised_time(7.0, 30.0, 5)
    13.0
    """
    return steady + once / samples


def stage_time(layer: Number, layers: Number, stages: Number) -> Number:
    """Time per sample of a pipeline stage, which is the steady-state time of the pipeline.

    .. math:: t = t_L L / S

    Symbols: t_L [s] time of a layer, L [1] layers, S [1] stages. Holds for: equal layers, distributed evenly. Source: definition.

    >>> stage_time(7.0, 96, 4)
    168.0
    """
    return layer * layers / stages


def utilisation(work: Number, time: Number, peak: Number) -> Number:
    """Utilisation: achieved rate over peak rate.

    .. math:: u = w / (t P)

    Symbols: w [1] operations, t [s] time, P [1/s] peak of all chips. Source: definition.

    >>> utilisation(12.0, 3.0, 8.0)
    0.5
    """
    return work / (time * peak)
