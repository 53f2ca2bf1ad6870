"""``halley estimate``: the cost of a mapping that the user wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ChipOption, ForceOption, JsonOption, WorkloadArgument
from halley.cli.output import give
from halley.cli.parameters import workload_from
from halley.cost.evaluate import evaluate
from halley.cost.own import OwnMapping, capacity_faults
from halley.errors import Infeasible
from halley.io.chips.load import load_chip, read_text_bounded
from halley.io.results.estimate import own_document
from halley.ir.text import located
from halley.report.mapping.facts import solution_tables, workload_text
from halley.rewrite.legality import check


def estimate(
    context: typer.Context,
    tree: Annotated[str, typer.Argument(metavar="TREEFILE", help="A mapping in the text form of the mapping language.")],
    workload: WorkloadArgument,
    chip: ChipOption = None,
    out: Annotated[str | None, typer.Option("-o", "--output", help="Write the answer as JSON.", metavar="FILE")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
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
    if out:
        refuse_existing(out, force)
    lines = (f"{workload_text(work.name, work.parameters)} on {machine.name}, mapping {tree}",)
    document = own_document(OwnMapping(work, machine, plan, cost)) if out or json else {}
    give(lines, solution_tables(machine, plan, cost), document, json, out, force)
