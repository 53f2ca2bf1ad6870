"""The start of the ``halley`` command: Ctrl-C is answered in words from the first moment, while commands are still loaded."""

from __future__ import annotations

import signal
import sys
from importlib import import_module


def main() -> None:
    """Entry point of the ``halley`` command; leaves the process with the exit code."""
    try:
        run = import_module("halley.cli.main").app
    except KeyboardInterrupt:
        print("halley: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    run()
