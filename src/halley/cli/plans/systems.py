"""Systems of chips as options of commands, and how near their kernels come to the data sheet."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.errors import BadInput, Fault
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.chips.software import load_software, software_of_chip
from halley.io.systems.parts import usable_memory
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.kernels.machine import Efficiency, machine
from halley.kernels.software import Software
from halley.kernels.sustained import under_load
from halley.library import CHIP_FITS

DEFAULT_FIT = "a100"
"""The chip whose measured efficiency others take that were not measured."""

NO_SOFTWARE = "none"
"""In the place of a software: hosts are not modelled."""

SystemOption = Annotated[
    str | None,
    typer.Option("--system", help="A shipped system, a path to a file, or a short form in quotes.", metavar="SYSTEM"),
]
EfficiencyOption = Annotated[
    str | None, typer.Option("--efficiency", help="Fit of a chip's kernels, by name or path.", metavar="NAME")
]
SoftwareOption = Annotated[
    str | None,
    typer.Option(
        "--software",
        help=f"Software that launches the kernels (or serves), by name or path; {NO_SOFTWARE}: it never delays them.",
        metavar="NAME",
    ),
]


def system_of(name: str | None) -> System:
    """The system of that name. Raises BadInput: none was named, or it cannot be read."""
    if name is None:
        remedy = "add for example --system '1024 x h100, nvlink 8, ib'; 'halley system list' lists shipped ones"
        raise BadInput(Fault("--system", "a system", "nothing", remedy))
    return load_system(name)


def software_of(system: System, name: str | None) -> Software | None:
    """The named software, else that which was measured on the chip; None for `NO_SOFTWARE` and where none was measured.

    Raises BadInput: software for a chip that runs kernels side by side.
    """
    if name == NO_SOFTWARE or (name is None and system.chip.streams):
        return None
    if name is not None and system.chip.streams:
        raise BadInput(Fault("--software", "a chip that runs one kernel at a time", system.chip.name, "leave it out"))
    return software_of_chip(system.chip.name) if name is None else load_software(name)


def usable_of(system: System) -> float | None:
    """What plans may fill of the chip's outermost memory [B]; None: all of it."""
    capacity = system.chip.levels[0].memories[0].capacity
    found = usable_memory(system.chip.name, capacity)
    return None if found == capacity else found


def efficiency_of(system: System, name: str | None) -> Efficiency:
    """That of the chip in a long run; that of another chip, and a remark, where it was not measured."""
    if name is None and system.chip.name not in CHIP_FITS.names():
        remark = f"no measured kernels of {system.chip.name}; assumed as close to its data sheet as those of {DEFAULT_FIT}"
        options.remarks().print(Text(f"{remark} (see 'halley calibrate chip')"))
        name = DEFAULT_FIT
    fit = load_chip_fit(name or system.chip.name)
    return under_load(fit, machine(load_chip(fit.chip)))
