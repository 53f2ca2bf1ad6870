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

from halley.errors import BadInput, Fault, UnitError, did_you_mean
from halley.sweeps.values import EXPONENTS, quantity
from halley.units import Quantity

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
    """An expression that was read: its text, the names that it uses, and whether it compares. Its numbers with a unit are names
    of their own in the tree."""

    text: str
    names: frozenset[str]
    compares: bool
    _tree: ast.expr
    _quantities: Mapping[str, Quantity]

    def value(self, numbers: Mapping[str, float]) -> float:
        """The number, or 1 and 0 for true and false. Raises BadInput: there is none, such as a division by 0."""
        try:
            return float(_value(self._tree, {**numbers, **self._constants}))
        except (ArithmeticError, ValueError, TypeError) as error:
            raise BadInput(Fault(self.text, "a number for every design", str(error))) from None

    def unit(self, units: Mapping[str, Quantity]) -> Quantity | None:
        """One of the unit that the number has, where those of its names are known; None: that of a name is not known. Raises
        BadInput (its fault is at no place): a sum or comparison of different units, or a function of a quantity that has none.

        >>> expression("die_area / 1 mm2 + 1", ["die_area"]).unit({"die_area": Quantity.of(1.0, m=2)})
        Quantity(1.0, 1)
        >>> expression("macs <= 5 W", ["macs"]).unit({"macs": Quantity(1.0)})
        Traceback (most recent call last):
        halley.errors.BadInput: : expected quantities of one unit; got a number without a unit and a power in 'macs <= 5 W'
        """
        try:
            return _unit(self._tree, {**units, **self._quantities})
        except UnitError as error:
            wrong = error.faults[0]
            raise BadInput(Fault("", wrong.expected, f"{wrong.got} in {self.text!r}")) from None

    @property
    def _constants(self) -> Mapping[str, float]:
        return {name: each.value for name, each in self._quantities.items()}


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
    quantities: dict[str, Quantity] = {}

    def named(match_: re.Match[str]) -> str:
        found = quantity(f"{match_[1]} {match_[2]}", 1e9)
        if found is None:
            return match_[0]
        name = f"quantity__{len(quantities)}"
        quantities[name] = found
        return name

    try:
        tree = ast.parse(_QUANTITY.sub(named, text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(Fault("", "arithmetic, such as 'macs <= 4096'", repr(text))) from None
    used: set[str] = set()
    _check(tree, used, text)
    used -= quantities.keys()
    if strange := sorted(used - set(names)):
        raise BadInput([Fault("", "a figure or an axis", repr(name), did_you_mean(name, names)) for name in strange])
    return Expression(text, frozenset(used), isinstance(tree, ast.Compare | ast.BoolOp), tree, quantities)


def limit_of(rule: Expression) -> tuple[str, float] | None:
    """The name and the number of a constraint of the form ``name <= number``; None for any other.

    >>> limit_of(expression("glb.capacity <= 4 MiB", ["glb.capacity"])), limit_of(expression("macs >= 4", ["macs"]))
    (('glb.capacity', 4194304.0), None)
    """
    match rule._tree:
        case ast.Compare(left=ast.Name() | ast.Attribute() as left, ops=[ast.LtE()], comparators=[number]):
            found: set[str] = set()
            _check(number, found, rule.text)
            of_others = found - rule._quantities.keys()
            return None if of_others else (_dotted(left, rule.text), _value(number, rule._constants))
    return None


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


def _unit(node: ast.expr, units: Mapping[str, Quantity]) -> Quantity | None:
    """One of the unit of a part; None where it is not known, or the part is 0, which has any. Raises UnitError: there is none."""

    def same(nodes: Iterable[ast.expr]) -> Quantity | None:
        found = [each for each in (_unit(node, units) for node in nodes) if each is not None]
        if strange := [each for each in found if each.exponents != found[0].exponents]:
            got = f"{_unit_text(found[0])} and {_unit_text(strange[0])}"
            raise UnitError(Fault("", "quantities of one unit", got))
        return found[0] if found else None

    match node:
        case ast.Constant(value=value):
            return Quantity(1.0) if value else None
        case ast.Name() | ast.Attribute():
            return (found := units.get(_dotted(node, ""))) and Quantity(1.0, found.exponents)
        case ast.UnaryOp(operand=inner):
            return _unit(inner, units)
        case ast.BinOp(left=left, right=right, op=ast.Mult() | ast.Div() as op):
            one, other = _unit(left, units), _unit(right, units)
            if one is None or other is None:
                return None
            return one * other if isinstance(op, ast.Mult) else one / other
        case ast.BinOp(left=left, right=ast.Constant(value=int() as power), op=ast.Pow()):
            base = _unit(left, units)
            return None if base is None else base**power
        case ast.BinOp(left=left, right=right, op=ast.Pow()):
            return _bare([left, right], units)
        case ast.BinOp(left=left, right=right):
            return same([left, right])
        case ast.Compare(left=left, comparators=others):
            same([left, *others])
        case ast.BoolOp(values=parts):
            for part in parts:
                _unit(part, units)
        case ast.Call(func=ast.Name(id="min" | "max"), args=parts):
            return same(parts)
        case ast.Call(args=parts):
            return _bare(parts, units)
    return Quantity(1.0)


def _bare(parts: Iterable[ast.expr], units: Mapping[str, Quantity]) -> Quantity:
    """The unit of a function of bare numbers. Raises UnitError: one of them has a unit."""
    for part in parts:
        if (found := _unit(part, units)) is not None and found.exponents:
            raise UnitError(Fault("", "a number without a unit in a function or an exponent", _unit_text(found)))
    return Quantity(1.0)


def _unit_text(of: Quantity) -> str:
    words = {Quantity.of(1.0, **powers).exponents: name for name, powers in EXPONENTS.items()}
    return words.get(of.exponents, of.unit) if of.exponents else "a number without a unit"


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
