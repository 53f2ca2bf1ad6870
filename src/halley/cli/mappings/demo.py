"""``halley demo``: what collectives inside fused kernels buy on published shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE
from halley.cli.options import JsonOption, TimeLimitOption
from halley.cli.solve import enough, solve_each
from halley.cost.figures import UNITS, estimate_document
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.mapping.problem import Problem
from halley.mapping.result import Result, Solution
from halley.report.mapping.facts import collective_kinds, outer_traffic, workload_text
from halley.report.table import Table, ratio
from halley.report.terminal import show
from halley.units import format_bytes, format_energy, format_time
from halley.workloads import shapes

MODELS = ("bert-large", "llama3-8b")
ROLES = {"scores-softmax": "GEMM + softmax", "projection-norm": "GEMM + norm", "attention-prefill": "self-attention"}
CHIPS = ("edge", "cloud")


def demo(
    tokens: Annotated[str, typer.Option("--tokens", help="Length of the sequence.", metavar="NUMBER")] = "512",
    model: Annotated[
        list[str] | None, typer.Option("--model", help="A model; by default bert-large and llama3-8b.", metavar="NAME")
    ] = None,
    chip: Annotated[list[str] | None, typer.Option("--chip", help="A chip; by default edge and cloud.", metavar="CHIP")] = None,
    time_limit: TimeLimitOption = "60s",
    json: JsonOption = False,
) -> None:
    """Best mappings of attention and GEMM kernels of published models: unfused, fused without collectives, fused with them.

    Example: halley demo --tokens 512 --time-limit 20s
    """
    limit, length = options.seconds(time_limit), options.whole_number("--tokens", tokens, most=2**20)
    problems = [
        (name, role, Problem(work, machine, time_limit=limit, baselines=("unfused", "fused-local")))
        for machine in map(load_chip, chip or CHIPS)
        for name in model or MODELS
        for role, work in _kernels(name, length)
    ]
    remarks = options.remarks()
    labelled = [
        (f"{position}/{len(problems)} {ROLES[role]} of {name} on {problem.chip.name}", problem)
        for position, (name, role, problem) in enumerate(problems, 1)
    ]
    found = solve_each(labelled, remarks, announced=True)
    results = [(name, role, result) for (name, role, _), result in zip(problems, found, strict=False)]  # fewer after Ctrl-C
    if json:
        options.print_json({"schema": "halley.demo/1", "tokens": length, "results": [_document(*item) for item in results]})
    else:
        show(options.output(), [demo_table(results, length)])
    if len(found) < len(problems) or not all(enough(result, 0.0) for result in found):
        remarks.print(Text("plans marked * stopped at the time limit or by Ctrl-C: the best so far"))
        raise typer.Exit(LIMIT_EXIT_CODE)


def _kernels(model: str, tokens: int) -> Iterator[tuple[str, Workload]]:
    made = shapes(model, tokens)
    return ((role, made[role]) for role in ROLES)


def demo_table(results: list[tuple[str, str, Result]], tokens: int) -> Table:
    """Three rows for each kernel; speed-up is over the unfused plan."""
    rows: list[tuple[str, ...]] = []
    strong = set()
    for name, role, result in results:
        reference = float(result.baselines[0].estimate.time) if result.baselines else float(result.best.estimate.time)
        for position, solution in enumerate((*result.baselines, result.best)):
            if solution is result.best:
                strong.add(len(rows))
            what = (f"{ROLES[role]}, {name}, {result.problem.chip.name}", "", "")[min(position, 2)]
            rows.append((what, *_cells(result, solution, reference)))
    head = ("kernel, model, chip", "plan", "time", "energy", "DRAM", "speed-up", "collectives")
    return Table(f"{tokens} tokens", head, tuple(rows), frozenset({2, 3, 4, 5}), frozenset(strong), frozenset({6}))


def _cells(result: Result, solution: Solution, reference: float) -> tuple[str, ...]:
    cost = solution.estimate
    mark = "" if solution.certificate.gap <= 0 else " *"
    return (
        solution.name + mark,
        format_time(float(cost.time)),
        format_energy(float(cost.energy)),
        format_bytes(outer_traffic(result.problem.chip, cost)),
        ratio(reference / float(cost.time)),
        ", ".join(collective_kinds(solution.plan)) or "none",
    )


def _document(model: str, role: str, result: Result) -> dict[str, Any]:
    problem = result.problem
    return {
        "model": model,
        "role": role,
        "chip": problem.chip.name,
        "workload": workload_text(problem.workload.name, problem.workload.parameters),
        "plans": [
            {
                "name": solution.name,
                "estimate": estimate_document(solution.plan, solution.estimate),
                "outer_traffic_B": outer_traffic(problem.chip, solution.estimate),
                "bound": {"value": solution.certificate.bound, "unit": UNITS[solution.certificate.objective]},
                "collectives": collective_kinds(solution.plan),
            }
            for solution in (*result.baselines, result.best)
        ],
    }
