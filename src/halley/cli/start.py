"""The start of the ``halley`` command: Ctrl-C is answered in words from the first moment, while commands are still loaded."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from importlib import import_module

from halley.cli.interrupts import leave, set_handlers, unraisable

COLLECTION_THRESHOLD = 200_000
"""Objects that a command makes between two looks for cycles: modules and searches make many that stay, and drop few cycles."""

NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
"""Environment variable against a search for plugins of pydantic, which reads the metadata of every installed package. Halley has
none."""


def main() -> None:
    """Entry point of the ``halley`` command; leaves the process with the exit code."""
    set_handlers(leave)
    sys.unraisablehook = unraisable
    gc.set_threshold(COLLECTION_THRESHOLD)
    os.environ.setdefault(NO_PLUGINS, "__all__")
    run = import_module("halley.cli.main").app
    try:
        set_handlers(signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        leave()
    except SystemExit as done:
        _end(done)
    finally:
        set_handlers(signal.SIG_IGN)  # the answer and the exit code stand: the interpreter need only end


def _end(done: SystemExit) -> None:
    """End the process: write all output and run what is registered for the exit, but do not free every object, which takes as
    long as a small search. Raises SystemExit, for the interpreter to tell: the output cannot be written, or the exit code is no
    number."""
    set_handlers(signal.SIG_IGN)
    atexit._run_exitfuncs()
    if not isinstance(done.code, int):
        raise done
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        raise done from None
    os._exit(done.code)
