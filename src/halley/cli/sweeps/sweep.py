"""``halley sweep``: the best designs of a study, and its front, with proof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE, Cancelled, HalleyGroup
from halley.cli.files import refuse_existing, write_answers
from halley.cli.options import ForceOption, JsonOption
from halley.cli.output import saved_first
from halley.cli.solve import SearchProgressBar
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.save import chip_text
from halley.io.systems.save import system_yaml
from halley.processes import MOST_WORKERS
from halley.report.rows import csv_text
from halley.report.sweeps import facts
from halley.report.terminal import show as show_tables
from halley.sweeps.load import load_study
from halley.sweeps.run import DesignSweep, SweepResult, numbered
from halley.sweeps.sampled import METHODS, RANDOM
from halley.sweeps.sampled import sample as sampled
from halley.sweeps.store import SweepStore
from halley.sweeps.study import Study
from halley.sweeps.values import VALUES_LIMIT
from halley.units import counted

if TYPE_CHECKING:
    from halley.sweeps.cluster import RayExecutor

RAY = "ray"
"""The engine of searches beyond one machine."""

RUN = "run"
"""The command that a study file without a command means."""


class SweepGroup(HalleyGroup):
    """``halley sweep STUDY`` is ``halley sweep run STUDY``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the command that is meant in front."""
        words = [word for word in args if not word.startswith("-")]
        if words and words[0] not in self.list_commands(ctx):
            args = [RUN, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


app = typer.Typer(
    cls=SweepGroup,
    no_args_is_help=True,
    help="Search all designs of a study: halley sweep STUDY.yaml. Its front is proven by bounds, and nothing is searched twice.",
)


@dataclass(frozen=True, slots=True)
class Targets:
    """Files for the answer; ``design``: the number of the design whose ``chip`` or ``system`` file is asked for, or None for the
    best."""

    csv: str | None
    parquet: str | None
    page: str | None
    chip: str | None
    system: str | None
    design: int | None
    out: str | None

    @property
    def files(self) -> list[str]:
        """All of them."""
        return list(filter(None, (self.csv, self.parquet, self.page, self.chip, self.system, self.out)))


StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="A study file (.yaml).")]
StoreOption = Annotated[
    str | None, typer.Option("--store", help="File that keeps the answers; else that of the study, with .db.", metavar="FILE")
]
BestOption = Annotated[str | None, typer.Option("--best", help="Also list this many designs, the best first.", metavar="N")]
CsvOption = Annotated[str | None, typer.Option("--csv", help="Write every design as CSV.", metavar="FILE")]
ParquetOption = Annotated[str | None, typer.Option("--parquet", help="Write every design as Parquet.", metavar="FILE")]
PageOption = Annotated[str | None, typer.Option("--page", help="Write one HTML file: scatter, front, table.", metavar="FILE")]
ChipOption = Annotated[str | None, typer.Option("--chip", help="Write the chip file of one design, the best.", metavar="FILE")]
SystemFileOption = Annotated[
    str | None, typer.Option("--system", help="Write the system file of one design, the best.", metavar="FILE")
]
DesignOption = Annotated[
    str | None, typer.Option("--design", help="The number of the design for --chip or --system.", metavar="N")
]
OutOption = Annotated[str | None, typer.Option("-o", "--output", help="Write the answer as JSON.", metavar="FILE")]


@app.command(RUN)
def run(
    study: StudyArgument,
    workers: Annotated[str | None, typer.Option("-j", "--workers", help="Processes; 1 unless given.", metavar="N")] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="ray: search on a Ray cluster, that of the environment; ray=ADDRESS: on that.", metavar="CLUSTER"
        ),
    ] = None,
    sample: Annotated[
        str | None, typer.Option("--sample", help="Search this many designs only, without bounds of the others.", metavar="N")
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="With --sample: random, or optuna, which learns from what it finds.", metavar="WORD")
    ] = RANDOM,
    seed: Annotated[str | None, typer.Option("--seed", help="With --sample: another seed than 0.", metavar="N")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Search every design, not only those the front needs.")] = False,
    store: StoreOption = None,
    best: BestOption = None,
    csv: CsvOption = None,
    parquet: ParquetOption = None,
    page: PageOption = None,
    chip: ChipOption = None,
    system: SystemFileOption = None,
    design: DesignOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Search the designs of a study, as far as its front needs, and go on where an earlier run ended.

    Example: halley sweep examples/sweep.yaml -j 2

    Exit codes: 0 the front is proven, 1 bad input, 3 stopped before.
    """
    count = options.whole_number("--workers", workers, 1, most=MOST_WORKERS, example=4)
    shown = options.whole_number("--best", best, 0, least=0, example=5) if best is not None else 0
    targets = Targets(csv, parquet, page, chip, system, _design(design, chip or system), out)
    _refuse(targets, force)
    remarks = options.remarks()
    bar = SearchProgressBar(remarks, "sweep")
    some = None if sample is None else options.whole_number("--sample", sample, most=VALUES_LIMIT, example=100)
    _check_sample(some, method, seed, everything)
    given = load_study(study, sampled=some is not None)
    _check_kind(given, targets)
    interrupted = False
    with _cluster(on) as executor:
        if executor is not None and workers is None:
            count = min(executor.workers, MOST_WORKERS)
        if some is not None:
            number = options.whole_number("--seed", seed, 0, least=0, example=1)
            try:
                result = sampled(given, some, method, number, _store(study, store), count, executor, bar)
            finally:
                bar.stop()
            interrupted = not result.done
        else:
            sweep = DesignSweep(given, _store(study, store), count, executor, everything=everything, progress=bar)
            try:
                _check_design(sweep, targets)
                _report_unused(sweep.store)
                sweep.run()
            except KeyboardInterrupt:
                if not sweep.begun:
                    raise _without_bounds(study, sweep) from None
                interrupted = True
            finally:
                bar.stop()
                sweep.close()
            result = sweep.result()
    if interrupted:
        remarks.print(Text("halley: interrupted; what was found is kept, and the same command goes on"))
    _give(result, shown, targets, json, force)
    if interrupted or not result.done or (result.limited and result.gap > result.study.gap + 1e-8):
        raise typer.Exit(LIMIT_EXIT_CODE)


