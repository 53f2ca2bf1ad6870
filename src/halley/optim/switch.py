"""Whether programs run compiled: the optional accelerator (`pip install 'halley[fast]'`), and when it is loaded.

The compiled loops do the same operations in the same order as NumPy and give the same numbers; only the time differs.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from types import ModuleType

from halley.errors import BadInput, Fault

VARIABLE = "HALLEY_ACCELERATOR"
MODES = ("auto", "off", "on")

PATIENCE = 10.0
"""NumPy work [s] after which ``auto`` loads the accelerator: many times what it takes to load, and twice what it takes to
compile on first use. So a short run never pays for it, and a long one loses little if it ends just then."""


@dataclass(slots=True)
class Switch:
    """``module`` has the compiled loops. ``mode``: ``off`` never uses them, ``on`` always, ``auto`` if numba is installed and
    there was much work without them. ``spent``: that work [s], from counts of operations and not from the clock, so that equal
    runs load the same modules at the same point. ``patience`` [s]: how much of it there is before they are loaded."""

    module: str
    mode: str | None = None
    spent: float = 0.0
    patience: float = PATIENCE
    _kernels: ModuleType | None = None
    _missing: bool = False

    @property
    def loaded(self) -> bool:
        """Whether the compiled loops are there already, so that to use them costs nothing."""
        return self._kernels is not None

    def kernels(self, ahead: float = 0.0) -> ModuleType | None:
        """The compiled loops if they are to be used now. ``ahead``: seconds of NumPy work that are about to come.

        Raises `BadInput` if the environment names no mode, or asks for an accelerator that is not installed."""
        if self.mode is None:
            self.mode = _mode(os.environ.get(VARIABLE) or "auto")
        if self.mode == "off" or self._missing or (self.mode == "auto" and self.spent + ahead < self.patience):
            return None
        if self._kernels is None:
            try:
                self._kernels = importlib.import_module(self.module)
            except ImportError as error:
                if self.mode == "on":
                    fault = Fault(VARIABLE, "numba where it is on", str(error), "run: pip install 'halley[fast]'")
                    raise BadInput(fault) from error
                self._missing = True
        return self._kernels


def _mode(word: str) -> str:
    if word not in MODES:
        raise BadInput(Fault(VARIABLE, f"one of {', '.join(MODES)}", repr(word), f"unset {VARIABLE}, or set it to auto"))
    return word
