"""Errors of the command line: what each becomes on stderr, and its exit code.

0 solved, 1 bad input, 2 infeasible, 3 limit reached before the asked gap, 70 an internal error, 130 interrupted before any
answer.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from halley.cli.interrupts import INTERRUPTED_EXIT_CODE
from halley.errors import BadInput, Fault, HalleyError, InternalError, did_you_mean, visible

USAGE_EXIT_CODE = 1
"""Exit code of a fault of the input: a wrong option, file or value."""
LIMIT_EXIT_CODE = 3
"""Exit code where a limit of time or gap ended a search early."""
INTERNAL_ERROR_EXIT_CODE = 70
"""Exit code of a fault of Halley itself: EX_SOFTWARE of sysexits.h."""


COMPLETE_VARIABLE = "_HALLEY_COMPLETE"
"""Environment variable by which the script of a shell asks for completions."""

UNWRITABLE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""System errors of output that cannot be written, none of which is Halley's fault."""


class LimitReached(HalleyError):
    """The limit came before any mapping, or before the gap that was asked for."""

    exit_code = LIMIT_EXIT_CODE


class Cancelled(HalleyError):
    """Ctrl-C before any answer."""

    exit_code = INTERRUPTED_EXIT_CODE


class HalleyGroup(TyperGroup):
    """The command group; every way to fail leaves clean lines on stderr and its exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. Raises BadInput: there is none of that name."""
        known = self.list_commands(ctx)
        if args[0] not in known:
            raise BadInput(Fault(f"command of {ctx.command_path}", "a known one", repr(args[0]), did_you_mean(args[0], known)))
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and leave the process with its exit code."""
        if COMPLETE_VARIABLE in os.environ:  # the shell asks: the option parser looks for its class
            import_module("typer._completion_classes").completion_init()
        extra.update(complete_var=complete_var or COMPLETE_VARIABLE, windows_expand_args=windows_expand_args)
        code = self._code(args, prog_name, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _code(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> int:
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
            if code == INTERRUPTED_EXIT_CODE:  # the option parser makes an exit code of Ctrl-C, and says nothing
                raise KeyboardInterrupt
            return code if isinstance(code, int) else 0
        except HalleyError as error:
            return _report(error)
        except (KeyboardInterrupt, typer.Abort):
            print("halley: interrupted", file=sys.stderr)
            return INTERRUPTED_EXIT_CODE
        except BrokenPipeError:
            # the reader has gone (`| head`); keep the interpreter from complaining about it at exit
            _drop_output()
            return 0
        except OSError as error:
            if error.errno not in UNWRITABLE_ERRNOS:
                return _unexpected(error)
            _drop_output()
            remedy = "free some space, or write elsewhere"
            return _report(BadInput(Fault("output", "a place with space for the answer", error.strerror or str(error), remedy)))
        except Exception as error:
            if callable(getattr(error, "format_message", None)):  # a usage error of the option parser
                return _usage(error)
            return _unexpected(error)


def _drop_output() -> None:
    """Nothing further can be written: what is left in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: HalleyError) -> int:
    for fault in error.faults:
        print(f"halley: {visible(str(fault))}", file=sys.stderr)
    if isinstance(error, InternalError):
        _debug(error)
    return error.exit_code


def _usage(error: Any) -> int:
    if not error.format_message():  # no command was given: the help has been shown, which is what was asked
        return 0
    print(f"halley: {visible(str(_usage_fault(error)))}", file=sys.stderr)
    return USAGE_EXIT_CODE


def _usage_fault(error: Any) -> Fault:
    """A usage error of the option parser in the words of all faults. Which one it is, its attributes tell: where its classes are
    imported from differs between versions of typer."""
    context = getattr(error, "ctx", None)
    command = "halley" if context is None else context.command_path
    message, remedy = error.format_message().rstrip("."), f"try '{command} --help'"
    if hasattr(error, "possibilities"):  # no such option
        known = options_of(context.command) if context is not None else error.possibilities or ()
        return Fault(command, "a known option", repr(error.option_name), did_you_mean(error.option_name, known))
    if hasattr(error, "option_name"):
        if "does not take a value" in message:
            return Fault(error.option_name, "no value", "one", "leave out '=' and what follows it")
        return Fault(error.option_name, "a value", "nothing", f"write it behind {error.option_name}")
    parameter = getattr(error, "param", None)
    if hasattr(error, "param_type") and parameter is not None:
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name
        return Fault(command, name, "nothing", remedy)
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return Fault(command, "no more words", repr(extra[1]), remedy)
    return Fault(command, "its usage to be kept", message, remedy)


def options_of(command: Any) -> tuple[str, ...]:
    """The long options of a command, those that say no included."""
    names = (name for item in command.params for name in (*item.opts, *item.secondary_opts))
    return (*(name for name in names if name.startswith("--")), "--help")


def _unexpected(error: Exception) -> int:
    text = " ".join(str(error).split())[:200]
    report = "please report it, with what HALLEY_DEBUG=1 prints"
    print(f"halley: internal error, {type(error).__name__}: {text}; {report}", file=sys.stderr)
    _debug(error)
    return INTERNAL_ERROR_EXIT_CODE


def _debug(error: Exception) -> None:
    if os.environ.get("HALLEY_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)
