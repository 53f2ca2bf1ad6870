"""``halley completion``: completion of commands and options in a shell."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from halley.errors import BadInput, Fault, did_you_mean

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HALLEY_COMPLETE"
"""Environment variable by which the script asks the command for completions."""


def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell, for its start-up file.

    Example: halley completion bash
    """
    if shell not in SHELLS:
        raise BadInput(Fault("shell", f"one of {', '.join(SHELLS)}", repr(shell), did_you_mean(shell, SHELLS)))
    script = import_module("typer._completion_shared").get_completion_script(prog_name="halley", complete_var=VARIABLE, shell=shell)
    sys.stdout.write(f"{script}\n")
