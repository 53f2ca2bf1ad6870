"""Whether loops run compiled: the optional accelerator (`pip install 'halley[fast]'`), and when it is loaded.

Compiled loops perform the same operations in the same order as NumPy and return the same numbers; only the time differs.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from types import ModuleType

from halley.errors import BadInput, Fault

MODE_VARIABLE = "HALLEY_ACCELERATOR"
MODES = ("auto", "off", "on")

LOAD_AFTER_SECONDS = 10.0
"""NumPy work [s] after which ``auto`` loads the compiled loops: many times their loading time, and twice their compilation on
first use. So short runs never load them, and a run that ends just after loading loses little."""


@dataclass(slots=True)
class CompiledLoops:
    """``module`` has the compiled loops. ``mode``: ``off`` never uses them, ``on`` always, ``auto`` if numba is installed and
    enough work was done without them. ``spent`` [s]: that work, estimated from counts of operations instead of the clock, so
    that equal runs load the same modules at the same point. ``load_after`` [s]: how much of it precedes loading."""

    module: str
    mode: str | None = None
    spent: float = 0.0
    load_after: float = LOAD_AFTER_SECONDS
    _loops: ModuleType | None = None
    _missing: bool = False

    @property
    def loaded(self) -> bool:
        """Whether the compiled loops are already loaded."""
        return self._loops is not None

    def loops(self, ahead: float = 0.0) -> ModuleType | None:
        """The compiled loops if they are to be used now. ``ahead``: seconds of NumPy work that are about to come.

        Raises BadInput: the environment names no mode, or requires an accelerator that is not installed.
        """
        if self.mode is None:
            self.mode = _mode(os.environ.get(MODE_VARIABLE) or "auto")
        if self.mode == "off" or self._missing or (self.mode == "auto" and self.spent + ahead < self.load_after):
            return None
        if self._loops is None:
            try:
                self._loops = importlib.import_module(self.module)
            except ImportError as error:
                if self.mode == "on":
                    fault = Fault(MODE_VARIABLE, "numba where it is on", str(error), "run: pip install 'halley[fast]'")
                    raise BadInput(fault) from error
                self._missing = True
        return self._loops


def _mode(word: str) -> str:
    if word not in MODES:
        raise BadInput(
            Fault(MODE_VARIABLE, f"one of {', '.join(MODES)}", repr(word), f"unset {MODE_VARIABLE}, or set it to auto")
        )
    return word
