"""What the axes of a study change: a chip file, a system file, or the short form of a system with names in braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.chip import clock_of, read_chip
from halley.io.files.text import Document, DocumentFault, KeyPath
from halley.io.systems.system import load_system, read_system
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.sweeps.places import CHIP_PATHS, SYSTEM_PATHS, FilePaths, with_values
from halley.sweeps.values import AxisValue

Subject: TypeAlias = Chip | System
"""What a design is."""

Changes: TypeAlias = Sequence[tuple[KeyPath, AxisValue]]
"""Values by their places in the file of the base."""

_NAME = re.compile(r"\{([^{}]*)\}")


class Base(Protocol):
    """The base of a study. ``clock`` [Hz]: what units that count cycles refer to."""

    @property
    def clock(self) -> float: ...

    def place(self, path: str) -> KeyPath:
        """The place of a path. Raises BadInput (its fault is at no place): it leads nowhere."""
        ...

    def words(self, place: KeyPath) -> str:
        """The path of a place."""
        ...

    def subject(self, changes: Changes, setting: Mapping[str, str]) -> tuple[Subject | None, list[DocumentFault]]:
        """The chip or system with these changes, where ``setting`` has the value of each axis; or what is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class FileBase:
    """A file, the ``paths`` into it, and what reads it."""

    document: Document
    paths: FilePaths
    read: Callable[[Document], tuple[Subject | None, list[DocumentFault]]]

    @property
    def clock(self) -> float:
        return clock_of(self.document.data)

    def place(self, path: str) -> KeyPath:
        return self.paths.place(self.document.data, path)

    def words(self, place: KeyPath) -> str:
        return ".".join(self.document.words(place))

    def subject(self, changes: Changes, setting: Mapping[str, str]) -> tuple[Subject | None, list[DocumentFault]]:
        return self.read(Document(self.document.name, with_values(self.document.data, changes), self.document.lines))


def chip_base(document: Document) -> FileBase:
    """A chip file."""
    return FileBase(document, CHIP_PATHS, read_chip)


def system_base(document: Document, folder: Path) -> FileBase:
    """A system file; ``folder``: where paths to its chip start."""

    def read(changed: Document) -> tuple[System | None, list[DocumentFault]]:
        system, findings, elsewhere = read_system(changed, folder)
        return system, [*findings, *map(_unplaced, elsewhere)]

    return FileBase(document, SYSTEM_PATHS, read)


@dataclass(frozen=True, slots=True)
class SystemWords:
    """The short form of a system, or names and paths of systems, with the names of axes in braces."""

    text: str

    @property
    def clock(self) -> float:
        return 1e9

    def place(self, path: str) -> KeyPath:
        remedy = f"write {{{path}}} in the text, or name a system file"
        raise BadInput(Fault("", "an axis that the text of the system or a plan names in braces", repr(path), remedy))

    def words(self, place: KeyPath) -> str:
        return ""

    def subject(self, changes: Changes, setting: Mapping[str, str]) -> tuple[System | None, list[DocumentFault]]:
        try:
            return load_system(filled(self.text, setting)), []
        except BadInput as error:
            return None, [_unplaced(fault) for fault in error.faults]


def _unplaced(fault: Fault) -> DocumentFault:
    """What is wrong in another file, or in no file."""
    return DocumentFault((), f"{fault.where}: {fault.expected}", fault.got, fault.remedy)


def names_in(text: str) -> list[str]:
    """The names in braces of a text.

    >>> names_in("{chips} x {chip}, nvlink 8, ib")
    ['chips', 'chip']
    """
    return _NAME.findall(text)


def filled(text: str, setting: Mapping[str, str]) -> str:
    """The text with the value of each axis in place of its name in braces.

    >>> filled("{chips} x h100, nvlink 8, ib", {"chips": "64"})
    '64 x h100, nvlink 8, ib'

    Raises BadInput (its faults are at no place): names without an axis.
    """
    if missing := [name for name in names_in(text) if name not in setting]:
        raise BadInput([Fault("", "the name of an axis in braces", repr(name), did_you_mean(name, setting)) for name in missing])
    return _NAME.sub(lambda found: setting[found[1]], text)
