"""What Ctrl-C does at each stage of the command.

Python raises `KeyboardInterrupt` at whatever step is next, and there it may be lost: an exception cannot leave a callback of the
import system or of the garbage collector, and loading code may take it for a failure of its own. So while code is loaded
Ctrl-C ends the process at once; while a command works it is raised, so that files are tidied up; and a search asks at its next
step whether there was one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit code: 128 and the number of the signal, as shells have it."""


def leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """End the process at once, in words. As a handler it raises nothing that could be lost."""
    try:
        os.write(2, b"halley: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def on_interrupt(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Ctrl-C calls the handler; in other threads, which do not receive it, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def noted() -> Iterator[list[int]]:
    """Collects the Ctrl-Cs that arrive, beside the KeyboardInterrupt that each raises."""
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
