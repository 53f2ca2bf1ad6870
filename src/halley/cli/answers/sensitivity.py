"""``halley sensitivity``: what more of each parameter of the hardware buys."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.text import Text

from halley.answers.load import load
from halley.cli import options
from halley.cli.options import AnswerArgument, JsonOption
from halley.cli.solve import SearchProgressBar
from halley.errors import BadInput, Fault
from halley.mapping.result import Result
from halley.products.sensitivity import sensitivity as found_sensitivity
from halley.products.sensitivity_table import ranges_table, sensitivity_document, sensitivity_lines, sensitivity_table
from halley.report.terminal import show
from halley.training.plan import TrainingResult


def sensitivity(
    file: AnswerArgument,
    change: Annotated[str, typer.Option("--change", help="How much better and worse, e.g. 10%.", metavar="SHARE")] = "10%",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Parameters whose name has this word; repeatable.", metavar="WORD")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Cost the plan as it is, without searches.")] = False,
    time_limit: Annotated[
        str, typer.Option("--time-limit", help="Time limit of all searches together.", metavar="TIME")
    ] = "300s",
    ranges: Annotated[bool, typer.Option("--range", help="Also how far each may move before the plan changes.")] = False,
    json: JsonOption = False,
) -> None:
    """Tell what more of each parameter of the hardware buys: bandwidths, capacities, latencies, rates of engines.

    Each is made better and worse by a share, and the best mapping or plan is searched anew. With --range, searches between
    a fourth and four times its value find where another plan becomes the best.

    Example: halley sensitivity result.json --only dram
    """
    share, limit = _share(change), options.seconds(time_limit)
    answer = load(file)
    options.remark_to_stderr(answer.remark)
    if not isinstance(answer.value, Result | TrainingResult):
        raise BadInput(Fault(file, "a mapping or a plan of training", f"an answer of the kind {answer.kind}"))
    console = options.output()
    bar = SearchProgressBar(console, "searching")
    try:
        found = found_sensitivity(
            answer.value, share, only=only or (), search=not quick, time_limit=limit, ranges=ranges, progress=bar
        )
    finally:
        bar.stop()
    if json:
        options.print_json(sensitivity_document(found))
        return
    for line in sensitivity_lines(found):
        console.print(Text(line))
    show(console, [sensitivity_table(found), *([ranges_table(found)] if ranges else [])])


def _share(text: str) -> float:
    """A share as a number or in per cent. Raises BadInput: no such share."""
    match = re.fullmatch(r"\s*([0-9]{1,6}(?:\.[0-9]{1,9})?)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 10:
        raise BadInput(Fault("--change", "a share above 0 and up to 1000%, such as 10%", repr(text)))
    return share
