"""``halley codesign``: the best chip or system of a study under budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE
from halley.cli.files import refuse_existing, write_answers
from halley.cli.options import ForceOption, JsonOption
from halley.cli.output import saved_first
from halley.cli.solve import SearchProgressBar
from halley.cli.sweeps.sweep import StoreOption, StudyArgument
from halley.errors import BadInput, Fault
from halley.io.chips.save import chip_text
from halley.io.files.save import dumps
from halley.io.systems.save import system_yaml
from halley.processes import MOST_WORKERS
from halley.report.sweeps import codesign as report
from halley.report.terminal import show
from halley.sweeps.codesign import codesign as search
from halley.sweeps.load import load_study
from halley.units import SQUARE_METRES, WATTS, Dimension, parse


def codesign(
    study: StudyArgument,
    area: Annotated[str | None, typer.Option("--area", help="Largest area of a die, e.g. 100mm2.", metavar="AREA")] = None,
    power: Annotated[
        str | None,
        typer.Option("--power", help="Largest power, e.g. 5W: a chip's peak, a system's stated one.", metavar="POWER"),
    ] = None,
    price: Annotated[str | None, typer.Option("--price", help="Largest price of a system in USD.", metavar="NUMBER")] = None,
    workers: Annotated[str | None, typer.Option("-j", "--workers", help="Processes; 1 unless given.", metavar="N")] = None,
    store: StoreOption = None,
    out: Annotated[str | None, typer.Option("-o", "--output", help="Write the answer as JSON.", metavar="FILE")] = None,
    chip: Annotated[str | None, typer.Option("--chip", help="Write the chip file of the best design.", metavar="FILE")] = None,
    system: Annotated[
        str | None, typer.Option("--system", help="Write the system file of the best design.", metavar="FILE")
    ] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Find the best chip or system of a study under budgets of area, power and price, and what each budget costs.

    Example: halley codesign examples/codesign.yaml --area 100mm2 --power 5W

    Constraints of the study of the form 'figure <= number' are budgets too. A run that was stopped goes on where it was.

    Exit codes: 0 the best design is proven, 1 bad input, 3 stopped before.
    """
    count = options.whole_number("--workers", workers, 1, most=MOST_WORKERS, example=4)
    targets = [target for target in (out, chip, system) if target]
    for target in targets:
        refuse_existing(target, force)
    given = load_study(study)
    _check_kind(given.of_chips, price, chip, system)
    budgets = _budgets(given.of_chips, area, power, price)
    bar = SearchProgressBar(options.remarks(), "codesign")
    try:
        result = search(given, budgets, store or str(Path(study).with_suffix(".db")), count, progress=bar)
    finally:
        bar.stop()
    if result.interrupted:
        options.remark_to_stderr("interrupted; what was found is kept, and the same command goes on")

    def save() -> str:
        files: dict[str, str | bytes] = {}
        if out:
            files[out] = dumps(report.document(result))
        if chip:
            files[chip] = chip_text(result.sweep.chip())
        if system:
            files[system] = system_yaml(result.sweep.system())
        return write_answers(files, force)

    with saved_first(save):
        if json:
            options.print_json(report.document(result))
        else:
            console = options.output()
            console.print(Text(report.title(result), style="bold"))
            console.print(Text(report.verdict(result)))
            show(console, report.tables(result))
    found = result.sweep
    if result.interrupted or not found.done or (found.limited and found.gap > found.study.gap + 1e-8):
        raise typer.Exit(LIMIT_EXIT_CODE)


def _check_kind(of_chips: bool, price: str | None, chip: str | None, system: str | None) -> None:
    """Before the work, not after it."""
    if of_chips and (price or system):
        option = "--price" if price else "--system"
        raise BadInput(Fault(option, "a study of systems", "one of chips", "leave it out"))
    if chip and not of_chips:
        raise BadInput(Fault("--chip", "a study of chips", "one of systems", "use --system"))


def _budgets(of_chips: bool, area: str | None, power: str | None, price: str | None) -> dict[str, float]:
    """The budgets of the options, by figure. Raises BadInput: values that are none."""
    found = {}
    if area is not None:
        found["die_area"] = _quantity("--area", area, SQUARE_METRES)
    if power is not None:
        found["peak_power" if of_chips else "power"] = _quantity("--power", power, WATTS)
    if price is not None:
        found["price"] = options.number("--price", price, 1e15)
    return found


def _quantity(option: str, text: str, dimension: Dimension) -> float:
    return parse(text, dimension, where=option)
