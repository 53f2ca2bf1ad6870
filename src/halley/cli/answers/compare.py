"""``halley compare``: plans side by side, and the reasons of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from halley.answers.base import Answer
from halley.answers.load import load, load_beside
from halley.answers.mapping import COMPARISON, MappingAnswer
from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE
from halley.cli.options import BaselineOption, JsonOption, ObjectiveOption, TimeLimitOption
from halley.cli.parameters import has_layer, workload_from
from halley.cli.solve import enough, solve_each
from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.mapping.problem import Problem
from halley.report.mapping.facts import problem_text
from halley.report.terminal import show


def compare(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind of workload, or the file of an answer; a second file may follow.")
    ],
    chip: Annotated[
        list[str] | None, typer.Option("--chip", help="A chip; repeat the option for several.", metavar="CHIP")
    ] = None,
    objective: ObjectiveOption = None,
    baseline: BaselineOption = None,
    time_limit: TimeLimitOption = None,
    json: JsonOption = False,
) -> None:
    """Compare two answers of one kind: which decisions differ, and why one is slower; or mappings of a workload.

    One file may be a mapping in the text form: it is costed for the problem of the other. With a kind of workload, the best
    mapping is compared with the baselines, on each chip; speed-ups are over the first row of each chip.

    Example: halley compare mine.json best.json

    Example: halley compare gemm-softmax --m 512 --n 1024 --k 64 --chip edge --chip cloud
    """
    if not has_layer(context.args) and any(word.endswith(".json") for word in (workload, *context.args)):
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
        compared = [MappingAnswer(result).baselines().document for result in results]
        joined = {key: [item for each in compared for item in each[key]] for key in ("answers", "reasons")}
        options.print_json({"schema": COMPARISON, **joined})
    else:
        console = options.output()
        for result in results:
            console.print(problem_text(work, result.problem.chip, goal), style="bold", markup=False)
            show(console, MappingAnswer(result).baselines().tables)
            console.print()
    if len(results) < len(problems) or not all(enough(result, 0.0) for result in results):
        raise typer.Exit(LIMIT_EXIT_CODE)


def _compare_files(files: Sequence[str], refused: Sequence[str], json: bool) -> None:
    """One answer about mappings: its baselines beside its best plan. Two answers of one kind: what differs, and why."""
    strange = [*refused, *(word for word in files if word.startswith("-"))]
    if strange or len(files) > 2:
        got = ", ".join(strange) if strange else f"{len(files)} files"
        raise BadInput(Fault("halley compare", "one or two files of answers, and no options but --json", got))
    answers = _loaded(files)
    for answer in answers:
        options.remark_to_stderr(answer.remark)
    if len(answers) == 2:
        found = answers[0].compare(answers[1], (files[0], files[1]))
    elif isinstance(answers[0], MappingAnswer):
        found = answers[0].baselines()
    else:
        raise BadInput(Fault("halley compare", f"a second file, of a {answers[0].kind}", "one file"))
    if json:
        options.print_json(found.document)
        return
    console = options.output()
    for answer in answers:
        for line in answer.lines()[:1]:
            console.print(line, style="bold", markup=False)
    if found.remark:
        console.print(found.remark, markup=False)
    show(console, found.tables)


def _loaded(files: Sequence[str]) -> list[Answer[Any]]:
    """The answers; a file that does not end in .json is a mapping in the text form, for the problem of the other."""
    known = {file: load(file) for file in files if file.endswith(".json")}
    others = list(known.values())
    return [known[file] if file in known else load_beside(file, others[0]) for file in files]
