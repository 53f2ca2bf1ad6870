"""``halley completion``: completion of commands and options in a shell."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from halley.cli.errors import COMPLETE_VARIABLE
from halley.errors import BadInput, Fault, did_you_mean

SHELLS = ("bash", "zsh", "fish")


def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell, for its start-up file.

    Example: halley completion bash
    """
    if shell not in SHELLS:
        raise BadInput(Fault("shell", f"one of {', '.join(SHELLS)}", repr(shell), did_you_mean(shell, SHELLS)))
    write = import_module("typer._completion_shared").get_completion_script
    sys.stdout.write(f"{write(prog_name='halley', complete_var=COMPLETE_VARIABLE, shell=shell)}\n")
