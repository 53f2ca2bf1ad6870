"""The loop of the event simulation, compiled. Loaded by `halley.serving.simulate` where numba is installed."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numba

from halley.optim.jit import OPTIONS
from halley.serving import event_loop

_NAMES: dict[str, Any] = dict(vars(event_loop))


def _compiled(name: str) -> Any:
    """A function of the loop that calls the compiled ones among the others."""
    function = getattr(event_loop, name)
    made = FunctionType(function.__code__, _NAMES, name, function.__defaults__)
    made.__module__, made.__qualname__ = __name__, name
    try:
        found = numba.njit(cache=True, **OPTIONS)(made)
    except RuntimeError:  # numba finds no folder for its cache
        found = numba.njit(**OPTIONS)(made)
    _NAMES[name] = found
    return found


_FUNCTIONS: tuple[str, ...] = ("unlink", "link_newest", "finish", "line", "surface", "pages_of", "pages_of_step", "extra_pages")
_FUNCTIONS += ("pages_wanted", "hold_pages", "start_decoding", "stop_decoding", "draft_step", "accept")
"""In an order in which each calls those before it."""

for _name in _FUNCTIONS:
    _compiled(_name)
run = _compiled("run")
