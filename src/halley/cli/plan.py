"""``halley plan``: the best way to train a model on a system, with its proof."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from halley.cli import options
from halley.cli.errors import LIMIT, Cancelled, LimitReached
from halley.cli.fixed import parse_fixed
from halley.cli.options import ForceOption, JsonOption, TimeLimitOption
from halley.cli.report import refuse_existing
from halley.cli.solve import Bar, interruptible
from halley.errors import BadInput, Fault, Infeasible, did_you_mean
from halley.io.chip_fits import load_chip_fit
from halley.io.fits import load_libraries
from halley.io.load import load_chip
from halley.io.plan import plan_document, save_plan
from halley.io.save import dumps, write_atomic
from halley.io.system import load_system
from halley.io.transformers import load_model
from halley.ir.system import System
from halley.library import CHIP_FITS
from halley.planning.axes import Role
from halley.planning.data_parallel import recipe
from halley.planning.dfmodel import DFModelProblem, best_training
from halley.planning.machine import Efficiency, machine
from halley.planning.passes import under_load
from halley.planning.plan import Fixed, Outcome, TrainingProblem, TrainingResult
from halley.planning.training_search import best_training_plan
from halley.report.dfmodel import dfmodel_document, dfmodel_headline, dfmodel_tables, dfmodel_verdict
from halley.report.plan import headline, plan_tables, plan_words, verdict
from halley.report.plan_page import plan_page
from halley.report.terminal import show

_WHOLE = re.compile(r"[1-9][0-9]{0,8}")
VIEWS = ("halley", "dfmodel")
DEFAULT_FIT = "a100"
"""The chip whose measured efficiency others take that were not measured."""


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a shipped model, or a path to a model file.")],
    system: Annotated[
        str | None,
        typer.Option("--system", help="A shipped system, a path to a file, or a short form in quotes.", metavar="SYSTEM"),
    ] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sequences of an iteration.", metavar="NUMBER")] = None,
    sequence: Annotated[
        str | None, typer.Option("--sequence", help="Tokens of a sequence, if not as it was trained.", metavar="NUMBER")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Plan an iteration of training (the only kind of plan so far).")] = True,
    fix: Annotated[
        str | None, typer.Option("--fix", help="What is decided, e.g. tp=8,pp=8,zero=1 or node=dp:16+pp:8.", metavar="WORDS")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Give each axis of the network to one kind of parallelism.")] = False,
    view: Annotated[
        str, typer.Option("--view", help="halley, or dfmodel: that paper's assumptions and space.", metavar="WORD")
    ] = "halley",
    streaming: Annotated[
        bool, typer.Option("--streaming", help="With --view dfmodel: chips run kernels side by side that stream.")
    ] = False,
    optimizer: Annotated[
        str, typer.Option("--optimizer", help="Bytes per parameter: mixed-adam, fp32-adam, ...", metavar="RECIPE")
    ] = "mixed-adam-fp32-gradients",
    efficiency: Annotated[
        str | None, typer.Option("--efficiency", help="Fit of a chip's kernels, by name or path.", metavar="NAME")
    ] = None,
    time_limit: TimeLimitOption = None,
    ops: Annotated[bool, typer.Option("--ops", help="Show how every op is split, backward too.")] = False,
    out: Annotated[str | None, typer.Option("-o", "--output", help="Write the plan as JSON.", metavar="FILE")] = None,
    page: Annotated[str | None, typer.Option("--page", help="Write the report as one HTML file.", metavar="FILE")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Find the fastest way to train a model on a system, and prove it: axes, sharding, pipeline, microbatches, memory.

    Example: halley plan gpt3-1t --train --system '1024 x h100, nvlink 8, ib' --batch 2048

    Exit codes: 0 proven, 1 bad input, 2 nothing fits, 3 limit before the proof, 130 interrupted before any answer.
    """
    limit = options.seconds(time_limit)
    if view not in VIEWS:
        raise BadInput(Fault("--view", " or ".join(VIEWS), repr(view), did_you_mean(view, VIEWS)))
    found = system_of(system)
    shape = load_model(model)
    for target in filter(None, (out, page)):
        refuse_existing(target, force)
    if view == "dfmodel":
        if page:
            raise BadInput(Fault("--page", "the default view", "--view dfmodel", "use -o for its numbers"))
        fixed = parse_fixed(fix, [axis.name for axis in found.axes])
        sizes = whole_number("--batch", batch), whole_number("--sequence", sequence, shape.sequence)
        _dfmodel(DFModelProblem(shape, found, *sizes, streaming, _degrees(fixed)), json, out, force)
        return
    problem = TrainingProblem(
        shape,
        found,
        whole_number("--batch", batch),
        whole_number("--sequence", sequence, shape.sequence),
        efficiency_of(found, efficiency),
        load_libraries(found),
        recipe(optimizer),
        parse_fixed(fix, [axis.name for axis in found.axes]),
        whole,
    )
    remarks = options.remarks()
    result = _search(problem, limit, remarks)
    if json:
        options.print_json(plan_document(result))
    else:
        _show(options.output(), result, ops)
    if out:
        save_plan(result, out, force)
    if page:
        write_atomic(page, plan_page(result), force)
    for target in filter(None, (out, page)):
        remarks.print(Text(f"written to {target}"))
    if result.outcome is Outcome.LIMIT:
        remarks.print(Text(f"halley: {verdict(result.certificate, result.outcome)}"))
        raise typer.Exit(LIMIT)


