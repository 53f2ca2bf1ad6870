"""The passes of `halley.optim.value_bounds` compiled by numba and cached on disk: the same steps in the same order, and the
same numbers. Only `value_bounds` loads this module, because importing numba takes a good part of a second."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from halley.optim.jit import FLOAT, INT, compiled

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]

INTS, FLOATS = types.Array(INT, 1, "C"), types.Array(FLOAT, 1, "C")


@compiled(FLOAT(FLOATS, FLOATS))
def least_of(line: Numbers, gone: Numbers) -> float:
    """The least difference. Four minima are computed independently, because each comparison has to wait for the one before it."""
    a = b = c = d = np.inf
    for k in range(len(line) >> 2):
        x = line[4 * k] - gone[4 * k]
        a = x if x < a else a
        x = line[4 * k + 1] - gone[4 * k + 1]
        b = x if x < b else b
        x = line[4 * k + 2] - gone[4 * k + 2]
        c = x if x < c else c
        x = line[4 * k + 3] - gone[4 * k + 3]
        d = x if x < d else d
    for k in range(len(line) - len(line) % 4, len(line)):
        x = line[k] - gone[k]
        a = x if x < a else a
    a, c = a if a < b else b, c if c < d else d
    return a if a < c else c


@compiled(types.void(FLOATS, INT, INT, INT, types.boolean, FLOATS, INT, FLOATS))
def least_costs(
    double: Numbers, spot: int, rows: int, columns: int, by_row: bool, moved: Numbers, side: int, least: Numbers
) -> None:
    """For each row (or column) of a table, its least entry less what has ``moved`` to the columns (or rows), from ``side`` on."""
    if by_row:
        gone = moved[side : side + columns]
        for row in range(rows):
            least[row] = least_of(double[spot + row * columns : spot + (row + 1) * columns], gone)
        return
    least[:columns] = np.inf
    for row in range(rows):
        line, off = double[spot + row * columns : spot + (row + 1) * columns], moved[side + row]
        for column in range(columns):
            x = line[column] - off
            least[column] = x if x < least[column] else least[column]


@compiled(FLOAT(*(INTS,) * 8, *(FLOATS,) * 5, INTS, FLOAT, types.boolean))
def sweep(
    sizes: Indices, places: Indices, first: Indices, second: Indices, spots: Indices, sides: Indices, starts: Indices,
    of: Indices, single: Numbers, double: Numbers, moved: Numbers, of_values: Numbers, least: Numbers, chosen: Indices,
    lowest: float, backward: bool,
) -> float:  # fmt: skip
    """As `halley.optim.value_bounds.sweep`. One long loop, because a call updates the reference counts of all arrays that it
    passes: the choice of a value in a function of its own took 1 to 7 % longer."""
    count, widest = len(sizes), sizes.max()
    share, joint, shared = np.empty(widest), np.empty(widest), np.empty(widest)
    for step in range(count):
        v = count - 1 - step if backward else step
        size, place = sizes[v], places[v]
        own = single[place : place + size]
        ahead, behind = 0, 0
        for edge in of[starts[v] : starts[v + 1]]:
            by_row = first[edge] == v
            if ((second[edge] if by_row else first[edge]) > v) == backward:
                behind += 1
                continue
            ahead += 1
            rows, columns = sizes[first[edge]], sizes[second[edge]]
            mine, theirs = (sides[edge], sides[edge] + rows) if by_row else (sides[edge] + rows, sides[edge])
            least_costs(double, spots[edge], rows, columns, by_row, moved, theirs, shared)
            for value in range(size):
                gained = shared[value] - moved[mine + value]
                moved[mine + value] += gained
                own[value] += gained
        now = own.min()
        lowest += now - least[v]
        for value in range(size):
            of_values[place + value] = max(of_values[place + value], lowest + (own[value] - now))
            joint[value] = own[value]
        for edge in of[starts[v] : starts[v + 1]]:
            by_row = first[edge] == v
            other = second[edge] if by_row else first[edge]
            if (other > v) == backward:
                rows, columns, at = sizes[first[edge]], sizes[second[edge]], chosen[other]
                mine, theirs = (sides[edge], sides[edge] + rows) if by_row else (sides[edge] + rows, sides[edge])
                for value in range(size):
                    entry = double[spots[edge] + (value * columns + at if by_row else at * columns + value)]
                    joint[value] += entry - moved[mine + value] - moved[theirs + at]
        chosen[v] = joint[:size].argmin()
        if ahead > 0:
            share[:size] = own / max(ahead, behind)
            for edge in of[starts[v] : starts[v + 1]]:
                by_row = first[edge] == v
                other = second[edge] if by_row else first[edge]
                if (other > v) == backward:
                    continue
                rows, columns = sizes[first[edge]], sizes[second[edge]]
                mine, theirs = (sides[edge], sides[edge] + rows) if by_row else (sides[edge] + rows, sides[edge])
                for value in range(size):
                    moved[mine + value] -= share[value]
                least_costs(double, spots[edge], rows, columns, not by_row, moved, mine, shared)
                costs = single[places[other] : places[other] + sizes[other]]
                for value in range(sizes[other]):
                    gained = shared[value] - moved[theirs + value]
                    moved[theirs + value] += gained
                    costs[value] += gained
                after = costs.min()
                lowest += after - least[other]
                least[other] = after
                own -= share[:size]
            after = own.min()
            lowest += after - now
            now = after
        least[v] = now
    return lowest
