"""Exact time of a pipeline with uneven stages, for many plans at once: a pass starts when its stage is free and its input
there.

    start = max(free[stage], arrival of the input),  end = start + duration,
    arrival at the next chunk = max(end, link free) + transfer

in an order in which everything that a pass waits for comes first. Passes that run in the same step if all take one step do not
wait for each other, so that NumPy takes them at once, for all plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.planning.schedule import Pipeline, rounds

Floats = NDArray[np.float64]

BLOCK_BYTES = 2**25
"""Arrivals kept at once: plans are taken in blocks for which they fit a cache or two."""


@dataclass(frozen=True, slots=True)
class Times:
    """``last_backward`` [chunks, plans]: end of each chunk's backward pass of the last microbatch, when its gradients are
    final; ``time`` [plans]: when all passes, and transfers that hold their sender, are done [s]."""

    last_backward: Floats
    time: Floats


def pipeline_times(
    pipeline: Pipeline,
    forward: Sequence[Number],
    backward: Sequence[Number],
    onward: Sequence[Number] = (),
    back: Sequence[Number] = (),
    holding: bool = False,
) -> Times:
    """Run the schedule with these times, each a number or an array over plans.

    ``forward``, ``backward`` [chunks]: pass of one microbatch through each chunk, in the order of the model [s]. ``onward``,
    ``back`` [chunks - 1]: transfer of an activation to the next chunk, and of a gradient from it [s]; none given: they take no
    time. A link carries one transfer at a time in each direction; with ``holding``, a transfer holds its sender instead.

    >>> times = pipeline_times(Pipeline(2, 5), [2.0, 7.0], [3.0, 11.0])
    >>> times.time.tolist(), times.last_backward.tolist()
    ([95.0], [[95.0], [92.0]])

    Raises BadInput: not one time for each chunk, or each boundary between chunks.
    """
    boundaries = pipeline.last
    _check_lengths(pipeline, {"forward": forward, "backward": backward}, pipeline.last + 1)
    onward, back = onward or [0.0] * boundaries, back or [0.0] * boundaries
    _check_lengths(pipeline, {"onward": onward, "back": back}, boundaries)
    shaped = np.broadcast_arrays(*(np.atleast_1d(np.asarray(time, float)) for time in (*forward, *backward, *onward, *back)))
    table = np.stack(shaped) if shaped else np.zeros((0, 1))
    chunks, rows = pipeline.last + 1, table.shape[1]
    zero = np.zeros((1, rows))
    passes = np.stack((table[:chunks], table[chunks : 2 * chunks]))
    # of a chunk, what leaves it: an activation from all but the last, a gradient from all but the first
    leaving = np.stack((np.vstack((table[2 * chunks : 3 * chunks - 1], zero)), np.vstack((zero, table[3 * chunks - 1 :]))))
    last, time = np.empty((chunks, rows)), np.empty(rows)
    for block in _blocks(pipeline, rows):
        last[:, block], time[block] = _run(pipeline, passes[:, :, block], leaving[:, :, block], holding)
    return Times(last, time)


def _run(pipeline: Pipeline, passes: Floats, leaving: Floats, holding: bool) -> tuple[Floats, Floats]:
    """[chunks, plans] ends of the last backward passes, and [plans] end of all; ``passes``, ``leaving`` [2, chunks, plans]."""
    stages, chunks, plans = pipeline.stages, pipeline.last + 1, passes.shape[2]
    free, link = np.zeros((stages, plans)), np.zeros((2, stages, plans))
    # arrivals [direction, chunk that waits, microbatch]: forward passes of chunk 0 wait for nothing
    arrival = np.zeros((2, chunks + 1, pipeline.microbatches, plans))
    last = np.empty((chunks, plans))
    transfers = bool(leaving.any())
    for stage, direction, chunk, microbatch in rounds(pipeline):
        end = np.maximum(free[stage], arrival[direction, chunk, microbatch]) + passes[direction, chunk]
        free[stage] = end
        final = (direction == 1) & (microbatch == pipeline.microbatches - 1)
        if final.any():
            last[chunk[final]] = end[final]
        there = end
        if transfers and holding:
            there = free[stage] = end + leaving[direction, chunk]
        elif transfers:
            sent = np.where(direction == 1, chunk > 0, chunk < chunks - 1)
            there = np.where(sent[:, None], np.maximum(end, link[direction, stage]) + leaving[direction, chunk], end)
            link[direction, stage] = np.where(sent[:, None], there, link[direction, stage])
        turning = (direction == 0) & (chunk == chunks - 1)
        onto = np.where(turning, chunk, chunk + 1 - 2 * direction)
        arrival[np.where(turning, 1, direction), onto, microbatch] = there
    return last, free.max(axis=0)


def _blocks(pipeline: Pipeline, rows: int) -> Iterator[slice]:
    """Plans in blocks whose arrivals take at most `BLOCK_BYTES`."""
    step = max(1, BLOCK_BYTES // (16 * (pipeline.last + 2) * pipeline.microbatches))
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def _check_lengths(pipeline: Pipeline, given: dict[str, Sequence[Number]], length: int) -> None:
    expected = f"{length} of them, for {pipeline.stages} stages x {pipeline.chunks} chunks"
    faults = [Fault(f"times {name}", expected, str(len(times))) for name, times in given.items() if len(times) != length]
    if faults:
        raise BadInput(faults)
