"""Straight-line code: operations on numbered values, and their registers.

Terms are tabulated directly, one operation after the other; what is evaluated often is written as code first.

Code is written once for each value (`Instruction`: its target is the value's number); `Code` gives it registers. Values that
change with different loops sit at different *levels*, so that a run over a grid computes each only when what it depends on
changes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from halley.formulas.terms import Operation, Term

_OPEN = Operation.OPEN

Array = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]
Place = int | float
"""A register as a whole number, or a constant as a float."""


class Instruction(NamedTuple):
    """One instruction: registers are whole numbers, constants floats. For OPEN, ``a`` is the number of the factor to load."""

    operation: Operation
    target: int
    a: Place
    b: Place

    @property
    def used(self) -> tuple[int, ...]:
        """The values that it reads."""
        operation, _, a, b = self
        if operation is _OPEN:
            return ()
        if type(a) is int:
            return (a, b) if type(b) is int else (a,)
        return (b,) if type(b) is int else ()


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions by level, outermost first; the places of the outputs; the number of registers."""

    levels: tuple[tuple[Instruction, ...], ...]
    outputs: tuple[Place, ...]
    registers: int


def allocated(values: Sequence[Instruction], outputs: Sequence[Place], level: Sequence[int]) -> Code:
    """Register allocation: as many registers as values are live at once. ``level``: the level of each value.

    The target of an instruction is never one of its operands, so that compiled loops have no aliasing. A value that a deeper
    level reads keeps its register, as that level runs repeatedly.
    """
    depth, size = max(level, default=0), len(values)
    moments = [current * size + number for number, current in enumerate(level)] if depth else list(range(size))
    last = moments.copy()  # moment of the last read of each value
    reads = [step.used for step in values]
    for now, used in zip(moments, reads, strict=True):
        for value in used:
            if now > last[value]:
                last[value] = now
    for place in outputs:
        if isinstance(place, int):
            last[place] = (depth + 1) * size
    at: dict[int, int] = {}
    free: list[int] = []
    count = 0
    levels: list[list[Instruction]] = [[] for _ in range(depth + 1)]
    for number in sorted(range(size), key=level.__getitem__) if depth else range(size):
        operation, _, a, b = values[number]
        current, now = level[number], moments[number]
        if free:
            target = free.pop()
        else:
            target, count = count, count + 1
        at[number] = target
        if operation is not _OPEN:
            a = at[a] if type(a) is int else a
            b = at[b] if type(b) is int else b
        levels[current].append(Instruction(operation, target, a, b))
        if last[number] == now:  # never read
            free.append(target)
        for value in reads[number]:
            if last[value] == now and level[value] == current:
                free.append(at[value])
                last[value] = -1  # free it once, even if both operands are the same
    return Code(tuple(map(tuple, levels)), tuple(at[place] if isinstance(place, int) else place for place in outputs), count)


def apply(operation: Operation, a: Any, b: Any = 0.0) -> Any:
    """An operation on arrays or numbers.

    >>> apply(Operation.CEIL_DIVIDE, np.array([13.0, 15.0]), 5.0).tolist()
    [3.0, 3.0]
    """
    return _ARITHMETIC[operation](a, b)


_ARITHMETIC: dict[Operation, Callable[[Any, Any], Any]] = {
    Operation.ADD: operator.add,
    Operation.SUBTRACT: operator.sub,
    Operation.MULTIPLY: operator.mul,
    Operation.DIVIDE: operator.truediv,
    Operation.MINIMUM: np.minimum,
    Operation.MAXIMUM: np.maximum,
    Operation.FLOOR_DIVIDE: lambda a, b: np.floor(a / b),
    Operation.CEIL_DIVIDE: lambda a, b: np.ceil(a / b),
    Operation.POSITIVE: lambda a, _: np.greater(a, 0.0).astype(np.float64),
}


def _rounded(rounding: np.ufunc, a: Any, b: Any, out: Array) -> None:
    """A quotient, rounded."""
    np.divide(a, b, out=out)
    rounding(out, out=out)


def _positive(a: Any, b: Any, out: Array) -> None:
    """1 where a is above 0, else 0."""
    np.greater(a, 0.0, out=out)


_IN_PLACE: dict[Operation, Callable[..., object]] = {
    Operation.ADD: np.add,
    Operation.SUBTRACT: np.subtract,
    Operation.MULTIPLY: np.multiply,
    Operation.DIVIDE: np.divide,
    Operation.MINIMUM: np.minimum,
    Operation.MAXIMUM: np.maximum,
    Operation.FLOOR_DIVIDE: partial(_rounded, np.floor),
    Operation.CEIL_DIVIDE: partial(_rounded, np.ceil),
    Operation.POSITIVE: _positive,
}


Call = tuple[Callable[..., object] | None, int, int, int]
"""An instruction for NumPy: (function, first operand, second operand, target); with None as function, the factor with the number
of the first operand is loaded."""


class NumpyCode(NamedTuple):
    """Code for NumPy: the instructions of all levels as ``calls``, and the ``constants``, which are placed after the
    ``registers``; they are arrays without dims, as NumPy is slower for floats."""

    calls: tuple[Call, ...]
    constants: tuple[Array, ...]
    outputs: tuple[Place, ...]
    registers: int


def numpy_code(code: Code) -> NumpyCode:
    """The code as NumPy calls."""
    constants: dict[float, int] = {}
    registers = code.registers
    calls: list[Call] = []
    for operation, target, a, b in (step for level in code.levels for step in level):
        if operation is _OPEN:
            calls.append((None, int(a), 0, target))
            continue
        first = a if type(a) is int else registers + constants.setdefault(a, len(constants))
        second = b if type(b) is int else registers + constants.setdefault(b, len(constants))
        calls.append((_IN_PLACE[operation], first, second, target))
    return NumpyCode(tuple(calls), tuple(np.array(number) for number in constants), code.outputs, code.registers)


def tabulate(terms: Sequence[Term], columns: Mapping[str, Array]) -> list[Array]:
    """Values of terms for each row of the columns of open numbers."""
    known: dict[int, Any] = {}
    rows = len(next(iter(columns.values())))
    for term in made_of(terms):
        if term.operation is Operation.CONSTANT:
            known[term.index] = float(term.a)
        elif term.operation is _OPEN:
            known[term.index] = columns[term.a]
        elif term.b is None:
            known[term.index] = apply(term.operation, known[term.a.index])
        else:
            known[term.index] = apply(term.operation, known[term.a.index], known[term.b.index])
    return [_column(known[term.index], rows) for term in terms]


def _column(value: Any, rows: int) -> Array:
    """A value for each row."""
    if isinstance(value, np.ndarray) and value.shape == (rows,) and value.dtype == np.float64:
        return value
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,))


def made_of(terms: Sequence[Term]) -> list[Term]:
    """All subterms of some terms, operands first."""
    found: dict[int, Term] = {}
    left = list(terms)
    while left:
        term = left.pop()
        if term.index not in found:
            found[term.index] = term
            left += term.operands
    return [found[index] for index in sorted(found)]
