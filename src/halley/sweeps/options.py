"""What a study says of a plan or deployment, for one system: text with names of axes in braces, and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halley.errors import BadInput, Fault
from halley.ir.system import System
from halley.sweeps.bases import filled


def asked_of(given: Mapping[str, object], setting: Mapping[str, str]) -> dict[str, object]:
    """The options with the values of the axes. Raises BadInput: a name without an axis."""
    return {key: filled(value, setting) if isinstance(value, str) else value for key, value in given.items()}


def text(asked: Mapping[str, object], key: str) -> str | None:
    """An option; None where it is left out."""
    return None if asked.get(key) is None else str(asked[key])


def whole(asked: Mapping[str, object], key: str, least: int = 1) -> int | None:
    """A whole number; None where it is left out. Raises BadInput: none, or one out of range."""
    given = asked.get(key)
    if given is None:
        return None
    if not str(given).isdecimal() or len(str(given)) > 9 or int(str(given)) < least:
        raise BadInput(Fault(key, f"a whole number from {least} to 999,999,999", repr(given)))
    return int(str(given))


def nameless(system: System) -> System:
    """The system without names, descriptions and sources; its chip keeps its name, by which fits of its kernels are found."""
    chip = replace(system.chip, description="", sources={}, version=0, die=None)
    return replace(system, name="", description="", sources={}, chip=chip)
