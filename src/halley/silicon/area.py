"""The area of a chip's die by its parts: memories, multipliers, lanes, interfaces (docs/model.md, "Area and peak power")."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from halley.formulas.area import interface_area, logic_area, memory_area
from halley.ir.hardware import Chip
from halley.silicon.processes import ADDER, ALIGNED_ADDER, ARITHMETIC, FACTORS, KNOWN_DENSITY, PROCESSES, STACKS, Factors

LANE = "fp32"
"""Element type by whose arithmetic vector lanes are counted."""

SEPARATE = "fp64"
"""Element type whose multipliers are no part of those of the others."""


@dataclass(frozen=True, slots=True)
class MemoryBlocks:
    """Equal memories on a die: how many, bits of each, and the kind of `Factors`: ``local``, ``shared`` or ``registers``."""

    copies: float
    bits: float
    kind: str


@dataclass(frozen=True, slots=True)
class Silicon:
    """What is built on a die. ``multipliers``: how many, by element type; ``summed``: products of floats that a unit adds before
    it rounds; ``lanes`` of vector engines; ``simt``: they run threads; ``stacks`` of memory on the package; ``pins`` and
    ``links`` [B/s]: bandwidth to other memory and to other chips."""

    process: str
    memories: tuple[MemoryBlocks, ...]
    multipliers: Mapping[str, float]
    summed: float = 1.0
    lanes: float = 0.0
    simt: bool = False
    stacks: float = 0.0
    pins: float = 0.0
    links: float = 0.0


def silicon(chip: Chip) -> Silicon | None:
    """What is built on the die of a chip; None where its file does not say how it is built.

    >>> from halley.io.chips.load import load_chip
    >>> silicon(load_chip("edge")).multipliers
    {'fp16': 4096.0}
    """
    die = chip.die
    if die is None:
        return None
    members, memories = 1, []
    used = math.prod(level.count for level in chip.levels)
    spare = (die.clusters or used) / used
    for depth, level in enumerate(chip.levels):
        members *= level.count
        inside = used // members
        copies = members * spare if inside == 1 else members
        for memory in level.memories if depth else ():
            kind = "registers" if memory.name in die.registers else "shared" if inside > 1 else "local"
            memories.append(MemoryBlocks(float(copies), 8 * memory.capacity, kind))
    lanes = die.lanes if die.lanes is not None else chip.vector.lanes if chip.vector else 0
    outer = sum(memory.read_bandwidth for memory in chip.levels[0].memories)
    stack = STACKS.get(die.dram)
    return Silicon(
        die.process,
        tuple(memories),
        _multipliers(chip, used * spare),
        float(die.summed),
        used * spare * lanes,
        die.simt,
        outer / stack if stack else 0.0,
        outer if die.dram and not stack else 0.0,
        die.links,
    )


def _multipliers(chip: Chip, members: float) -> dict[str, float]:
    """Of the element types of the matrix engine, the one whose multipliers are largest stands for the others, but for fp64."""
    if chip.matrix is None or chip.die is None:
        return {}
    units = members * chip.matrix.rows * chip.matrix.cols
    if chip.die.multipliers:
        return {chip.die.multipliers: units}
    rates = {dtype: rate for dtype, rate in chip.matrix.rate.items() if dtype in ARITHMETIC}
    shared = [dtype for dtype in rates if dtype != SEPARATE]
    largest = [max(shared, key=lambda dtype: rates[dtype] * ARITHMETIC[dtype])] if shared else []
    found = {dtype: units * rates[dtype] for dtype in (*largest, *(dtype for dtype in rates if dtype == SEPARATE))}
    return found if chip.die.fp64 is None else found | {SEPARATE: members * chip.die.fp64}


def multiplier_area(dtype: str, summed: float) -> float:
    """Area of a multiplier with its share of the adders at `KNOWN_DENSITY` [m2]. Of ``summed`` products of floats, whose
    exponents are aligned, all are added as integers and their sum once as a float.

    >>> multiplier_area("fp16", 1) == ARITHMETIC["fp16"], round(multiplier_area("fp16", 16) * 1e12), multiplier_area("int8", 16)
    (True, 2030, 4.19e-10)
    """
    adder = ADDER.get(dtype)
    if adder is None:
        return ARITHMETIC[dtype]
    return ARITHMETIC[dtype] - (1 - 1 / summed) * (adder - ALIGNED_ADDER * adder / ADDER[LANE])


def area_parts(built: Silicon, factors: Factors = FACTORS) -> dict[str, float]:
    """Area of each part [m2]."""
    process = PROCESSES[built.process]
    found = dict.fromkeys(("local", "shared", "registers"), 0.0)
    for blocks in built.memories:
        area = memory_area(blocks.copies, blocks.bits, factors.fixed, process.bit, getattr(factors, blocks.kind))
        found[blocks.kind] += float(area)

    def logic(units: float, unit: float, factor: float) -> float:
        return float(logic_area(units, unit, KNOWN_DENSITY, process.density, factor))

    lane = factors.thread_lane if built.simt else factors.lane
    return {
        "local memories": found["local"],
        "shared memories": found["shared"],
        "registers": found["registers"],
        "multipliers": sum(
            logic(units, multiplier_area(dtype, built.summed), factors.multiplier) for dtype, units in built.multipliers.items()
        ),
        "vector lanes": logic(built.lanes, ARITHMETIC[LANE], lane),
        "interfaces to memory": built.stacks * factors.stack + float(interface_area(built.pins, factors.pins)),
        "interfaces to chips": float(interface_area(built.links, factors.links)),
    }


def die_area(chip: Chip) -> float | None:
    """Area of the die [m2]; None where the file of the chip does not say how it is built.

    >>> from halley.io.chips.load import load_chip
    >>> die_area(load_chip("a100")) > 500e-6
    True
    """
    built = silicon(chip)
    return None if built is None else sum(area_parts(built).values())
