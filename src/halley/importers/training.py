"""The problem of a training plan from what a user names: a model, a system, and numbers."""

from __future__ import annotations

from pathlib import Path

from halley.errors import BadInput, Fault, did_you_mean
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
from halley.workloads.transformer import Transformer

RECIPE = "mixed-adam-fp32-gradients"
"""The optimizer of plans that name none."""

LIBRARY, SEARCHED = "library", "searched"
KERNELS = (LIBRARY, SEARCHED)
"""Where a plan takes the times of its kernels from."""


def refuse_unless_searched(searched: bool, option: str, value: object, prefix: str = "") -> None:
    """Raises BadInput: an ``option`` of searched kernels has a value beside library ones. ``prefix``: of options in messages."""
    if value is not None and not searched:
        fault = Fault(f"{prefix}{option}", f"{prefix}kernels {SEARCHED} beside it", "library kernels", "leave it out")
        raise BadInput(fault)


def is_searched(kernels: str, efficiency: str | None, prefix: str = "") -> bool:
    """Whether kernels are to be searched. ``prefix``: of options in messages.

    >>> is_searched("searched", None), is_searched("library", "h100")
    (True, False)

    Raises BadInput: another word, or an efficiency of library kernels beside searched ones.
    """
    if kernels not in KERNELS:
        raise BadInput(Fault(f"{prefix}kernels", " or ".join(KERNELS), repr(kernels), did_you_mean(kernels, KERNELS)))
    if kernels == SEARCHED and efficiency:
        raise BadInput(Fault(f"{prefix}efficiency", "library kernels", f"{prefix}kernels {SEARCHED}", "leave one of them out"))
    return kernels == SEARCHED


def training_problem(
    model: Transformer | str | Path,
    system: System | str | Path,
    batch: int,
    sequence: int | None = None,
    fix: Fixed | str | None = None,
    whole: bool = False,
    optimizer: str = RECIPE,
    efficiency: Efficiency | str | None = None,
    software: str | None = None,
    searched: bool = False,
) -> TrainingProblem:
    """The problem of `halley.plan`, whose arguments these are; model and efficiency may have been read already. ``searched``:
    kernels are to be searched, so that no fit of a library is used.

    >>> training_problem("gpt2-xl", "8 x h100, nvlink 8", 8).tokens
    8192

    Raises BadInput: an unknown name, or numbers that make no sense.
    """
    found = system if isinstance(system, System) else load_system(system)
    shape = model if isinstance(model, Transformer) else planned(find_model(str(model)))
    decided = fix if isinstance(fix, Fixed) else parse_fixed(fix, [axis.name for axis in found.axes])
    host = software_for(found.chip, software)
    fitted = PEAK if searched else efficiency if isinstance(efficiency, Efficiency) else sustained(found, efficiency)[0]
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


def sustained(system: System, name: str | None) -> tuple[Efficiency, str]:
    """How near kernels of a long run come to the data sheet, by the fit of that name or that of the chip, and a remark where it
    was measured on another chip. Raises BadInput: no such fit."""
    fit, remark = fit_of_chip(system.chip.name) if name is None else (load_chip_fit(name), "")
    return under_load(fit, machine(load_chip(fit.chip))), remark
