"""The start of the ``halley`` command: Ctrl-C is answered in words from the first moment, while commands are still loaded."""

from __future__ import annotations

import gc
import signal
import sys
from importlib import import_module

from halley.cli.interrupts import leave, unraisable

ALLOCATIONS = 200_000
"""Objects that a command makes between two looks for cycles: modules and searches make many that stay, and drop few cycles."""


def main() -> None:
    """Entry point of the ``halley`` command; leaves the process with the exit code."""
    # set even where the parent had Ctrl-C ignored, as shells do for what scripts start beside them: a search has always taken it
    signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = unraisable
    gc.set_threshold(ALLOCATIONS)
    run = import_module("halley.cli.main").app
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        leave()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer and the exit code stand: the interpreter need only end
        gc.freeze()  # else the interpreter looks for cycles among all objects of the search several times before it ends
