"""Helpers that let one equation run on Python numbers, on NumPy arrays and on symbolic terms.

Whole numbers stay exact: Python integers without limit, arrays as float64 below 2**53, where the
quotient of two whole numbers is never rounded across an integer.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast, overload

import numpy as np

from halley.formulas.terms import Operation, Term

Number: TypeAlias = float | np.ndarray[Any, np.dtype[np.float64]]
"""A whole number, a float, or a NumPy float64 array of either. Formulas also run on terms: see `as_number`."""


def as_number(term: Term) -> Number:
    """A term where a formula expects a number; of the operations that both have, formulas use no others."""
    return cast(Number, term)


@overload
def floor_div(a: int, b: int) -> int: ...
@overload
def floor_div(a: float, b: float) -> float: ...
@overload
def floor_div(a: Number, b: Number) -> Number: ...


def floor_div(a: Any, b: Any) -> Any:
    """Whole part of a / b for non-negative a, positive b.

    >>> floor_div(13, 5), floor_div(np.array([13.0, 15.0]), 5.0).tolist()
    (2, [2.0, 3.0])
    """
    if type(a) is Term or type(b) is Term:
        return (a if type(a) is Term else b).terms.combine(Operation.FLOOR_DIVIDE, a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.floor(a / b)
    return a // b


@overload
def ceil_div(a: int, b: int) -> int: ...
@overload
def ceil_div(a: float, b: float) -> float: ...
@overload
def ceil_div(a: Number, b: Number) -> Number: ...
def ceil_div(a: Any, b: Any) -> Any:
    """Tiles of b needed to cover a.

    >>> ceil_div(13, 5), ceil_div(np.array([13.0, 15.0]), 5.0).tolist()
    (3, [3.0, 3.0])
    """
    if type(a) is Term or type(b) is Term:
        return (a if type(a) is Term else b).terms.combine(Operation.CEIL_DIVIDE, a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.ceil(a / b)
    return -(-a // b)


@overload
def minimum(a: int, b: int) -> int: ...
@overload
def minimum(a: float, b: float) -> float: ...
@overload
def minimum(a: Number, b: Number) -> Number: ...
def minimum(a: Any, b: Any) -> Any:
    """The smaller, elementwise.

    >>> minimum(3, 2)
    2
    """
    if type(a) is Term or type(b) is Term:
        return (a if type(a) is Term else b).terms.combine(Operation.MINIMUM, a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return b if b < a else a


@overload
def maximum(a: int, b: int) -> int: ...
@overload
def maximum(a: float, b: float) -> float: ...
@overload
def maximum(a: Number, b: Number) -> Number: ...
def maximum(a: Any, b: Any) -> Any:
    """The larger, elementwise.

    >>> maximum(3, 2)
    3
    """
    if type(a) is Term or type(b) is Term:
        return (a if type(a) is Term else b).terms.combine(Operation.MAXIMUM, a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return b if b > a else a


@overload
def positive(a: float) -> float: ...
@overload
def positive(a: Number) -> Number: ...
def positive(a: Any) -> Any:
    """1 where a > 0, else 0.

    >>> positive(3), positive(np.array([0.0, 2.0])).tolist()
    (1, [0.0, 1.0])
    """
    if type(a) is Term:
        return a.terms.positive(a)
    if isinstance(a, np.ndarray):
        return (a > 0).astype(np.float64)
    return 1 if a > 0 else 0


def anywhere(a: Any) -> bool:
    """Whether a number, or any entry of an array, is not zero; a term may be.

    >>> anywhere(0), anywhere(np.array([0.0, 2.0]))
    (False, True)
    """
    if type(a) is Term:
        return True
    return bool(a.any()) if isinstance(a, np.ndarray) else a != 0
