"""Files of fitted chips: a `ChipFit` as YAML, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from halley.errors import BadInput
from halley.io.chips.kin import KIN
from halley.io.files.check import check
from halley.io.files.entries import Latency, Text
from halley.io.files.models import Model
from halley.io.files.shelf import found
from halley.io.files.text import DocumentFault, read_yaml
from halley.kernels.calibrate import ChipFit, LoadedMeasurement, OperatorFit
from halley.kernels.machine import SHARE_PARAMETERS, Efficiency, HostTime
from halley.kernels.times import Gemm
from halley.library import CHIP_FITS

FORMAT = "halley.chip-fit/1"
DEFAULT_FIT = "a100"
"""The chip whose measured shares others take that resemble no measured one."""
Share = Annotated[float, Field(gt=0, le=1)]
Part = Annotated[float, Field(ge=0, le=1)]
Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Literal["matrix", "vector", "memory", "cache", "overlap", "smaller", "gradient", "latency", "launch"]


class EfficiencyFile(Model):
    """How near kernels come to the data sheet."""

    matrix: Share = Field(description="share of the matrix rate in a tile's main loop")
    vector: Share = Field(description="share of the lanes' cycles")
    memory: Share = Field(description="share of the memory's bandwidth on long streams")
    cache: Share = Field(description="share of the shared cache's bandwidth")
    overlap: Part = Field(description="how far matrix and vector work of a tile overlap")
    smaller: Share = Field(1.0, description="share of the matrix rate left to tiles below the largest")
    gradient: Share = Field(1.0, description="share of the forward pass's rates that attention's backward pass reaches")
    latency: Latency = Field(description="start and end of a tile, or of a pass over rows")
    launch: Latency = Field(description="launch of a kernel behind another")


class KernelSeriesFile(Model):
    """One operator as it was measured."""

    operator: Text = Field(description="name of the operator")
    call: Latency = Field(description="time of a call around the kernel, by the host")
    hidden: Latency = Field(description="time of the host beside the kernel")
    rows: int = Field(ge=1, le=10**6, description="rows that were fitted")
    error: Error = Field(description="mean relative error of the fitted rows")
    held_out: Error | None = Field(None, description="mean relative error of the rows held out")


class LoadedFile(Model):
    """A product of matrices in a loop, of random numbers."""

    rows: int = Field(ge=1, le=2**24, description="rows of the result")
    columns: int = Field(ge=1, le=2**24, description="columns of the result")
    depth: int = Field(ge=1, le=2**24, description="terms of each sum")
    time: Latency = Field(description="time of one product")
    source: Text = Field(description="where the time comes from")


class ChipFitFile(Model):
    """A fitted chip."""

    format: Literal["halley.chip-fit/1"] = Field(description="version of the format")
    chip: Text = Field(description="name of the chip")
    source: Text = Field(description="where the measurements come from")
    dated: Text = Field(description="day of the fit")
    efficiency: EfficiencyFile = Field(description="the fitted parameters")
    assumed: list[Name] = Field(description="parameters that the measurements do not tell")
    operators: list[KernelSeriesFile] = Field(description="operators that were measured")
    loaded: LoadedFile | None = Field(None, description="a product under load, at the clock that the power limit leaves")


def load_chip_fit(path_or_name: str | Path) -> ChipFit:
    """The fit of that name, if it is one that ships with Halley, else that of the file.

    >>> load_chip_fit("a100").chip
    'a100'

    Raises BadInput: neither a shipped fit nor a file that can be read; every fault of the file.
    """
    text, name, _ = found(CHIP_FITS, path_or_name)
    return parse_chip_fit(text, name)


def fit_of_chip(chip: str) -> tuple[ChipFit, str]:
    """The fit of a chip's kernels: its own, else that of its kin, else `DEFAULT_FIT`'s; and what is to be said of that, empty for
    its own.

    >>> fit_of_chip("h200")[0].chip, fit_of_chip("h100")[1]
    ('h100', '')
    """
    measured = CHIP_FITS.names()
    if chip in measured:
        return load_chip_fit(chip), ""
    other = KIN.get(chip, DEFAULT_FIT)
    other = other if other in measured else DEFAULT_FIT
    remark = f"no measured kernels of {chip} for plans; assumed as close to its data sheet as those of {other}"
    return load_chip_fit(other), f"{remark} (see 'halley calibrate chip')"


def parse_chip_fit(text: str, name: str = "fit") -> ChipFit:
    """The fit that the text of a file describes. Raises BadInput: every fault of the text."""
    document = read_yaml(text, name)
    model, findings = check(ChipFitFile, document.data)
    if model is None:
        raise BadInput(document.faults(findings))
    names = [item.operator for item in model.operators]
    twice = [index for index, item in enumerate(names) if item in names[:index]]
    if twice:
        findings = [DocumentFault(("operators", index), "each operator once", f"{names[index]!r} twice") for index in twice]
        raise BadInput(document.faults(findings))
    given = model.efficiency
    efficiency = Efficiency(
        **{key: float(getattr(given, key)) for key in SHARE_PARAMETERS},
        latency=given.latency.value,
        launch=given.launch.value,
        hosts={item.operator: HostTime(item.call.value, item.hidden.value) for item in model.operators},
    )
    series = tuple(OperatorFit(item.operator, item.rows, item.error, item.held_out) for item in model.operators)
    return ChipFit(model.chip, model.source, model.dated, efficiency, tuple(model.assumed), series, _loaded(model.loaded))


def _loaded(file: LoadedFile | None) -> LoadedMeasurement | None:
    return None if file is None else LoadedMeasurement(Gemm(file.rows, file.columns, file.depth), file.time.value, file.source)


def chip_fit_document(fit: ChipFit) -> str:
    """The fit as the text of a file, which `parse_chip_fit` reads as the equal fit, to six digits."""
    head = {"format": FORMAT, "chip": fit.chip, "source": fit.source, "dated": fit.dated}
    lines = ["# Written by 'halley calibrate chip'. Shares are of the chip file's figures; docs/how-to/calibrate-a-chip.md."]
    lines += [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    lines += ["efficiency:", *(f"  {name}: {getattr(fit.efficiency, name):.6g}" for name in SHARE_PARAMETERS)]
    lines += [f"  {name}: {_time(getattr(fit.efficiency, name))}" for name in ("latency", "launch")]
    lines += [f"assumed: [{', '.join(fit.assumed)}]", "operators:"]
    lines += [f"  - {_series(item, fit.efficiency.hosts[item.operator])}" for item in fit.series]
    if fit.loaded is not None:
        product = fit.loaded.product
        extents = f"rows: {product.rows}, columns: {product.columns}, depth: {product.depth}"
        lines.append(f"loaded: {{{extents}, time: {_time(fit.loaded.time)}, source: {json.dumps(fit.loaded.source)}}}")
    return "\n".join(lines) + "\n"


def _series(item: OperatorFit, host: HostTime) -> str:
    held_out = "" if item.held_out is None else f", held_out: {item.held_out:.6g}"
    times = f"call: {_time(host.call)}, hidden: {_time(host.hidden)}"
    return f"{{operator: {json.dumps(item.operator)}, {times}, rows: {item.rows}, error: {item.error:.6g}{held_out}}}"


def _time(value: float) -> str:
    return f"{value * 1e6:.6g} us"
