"""``halley compare``: baselines and best plan side by side, on one chip or several."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.cli.errors import LIMIT
from halley.cli.options import JsonOption, ObjectiveOption, TimeLimitOption, WorkloadArgument
from halley.cli.parameters import workload_from
from halley.cli.solve import enough, solve
from halley.io.load import load_chip
from halley.io.result import result_document
from halley.report.facts import comparison, problem_text
from halley.report.terminal import show
from halley.search.problem import Problem


def compare(
    context: typer.Context,
    workload: WorkloadArgument,
    chip: Annotated[
        list[str] | None, typer.Option("--chip", help="A chip; give it again for each further one.", metavar="CHIP")
    ] = None,
    objective: ObjectiveOption = None,
    time_limit: TimeLimitOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the best mapping with the baselines, on each chip.

    Speed-ups are over the first row of each chip.

    Example: halley compare gemm-softmax --m 512 --n 1024 --k 64 --chip edge --chip cloud
    """
    work = workload_from(workload, context.args, options.own_options(context))
    fixed = any(word.partition("=")[0] == "--variant" for word in context.args)
    goal, limit = options.objective(objective), options.seconds(time_limit)
    names = chip or [options.needed_chip(None)]
    problems = [Problem(work, machine, goal, time_limit=limit, fixed_variant=fixed) for machine in map(load_chip, names)]
    remarks = options.remarks()
    results = [solve(problem, remarks, problem.chip.name) for problem in problems]
    if json:
        options.print_json({"schema": "halley.comparison/1", "results": [result_document(result) for result in results]})
    else:
        console = options.output()
        for result in results:
            console.print(problem_text(work, result.problem.chip, goal), style="bold", markup=False)
            show(console, [comparison(result)])
            console.print()
    if not all(enough(result, 0.0) for result in results):
        raise typer.Exit(LIMIT)
