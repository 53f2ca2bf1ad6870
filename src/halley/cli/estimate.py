"""``halley estimate``: the cost of a mapping that the user wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.cli.options import ChipOption, JsonOption, WorkloadArgument
from halley.cli.parameters import workload_from
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible
from halley.io.chips.load import load_chip, read_text_bounded
from halley.io.results.result import estimate_document
from halley.ir.hardware import Chip
from halley.ir.text import located, to_text
from halley.report.mapping.facts import solution_tables, workload_text
from halley.report.terminal import show
from halley.rewrite.legality import check
from halley.units import format_bytes
from halley.version import halley_version

SCHEMA = "halley.estimate/1"


def estimate(
    context: typer.Context,
    tree: Annotated[str, typer.Argument(metavar="TREEFILE", help="A mapping in the text form of the mapping language.")],
    workload: WorkloadArgument,
    chip: ChipOption = None,
    json: JsonOption = False,
) -> None:
    """Cost a mapping from a file: legality, capacity, time, energy.

    Example: halley estimate plan.txt gemm --m 64 --n 64 --k 64 --chip edge
    """
    work = workload_from(workload, context.args, options.own_options(context))
    machine = load_chip(options.needed_chip(chip))
    plan, places = located(read_text_bounded(tree), tree)
    check(plan, work, machine, places)
    cost = evaluate(work, machine, plan)
    if overfull := capacity_faults(machine, cost, tree):
        raise Infeasible(overfull)
    if json:
        content = {
            "schema": SCHEMA,
            "workload": {"kind": work.name, "parameters": dict(work.parameters)},
            "chip": machine.name,
            "plan": to_text(plan),
            "estimate": estimate_document(plan, cost),
            "halley": halley_version(),
        }
        options.print_json(content)
        return
    console = options.output()
    console.print(f"{workload_text(work.name, work.parameters)} on {machine.name}, mapping {tree}", markup=False)
    show(console, solution_tables(machine, plan, cost))


def capacity_faults(chip: Chip, cost: Estimate, where: str) -> list[Fault]:
    """One fault for each memory that the mapping overfills."""
    return [
        Fault(
            f"{where}: memory {name}",
            f"at most {format_bytes(chip.memory(name).capacity)} in {name}",
            f"{format_bytes(float(used))} live at once",
            f"hold smaller tiles in {name}, or fewer tensors",
        )
        for name, used in cost.footprint.items()
        if float(used) > chip.memory(name).capacity
    ]
