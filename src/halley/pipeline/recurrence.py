"""Exact time of a pipeline with uneven stages, for many plans at once: a pass starts when its stage is free and its input
there.

    start = max(free[stage], arrival of the input),  end = start + duration,
    arrival at the next chunk = max(end, link free) + transfer

in the order of a timetable, in which everything that a pass waits for comes first.

GPipe has a closed form. The recurrence of 1F1B only adds and takes maxima. Where all that a repeat of the timetable's body leaves
behind is what the one before left, later by one and the same time, it goes on so in all repeats: those of a plan that has settled
are not walked through, but added at that pace.
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
from halley.pipeline.makeup import numbered, table_of
from halley.pipeline.schedule import SWITCH, Integers, Pipeline, Schedule
from halley.pipeline.timetable import ENDED, LINK, NONE, SOURCE, STAGE, TARGET, TIME, Section, Timetable, timetable

Floats = NDArray[np.float64]

Run = Callable[[Section, Integers, Floats, Floats, Floats], None]
"""Does the passes of a section: [3, 2 chunks] rows of times, times [distinct, plans], table [places, plans], and the ends of last
backward passes [chunks, plans]; writes the last two."""

STEP_TIME, PASS_TIME = 1.5e-5, 1e-8
"""About what NumPy takes for a step of passes, and for a pass of each plan [s]."""

BLOCK_BYTES = 2**20
"""Times kept at once: plans are taken in blocks for which they fit a core's cache."""

STEADY = 1e-13
"""Relative difference of times that is put down to rounding."""


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
    work, leaving = [*forward, *backward], [*onward, 0.0, 0.0, *back]
    found, numbers = numbered([0.0, *work, *leaving])
    times, rows = table_of(found), np.array(numbers)
    none, (of_work, of_leaving) = np.full(2 * chunks, NONE), np.split(rows[1:], 2)
    if pipeline.schedule is Schedule.GPIPE:
        return _gpipe(pipeline, times[of_work], times[of_leaving], holding)
    places = np.stack([of_work, of_leaving, none] if holding else [of_work, none, of_leaving])
    compiled = SWITCH.kernels()
    run: Run = compiled.run if compiled is not None else _run
    passes = timetable(pipeline)
    last, ends = np.empty((chunks, times.shape[1])), np.empty((pipeline.stages, times.shape[1]))
    for block in _blocks(passes, times.shape[1]):
        last[:, block], ends[:, block] = _ends(run, passes, pipeline.stages, places, np.ascontiguousarray(times[:, block]))
    return Times(last, ends)


def _gpipe(pipeline: Pipeline, passes: Floats, leaving: Floats, holding: bool) -> Times:
    """GPipe in closed form: a stage is done when a backward flow shop that ends with it is."""
    stages, jobs = pipeline.stages, pipeline.microbatches
    held = leaving if holding else np.zeros_like(leaving)
    work, moved = passes + held, leaving - held
    # towards a stage, not from it: nothing comes back to the last one
    back = np.concatenate((moved[stages + 1 :], np.zeros_like(moved[:1])))
    turned = _flow_shops(work[:stages], moved[:stages], jobs)[-1]
    ends = turned + _flow_shops(work[stages:][::-1], back[::-1], jobs)[::-1]
    return Times(ends - held[stages:], ends)


def _flow_shops(stages: Floats, links: Floats, jobs: int) -> Floats:
    """[stages, plans] time of the flow shop that ends with each stage and the link behind it."""
    # a running sum adds in the same order for any number of plans
    return np.asarray(flow_shop_time(np.cumsum(stages + links, axis=0), np.maximum.accumulate(np.maximum(stages, links)), jobs))


def _ends(run: Run, found: Timetable, stages: int, rows: Integers, times: Floats) -> tuple[Floats, Floats]:
    """[chunks, plans] ends of the last backward passes, [stages, plans] of all passes. ``rows`` [3, 2 chunks] of ``times``
    [distinct, plans]: how long a pass takes, how long it then holds its stage, and how long its result is on the way."""
    table, last = np.zeros((found.places, times.shape[1])), np.empty((rows.shape[1] // 2, times.shape[1]))
    run(found.prologue, rows, times, table, last)
    if found.repeats:
        table[found.live] = _repeated(run, found, rows, times, table)
    run(found.epilogue, rows, times, table, last)
    return last, table[:stages]


def _repeated(run: Run, found: Timetable, rows: Integers, times: Floats, table: Floats) -> Floats:
    """[live, plans] what all repeats of the body make of what the prologue leaves in the ``table``.

    What a body leaves are maxima of sums of what it finds: convex, and moved along with all that it finds. Where a body moves all
    times alike, so do all later ones. Where two in a row move each as far, and so does one that starts ``jump`` bodies further
    on at that rate, so do all between: what is convex, and linear at both ends of a stretch, is linear on it.
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
        moved, rounding = end - start, STEADY * end.max(axis=0)
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


def _run(section: Section, rows: Integers, times: Floats, table: Floats, last: Floats) -> None:
    """The passes of a section, step by step."""
    works, holds, moves = rows[:, section.passes[:, TIME]]
    holding = bool((holds != NONE).any())
    for first, stop, stage, source, target, link, final in _steps(section):
        end = np.maximum(table.take(stage, 0), table.take(source, 0))
        end += times.take(works[first:stop], 0)
        if final is not None:
            last[section.passes[first + final, ENDED]] = end[final]
        if holding:
            end += times.take(holds[first:stop], 0)
        table[stage] = end
        np.maximum(end, table.take(link, 0), out=end)
        end += times.take(moves[first:stop], 0)
        table[link] = end
        table[target] = end
    SWITCH.spent += (len(section.starts) - 1) * STEP_TIME + len(section.passes) * times.shape[1] * PASS_TIME


@lru_cache(maxsize=256)
def _steps(section: Section) -> list[tuple[int, int, Integers, Integers, Integers, Integers, Integers | None]]:
    """The first pass of each step and the one behind its last; their stages, sources, targets and links; and which of them are
    the last backward passes of a chunk, if any are."""
    columns = [np.ascontiguousarray(section.passes[:, column]) for column in (STAGE, SOURCE, TARGET, LINK, ENDED)]
    found = []
    for first, stop in pairwise(section.starts.tolist()):
        *places, ended = (column[first:stop] for column in columns)
        final = np.flatnonzero(ended >= 0)
        found.append((first, stop, *places, final if final.size else None))
    return found


def _blocks(found: Timetable, plans: int) -> Iterator[slice]:
    """Plans in blocks whose times take at most `BLOCK_BYTES`."""
    step = max(1, BLOCK_BYTES // (8 * found.places))
    return (slice(first, min(first + step, plans)) for first in range(0, plans, step))


def _check_lengths(pipeline: Pipeline, given: dict[str, Sequence[Number]], length: int) -> None:
    expected = f"{length} of them, for {pipeline.stages} stages x {pipeline.chunks} chunks"
    faults = [Fault(f"times {name}", expected, str(len(times))) for name, times in given.items() if len(times) != length]
    if faults:
        raise BadInput(faults)
