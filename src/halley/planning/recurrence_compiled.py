"""The recurrence of `halley.planning.recurrence` as one loop that numba compiles once and keeps on disk: the same operations in
the same order, and the same numbers. Nothing imports this module but `recurrence`: numba takes a good part of a second to load.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from halley.cost.accelerator import DOUBLES, FLOAT, INT, Doubles, compiled, pointer
from halley.planning.schedule import walk
from halley.planning.timetable import ENDED, LINK, SOURCE, STAGE, TARGET, TIME, Section

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WIDTH = 64
"""Plans that are timed at once: enough to make a pass's start cheap, few enough that their tables stay in a core's caches."""

INTS, INT_ROWS = types.Array(INT, 1, "C"), types.Array(INT, 2, "C")
ROWS = types.Array(FLOAT, 2, "C")


walk_on = compiled(INT(INTS, INTS, INTS, INT, INT_ROWS))(walk)
"""`halley.planning.schedule.walk` in machine code."""


@compiled(types.void(DOUBLES, DOUBLES, DOUBLES, DOUBLES, INT))
def work(end: Doubles, free: Doubles, arrival: Doubles, times: Doubles, plans: int) -> None:
    """When passes end: they start when their stage is free and their input there."""
    for i in range(plans):
        end[i] = (free[i] if free[i] > arrival[i] else arrival[i]) + times[i]


@compiled(types.void(DOUBLES, DOUBLES, DOUBLES, DOUBLES, DOUBLES, DOUBLES, INT))
def send(
    end: Doubles, holding: Doubles, moving: Doubles, free: Doubles, link: Doubles, arrival: Doubles, plans: int
) -> None:  # fmt: skip
    """When stages are free, and results are there."""
    for i in range(plans):
        left = end[i] + holding[i]
        there = (left if left > link[i] else link[i]) + moving[i]
        free[i] = left
        link[i] = there
        arrival[i] = there


@compiled(types.void(INT_ROWS, INT_ROWS, ROWS, ROWS, ROWS))
def run_all(passes: Integers, rows: Integers, times: Floats, table: Floats, last: Floats) -> None:
    """The passes of a section, one after the other, for `WIDTH` plans at a time."""
    step = 8 * table.shape[1]
    end = np.empty(WIDTH)
    ends = pointer(end.ctypes.data)
    for first in range(0, table.shape[1], WIDTH):
        plans = min(WIDTH, table.shape[1] - first)
        at, given = table.ctypes.data + 8 * first, times.ctypes.data + 8 * first
        for number in range(len(passes)):
            free, time = pointer(at + step * passes[number, STAGE]), passes[number, TIME]
            work(ends, free, pointer(at + step * passes[number, SOURCE]), pointer(given + step * rows[0, time]), plans)
            if passes[number, ENDED] >= 0:
                last[passes[number, ENDED], first : first + plans] = end[:plans]
            link, target = pointer(at + step * passes[number, LINK]), pointer(at + step * passes[number, TARGET])
            send(ends, pointer(given + step * rows[1, time]), pointer(given + step * rows[2, time]), free, link, target, plans)


def run(section: Section, rows: Integers, times: Floats, table: Floats, last: Floats) -> None:
    """The passes of a section."""
    run_all(section.passes, rows, times, table, last)
