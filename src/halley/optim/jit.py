"""How loops are compiled by numba: types, options, and a pointer to doubles.

Nothing imports this module but modules of compiled loops, which `halley.optim.switch` loads: numba takes a good part of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.extending import intrinsic

OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""Division by zero gives infinities, as in NumPy."""

INT, FLOAT = types.int64, types.float64
INTS, INT_ROWS = types.Array(INT, 1, "C"), types.Array(INT, 2, "C")
ONES, ROWS = types.Array(FLOAT, 1, "C"), types.Array(FLOAT, 2, "C")
DOUBLES = types.CPointer(FLOAT)
"""Registers go by address: an array would have its references counted at each step, which takes longer than the step."""

Doubles = Any

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: Any) -> Callable[[Function], Function]:
    """A decorator: the function in machine code, kept on disk where there is a folder to write to. It is compiled
    at once, for the types of the ``signature`` and no others."""

    def decorate(function: Function) -> Function:
        try:
            return cast(Function, numba.njit(signature, cache=True, **OPTIONS)(function))
        except RuntimeError:  # numba finds no folder for its cache
            return cast(Function, numba.njit(signature, **OPTIONS)(function))

    return decorate


def _pointer(typing: Any, address: Any) -> Any:
    """How the compiler makes an address a pointer to doubles."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return DOUBLES(INT), generate


pointer = intrinsic(_pointer)
