"""``halley show``: an answer from a file, as tables."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.answers.load import load
from halley.cli import options
from halley.cli.options import AnswerArgument, JsonOption
from halley.errors import BadInput, Fault
from halley.report import terminal


def show(
    file: AnswerArgument,
    details: Annotated[bool, typer.Option("--details", help="Every op, every candidate, the whole certificate.")] = False,
    op: Annotated[
        str | None,
        typer.Option(
            "--op", help="Of a plan of training: the mapping of this op, from the system's axes to the array.", metavar="NAME"
        ),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option("--emit", help="Of a plan or a deployment: its launch flags for this framework.", metavar="FRAMEWORK"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show an answer again, its figures computed anew.

    Example: halley show result.json
    """
    answer = load(file)
    options.remark_to_stderr(answer.remark)
    if emit is not None:
        from halley.cli.plans.launch import show_flags  # here: it loads what plans are made with
        from halley.serving.plans.search import ServingPlan
        from halley.serving.served import Served
        from halley.training.plan import TrainingResult

        if not isinstance(answer.value, TrainingResult | Served | ServingPlan):
            raise BadInput(Fault(file, "a plan or a deployment, for --emit", f"a file of the kind {answer.kind}"))
        show_flags(answer.value, emit, alone=True)
        return
    if op is not None:
        text = answer.op_text(op)
        if json:
            options.print_json({"op": op, "mapping": text})
        else:
            options.output().print(Text(text), soft_wrap=True)
        return
    if json:
        options.print_json(answer.content())  # with the file's own date
        return
    console = options.output()
    for place, line in enumerate(answer.lines()):
        console.print(Text(line, style="" if place else "bold"))
    terminal.show(console, answer.tables(details))
