"""Fields of a configuration: read one by one, with all that is wrong with them collected."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halley.errors import BadInput, Fault
from halley.io.files.text import Document, DocumentFault, KeyPath
from halley.workloads.construction.parameters import SIZE_LIMIT

LAYERS_LIMIT = 10_000
"""Most layers of a model; some of their fields are lists with an entry for each."""


class Fields:
    """The map at a path of a document. A field that is missing or wrong is noted, and a stand-in is given, so that the others are
    read too; `done` raises what was noted."""

    def __init__(self, document: Document, path: KeyPath = ()) -> None:
        self.document, self.path = document, path
        found = document.at(path)
        self.data: dict[str, object] = found if isinstance(found, dict) else {}
        self.findings: list[DocumentFault] = []
        self.assumed: list[str] = []
        if not isinstance(found, dict):
            self.findings.append(DocumentFault(path, "a map of keys", _shown(found)))

    def inner(self, key: str) -> Fields:
        """The map under a key, with the same list of findings."""
        made = Fields(self.document, (*self.path, key))
        self.findings += made.findings
        made.findings, made.assumed = self.findings, self.assumed
        return made

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.data.get(key) is not None

    def wrong(self, key: str, expected: str, remedy: str = "") -> None:
        """Note that the field is wrong, or missing."""
        if key in self.data:
            self.findings.append(DocumentFault((*self.path, key), expected, _shown(self.data[key]), remedy))
        else:
            self.findings.append(DocumentFault(self.path, expected, "nothing", remedy, key))

    def whole(self, *keys: str, default: int | None = None, least: int = 1, most: int = SIZE_LIMIT, said: bool = False) -> int:
        """The whole number of the first of the keys that is there. ``said``: a default taken is listed in ``assumed``."""
        key = next((key for key in keys if self.has(key)), keys[0])
        value = self.data.get(key)
        if value is None and default is not None:
            if said:
                self.assumed.append(f"{key} = {default}")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.wrong(key, f"a whole number from {least} to {most}")
            return least if default is None else default
        return value

    def layer_count(self, *keys: str, default: int | None = None) -> int:
        """A number of layers."""
        return self.whole(*keys, default=default, most=LAYERS_LIMIT)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(key, "true or false")
            return default
        return value

    def share(self, key: str, default: float = 0.0) -> float:
        """A share from 0 to below 1."""
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.wrong(key, "a share from 0 to below 1")
            return default
        return float(value)

    def word(self, key: str, default: str = "") -> str:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(key, "text")
            return default
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words; empty if the field is not there."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.wrong(key, "a list of words")
            return ()
        return tuple(value)

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers from 0; empty if the field is not there."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, int) and item >= 0 for item in value):
            self.wrong(key, "a list of whole numbers from 0")
            return ()
        return tuple(value)

    def divides(self, key: str, value: int, of: str, whole: int) -> None:
        """Note it where a value does not divide another field."""
        if whole % value and not self.findings:
            self.findings.append(DocumentFault((*self.path, key), f"a divisor of {of} ({whole})", str(value)))

    def done(self) -> None:
        """Raises BadInput: all that was noted, with file and line."""
        if self.findings:
            unique = list(dict.fromkeys(self.findings))
            raise BadInput(self.document.faults(unique))

    def fault(self, expected: str, got: str, remedy: str = "") -> Fault:
        """A fault of the whole map."""
        return Fault(self.document.where(self.path), expected, got, remedy)


def _shown(value: object) -> str:
    """A value in a message: short, and a number of hundreds of digits by its size."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**15:
        return f"a number of {int(math.log10(abs(value))) + 1} digits"
    text = repr(value) if isinstance(value, str) else {None: "null", True: "true", False: "false"}.get(value, str(value))  # type: ignore[call-overload]
    return text if len(text) <= 60 else f"{text[:57]}..."


def period_layers(layers: int, period: int, offset: int) -> int:
    """How many of the layers 0 to ``layers`` - 1 have the remainder ``offset`` by ``period``.

    >>> period_layers(32, 8, 4)
    4
    """
    return sum(1 for layer in range(layers) if layer % period == offset)


def matching(kinds: Sequence[str], kind: str) -> int:
    """How many of the kinds of layers are this one."""
    return sum(1 for item in kinds if item == kind)
