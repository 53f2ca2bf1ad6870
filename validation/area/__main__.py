"""``python -m validation.area``: the factors that fit the dies, as `halley.silicon.processes` has them."""

from __future__ import annotations

import sys
from dataclasses import asdict

from validation.area.fit import area, dies, fitted, held_out
from validation.table import markdown, told


def table() -> str:
    """The factors, and each die with its error."""
    known = dies()
    factors, unseen = fitted(known), held_out(known)
    rows = [
        (
            die.name,
            die.built.process,
            f"{die.area * 1e6:g}",
            f"{area(die.built, factors) / die.area - 1:+.0%}",
            f"{unseen[die.name] / die.area - 1:+.0%}",
        )
        for die in known
    ]
    told_factors = "\n".join(f"{name}: {value:.4g}" for name, value in asdict(factors).items())
    return f"{told_factors}\n\n{markdown(('die', 'process', 'mm2', 'fitted', 'held out'), rows)}"


if __name__ == "__main__":
    sys.exit(told(table))
