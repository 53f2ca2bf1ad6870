"""``halley check``: is a result file true?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.checks import Check, front_check, search_check, solution_checks
from halley.cli.options import JsonOption, ResultArgument, TimeLimitOption
from halley.io.results.result import read_record

WORDS = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("open", "yellow")}
"""The word of an outcome, and its colour."""


def check(
    file: ResultArgument,
    time_limit: TimeLimitOption = "60s",
    search: Annotated[bool, typer.Option(help="Search again, to confirm the bound.")] = True,
    json: JsonOption = False,
) -> None:
    """Check a result: plans legal, figures and bounds true, times as simulated, outputs right.

    Costs each plan again, simulates it as events (a time more than 15 % from the formula's fails), executes it at a reduced size
    on real arrays, and searches again for the bound. One line per check; 'open' means that there was not time enough to tell.
    Exit code 1 if any check fails.

    Example: halley check result.json --time-limit 60s
    """
    limit = options.seconds(time_limit, 60.0) or 60.0
    record = read_record(file)
    remarks = options.remarks()
    done: list[Check] = []
    console = options.output()

    def tell(item: Check) -> None:
        done.append(item)
        if not json:
            word, colour = WORDS[item.passed]
            console.print(Text.assemble((f"{word:4}", colour), f"  {item.plan}: {item.what}: {item.detail}"), soft_wrap=True)

    tell(Check("file", "form", True, f"{file} is a result file of a known version"))
    for model in (record.content.best, *record.content.baselines):
        for item in solution_checks(record, model):
            tell(item)
    if record.content.front:
        tell(front_check(record))
    if search and all(item.passed is not False for item in done):
        tell(search_check(record, limit, remarks))
    failed = [item for item in done if item.passed is False]
    if json:
        checks = [{"plan": c.plan, "what": c.what, "outcome": WORDS[c.passed][0].lower(), "detail": c.detail} for c in done]
        options.print_json({"file": file, "passed": not failed, "checks": checks})
    if failed:
        raise typer.Exit(1)
