"""``halley calibrate chip``: how near kernels come to a chip's data sheet, from measured operators or from tables of kernels."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.errors import BadInput, Fault
from halley.io.chips.fits import chip_fit_document
from halley.io.chips.kernel_fits import kernel_fits_document
from halley.io.chips.kernel_tables import TEXT_LIMIT as TABLE_LIMIT
from halley.io.chips.kernel_tables import is_kernel_table, read_kernel_table
from halley.io.chips.load import load_chip
from halley.io.chips.operators import LOADED, TEXT_LIMIT, read_operators
from halley.io.chips.shape_tables import is_shape_table, read_shape_table
from halley.io.files.save import write_atomic
from halley.io.files.text import read_text_bounded
from halley.kernels.calibrate import TYPICAL_EFFICIENCY, KernelMeasurement, LoadedMeasurement, chip_fit, judge
from halley.kernels.library.rows import MeasuredKernel
from halley.kernels.machine import Machine, machine
from halley.kernels.times import Gemm
from halley.report.browser import png_file
from halley.report.markup import svg_file
from halley.report.networks.kernels import kernel_remarks, kernels_tables
from halley.report.networks.operators import operators_plot, operators_tables
from halley.report.terminal import show

LEAST_ROWS = 4
"""Rows that a fit of half of them needs."""
MAKERS = ("nvidia", "amd", "intel")
"""Words that a name of a GPU may start with."""


def chip(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="CSV of measured operators, or tables of kernels.")],
    sheet: Annotated[str, typer.Option("--chip", help="Chip that was measured: a shipped name or a file.", metavar="CHIP")],
    out: Annotated[str, typer.Option("-o", "--output", help="Where to write the fit.", metavar="FILE")] = "chip-fit.yaml",
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also draw predicted over measured times: .svg or .png.", metavar="FILE")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Where the rows come from; the file's name by default.", metavar="TEXT")
    ] = None,
    launch: Annotated[
        str, typer.Option("--launch", help="Launch of a kernel behind another [us]; not fitted.", metavar="US")
    ] = f"{TYPICAL_EFFICIENCY.launch * 1e6:g}",
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="Rows of this GPU, as a table of kernels names it.", metavar="NAME")
    ] = None,
    framework: Annotated[
        str, typer.Option("--framework", help="Software that ran a table of kernels that names none.", metavar="NAME")
    ] = "",
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit the efficiency of a chip to every second row of measured operators; the other rows give its error.

    Tables of kernels (a column op, and the time in latency_us) give a fit of each library's kernels instead.

    Example: halley calibrate chip operators.csv --chip a100 -o mine.yaml --plot mine.svg
    """
    if plot is not None and Path(plot).suffix.lower() not in (".svg", ".png"):
        raise BadInput(Fault("--plot", "a name that ends in .svg or .png", repr(plot)))
    behind = options.number("--launch", launch, 1000) / 1e6
    for target in filter(None, (out, plot)):
        refuse_existing(target, force)
    measured = machine(load_chip(sheet))
    texts = {file: read_text_bounded(file, TABLE_LIMIT) for file in files}
    of_kernels = [file for file, text in texts.items() if is_kernel_table(text) or is_shape_table(text)]
    if of_kernels:
        _kernels(texts, of_kernels, measured, gpu, framework, source, out, plot, json, force)
        return
    if len(files) > 1:
        raise BadInput(Fault("calibrate chip", "one file of operators", str(len(files)), "join them, or give tables of kernels"))
    file = files[0]
    every = read_operators(read_text_bounded(file, TEXT_LIMIT), file)
    rows = tuple(row for row in every if row.operator != LOADED)
    if len(rows) < LEAST_ROWS:
        raise BadInput(Fault(file, f"at least {LEAST_ROWS} rows", str(len(rows)), "measure more shapes"))
    judged = judge(rows, measured, replace(TYPICAL_EFFICIENCY, launch=behind))
    fit = chip_fit(judged, measured, source or Path(file).name, datetime.date.today().isoformat())
    fit = replace(fit, loaded=_loaded(every, file))
    write_atomic(out, chip_fit_document(fit), force)
    if plot is not None:
        drawn = operators_plot(f"{fit.chip}, {fit.source}", judged.fitted, judged.held)
        write_atomic(plot, png_file(drawn) if plot.lower().endswith(".png") else svg_file(drawn), force)
    if json:
        options.print_json(fit)
    else:
        show(options.output(), operators_tables(fit, judged))
    for target in (out, *([plot] if plot else [])):
        options.remarks().print(Text(f"written to {target}"))


