"""The passes of a 1F1B schedule in an order in which everything that a pass waits for precedes it.

Between its first and last microbatches a pipeline repeats the same passes for each further S microbatches, where S is the
number of stages:

    prologue, body x repeats, epilogue

So the timetable does not grow with the number of microbatches. Passes are grouped in steps; passes of one step are independent.
They read and write places of a table (`Timetable`), which are the same in every repeat of the body.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from halley.pipeline.schedule import Integers, TrainingPipeline, unit_time_schedule, without_repeats

STAGE, TIME, SOURCE, TARGET, LINK, ENDED = range(6)
"""Columns of a section's passes: the stage; its row among the times of passes (forward passes of all chunks in the order of the
model, then backward passes); places of its input, of its result, and of the link that carries the result; and, if this is
the backward pass of a chunk's last microbatch, that chunk, else -1."""

NONE = 0
"""The row of times that are 0 for all plans."""


@dataclass(frozen=True, slots=True, eq=False)
class TimetableSection:
    """``passes`` [passes, 6 columns], sorted by step; step i has passes ``starts[i]`` to ``starts[i + 1]``."""

    passes: Integers
    starts: Integers


@dataclass(frozen=True, slots=True)
class Timetable:
    """Sections, the number of repeats of the body, and the number of ``places`` in the table of times.

    The first places are the stages (when each is free), then links (forward of each stage, backward of each stage, and one of
    each stage for results that stay), then results, by the pass that waits for them and by microbatch modulo a divisor of S.
    ``live``: places that a repeat of the body, or the prologue, passes on to the next repeat or to the epilogue.
    """

    prologue: TimetableSection
    body: TimetableSection
    repeats: int
    epilogue: TimetableSection
    places: int
    live: Integers


def timetable(pipeline: TrainingPipeline) -> Timetable:
    """The timetable of a 1F1B schedule.

    >>> found = timetable(TrainingPipeline(2, 100))
    >>> len(found.prologue.passes), len(found.body.passes), found.repeats, len(found.epilogue.passes)
    (4, 8, 49, 4)
    """
    short, spare = without_repeats(pipeline)
    found = _timetable(short)
    if not spare:
        return found
    return replace(found, repeats=found.repeats + spare) if found.repeats else _timetable(pipeline)


