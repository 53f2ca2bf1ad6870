"""Every comparison, by name. ``run`` takes the folder of data that this repository does not hold, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from validation.accelforge.compare import compare as accelforge
from validation.area.compare import compare as area
from validation.attention.compare import compare as attention
from validation.collectives.compare import compare as collectives
from validation.dfmodel.compare import compare as dfmodel
from validation.kernels.compare import compare as kernels
from validation.machines.compare import compare as machines
from validation.megatron.compare import compare as megatron
from validation.mesh.compare import compare as mesh
from validation.operators.compare import compare as operators
from validation.outcome import Case, Line, Outcome
from validation.rtl.compare import compare as rtl
from validation.scalesim.compare import compare as scalesim
from validation.serving.compare import compare as serving
from validation.tiles.compare import compare as tiles
from validation.timeloop.compare import compare as timeloop_case
from validation.timeloop.convert import HERE as TIMELOOP
from validation.timeloop.drawn import drawn, known_cases, own_energy, timeloop_energy
from validation.timeloop.files import Case as TimeloopCase
from validation.timeloop.files import case_folders
from validation.training.compare import compare as training

from halley.cost.estimate import Estimate

GROUPS = {
    "accesses": ("reads", "fills", "updates", "temporal_reductions", "instances", "utilized_capacity", "computes"),
    "cycles": ("cycles",),
    "energy": ("energy_total_pJ", "energy_pJ_sum"),
}
"""What of Timeloop's figures goes into one line."""

DRAWN = 200
"""Mappings that are drawn."""

ROUNDED = 1e-7
"""What Timeloop's printing of hundredths of a pJ may hide, relative to the smallest energy of the cases."""


def timeloop() -> Outcome:
    """All cases of the repository."""
    rows = [row for folder in case_folders(TIMELOOP / "cases") for row in timeloop_case(folder)]
    known = {quantity for group in GROUPS.values() for quantity in group}
    groups = GROUPS | {"accesses": GROUPS["accesses"] + tuple({row.quantity for row in rows} - known)}
    lines = []
    for name, quantities in groups.items():
        cases = tuple(
            Case(" ".join(word for word in (row.case, row.level, row.tensor, row.quantity) if word), row.halley, row.timeloop)
            for row in rows
            if row.quantity in quantities
        )
        allowed = ROUNDED if name == "energy" else 0.0
        lines.append(Line(name, cases, allowed, allowed))
    lines.append(Line("Halley's own energy, the same mappings", tuple(_own(known_cases())), 0.005, 0.015))
    lines.append(Line("Halley's own energy, drawn mappings", tuple(_own(drawn(DRAWN))), 0.015, 0.10))
    return Outcome("timeloop", tuple(lines))


def _own(mappings: Iterable[tuple[TimeloopCase, Estimate]]) -> Iterator[Case]:
    """Halley's own energy beside what Timeloop's counts come to."""
    for case, estimate in mappings:
        yield Case(case.name, own_energy(estimate), timeloop_energy(case, estimate))


SOURCES: dict[str, Callable[[Path | None], Outcome]] = {
    "timeloop": lambda data: timeloop(),
    "accelforge": lambda data: accelforge(),
    "scalesim": lambda data: scalesim(),
    "rtl": rtl,
    "mesh": lambda data: mesh(),
    "dfmodel": lambda data: dfmodel(),
    "attention": attention,
    "collectives": collectives,
    "operators": operators,
    "kernels": kernels,
    "machines": lambda data: machines(),
    "tiles": lambda data: tiles(),
    "megatron": lambda data: megatron(),
    "training": training,
    "serving": serving,
    "area": lambda data: area(),
}
