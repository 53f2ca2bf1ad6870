"""``halley serve``: what one deployment of a model does under a load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from halley.answers.serving import serving_answer_document
from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.cli.output import give
from halley.cli.plans.launch import show_flags
from halley.cli.plans.serving_load import (
    AcceptanceOption,
    CacheOption,
    ConcurrencyOption,
    DraftOption,
    InputOption,
    OutputTokensOption,
    PrefixOption,
    RateOption,
    SoftwareOption,
    StateOption,
    WeightsOption,
    load_of,
    refuse_load,
    say_formats,
)
from halley.cli.plans.systems import EfficiencyOption, SystemOption, system_of
from halley.errors import BadInput, Fault
from halley.importers.serving import STATE, drafts_of, layout_on, served_model, with_speculation
from halley.importers.serving import deployment as deployment_of
from halley.io.files.text import read_text_bounded
from halley.io.requests import read_requests
from halley.io.results.envelope import provenance
from halley.io.software import load_software
from halley.ir.system import System
from halley.launch.serving import SERVING_ENGINES, known_engine, read_serving_flags
from halley.report.answers.page import simple_page
from halley.report.serving.deployment import bound_words, cost_table, serving_headline, serving_tables, serving_words
from halley.report.serving.events import events_document, events_table
from halley.report.serving.speculation import speculation_document, speculation_table
from halley.report.serving.trace import trace_pictures, trace_tables
from halley.report.table import Table
from halley.serving.deployment import Deployment, Load, with_draft
from halley.serving.memory import check_draft_fits
from halley.serving.model import ServedModel
from halley.serving.served import Served, served
from halley.serving.simulate import Requests, Simulated, generated, simulate
from halley.serving.software import ServingSoftware
from halley.serving.speculation import LONGEST_WINDOW, WINDOWS, Round, speculation_round
from halley.serving.steady import Lengths
from halley.units import format_time

MOST_ON_PAGE = 10**6
"""Requests that a page is made of at most: their times are kept."""


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a shipped model, or a path to a model file.")],
    system: SystemOption = None,
    input_: InputOption = None,
    output: OutputTokensOption = None,
    prefix: PrefixOption = None,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    trace: Annotated[
        str | None, typer.Option("--trace", help="Replay a CSV file with arrival, input, output of requests.", metavar="FILE")
    ] = None,
    events: Annotated[
        str | None, typer.Option("--events", help="Also simulate so many drawn requests, event by event.", metavar="NUMBER")
    ] = None,
    tp: Annotated[str | None, typer.Option("--tp", help="Tensor-parallel ranks; by default all chips.", metavar="NUMBER")] = None,
    pp: Annotated[str | None, typer.Option("--pp", help="Pipeline stages; 1 by default.", metavar="NUMBER")] = None,
    ep: Annotated[str | None, typer.Option("--ep", help="Groups of experts; 1 by default.", metavar="NUMBER")] = None,
    dp: Annotated[str | None, typer.Option("--dp", help="Attention ranks of a replica; 1 by default.", metavar="NUMBER")] = None,
    page: Annotated[
        str | None,
        typer.Option(
            "--page", help="With --trace or --events: what the requests did over time, as a page (HTML).", metavar="FILE"
        ),
    ] = None,
    draft: DraftOption = None,
    acceptance: AcceptanceOption = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            help="With --draft: the deployment itself proposes so many tokens in a round; 1 to 64.",
            metavar="NUMBER",
        ),
    ] = None,
    preempt: Annotated[
        str | None,
        typer.Option(
            "--preempt",
            help="With --trace or --events: recompute a sequence that makes way for others, or swap its cache to the host.",
            metavar="HOW",
        ),
    ] = None,
    from_flags: Annotated[
        str | None,
        typer.Option(
            "--from-flags",
            help="Degrees, batch and dtypes from a launch command of vLLM, SGLang or TensorRT-LLM.",
            metavar="FILE",
        ),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option("--emit", help=f"Launch flags of the deployment for {', '.join(SERVING_ENGINES)}.", metavar="ENGINE"),
    ] = None,
    years: Annotated[
        str | None,
        typer.Option("--years", help="Years of depreciation of the parts, for the cost of a million tokens.", metavar="NUMBER"),
    ] = None,
    power_price: Annotated[
        str | None, typer.Option("--power-price", help="USD per kWh, with --years; 0 by default.", metavar="NUMBER")
    ] = None,
    weights: WeightsOption = "bf16",
    cache: CacheOption = "bf16",
    state: StateOption = STATE,
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
    asked = served_model(model, weights, cache, state)
    if from_flags is None:
        say_formats(model, weights, state)
    if trace is not None:
        refuse_load(
            {"--input": input_, "--output": output, "--concurrency": concurrency, "--rate": rate, "--events": events, "-o": out}
            | {"--years": years, "--power-price": power_price}
        )
    if preempt is not None and trace is None and events is None:
        raise BadInput(Fault("--preempt", "--trace or --events beside it", "neither", "write for example '--events 1000'"))
    load = None if trace is not None else load_of(input_, output, prefix, concurrency, rate)
    if out is not None:
        refuse_existing(out, force)
    if page is not None:
        refuse_existing(page, force)
        if trace is None and events is None:
            raise BadInput(Fault("--page", "--trace or --events beside it", "neither", "write for example '--events 1000'"))
    if emit is not None:
        known_engine(emit)
        if json or trace is not None:
            other = "--json" if json else "--trace"
            raise BadInput(Fault("--emit", f"no {other} beside it", "both", "leave one of them out"))
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    framework = load_software(software) if preempt is None else replace(load_software(software), preempt=preempt)
    deployment = deployment_by_options(asked, found, framework, efficiency, degrees, from_flags)
    deployment = speculating(deployment, draft, acceptance, window, trace is not None or events is not None)
    if load is None:
        give_replayed(deployment, str(trace), prefix, page, json, force)
        return
    value = served(deployment, load)
    lines = serving_headline(deployment, load), serving_words(value), bound_words(value)
    tables, document, pages = serving_tables(value), serving_answer_document(value), dict[str, str]()
    if rounds := rounds_of(deployment, value, draft, acceptance) if window is None else []:
        tables.insert(1, speculation_table(rounds))
        document["answer"]["speculation"] = speculation_document(rounds)
    if events is not None:
        most = MOST_ON_PAGE if page is not None else 10**8
        number = options.whole_number("--events", events, most=most, example=1000)
        simulated = drawn(deployment, load, number, page is not None)
        tables.insert(1, events_table(simulated, found.chips, load.concurrency is not None))
        pages = pages_of(page, deployment, simulated, lines[0], tables[1:2])
        document["answer"]["events"] = events_document(simulated)
    if years is not None or power_price is not None:
        rates = cost_rates(years, power_price)
        cost = value.cost(*rates)
        if cost is None:
            raise BadInput(Fault(found.name, "stated prices and power of its parts", "none", "give them in a system file"))
        tables.insert(1, cost_table(value, *rates, cost))
        document["answer"]["cost"] = {"usd_per_million_output_tokens": cost, "years": rates[0], "usd_per_kwh": rates[1]}
    give(lines, tables, document, json, out, force, pages)
    if emit is not None:
        show_flags(value, emit)


def deployment_by_options(
    model: ServedModel,
    system: System,
    software: ServingSoftware,
    efficiency: str | None,
    degrees: Mapping[str, str | None],
    from_flags: str | None,
) -> Deployment:
    """The deployment with the degrees of options, or of a file of launch flags, which may also set dtypes, users and tokens of a
    step. Raises BadInput: degrees beside the file, and what `deployment_of` refuses; Infeasible: the model does not fit."""
    given = {name: text for name, text in degrees.items() if text}
    if from_flags is None:
        layout = layout_on(system, **{name: options.whole_number(f"--{name}", text, example=2) for name, text in given.items()})
        return deployment_of(model, system, layout, software, efficiency)
    if given:
        raise BadInput([Fault("--from-flags", f"no --{name} beside it", "both", "leave one out") for name in given])
    flags = read_serving_flags(read_text_bounded(from_flags), from_flags)
    model = replace(model, weights=flags.weights or model.weights, cache=flags.cache or model.cache)
    model = replace(model, state=flags.state or model.state)
    software = replace(software, users=flags.users or software.users, budget=flags.budget or software.budget)
    return deployment_of(model, system, flags.layout, software, efficiency)


def speculating(
    deployment: Deployment, draft: str | None, acceptance: str | None, window: str | None, simulated: bool
) -> Deployment:
    """The deployment with the draft of options, if they state a ``window``. Raises BadInput: a window alone, or requests that are
    ``simulated`` with a draft and no window; a draft in a pipeline."""
    if window is None:
        if simulated and draft is not None:
            remedy = "write for example '--window 3'; without --events a table compares windows"
            raise BadInput(Fault("--draft", "--window beside it where requests are simulated", "none", remedy))
        return deployment
    size = options.whole_number("--window", window, most=LONGEST_WINDOW, example=3)
    return with_speculation(deployment, draft, acceptance, size)


def give_replayed(deployment: Deployment, trace: str, prefix: str | None, page: str | None, json: bool, force: bool) -> None:
    """Print what the requests of a file met, and write the page if one is asked for."""
    cached = options.whole_number("--prefix", prefix, 0, example=512) if prefix else 0
    found = replayed(deployment, trace, cached, page is not None)
    model, system = deployment.model, deployment.system
    where = f"{system.chips:,} x {system.chip.name}, {deployment.layout.text}"
    line = f"{model.shape.name} ({model.weights}, cache {model.cache}) on {where}: {trace}"
    tables = [events_table(found, system.chips)]
    give((line,), tables, events_document(found), json, None, force, pages_of(page, deployment, found, line, tables))


def cost_rates(years: str | None, power_price: str | None) -> tuple[float, float]:
    """(years, USD per kWh). Raises BadInput: no years, or no numbers."""
    if years is None:
        raise BadInput(Fault("--power-price", "--years beside it", "it alone", "write for example '--years 4'"))
    found = options.number("--years", years, 100.0)
    if not found:
        raise BadInput(Fault("--years", "a number above 0", years))
    return found, options.number("--power-price", power_price, 1e3) if power_price is not None else 0.0


def rounds_of(deployment: Deployment, value: Served, draft: str | None, acceptance: str | None) -> list[Round]:
    """Rounds of speculation at the batch of the steady state, for windows of 1 to 8; none without a draft. Raises BadInput: one
    option without the other, numbers that are no chances."""
    drafts = drafts_of((deployment.model,), draft, acceptance)
    if drafts is None:
        return []
    small = with_draft(deployment, drafts.models[0])
    users, context = max(value.state.decoding, 1.0), value.load.lengths.mean_context
    where = f"speculation with {small.model.shape.name} on {deployment.system.name}"
    check_draft_fits(deployment.engine_memory, small.memory, users, context, where)
    return [speculation_round(deployment.step, small.step, drafts.acceptance, window, users, context) for window in WINDOWS]


def pages_of(page: str | None, deployment: Deployment, found: Simulated, line: str, tables: Sequence[Table]) -> dict[str, str]:
    """The page of simulated requests by its name, if one is asked for."""
    if page is None:
        return {}
    document = events_document(found) | {"provenance": provenance()}
    pictures, more = trace_pictures(deployment, found), trace_tables(deployment, found)
    words = f"{found.requests:,} requests, {found.tokens:,} output tokens, {format_time(found.time)}; {deployment.software.name}"
    main = {
        "tokens/s out": f"{found.output:,.0f}",
        "TTFT, median": format_time(found.ttft.percentile(0.5)),
        "TPOT, median": format_time(found.tpot.percentile(0.5)),
        "end to end, median": format_time(found.latency.percentile(0.5)),
    }
    return {page: simple_page("Halley serving, by events", (line, words), pictures, [*tables, *more], document, False, main)}


def replayed(deployment: Deployment, trace: str, prefix: int, keep: bool = False) -> Simulated:
    """The requests of a file, event by event."""
    deployment.check(Lengths(1, 1))
    found = simulated_on(deployment, read_requests(trace, prefix), 0, prefix, keep)
    if not found.requests:
        raise BadInput(Fault(trace, "at least one request", "none"))
    return found


def drawn(deployment: Deployment, load: Load, count: int, keep: bool = False) -> Simulated:
    """So many requests of the load, with lengths uniform within a fifth around their means, event by event."""
    bounds = [(0.9 * mean, 1.1 * mean) for mean in (load.lengths.input, load.lengths.output)]
    users = 0 if load.concurrency is None else int(load.concurrency)
    blocks = generated(count, load.rate or 0.0, bounds[0], bounds[1])
    return simulated_on(deployment, blocks, users, int(load.lengths.prefix), keep)


def simulated_on(deployment: Deployment, blocks: Iterable[Requests], users: int, prefix: int, keep: bool) -> Simulated:
    """Requests on all engines of a deployment, with its speculation. ``users``: of a closed loop, 0: requests arrive when they
    say."""
    own = deployment.speculation
    chances = None if own is None else own.acceptance
    made = deployment.step, deployment.engine_memory, blocks, deployment.engines
    return simulate(*made, users, prefix, keep, acceptance=chances)
