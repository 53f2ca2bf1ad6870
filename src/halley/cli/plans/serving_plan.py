"""``halley plan --serve``: the best deployment of a model under limits of latency."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.output import give
from halley.cli.plans.launch import show_flags
from halley.cli.plans.serving_load import MOST_RATE, lengths_of
from halley.cli.plans.systems import serving_efficiency_of, system_of
from halley.cli.solve import searching
from halley.errors import BadInput, Fault
from halley.io.networks.fits import load_libraries
from halley.io.results.serving_plan import serving_plan_document
from halley.io.software import load_software
from halley.io.transformers import load_model
from halley.launch.serving import known_engine
from halley.report.serving.plan import (
    serving_plan_headline,
    serving_plan_tables,
    serving_plan_verdict,
    serving_plan_words,
)
from halley.serving.model import ServedModel
from halley.serving.search import Limits, ServingObjective, ServingProblem, search
from halley.units import SECONDS, parse

_LIMIT = re.compile(r"\s*(ttft|tpot)\s+(\S.*?)\s*")


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
    software: str,
    efficiency: str | None,
    front: bool,
    together: bool,
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
    found, shape = system_of(system), load_model(model)
    lengths, limits = lengths_of(input_, output, prefix), limits_of(slo)
    if out is not None:
        refuse_existing(out, force)
    precisions = [item.strip() for item in weights.split(",")]
    asked = options.number("--rate", rate, MOST_RATE) if rate is not None else 0.0
    problem = ServingProblem(
        tuple(ServedModel(shape, precision, cache) for precision in precisions),
        found,
        load_software(software),
        serving_efficiency_of(efficiency),
        lengths,
        limits,
        load_libraries(found),
        ServingObjective.CHIPS if asked else ServingObjective.THROUGHPUT,
        asked,
        not together,
        front,
    )
    with searching(options.remarks(), f"{shape.name} on {found.name}", "deployment") as bar:
        result = search(problem, bar)
    lines = serving_plan_headline(problem), serving_plan_words(result), serving_plan_verdict(result)
    give(lines, serving_plan_tables(result, front), serving_plan_document(result), json, out, force)
    if emit is not None:
        show_flags(result, emit)


def limits_of(text: str | None) -> Limits:
    """The limits of ``ttft 1 s, tpot 30 ms``. Raises BadInput: another form.

    >>> limits_of("ttft 1 s, tpot 30 ms").tpot
    0.03
    """
    if text is None:
        return Limits()
    given: dict[str, float] = {}
    for part in text.split(","):
        found = _LIMIT.fullmatch(part)
        if found is None or found[1] in given:
            raise BadInput(Fault("--slo", "limits such as 'ttft 1 s, tpot 30 ms'", repr(text)))
        given[found[1]] = parse(found[2], SECONDS, where=f"--slo, {found[1]}")
    return Limits(given.get("ttft", math.inf), given.get("tpot", math.inf))


def refuse_foreign(serve: bool, given: Mapping[str, object]) -> None:
    """Raises BadInput: options that are of the other kind of plan."""
    expected, got = ("no option of training", "--serve") if serve else ("--serve", "a plan of training")
    remedy = "leave it out" if serve else "add --serve, or leave it out"
    if faults := [Fault(name, expected, got, remedy) for name, value in given.items() if value]:
        raise BadInput(faults)
