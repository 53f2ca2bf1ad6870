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
from halley.io.cache import FILE, FOLDER_VARIABLE, SHARED_VARIABLE, KernelCache, present, user_cache, user_shares
from halley.report import terminal
from halley.report.table import Table

app = typer.Typer(cls=HalleyGroup, no_args_is_help=True, help="The cache of searched kernels.")


@app.command()
def show(json: JsonOption = False) -> None:
    """Show the files of the cache and the number of their kernels by chip: the user's own file, and those of others that
    HALLEY_CACHE_SHARED names.

    Example: halley cache show
    """
    own, shares = _cache(), [present(share) for share in user_shares()]
    if json:
        shared = [{"file": str(each.path), "chips": _chips(each)} for each in shares]
        options.print_json({"file": str(own.path), "chips": _chips(own), "shared": shared})
        return
    console = options.output()
    for cache in (own, *shares):
        console.print(Text(f"{cache.path}{', read only' * (cache is not own)}"))
        kept = cache.kept()
        rows = [(each.name, f"{each.kernels:,}", "yes" if each.current else "no: found by another version") for each in kept]
        if rows:
            terminal.show(console, [Table("Searched kernels", ("chip", "kernels", "used"), tuple(rows), frozenset({1}))])
        else:
            remedy = ": 'halley plan --kernels searched' keeps them here" * (cache is own)
            console.print(Text(f"no kernels yet{remedy}"))


def _chips(cache: KernelCache) -> list[dict[str, object]]:
    return [each._asdict() for each in cache.kept()]


@app.command()
def clear() -> None:
    """Remove all searched kernels.

    Example: halley cache clear
    """
    cache = _cache()
    options.output().print(Text(f"{cache.clear():,} kernels removed from {cache.path}"))


@app.command()
def export(
    target: Annotated[str, typer.Argument(metavar="FOLDER", help="An existing folder; others name it in HALLEY_CACHE_SHARED.")],
    force: ForceOption = False,
) -> None:
    """Write a copy of all searched kernels to a folder, for others to read.

    Example: halley cache export shared
    """
    copy = Path(target) / FILE
    refuse_existing(str(copy), force)
    _cache().export(copy)
    options.remarks().print(Text(f"written to {copy}; plans read it where {SHARED_VARIABLE}={target}"))


def _cache() -> KernelCache:
    cache = user_cache()
    if cache is None:
        raise BadInput(Fault(FOLDER_VARIABLE, "a folder", "nothing, so that no kernels are kept", "unset it, or name a folder"))
    return cache
