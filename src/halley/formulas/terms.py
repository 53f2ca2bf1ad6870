"""Symbolic numbers: running the cost formulas on them once gives the expressions for a whole set of mappings.

A `Term` is a node of an expression over named open numbers (variables). Equal terms of one `TermFactory` are the same object, so
common subexpressions of formulas are computed once. A term has the operations of the formula in their order: evaluated in double
precision it equals the formula's value on numbers bit for bit.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Operation(IntEnum):
    """The operation of a term on its arguments."""

    CONSTANT = 0
    OPEN = 1
    ADD = 2
    SUBTRACT = 3
    MULTIPLY = 4
    DIVIDE = 5
    MINIMUM = 6
    MAXIMUM = 7
    FLOOR_DIVIDE = 8
    CEIL_DIVIDE = 9
    POSITIVE = 10


_CONSTANT, _OPEN, _ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _MINIMUM, _MAXIMUM, _FLOOR_DIVIDE, _CEIL_DIVIDE, _POSITIVE = Operation
_QUOTIENTS = (_DIVIDE, _FLOOR_DIVIDE, _CEIL_DIVIDE)
# members by plain names: they are looked up millions of times


Range = tuple[int, int | None]
"""Least and greatest value of an open number; None: unlimited."""


class TermFactory:
    """Makes terms, each distinct one once. The kind of an open number is the dim whose tile size it is."""

    def __init__(self) -> None:
        self._known: dict[tuple[Operation, int, int], Term] = {}
        self._constants: dict[float, Term] = {}
        self._opened: dict[tuple[str, str, Range], Term] = {}
        self._kinds: dict[frozenset[str], frozenset[str]] = {}
        self.count = 0

    def open(self, name: str, kind: str, among: Range = (1, None)) -> Term:
        """An open whole number within the range ``among``."""
        key = (name, kind, among)
        if key not in self._opened:
            self._opened[key] = self._new(_OPEN, name, among, self._joined(frozenset((kind,)), _NONE))
        return self._opened[key]

    def constant(self, value: float) -> Term:
        """The term of a number."""
        found = self._constants.get(value)
        if found is None:
            found = self._constants[value] = self._new(_CONSTANT, value, None, _NONE)
        return found

    def combine(self, operation: Operation, a: Any, b: Any) -> Any:
        """The term of an operation on terms and numbers, simplified where a number (0 or 1) allows it."""
        if type(a) is not Term:
            if operation is _MULTIPLY:
                if a == 1:
                    return b
                if a == 0:
                    return 0
            elif operation is _ADD:
                if a == 0:
                    return b
            elif a == 0 and operation in _QUOTIENTS:
                return 0
            a = self.constant(a)
        elif type(b) is not Term:
            if operation is _MULTIPLY or operation is _DIVIDE:
                if b == 1:
                    return a
                if b == 0 and operation is _MULTIPLY:
                    return 0
            elif b == 0 and (operation is _ADD or operation is _SUBTRACT):
                return a
            elif operation is _MINIMUM and a.operation is _OPEN and b <= a.b[0]:
                return b
            b = self.constant(b)
        elif a is b:
            if operation is _MINIMUM or operation is _MAXIMUM:
                return a
            if operation is _SUBTRACT:
                return 0
        return self.of_terms(operation, a, b)

    def of_terms(self, operation: Operation, a: Term, b: Term) -> Term:
        """The term of an operation on two terms, as it is."""
        key = (operation, a.index, b.index)
        found = self._known.get(key)
        if found is None:
            self.count += 1
            kinds = a.kinds if a.kinds is b.kinds else self._joined(a.kinds, b.kinds)
            found = self._known[key] = Term(self, operation, a, b, kinds, self.count)
        return found

    def _joined(self, a: frozenset[str], b: frozenset[str]) -> frozenset[str]:
        """The union. Equal sets are one object: there are millions of terms, but few sets of kinds."""
        if b <= a:
            return a
        if a <= b:
            return b
        joined = a | b
        return self._kinds.setdefault(joined, joined)

    def positive(self, a: Term) -> Term:
        """1 where the term is above 0, else 0."""
        key = (_POSITIVE, a.index, -1)
        if key not in self._known:
            self._known[key] = self._new(_POSITIVE, a, None, a.kinds)
        return self._known[key]

    def _new(self, operation: Operation, a: Any, b: Any, kinds: frozenset[str]) -> Term:
        self.count += 1
        return Term(self, operation, a, b, kinds, self.count)


_NONE: frozenset[str] = frozenset()


class Term:
    """One node of an expression: its operation, its arguments (a value for a constant, a name and the range for an open number),
    and the kinds of the open numbers in it."""

    __slots__ = ("a", "b", "index", "kinds", "operation", "terms")

    def __init__(self, terms: TermFactory, operation: Operation, a: Any, b: Any, kinds: frozenset[str], index: int) -> None:
        self.terms = terms
        self.operation = operation
        self.a = a
        self.b = b
        self.kinds = kinds
        self.index = index

    @property
    def operands(self) -> tuple[Term, ...]:
        """The terms among its arguments."""
        if self.operation is _OPEN or self.operation is _CONSTANT:
            return ()
        return (self.a,) if self.b is None else (self.a, self.b)

    def __add__(self, other: Any) -> Any:
        if type(other) is Term:
            return self.terms.of_terms(_ADD, self, other)
        return self.terms.combine(_ADD, self, other)

    def __radd__(self, other: Any) -> Any:
        return self.terms.combine(_ADD, other, self)

    def __sub__(self, other: Any) -> Any:
        return self.terms.combine(_SUBTRACT, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.terms.combine(_SUBTRACT, other, self)

    def __mul__(self, other: Any) -> Any:
        if type(other) is Term:
            return self.terms.of_terms(_MULTIPLY, self, other)
        return self.terms.combine(_MULTIPLY, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.terms.combine(_MULTIPLY, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.terms.combine(_DIVIDE, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.terms.combine(_DIVIDE, other, self)

    def __bool__(self) -> bool:
        raise TypeError("an open number is neither true nor false: a formula must not branch on it")

    def __repr__(self) -> str:
        if self.operation in (_CONSTANT, _OPEN):
            return str(self.a)
        return f"{self.operation.name.lower()}({self.a!r}{'' if self.b is None else f', {self.b!r}'})"
