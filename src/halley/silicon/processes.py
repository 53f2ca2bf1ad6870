"""What a die needs for a bit, a multiplier, a lane and an interface.

Cells, densities and areas of arithmetic are published. `FACTORS` are fitted to dies of which parts and area are known
(``python -m validation.area``); docs/validation.md has their errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """A technology: area of its densest SRAM cell [m2], and transistors of logic per m2."""

    bit: float
    density: float
    source: str


def _process(bit: float, density: float, source: str) -> Process:
    """From um2 and millions of transistors per mm2."""
    return Process(bit * 1e-12, density * 1e12, source)


PROCESSES: Mapping[str, Process] = {
    "65 nm": _process(0.525, 2.1, "TSMC: cell of 0.525 um2; density from that of 45 nm by the square of the gate pitches"),
    "28 nm": _process(0.127, 11.0, "TSMC: cell of 0.127 um2 (IEDM 2009); density as WikiChip has it"),
    "16 nm": _process(0.074, 28.9, "TSMC 16FF+: cell of 0.07 to 0.074 um2 (IEDM 2013); WikiChip: 28.88"),
    "14 nm": _process(0.081, 28.9, "GlobalFoundries 14LPP: cell of 0.08 um2; density of 16 nm, assumed"),
    "12 nm": _process(0.074, 33.8, "TSMC 12FFN: WikiChip: 33.8; the cell of 16 nm"),
    "7 nm": _process(0.027, 91.2, "TSMC N7: cell of 0.027 um2 (ISSCC 2017); WikiChip: 91.2"),
    "6 nm": _process(0.027, 107.6, "TSMC N6: 1.18 times the density of N7; the cell of 7 nm"),
    "5 nm": _process(0.021, 164.0, "TSMC N5: cell of 0.021 um2 (IEDM 2019); 1.8 times the density of N7"),
    "4 nm": _process(0.021, 174.0, "TSMC N4: 1.06 times the density of N5; the cell of 5 nm"),
    "3 nm": _process(0.021, 262.0, "TSMC N3E: 1.6 times the density of N5; the cell of 5 nm; checked on no die"),
}
"""Technologies by name."""

ARITHMETIC: Mapping[str, float] = {
    "int8": 419e-12,
    "int16": 1011e-12,
    "fp8": 2912e-12,
    "bf16": 5054e-12,
    "fp16": 5824e-12,
    "fp32": 11884e-12,
    "fp64": 47536e-12,
}
"""Area of a multiplier with its adder at `KNOWN_DENSITY` [m2], by element type. Source: TSMC 45 nm (Dally, tutorial at NIPS
2015): multipliers of int8 282, fp16 1640 and fp32 7700 um2, adders of int32 137 and fp32 4184 um2; the other multipliers by the
square of their significands. Products of floats are added in fp32, those of integers in int32; two of fp8 take the place of one
of fp16."""

ADDER: Mapping[str, float] = {"fp8": 2092e-12, "bf16": 4184e-12, "fp16": 4184e-12, "fp32": 4184e-12}
"""What of these is the adder [m2], for floats whose products a unit may add before it rounds. Source: as `ARITHMETIC`."""

ALIGNED_ADDER = 137e-12
"""Area of an adder of aligned products [m2]: of int32. Source: as `ARITHMETIC`."""

KNOWN_DENSITY = 3.3e12
"""Transistors per m2 of the process of `ARITHMETIC` (45 nm)."""

MULTIPLIERS = tuple(ARITHMETIC)
"""Element types of which the area of a multiplier is known."""

STACKS: Mapping[str, float] = {"hbm2": 225e9, "hbm2e": 410e9, "hbm3": 670e9, "hbm3e": 1e12, "hbm4": 2e12}
"""Bandwidth of a stack of memory [B/s], by which stacks are counted: as built into V100, A100, H100 and B200; of HBM4 as in its
standard."""

PINS = ("ddr", "lpddr", "gddr")
"""Kinds of memory off the package."""

DRAM_KINDS = (*STACKS, *PINS)
"""Kinds of interfaces to memory."""


@dataclass(frozen=True, slots=True)
class Factors:
    """What is fitted. ``local``, ``shared``, ``registers``: area of a bit in cells, of memories of one cluster, of those that
    several clusters share, and of register files. ``fixed``: cells that each memory takes besides. ``multiplier``, ``lane``,
    ``thread_lane``: area over that of the arithmetic, of a multiplier, of a vector lane, and of one that runs a thread. ``stack``
    [m2]: interface to a stack of memory; ``pins``, ``links`` [m2 s/B]: interfaces to other memory and to other chips."""

    local: float
    shared: float
    registers: float
    fixed: float
    multiplier: float
    lane: float
    thread_lane: float
    stack: float
    pins: float
    links: float


FACTORS = Factors(1.48, 5.90, 6.31, 17600.0, 14.3, 28.0, 48.4, 11.7e-6, 0.222e-15, 0.0384e-15)
"""Fitted to the dies of ``validation/area``."""
