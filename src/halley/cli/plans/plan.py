"""``halley plan``: the best way to train a model on a system, with its proof."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from halley.answer import Status
from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption, TimeLimitOption
from halley.cli.output import give
from halley.cli.plans.launch import show_flags
from halley.cli.plans.serving_load import AcceptanceOption, CacheOption, DraftOption, InputOption, PrefixOption, StateOption
from halley.cli.plans.serving_plan import plan_serving, refuse_foreign
from halley.cli.plans.systems import (
    EfficiencyOption,
    KernelsOption,
    SoftwareOption,
    SystemOption,
    WorkersOption,
    efficiency_of,
    kernel_workers,
    system_of,
)
from halley.cli.solve import searching
from halley.dfmodel.plan import DFModelProblem, best_training
from halley.errors import BadInput, Fault, both, did_you_mean
from halley.importers.model import ImportedModel
from halley.importers.serving import STATE
from halley.importers.source import find_model, plan_remarks, planned
from halley.importers.training import LIBRARY, RECIPE, is_searched, training_problem
from halley.io.cache import user_store
from halley.io.files.text import read_text_bounded
from halley.io.results.dfmodel import dfmodel_document
from halley.io.results.training import plan_document
from halley.ir.system import System
from halley.launch.emit import FRAMEWORKS, known_framework
from halley.launch.limits import LIMITS, limits_of
from halley.launch.read import read_degrees
from halley.launch.serving import SERVING_ENGINES
from halley.report.plans.dfmodel import dfmodel_headline, dfmodel_tables, dfmodel_verdict
from halley.report.plans.page import plan_page
from halley.report.plans.plan import headline, plan_tables, short_tables, verdict
from halley.report.plans.words import plan_words
from halley.sharding.axes import Role
from halley.training.fixed import parse_fixed
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.joint import best_joint_plan
from halley.training.search.search import best_training_plan
from halley.workloads.transformer import Transformer

VIEWS = ("halley", "dfmodel")
NEXT_STEPS = (
    "--details prints memory, energy, traffic, roofline, all candidates and the certificate; "
    "{save}'halley explain {file}' says where the time goes, 'halley report {file} -o FILE.html' draws it"
)
"""What to do after a plan was printed on one screen."""
SPATIAL_LIMIT = 60.0
"""Time after which a plan of spatial chips is given with its gap, if the user names no time [s]."""


def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A shipped model, or a path to a model file or a config.json of Hugging Face.")
    ],
    system: SystemOption = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sequences of an iteration.", metavar="NUMBER")] = None,
    sequence: Annotated[
        str | None, typer.Option("--sequence", help="Tokens of a sequence; by default those of the training.", metavar="NUMBER")
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Plan an iteration of training, the default; --serve plans a deployment.")
    ] = True,
    fix: Annotated[
        str | None, typer.Option("--fix", help="Fixed decisions, e.g. tp=8,pp=8,zero=1 or node=dp:16+pp:8.", metavar="WORDS")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Give each axis of the network to one kind of parallelism.")] = False,
    view: Annotated[
        str, typer.Option("--view", help="halley, or dfmodel: that paper's assumptions and space.", metavar="WORD")
    ] = "halley",
    streaming: Annotated[
        bool, typer.Option("--streaming", help="With --view dfmodel: concurrent kernels that stream data to each other.")
    ] = False,
    optimizer: Annotated[
        str | None,
        typer.Option("--optimizer", help=f"Bytes per parameter: mixed-adam, fp32-adam or, by default, {RECIPE}.", metavar="NAME"),
    ] = None,
    efficiency: EfficiencyOption = None,
    software: SoftwareOption = None,
    products: Annotated[
        str | None,
        typer.Option(
            "--products", help="Element type of products with weights in layers: bf16 (default) or fp8.", metavar="TYPE"
        ),
    ] = None,
    kernels: KernelsOption = LIBRARY,
    workers: WorkersOption = None,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            help=f"Launch flags of the plan for {', '.join(FRAMEWORKS)}; with --serve, for {', '.join(SERVING_ENGINES)}.",
            metavar="FRAMEWORK",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option("--for", help=f"Only plans that this framework can run: {', '.join(LIMITS)}.", metavar="FRAMEWORK"),
    ] = None,
    from_flags: Annotated[
        str | None, typer.Option("--from-flags", help="Fix what the launch flags in a file say.", metavar="FILE")
    ] = None,
    time_limit: TimeLimitOption = None,
    ops: Annotated[bool, typer.Option("--ops", help="As --details, with every op, also of the backward pass.")] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Print memory, traffic, roofline, all candidates and the certificate too.")
    ] = False,
    out: Annotated[str | None, typer.Option("-o", help="Write the plan as JSON.", metavar="FILE")] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", help="As -o; with --serve, mean tokens of an answer.", metavar="FILE|NUMBER"),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Plan a deployment that serves the model.")] = False,
    input_: InputOption = None,
    prefix: PrefixOption = None,
    slo: Annotated[
        str | None, typer.Option("--slo", help="With --serve: limits, e.g. 'ttft 1 s, tpot 30 ms'.", metavar="TEXT")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="With --serve: least chips for so many requests per second.", metavar="NUMBER")
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", help="With --serve: dtypes of matrices to choose from, e.g. bf16,fp8.", metavar="DTYPES")
    ] = "bf16",
    cache: CacheOption = "bf16",
    state: StateOption = STATE,
    front: Annotated[
        bool, typer.Option("--front", help="With --serve: the whole front of speed for a user and throughput of a chip.")
    ] = False,
    together: Annotated[bool, typer.Option("--together", help="With --serve: prompts and decoding on the same chips.")] = False,
    draft: DraftOption = None,
    acceptance: AcceptanceOption = None,
    page: Annotated[str | None, typer.Option("--page", help="Write the report as one HTML file.", metavar="FILE")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Find the fastest way to train a model on a system, or with --serve to serve it, and prove it: axes, sharding, pipeline,
    microbatches, memory.

    Example: halley plan gpt3-1t --train --system '1024 x h100, nvlink 8, ib' --batch 2048

    Exit codes: 0 proven, 1 bad input, 2 nothing fits, 3 limit before the proof, 130 interrupted before any answer.
    """
    training = {"--batch": batch, "--sequence": sequence, "--fix": fix, "--whole": whole, "--streaming": streaming, "--ops": ops}
    training |= {"--optimizer": optimizer, "--time-limit": time_limit, "--page": page, "--products": products}
    training |= {"--details": details}
    training |= {"--from-flags": from_flags, "--for": framework}
    training |= {"--view": view != VIEWS[0], "--kernels": kernels != LIBRARY, "--workers": workers}
    serving = {"--input": input_, "--prefix": prefix, "--slo": slo, "--rate": rate, "--front": front, "--together": together}
    serving |= {"--draft": draft, "--acceptance": acceptance}
    refuse_foreign(serve, training if serve else serving)
    if serve:
        load = input_, output, prefix, slo, rate
        made_of = weights, cache, software, efficiency
        plan_serving(model, system, *load, *made_of, front, together, draft, acceptance, state, out, json, force, emit)
        return
    out = out or output
    limit = options.seconds(time_limit)
    if view not in VIEWS:
        raise BadInput(Fault("--view", " or ".join(VIEWS), repr(view), did_you_mean(view, VIEWS)))
    searched = is_searched(kernels, efficiency, "--")
    if emit is not None:
        known_framework(emit)
        if json:
            raise BadInput(
                Fault("--emit", "no --json beside it", "both", "write the plan with -o, then 'halley show FILE --emit'")
            )
    foreign = {"--page": page, "--efficiency": efficiency, "--optimizer": optimizer, "--time-limit": time_limit, "--ops": ops}
    foreign |= {"--kernels": searched, "--emit": emit, "--from-flags": from_flags, "--software": software, "--products": products}
    foreign |= {"--for": framework, "--workers": workers}
    _refuse(view, foreign if view == "dfmodel" else {"--streaming": streaming})
    found, (imported, shape) = both(lambda: system_of(system), lambda: _model(model))
    if products is not None:
        shape = replace(shape, products=products)
    for target in filter(None, (out, page)):
        refuse_existing(target, force)
    fixed, said = _fixed(found, fix, from_flags)
    sizes = options.whole_number("--batch", batch, said), options.whole_number("--sequence", sequence, shape.sequence)
    if view == "dfmodel":
        _dfmodel(DFModelProblem(shape, found, *sizes, streaming, _degrees(fixed)), json, out, force)
        return
    processes = kernel_workers(workers, searched)
    fitted = None if searched else efficiency_of(found, efficiency)
    problem = training_problem(shape, found, *sizes, fixed, whole, optimizer or RECIPE, fitted, software, searched)
    if framework is not None:
        problem = replace(problem, limits=limits_of(framework))
    remarks = options.remarks()
    for remark in _remarks(imported, problem, limit):
        remarks.print(Text(remark))
    limit = SPATIAL_LIMIT if found.chip.streams and limit is None else limit
    store = user_store() if searched else None
    with searching(remarks, f"{shape.name} on {found.name}", "plan") as bar:
        result = best_joint_plan(problem, bar, limit, store, processes) if searched else best_training_plan(problem, bar, limit)
    if store is not None and store.fault is not None:
        remarks.print(Text(f"searched kernels were not kept: {store.fault}"))
    document, proof = plan_document(result), verdict(result.certificate, result.status)
    lines = headline(result), plan_words(result.plan, result.cost), proof
    tables = plan_tables(result, ops) if details or ops else short_tables(result)
    give(lines, tables, document, json, out, force, {page: plan_page(result)} if page else {})
    if not (details or ops or json):
        remarks.print(Text(NEXT_STEPS.format(file=out or "FILE", save="" if out else "-o FILE saves the plan; ")))
    if emit is not None:
        show_flags(result, emit)
    if result.status is Status.LIMIT:
        remarks.print(Text(f"halley: {proof}"))
        raise typer.Exit(LIMIT_EXIT_CODE)


