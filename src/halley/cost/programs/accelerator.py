"""Optional acceleration with numba: two interpreter loops, compiled once for all programs and cached on disk.

Each loop executes a program's instructions on blocks of rows that stay in a core's inner caches. Operations and their order are
those of the NumPy loops, without reassociation or contraction, so the results are equal (except for the sign of a zero). Only
`halley.optim.switch` imports this module, as loading numba takes a large part of a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numba import types

from halley.cost.programs.grid import Grid
from halley.cost.programs.instructions import Array, Code, Indices, Place
from halley.formulas.terms import Operation
from halley.optim.jit import DOUBLES, FLOAT, INT, INT_ROWS, INTS, ONES, ROWS, Doubles, compiled, pointer

ROWS_PER_REGISTER = 512
"""Rows of one register: enough to amortise the dispatch of an instruction, few enough that all registers stay in cache."""

ADD, SUBTRACT, MULTIPLY, DIVIDE = (int(op) for op in (Operation.ADD, Operation.SUBTRACT, Operation.MULTIPLY, Operation.DIVIDE))
MINIMUM, MAXIMUM, POSITIVE = (int(op) for op in (Operation.MINIMUM, Operation.MAXIMUM, Operation.POSITIVE))
FLOOR_DIVIDE, CEIL_DIVIDE, OPEN = (int(op) for op in (Operation.FLOOR_DIVIDE, Operation.CEIL_DIVIDE, Operation.OPEN))
FIRST_ONE, SECOND_ONE = 16, 32
ALL_ONE = FIRST_ONE + SECOND_ONE
"""Added to an operation code if the first operand, the second operand, or both operands and the result are scalars."""

REGISTER_BYTES = 8 * ROWS_PER_REGISTER
"""Size of a register [B]."""

# --- programs as arrays -----------------------------------------------------------------------------------------------


class Packed:
    """Code as arrays. ``blocks``: for each factor, whether it is loaded as a block of values or as a scalar.

    Blocks are rows of `held`. Scalars are in ``ones``: one place per register, then the constants. An output is a row number, or
    the bitwise complement of a place in ``ones``."""

    def __init__(self, code: Code, blocks: Sequence[bool]) -> None:
        constants: dict[str, int] = {}
        is_block = [False] * code.registers

        def located(place: Place) -> tuple[bool, int]:
            if isinstance(place, int):
                return is_block[place], place
            return False, code.registers + constants.setdefault(place.hex(), len(constants))

        rows: list[tuple[int, int, int, int]] = []
        self.starts = [0, *accumulate(len(steps) for steps in code.levels)]
        for steps in code.levels:
            for operation, target, a, b in steps:
                if operation is Operation.OPEN:
                    is_block[target] = blocks[int(a)]
                    rows.append((OPEN + (0 if blocks[int(a)] else ALL_ONE), target, int(a), 0))
                    continue
                (first, x), (second, y) = located(a), located(a if operation is Operation.POSITIVE else b)
                if second and not first and operation in (Operation.ADD, Operation.MULTIPLY):  # commutative
                    (first, x), (second, y) = (second, y), (first, x)
                is_block[target] = first or second
                rows.append((int(operation) + (0 if first else FIRST_ONE) + (0 if second else SECOND_ONE), target, x, y))
        outputs = [located(place) for place in code.outputs]
        self.outputs = np.array([place if block else ~place for block, place in outputs], dtype=np.int64)
        self.code = np.array(rows, dtype=np.int64).reshape(-1, 4)
        self.ones = np.array([*([0.0] * code.registers), *(float.fromhex(word) for word in constants)])
        self.registers = code.registers

    def held(self) -> Array:
        """Memory for the registers, and for one more as temporary storage."""
        return np.empty((self.registers + 1, ROWS_PER_REGISTER))


class Kind(Protocol):
    """Interface of a factor: the dim of its table."""

    @property
    def kind(self) -> str: ...


class CompiledProgram:
    """A program with its tables; a call evaluates it for a node per dim and row. ``code`` has one level."""

    def __init__(self, code: Code, factors: Sequence[Kind], tables: Sequence[Array]) -> None:
        self._packed = Packed(code, [True] * len(factors))
        self._dims = tuple(dict.fromkeys(factor.kind for factor in factors))
        self._tables = [np.ascontiguousarray(table, dtype=np.float64) for table in tables]  # the addresses point into these
        if not all(len(table) for table in self._tables):
            raise ValueError("rows: expected tables with at least one value; got an empty one")
        dims = [self._dims.index(factor.kind) for factor in factors]
        where = [(table.ctypes.data, len(table), dim) for table, dim in zip(self._tables, dims, strict=True)]
        self._where = np.array(where, dtype=np.int64).reshape(-1, 3)

    def __call__(self, choices: Mapping[str, Indices], rows: int) -> Array:
        """Outputs x rows."""
        nodes = np.empty((len(self._dims), rows), dtype=np.int64)
        for row, dim in enumerate(self._dims):
            nodes[row] = choices[dim]
        packed = self._packed
        result = np.empty((len(packed.outputs), rows))
        run_rows(packed.code, packed.ones, packed.outputs, packed.held(), self._where, nodes, result)
        return result


def grid_costs(grid: Grid, result: Array) -> None:
    """Write the outputs of all combinations into ``result`` (outputs x combinations)."""
    _run_grid(grid, (), result)


def grid_least(grid: Grid, capacities: Sequence[float]) -> list[tuple[float, int]]:
    """For each output without a capacity, the minimum over the combinations that fit, and the first combination with it."""
    return _run_grid(grid, capacities, np.empty((0, 0)))


def _run_grid(grid: Grid, capacities: Sequence[float], result: Array) -> list[tuple[float, int]]:
    dims = tuple(grid.counts)
    packed = Packed(grid.code(dims[:-1]), [kind == dims[-1] for kind in grid.kinds])
    empty = [packed.starts[-1]] * (len(dims) + 1 - len(packed.starts))  # loops on which no instruction depends
    starts = np.array([*packed.starts, *empty], dtype=np.int64)
    ends = accumulate(len(column) for column in grid.columns)
    loads = [(end - len(column), dims.index(kind)) for end, column, kind in zip(ends, grid.columns, grid.kinds, strict=True)]
    where = np.array(loads, dtype=np.int64).reshape(-1, 2)
    counts = np.array(list(grid.counts.values()), dtype=np.int64)
    width = len(grid.outputs) - len(capacities)
    values, places = np.full(width, math.inf), np.full(width, -1, dtype=np.int64)
    columns = np.concatenate([np.empty(0), *grid.columns])
    limits = np.array(capacities, dtype=np.float64)
    code, ones, outputs, held = packed.code, packed.ones, packed.outputs, packed.held()
    run_grid(code, starts, ones, outputs, held, where, columns, counts, limits, result, values, places)
    return list(zip(values.tolist(), places.tolist(), strict=True))


# --- compiled ---------------------------------------------------------------------------------------------------------


@compiled(types.void(DOUBLES, FLOAT, INT))
def fill(t: Doubles, value: float, n: int) -> None:
    """Set n numbers."""
    for i in range(n):
        t[i] = value


@compiled(FLOAT(INT, FLOAT, FLOAT))
def single(operation: int, x: float, y: float) -> Any:
    """An operation on two numbers, as in NumPy: a maximum or minimum with NaN is NaN."""
    if operation == MULTIPLY:
        return x * y
    if operation == ADD:
        return x + y
    if operation == MAXIMUM:
        return x if (x > y) | (x != x) else y
    if operation == MINIMUM:
        return x if (x < y) | (x != x) else y
    if operation == DIVIDE:
        return x / y
    if operation == FLOOR_DIVIDE:
        return np.floor(x / y)
    if operation == CEIL_DIVIDE:
        return np.ceil(x / y)
    if operation == SUBTRACT:
        return x - y
    return 1.0 if x > 0.0 else 0.0


@compiled(types.void(INT, DOUBLES, DOUBLES, DOUBLES, INT))
def blocks(operation: int, t: Doubles, x: Doubles, y: Doubles, n: int) -> None:
    """An operation on n pairs. One loop per operation, so that each loop is vectorised."""
    if operation == MULTIPLY:
        for i in range(n):
            t[i] = x[i] * y[i]
    elif operation == ADD:
        for i in range(n):
            t[i] = x[i] + y[i]
    elif operation == MAXIMUM:
        for i in range(n):
            t[i] = x[i] if (x[i] > y[i]) | (x[i] != x[i]) else y[i]
    elif operation == MINIMUM:
        for i in range(n):
            t[i] = x[i] if (x[i] < y[i]) | (x[i] != x[i]) else y[i]
    elif operation == DIVIDE:
        for i in range(n):
            t[i] = x[i] / y[i]
    elif operation == FLOOR_DIVIDE:
        for i in range(n):
            t[i] = np.floor(x[i] / y[i])
    elif operation == CEIL_DIVIDE:
        for i in range(n):
            t[i] = np.ceil(x[i] / y[i])
    elif operation == SUBTRACT:
        for i in range(n):
            t[i] = x[i] - y[i]
    else:
        for i in range(n):
            t[i] = 1.0 if x[i] > 0.0 else 0.0


@compiled(types.void(INT, DOUBLES, DOUBLES, FLOAT, DOUBLES, INT))
def with_one(operation: int, t: Doubles, x: Doubles, y: float, spare: Doubles, n: int) -> None:
    """An operation on n numbers with a scalar second operand."""
    if operation == MULTIPLY:
        for i in range(n):
            t[i] = x[i] * y
    elif operation == ADD:
        for i in range(n):
            t[i] = x[i] + y
    elif operation == MAXIMUM:
        for i in range(n):
            t[i] = x[i] if (x[i] > y) | (x[i] != x[i]) else y
    else:
        fill(spare, y, n)
        blocks(operation, t, x, spare, n)


@compiled(types.void(INT, INT, INT, INT, INT, INT, ONES, INT))
def do(operation: int, target: int, a: int, b: int, held: int, spare: int, ones: Array, n: int) -> None:
    """One instruction other than OPEN. ``held``, ``spare``: addresses of the registers and of the temporary register."""
    if operation >= ALL_ONE:
        ones[target] = single(operation - ALL_ONE, ones[a], ones[b])
    elif operation >= SECOND_ONE:
        with_one(
            operation - SECOND_ONE,
            pointer(held + REGISTER_BYTES * target),
            pointer(held + REGISTER_BYTES * a),
            ones[b],
            pointer(spare),
            n,
        )
    elif operation >= FIRST_ONE:
        fill(pointer(spare), ones[a], n)
        blocks(
            operation - FIRST_ONE, pointer(held + REGISTER_BYTES * target), pointer(spare), pointer(held + REGISTER_BYTES * b), n
        )
    else:
        blocks(
            operation,
            pointer(held + REGISTER_BYTES * target),
            pointer(held + REGISTER_BYTES * a),
            pointer(held + REGISTER_BYTES * b),
            n,
        )


@compiled(types.void(INT_ROWS, ONES, INTS, ROWS, INT_ROWS, INT_ROWS, ROWS))
def run_rows(code: Indices, ones: Array, outputs: Indices, held: Array, where: Indices, nodes: Indices, result: Array) -> None:
    """Evaluate a program on rows. ``where``: for each factor, the address and length of its table, and its dim; ``nodes``: dims x
    rows. A node outside a table is clipped to it."""
    base = held.ctypes.data
    spare = base + REGISTER_BYTES * (len(held) - 1)
    rows = nodes.shape[1] if len(nodes) else result.shape[1]
    for start in range(0, rows, ROWS_PER_REGISTER):
        n = min(ROWS_PER_REGISTER, rows - start)
        for at in range(len(code)):
            if code[at, 0] == OPEN:
                factor = code[at, 2]
                table, length, dim = pointer(where[factor, 0]), where[factor, 1], where[factor, 2]
                t = pointer(base + REGISTER_BYTES * code[at, 1])
                for i in range(n):
                    t[i] = table[min(max(nodes[dim, start + i], 0), length - 1)]
            else:
                do(code[at, 0], code[at, 1], code[at, 2], code[at, 3], base, spare, ones, n)
        for row in range(len(outputs)):
            place = outputs[row]
            if place < 0:
                result[row, start : start + n] = ones[~place]
            else:
                result[row, start : start + n] = held[place, :n]


@compiled(types.void(INT, INT, ONES, INTS, ONES, INTS, INT, INT, ONES, INTS))
def note(
    held: int, spare: int, ones: Array, outputs: Indices, limits: Array, fits: Indices, n: int, first: int, best: Array,
    best_at: Indices,
) -> None:  # fmt: skip
    """Update the best values with n combinations from number ``first`` on: those within the limits and less than the best."""
    width = len(best)
    fits[:n] = 1
    for row in range(len(limits)):
        place, limit = outputs[width + row], limits[row]
        if place < 0:
            if ones[~place] > limit:
                return
        else:
            used = pointer(held + REGISTER_BYTES * place)
            for i in range(n):
                fits[i] &= 0 if used[i] > limit else 1
    for row in range(width):
        place, least = outputs[row], best[row]
        cost = pointer(spare if place < 0 else held + REGISTER_BYTES * place)
        if place < 0:
            fill(cost, ones[~place], n)
        better = 0
        for i in range(n):
            better |= fits[i] & (1 if cost[i] < least else 0)
        if better:  # rare; so the first loop tracks no position, and is vectorised
            for i in range(n):
                if fits[i] and cost[i] < least:
                    least = cost[i]
                    best_at[row] = first + i
            best[row] = least


@compiled(types.void(INT_ROWS, INTS, ONES, INTS, ROWS, INT_ROWS, ONES, INTS, ONES, ROWS, ONES, INTS))
def run_grid(
    code: Indices, starts: Indices, ones: Array, outputs: Indices, held: Array, where: Indices, columns: Array,
    counts: Indices, limits: Array, result: Array, values: Array, places: Indices,
) -> None:  # fmt: skip
    """Evaluate a program on a grid. ``starts``: where each level's instructions start; ``where``: for each factor, the start of
    its column and its dim. Writes ``result`` (outputs x combinations) if it is not empty, else ``values`` and ``places`` (the
    minimum of each output without a limit, and its combination).

    The outer loop is over pieces of the last dim's choices, so that values that do not change stay in cache."""
    inner, loops = counts[-1], len(counts) - 1
    width = len(values)
    base = held.ctypes.data
    spare = base + REGISTER_BYTES * (len(held) - 1)
    fits = np.empty(ROWS_PER_REGISTER, dtype=np.int64)
    index = np.zeros(loops, dtype=np.int64)
    best, best_at = np.empty(width), np.empty(width, dtype=np.int64)
    for start in range(0, inner, ROWS_PER_REGISTER):
        n = min(ROWS_PER_REGISTER, inner - start)
        best[:], best_at[:] = np.inf, -1
        combination, changed = 0, 0
        while changed >= 0:
            for at in range(starts[changed], starts[len(starts) - 1]):
                if code[at, 0] == OPEN:
                    first = where[code[at, 2], 0] + start
                    held[code[at, 1], :n] = columns[first : first + n]
                elif code[at, 0] == OPEN + ALL_ONE:
                    ones[code[at, 1]] = columns[where[code[at, 2], 0] + index[where[code[at, 2], 1]]]
                else:
                    do(code[at, 0], code[at, 1], code[at, 2], code[at, 3], base, spare, ones, n)
            first = combination * inner + start
            if result.shape[1] > 0:
                for row in range(len(outputs)):
                    place = outputs[row]
                    if place < 0:
                        result[row, first : first + n] = ones[~place]
                    else:
                        result[row, first : first + n] = held[place, :n]
            else:
                note(base, spare, ones, outputs, limits, fits, n, first, best, best_at)
            # the next combination: the last loop is the fastest; its level and all inner levels must be evaluated again
            combination += 1
            changed = loops
            while changed > 0:
                index[changed - 1] += 1
                if index[changed - 1] < counts[changed - 1]:
                    break
                index[changed - 1] = 0
                changed -= 1
            if changed == 0:
                changed = -1
        for row in range(width):
            if best_at[row] >= 0 and (best[row] < values[row] or (best[row] == values[row] and best_at[row] < places[row])):
                values[row], places[row] = best[row], best_at[row]
