"""``halley chips``: the chips that ship with Halley, what is in them, and files of new ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import HalleyGroup
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.errors import BadInput, Fault
from halley.io.chips.datasheet import EXAMPLE, check_name, copy_of, gpu_from
from halley.io.chips.load import load_chip
from halley.io.chips.save import chip_document
from halley.io.files.save import write_atomic
from halley.library import CHIPS
from halley.report.hardware import area_table, chip_list, chip_tables
from halley.report.terminal import show as show_tables

SHOW = "show"
"""The command that a chip without a command means."""


class ChipsGroup(HalleyGroup):
    """``halley chips [CHIP]`` is ``halley chips show [CHIP]``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the command that is meant in front."""
        words = [word for word in args if not word.startswith("-")]
        asks_help = not words and {"-h", "--help"} & set(args)
        if not asks_help and (not words or words[0] not in self.list_commands(ctx)):
            args = [SHOW, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


app = typer.Typer(
    cls=ChipsGroup,
    help="List the chips, or show one with the source of each number: halley chips edge. Or write the file of a new one.",
)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[CHIP]", help="A chip's name, or a path to a chip file.")] = None,
    json: JsonOption = False,
) -> None:
    """List the chips, or show one with the source of each number.

    Example: halley chips edge
    """
    shown = [load_chip(item) for item in ((name,) if name else CHIPS.names())]
    if json:
        documents = [chip_document(chip) for chip in shown]
        options.print_json(documents[0] if name else documents)
    elif name:
        console = options.output()
        console.print(f"{shown[0].name}: {shown[0].description}", markup=False)
        area = area_table(shown[0])
        show_tables(console, [*chip_tables(shown[0]), *([area] if area else [])])
    else:
        show_tables(options.output(), [chip_list(shown)])


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the new chip is called.")],
    like: Annotated[
        str | None, typer.Option("--like", metavar="CHIP", help="Copy this chip's file: a shipped name, or a path.")
    ] = None,
    datasheet: Annotated[
        str | None,
        typer.Option("--from-datasheet", metavar="TEXT", help=f"A GPU with these figures, e.g. '{EXAMPLE}'."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="The file; without it, NAME.yaml in this folder.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the file of a new chip, in which each number says where it is from; then change it.

    Example: halley chips new my-npu --like edge
    """
    check_name(name)
    if (like is None) == (datasheet is None):
        got = "neither" if like is None else "both"
        raise BadInput(
            Fault(
                "halley chips new",
                "--like CHIP or --from-datasheet TEXT",
                got,
                "add '--like edge'" if like is None else "leave one out",
            )
        )
    target = out or f"{name}.yaml"
    refuse_existing(target, force)
    text = gpu_from(name, datasheet) if datasheet is not None else copy_of(name, str(like))
    write_atomic(target, text, force)
    path = target if "/" in target or target.endswith((".yaml", ".yml")) else f"./{target}"
    options.remarks().print(Text(f"written to {target}; change it, and use it as --chip {path}"))
