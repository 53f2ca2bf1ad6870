"""`halley.plan`: the fastest way to train a model on a system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halley.errors import BadInput, Fault
from halley.importers.source import find_model, planned
from halley.io.cache import user_store
from halley.io.chips.fits import fit_of_chip, load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.chips.software import software_for
from halley.io.networks.fits import load_libraries
from halley.io.systems.parts import usable_of
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.kernels.machine import PEAK, Efficiency, machine
from halley.kernels.sustained import under_load
from halley.mapping.problem import WALL_TIME
from halley.pipeline.data_parallel import recipe
from halley.training.fixed import parse_fixed
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.joint import best_joint_plan
from halley.training.search.search import best_training_plan
from halley.units import parse

RECIPE = "mixed-adam-fp32-gradients"

Progress = Callable[[str, float], None]


def plan(
    model: str | Path,
    system: System | str | Path,
    batch: int,
    sequence: int | None = None,
    fix: Fixed | str | None = None,
    whole: bool = False,
    optimizer: str = RECIPE,
    efficiency: str | None = None,
    software: str | None = None,
    kernels: str = "library",
    time_limit: float | str | None = None,
    progress: Progress | None = None,
) -> TrainingResult:
    """The fastest plan of an iteration of training, with its certificate.

    ``model``: a name, a model file, or the configuration of a Hugging Face model; ``system``: a name, a file or a short form
    such as ``"1024 x h100, nvlink 8, ib"``; ``batch``: sequences of an iteration; ``sequence``: tokens of each, those of the
    model unless given; ``fix``: decisions such as ``"tp=8,pp=8"``; ``whole``: each axis for one kind of parallelism;
    ``efficiency``: fit of a chip's kernels; ``software``: what launches them, that measured on the chip unless given,
    ``"none"``: hosts take no time; ``kernels``: ``"library"`` or ``"searched"``; ``time_limit`` in seconds, or as text.

    >>> result = plan("gpt2-xl", "8 x h100, nvlink 8", batch=8)
    >>> result.certificate.gap < 1e-6
    True

    Raises BadInput: an unknown name, or numbers that make no sense; Infeasible: no plan fits the memory; SearchStopped: the limit
    came before any plan.
    """
    if kernels not in ("library", "searched"):
        raise BadInput(Fault("kernels", "library or searched", repr(kernels)))
    found = system if isinstance(system, System) else load_system(system)
    shape = planned(find_model(str(model)))
    decided = fix if isinstance(fix, Fixed) else parse_fixed(fix, [axis.name for axis in found.axes])
    limit = parse(time_limit, WALL_TIME, where="time_limit") if isinstance(time_limit, str) else time_limit
    searched, host = kernels == "searched", software_for(found.chip, software)
    fitted = PEAK if searched else _efficiency(found, efficiency)
    problem = TrainingProblem(
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
    if searched:
        return best_joint_plan(problem, progress, limit, user_store())
    return best_training_plan(problem, progress, limit)


def _efficiency(system: System, name: str | None) -> Efficiency:
    fit = fit_of_chip(system.chip.name)[0] if name is None else load_chip_fit(name)
    return under_load(fit, machine(load_chip(fit.chip)))
