"""The passes of `halley.planning.value_bounds` as one loop that numba compiles once and keeps on disk: the same steps in the same
order, and the same numbers. Nothing imports this module but `value_bounds`: numba takes a good part of a second to load.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from halley.cost.accelerator import FLOAT, INT, compiled

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]

INTS, FLOATS = types.Array(INT, 1, "C"), types.Array(FLOAT, 1, "C")
BLOCK = (FLOATS, INT, INT, INT, types.boolean)


@compiled(types.void(*BLOCK, FLOATS))
def least_costs(double: Numbers, spot: int, rows: int, columns: int, by_row: bool, least: Numbers) -> None:
    """Of each row (or column) the least entry of a table."""
    least[: rows if by_row else columns] = np.inf
    for row in range(rows):
        for column in range(columns):
            at = row if by_row else column
            least[at] = min(least[at], double[spot + row * columns + column])


@compiled(types.void(*BLOCK, FLOATS, FLOATS, FLOATS))
def moved(
    double: Numbers, spot: int, rows: int, columns: int, by_row: bool, taken: Numbers, given: Numbers, least: Numbers
) -> None:
    """Takes and gives costs along the rows (or columns) of a table, then takes the least of each column (or row)."""
    least[: columns if by_row else rows] = np.inf
    for row in range(rows):
        for column in range(columns):
            along, across = (row, column) if by_row else (column, row)
            at = spot + row * columns + column
            double[at] = double[at] - taken[along] + given[along]
            least[across] = min(least[across], double[at])
    for row in range(rows):
        for column in range(columns):
            double[spot + row * columns + column] -= least[column if by_row else row]


@compiled(FLOAT(*(INTS,) * 7, *(FLOATS,) * 4, INTS, FLOAT, types.boolean))
def sweep(
    sizes: Indices, places: Indices, first: Indices, second: Indices, spots: Indices, starts: Indices, of: Indices,
    single: Numbers, double: Numbers, of_values: Numbers, least: Numbers, chosen: Indices, lowest: float, backward: bool,
) -> float:  # fmt: skip
    """As `halley.planning.value_bounds.sweep`."""
    count, widest = len(sizes), sizes.max()
    taken = np.empty((len(of) + 1, widest))
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
            least_costs(double, spots[edge], sizes[first[edge]], sizes[second[edge]], by_row, taken[ahead])
            own += taken[ahead, :size]
            ahead += 1
        now = own.min()
        lowest += now - least[v]
        for value in range(size):
            of_values[place + value] = max(of_values[place + value], lowest + (own[value] - now))
            joint[value] = own[value]
        for edge in of[starts[v] : starts[v + 1]]:
            by_row = first[edge] == v
            other = second[edge] if by_row else first[edge]
            if (other > v) == backward:
                for value in range(size):
                    row, column = (value, chosen[other]) if by_row else (chosen[other], value)
                    joint[value] += double[spots[edge] + row * sizes[second[edge]] + column]
        chosen[v] = joint[:size].argmin()
        if ahead > 0:
            share[:size] = own / max(ahead, behind)
            turn = 0
            for edge in of[starts[v] : starts[v + 1]]:
                by_row = first[edge] == v
                other = second[edge] if by_row else first[edge]
                if (other > v) == backward:
                    continue
                moved(double, spots[edge], sizes[first[edge]], sizes[second[edge]], by_row, taken[turn], share, shared)
                turn += 1
                costs = single[places[other] : places[other] + sizes[other]]
                costs += shared[: sizes[other]]
                after = costs.min()
                lowest += after - least[other]
                least[other] = after
                own -= share[:size]
            after = own.min()
            lowest += after - now
            now = after
        least[v] = now
    return lowest
