"""Exact time of a pipeline with uneven stages, for many plans at once: a pass starts when its stage is free and its input has
arrived.

    start = max(free[stage], arrival of the input),  end = start + duration,
    arrival at the next chunk = max(end, link free) + transfer

in the order of a timetable, in which everything that a pass waits for precedes it.

GPipe has a closed form. The recurrence of 1F1B only adds and takes maxima. If one repeat of the timetable's body delays all
state that it passes on by the same time as the repeat before, all later repeats do. The remaining repeats are then added at
that rate instead of being computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.formulas.pipeline import flow_shop_time
from halley.pipeline.block_counts import numbered, table_of
from halley.pipeline.schedule import SWITCH, Integers, PipelineSchedule, TrainingPipeline
from halley.pipeline.timetable import ENDED, LINK, NONE, SOURCE, STAGE, TARGET, TIME, Timetable, TimetableSection, timetable

Floats = NDArray[np.float64]

SectionRunner = Callable[[TimetableSection, Integers, Floats, Floats, Floats], None]
"""Computes the passes of a section from rows of times [3, 2 chunks] and times [distinct, plans]; updates the table [places,
plans] and the ends of last backward passes [chunks, plans]."""

STEP_SECONDS, PASS_SECONDS = 1.5e-5, 1e-8
"""Approximate NumPy time [s] of a step of passes, and of a pass for each plan."""

PLAN_BLOCK_BYTES = 2**20
"""Size of the table of times for the plans that are computed together: it fits a core's cache."""

RELATIVE_ROUNDING = 1e-13
"""Relative difference of times that counts as rounding."""


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """``last_backward`` [chunks, plans] [s]: end of each chunk's backward pass of the last microbatch, when its gradients are
    final. ``stage_ends`` [stages, plans] [s]: end of all passes of a stage, and of transfers that block it."""

    last_backward: Floats
    stage_ends: Floats

    @property
    def time(self) -> Floats:
        """[plans] when all stages have finished."""
        return np.asarray(self.stage_ends.max(axis=0))


def pipeline_times(
    pipeline: TrainingPipeline,
    forward: Sequence[Number],
    backward: Sequence[Number],
    onward: Sequence[Number] = (),
    back: Sequence[Number] = (),
    blocking: bool = False,
) -> PipelineTimes:
    """Times of a schedule; each duration is a number or an array over plans.

    ``forward``, ``backward`` [chunks] [s]: pass of one microbatch through each chunk, in the order of the model. ``onward``,
    ``back`` [chunks - 1] [s]: transfer of an activation to the next chunk, and of a gradient from it; without them transfers
    take no time. A link carries one transfer at a time in each direction. With ``blocking``, a transfer occupies its sender
    instead.

    >>> times = pipeline_times(TrainingPipeline(2, 5), [2.0, 7.0], [3.0, 11.0])
    >>> times.time.tolist(), times.last_backward.tolist()
    ([95.0], [[95.0], [92.0]])

    Raises BadInput: not one time for each chunk, or for each boundary between chunks.
    """
    chunks = pipeline.last + 1
    _check_lengths(pipeline, {"forward": forward, "backward": backward}, chunks)
    onward, back = (given if len(given) else [0.0] * (chunks - 1) for given in (onward, back))
    _check_lengths(pipeline, {"onward": onward, "back": back}, chunks - 1)
    # no activation leaves the last chunk, and no gradient the first
    work, leaving = [*forward, *backward], [*onward, 0.0, 0.0, *back]
    found, numbers = numbered([0.0, *work, *leaving])
    times, rows = table_of(found), np.array(numbers)
    none, (of_work, of_leaving) = np.full(2 * chunks, NONE), np.split(rows[1:], 2)
    if pipeline.schedule is PipelineSchedule.GPIPE:
        return _gpipe(pipeline, times[of_work], times[of_leaving], blocking)
    places = np.stack([of_work, of_leaving, none] if blocking else [of_work, none, of_leaving])
    compiled = SWITCH.loops()
    run: SectionRunner = compiled.run if compiled is not None else _run
    passes = timetable(pipeline)
    last, ends = np.empty((chunks, times.shape[1])), np.empty((pipeline.stages, times.shape[1]))
    for block in _blocks(passes, times.shape[1]):
        last[:, block], ends[:, block] = _ends(run, passes, pipeline.stages, places, np.ascontiguousarray(times[:, block]))
    return PipelineTimes(last, ends)


def _gpipe(pipeline: TrainingPipeline, passes: Floats, leaving: Floats, blocking: bool) -> PipelineTimes:
    """GPipe in closed form: a stage finishes with the backward flow shop that ends at it."""
    stages, jobs = pipeline.stages, pipeline.microbatches
    held = leaving if blocking else np.zeros_like(leaving)
    work, moved = passes + held, leaving - held
    # times of transfers to a stage; no gradient is sent to the last one
    back = np.concatenate((moved[stages + 1 :], np.zeros_like(moved[:1])))
    turned = _flow_shops(work[:stages], moved[:stages], jobs)[-1]
    ends = turned + _flow_shops(work[stages:][::-1], back[::-1], jobs)[::-1]
    return PipelineTimes(ends - held[stages:], ends)


