"""A contraction on the matrix engine: passes of a tile over the array, and cycles (docs/model.md, "Matrix engine")."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.formulas.engines import systolic_cycles
from halley.ir.array import Array, Side, on_sides, sides
from halley.ir.hardware import Dataflow, MatrixEngine
from halley.ir.workload import Roles
from halley.simulate.members import SimulationScope


@dataclass(frozen=True, slots=True)
class ArrayMapping:
    """The dims of a contraction by ``role``, and the dims that a mapping names for the ``array``."""

    engine: MatrixEngine
    role: Roles
    array: Array

    def passes(self, scope: SimulationScope, row: int) -> tuple[int, int, int]:
        """How often a member reads each element of both inputs, and writes each element of its result."""
        role = self.role
        on_rows, on_columns = self._folds(scope, row)
        match self.engine.dataflow:
            case Dataflow.WEIGHT:
                return on_columns, 1, on_rows
            case Dataflow.INPUT:
                return 1, on_columns, on_rows
            case Dataflow.OUTPUT:
                return on_columns, on_rows, 1
            case Dataflow.NONE:
                columns, rows, reduced = (math.prod(scope.sizes(dims, row)) for dims in (role.columns, role.rows, role.reduced))
                return columns, rows, reduced

    def cycles(self, scope: SimulationScope) -> float:
        """Cycles of the critical member's tile."""
        engine, role = self.engine, self.role
        rows, columns, reduced, batch = (scope.sizes(dims) for dims in (role.rows, role.columns, role.reduced, role.batch))
        load, whole = 0 if engine.prefetch or engine.back_to_back else engine.rows, engine.granularity
        m, n, k = _filled(rows, whole.rows), _filled(columns, whole.columns), _filled(reduced, whole.reduced)
        match engine.dataflow:
            case Dataflow.WEIGHT:
                stream, multiples = m, (whole.reduced, whole.columns)
            case Dataflow.INPUT:
                stream, multiples = n, (whole.reduced, whole.rows)
            case Dataflow.OUTPUT:
                stream, multiples, load = k, (whole.rows, whole.columns), 0
            case Dataflow.NONE:
                return m * n * k * math.prod(batch)
        folds = math.prod(batch) * math.prod(self._folds(scope, 0, multiples))
        return float(systolic_cycles(folds, stream, 1, *engine.filling, load))

    def _folds(self, scope: SimulationScope, row: int, multiples: tuple[int, int] = (1, 1)) -> tuple[int, int]:
        """Folds of a member's tile over the rows and over the columns of the array, rounded up to ``multiples``."""

        def passes(dims: tuple[str, ...], side: Side, width: int, multiple: int) -> int:
            walked = scope.sizes((dim for dim in dims if dim not in side), row)
            return _folds(walked, scope.sizes(side, row), width, multiple)

        engine = self.engine
        rows, columns = sides(self.role, engine.dataflow)
        on_rows, on_columns = on_sides(self.array, self.role, engine.dataflow)
        return passes(rows, on_rows, engine.rows, multiples[0]), passes(columns, on_columns, engine.cols, multiples[1])


def _folds(walked: list[int], on_array: list[int], width: int, multiple: int = 1) -> int:
    """Folds of the dims on one side of an array of ``width`` points; the other dims are iterated index by index.

    >>> _folds([3], [5, 2], 4), _folds([3], [5, 2], 4, 16)
    (9, 12)
    """
    points = -(-math.prod(on_array) // multiple) * multiple
    return math.prod(walked) * -(-points // width)


def _filled(extents: list[int], multiple: int) -> int:
    """Points of a tile with the last dim rounded up to a multiple.

    >>> _filled([3, 5], 4), _filled([], 4)
    (24, 1)
    """
    return math.prod(extents[:-1]) * -(-extents[-1] // multiple) * multiple if extents else 1
