"""``halley topology``: networks, what they are made of, and how they look."""

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
from halley.io.networks.astra import load_astra
from halley.io.networks.network import load_network
from halley.io.networks.save import network_document, network_text
from halley.io.systems.fabric import load_fabric
from halley.library import NETWORKS
from halley.report import terminal
from halley.report.browser import png_file
from halley.report.markup import svg_file
from halley.report.networks.topology import network_list, network_tables, topology_figure, topology_text

app = typer.Typer(cls=HalleyGroup, no_args_is_help=True, help="Networks: their ranks and links, their properties, and pictures.")


@app.command("list")
def list_networks() -> None:
    """List the networks that ship with Halley.

    Example: halley topology list
    """
    terminal.show(options.output(), [network_list([load_network(name) for name in NETWORKS.names()])])


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped network or system, or a path to a file of one.")],
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Also draw it to this file: .svg, .png or .txt.", metavar="FILE")
    ] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Show a network: ranks, links, diameter, bisection, price, power, and a picture. PNG needs an installed Chromium.

    Example: halley topology show dgx-1 -o dgx-1.svg
    """
    kind = Path(out).suffix.lower() if out else ""
    if out and kind not in (".svg", ".png", ".txt"):
        raise BadInput(Fault("--output", "a name that ends in .svg, .png or .txt", repr(out)))
    fabric = load_fabric(name)
    if out:
        refuse_existing(out, force)
    if json:
        options.print_json(network_document(fabric))
    else:
        console = options.output()
        picture = "" if out else topology_text(fabric, min(console.width - 2, 100))
        terminal.show_drawn(console, fabric.name, fabric.description, picture, network_tables(fabric))
    if out:
        drawn = topology_text(fabric) + "\n" if kind == ".txt" else svg_file(topology_figure(fabric)) if kind == ".svg" else None
        write_atomic(out, drawn if drawn is not None else png_file(topology_figure(fabric)), force)
        options.remarks().print(Text(f"written to {out}"))


@app.command("import")
def import_network(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A network of ASTRA-sim's analytical back ends (YAML).")],
    out: Annotated[str, typer.Option("-o", "--output", help="Where to write the network file.", metavar="FILE")] = "network.yaml",
    force: ForceOption = False,
) -> None:
    """Convert another simulator's network to a network file; energies and prices have to be filled in.

    Example: halley topology import Ring_8npus.yml -o ring.yaml
    """
    refuse_existing(out, force)
    write_atomic(out, network_text(load_astra(file)), force)
    options.remarks().print(Text(f"written to {out}"))
