"""``halley compare``: plans side by side, and the reasons of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from halley.cli import options
from halley.cli.errors import LIMIT
from halley.cli.options import BaselineOption, JsonOption, ObjectiveOption, TimeLimitOption
from halley.cli.parameters import workload_from
from halley.cli.solve import enough, solve_each
from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.io.results.result import load_result, result_document
from halley.mapping.problem import Problem
from halley.report.mapping.facts import comparison, comparison_table, problem_text
from halley.report.mapping.reasons import all_reasons, memory_names, reasons, reasons_document, reasons_table
from halley.report.terminal import show


def compare(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind of workload, or a result file; then one more result file, or none.")
    ],
    chip: Annotated[
        list[str] | None, typer.Option("--chip", help="A chip; give it again for each further one.", metavar="CHIP")
    ] = None,
    objective: ObjectiveOption = None,
    baseline: BaselineOption = None,
    time_limit: TimeLimitOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the best mapping with the baselines, on each chip, or the plans of result files; say why they differ.

    Speed-ups are over the first row of each chip.

    Example: halley compare gemm-softmax --m 512 --n 1024 --k 64 --chip edge --chip cloud

    Example: halley compare before.json after.json
    """
    if workload.endswith(".json"):
        given = {"--chip": chip, "--objective": objective, "--baseline": baseline, "--time-limit": time_limit}
        _compare_files([workload, *context.args], [name for name, value in given.items() if value is not None], json)
        return
    work = workload_from(workload, context.args, options.own_options(context))
    fixed = any(word.partition("=")[0] == "--variant" for word in context.args)
    goal, limit = options.objective(objective), options.seconds(time_limit)
    wanted = options.baselines(baseline)
    names = chip or [options.needed_chip(None)]
    machines = [load_chip(name) for name in names]
    problems = [Problem(work, machine, goal, time_limit=limit, baselines=wanted, fixed_variant=fixed) for machine in machines]
    remarks = options.remarks()
    results = solve_each([(problem.chip.name, problem) for problem in problems], remarks)
    if json:
        found = [reasons_document(item) for result in results for item in all_reasons(result)]
        options.print_json(_document([result_document(result) for result in results], found))
    else:
        console = options.output()
        for result in results:
            console.print(problem_text(work, result.problem.chip, goal), style="bold", markup=False)
            show(console, [comparison(result), *map(reasons_table, all_reasons(result))])
            console.print()
    if len(results) < len(problems) or not all(enough(result, 0.0) for result in results):
        raise typer.Exit(LIMIT)


def _compare_files(files: Sequence[str], refused: Sequence[str], json: bool) -> None:
    """One result: its baselines beside its best plan. Two: the best plan of each."""
    strange = [*refused, *(word for word in files if not word.endswith(".json"))]
    if strange or len(files) > 2:
        got = ", ".join(strange) if strange else f"{len(files)} files"
        raise BadInput(Fault("halley compare", "one or two result files, and no options but --json", got))
    results = [load_result(file) for file in files]
    if len(results) == 1:
        found = all_reasons(results[0])
        table = comparison(results[0])
    else:
        first, second = results
        chips = [result.problem.chip for result in results]
        found = (reasons(first.best, second.best, memory_names(chips), (files[0], files[1])),)
        plans = [(file, result.problem.chip, result.best) for file, result in zip(files, results, strict=True)]
        table = comparison_table(plans)
    if json:
        documents = [result_document(result) for result in results]
        options.print_json(_document(documents, [reasons_document(item) for item in found]))
        return
    console = options.output()
    for result in results:
        question = problem_text(result.problem.workload, result.problem.chip, result.problem.objective)
        console.print(question, style="bold", markup=False)
    show(console, [table, *map(reasons_table, found)])


def _document(results: Sequence[object], found: Sequence[object]) -> dict[str, object]:
    return {"schema": "halley.comparison/1", "results": results, "reasons": found}
