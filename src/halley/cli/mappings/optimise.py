"""``halley optimise``: the best mapping with its proof."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE
from halley.cli.files import refuse_existing, save_trace, write_answers
from halley.cli.options import BaselineOption, ChipOption, ForceOption, JsonOption, ObjectiveOption, TimeLimitOption, TraceOption
from halley.cli.output import saved_first
from halley.cli.parameters import has_layer, refuse_beside, workload_from
from halley.cli.solve import enough, solve
from halley.errors import BadInput, Fault
from halley.importers.files import is_network
from halley.io.chips.load import load_chip, load_problem
from halley.io.files.save import dumps, write_numbered
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Result
from halley.report.mapping.facts import plan_text, problem_text, result_tables, verdict
from halley.report.terminal import show

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")


def optimise(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind of workload, graph, problem file (.yaml), model, or network (.onnx).")
    ],
    chip: ChipOption = None,
    objective: ObjectiveOption = None,
    front: Annotated[bool, typer.Option("--front", help="Also find the Pareto front of time and energy.")] = False,
    time_limit: TimeLimitOption = None,
    gap: Annotated[str | None, typer.Option("--gap", help="Stop at this gap, e.g. 0.01.", metavar="NUMBER")] = None,
    baselines: Annotated[bool, typer.Option(help="Search the baselines too.")] = True,
    baseline: BaselineOption = None,
    out: Annotated[str | None, typer.Option("-o", "--output", help="Where to write the result.", metavar="FILE")] = None,
    force: ForceOption = False,
    save: Annotated[bool, typer.Option(help="Write the result, to WORKLOAD-CHIP.json unless -o says otherwise.")] = True,
    trace: TraceOption = None,
    details: Annotated[bool, typer.Option("--details", help="Print the energy, the certificate and its space too.")] = False,
    json: JsonOption = False,
) -> None:
    """Find the best mapping of a workload on a chip, and prove it.

    Example: halley optimise gemm-softmax --m 512 --n 1024 --k 64 --chip edge

    The workload's parameters follow it as options; 'halley workloads KIND' lists them. --variant WORD selects one algorithm.

    A graph of your own: halley optimise 'C[m,n] = A[m,k] * B[k,n]' --m 64 --n 64 --k 32 --chip edge

    A layer of a model: halley optimise ./config.json --layer attention --tokens 512 --chip edge ('halley import' lists them).

    Exit codes: 0 solved, 1 bad input, 2 infeasible, 3 limit before the asked gap, 130 interrupted before any answer.
    """
    remarks = options.remarks()
    asked = options.seconds(time_limit)
    wanted = options.baselines(baseline, baselines)
    if is_network(workload) and not has_layer(context.args):
        _refuse_for_networks({"--front": front, "--baseline": baseline, "--trace": trace})
        _network(workload, context.args, (chip, objective, gap, asked), (out, force, save), (details, json))
        return
    if Path(workload).suffix in (".yaml", ".yml") and not has_layer(context.args):
        problem, good = _from_file(workload, context.args, chip, objective, asked, front, wanted)
        good = options.gap(gap, good)
        problem = replace(problem, gap=good)
    else:
        work = workload_from(workload, context.args, options.own_options(context))
        fixed = any(word.partition("=")[0] == "--variant" for word in context.args)
        machine = load_chip(options.needed_chip(chip))
        good = options.gap(gap)
        problem = Problem(
            work,
            machine,
            options.objective(objective),
            gap=good,
            time_limit=asked,
            baselines=wanted,
            front=front,
            fixed_variant=fixed,
        )
    own = str(own_name(problem)) if out is None else out
    for target, replaced in ((own if save else None, force or out is None), (trace, force)):
        if target is not None:
            refuse_existing(target, replaced)
    result = solve(problem, remarks)
    with saved_first(lambda: _save(result, out, force) if save else ""):
        if json:
            from halley.io.results.result import result_document  # here, and below: it loads the models of all saved answers

            options.print_json(result_document(result))
        else:
            report(options.output(), result, details)
        if trace is not None:
            save_trace(result, trace, force)
    if not enough(result, good):
        remarks.print(Text(f"halley: {verdict(result.best.certificate)}"))
        raise typer.Exit(LIMIT_EXIT_CODE)


def _network(
    workload: str,
    words: Sequence[str],
    question: tuple[str | None, str | None, str | None, float | None],
    written: tuple[str | None, bool, bool],
    shown: tuple[bool, bool],
) -> None:
    """A whole network. ``question``: chip, objective, gap, time limit; ``written``: where, whether over another file, whether at
    all; ``shown``: with details, as JSON."""
    from halley.answers.networks import NetworkAnswer  # here: only networks need them
    from halley.cli.mappings.network import network_to_map, optimise_network

    (chip, objective, gap, limit), (out, force, save), (details, json) = question, written, shown
    network, machine = network_to_map(workload, words), load_chip(options.needed_chip(chip))
    path = Path(out) if out is not None else file_name(network.name, machine.name)
    if save:
        refuse_existing(str(path), force or out is None)
    result = optimise_network(network, machine, options.objective(objective), options.gap(gap), limit)
    answer = NetworkAnswer(result)
    with saved_first(lambda: _written(answer.document(), path, out is None, force, "the kernels") if save else ""):
        if json:
            options.print_json(answer.document())
        else:
            console = options.output()
            for place, line in enumerate(answer.lines()):
                console.print(Text(line, style="" if place else "bold"))
            show(console, answer.tables(details))
    if not result.enough:
        raise typer.Exit(LIMIT_EXIT_CODE)


def _refuse_for_networks(given: Mapping[str, object]) -> None:
    """Raises BadInput: options that a whole network does not take."""
    if faults := [
        Fault(option, "one layer: --layer NAME", "a whole network", "leave it out") for option, it in given.items() if it
    ]:
        raise BadInput(faults)


def _from_file(
    path: str,
    words: Sequence[str],
    chip: str | None,
    objective: str | None,
    limit: float | None,
    front: bool,
    baselines: bool | tuple[str, ...],
) -> tuple[Problem, float]:
    """The problem of a file and its gap; options given beside it count more."""
    refuse_beside(path, words)
    file = load_problem(path)
    work = file.built()
    problem = Problem(
        work,
        load_chip(chip) if chip is not None else file.chip,
        options.objective(objective, Objective(file.objective)),
        time_limit=limit if limit is not None else file.limits.get("time_limit"),
        baselines=baselines,
        front=front,
        fixed_variant="variant" in file.parameters,
    )
    return problem, file.gap


def report(console: Console, result: Result, details: bool) -> None:
    """The result as tables."""
    problem = result.problem
    console.print(Text(problem_text(problem.workload, problem.chip, problem.objective), style="bold"))
    console.print(Text(plan_text(result.best)))
    console.print(Text(verdict(result.best.certificate)))
    show(console, result_tables(result, details))


def _save(result: Result, out: str | None, force: bool) -> str:
    """Write the result; what to say about it."""
    from halley.io.results.result import result_document

    return _written(result_document(result), Path(out) if out is not None else own_name(result.problem), out is None, force)


def _written(document: Mapping[str, Any], path: Path, numbered: bool, force: bool, details: str = "the certificate") -> str:
    """Write an answer, under a name with a number if that one is taken and nobody asked for it; what to say about it."""
    text, written = dumps(document), None
    if numbered and not force:
        with suppress(BadInput):  # written elsewhere below, which says why
            path = written = write_numbered(path, text)
    if written is None:
        write_answers({str(path): text}, force)
    return f"written to {path}; 'halley show {path} --details' prints {details}, 'halley check {path}' verifies it"


def own_name(problem: Problem) -> Path:
    """The name of a result for which none was given: that of workload and chip.

    >>> from halley.workloads import build
    >>> str(own_name(Problem(build("gemm", {"m": 4, "n": 4, "k": 4}), load_chip("edge"))))
    'gemm-edge.json'
    """
    return file_name(problem.workload.name, problem.chip.name)


def file_name(*names: str) -> Path:
    """The name of a file of an answer about what has these names.

    >>> str(file_name("my net", "edge"))
    'my-net-edge.json'
    """
    stem = "-".join(_UNUSUAL.sub("-", name)[:60].strip(".-") for name in names) or "result"
    return Path(f"{stem}.json")
