"""The start of the ``halley`` command: Ctrl-C is answered in words from the first moment, while commands are still loaded."""

from __future__ import annotations

import signal
import sys
from importlib import import_module

from halley.cli.interrupts import leave, unraisable


def main() -> None:
    """Entry point of the ``halley`` command; leaves the process with the exit code."""
    # set even where the parent had Ctrl-C ignored, as shells do for what scripts start beside them: a search has always taken it
    signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = unraisable
    run = import_module("halley.cli.main").app
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        leave()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer and the exit code stand: the interpreter need only end
