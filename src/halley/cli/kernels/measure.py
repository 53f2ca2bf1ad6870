"""``halley measure``: times of kernels and collectives on this machine, as tables for ``halley calibrate``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import Cancelled
from halley.cli.interrupts import name_of, noted
from halley.cli.options import ForceOption, JsonOption
from halley.cli.solve import SearchProgressBar
from halley.errors import BadInput, Fault
from halley.io.chips.software import software_document
from halley.io.files.save import write_atomic
from halley.kernels.software import Software
from halley.measure.run import SuiteRun
from halley.measure.run import measure as time_all
from halley.measure.suite import GROUPS, suite
from halley.measure.tables import attention_share, kernel_table, operator_table, reached, read_rows, rows_document
from halley.measure.timing import Device, TimedCase, Timing
from halley.report.table import Table
from halley.report.terminal import show
from halley.units import format_time

ROWS, KERNELS, OPERATORS, COLLECTIVES, SOFTWARE = "rows.json", "kernels.csv", "operators.csv", "collectives.csv", "software.yaml"


def measure(
    out: Annotated[str, typer.Option("-o", "--output", help="Folder for the tables.", metavar="FOLDER")] = "measured",
    device: Annotated[str, typer.Option("--device", help="cuda, cuda:NUMBER or cpu.", metavar="NAME")] = "cuda",
    only: Annotated[
        str | None, typer.Option("--only", help=f"Parts of the suite, with commas: {', '.join(GROUPS)}.", metavar="NAMES")
    ] = None,
    limit: Annotated[
        str, typer.Option("--time-limit", help="No kernel is begun after this time; the next run goes on.", metavar="TIME")
    ] = "300s",
    ranks: Annotated[
        str | None, typer.Option("--ranks", help="Also time collectives between so many GPUs or processes.", metavar="NUMBER")
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Repeat the same operands, so that caches keep them.")] = False,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Time products, attention, norms, elementwise functions and copies on this machine, for 'halley calibrate chip'.

    Needs PyTorch. Writes rows.json, kernels.csv, operators.csv, software.yaml and, with --ranks, collectives.csv. A second run
    with the same folder times what is missing.

    Example: halley measure -o measured
    """
    from halley.measure.torch_device import torch_device

    seconds = options.seconds(limit)
    number = None if ranks is None else options.whole_number("--ranks", ranks, least=2, most=64, example=8)
    on = torch_device(device, warm)
    cases = suite(_names(only), on.operations, on.capacity)
    folder = _folder(out)
    software = f"{on.software}{', warm operands' if warm else ''}"
    before = {} if force else read_rows(folder / ROWS, on.name, software)
    date = datetime.date.today().isoformat()
    remark = f"Measured by 'halley measure' on {date}: {on.name}, {software}."

    def known(run: SuiteRun) -> tuple[TimedCase, ...]:
        """With what earlier runs timed of other parts of the suite."""
        return tuple({**before, **{str(item.case): item for item in run.measured}}.values())

    def save(run: SuiteRun) -> None:
        rows = known(run)
        write_atomic(folder / ROWS, rows_document(on.name, software, rows, run.skipped), force=True)
        write_atomic(folder / KERNELS, kernel_table(on.name, software, rows, remark), force=True)
        write_atomic(folder / OPERATORS, operator_table(rows, remark), force=True)

    bar = SearchProgressBar(options.remarks(), "measuring")
    try:
        with noted() as signals:
            try:
                run = time_all(cases, on, before, seconds or 1e9, save, bar)
            except KeyboardInterrupt:
                got = f"{name_of(signals[-1])}; what was timed is in {folder}"
                raise Cancelled(Fault("measure", "all kernels", got, "run it again to go on")) from None
    finally:
        bar.stop()
    launch = on.launch()
    written = software_document(_software(on, launch, known(run)), f"Measured by 'halley measure' on {date}.")
    write_atomic(folder / SOFTWARE, written, force=True)
    if json:
        options.print_json({"device": on.name, "software": software, "measured": run.measured, "skipped": run.skipped})
    else:
        _print_plan(run, launch, on)
    for file in (KERNELS, OPERATORS, SOFTWARE):
        options.remarks().print(Text(f"written to {folder / file}"))
    if number is not None:
        _collectives(device, number, folder)


def _folder(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise BadInput(Fault(out, "a folder that can be made", getattr(error, "strerror", None) or str(error))) from None
    return folder


def _names(only: str | None) -> Sequence[str]:
    return tuple(name.strip() for name in only.split(",")) if only else ()


def _software(on: Device, launch: Timing, known: Sequence[TimedCase]) -> Software:
    """The host of this machine, and PyTorch's own kernel of attention against the fastest, both to three digits."""
    share, count = attention_share(known)
    origin = {"launch": "host time of an operator with one small kernel"}
    if count:
        origin["attention"] = f"FlashAttention-2 of PyTorch against the fastest kernel, median of {count}"
    return Software(
        "pytorch-here",
        launch=float(f"{launch.time:.3g}"),
        attention=float(f"{share:.3g}"),
        source=f"{on.software} on {on.name}",
        origin=origin,
    )


def _print_plan(run: SuiteRun, launch: Timing, on: Device) -> None:
    rows = [(name, f"{rate / 1e12:.4g} T{'B' if name == 'copy' else 'op'}/s") for name, rate in reached(run.measured).items()]
    rows.append(("launch of an operator by the host", format_time(launch.time)))
    title = f"{on.name}, {on.software}: {len(run.measured)} kernels"
    show(options.output(), [Table(title, ("highest rate, or time", ""), tuple(rows))])
    wide = [item for item in run.measured if item.timing.spread > 0.1]
    if wide:
        options.remarks().print(Text(f"{len(wide)} kernels vary by more than 10 %: was the device busy with other work?"))
    reasons: dict[str, list[str]] = {}
    for case, reason in run.skipped.items():
        reasons.setdefault(reason, []).append(case)
    for reason, skipped in reasons.items():
        options.remarks().print(Text(f"{len(skipped)} kernels not run, such as {skipped[0]}: {reason}"))
    if run.left:
        options.remarks().print(Text(f"{run.left} kernels left at the time limit; run it again to go on"))


def _collectives(device: str, ranks: int, folder: Path) -> None:
    from halley.measure.collectives import collective_table, measure_collectives

    measured = measure_collectives(device.partition(":")[0], ranks)
    write_atomic(folder / COLLECTIVES, collective_table(measured), force=True)
    options.remarks().print(Text(f"written to {folder / COLLECTIVES}"))
