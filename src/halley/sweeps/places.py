"""Where an axis of a study leads in a chip file: ``glb.capacity``, ``cluster.x.size``, ``engines.matrix.rows``, ``clock``."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator
from typing import Any

from halley.errors import BadInput, Fault
from halley.io.files.check import model_at
from halley.io.files.models import ChipFile
from halley.io.files.text import KeyPath
from halley.sweeps.values import AxisValue

ROOT = ("clock", "static_power")
"""Single values at the root of a chip file."""

SET_BY_SWEEP = "an axis of the sweep"
"""Origin of a number that an axis sets."""


def place_of(data: object, path: str) -> KeyPath:
    """The place in the data of a chip file that a path names.

    A path begins at the file's root, at the name of a memory, or at the name of a level; after a level, the name of an axis, or
    ``port``, may follow. The last key need not be in the file if a chip file may have it there.

    >>> place_of({"levels": [{"name": "glb", "memories": {"buf": {"capacity": "1 MiB"}}}]}, "buf.capacity")
    ('levels', 0, 'memories', 'buf', 'capacity')

    Raises BadInput (its fault is at no place): the path leads nowhere.
    """
    words = path.split(".")
    starts = dict(_starts(data))
    for length in range(len(words) - 1, 0, -1):
        if (start := starts.get(".".join(words[:length]))) is not None:
            return _inside(data, start, words[length:], path)
    if path in ROOT:
        return (path,)
    raise _nowhere(path, _known(data))


def _starts(data: object) -> Iterator[tuple[str, KeyPath]]:
    """Names at which a path may begin, the weaker ones first: the later of two equal names counts."""
    root = data if isinstance(data, dict) else {}
    for index, level in enumerate(root.get("levels") or ()):
        if not isinstance(level, dict):
            continue
        here: KeyPath = ("levels", index)
        name, network = level.get("name"), level.get("network")
        yield f"{name}", here
        if isinstance(network, dict):
            yield f"{name}.network", (*here, "network")
            yield f"{name}.port", (*here, "network", "port")
            for axis in network.get("axes") or {}:
                yield f"{name}.{axis}", (*here, "network", "axes", axis)
                yield f"{name}.{axis}.link", (*here, "network", "axes", axis, "link")
                yield f"{name}.{axis}.collectives", (*here, "network", "axes", axis, "collectives")
        for memory in level.get("memories") or {}:
            yield f"{name}.{memory}", (*here, "memories", memory)
    for index, level in enumerate(root.get("levels") or ()):
        for memory in (level.get("memories") or {}) if isinstance(level, dict) else ():
            yield f"{memory}", ("levels", index, "memories", memory)
    for engine in root.get("engines") or {}:
        yield f"engines.{engine}", ("engines", engine)
        for table in ("rate", "energy", "granularity", "accumulators"):
            yield f"engines.{engine}.{table}", ("engines", engine, table)


def _inside(data: object, start: KeyPath, rest: list[str], path: str) -> KeyPath:
    """The place of what is left of a path, if a chip file has a single value there."""
    model = model_at(ChipFile, start)
    if len(rest) == 1 and (model is None or rest[0] in model.model_fields):
        place = (*start, rest[0])
        if not isinstance(_at(data, place), list) and model_at(ChipFile, place) is None:
            return place
    raise _nowhere(path, _known(data))


def _nowhere(path: str, known: list[str]) -> BadInput:
    inside = [name for name in known if name.startswith(f"{path}.")]
    alike = inside or difflib.get_close_matches(path, [name for name in known if name != path], n=1)
    remedy = f"did you mean '{alike[0]}'?" if alike else f"write for example {known[0]}, or a key that 'halley schema chip' names"
    return BadInput(Fault("", "an axis that leads to a single value of the chip", repr(path), remedy))


def _known(data: object) -> list[str]:
    """Paths of all single values in the file, as one would write them."""
    found = []
    for name, start in _starts(data):
        values = _at(data, start)
        for key, value in values.items() if isinstance(values, dict) else ():
            if key not in ("name", "source", "assumed") and (not isinstance(value, dict | list) or "value" in value):
                found.append(f"{name}.{key}")
    return [*found, *ROOT]


def _at(data: object, place: KeyPath) -> Any:
    for part in place:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            return None
    return data


def with_values(data: object, changes: list[tuple[KeyPath, AxisValue]]) -> Any:
    """A copy of the data of a chip file with these values; the numbers name the sweep as their origin."""
    changed: Any = copy.deepcopy(data)
    for place, value in changes:
        inner = changed
        for part in place[:-1]:
            if isinstance(inner, dict) and inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
        inner[place[-1]] = {"value": value, "assumed": SET_BY_SWEEP}
    return changed
