"""The command line. One file per command; this one puts them together."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer

from halley.cli.errors import HalleyGroup
from halley.cli.interrupts import leave, on_interrupt
from halley.version import halley_version

COMMANDS: dict[str, str] = {
    "optimise": "mappings.optimise",
    "plan": "plans.plan",
    "serve": "plans.serve",
    "shard": "plans.shard",
    "import": "plans.importing",
    "models": "plans.models",
    "collective": "networks.collective",
    "sweep": "sweeps.sweep",
    "codesign": "sweeps.codesign",
    "estimate": "mappings.estimate",
    "show": "answers.show",
    "check": "answers.check",
    "explain": "answers.explain",
    "compare": "answers.compare",
    "sensitivity": "answers.sensitivity",
    "report": "answers.report",
    "figure": "answers.figure",
    "table": "answers.table",
    "simulate": "answers.simulate",
    "time": "kernels.time",
    "chips": "mappings.chips",
    "energies": "mappings.energies",
    "workloads": "mappings.workloads",
    "system": "networks.system",
    "topology": "networks.topology",
    "measure": "kernels.measure",
    "calibrate": "networks.calibrate",
    "cache": "plans.cache",
    "mcp": "mcp",
    "completion": "completion",
    "schema": "schema",
    "validate": "validate",
    "demo": "mappings.demo",
}
"""In the order of the help, with the module of each: a command is the function of its name there (with an underscore where Python
has the name for itself), or the group ``app``."""

FREE_FORM = ("optimise", "shard", "estimate", "compare", "import", "time")
"""Those that take the parameters of a workload or the sizes of a kernel, which differ from kind to kind."""


ALIASES = {"optimize": "optimise"}
"""Other spellings of commands."""


class Commands(HalleyGroup):
    """The commands, each loaded when it is asked for: all of them together take longer to load than most take to run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, [ALIASES.get(args[0], args[0]), *args[1:]])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in COMMANDS else None


@cache
def command(name: str) -> Any:
    """A command as the option parser has it."""
    with on_interrupt(leave):
        module = import_module(f"halley.cli.{COMMANDS[name]}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name = name
        return group
    alone, free = typer.Typer(add_completion=False), name in FREE_FORM
    function = getattr(module, f"{name}_" if iskeyword(name) else name)
    alone.command(name, context_settings={"allow_extra_args": free, "ignore_unknown_options": free})(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="halley",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"halley {halley_version()}")
        raise typer.Exit


@app.callback()
def halley(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict, and provably optimise, how workloads run on accelerators.

    Start with: halley optimise gemm-softmax --m 512 --n 1024 --k 64 --chip edge
    """