def system_of(name: str | None) -> System:
    """The system of that name. Raises BadInput: none was named, or it cannot be read."""
    if name is None:
        remedy = "add for example --system '1024 x h100, nvlink 8, ib'; 'halley system list' lists shipped ones"
        raise BadInput(Fault("--system", "a system", "nothing", remedy))
    return load_system(name)


def whole_number(option: str, text: str | None, default: int | None = None) -> int:
    """The number of an option. Raises BadInput: it is none, or it is missing and has no default."""
    if text is None and default is not None:
        return default
    if text is None or not _WHOLE.fullmatch(text):
        got = "nothing" if text is None else repr(text)
        raise BadInput(Fault(option, "a whole number from 1 to 999,999,999", got, f"write for example '{option} 2048'"))
    return int(text)


def efficiency_of(system: System, name: str | None) -> Efficiency:
    """That of the chip in a long run; that of another chip, and a remark, where it was not measured."""
    if name is None and system.chip.name not in CHIP_FITS.names():
        remark = f"no kernels of {system.chip.name} were measured; they come as near to its data sheet as {DEFAULT_FIT}'s"
        options.remarks().print(Text(f"{remark} (see 'halley calibrate chip')"))
        name = DEFAULT_FIT
    fit = load_chip_fit(name or system.chip.name)
    return under_load(fit, machine(load_chip(fit.chip)))


def _degrees(fixed: Fixed) -> dict[Role, int]:
    """What DFModel's space can fix. Raises BadInput: something else is."""
    if fixed != Fixed(data=fixed.data, stages=fixed.stages, model=fixed.model):
        raise BadInput(Fault("--fix", "dp, pp and tp with --view dfmodel, whose space has no other choice", "others"))
    given = {Role.DATA: fixed.data, Role.PIPELINE: fixed.stages, Role.MODEL: fixed.model}
    return {role: ranks for role, ranks in given.items() if ranks is not None}


def _dfmodel(problem: DFModelProblem, json: bool, out: str | None, force: bool) -> None:
    """The plan in DFModel's view."""
    result = best_training(problem)
    if json:
        options.print_json(dfmodel_document(result))
    else:
        console = options.output()
        console.print(Text(dfmodel_headline(result), style="bold"))
        console.print(Text(dfmodel_verdict(result)))
        show(console, dfmodel_tables(result))
    if out:
        write_atomic(out, dumps(dfmodel_document(result)), force)
        options.remarks().print(Text(f"written to {out}"))


def _search(problem: TrainingProblem, limit: float | None, console: Console) -> TrainingResult:
    """The result, with progress on the console. Ctrl-C gives the best so far."""
    bar = Bar(console, "searching")
    try:
        with interruptible() as interrupts:
            return best_training_plan(problem, bar, limit)
    except Infeasible:
        where = f"{problem.shape.name} on {problem.system.name}"
        if interrupts:
            raise Cancelled(Fault(where, "a first plan", "Ctrl-C before there was one", "let it run longer")) from None
        if limit is not None and time.monotonic() - bar.started > limit:
            raise LimitReached(Fault(where, "a first plan before the time limit", "none", "raise --time-limit")) from None
        raise
    finally:
        bar.stop()


def _show(console: Console, result: TrainingResult, ops: bool) -> None:
    console.print(Text(headline(result), style="bold"))
    console.print(Text(plan_words(result.plan)))
    console.print(Text(verdict(result.certificate, result.outcome)))
    show(console, plan_tables(result, ops))
