"""``halley cache``: kernels that searches keep between runs."""

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
from halley.io.cache import FILE, FOLDER_VARIABLE, KernelCache, user_cache
from halley.report import terminal
from halley.report.table import Table

app = typer.Typer(cls=HalleyGroup, no_args_is_help=True, help="The cache of searched kernels.")


@app.command()
def show(json: JsonOption = False) -> None:
    """Show the folder of the cache, and the number of its kernels by chip.

    Example: halley cache show
    """
    cache = _cache()
    kept = cache.kept()
    if json:
        options.print_json({"file": str(cache.path), "chips": [each._asdict() for each in kept]})
        return
    rows = [(each.name, f"{each.kernels:,}", "yes" if each.current else "no: found by another version") for each in kept]
    console = options.output()
    console.print(Text(str(cache.path)))
    if rows:
        terminal.show(console, [Table("Searched kernels", ("chip", "kernels", "used"), tuple(rows), frozenset({1}))])
    else:
        console.print(Text("no kernels yet: 'halley plan --kernels searched' keeps them here"))


@app.command()
def clear() -> None:
    """Remove all searched kernels.

    Example: halley cache clear
    """
    cache = _cache()
    options.output().print(Text(f"{cache.clear():,} kernels removed from {cache.path}"))


@app.command()
def export(
    target: Annotated[str, typer.Argument(metavar="FOLDER", help="An existing folder; others set HALLEY_CACHE to it.")],
    force: ForceOption = False,
) -> None:
    """Write a copy of all searched kernels to a folder, for others to read.

    Example: halley cache export shared
    """
    copy = Path(target) / FILE
    refuse_existing(str(copy), force)
    if force:
        copy.unlink(missing_ok=True)
    _cache().export(copy)
    options.remarks().print(Text(f"written to {copy}; it is used where {FOLDER_VARIABLE}={target}"))


def _cache() -> KernelCache:
    cache = user_cache()
    if cache is None:
        raise BadInput(Fault(FOLDER_VARIABLE, "a folder", "nothing, so that no kernels are kept", "unset it, or name a folder"))
    return cache
