"""Where an axis of a study leads in a chip file (``glb.capacity``, ``cluster.x.size``, ``engines.matrix.rows``, ``clock``) or in
a system file (``gpu.size``, ``gpu.link.bandwidth``, ``dram.capacity``, ``chip``, ``chip.glb.capacity``)."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from halley.errors import BadInput, Fault
from halley.io.files.check import model_at
from halley.io.files.models import ChipFile
from halley.io.files.text import KeyPath
from halley.io.systems.models import SystemFile
from halley.sweeps.values import AxisValue

CHIP_ROOT = ("clock", "static_power")
"""Single values at the root of a chip file."""

SYSTEM_ROOT = ("chip",)
"""Single values at the root of a system file: words, not numbers with an origin."""

SET_BY_SWEEP = "an axis of the sweep"
"""Origin of a number that an axis sets."""


@dataclass(frozen=True, slots=True)
class FilePaths:
    """Paths in a kind of file. ``starts``: the places at which a path may begin, by name, of two equal names the later counts;
    ``root``: single values at its root; ``model``: of what is at a place. ``called``: the file, for messages; ``kind``: the
    schema that lists its keys."""

    starts: Callable[[object], Iterable[tuple[str, KeyPath]]]
    root: tuple[str, ...]
    model: Callable[[KeyPath], type[BaseModel] | None]
    called: str
    kind: str

    def place(self, data: object, path: str) -> KeyPath:
        """The place in the data of a file that a path names.

        A path begins at the file's root, or at one of the starts. The last key need not be in the file if it may be there.

        >>> CHIP_PATHS.place({"levels": [{"name": "glb", "memories": {"buf": {"capacity": "1 MiB"}}}]}, "buf.capacity")
        ('levels', 0, 'memories', 'buf', 'capacity')
        >>> SYSTEM_PATHS.place({"axes": [{"name": "gpu", "size": 8}]}, "gpu.link.bandwidth")
        ('axes', 0, 'link', 'bandwidth')

        Raises BadInput (its fault is at no place): the path leads nowhere.
        """
        words = path.split(".")
        starts = dict(self.starts(data))
        for length in range(len(words) - 1, 0, -1):
            if (start := starts.get(".".join(words[:length]))) is not None:
                return self._inside(data, start, words[length:], path)
        if path in self.root:
            return (path,)
        raise self._nowhere(path, data)

    def _inside(self, data: object, start: KeyPath, rest: list[str], path: str) -> KeyPath:
        """The place of what is left of a path, if a file has a single value there."""
        model = self.model(start)
        if len(rest) == 1 and (model is None or rest[0] in model.model_fields):
            place = (*start, rest[0])
            if not isinstance(_at(data, place), list) and self.model(place) is None:
                return place
        raise self._nowhere(path, data)

    def _nowhere(self, path: str, data: object) -> BadInput:
        known = self._known(data)
        inside = [name for name in known if name.startswith(f"{path}.")]
        alike = inside or difflib.get_close_matches(path, [name for name in known if name != path], n=1)
        hint = f"write for example {known[0]}, or a key that 'halley schema {self.kind}' names"
        remedy = f"did you mean '{alike[0]}'?" if alike else hint
        return BadInput(Fault("", f"an axis that leads to a single value of the {self.called}", repr(path), remedy))

    def _known(self, data: object) -> list[str]:
        """Paths of all single values in the file, as one would write them."""
        found = []
        for name, start in self.starts(data):
            values = _at(data, start)
            for key, value in values.items() if isinstance(values, dict) else ():
                if key not in ("name", "source", "assumed") and (not isinstance(value, dict | list) or "value" in value):
                    found.append(f"{name}.{key}")
        return [*found, *self.root]


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
    if isinstance(root.get("die"), dict):
        yield "die", ("die",)
    for engine in root.get("engines") or {}:
        yield f"engines.{engine}", ("engines", engine)
        for table in ("rate", "energy", "granularity", "accumulators"):
            yield f"engines.{engine}.{table}", ("engines", engine, table)


def _system_starts(data: object) -> Iterator[tuple[str, KeyPath]]:
    """As `_starts`, of a system file; a chip that is written out there has its own paths behind ``chip``."""
    root = data if isinstance(data, dict) else {}
    if isinstance(root.get("chip"), dict):
        yield "chip", ("chip",)
        yield from ((f"chip.{name}", ("chip", *place)) for name, place in _starts(root["chip"]))
    yield from (("dram", ("dram",)), ("host", ("host",)), ("host.link", ("host", "link")))
    for part in ("chip", "memory", "node"):
        yield f"costs.{part}", ("costs", part)
    for index, axis in enumerate(root.get("axes") or ()):
        if isinstance(axis, dict):
            yield f"{axis.get('name')}", ("axes", index)
            yield f"{axis.get('name')}.link", ("axes", index, "link")


def _chip_model(place: KeyPath) -> type[BaseModel] | None:
    return model_at(ChipFile, place)


def _system_model(place: KeyPath) -> type[BaseModel] | None:
    if place[0] == "chip":
        return _chip_model(place[1:]) if len(place) > 1 else ChipFile
    return model_at(SystemFile, place)


CHIP_PATHS = FilePaths(_starts, CHIP_ROOT, _chip_model, "chip", "chip")
SYSTEM_PATHS = FilePaths(_system_starts, SYSTEM_ROOT, _system_model, "system", "system")


def _at(data: object, place: KeyPath) -> Any:
    for part in place:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            return None
    return data


def with_values(data: object, changes: Sequence[tuple[KeyPath, AxisValue]]) -> Any:
    """A copy of the data of a chip or system file with these values; the numbers name the sweep as their origin."""
    changed: Any = copy.deepcopy(data)
    for place, value in changes:
        inner = changed
        for part in place[:-1]:
            if isinstance(inner, dict) and inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
        inner[place[-1]] = value if place == SYSTEM_ROOT else {"value": value, "assumed": SET_BY_SWEEP}
    return changed
