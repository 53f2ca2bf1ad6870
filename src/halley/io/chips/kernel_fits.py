"""Files of fitted library kernels: `KernelFits` as JSON, which is YAML too, one kernel a line; and back.

JSON is read some twenty times as fast as YAML. Where it is not JSON, or is wrong, the file is read as YAML, which knows lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.chips.kin import KIN, SAME_ARCHITECTURE, SAME_DIE
from halley.io.chips.load import load_chip
from halley.io.files.check import check
from halley.io.files.entries import Text
from halley.io.files.models import Model
from halley.io.files.shelf import found, is_path
from halley.io.files.text import Document, DocumentFault, KeyPath, read_yaml
from halley.kernels.library.corrections import Correction
from halley.kernels.library.families import FAMILIES
from halley.kernels.library.formats import FORMATS
from halley.kernels.library.rows import Stratum
from halley.kernels.library.times import KernelFit, KernelFits
from halley.kernels.machine import Machine, machine
from halley.library import CHIPS, KERNEL_FITS

FORMAT = "halley.kernel-fits/1"
DIGITS = 5
"""Significant digits of a stored number."""
CORRECTION_DIGITS = 3
"""Those of a correction, of which there are many."""

SPREAD = {
    "gemm": 0.29,
    "attention_prefill": 0.5,
    "attention_decode": 0.34,
    "attention_encoder": 0.1,
    "mla_prefill": 0.46,
    "mla_decode": 1.05,
    "moe": 0.4,
    "mamba2": 1.16,
}
"""By family: standard deviation [logarithm] of what the fit of one chip says of another: 80 % of the median errors of kernels,
over four pairs of generations, are within 1.28 of it (``python -m validation.kernels FOLDER --carried``). Of encoders, of which
there is one pair, at least 0.1."""
SAME_DIE_SHARE = 0.1
"""Share of the spread for the same die: kernels of an H200 by the fit of the H100 lie in the unwidened intervals as often as
those of the H100 (81 to 99 %, validation/machines); a tenth is a margin, since that is one pair."""

Share = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST_SHAPES, LARGEST_WEIGHT = 5000, 100.0


class CorrectionFile(Model):
    """What the formula of a kernel leaves over. Thousands of numbers, so that numpy checks them (`_wrong_correction`)."""

    sizes: list[list[float]] = Field(max_length=MOST_SHAPES, description="sizes of measured shapes, in the order of the family")
    times: list[float] = Field(max_length=MOST_SHAPES, description="time of each by the formula [s]")
    weights: list[float] = Field(max_length=MOST_SHAPES, description="weight of each")


class KernelFile(Model):
    """One fitted kernel."""

    family: Text = Field(description="family of kernels")
    framework: str = Field(description="software that ran it")
    kernel: str = Field(description="name of the kernel, by the table")
    dtype: Text = Field(description="number format of the products")
    cache: str = Field("", description="number format of keys and values")
    variant: str = Field("", description="which of the kernels that share a name")
    rows: int = Field(ge=1, le=10**6, description="measured rows")
    error: Error | None = Field(None, description="mean relative error of rows held out")
    baseline: Error | None = Field(None, description="that of a roofline of three fitted numbers")
    low: Share = Field(description="factor of the interval's lower end")
    high: Share = Field(description="factor of its upper end")
    on_bound: list[Text] = Field([], description="parameters on a bound of the fit")
    head_dims: dict[str, int] = Field({}, description="measured rows by dims of a head")
    options: dict[str, float] = Field(description="properties of the library")
    parameters: dict[str, Share] = Field(description="fitted parameters")
    correction: CorrectionFile | None = Field(None, description="what the formula leaves over, at measured shapes")


class KernelFitsFile(Model):
    """Fitted kernels of a chip."""

    format: Literal["halley.kernel-fits/1"] = Field(description="version of the format")
    chip: Text = Field(description="name of the chip")
    source: Text = Field(description="where the measurements come from")
    dated: Text = Field(description="day of the fit")
    kernels: list[KernelFile] = Field(min_length=1, max_length=2000, description="kernels that were measured")


def load_kernel_fits(path_or_name: str | Path, chip: str | Path | None = None) -> KernelFits:
    """The fits of a chip that ships with Halley, those of its kin (`KIN`) on its own data sheet, or those of a file.

    ``chip``: the chip to apply them to, a shipped name or a file; by default the one that the fits are of. What the formulas
    leave over is taken over by chips of the same architecture alone.

    >>> load_kernel_fits("h200").measured
    'h100'

    Raises BadInput: neither a shipped fit nor a file that can be read; every fault of the file.
    """
    name = str(path_or_name)
    if name in CHIPS.names() and name not in KERNEL_FITS.names() and name not in KIN:
        measured = f"{', '.join(KERNEL_FITS.names())}, or like one ({', '.join(sorted(KIN))})"
        remedy = f"measure kernels on one (halley measure), or take another chip's fit: --fit {KERNEL_FITS.names()[0]}"
        raise BadInput(Fault("kernel fit", f"a chip with measured kernels: {measured}", name, remedy))
    kin = KIN.get(name) if not is_path(path_or_name) else None
    text, where, _ = found(KERNEL_FITS, kin or path_or_name)
    sheet = chip if chip is not None else name if kin else None
    fits = parse_kernel_fits(text, where, machine(load_chip(sheet)) if sheet is not None else None)
    if fits.of_kin and fits.machine.name not in SAME_ARCHITECTURE:
        fits = replace(fits, fits=tuple(replace(item, correction=None) for item in fits.fits))
    if fits.machine.name in SAME_DIE and fits.of_kin:
        return replace(fits, spread={family: SAME_DIE_SHARE * value for family, value in SPREAD.items()})
    return fits


@lru_cache(maxsize=16)
def serving_fits(chip: str) -> KernelFits | None:
    """The shipped fits for a server on this chip: its own, or those of a chip of the same architecture; None without any.

    Those of another architecture are no nearer than the formulas: their attention deviates by a factor of 1.45 (`SPREAD`).

    >>> serving_fits("h200").measured, serving_fits("rtx-pro-6000")
    ('h100', None)
    """
    if chip in KERNEL_FITS.names() or chip in SAME_ARCHITECTURE:
        return load_kernel_fits(chip)
    return None


def parse_kernel_fits(text: str, name: str = "fits", chip: Machine | None = None) -> KernelFits:
    """The fits that the text of a file describes, on the chip, or on the shipped chip that it names.

    Raises BadInput: every fault of the text; no such chip.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = read_yaml(text, name).data
    model, findings = check(KernelFitsFile, data)
    if model is None:
        raise BadInput(_document(text, name, data).faults(findings))
    findings = [finding for index, item in enumerate(model.kernels) for finding in _findings(index, item)]
    if findings:
        raise BadInput(_document(text, name, data).faults(findings))
    fits = tuple(
        KernelFit(
            Stratum(item.family, item.framework, item.kernel, item.dtype, item.cache, item.variant),
            item.parameters,
            item.options,
            item.rows,
            item.error,
            item.baseline,
            item.low,
            item.high,
            tuple(item.on_bound),
            {float(dim): count for dim, count in item.head_dims.items()},
            _correction(item.correction),
        )
        for item in model.kernels
    )
    if len({item.stratum for item in fits}) < len(fits):
        raise BadInput(Fault(f"{name}: kernels", "each kernel once", "one twice"))
    sheet = chip if chip is not None else machine(load_chip(model.chip))
    return KernelFits(sheet, model.chip, model.source, model.dated, fits, SPREAD)


