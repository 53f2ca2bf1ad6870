"""The loop of the event simulation, compiled. Loaded by `halley.serving.simulate` where numba is installed."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from halley.optim.jit import WITHOUT_COUNTS, cached
from halley.serving.events import loop, sequences, state, times

_FUNCTIONS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (times, ("interval", "line", "surface", "prompt_time", "draft_time", "step_time")),
    (sequences, ("unlink", "link_newest", "finish", "pages_of", "pages_of_step", "extra_pages", "pages_wanted", "hold_pages")),
    (sequences, ("start_decoding", "stop_decoding", "end_decoding", "accept")),
    (loop, ("available", "received", "send", "receive", "put_on_stack", "preempt", "begin", "take_tokens", "continue_prompts")),
    (loop, ("must_wait", "new_sequence", "swap_in", "admit", "restart_newest", "steps_ahead", "advance", "end_prompts", "run")),
)
"""In an order in which each calls those before it."""

_SOURCES = tuple(Path(str(module.__file__)) for module in (state, times, sequences, loop))
_VERSION = sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]
"""Of the source. It is part of the names of cached functions: numba sees no change of a file other than the function's own, and
fails on a class that has gone."""
_NAMES: dict[str, Any] = dict(vars(times)) | dict(vars(sequences)) | dict(vars(loop))


def _compiled(module: ModuleType, name: str) -> Any:
    """A function of the loop that calls the compiled ones among the others."""
    function = getattr(module, name)
    made = FunctionType(function.__code__, _NAMES, name, function.__defaults__)
    made.__module__, made.__qualname__ = __name__, f"{name}_{_VERSION}"
    return cached(made, **WITHOUT_COUNTS, forceinline=name != "run")


for _module, _names in _FUNCTIONS:
    for _name in _names:
        _NAMES[_name] = _compiled(_module, _name)
run = _NAMES["run"]
