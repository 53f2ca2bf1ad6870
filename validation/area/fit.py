"""The dies, the area that Halley says of each, and the fit of the factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import least_squares

from halley.silicon.area import MemoryBlocks, Silicon, area_parts
from halley.silicon.processes import Factors
from halley.units import BYTES, parse

HERE = Path(__file__).parent
"""Where the dies are."""

SPREAD = 0.12
"""Relative error of a die that costs the fit as much as one deviation of a prior; beyond it, errors count linearly."""

PRIORS: Mapping[str, tuple[float, float]] = {
    "local": (1.9, 0.25),
    "shared": (4.0, 0.3),
    "registers": (6.0, 0.5),
    "fixed": (8000.0, 0.7),
    "multiplier": (8.0, 0.5),
    "lane": (15.0, 0.7),
    "thread_lane": (30.0, 0.7),
    "stack": (11e-6, 0.25),
    "pins": (0.2e-15, 0.4),
    "links": (0.03e-15, 0.4),
}
"""Expected value of each factor, and the deviation of its logarithm: memories from compilers of SRAM, interfaces from annotated
photographs of dies, logic from the shares of arithmetic in published designs."""


@dataclass(frozen=True, slots=True)
class PublishedDie:
    """A die: what is built on it, and its area [m2]."""

    name: str
    built: Silicon
    area: float


def dies() -> list[PublishedDie]:
    """The dies of ``dies.yaml``."""
    given = yaml.safe_load((HERE / "dies.yaml").read_text(encoding="utf-8"))
    return [PublishedDie(name, _silicon(die), die["area"] * 1e-6) for name, die in given.items()]


def _silicon(die: Mapping[str, Any]) -> Silicon:
    blocks = []
    for kind, memories in die["memories"].items():
        for text in memories:
            copies, _, size = text.partition(" x ")
            blocks.append(MemoryBlocks(float(copies), 8 * parse(size, BYTES), kind))
    return Silicon(
        die["process"],
        tuple(blocks),
        {dtype: float(count) for dtype, count in die["multipliers"].items()},
        float(die.get("summed", 1)),
        float(die.get("lanes", 0)),
        die.get("simt", False),
        float(die.get("stacks", 0)),
        die.get("pins", 0) * 1e9,
        die.get("links", 0) * 1e9,
    )


def area(built: Silicon, factors: Factors) -> float:
    """Area of a die [m2]."""
    return sum(area_parts(built, factors).values())


def fitted(known: Sequence[PublishedDie]) -> Factors:
    """The factors that fit these dies."""
    names = [item.name for item in fields(Factors)]
    prior = np.log([PRIORS[name][0] for name in names])
    spread = np.array([PRIORS[name][1] for name in names])

    def factors(logarithms: Any) -> Factors:
        return Factors(*map(float, np.exp(logarithms)))

    def residuals(logarithms: Any) -> Any:
        made = factors(logarithms)
        errors = [math.log(area(die.built, made) / die.area) / SPREAD for die in known]
        return np.concatenate([errors, (logarithms - prior) / spread])

    return factors(least_squares(residuals, prior, loss="soft_l1").x)


def held_out(known: Sequence[PublishedDie]) -> dict[str, float]:
    """The area of each die by the factors that fit all others [m2]."""
    return {die.name: area(die.built, fitted([other for other in known if other is not die])) for die in known}
