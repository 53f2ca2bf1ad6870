"""The optional accelerator: two loops that numba compiles once, for all programs, and keeps on disk.

Each reads a program's instructions and does them on blocks of rows that stay in a core's nearest cache. The operations and their order are those of
the NumPy loops, with no licence to reassociate or to contract, so the numbers are the same bits (a zero's sign aside). Nothing imports this
module but `halley.cost.switch`: numba takes a good part of a second to load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from halley.cost.grid import Grid
from halley.cost.instructions import Array, Code, Indices, Place, Step
from halley.formulas.terms import Operation

BLOCK = 256
"""Rows of one register: some dozen registers fit into 48 KiB."""

ADD, SUBTRACT, MULTIPLY, DIVIDE = (int(op) for op in (Operation.ADD, Operation.SUBTRACT, Operation.MULTIPLY, Operation.DIVIDE))
MINIMUM, MAXIMUM = int(Operation.MINIMUM), int(Operation.MAXIMUM)
FLOOR_DIVIDE, CEIL_DIVIDE, OPEN = int(Operation.FLOOR_DIVIDE), int(Operation.CEIL_DIVIDE), int(Operation.OPEN)
FIRST_ONE, SECOND_ONE, ALL_ONE = 16, 32, 48
"""Added to an operation: its first operand, its second operand, or all that it has to do with is one number instead of a block."""


class Kind(Protocol):
    """A factor as far as it matters here: the dim that its table is over."""

    @property
    def kind(self) -> str: ...


class Rows:
    """A program with its tables, run on a node per dim and row. ``code`` has one level."""

    def __init__(self, code: Code, factors: Sequence[Kind], tables: Sequence[Array]) -> None:
        self.dims = tuple(dict.fromkeys(factor.kind for factor in factors))
        self._tables = [np.ascontiguousarray(table, dtype=np.float64) for table in tables]  # kept: the addresses point into them
        self._where = np.empty((len(tables), 3), dtype=np.int64)
        for row, (factor, table) in enumerate(zip(factors, self._tables, strict=True)):
            self._where[row] = table.ctypes.data, len(table), self.dims.index(factor.kind)
        self._packed = _Packed(code, [True] * code.registers, lambda step: True)

    def __call__(self, choices: Mapping[str, Indices], rows: int) -> Array:
        """One row per output."""
        nodes = np.empty((len(self.dims), rows), dtype=np.int64)
        for row, dim in enumerate(self.dims):
            nodes[row] = choices[dim]
        packed = self._packed
        result = np.empty((len(packed.outputs), rows))
        _run_rows(packed.code, packed.ones, packed.outputs, self._where, nodes, packed.registers, result)
        return result


