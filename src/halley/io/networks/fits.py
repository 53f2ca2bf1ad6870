"""Files of fitted networks: an `Overlay` as YAML, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from halley.errors import BadInput
from halley.io.files.check import check
from halley.io.files.entries import Bandwidth, Entry, Latency, Size, Text, word
from halley.io.files.models import Model
from halley.io.files.shelf import found
from halley.io.files.text import DocumentFault, KeyPath, read_yaml
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.library import NETWORK_FITS
from halley.network.fit.overlay import FAMILIES, Channels, Choice, Family, Fit, Overlay, Protocol, Series
from halley.units import UNLIMITED

FORMAT = "halley.network-fit/1"
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProtocolFile(Model):
    """One way in which the library moves bytes."""

    startup: Latency = Field(description="start-up of a collective")
    step: Latency = Field(description="latency of a step")
    bandwidth: Bandwidth = Field(description="bandwidth at which a rank sends")
    copy_rate: Bandwidth = Field(description="rate at which a rank copies its own share")


class ChoiceFile(Model):
    """From a size on, a protocol."""

    from_size: Size = Field(description="least size")
    protocol: int = Field(ge=1, description="number of the protocol in the family's list, from 1")


class CollectiveSeriesFile(Model):
    """One collective on one number of ranks."""

    collective: Annotated[Entry[str], word((kind.value for kind in CollectiveKind), cited=False)]
    ranks: int = Field(ge=2, le=2**20, description="number of ranks")
    choices: list[ChoiceFile] = Field(min_length=1, description="protocols by size, the first from 1 B")
    least: Size = Field(description="least size that was measured")
    most: Size = Field(description="largest size that was measured")
    rows: int = Field(ge=1, description="sizes that were measured")
    error: Share = Field(description="mean relative error on the rows that were fitted")
    held_out: Share | None = Field(None, description="mean relative error on rows that a fit to the others did not see")


class FamilyFile(Model):
    """Collectives that share their protocols."""

    protocols: list[ProtocolFile] = Field(min_length=1, description="from the one for small messages to the one for large ones")
    series: list[CollectiveSeriesFile] = Field(min_length=1, description="what was measured")


class ChannelsFile(Model):
    """Cores that the library's kernels hold."""

    count: int = Field(ge=1, le=2**16, description="cores of a chip that a collective holds while it runs")
    source: Text = Field(description="where the number comes from")


class FitFile(Model):
    """A fitted network."""

    format: Literal["halley.network-fit/1"] = Field(description="version of the format")
    machine: Text = Field(description="name of the hardware")
    software: Text = Field(description="communication library and its version")
    source: Text = Field(description="where the measurements come from")
    dated: Text = Field(description="day of the fit")
    channels: ChannelsFile | None = Field(None, description="cores that a collective holds; left out where nobody states them")
    families: dict[Literal["ring", "exchange"], FamilyFile] = Field(min_length=1, description="fits by family: ring, exchange")


def load_fit(path_or_name: str | Path) -> Overlay:
    """The fit of that name, if it is one that ships with Halley, else that of the file.

    >>> load_fit("a100-sxm-nccl-2.27.3").machine
    'a100-sxm'

    Raises BadInput: neither a shipped fit nor a file that can be read; every fault of the file.
    """
    text, name, _ = found(NETWORK_FITS, path_or_name)
    return parse_fit(text, name)


def load_libraries(system: System) -> dict[str, Overlay]:
    """By axis, the fit of the communication library that the system names.

    >>> from halley.io.systems.system import load_system
    >>> {axis: fit.software for axis, fit in load_libraries(load_system("dgx-a100-pod")).items()}
    {'gpu': 'nccl 2.27.3'}

    Raises BadInput: as `load_fit`.
    """
    return {axis: load_fit(name) for axis, name in system.libraries.items()}


