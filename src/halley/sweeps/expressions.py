"""Formulas and constraints of a study: arithmetic and comparisons of named numbers.

The text is parsed by Python's parser and evaluated here, node by node: nothing but numbers, names and the operators below is
accepted, so that a study file cannot run code. A quantity may have a unit: ``glb.capacity <= 4 MiB``.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.sweeps.values import in_si

LENGTH_LIMIT = 500
"""Longest text of an expression."""

_QUANTITY = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµ]+2?(?:/s|/B)?)(?![\w.(])")
_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max, "sqrt": math.sqrt, "log2": math.log2, "ceil": math.ceil}


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read: its text, the names that it uses, and whether it compares."""

    text: str
    names: frozenset[str]
    compares: bool
    _tree: ast.expr

    def value(self, numbers: Mapping[str, float]) -> float:
        """The number, or 1 and 0 for true and false. Raises BadInput: there is none, such as a division by 0."""
        try:
            return float(_value(self._tree, numbers))
        except (ArithmeticError, ValueError, TypeError) as error:
            raise BadInput(Fault(self.text, "a number for every design", str(error))) from None


def expression(text: str, known: Iterable[str]) -> Expression:
    """The expression that the text holds.

    >>> expression("glb.capacity <= 4 MiB", ["glb.capacity"]).value({"glb.capacity": 2**20})
    1.0
    >>> expression("5 + 2 * macs", ["macs"]).value({"macs": 3})
    11.0

    Raises BadInput (its fault is at no place): not of this form, or a name that is not known.
    """
    names = tuple(known)
    if len(text) > LENGTH_LIMIT:
        raise BadInput(Fault("", f"at most {LENGTH_LIMIT} characters", f"{len(text)}"))
    try:
        tree = ast.parse(_QUANTITY.sub(_number, text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(Fault("", "arithmetic, such as 'macs <= 4096'", repr(text))) from None
    used: set[str] = set()
    _check(tree, used, text)
    if strange := sorted(used - set(names)):
        raise BadInput([Fault("", "a figure or an axis", repr(name), did_you_mean(name, names)) for name in strange])
    return Expression(text, frozenset(used), isinstance(tree, ast.Compare | ast.BoolOp), tree)


def limit_of(rule: Expression) -> tuple[str, float] | None:
    """The name and the number of a constraint of the form ``name <= number``; None for any other.

    >>> limit_of(expression("glb.capacity <= 4 MiB", ["glb.capacity"])), limit_of(expression("macs >= 4", ["macs"]))
    (('glb.capacity', 4194304.0), None)
    """
    match rule._tree:
        case ast.Compare(left=ast.Name() | ast.Attribute() as left, ops=[ast.LtE()], comparators=[number]):
            found: set[str] = set()
            _check(number, found, rule.text)
            return None if found else (_dotted(left, rule.text), _value(number, {}))
    return None


def _number(match_: re.Match[str]) -> str:
    found = in_si(f"{match_[1]} {match_[2]}", 1e9)
    return match_[0] if found is None else f"({found!r})"


def _check(node: ast.expr, used: set[str], text: str) -> None:
    match node:
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            if abs(value) > 1e300:
                raise BadInput(Fault("", "numbers up to 1e300", text))
        case ast.Name() | ast.Attribute():
            used.add(_dotted(node, text))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            _check(inner, used, text)
        case ast.BinOp(left=left, right=right, op=op) if type(op) in _BINARY:
            _check(left, used, text)
            _check(right, used, text)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARED for op in ops):
            for part in (left, *others):
                _check(part, used, text)
        case ast.BoolOp(values=parts):
            for part in parts:
                _check(part, used, text)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS and parts:
            for part in parts:
                _check(part, used, text)
        case _:
            words = ", ".join(_FUNCTIONS)
            raise BadInput(Fault("", f"numbers, figures, axes, + - * / % **, comparisons, and, or, {words}", repr(text)))


def _dotted(node: ast.expr, text: str) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return f"{_dotted(inner, text)}.{name}"
    raise BadInput(Fault("", "names joined by dots", repr(text)))


def _value(node: ast.expr, numbers: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=value):
            return float(str(value))
        case ast.Name() | ast.Attribute():
            return numbers[_dotted(node, "")]
        case ast.UnaryOp(operand=inner):
            return -_value(inner, numbers)
        case ast.BinOp(left=left, right=right, op=op):
            return _BINARY[type(op)](_value(left, numbers), _value(right, numbers))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(part, numbers) for part in (left, *others)]
            pairs = zip(ops, values[:-1], values[1:], strict=True)
            return float(all(_COMPARED[type(op)](one, other) for op, one, other in pairs))
        case ast.BoolOp(op=ast.And(), values=parts):
            return float(all(_value(part, numbers) for part in parts))
        case ast.BoolOp(values=parts):
            return float(any(_value(part, numbers) for part in parts))
        case ast.Call(func=ast.Name(id=name), args=parts):
            return float(_FUNCTIONS[name](*(_value(part, numbers) for part in parts)))
    raise TypeError(f"no value of {type(node).__name__}")
