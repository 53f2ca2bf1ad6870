"""The comparison of ``halley validate area``."""

from __future__ import annotations

from validation.area.fit import area, dies, held_out
from validation.outcome import Case, Line, Outcome

from halley.silicon.processes import FACTORS

NAMED = ("GA100 (A100)", "GH100 (H100)", "TPU v4i", "Eyeriss", "Simba chiplet")
"""Dies with a row of their own."""


def compare() -> Outcome:
    """Areas by the factors that ship, and of each die by the factors that fit all others."""
    known, unseen = dies(), held_out(dies())
    ours = {die.name: area(die.built, FACTORS) for die in known}

    def cases(found: dict[str, float], names: tuple[str, ...] = ()) -> tuple[Case, ...]:
        return tuple(Case(die.name, found[die.name] * 1e6, die.area * 1e6) for die in known if not names or die.name in names)

    lines = (
        Line("area [mm2], fitted", cases(ours), 0.15, 0.40),
        Line("area [mm2], held out", cases(unseen), 0.20, 0.60),
        Line("area [mm2], five named dies, fitted", cases(ours, NAMED), 0.15, 0.25),
    )
    return Outcome("area", lines, ("'python -m validation.area' lists the dies",))
