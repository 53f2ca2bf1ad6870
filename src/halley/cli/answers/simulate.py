"""``halley simulate``: a mapping run as events, beside what the formulas say."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.options import AnswerArgument, JsonOption
from halley.cost.anatomy import anatomy
from halley.cost.evaluate import evaluate
from halley.cost.figures import resource_name
from halley.errors import BadInput, Fault
from halley.io.results.envelope import read_saved
from halley.io.results.estimate import read_own
from halley.io.results.result import record_of
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.report.mapping.causes import summary
from halley.report.table import Table, percent
from halley.report.terminal import show
from halley.simulate.simulation import TASK_LIMIT, first_iterations
from halley.simulate.simulation import simulate as run
from halley.units import format_time

SCHEMA = "halley.simulation/1"


def simulate(
    file: AnswerArgument,
    plan: Annotated[str, typer.Option("--plan", help="Which plan: best, or the name of a baseline.", metavar="NAME")] = "best",
    limit: Annotated[str, typer.Option("--limit", help="Limit of the number of tasks.", metavar="NUMBER")] = str(TASK_LIMIT),
    iterations: Annotated[
        str | None,
        typer.Option("--iterations", help="Iterations of each dim's outermost loop; all by default.", metavar="NUMBER"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Simulate a mapping's transfers, computes and collective steps with resources as queues.

    Example: halley simulate result.json
    """
    most = options.whole_number("--limit", limit, most=10**7)
    first = None if iterations is None else options.whole_number("--iterations", iterations, example=3)
    workload, chip, tree, called = _mapping(file, plan)
    if first is not None:
        workload = first_iterations(workload, tree, first)
    estimate, found = evaluate(workload, chip, tree), run(workload, chip, tree, most)
    time = float(estimate.time)
    if json:
        busy = [{"resource": resource_name(s.resource), "place": s.place, "busy_s": busy} for s, busy in found.busy.items()]
        content = {"schema": SCHEMA, "plan": plan, "dims": dict(workload.dims), "tasks": found.tasks, "time_s": found.time}
        options.print_json({**content, "formula_s": time, "busy": busy})
        return
    extents = " ".join(f"{dim}={extent}" for dim, extent in workload.dims.items())
    rows = (
        ("dims", extents),
        ("tasks", f"{found.tasks:,}"),
        ("time simulated", format_time(found.time)),
        ("time by formula", f"{format_time(time)}, {100 * (time / found.time - 1):+.1f} %"),
        ("by formula", summary(anatomy(tree, estimate).total)),
    )
    ordered = sorted(found.busy.items(), key=lambda item: -item[1])
    busy_rows = tuple(
        (f"{resource_name(server.resource)} {server.place}".strip(), format_time(busy), percent(busy, found.time))
        for server, busy in ordered
        if busy
    )
    console = options.output()
    console.print(Text(f"simulation of {workload.name} on {chip.label}, {called}", style="bold"))
    show(
        console,
        (
            Table("Simulation", ("quantity", "value"), rows),
            Table("Resources at work", ("resource", "busy", "share"), busy_rows, frozenset({1, 2})),
        ),
    )


def _mapping(file: str, plan: str) -> tuple[Workload, Chip, Node, str]:
    """The mapping of that name in a file of mappings, or the one in a file of an estimate, and what it is called.

    Raises BadInput: a file of another kind, or no such plan; IllegalMapping: it breaks a rule.
    """
    saved = read_saved(file)
    if saved.kind == "estimate":
        own = read_own(saved)
        return own.workload, own.chip, own.plan, f"the mapping of {file}"
    record = record_of(saved)
    solutions = {solution.name: solution for solution in (record.content.answer.best, *record.content.answer.baselines)}
    if plan not in solutions:
        raise BadInput(Fault("--plan", f"one of: {', '.join(solutions)}", repr(plan)))
    return record.workload(solutions[plan]), record.problem.chip, record.plan(solutions[plan]), f"plan {plan}"