@lru_cache(maxsize=1024)
def _timetable(pipeline: TrainingPipeline) -> Timetable:
    """The timetable from the schedule of all microbatches."""
    passes = unit_time_schedule(pipeline)
    period = 2 * pipeline.stages * pipeline.chunks
    first, repeats = _repeated(passes, period, pipeline.stages)
    # the body must not contain a last microbatch
    ending = (passes[:, 2] == 1) & (passes[:, 4] == pipeline.microbatches - 1)
    repeats = max(0, min(repeats, int(passes[ending, 0].min() - first) // period))
    rings = _rings(passes, pipeline)
    if rings is None:
        rings, repeats = np.full(2 * pipeline.last + 3, pipeline.microbatches), 0
    placed, steps = _placed(passes, pipeline, rings), passes[:, 0]
    cuts = np.searchsorted(steps, [first, first + period * min(repeats, 1), first + period * repeats])
    prologue, body, _, epilogue = zip(np.split(placed, cuts), np.split(steps, cuts), strict=True)
    live = np.intersect1d(body[0][:, [STAGE, TARGET, LINK]], np.union1d(_read_first(body[0]), _read_first(epilogue[0])))
    places = 4 * pipeline.stages + int(rings.sum())
    return Timetable(_section(*prologue), _section(*body), repeats, _section(*epilogue), places, live)


def _read_first(passes: Integers) -> Integers:
    """The places that passes read before any of them writes there."""
    number = np.arange(len(passes))
    read, write = (np.full(passes[:, [SOURCE, TARGET, LINK]].max(initial=-1) + 1, len(passes)) for _ in range(2))
    for column in (STAGE, SOURCE, LINK):
        np.minimum.at(read, passes[:, column], number)
    for column in (STAGE, TARGET, LINK):
        np.minimum.at(write, passes[:, column], number)
    # a pass reads before it writes
    return np.flatnonzero((read <= write) & (read < len(passes)))


def _repeated(passes: Integers, period: int, stages: int) -> tuple[int, int]:
    """The first step of the longest run of passes that repeat with a ``period`` in steps and ``stages`` in microbatches, and
    the number of repeats; 0 if there are fewer than two."""
    steps = passes[:, 0]
    count = int(steps[-1]) + 1
    starts = np.searchsorted(steps, np.arange(count + 1))
    many = np.diff(starts)
    # compares each pass with the one at its place a period later, where both steps have equally many
    alike = np.flatnonzero(many[: count - period] == many[period:]) if count > period else np.arange(0)
    same = np.zeros(count, bool)
    same[alike] = True
    here = np.flatnonzero(same[steps])
    there = starts[steps[here] + period] + here - starts[steps[here]]
    differs = (passes[here] + np.array([period, 0, 0, 0, stages]) != passes[there]).any(axis=1)
    same[steps[here[differs]]] = False
    ends = np.flatnonzero(np.diff(same, prepend=False, append=False))
    runs = [(int(stop - start), int(start)) for start, stop in zip(ends[::2], ends[1::2], strict=True)]
    length, first = max(runs, default=(0, 0), key=lambda run: run[0])
    return (first, 1 + length // period) if length >= period else (0, 0)


def _awaited(passes: Integers, chunks: int) -> tuple[Integers, Integers]:
    """For each pass, its row among the times, and the row of the pass that waits for it; one past the last row if none does."""
    direction, chunk = passes[:, 2], passes[:, 3]
    onward, turning = chunk + 1, (direction == 0) & (chunk == chunks - 1)
    waiting = np.where(direction == 1, chunks + chunk - 1, np.where(turning, chunks + chunk, onward))
    return direction * chunks + chunk, np.where((direction == 1) & (chunk == 0), 2 * chunks, waiting)


def _rings(passes: Integers, pipeline: TrainingPipeline) -> Integers | None:
    """[2 chunks + 1] for each row of times, how many results are buffered for the passes that wait: the least divisor D of S
    such that each result is read before that of D microbatches later is written. None if S do not suffice."""
    chunks = pipeline.last + 1
    time, waiting = _awaited(passes, chunks)
    read = np.full((2 * chunks + 1, pipeline.microbatches), -1)
    write = np.full((2 * chunks + 1, pipeline.microbatches), passes[-1, 0] + 1)
    read[time, passes[:, 4]] = passes[:, 0]
    write[waiting, passes[:, 4]] = passes[:, 0]
    # the first chunk reads no result, and nothing waits for its backward pass
    read[[0, -1]] = -1
    rings = np.zeros(2 * chunks + 1, np.int64)
    for ring in range(1, pipeline.stages + 1):
        if pipeline.stages % ring == 0:
            enough = (write[:, ring:] > read[:, :-ring]).all(axis=1)
            rings = np.where((rings == 0) & enough, ring, rings)
    return rings if rings.all() else None


def _placed(passes: Integers, pipeline: TrainingPipeline, rings: Integers) -> Integers:
    """[passes, 6 columns] with places of stages, links and results."""
    stages, chunks = pipeline.stages, pipeline.last + 1
    _, stage, direction, chunk, microbatch = passes.T
    time, waiting = _awaited(passes, chunks)
    turning = (direction == 0) & (chunk == chunks - 1)
    stays = turning | ((direction == 1) & (chunk == 0))
    link = stages * (1 + np.where(stays, 2, direction)) + stage
    ended = np.where((direction == 1) & (microbatch == pipeline.microbatches - 1), chunk, -1)
    first = 4 * stages + np.cumsum(rings) - rings
    source, target = (first[place] + microbatch % rings[place] for place in (time, waiting))
    return np.stack([stage, time, source, target, link, ended], axis=1)


def _section(passes: Integers, steps: Integers) -> TimetableSection:
    starts = np.flatnonzero(np.diff(steps, prepend=-1, append=np.iinfo(np.int64).max))
    return TimetableSection(np.ascontiguousarray(passes), starts)
