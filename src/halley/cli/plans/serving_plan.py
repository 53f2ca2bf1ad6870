"""``halley plan --serve``: the best deployment of a model under limits of latency."""

from __future__ import annotations

from collections.abc import Mapping

from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.output import give
from halley.cli.plans.launch import show_flags
from halley.cli.plans.serving_load import lengths_of, rate_of, say_formats
from halley.cli.plans.systems import system_of
from halley.cli.solve import searching
from halley.errors import BadInput, Fault
from halley.importers.serving import serving_problem
from halley.io.results.serving_plan import serving_plan_document
from halley.launch.serving import known_engine
from halley.report.serving.plan import (
    serving_plan_headline,
    serving_plan_tables,
    serving_plan_verdict,
    serving_plan_words,
)
from halley.serving.plans.search import search


def plan_serving(
    model: str,
    system: str | None,
    input_: str | None,
    output: str | None,
    prefix: str | None,
    slo: str | None,
    rate: str | None,
    weights: str,
    cache: str,
    software: str | None,
    efficiency: str | None,
    front: bool,
    together: bool,
    draft: str | None,
    acceptance: str | None,
    state: str,
    out: str | None,
    json: bool,
    force: bool,
    emit: str | None,
) -> None:
    """Find the deployment that serves most under the limits, and bound all others."""
    if emit is not None:
        known_engine(emit)
        if json:
            raise BadInput(
                Fault("--emit", "no --json beside it", "both", "write the plan with -o, then 'halley show FILE --emit'")
            )
    found, lengths = system_of(system), lengths_of(input_, output, prefix)
    if out is not None:
        refuse_existing(out, force)
    asked = None if rate is None else rate_of(rate)
    fitted = slo, weights, cache, software, efficiency
    say_formats(model, weights, state)
    problem = serving_problem(model, found, lengths, *fitted, asked, front, together, draft, acceptance, state)
    with searching(options.remarks(), f"{problem.models[0].shape.name} on {found.name}", "deployment") as bar:
        result = search(problem, bar)
    lines = serving_plan_headline(problem), serving_plan_words(result), serving_plan_verdict(result)
    give(lines, serving_plan_tables(result, front), serving_plan_document(result), json, out, force)
    if emit is not None:
        show_flags(result, emit)


def refuse_foreign(serve: bool, given: Mapping[str, object]) -> None:
    """Raises BadInput: options that are of the other kind of plan."""
    expected, got = ("no option of training", "--serve") if serve else ("--serve", "a plan of training")
    remedy = "leave it out" if serve else "add --serve, or leave it out"
    if faults := [Fault(name, expected, got, remedy) for name, value in given.items() if value]:
        raise BadInput(faults)