def _document(text: str, name: str, data: object) -> Document:
    """The document with its lines; without them where the text is JSON that is too large, or odd, to be read as YAML."""
    try:
        return read_yaml(text, name)
    except BadInput:
        return Document(name, data, {(): 1})


def _findings(index: int, item: KernelFile) -> list[DocumentFault]:
    """What the model of the file does not check: names of families, formats, parameters and options."""
    at = ("kernels", index)
    known = FAMILIES.get(item.family)
    if known is None:
        return [DocumentFault((*at, "family"), f"one of {', '.join(FAMILIES)}", repr(item.family[:40]))]
    wrong = []
    for key, given, wanted in (
        ("parameters", item.parameters, {each.name for each in known.parameters}),
        ("options", item.options, set(known.options)),
    ):
        if set(given) != wanted:
            remedy = "a fit of another version has to be made again with 'halley calibrate chip'"
            wrong.append(DocumentFault((*at, key), ", ".join(sorted(wanted)), ", ".join(sorted(given))[:100], remedy))
    for key, word in (("dtype", item.dtype), ("cache", item.cache)):
        if word and word not in FORMATS:
            wrong.append(DocumentFault((*at, key), f"one of {', '.join(FORMATS)}", repr(word[:40])))
    if not item.low <= 1 <= item.high:
        wrong.append(DocumentFault((*at, "low"), "an interval around 1", f"{item.low:g} to {item.high:g}"))
    if item.correction is not None:
        wrong += _wrong_correction(item.correction, known.sizes, (*at, "correction"))
    if any(not _positive(dim) for dim in item.head_dims):
        wrong.append(DocumentFault((*at, "head_dims"), "dims above 0", ", ".join(item.head_dims)[:60]))
    return wrong


