"""A problem of training on another system, such as one with slower links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from halley.ir.hardware import Axis
from halley.ir.system import System
from halley.network.fit.overlay import Fit
from halley.training.plan import TrainingProblem


def with_system(problem: TrainingProblem, system: System) -> TrainingProblem:
    """The problem on a system with the same axes and memories and other numbers. The share of the memory that plans may fill
    stays, and so does that of the links that a measured library reaches: its protocols change as the links do."""
    usable = problem.usable
    if usable is not None:
        before, after = problem.system.chip.memories[0].capacity, system.chip.memories[0].capacity
        usable *= after / before
    libraries = dict(problem.libraries)
    for old, new in zip(problem.system.axes, system.axes, strict=True):
        if old != new and old.name in libraries:
            library = libraries[old.name]
            of_link = _ratio(new.link.bandwidth, old.link.bandwidth), _ratio(new.link.latency, old.link.latency)
            libraries[old.name] = replace(library, fits=tuple(_of_fit(fit, *of_link) for fit in library.fits))
    return replace(problem, system=system, usable=usable, libraries=libraries)


def scaled(thing: Any, keys: Sequence[str], factor: float) -> Any:
    """A value with the numbers of these names times a factor."""
    return replace(thing, **{key: getattr(thing, key) * factor for key in keys})


def scaled_axis(axis: Axis, key: str, factor: float) -> Axis:
    """An axis with a number of all its links times a factor."""
    links = {name: getattr(axis, name) for name in ("link", "upper", "top")}
    return replace(axis, **{name: scaled(link, (key,), factor) for name, link in links.items() if link is not None})


def _ratio(after: float, before: float) -> float:
    return after / before if before and math.isfinite(before) else 1.0


def _of_fit(fit: Fit, bandwidth: float, latency: float) -> Fit:
    protocols = (replace(own, bandwidth=own.bandwidth * bandwidth, latency=own.latency * latency) for own in fit.protocols)
    return replace(fit, protocols=tuple(protocols))
