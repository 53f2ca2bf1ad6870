"""Progress of a search from Python: one bar in a notebook, one line in a terminal."""

from __future__ import annotations

import sys
import time
from html import escape
from importlib import import_module
from typing import Any, TextIO

INTERVAL = 0.2
"""Least time between two states that are shown [s]."""
WIDTH = 24
"""Characters of a bar of text."""


class ProgressBar:
    """What a search calls as its ``progress``: ``halley.plan(..., progress=halley.ProgressBar())``.

    In a notebook it is one HTML bar that is updated in place, in a terminal one line that is written over, and in any other
    stream nothing but the last state. ``with`` shows the last state at the end, also where a search was stopped.

    >>> import io
    >>> with ProgressBar(stream := io.StringIO()) as bar:
    ...     bar("best 3 s, bound 2 s", 0.5)
    ...     bar("best 2 s, proven", 1.0)
    >>> stream.getvalue()
    '100 %  best 2 s, proven\\n'
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._display: Any = _notebook() if stream is None else None
        self._handle: Any = None
        self._began = self._shown = time.monotonic() - INTERVAL
        self._state: tuple[str, float] = "", 0.0
        self._width = 0
        self._begun = False

    def __call__(self, text: str, share: float) -> None:
        """Note what a search has found, and the share of its work that is done."""
        if not self._begun:
            self._begun, self._began = True, time.monotonic()
        self._state = text, min(max(share, 0.0), 1.0)
        now = time.monotonic()
        if now - self._shown >= INTERVAL:
            self._shown = now
            self._show(False)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Show the last state, and begin anew with the next call."""
        if self._begun:
            self._show(True)
        self._handle, self._begun, self._width = None, False, 0

    def _show(self, last: bool) -> None:
        text, share = self._state
        if self._display is not None:
            self._update(text, share)
        elif self._stream.isatty():
            full = round(WIDTH * share)
            line = f"{'█' * full}{'░' * (WIDTH - full)} {share:4.0%} {text}"[:118]
            self._stream.write("\r" + line.ljust(self._width) + ("\n" if last else ""))
            self._stream.flush()
            self._width = len(line)
        elif last:
            self._stream.write(f"{100 * share:.0f} %  {text}\n")

    def _update(self, text: str, share: float) -> None:
        took = f"{time.monotonic() - self._began:.0f} s"
        bar = f'<progress value="{share:.3f}" max="1" style="width:16em;vertical-align:middle"></progress>'
        shown = {
            "text/html": f"<div>{bar} {share:.0%}, {took}: {escape(text)}</div>",
            "text/plain": f"{share:.0%}, {took}: {text}",
        }
        if self._handle is None:
            self._handle = self._display.display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _notebook() -> Any:
    """`IPython.display` where the code runs in a notebook; None elsewhere, also in the IPython of a terminal."""
    if "IPython" not in sys.modules:
        return None
    shell = import_module("IPython").get_ipython()
    return import_module("IPython.display") if shell is not None and hasattr(shell, "kernel") else None
