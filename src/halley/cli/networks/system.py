"""``halley system``: systems of chips, how they are joined, what they take and cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import HalleyGroup
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.errors import BadInput, Fault
from halley.io.files.save import write_atomic
from halley.io.systems.fabric import fabric_of
from halley.io.systems.grid import load_grid
from halley.io.systems.save import system_document
from halley.io.systems.system import load_system
from halley.library import SYSTEMS
from halley.report import terminal
from halley.report.markup import svg_file
from halley.report.networks.system import system_list, system_tables
from halley.report.networks.topology import topology_figure, topology_text

app = typer.Typer(cls=HalleyGroup, no_args_is_help=True, help="Systems of chips: their networks, memory, power and price.")


@app.command("list")
def list_systems(
    grid: Annotated[str | None, typer.Argument(metavar="[GRID]", help="A shipped grid of systems, or a path to one.")] = None,
) -> None:
    """List the systems that ship with Halley, or those of a grid: its chips, topologies, memories and links in all combinations.

    Example: halley system list dfmodel
    """
    systems = {name: load_system(name) for name in SYSTEMS.names()} if grid is None else load_grid(grid)
    terminal.show(options.output(), [system_list(systems)])


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="SYSTEM", help="A shipped system, a path to a file, or a short form in quotes.")],
    out: Annotated[str | None, typer.Option("-o", "--output", help="Also draw its network to this .svg.", metavar="FILE")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Show a system: chips, network by axis, memory, power, price, and a picture where it is small.

    Example: halley system show '1024 x h100, nvlink 8, ib'
    """
    if out and Path(out).suffix.lower() != ".svg":
        raise BadInput(Fault("--output", "a name that ends in .svg", repr(out)))
    system = load_system(name)
    if out and not system.axes:
        raise BadInput(Fault("--output", "a system with a network", f"{system.name}, a single chip"))
    if out:
        refuse_existing(out, force)
    if json:
        options.print_json(system_document(system))
    else:
        console = options.output()
        picture = topology_text(fabric_of(system), min(console.width - 2, 100)) if system.axes and not out else ""
        terminal.show_drawn(console, system.name, system.description, picture, system_tables(system))
    if out:
        write_atomic(out, svg_file(topology_figure(fabric_of(system))), force)
        options.remarks().print(Text(f"written to {out}"))
