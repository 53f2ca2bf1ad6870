"""Exact time of a pipeline with uneven stages, for many plans at once: a pass starts when its stage is free and its input
there.

    start = max(free[stage], arrival of the input),  end = start + duration,
    arrival at the next chunk = max(end, link free) + transfer

in an order in which everything that a pass waits for comes first. Passes that run in the same step if all take one step do not
wait for each other, so that NumPy takes them at once, for all plans.

GPipe has a closed form. The recurrence of 1F1B only adds and takes maxima. Where all ends of S microbatches (S the stages) are
those of the S before, later by one and the same time, for as far back as any pass looks, they go on so until no forward pass is
left. Long pipelines are therefore run with fewer microbatches, and those left out are added at that pace; plans that are not
steady by then are run with more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.formulas.pipeline import gpipe_time
from halley.planning.schedule import Integers, Pipeline, Schedule, rounds

Floats = NDArray[np.float64]

BLOCK_BYTES = 2**24
"""Arrivals kept at once: plans are taken in blocks for which they fit a cache or two."""

SETTLING_GROUPS = 3
"""Groups of S microbatches that the start is given to settle; at least 2, as stages run ahead by less than two."""

WINDOW_GROUPS = 3
"""Groups that a pass looks back on: it waits for passes of at most 2 S + 1 microbatches before its own."""

ENDING_GROUPS = 4
"""Groups after the window: one to compare with, and three beyond, as passes of the end look less far ahead."""

STEADY = 1e-13
"""Relative difference of ends that is put down to rounding."""


@dataclass(frozen=True, slots=True)
class Times:
    """``last_backward`` [chunks, plans]: end of each chunk's backward pass of the last microbatch, when its gradients are
    final; ``stage_ends`` [stages, plans]: when a stage is done with all passes, and with transfers that hold it [s]."""

    last_backward: Floats
    stage_ends: Floats

    @property
    def time(self) -> Floats:
        """[plans] when all stages are done."""
        return np.asarray(self.stage_ends.max(axis=0))


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
    chunks = pipeline.last + 1
    _check_lengths(pipeline, {"forward": forward, "backward": backward}, chunks)
    onward, back = (given if len(given) else [0.0] * (chunks - 1) for given in (onward, back))
    _check_lengths(pipeline, {"onward": onward, "back": back}, chunks - 1)
    # of the last chunk no activation leaves, of the first no gradient
    given = (*forward, *backward, *onward, 0.0, 0.0, *back)
    table = np.stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(time, dtype=np.float64)) for time in given)))
    passes, leaving = table[: 2 * chunks], table[2 * chunks :]
    if pipeline.schedule is Schedule.GPIPE:
        return _gpipe(pipeline, passes, leaving, holding)
    last, ends = np.empty((chunks, table.shape[1])), np.empty((pipeline.stages, table.shape[1]))
    for block in _blocks(pipeline, table.shape[1]):
        last[:, block], ends[:, block] = _settled(pipeline, SETTLING_GROUPS, passes[:, block], leaving[:, block], holding)
    return Times(last, ends)


def _gpipe(pipeline: Pipeline, passes: Floats, leaving: Floats, holding: bool) -> Times:
    """GPipe in closed form: a stage is done when a backward flow shop that ends with it is."""
    stages = pipeline.stages
    held = leaving if holding else np.zeros_like(leaving)
    forward, backward = passes[:stages] + held[:stages], passes[stages:] + held[stages:]
    # nothing leaves the last stage onward, or the first one back
    onward, back = list((leaving - held)[: stages - 1]), list((leaving - held)[stages + 1 :])
    ends = np.stack([
        gpipe_time(list(forward), list(backward[stage:]), onward, back[stage:], pipeline.microbatches) for stage in range(stages)
    ])  # fmt: skip
    return Times(ends - held[stages:], ends)


def _settled(pipeline: Pipeline, settling: int, passes: Floats, leaving: Floats, holding: bool) -> tuple[Floats, Floats]:
    """`_run` with groups of microbatches left out, where that many at the start settle a plan's pace; with four times as many
    for the other plans, and so on up to all."""
    group, chunks = pipeline.stages, pipeline.last + 1
    spare = pipeline.microbatches // group - (settling + WINDOW_GROUPS + ENDING_GROUPS)
    if spare <= 0:
        return _run(pipeline, passes, leaving, holding, None)
    short = replace(pipeline, microbatches=pipeline.microbatches - spare * group)
    seen = np.zeros((2, 2 * chunks, short.microbatches, passes.shape[1]))
    last, ends = _run(short, passes, leaving, holding, seen.reshape(2, -1, passes.shape[1]))
    first, length = settling * group, WINDOW_GROUPS * group
    steps = seen[:, :, first + group : first + group + length] - seen[:, :, first : first + length]
    pace = steps[0, 0, 0]
    last, ends = last + spare * pace, ends + spare * pace
    odd = np.abs(steps - pace).max(axis=(0, 1, 2)) > STEADY * seen.max(axis=(0, 1, 2))
    if odd.any():
        last[:, odd], ends[:, odd] = _settled(pipeline, 4 * settling, passes[:, odd], leaving[:, odd], holding)
    return last, ends


class _Step(NamedTuple):
    """Passes that run at once, as rows of the arrays of `_run`: their stages, times, inputs, where their results go, the links
    that carry these; and which of them end a chunk's work (places among them, and chunks)."""

    stage: Integers
    time: Integers
    source: Integers
    target: Integers
    link: Integers
    final: tuple[Integers, Integers] | None


