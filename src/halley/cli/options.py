"""Options that several commands share, and the reading of their values."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from halley.cli.errors import options_of
from halley.errors import BadInput, Fault, did_you_mean, visible
from halley.io.files.save import dumps
from halley.mapping.baselines import BASELINES
from halley.mapping.problem import WALL_TIME, Objective, gap_faults, objective_faults
from halley.units import parse

_WHOLE = re.compile(r"[1-9][0-9]{0,8}")

WorkloadArgument = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Workload or graph; its parameters follow.")]
ChipOption = Annotated[
    str | None, typer.Option("--chip", help="Name of a shipped chip, or a path to a chip file.", metavar="CHIP")
]
ObjectiveOption = Annotated[
    str | None, typer.Option("--objective", help="What to minimise: time, energy or edp.", metavar="WORD")
]
TimeLimitOption = Annotated[str | None, typer.Option("--time-limit", help="Time limit of a search, e.g. 60s.", metavar="TIME")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, all else to stderr.")]
BaselineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--baseline",
        help=f"Search only this baseline; repeatable: {', '.join(BASELINES)}; or 'all' or 'none'.",
        metavar="NAME",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
TraceOption = Annotated[str | None, typer.Option("--trace", help="Also write a trace for Perfetto or Chrome.", metavar="FILE")]
AnswerArgument = Annotated[str, typer.Argument(metavar="FILE", help="A file that a command wrote with -o.")]


def objective(text: str | None, default: Objective = Objective.TIME) -> Objective:
    """Raises BadInput: no objective of that name."""
    if text is None:
        return default
    if faults := [*objective_faults("--objective", text)]:
        raise BadInput(faults)
    return Objective(text)


def seconds(text: str | None, default: float | None = None) -> float | None:
    """A time limit [s]. Raises UnitError: no time."""
    return default if text is None else parse(text, WALL_TIME, where="--time-limit")


def baselines(words: Sequence[str] | None, default: bool = True) -> bool | tuple[str, ...]:
    """What `Problem.baselines` takes. Raises BadInput: no baseline of that name, or several words where one says all."""
    if words is None:
        return default
    known = {"all": tuple(BASELINES), "none": ()}
    if len(words) == 1 and words[0] in known:
        return known[words[0]]
    expected = "a baseline, or 'all' or 'none' alone"
    strange = [word for word in words if word not in BASELINES]
    if strange:
        raise BadInput([Fault("--baseline", expected, repr(word), did_you_mean(word, BASELINES)) for word in strange])
    return tuple(words)


def whole_number(
    option: str, text: str | None, default: int | None = None, least: int = 1, most: int = 999_999_999, example: int = 2048
) -> int:
    """The number of an option. ``example``: one that makes sense.

    Raises BadInput: it is none, or it is missing and has no default.
    """
    if text is None and default is not None:
        return default
    if text is None or not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        got = "nothing" if text is None else repr(text)
        raise BadInput(Fault(option, f"a whole number from {least} to {most:,}", got, f"write for example '{option} {example}'"))
    return int(text)


def number(option: str, text: str, most: float) -> float:
    """The number of an option, from 0. Raises BadInput: it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise BadInput(Fault(option, f"a number from 0 to {most:,g}", repr(text)))
    return value


def gap(text: str | None, default: float = 0.0) -> float:
    """A relative gap. Raises BadInput: no number from 0 to below 1."""
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if faults := [*gap_faults("--gap", value, repr(text))]:
        raise BadInput(faults)
    return value


def needed_chip(name: str | None) -> str:
    """Raises BadInput: no chip was named."""
    if name is None:
        raise BadInput(Fault("--chip", "a chip", "nothing", "add for example '--chip edge'; 'halley chips' lists them"))
    return name


class SafeConsole(Console):
    """A console that escapes control characters of what it is given: names come from files."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints, but for these."""
        super().print(*map(_escaped, objects), **options)


def _escaped(shown: Any) -> Any:
    match shown:
        case str():
            return visible(shown)
        case Text() if visible(shown.plain) != shown.plain:
            return Text(visible(shown.plain), style=shown.style)
        case _:
            return shown


class Output(SafeConsole):
    """A console whose reader may leave early: that is no fault, and no exit code of bad input."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def output() -> Console:
    """The console for answers."""
    return Output(file=sys.stdout, highlight=False)


def remarks() -> Console:
    """The console for everything else."""
    return SafeConsole(file=sys.stderr, highlight=False, soft_wrap=True)


def remark_to_stderr(remark: str) -> None:
    """What there is to say beside an answer, if anything."""
    if remark:
        remarks().print(Text(f"halley: {remark}"))


def print_json(content: object) -> None:
    """One JSON document to stdout."""
    sys.stdout.write(dumps(content))


def own_options(context: typer.Context) -> tuple[str, ...]:
    """The options of the command itself."""
    return options_of(context.command)