def _model(words: str) -> tuple[ImportedModel, Transformer]:
    """The model, and its shape as plans take it."""
    imported = find_model(words)
    return imported, planned(imported)


def _fixed(system: System, fix: str | None, from_flags: str | None) -> tuple[Fixed, int | None]:
    """The decisions of --fix, or of a file of launch flags with the batch that it states. Raises BadInput: both options, or their
    faults."""
    if from_flags is None:
        return parse_fixed(fix, [axis.name for axis in system.axes]), None
    if fix:
        raise BadInput(Fault("--from-flags", "no --fix beside it", "both", "leave one of them out"))
    degrees = read_degrees(read_text_bounded(from_flags), system.chips, from_flags)
    return degrees.fixed(), degrees.batch


def _remarks(imported: ImportedModel, problem: TrainingProblem, limit: float | None) -> Iterator[str]:
    """What to know before the search: what a plan leaves out of the model, the time limit of spatial chips, a batch that no two
    chips can divide."""
    chip, chips = problem.system.chip, problem.system.chips
    yield from (f"{problem.shape.name}: {remark}" for remark in plan_remarks(imported, problem.sequence))
    if chip.streams and limit is None:
        words = f"{chip.name} runs kernels concurrently: the search ends after {SPATIAL_LIMIT:.0f} s, with the gap of its plan"
        yield f"{words}; --time-limit sets another time"
    if math.gcd(problem.batch, chips) == 1 < chips:
        yield f"{problem.batch} sequences share no factor with {chips} chips: none can be data-parallel"


def _refuse(view: str, given: Mapping[str, object]) -> None:
    """Raises BadInput: options that are not of this view."""
    other = "the default view" if view == "dfmodel" else "--view dfmodel"
    if faults := [Fault(option, other, f"--view {view}", "leave it out") for option, value in given.items() if value]:
        raise BadInput(faults)


def _degrees(fixed: Fixed) -> dict[Role, int]:
    """What DFModel's space can fix. Raises BadInput: something else is."""
    if fixed != Fixed(data=fixed.data, stages=fixed.stages, model=fixed.model):
        raise BadInput(Fault("--fix", "dp, pp and tp with --view dfmodel, whose space has no other choice", "others"))
    given = {Role.DATA: fixed.data, Role.PIPELINE: fixed.stages, Role.MODEL: fixed.model}
    return {role: ranks for role, ranks in given.items() if ranks is not None}


def _dfmodel(problem: DFModelProblem, json: bool, out: str | None, force: bool) -> None:
    """The plan in DFModel's view."""
    result = best_training(problem)
    lines = dfmodel_headline(result), dfmodel_verdict(result)
    give(lines, dfmodel_tables(result), dfmodel_document(result), json, out, force)
