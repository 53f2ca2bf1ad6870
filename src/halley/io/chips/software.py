"""Files of software: what launches the kernels of a model, as YAML, each number with its source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.chips.kin import KIN, SAME_ARCHITECTURE
from halley.io.files.check import check, check_with_rest
from halley.io.files.entries import Entry, Latency, Ratio, Text
from halley.io.files.models import Model
from halley.io.files.shelf import found
from halley.io.files.text import DocumentFault, read_yaml
from halley.ir.hardware import Chip
from halley.kernels.software import TIMES, Software, is_within
from halley.library import SOFTWARE


class FittedFile(Model):
    """How the numbers were fitted."""

    rows: int = Field(ge=0, le=10**6, description="measured iterations that were fitted; 0: none, and all of them judge")
    held_out: float | None = Field(None, ge=0, allow_inf_nan=False, description="mean relative error of the rows held out")
    reach: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="largest |log(measured / predicted)| of 80 % of the rows held out"
    )


class SoftwareFile(Model):
    """Software that launches kernels. Numbers that are left out do not apply: times are 0, shares 1."""

    format: Literal["halley.software/1"] = Field(description="version of the format")
    name: Text = Field(description="name of the software")
    source: Text = Field(description="where its numbers come from")
    chips: list[Text] = Field([], description="shipped chips whose plans take this software unless another is named")
    launch: Latency | None = Field(None, description="time of the host to launch a kernel")
    block: Latency | None = Field(None, description="time of the host for a pass through a part of the model, besides launches")
    collective: Latency | None = Field(None, description="time of the host for a collective between chips that share ops")
    graph: Latency | None = Field(None, description="time of the host for a CUDA graph of a pass, which replaces the three above")
    attention: Ratio | None = Field(None, description="rate of the attention kernel, as a share of the fitted one")
    attention_on: dict[str, Ratio] = Field({}, description="the same by chip, where it differs; holds for kin of the chip too")
    kernels: Ratio | None = Field(None, description="rates of all kernels, as shares of the fitted ones")
    contention: Ratio | None = Field(None, description="share of the chip that a collective takes from kernels beside it")
    fitted: FittedFile | None = Field(None, description="how the numbers were fitted")


FORMAT = "halley.software/1"
NO_SOFTWARE = "none"
"""In the place of a software: hosts are not modelled."""
NUMBERS = (*TIMES, "attention", "kernels", "contention")
ASSUMED = "assumed: "
"""Before an origin that is no source (`halley.io.files.entries.origin`)."""


def load_software(path_or_name: str | Path) -> Software:
    """The software of that name, if it ships with Halley, else that of the file.

    >>> load_software("megatron-deepspeed").name
    'megatron-deepspeed'

    Raises BadInput: neither shipped software nor a file that can be read; every fault of the file.
    """
    text, name, shipped = found(SOFTWARE, path_or_name)
    return parse_software(text, name, shipped)


def software_for(chip: Chip, name: str | None) -> Software | None:
    """The named software, else that which was measured on the chip; None for `NO_SOFTWARE` and where none was measured.

    Raises BadInput: software for a chip that runs kernels side by side.
    """
    if name == NO_SOFTWARE or (name is None and chip.streams):
        return None
    if name is not None and chip.streams:
        raise BadInput(Fault("--software", "a chip that runs one kernel at a time", chip.name, "leave it out"))
    return software_of_chip(chip.name) if name is None else load_software(name).on(chip.name)


@cache
def software_of_chip(chip: str) -> Software | None:
    """The software that plans of a shipped chip take unless another is named; None: their hosts are not modelled.

    >>> software_of_chip("a100").name, software_of_chip("tpu-v4")
    ('megatron-deepspeed', None)
    """
    for name in SOFTWARE.names():
        file, _ = check(SoftwareFile, read_yaml(SOFTWARE.text(name), name).data)
        if file is not None and chip in file.chips:
            return load_software(name).on(chip)
    return None


def parse_software(text: str, name: str = "software", sourced: bool = False) -> Software:
    """The software that the text of a file describes; ``sourced``: every number must say where it comes from.

    Raises BadInput: every fault of the text.
    """
    document = read_yaml(text, name)
    model, findings = check_with_rest(SoftwareFile, document.data)
    if model is None:
        raise BadInput(document.faults(findings))
    given: dict[str, Entry[float]] = {key: value for key in NUMBERS if (value := getattr(model, key)) is not None}
    attention_on = _with_kin(model.attention_on)
    entries: dict[tuple[str, ...], Entry[float]] = {(key,): value for key, value in given.items()}
    entries |= {("attention_on", chip): value for chip, value in attention_on.items()}
    if sourced:
        findings += [
            DocumentFault(path, "a source, or assumed: and why", "neither") for path, value in entries.items() if not value.origin
        ]
    stated = {path: value for path, value in entries.items() if len(path) == 1 or path[1] in model.attention_on}
    findings += _rules(document.data, stated)
    if findings:
        raise BadInput(document.faults(findings))
    fitted = model.fitted
    return Software(
        model.name,
        **{key: value.value for key, value in given.items()},
        attention_on={chip: value.value for chip, value in attention_on.items()},
        source=model.source,
        origin={".".join(path): value.origin for path, value in entries.items()},
        rows=fitted.rows if fitted else 0,
        error=fitted.held_out if fitted else None,
        reach=fitted.reach if fitted else None,
    )


def _rules(data: object, entries: Mapping[tuple[str, ...], Entry[float]]) -> Iterator[DocumentFault]:
    """Bounds of the numbers that can be read, and what excludes each other."""
    for path, entry in entries.items():
        key, value = path[0], entry.value
        if is_within(key, value):
            continue
        if key in TIMES:
            yield DocumentFault(path, "a time below 1 s", f"{value:g} s", "check its unit")
        else:
            yield DocumentFault(path, "a share below 1" if key == "contention" else "a share of at most 1", f"{value:g}")
    stated = [key for key in TIMES if isinstance(data, dict) and data.get(key) is not None]
    if "graph" in stated and (both := [key for key in stated if key != "graph"]):
        yield DocumentFault(("graph",), "a graph, or times of launches", f"both, with {', '.join(both)}", "leave one out")


def _with_kin(shares: Mapping[str, Entry[float]]) -> dict[str, Entry[float]]:
    """Shares by chip, and those of a chip for its kin, whose libraries run the same kernels."""
    return {chip: shares[KIN[chip]] for chip in SAME_ARCHITECTURE if KIN[chip] in shares} | dict(shares)


def software_document(software: Software, remark: str) -> str:
    """The software as the text of a file, which `parse_software` reads as equal software, to six digits; ``remark``: its first
    line. Numbers that do not apply and have no origin are left out."""
    texts = {"name": software.name, "source": software.source}
    lines = [f"# {remark}", f"format: {FORMAT}", *(f"{key}: {_quoted(text)}" for key, text in texts.items())]
    plain = Software("plain")
    said = [name for name in NUMBERS if name in software.origin or getattr(software, name) != getattr(plain, name)]
    lines += [f"{name}: {_entry(software, name)}" for name in said if getattr(software, name) is not None]
    if software.attention_on:
        entries = {
            chip: _shown(f"{share:.6g}", software.origin.get(f"attention_on.{chip}", ""))
            for chip, share in software.attention_on.items()
        }
        lines += ["attention_on:", *(f"  {_quoted(chip)}: {entry}" for chip, entry in entries.items())]
    if software.rows or software.error is not None:
        shown = {"held_out": software.error, "reach": software.reach}
        errors = "".join(f", {key}: {value:.6g}" for key, value in shown.items() if value is not None)
        lines.append(f"fitted: {{rows: {software.rows}{errors}}}")
    return "\n".join(lines) + "\n"


def _entry(software: Software, name: str) -> str:
    """A number with its origin."""
    value = getattr(software, name)
    shown = f"{value * 1e6:.6g} us" if name in TIMES else f"{value:.6g}"
    return _shown(shown, software.origin.get(name, ""))


def _shown(shown: str, said: str) -> str:
    if not said:
        return shown
    assumed = said.removeprefix(ASSUMED)
    return f"{{value: {shown}, {'source' if assumed == said else 'assumed'}: {_quoted(assumed)}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
