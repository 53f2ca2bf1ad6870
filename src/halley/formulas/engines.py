"""Cycles of the matrix and vector engines for one tile, and for sums over tiles.

The symbols follow SCALE-Sim: M rows, N columns, K the contraction, R x C the array. Every equation is linear in its arguments, so
these may be sums over tiles; they are numbers or arrays.
"""

from __future__ import annotations

from halley.formulas.numbers import Number


def systolic_cycles(
    folds: Number, streamed: Number, tiles: Number, rows: Number, columns: Number, exposed_load: Number
) -> Number:
    """Cycles of a systolic array that keeps one operand in place and streams the others.

    .. math:: cycles = F (S + T (R + C - 2 + R_{load}))

    Symbols: F [1] folds of the two dims mapped to the array (times batch), S [cycles] points streamed through the array per
    fold, summed over T [1] tiles of the streamed dim, R, C [PEs] rows and columns, R_load [cycles] rows of the stationary operand
    whose loading is not hidden. Holds for: one tile's stream per fold with fill and drain skew. Does not model: stalls of the
    operand buffers (those are the ports' busy time), streams of consecutive folds that overlap. Source: SCALE-Sim 3 (Raj et al.
    2025), stall-free weight-, input- and output-stationary cycles without its constant -1.

    >>> systolic_cycles(6, 100, 2, 32, 16, 8)   # 6 * (100 + 2 * (32 + 16 - 2 + 8))
    1248
    """
    return folds * (streamed + tiles * (rows + columns - 2 + exposed_load))


def vector_cycles(lane_groups: Number, cycles_per_element: Number) -> Number:
    """Cycles of a vector engine.

    .. math:: cycles = G \\sum_f n_f / r_f

    Symbols: G [1] groups of lanes that the points need (last dim rounded up to the lanes, or to those of a warp), n_f elementary
    functions per point, r_f per lane and cycle. Does not model: the pipeline (`pipeline_latency`), tree reductions across lanes.
    Source: docs/model.md.

    >>> vector_cycles(10, 5.0)
    50.0
    """
    return lane_groups * cycles_per_element


def pipeline_latency(tiles: Number, latency: Number) -> Number:
    """Total latency of an engine's pipeline over tiles: the last operation of a tile finishes one latency after its start.

    .. math:: t = n \\lambda

    Symbols: n [1] tiles, lambda [s] latency of the pipeline. Holds for: sequential tiles, each of which waits for all results of
    the tile before. Does not model: independent tiles that overlap in the pipeline, latencies that differ between functions.
    Source: docs/model.md.

    >>> pipeline_latency(6, 4)
    24
    """
    return tiles * latency