def _flow_shops(stages: Floats, links: Floats, jobs: int) -> Floats:
    """[stages, plans] time of the flow shop that ends with each stage and its outgoing link."""
    # a running sum adds in the same order for any number of plans
    return np.asarray(flow_shop_time(np.cumsum(stages + links, axis=0), np.maximum.accumulate(np.maximum(stages, links)), jobs))


def _ends(run: SectionRunner, found: Timetable, stages: int, rows: Integers, times: Floats) -> tuple[Floats, Floats]:
    """[chunks, plans] ends of the last backward passes, [stages, plans] of all passes. ``rows`` [3, 2 chunks] of ``times``
    [distinct, plans]: duration of a pass, how long it then blocks its stage, and how long its result is in transfer."""
    table, last = np.zeros((found.places, times.shape[1])), np.empty((rows.shape[1] // 2, times.shape[1]))
    run(found.prologue, rows, times, table, last)
    if found.repeats:
        table[found.live] = _repeated(run, found, rows, times, table)
    run(found.epilogue, rows, times, table, last)
    return last, table[:stages]


def _repeated(run: SectionRunner, found: Timetable, rows: Integers, times: Floats, table: Floats) -> Floats:
    """[live, plans] the state after all repeats of the body, from the state of the prologue in the ``table``.

    A body maps its input state to maxima of sums: a convex function that commutes with shifts in time. If a body shifts all of
    the state by one time, so do all later bodies. If two consecutive bodies shift each entry equally, and so does a body that
    starts ``jump`` bodies later at that rate, so do all between, because a convex function that is linear at both ends of an
    interval is linear on it.
    """
    state, last = table[found.live], np.empty((0, 0))
    after, running = np.empty_like(state), np.arange(state.shape[1])
    left, jump = np.full(len(running), found.repeats), np.zeros(len(running), np.int64)
    step = np.full_like(state, np.inf)
    while True:
        start = state
        if jump.any():
            start = state + jump * np.where(jump, step, 0.0)
        table[found.live] = start
        run(found.body, rows, times, table, last)
        end = table[found.live]
        moved, rounding = end - start, RELATIVE_ROUNDING * end.max(axis=0)
        same = np.abs(moved - step).max(axis=0) <= rounding
        tried = jump > 0
        taken = same | ~tried
        if taken.all():
            state, step = end, moved
        else:
            state, step = np.where(taken, end, state), np.where(taken, moved, step)
        left = np.where(taken, left - jump - 1, left)
        jump = np.where(tried, jump // 2, np.where(same, left - 1, 0))
        jump = np.minimum(jump, np.maximum(left - 1, 0))
        done = taken & ((moved.max(axis=0) - moved.min(axis=0) <= rounding) | (left == 0))
        if done.any():
            after[:, running[done]] = (state + left * step[0])[:, done]
            if done.all():
                break
            running, left, jump = running[~done], left[~done], jump[~done]
            state, step, times, table = (each.compress(~done, axis=1) for each in (state, step, times, table))
    return after


def _run(section: TimetableSection, rows: Integers, times: Floats, table: Floats, last: Floats) -> None:
    """The passes of a section, step by step."""
    works, holds, moves = rows[:, section.passes[:, TIME]]
    blocking = bool((holds != NONE).any())
    for first, stop, stage, source, target, link, final in _steps(section):
        end = np.maximum(table.take(stage, 0), table.take(source, 0))
        end += times.take(works[first:stop], 0)
        if final is not None:
            last[section.passes[first + final, ENDED]] = end[final]
        if blocking:
            end += times.take(holds[first:stop], 0)
        table[stage] = end
        np.maximum(end, table.take(link, 0), out=end)
        end += times.take(moves[first:stop], 0)
        table[link] = end
        table[target] = end
    SWITCH.spent += (len(section.starts) - 1) * STEP_SECONDS + len(section.passes) * times.shape[1] * PASS_SECONDS


@lru_cache(maxsize=256)
def _steps(section: TimetableSection) -> list[tuple[int, int, Integers, Integers, Integers, Integers, Integers | None]]:
    """For each step: its first pass and the end of its passes; their stages, sources, targets and links; and which are last
    backward passes of a chunk, if any."""
    columns = [np.ascontiguousarray(section.passes[:, column]) for column in (STAGE, SOURCE, TARGET, LINK, ENDED)]
    found = []
    for first, stop in pairwise(section.starts.tolist()):
        *places, ended = (column[first:stop] for column in columns)
        final = np.flatnonzero(ended >= 0)
        found.append((first, stop, *places, final if final.size else None))
    return found


def _blocks(found: Timetable, plans: int) -> Iterator[slice]:
    """Slices of plans whose tables take at most `PLAN_BLOCK_BYTES`."""
    step = max(1, PLAN_BLOCK_BYTES // (8 * found.places))
    return (slice(first, min(first + step, plans)) for first in range(0, plans, step))


def _check_lengths(pipeline: TrainingPipeline, given: dict[str, Sequence[Number]], length: int) -> None:
    expected = f"{length} of them, for {pipeline.stages} stages x {pipeline.chunks} chunks"
    faults = [Fault(f"times {name}", expected, str(len(times))) for name, times in given.items() if len(times) != length]
    if faults:
        raise BadInput(faults)
