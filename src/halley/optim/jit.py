"""Compilation of loops by numba: types, options, and a pointer to doubles.

Only modules of compiled loops import this one, and `halley.optim.switch` loads them on demand: importing numba takes a good
part of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.extending import intrinsic

OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""Division by zero gives infinities, as in NumPy."""
WITHOUT_COUNTS: dict[str, Any] = OPTIONS | {"_nrt": False}
"""Of functions that allocate nothing: references to their arrays are not counted, which takes several times as long as a short
function. The name of numba's option is private."""

INT, FLOAT = types.int64, types.float64
INTS, INT_ROWS = types.Array(INT, 1, "C"), types.Array(INT, 2, "C")
ONES, ROWS = types.Array(FLOAT, 1, "C"), types.Array(FLOAT, 2, "C")
DOUBLES = types.CPointer(FLOAT)
"""Registers are passed by address: passing an array updates its reference count at each step, which takes longer than the step.
"""

Doubles = Any

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: Any) -> Callable[[Function], Function]:
    """A decorator that compiles a function at once, for the types of the ``signature`` only, and caches the machine code on
    disk where a folder is writable."""

    def decorate(function: Function) -> Function:
        return cast(Function, cached(function, signature, **OPTIONS))

    return decorate


def cached(function: Callable[..., Any], *signature: Any, **options: Any) -> Any:
    """The function compiled with these options, for the types of the ``signature`` or those that it is called with; machine code
    is cached on disk where a folder is writable."""
    try:
        return numba.njit(*signature, cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder for its cache
        return numba.njit(*signature, **options)(function)


def _pointer(typing: Any, address: Any) -> Any:
    """Code generation for the conversion of an address to a pointer to doubles."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return DOUBLES(INT), generate


pointer = intrinsic(_pointer)
