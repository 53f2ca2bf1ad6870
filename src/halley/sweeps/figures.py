"""Figures of a chip or a system that no search is needed for: what constraints and objectives of a study may name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.network.graph.bill import bill
from halley.silicon.area import die_area
from halley.silicon.power import peak_power
from halley.units import format_area, format_bytes, format_energy, format_power, format_rate, format_time


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


CHIP_FIGURES: Mapping[str, tuple[Callable[[Chip], float], str]] = {
    "macs": (macs, ""),
    "lanes": (lanes, ""),
    "sram": (sram, "B"),
    "bandwidth": (bandwidth, "B/s"),
    "clusters": (lambda chip: float(members(chip)), ""),
    "static_power": (lambda chip: chip.static_power, "W"),
    "die_area": (lambda chip: die_area(chip) or math.nan, "m2"),
    "peak_power": (peak_power, "W"),
}
"""Figures of chips, with their units; missing where they are not finite."""

SYSTEM_UNITS: Mapping[str, str] = {
    "chips": "",
    "macs": "",
    "memory": "B",
    "bandwidth": "B/s",
    "price": "",
    "power": "W",
    "die_area": "m2",
    "peak_power": "W",
}
"""Figures of every system, of all its chips together but for the area, which is that of a die, with their units; the price is
in US dollars."""

CHIPS = "chips"
"""The part of a bill without which there is no price."""

UNITS: Mapping[str, str] = {**{name: unit for name, (_, unit) in CHIP_FIGURES.items()}, **SYSTEM_UNITS}
"""The unit of each figure."""


def figures_of(subject: Chip | System) -> dict[str, float]:
    """All figures of a chip or system. Price and power are those of the parts for which they are stated, and missing where they
    are not even stated for the chips.

    >>> from halley.io.chips.load import load_chip
    >>> figures_of(load_chip("edge"))["macs"], figures_of(load_chip("edge"))["sram"] / 2**20
    (4096.0, 4.75)
    >>> from halley.io.systems.system import load_system
    >>> figures_of(load_system("16 x h100, nvlink 8, ib"))["chips"]
    16.0
    """
    if isinstance(subject, Chip):
        return _finite({name: figure(subject) for name, (figure, _) in CHIP_FIGURES.items()})
    chip, costs = subject.chip, bill(subject)
    found = {
        "chips": float(subject.chips),
        "macs": subject.chips * macs(chip),
        "memory": float(subject.chips * sum(memory.capacity for memory in chip.levels[0].memories)),
        "bandwidth": subject.chips * bandwidth(chip),
    }
    if CHIPS not in costs.unpriced:
        found["price"] = costs.price
    if CHIPS not in costs.unpowered:
        found["power"] = costs.power
    return found | _finite({"die_area": die_area(chip) or math.nan, "peak_power": subject.chips * peak_power(chip)})


def _finite(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def left_out(subject: Chip | System, figure: str) -> tuple[str, ...]:
    """The parts of a system that its price or power leaves out, as none is stated."""
    if isinstance(subject, Chip) or figure not in ("price", "power"):
        return ()
    costs = bill(subject)
    return costs.unpriced if figure == "price" else costs.unpowered


FORMATS: Mapping[str, Callable[[float], str]] = {
    "B": format_bytes,
    "B/s": format_rate,
    "s": format_time,
    "J": format_energy,
    "W": format_power,
    "m2": format_area,
}
"""How quantities are written, by unit."""


def figure_text(name: str, value: float, unit: str = "") -> str:
    """A figure with its unit; ``unit``: of what is no figure of every chip or system.

    >>> figure_text("sram", 2**20), figure_text("macs", 4096), figure_text("area", 1.23456)
    ('1 MiB', '4,096', '1.235')
    """
    unit = UNITS.get(name, unit)
    if unit in FORMATS:
        return FORMATS[unit](value)
    number = f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()
