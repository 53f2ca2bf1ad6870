"""``halley check``: is the file of an answer true?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.answers.load import check_file
from halley.cli import options
from halley.cli.options import AnswerArgument, JsonOption, TimeLimitOption
from halley.cli.solve import SearchProgressBar
from halley.io.results.envelope import read_saved
from halley.verify.findings import Finding

WORDS = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("open", "yellow")}
"""The word of an outcome, and its colour."""


def check(
    file: AnswerArgument,
    time_limit: TimeLimitOption = "60s",
    search: Annotated[bool, typer.Option(help="Search again, to confirm the bound.")] = True,
    json: JsonOption = False,
) -> None:
    """Check an answer: legal decisions, correct figures and bounds, correct outputs when it is executed.

    Everything is computed anew from the decisions: no figure of the file is trusted. Mappings are simulated (a time more
    than 15 % from the formula's fails) and executed at a reduced size; iterations of training are simulated; collectives run
    step by step; sharded ops are executed on ranks that see only their shares. Then it searches again for the bound. One line
    per check; 'open' means that the limits did not allow a verdict. Exit code 1 if any check fails.

    Example: halley check result.json --time-limit 60s
    """
    limit = options.seconds(time_limit, 60.0) or 60.0
    options.remark_to_stderr(read_saved(file).remark)
    done: list[Finding] = []
    console, bar = options.output(), SearchProgressBar(options.remarks(), "checking")
    try:
        for item in check_file(file, limit, search, bar):
            bar.stop()
            done.append(item)
            if not json:
                word, colour = WORDS[item.passed]
                console.print(Text.assemble((f"{word:4}", colour), f"  {item.part}: {item.what}: {item.detail}"), soft_wrap=True)
    finally:
        bar.stop()
    failed = [item for item in done if item.passed is False]
    if json:
        checks = [{"part": c.part, "what": c.what, "outcome": WORDS[c.passed][0].lower(), "detail": c.detail} for c in done]
        options.print_json({"file": file, "passed": not failed, "checks": checks})
    if failed:
        raise typer.Exit(1)
