"""``halley show``: a result file as tables."""

from __future__ import annotations

from halley.cli import options
from halley.cli.optimise import report
from halley.cli.options import JsonOption, ResultArgument
from halley.io.results.result import load_result, read_record


def show(file: ResultArgument, json: JsonOption = False) -> None:
    """Show a result again, its plans costed anew.

    Example: halley show result.json
    """
    result = load_result(file)
    if json:
        options.print_json(read_record(file).content.model_dump(by_alias=True, warnings=False))  # with the file's own date
    else:
        report(options.output(), result)
