"""Systems of chips as options of commands, and how near their kernels come to the data sheet."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.errors import BadInput, Fault
from halley.importers.training import refuse_unless_searched, sustained
from halley.io.chips.software import NO_SOFTWARE
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.kernels.machine import Efficiency
from halley.processes import MOST_WORKERS, cores

MOST_BY_DEFAULT = 8
"""Processes that search kernels, unless more are asked for: a search takes up to a gigabyte."""

SystemOption = Annotated[
    str | None,
    typer.Option("--system", help="A shipped system, a path to a file, or a short form in quotes.", metavar="SYSTEM"),
]
EfficiencyOption = Annotated[
    str | None, typer.Option("--efficiency", help="Fit of a chip's kernels, by name or path.", metavar="NAME")
]
KernelsOption = Annotated[
    str,
    typer.Option(
        "--kernels",
        help="Times of products, attention: library (fitted formulas) or searched (best mappings).",
        metavar="WORD",
    ),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(
        "-j",
        "--workers",
        help=f"With --kernels searched: processes that search; one for each core, at most {MOST_BY_DEFAULT}, unless given.",
        metavar="N",
    ),
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


def efficiency_of(system: System, name: str | None) -> Efficiency:
    """That of the chip in a long run; that of another chip, and a remark, where it was not measured."""
    found, remark = sustained(system, name)
    if remark:
        options.remarks().print(Text(remark))
    return found


def kernel_workers(given: str | None, searched: bool) -> int:
    """The processes that search kernels. Raises BadInput: no number, or kernels that are not ``searched``."""
    refuse_unless_searched(searched, "workers", given, "--")
    return options.whole_number("--workers", given, min(cores(), MOST_BY_DEFAULT), most=MOST_WORKERS, example=4)
