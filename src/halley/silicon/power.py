"""The power that a chip draws at most, whatever it computes (docs/model.md, "Area and peak power")."""

from __future__ import annotations

import math

from halley.formulas.energy import engine_power
from halley.formulas.price import busy_power
from halley.ir.hardware import NO_LINK, Chip, MatrixEngine, Memory, VectorEngine
from halley.units import UNLIMITED


def peak_power(chip: Chip) -> float:
    """Power with every engine, memory, port and link at work in every cycle, on what costs most [W]; no mapping draws more on
    average. Infinite where a bandwidth is unlimited and costs energy.

    >>> from halley.io.chips.load import load_chip
    >>> 1 < peak_power(load_chip("edge")) < 20
    True
    """
    total, members = chip.static_power, 1
    for level in chip.levels:
        members *= level.count
        total += members * sum(_memory(memory) for memory in level.memories)
        if level.network is None:
            continue
        links = [axis.link for axis in level.network.axes if axis.link != NO_LINK]
        # a rank sends over all its links at a time: two on each axis, one on an axis with a switch
        total += members * sum(2 * _busy(link.bandwidth, link.energy) for link in links)
        if level.network.port is not None:
            total += members * 2 * _busy(level.network.port.bandwidth, level.network.port.energy)
    return total + members * (_matrix(chip.matrix) + _vector(chip.vector))


def _busy(bandwidth: float, energy: float) -> float:
    if not energy:
        return 0.0
    return math.inf if bandwidth >= UNLIMITED else float(busy_power(bandwidth, energy))


def _memory(memory: Memory) -> float:
    reads, writes = _busy(memory.read_bandwidth, memory.read_energy), _busy(memory.write_bandwidth, memory.write_energy)
    return max(reads, writes) if memory.shared_bus else reads + writes


def _matrix(engine: MatrixEngine | None) -> float:
    if engine is None:
        return 0.0
    units = engine.rows * engine.cols
    powers = (engine_power(units, engine.rate.get(dtype, 1.0), engine.clock, energy) for dtype, energy in engine.energy.items())
    return max(map(float, powers), default=0.0)


def _vector(engine: VectorEngine | None) -> float:
    if engine is None:
        return 0.0
    powers = (engine_power(engine.lanes, engine.rate[name], engine.clock, energy) for name, energy in engine.energy.items())
    return max(map(float, powers), default=0.0)