def _loaded(rows: Sequence[KernelMeasurement], file: str) -> LoadedMeasurement | None:
    """The product under load, if there is one. Raises BadInput: several."""
    found = [row for row in rows if row.operator == LOADED]
    if len(found) > 1:
        raise BadInput(Fault(f"{file}: {LOADED}", "one row", str(len(found)), "keep the largest product"))
    product = found[0].kernel if found else None
    return LoadedMeasurement(product, found[0].time, Path(file).name) if isinstance(product, Gemm) else None


def _kernels(
    texts: dict[str, str],
    of_kernels: list[str],
    measured: Machine,
    gpu: str | None,
    framework: str,
    source: str | None,
    out: str,
    plot: str | None,
    json: bool,
    force: bool,
) -> None:
    """Fit and write the kernels of the tables. Raises BadInput: see `read_kernel_table`; a plot was asked for; no SciPy."""
    others = [file for file in texts if file not in of_kernels]
    if others:
        raise BadInput(Fault(others[0], "a table of kernels, as the other files", "a table of operators", "fit it apart"))
    if plot is not None:
        raise BadInput(Fault("--plot", "a table of operators", "tables of kernels", "leave --plot out"))
    try:
        import scipy.optimize  # noqa: F401

        from halley.kernels.library.calibrate import calibrate
    except ImportError:
        raise BadInput(Fault("calibrate chip", "SciPy, for tables of kernels", "none", "pip install 'halley[solve]'")) from None
    rows: list[MeasuredKernel] = []
    names: set[str] = set()
    for file in of_kernels:
        shapes = is_shape_table(texts[file])
        table = read_shape_table(texts[file], file, framework) if shapes else read_kernel_table(texts[file], file)
        rows += _rows_of(table, measured.name, gpu, file)
        names |= set(table)
    if not rows:
        asked = repr(gpu) if gpu is not None else measured.name
        raise BadInput(Fault("calibrate chip", f"a GPU of the tables ({', '.join(sorted(names))})", asked, "name it with --gpu"))
    said = source or ", ".join(Path(file).name for file in of_kernels)
    fits, judged = calibrate(rows, measured, said, datetime.date.today().isoformat())
    write_atomic(out, kernel_fits_document(fits), force)
    if json:
        options.print_json(fits.fits)
    else:
        show(options.output(), kernels_tables(fits, judged))
    for remark in kernel_remarks(fits):
        options.remarks().print(Text(remark))
    options.remarks().print(Text(f"written to {out}"))


def _rows_of(table: dict[str, tuple[MeasuredKernel, ...]], chip: str, gpu: str | None, file: str) -> tuple[MeasuredKernel, ...]:
    """The rows of one GPU: the one named, the only one if it has no name, or the one whose name starts with the chip's; none
    where it has none.

    Raises BadInput: several GPUs have names that start so.
    """
    if gpu is not None:
        return table.get(gpu, ())
    if len(table) == 1 and "" in table:
        return table[""]
    words = _words(chip)
    alike = [name for name in table if _words(name)[: len(words)] == words]
    if len(alike) > 1:
        raise BadInput(Fault(f"{file}: gpu", f"one GPU that is {chip}", ", ".join(alike)[:100], "name it with --gpu"))
    return table[alike[0]] if alike else ()


def _words(name: str) -> list[str]:
    """The words of a GPU's name, without the maker's."""
    return [word for word in re.findall("[a-z0-9]+", name.lower()) if word not in MAKERS]