@lru_cache(maxsize=256)
def _steps(pipeline: Pipeline) -> tuple[_Step, ...]:
    """The rounds of a schedule with all places worked out.

    Times: forward passes of all chunks, then backward passes. Inputs: by the pass that waits, forward ones first; the gradient
    after chunk 0, which nobody waits for, last. Links: onward of each stage, back of each stage; then, for results that stay,
    one that is never busy when a pass ends, as it serves a stage's passes alone.
    """
    stages, chunks, count = pipeline.stages, pipeline.last + 1, pipeline.microbatches
    found = []
    for stage, direction, chunk, microbatch in rounds(pipeline):
        turning = (direction == 0) & (chunk == chunks - 1)
        stays = turning | ((direction == 1) & (chunk == 0))
        towards = np.where(turning | (direction == 1), chunks, 0) + np.where(turning, chunk, chunk + 1 - 2 * direction)
        towards = np.where((direction == 1) & (chunk == 0), 2 * chunks, towards)
        final = np.flatnonzero((direction == 1) & (microbatch == count - 1))
        time = direction * chunks + chunk
        link = np.where(stays, 2 * stages, direction * stages) + stage
        ends = (final, chunk[final]) if final.size else None
        found.append(_Step(stage, time, time * count + microbatch, towards * count + microbatch, link, ends))
    return tuple(found)


def _run(
    pipeline: Pipeline, passes: Floats, leaving: Floats, holding: bool, seen: Floats | None
) -> tuple[Floats, Floats]:
    """[chunks, plans] ends of the last backward passes, and [stages, plans] of all; ``passes``, ``leaving`` [2 chunks, plans].
    Fills ``seen``: when each pass ends, and when its result is where it is needed."""
    stages, chunks, plans = pipeline.stages, pipeline.last + 1, passes.shape[1]
    free, links = np.zeros((stages, plans)), np.zeros((3 * stages, plans))
    arrival = np.zeros(((2 * chunks + 1) * pipeline.microbatches, plans))
    last = np.empty((chunks, plans))
    transfers = bool(leaving.any())
    for stage, time, source, target, link, final in _steps(pipeline):
        end = np.maximum(free[stage], arrival[source])
        end += passes[time]
        if final is not None:
            last[final[1]] = end[final[0]]
        if seen is not None:
            seen[0, source] = end
        if transfers and holding:
            end += leaving[time]
        free[stage] = end
        if transfers and not holding:
            end = np.maximum(end, links[link]) + leaving[time]
            links[link] = end
        arrival[target] = end
        if seen is not None:
            seen[1, source] = end
    return last, free


def _blocks(pipeline: Pipeline, rows: int) -> Iterator[slice]:
    """Plans in blocks whose arrivals take at most `BLOCK_BYTES`."""
    step = max(1, BLOCK_BYTES // (16 * (pipeline.last + 2) * min(pipeline.microbatches, 16 * pipeline.stages)))
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def _check_lengths(pipeline: Pipeline, given: dict[str, Sequence[Number]], length: int) -> None:
    expected = f"{length} of them, for {pipeline.stages} stages x {pipeline.chunks} chunks"
    faults = [Fault(f"times {name}", expected, str(len(times))) for name, times in given.items() if len(times) != length]
    if faults:
        raise BadInput(faults)