def parse_fit(text: str, name: str = "fit") -> Overlay:
    """The fit that the text of a file describes. Raises BadInput: every fault of the text."""
    document = read_yaml(text, name)
    model, findings = check(FitFile, document.data)
    if model is None:
        raise BadInput(document.faults(findings))
    fits = tuple(_fit(Family(key), family) for key, family in model.families.items())
    findings = [item for fit in fits for item in _contradictions(fit)]
    if findings:
        raise BadInput(document.faults(findings))
    held = Channels() if model.channels is None else Channels(model.channels.count, model.channels.source)
    return Overlay(model.machine, model.software, model.source, model.dated, fits, held)


def _fit(family: Family, file: FamilyFile) -> Fit:
    protocols = tuple(
        Protocol(item.startup.value, item.step.value, item.bandwidth.value, item.copy_rate.value) for item in file.protocols
    )
    return Fit(family, protocols, tuple(_series(item) for item in file.series))


def _series(file: CollectiveSeriesFile) -> Series:
    choices = tuple(Choice(int(item.from_size.value), item.protocol - 1) for item in file.choices)
    least, most = int(file.least.value), int(file.most.value)
    kind = CollectiveKind(file.collective.value)
    return Series(kind, file.ranks, choices, least, most, file.rows, float(file.error), file.held_out)


def _contradictions(fit: Fit) -> list[DocumentFault]:
    """What each entry alone does not show."""
    found: list[DocumentFault] = []
    seen: set[tuple[CollectiveKind, int]] = set()
    for number, item in enumerate(fit.series):
        path: KeyPath = ("families", fit.family.value, "series", number)
        sizes = [choice.size for choice in item.choices]
        if FAMILIES[item.kind] is not fit.family:
            found.append(DocumentFault((*path, "collective"), f"a collective of the family {fit.family}", str(item.kind)))
        if (item.kind, item.ranks) in seen:
            found.append(DocumentFault(path, "each collective and number of ranks once", f"{item.kind} on {item.ranks} twice"))
        if sizes[0] != 1 or sizes != sorted(set(sizes)):
            found.append(DocumentFault((*path, "choices"), "sizes that grow from 1 B", ", ".join(map(str, sizes[:8]))))
        if item.least > item.most:
            found.append(DocumentFault((*path, "least"), f"a size of at most {item.most} B", f"{item.least} B"))
        if any(choice.protocol >= len(fit.protocols) for choice in item.choices):
            found.append(DocumentFault((*path, "choices"), f"protocols from 1 to {len(fit.protocols)}", "a larger number"))
        seen.add((item.kind, item.ranks))
    return found


def fit_document(overlay: Overlay) -> str:
    """The overlay as the text of a file, which `parse_fit` reads as the equal overlay."""
    head = {"format": FORMAT, "machine": overlay.machine, "software": overlay.software}
    head |= {"source": overlay.source, "dated": overlay.dated}
    lines = ["# Written by 'halley calibrate network'. One protocol of a library per line; what each collective uses by size."]
    lines += [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    if overlay.channels.count:
        lines.append(f"channels: {{count: {overlay.channels.count}, source: {json.dumps(overlay.channels.source)}}}")
    lines.append("families:")
    for fit in overlay.fits:
        lines += [f"  {fit.family}:", "    protocols:", *(f"      - {_protocol(item)}" for item in fit.protocols)]
        lines += ["    series:", *(f"      - {_measured(item)}" for item in fit.series)]
    return "\n".join(lines) + "\n"


def _protocol(item: Protocol) -> str:
    rates = f"bandwidth: {_rate(item.bandwidth)}, copy_rate: {_rate(item.copy_rate)}"
    return f"{{startup: {item.startup * 1e6:.6g} us, step: {item.latency * 1e6:.6g} us, {rates}}}"


def _rate(value: float) -> str:
    return "unlimited" if value == UNLIMITED else f"{value / 1e9:.6g} GB/s"


def _measured(item: Series) -> str:
    choices = ", ".join(f"{{from_size: {choice.size} B, protocol: {choice.protocol + 1}}}" for choice in item.choices)
    held_out = "" if item.held_out is None else f", held_out: {item.held_out:.6g}"
    seen = f"least: {item.least} B, most: {item.most} B, rows: {item.rows}, error: {item.error:.6g}{held_out}"
    return f"{{collective: {item.kind}, ranks: {item.ranks}, choices: [{choices}], {seen}}}"
