"""The start of the ``halley`` command: Ctrl-C is answered in words from the first moment, while commands are still loaded."""

from __future__ import annotations

import gc
import signal
import sys
from importlib import import_module

from halley.cli.interrupts import leave, set_handlers, unraisable

ALLOCATIONS = 100_000
"""Objects that a command makes between two looks for cycles: modules and searches make many that stay, and drop few cycles."""


def main() -> None:
    """Entry point of the ``halley`` command; leaves the process with the exit code."""
    set_handlers(leave)
    sys.unraisablehook = unraisable
    gc.set_threshold(ALLOCATIONS)
    run = import_module("halley.cli.main").app
    try:
        set_handlers(signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        leave()
    finally:
        set_handlers(signal.SIG_IGN)  # the answer and the exit code stand: the interpreter need only end
