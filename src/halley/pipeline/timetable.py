"""The passes of a 1F1B schedule in an order in which whatever a pass waits for comes first.

Between its first and its last microbatches a pipeline does the same again and again, S microbatches (S the stages) further on:

    prologue, body x repeats, epilogue

so that a long pipeline has no longer a timetable than a short one. Passes lie in steps: those of one step do not wait for each
other. What they read and write are places of a table (`Timetable`), the same ones in every repeat of the body.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from halley.pipeline.schedule import Integers, Pipeline, in_steps, shortened

STAGE, TIME, SOURCE, TARGET, LINK, ENDED = range(6)
"""Columns of a section's passes: the stage; its place among the times of passes (forward passes of all chunks in the order of the
model, then backward passes); places of its input, of its result, and of the link that carries the result; and the chunk whose
last microbatch this backward pass is, -1 for all others."""

NONE = 0
"""The row of times that are 0 for all plans."""


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """``passes`` [passes, 6 columns], step by step; step i has those from ``starts[i]`` to ``starts[i + 1]``."""

    passes: Integers
    starts: Integers


@dataclass(frozen=True, slots=True)
class Timetable:
    """Sections, how often the body is repeated, and how many ``places`` a table of times has.

    First come the stages (when each is free), then links (onward of each stage, back of each stage, and one of each stage for
    results that stay), then results, by the pass that waits for them and by microbatch, modulo some divisor of S. ``live``: the
    places of what one repeat of the body, or the prologue, leaves to the next, or to the epilogue.
    """

    prologue: Section
    body: Section
    repeats: int
    epilogue: Section
    places: int
    live: Integers


def timetable(pipeline: Pipeline) -> Timetable:
    """The timetable of a 1F1B schedule.

    >>> found = timetable(Pipeline(2, 100))
    >>> len(found.prologue.passes), len(found.body.passes), found.repeats, len(found.epilogue.passes)
    (4, 8, 49, 4)
    """
    short, spare = shortened(pipeline)
    found = _timetable(short)
    if not spare:
        return found
    return replace(found, repeats=found.repeats + spare) if found.repeats else _timetable(pipeline)


@lru_cache(maxsize=1024)
def _timetable(pipeline: Pipeline) -> Timetable:
    """The same, all microbatches walked through."""
    passes = in_steps(pipeline)
    period = 2 * pipeline.stages * pipeline.chunks
    first, repeats = _repeated(passes, period, pipeline.stages)
    # the body has no last microbatch
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
    """The places that passes read before one of them writes there."""
    number = np.arange(len(passes))
    read, write = (np.full(passes[:, [SOURCE, TARGET, LINK]].max(initial=-1) + 1, len(passes)) for _ in range(2))
    for column in (STAGE, SOURCE, LINK):
        np.minimum.at(read, passes[:, column], number)
    for column in (STAGE, TARGET, LINK):
        np.minimum.at(write, passes[:, column], number)
    # a pass reads before it writes
    return np.flatnonzero((read <= write) & (read < len(passes)))


def _repeated(passes: Integers, period: int, stages: int) -> tuple[int, int]:
    """The first step of passes that come again and again after a ``period``, ``stages`` microbatches further on, and how often
    in a row; 0 where they do not come twice."""
    steps = passes[:, 0]
    count = int(steps[-1]) + 1
    starts = np.searchsorted(steps, np.arange(count + 1))
    many = np.diff(starts)
    # each pass beside the one in its place a period later, where the two steps have as many
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
    """Of each pass, its place among times, and that of the pass that waits for it; behind the last one where none does."""
    direction, chunk = passes[:, 2], passes[:, 3]
    onward, turning = chunk + 1, (direction == 0) & (chunk == chunks - 1)
    waiting = np.where(direction == 1, chunks + chunk - 1, np.where(turning, chunks + chunk, onward))
    return direction * chunks + chunk, np.where((direction == 1) & (chunk == 0), 2 * chunks, waiting)


def _rings(passes: Integers, pipeline: Pipeline) -> Integers | None:
    """[2 chunks + 1] of each place among times, how many results that wait for its passes have room: the least divisor D of S for
    which one is read before that of D microbatches later is written. None where S are not enough."""
    chunks = pipeline.last + 1
    time, waiting = _awaited(passes, chunks)
    read = np.full((2 * chunks + 1, pipeline.microbatches), -1)
    write = np.full((2 * chunks + 1, pipeline.microbatches), passes[-1, 0] + 1)
    read[time, passes[:, 4]] = passes[:, 0]
    write[waiting, passes[:, 4]] = passes[:, 0]
    # nothing is written for the first chunk to read, and nobody waits behind it
    read[[0, -1]] = -1
    rings = np.zeros(2 * chunks + 1, np.int64)
    for ring in range(1, pipeline.stages + 1):
        if pipeline.stages % ring == 0:
            enough = (write[:, ring:] > read[:, :-ring]).all(axis=1)
            rings = np.where((rings == 0) & enough, ring, rings)
    return rings if rings.all() else None


def _placed(passes: Integers, pipeline: Pipeline, rings: Integers) -> Integers:
    """[passes, 6 columns] with places for stages, links and results."""
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


def _section(passes: Integers, steps: Integers) -> Section:
    starts = np.flatnonzero(np.diff(steps, prepend=-1, append=np.iinfo(np.int64).max))
    return Section(np.ascontiguousarray(passes), starts)
