"""``halley serve``: what one deployment of a model does under a load."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.answers.serving import serving_answer_document
from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.cli.output import give
from halley.cli.plans.systems import EfficiencyOption, SystemOption, efficiency_of, system_of
from halley.cli.serving.load import (
    CacheOption,
    ConcurrencyOption,
    InputOption,
    OutputTokensOption,
    PrefixOption,
    RateOption,
    SoftwareOption,
    WeightsOption,
    load_of,
)
from halley.io.networks.fits import load_libraries
from halley.io.software import load_software
from halley.io.transformers import load_model
from halley.report.serving.deployment import bound_words, serving_headline, serving_tables, serving_words
from halley.serving.deployment import Deployment, served
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a shipped model, or a path to a model file.")],
    system: SystemOption = None,
    input_: InputOption = None,
    output: OutputTokensOption = None,
    prefix: PrefixOption = None,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    tp: Annotated[str | None, typer.Option("--tp", help="Tensor-parallel ranks; by default all chips.", metavar="NUMBER")] = None,
    pp: Annotated[str | None, typer.Option("--pp", help="Pipeline stages; 1 by default.", metavar="NUMBER")] = None,
    ep: Annotated[str | None, typer.Option("--ep", help="Groups of experts; 1 by default.", metavar="NUMBER")] = None,
    dp: Annotated[str | None, typer.Option("--dp", help="Attention ranks of a replica; 1 by default.", metavar="NUMBER")] = None,
    weights: WeightsOption = "bf16",
    cache: CacheOption = "bf16",
    software: SoftwareOption = "vllm",
    efficiency: EfficiencyOption = None,
    out: Annotated[str | None, typer.Option("-o", "--output-file", help="Write the answer as JSON.", metavar="FILE")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Serve a model with one deployment: latency, throughput, memory, where the time goes, and bounds for any schedule.

    Example: halley serve llama3-8b --system '1 x h100' --input 2048 --output 256 --concurrency 32

    Exit codes: 0 answered, 1 bad input, 2 it does not fit or arrivals outrun it.
    """
    found = system_of(system)
    shape = load_model(model)
    load = load_of(input_, output, prefix, concurrency, rate)
    if out is not None:
        refuse_existing(out, force)
    numbers = {name: options.whole_number(f"--{name}", text, 1) for name, text in (("pp", pp), ("ep", ep), ("dp", dp))}
    rest = max(found.chips // (numbers["pp"] * numbers["dp"]), 1)
    layout = ReplicaLayout(tp=options.whole_number("--tp", tp, rest), **numbers)
    deployment = Deployment(
        ServedModel(shape, weights, cache),
        found,
        layout,
        load_software(software),
        efficiency_of(found, efficiency),
        load_libraries(found),
    )
    value = served(deployment, load)
    lines = serving_headline(deployment, load), serving_words(value), bound_words(value)
    give(lines, serving_tables(value), serving_answer_document(value), json, out, force)
