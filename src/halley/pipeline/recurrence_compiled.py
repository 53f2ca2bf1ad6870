"""The recurrence of `halley.pipeline.recurrence` compiled by numba and cached on disk: the same operations in the same order,
and the same numbers. Only `halley.pipeline.schedule.SWITCH` loads this module, because importing numba takes a good part of
a second."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from halley.optim.jit import DOUBLES, FLOAT, INT, Doubles, compiled, pointer
from halley.pipeline.schedule import run_schedule
from halley.pipeline.timetable import ENDED, LINK, NONE, SOURCE, STAGE, TARGET, TIME, TimetableSection

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PLANS_AT_ONCE = 128
"""Plans that are timed together: enough to amortise the overhead of a pass, few enough that their tables fit a core's caches.
"""

INTS, INT_ROWS = types.Array(INT, 1, "C"), types.Array(INT, 2, "C")
ROWS = types.Array(FLOAT, 2, "C")


run_schedule_compiled = compiled(INT(INTS, INTS, INTS, INT, INTS, INTS, INTS))(run_schedule)
"""`halley.pipeline.schedule.run_schedule` in machine code."""


@compiled(types.void(DOUBLES, DOUBLES, DOUBLES, INT))
def work(free: Doubles, arrival: Doubles, times: Doubles, plans: int) -> None:
    """Ends of passes: a pass starts when its stage is free and its input has arrived."""
    for i in range(plans):
        free[i] = (free[i] if free[i] > arrival[i] else arrival[i]) + times[i]


@compiled(types.void(DOUBLES, DOUBLES, INT))
def hold(free: Doubles, holding: Doubles, plans: int) -> None:
    """When stages are free after transfers that block them."""
    for i in range(plans):
        free[i] = free[i] + holding[i]


@compiled(types.void(DOUBLES, DOUBLES, DOUBLES, DOUBLES, INT))
def send(free: Doubles, moving: Doubles, link: Doubles, arrival: Doubles, plans: int) -> None:
    """When results arrive."""
    for i in range(plans):
        there = (free[i] if free[i] > link[i] else link[i]) + moving[i]
        link[i] = there
        arrival[i] = there


@compiled(types.void(INT_ROWS, INT_ROWS, ROWS, ROWS, ROWS))
def run_all(passes: Integers, rows: Integers, times: Floats, table: Floats, last: Floats) -> None:
    """The passes of a section in order, for `PLANS_AT_ONCE` plans at a time."""
    step = 8 * table.shape[1]
    for first in range(0, table.shape[1], PLANS_AT_ONCE):
        plans = min(PLANS_AT_ONCE, table.shape[1] - first)
        at, given = table.ctypes.data + 8 * first, times.ctypes.data + 8 * first
        for number in range(len(passes)):
            free, time = pointer(at + step * passes[number, STAGE]), passes[number, TIME]
            work(free, pointer(at + step * passes[number, SOURCE]), pointer(given + step * rows[0, time]), plans)
            if passes[number, ENDED] >= 0:
                last[passes[number, ENDED], first : first + plans] = table[passes[number, STAGE], first : first + plans]
            if rows[1, time] != NONE:
                hold(free, pointer(given + step * rows[1, time]), plans)
            link, target = pointer(at + step * passes[number, LINK]), pointer(at + step * passes[number, TARGET])
            send(free, pointer(given + step * rows[2, time]), link, target, plans)


def run(section: TimetableSection, rows: Integers, times: Floats, table: Floats, last: Floats) -> None:
    """The passes of a section."""
    run_all(section.passes, rows, times, table, last)
