"""Files of fused groups: a `FusionTable` as JSON, and back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from halley.errors import BadInput
from halley.io.files.check import check
from halley.io.files.models import Model
from halley.io.files.save import dumps, write_atomic
from halley.io.files.text import Finding, read_text_bounded, read_yaml
from halley.training.fusion.shapes import FusionKey
from halley.training.fusion.table import FusionEntry, FusionTable
from halley.version import halley_version

FORMAT = "halley.fusions/1"
Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Extent = Annotated[int, Field(ge=1, le=2**48)]


class EntryFile(Model):
    """The best mapping of one group at one shape. Without times: there is none."""

    graph: str = Field(max_length=20_000, description="ops of the group with their tensors")
    extents: list[Extent] = Field(min_length=1, max_length=64, description="extents of its dims, d0 first")
    time: Time | None = Field(None, description="time of the best mapping on the chip of the data sheet, in s")
    bound: Time | None = Field(None, description="no mapping of the declared space takes less, in s")
    traffic: float = Field(0.0, ge=0, allow_inf_nan=False, description="bytes of the outermost memory that the mapping moves")
    found: str = Field(max_length=200, description="how the search ended")


class FusionsFile(Model):
    """A table of fused groups of one chip."""

    format: Literal["halley.fusions/1"] = Field(description="version of the format")
    halley: str = Field("", max_length=100, description="version of Halley that wrote it")
    chip: str = Field(max_length=200, description="name of the chip")
    fingerprint: str = Field(max_length=64, description="changes with every number of the chip's file")
    entries: list[EntryFile] = Field(max_length=100_000, description="groups by shape")


def load_fusions(path: str | Path) -> FusionTable:
    """The table of a file. Raises BadInput: it cannot be read; every fault of it."""
    document = read_yaml(read_text_bounded(path), str(path))
    file, findings = check(FusionsFile, document.data)
    if file is None:
        raise BadInput(document.faults(findings))
    wrong = [finding for place, entry in enumerate(file.entries) for finding in _contradictions(place, entry)]
    if wrong:
        raise BadInput(document.faults(wrong))
    entries = {FusionKey(each.graph, tuple(each.extents)): _entry(each) for each in file.entries}
    return FusionTable(file.chip, file.fingerprint, entries)


def save_fusions(table: FusionTable, path: str | Path) -> None:
    """Write a table, over one that is there. Raises BadInput: it cannot be written."""
    write_atomic(path, dumps(fusions_document(table)), force=True)


def fusions_document(table: FusionTable) -> dict[str, Any]:
    """A table as plain data, in SI units."""
    return {
        "format": FORMAT,
        "halley": halley_version(),
        "chip": table.chip,
        "fingerprint": table.fingerprint,
        "entries": [
            {
                "graph": key.graph,
                "extents": list(key.extents),
                "time": _finite(entry.time),
                "bound": _finite(entry.bound),
                "traffic": entry.traffic,
                "found": entry.found,
            }
            for key, entry in sorted(table.entries.items())
        ],
    }


def _entry(file: EntryFile) -> FusionEntry:
    time, bound = (math.inf if each is None else each for each in (file.time, file.bound))
    return FusionEntry(time, bound, file.traffic, file.found)


def _contradictions(place: int, entry: EntryFile) -> list[Finding]:
    """Times that cannot be together."""
    path = ("entries", place, "bound")
    if (entry.time is None) != (entry.bound is None):
        return [Finding(path, "a bound where there is a time, and none where there is none", repr(entry.bound))]
    if entry.time is not None and entry.bound is not None and entry.bound > entry.time:
        return [Finding(path, f"at most the time, {entry.time} s", repr(entry.bound))]
    return []


def _finite(time: float) -> float | None:
    return time if math.isfinite(time) else None
