"""Figures of a chip that no search is needed for: what constraints and objectives of a study may name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from halley.ir.hardware import Chip


def members(chip: Chip) -> int:
    """Copies of the innermost level, each with the engines."""
    return math.prod(axis.size for _, axis in chip.axes)


def macs(chip: Chip) -> float:
    """Multiply-accumulate units of all matrix engines."""
    return float(members(chip) * chip.matrix.rows * chip.matrix.cols) if chip.matrix else 0.0


def lanes(chip: Chip) -> float:
    """Lanes of all vector engines."""
    return float(members(chip) * chip.vector.lanes) if chip.vector else 0.0


def sram(chip: Chip) -> float:
    """Bytes of all memories inside the outermost level."""
    total, copies = 0.0, 1
    for depth, level in enumerate(chip.levels):
        copies *= level.count
        total += copies * sum(memory.capacity for memory in level.memories if depth)
    return total


def bandwidth(chip: Chip) -> float:
    """Read bandwidth of the outermost level's memories [B/s]."""
    return sum(memory.read_bandwidth for memory in chip.levels[0].memories)


FIGURES: Mapping[str, tuple[Callable[[Chip], float], str]] = {
    "macs": (macs, ""),
    "lanes": (lanes, ""),
    "sram": (sram, "B"),
    "bandwidth": (bandwidth, "B/s"),
    "clusters": (lambda chip: float(members(chip)), ""),
    "static_power": (lambda chip: chip.static_power, "W"),
}
"""Figures of every chip, with their units."""


def figures_of(chip: Chip) -> dict[str, float]:
    """All figures of a chip.

    >>> from halley.io.chips.load import load_chip
    >>> figures_of(load_chip("edge"))["macs"], figures_of(load_chip("edge"))["sram"] / 2**20
    (4096.0, 4.75)
    """
    return {name: figure(chip) for name, (figure, _) in FIGURES.items()}