@app.command()
def show(
    study: StudyArgument,
    store: StoreOption = None,
    best: BestOption = None,
    csv: CsvOption = None,
    parquet: ParquetOption = None,
    page: PageOption = None,
    chip: ChipOption = None,
    system: SystemFileOption = None,
    design: DesignOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Show what is known of a study, without any search: front, table, best designs.

    Example: halley sweep show examples/sweep.yaml --best 10
    """
    shown = options.whole_number("--best", best, 0, least=0, example=5) if best is not None else 0
    targets = Targets(csv, parquet, page, chip, system, _design(design, chip or system), out)
    _refuse(targets, force)
    kept = _store(study, store)
    if not Path(kept).exists():
        load_study(study)
        raise BadInput(Fault(kept, "a store of a sweep", "no file", f"run 'halley sweep {study}' first, or give --store"))
    given = load_study(study)
    _check_kind(given, targets)
    sweep = DesignSweep(given, kept, 0, read_only=True)
    _check_design(sweep, targets)
    _report_unused(sweep.store)
    result = sweep.result()
    known, every = sweep.bounded
    if known < every:
        options.remark_to_stderr(f"{every - known:,} of {every:,} lower bounds are not known yet: 'halley sweep {study}' goes on")
    _give(result, shown, targets, json, force)


def _report_unused(store: SweepStore) -> None:
    """Answers that are there and cannot be used."""
    own, others = store.counts()
    if others and not own:
        options.remark_to_stderr(f"{store.path}: {counted(others, 'answer')} of another version of the model, not used")


def _without_bounds(study: str, sweep: DesignSweep) -> Cancelled:
    """Ctrl-C before the first search."""
    known, every = sweep.bounded
    return Cancelled(
        Fault(study, f"{every:,} lower bounds before the first search", f"Ctrl-C after {known:,}, which are kept", "run it again")
    )


def _check_sample(count: int | None, method: str, seed: str | None, everything: bool) -> None:
    """Raises BadInput: options that need others, or exclude them."""
    if count is None and (method != RANDOM or seed is not None):
        option = "--method" if method != RANDOM else "--seed"
        raise BadInput(Fault(option, "--sample N beside it", "none", "say how many designs"))
    if count is not None and everything:
        raise BadInput(Fault("--all", "no --sample beside it", "both", "leave one of them out"))
    if method not in METHODS:
        raise BadInput(Fault("--method", " or ".join(METHODS), repr(method), did_you_mean(method, METHODS)))


@contextmanager
def _cluster(on: str | None) -> Iterator[RayExecutor | None]:
    """The executor of ``--on``. Raises BadInput: another word, or no cluster."""
    if on is None:
        yield None
        return
    word, _, address = on.partition("=")
    if word != RAY:
        raise BadInput(Fault("--on", f"{RAY} or {RAY}=ADDRESS", repr(on)))
    from halley.sweeps.cluster import RayExecutor

    executor = RayExecutor(address)
    try:
        yield executor
    finally:
        executor.shutdown()


def _store(study: str, store: str | None) -> str:
    return store or str(Path(study).with_suffix(".db"))


def _refuse(targets: Targets, force: bool) -> None:
    """Before the work, not after it."""
    for target in targets.files:
        refuse_existing(target, force)


def _design(number: str | None, target: str | None) -> int | None:
    """The design whose chip or system is asked for; None: the best."""
    if number is None:
        return None
    if target is None:
        raise BadInput(Fault("--design", "--chip FILE or --system FILE beside it", "none", "say where the file goes"))
    return options.whole_number("--design", number, 0, least=0, example=3)


def _check_kind(study: Study, targets: Targets) -> None:
    """Before the work, not after it."""
    if targets.chip and not study.of_chips:
        raise BadInput(Fault("--chip", "a study of chips", "one of systems", "use --system"))
    if targets.system and study.of_chips:
        raise BadInput(Fault("--system", "a study of systems", "one of chips", "use --chip"))


def _check_design(sweep: DesignSweep, targets: Targets) -> None:
    """Before the work, not after it."""
    if targets.design is not None:
        numbered(sweep.designs, targets.design)


def _give(result: SweepResult, best: int, targets: Targets, json: bool, force: bool) -> None:
    def save() -> str:
        files: dict[str, str | bytes] = {}
        if targets.csv:
            files[targets.csv] = csv_text(facts.sheet(result))
        if targets.parquet:
            from halley.report.sweeps.parquet import parquet_bytes  # here, and below: few ask for it

            files[targets.parquet] = parquet_bytes(facts.sheet(result))
        if targets.page:
            from halley.report.sweeps.page import sweep_page

            files[targets.page] = sweep_page(result)
        if targets.out:
            files[targets.out] = facts.json_text(result)
        said = [write_answers(files, force)]
        if targets.chip:  # last, as there may be no best design
            said.append(write_answers({targets.chip: chip_text(result.chip(targets.design))}, force))
        if targets.system:
            said.append(write_answers({targets.system: system_yaml(result.system(targets.design))}, force))
        return "\n".join(filter(None, said))

    with saved_first(save):
        if json:
            options.print_json(facts.answer_document(result))
            return
        console = options.output()
        console.print(Text(facts.title(result), style="bold"))
        console.print(Text(facts.verdict(result)))
        console.print(Text(facts.effort(result)))
        tables = [*([facts.front_table(result)] if result.front else []), facts.standings_table(result)]
        for sentence in facts.omissions(result):
            console.print(Text(sentence))
        show_tables(console, [*tables, *([facts.best_table(result, best)] if best else [])])
