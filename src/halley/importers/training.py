"""The problem of a training plan from what a user names: a model, a system, and numbers."""

from __future__ import annotations

from pathlib import Path

from halley.importers.source import find_model, planned
from halley.io.chips.fits import fit_of_chip, load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.chips.software import software_for
from halley.io.networks.fits import load_libraries
from halley.io.systems.parts import usable_of
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.kernels.machine import PEAK, Efficiency, machine
from halley.kernels.sustained import under_load
from halley.pipeline.data_parallel import recipe
from halley.training.fixed import parse_fixed
from halley.training.plan import Fixed, TrainingProblem

RECIPE = "mixed-adam-fp32-gradients"
"""The optimizer of plans that name none."""


def training_problem(
    model: str | Path,
    system: System | str | Path,
    batch: int,
    sequence: int | None = None,
    fix: Fixed | str | None = None,
    whole: bool = False,
    optimizer: str = RECIPE,
    efficiency: str | None = None,
    software: str | None = None,
    searched: bool = False,
) -> TrainingProblem:
    """The problem of `halley.plan`, whose arguments these are. ``searched``: kernels are to be searched, so that no fit of a
    library is used.

    >>> training_problem("gpt2-xl", "8 x h100, nvlink 8", 8).tokens
    8192

    Raises BadInput: an unknown name, or numbers that make no sense.
    """
    found = system if isinstance(system, System) else load_system(system)
    shape = planned(find_model(str(model)))
    decided = fix if isinstance(fix, Fixed) else parse_fixed(fix, [axis.name for axis in found.axes])
    host = software_for(found.chip, software)
    fitted = PEAK if searched else _efficiency(found, efficiency)
    return TrainingProblem(
        shape,
        found,
        batch,
        shape.sequence if sequence is None else sequence,
        fitted if host is None or searched else host.of(fitted),
        load_libraries(found),
        recipe(optimizer),
        decided,
        whole,
        software=host,
        usable=usable_of(found.chip),
    )


def _efficiency(system: System, name: str | None) -> Efficiency:
    fit = fit_of_chip(system.chip.name)[0] if name is None else load_chip_fit(name)
    return under_load(fit, machine(load_chip(fit.chip)))
