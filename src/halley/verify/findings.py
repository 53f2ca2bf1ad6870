"""What a verification finds, and how two records of the same figures are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halley.answer import Certificate, Status
from halley.errors import Fault, SearchStopped

TOLERANCE = 1e-9
"""Largest relative difference between two ways to the same number."""

Progress = Callable[[str, float], None]
"""What a search calls now and then: what it has found, and a share of its work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: of which ``part`` of an answer, ``what`` was checked, whether it ``passed`` (None: there was not time or memory
    enough to decide), and the ``detail``."""

    part: str
    what: str
    passed: bool | None
    detail: str


def stop_after(limit: float, progress: Progress | None = None, what: str = "searches again") -> Callable[[], None]:
    """What a search calls between its steps: it raises `SearchStopped` once ``limit`` [s] has passed since now."""
    began = time.monotonic()

    def tick() -> None:
        passed = time.monotonic() - began
        if passed > limit:
            raise SearchStopped(Fault(what, "an end", f"none after {limit:g} s", "raise the time limit"))
        if progress is not None:
            progress(what, passed / limit)

    return tick


def out_of_time(part: str, what: str, limit: float) -> Finding:
    """A check that was not decided within ``limit`` [s]."""
    return Finding(part, what, None, f"not decided within {limit:g} s; raise --time-limit")


def close(a: float, b: float, tolerance: float = TOLERANCE) -> bool:
    """Equal to a relative tolerance."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def differences(saved: object, found: object, path: str = "") -> list[str]:
    """Where a saved record differs from the recomputed one: numbers by more than the tolerance, all else at all.

    >>> differences({"a": 1.0, "b": [1, "x"]}, {"a": 1.0 + 1e-12, "b": [2, "x"]})
    ['b.0: 1 in the file, 2 anew']
    """
    match saved, found:
        case Mapping(), Mapping():
            different = []
            for key in sorted({*saved, *found}):
                at = f"{path}.{key}" if path else str(key)
                if key not in saved or key not in found:
                    different.append(f"{at}: {'nothing' if key not in saved else 'a value'} in the file, the contrary anew")
                else:
                    different += differences(saved[key], found[key], at)
            return different
        case (str(), _) | (_, str()) | (bool(), _) | (_, bool()) | (None, _) | (_, None):
            equal = saved == found
        case ((int() | float()), (int() | float())):
            equal = close(saved, found)
        case Sequence(), Sequence():
            if len(saved) != len(found):
                return [f"{path}: {len(saved)} entries in the file, {len(found)} anew"]
            pairs = enumerate(zip(saved, found, strict=True))
            return [text for place, (a, b) in pairs for text in differences(a, b, f"{path}.{place}" if path else str(place))]
        case _:
            equal = saved == found
    return [] if equal else [f"{path}: {_short(saved)} in the file, {_short(found)} anew"]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def figures(part: str, saved: object, found: object) -> Finding:
    """Whether all figures of a saved record equal the recomputed ones."""
    different = differences(saved, found)
    more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
    detail = "; ".join(different[:3]) + more if different else f"all figures recomputed and equal to {TOLERANCE:g}"
    return Finding(part, "figures", not different, detail)


def certificate_finding(part: str, certificate: Certificate, value: float, tolerance: float = TOLERANCE) -> Finding:
    """The value is the answer's, the bound is not above it, and equal to it where the search says that it ended so.

    ``tolerance``: relative gap at which the search says optimal.
    """
    bound = certificate.bound
    wrong = ""
    if not close(certificate.value, value):
        wrong = f"value {certificate.value!r} in the file, {value!r} anew"
    elif bound > value * (1 + TOLERANCE):
        wrong = f"the bound {bound!r} is above the value {value!r}: not a bound"
    elif certificate.status is Status.OPTIMAL and not close(bound, value, max(tolerance, TOLERANCE) * (1 + TOLERANCE)):
        wrong = f"said to be optimal, yet the bound {bound!r} is below the value {value!r}"
    text = f"value {value:.6g} {certificate.unit}, bound {bound:.6g} {certificate.unit}"
    return Finding(part, "certificate", not wrong, wrong or text)
