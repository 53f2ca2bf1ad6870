"""What Ctrl-C, and the signals that ask a process to end, do at each stage of the command.

Python raises `KeyboardInterrupt` at whatever step is next, and there it may be lost: an exception cannot leave a callback of the
import system or of the garbage collector, and loading code may take it for a failure of its own. So while code is loaded
Ctrl-C ends the process at once; while a command works it is raised, so that files are tidied up; and a search asks at its next
step whether there was one. A batch system ends a job by SIGTERM, a lost terminal by SIGHUP: both are treated like Ctrl-C, so
that a search keeps its best answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED_EXIT_CODE = 130
"""Exit code of an interrupted command: 128 and the number of the signal of Ctrl-C, as shells have it."""

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that end a command. SIGHUP is unknown to Windows."""

Handler = Callable[[int, FrameType | None], object]


def name_of(number: int) -> str:
    """A signal in words."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def set_handlers(handler: Handler | signal.Handlers) -> dict[int, Any]:
    """Let the signals call the handler; returns what they called before. What the parent had ignored stays so (as ``nohup`` does
    with SIGHUP), but for Ctrl-C: shells have it ignored for what scripts start beside them, and a search has always taken it."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, old in before.items():
        if number == signal.SIGINT or old is not signal.SIG_IGN:
            signal.signal(number, handler)
    return before


def leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """End the process at once, in words. As a handler it raises nothing that could be lost."""
    try:
        os.write(2, b"halley: interrupted\n")
    finally:
        os._exit(INTERRUPTED_EXIT_CODE)


@contextmanager
def on_interrupt(handler: Handler) -> Iterator[None]:
    """The signals call the handler; in other threads, which do not receive them, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = set_handlers(handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


@contextmanager
def noted() -> Iterator[list[int]]:
    """Collects the signals that arrive, beside the KeyboardInterrupt that each raises."""
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    with on_interrupt(handler):
        yield seen


def unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """The process's hook for exceptions that Python cannot raise. A Ctrl-C among them would be lost, unless it is noted."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        leave()
