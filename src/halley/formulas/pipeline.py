"""Pipelines of stages in training: time, bubble, activations in flight, and bounds.

Symbols throughout: S [1] stages; v [1] chunks of layers per stage (1 but where schedules interleave); m [1] microbatches of an
iteration; f, b [s] forward and backward pass of one chunk for one microbatch; p [s] transfer of one activation, or of its
gradient, to the next chunk. Chunk c of stage s is number u = c S + s in the order of the model. A transfer is *overlapped*: it
occupies its own link and direction, and no stage. A transfer that blocks its sender is part of f or b instead. The exact time of
an uneven pipeline is a recurrence: `halley.pipeline.recurrence`.
"""

from __future__ import annotations

from halley.formulas.numbers import Number, minimum, positive


def warmup_passes(stages: Number, chunks: Number, stage: Number) -> Number:
    """Warm-up of a 1F1B schedule: forward passes of a stage before it alternates forward and backward passes.

    .. math:: w = (S - 1 - s)(1 + [v > 1]) + (v - 1) S

    Symbols: S [1] stages, v [1] chunks, s [1] the stage, from 0. The caller limits the result to m v. Source: Narayanan et al.,
    SC 2021 (arXiv 2104.04473), section 2.2, and the interleaved schedule of Megatron-LM.

    >>> warmup_passes(8, 1, 2), warmup_passes(8, 3, 2)
    (5, 26)
    """
    return (stages - 1 - stage) * (1 + positive(chunks - 1)) + (chunks - 1) * stages


def passes_in_flight(warmup: Number, chunks: Number, microbatches: Number) -> Number:
    """Largest number of chunk activations that a stage stores at once: those of the warm-up and of the current pass.

    .. math:: a = \\min(m v, w + 1)

    Symbols: w [1] warm-up passes (m v for GPipe), v [1] chunks, m [1] microbatches. Holds for: activations stored from the start
    of the forward pass to the end of the backward pass. Source: Narayanan et al., SC 2021, section 2.2.

    >>> passes_in_flight(5, 1, 64), passes_in_flight(5, 1, 4)
    (6, 4)
    """
    return minimum(microbatches * chunks, warmup + 1)


def even_pipeline_time(stages: Number, chunks: Number, microbatches: Number, forward: Number, backward: Number) -> Number:
    """Pipeline of equal stages, without transfers: 1F1B, GPipe (one chunk), or interleaved 1F1B.

    .. math:: T = (m v + S - 1)(f + b)

    Symbols: S, v, m [1]; f, b [s] passes of one chunk. Holds for: m a multiple of S where v > 1. Source: Narayanan et al., SC
    2021, sections 2.2.1 and 2.2.2.

    >>> even_pipeline_time(4, 3, 8, 2, 5)
    189
    """
    return (microbatches * chunks + stages - 1) * (forward + backward)


def flow_shop_time(work: Number, slowest: Number, jobs: Number) -> Number:
    """Equal jobs on machines in series, all in the same order.

    .. math:: T = W + (n - 1) w

    Symbols: W [s] one job on all machines, w [s] on the slowest of them; n [1] jobs. Source: permutation flow shop of identical
    jobs; Conway, Maxwell and Miller, Theory of Scheduling, 1967.

    >>> flow_shop_time(10, 7, 5)
    38
    """
    return work + (jobs - 1) * slowest