def _wrong_correction(item: CorrectionFile, names: Sequence[str], at: KeyPath) -> list[DocumentFault]:
    shapes, wrong = item.sizes, []
    if not shapes or any(len(shape) != len(names) for shape in shapes):
        return [DocumentFault((*at, "sizes"), f"shapes of {len(names)} sizes: {', '.join(names)}", "others")]
    for name, values in (("times", item.times), ("weights", item.weights)):
        if len(values) != len(shapes):
            wrong.append(DocumentFault((*at, name), f"one for each of {len(shapes)} shapes", str(len(values))))
    for name, given, low, high in (
        ("sizes", shapes, 0.0, 1e12),
        ("times", item.times, 1e-12, 1e6),
        ("weights", item.weights, -LARGEST_WEIGHT, LARGEST_WEIGHT),
    ):
        found = np.array(given, dtype=np.float64)
        if not ((found >= low) & (found <= high)).all():  # also false of what is no number
            wrong.append(DocumentFault((*at, name), f"numbers from {low:g} to {high:g}", "others"))
    return wrong


def _correction(item: CorrectionFile | None) -> Correction | None:
    return Correction(np.array(item.sizes), np.array(item.times), np.array(item.weights)) if item else None


def _positive(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0


def kernel_fits_document(fits: KernelFits) -> str:
    """The fits as the text of a file, which `parse_kernel_fits` reads as equal fits, to five digits."""
    head = {"format": FORMAT, "chip": fits.measured, "source": fits.source, "dated": fits.dated}
    lines = ["{", *(f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()), ' "kernels": [']
    rows = [json.dumps(_entry(item), separators=(",", ":")) for item in fits.fits]
    return "\n".join([*lines, ",\n".join(f"  {row}" for row in rows), " ]", "}"]) + "\n"


def _entry(item: KernelFit) -> dict[str, object]:
    said = {name: getattr(item.stratum, name) for name in ("family", "framework", "kernel", "dtype", "cache", "variant")}
    numbers = {name: _rounded(getattr(item, name)) for name in ("error", "baseline", "low", "high")}
    found: dict[str, object] = {key: value for key, value in said.items() if value or key in ("framework", "kernel")}
    found |= {"rows": item.rows, **{key: value for key, value in numbers.items() if value is not None}}
    if item.on_bound:
        found["on_bound"] = list(item.on_bound)
    if item.head_dims:
        found["head_dims"] = {f"{dim:g}": count for dim, count in sorted(item.head_dims.items())}
    found["options"] = dict(item.options)
    found["parameters"] = {name: _rounded(value) for name, value in item.parameters.items()}
    if item.correction:
        found["correction"] = {
            "sizes": [[_short(value) for value in shape] for shape in item.correction.sizes.tolist()],
            "times": [float(f"{value:.{CORRECTION_DIGITS}g}") for value in item.correction.times.tolist()],
            "weights": [float(f"{value:.{CORRECTION_DIGITS}g}") for value in item.correction.weights.tolist()],
        }
    return found


def _short(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
