"""When one chip is at least as good as another: the order that carries values and bounds from one design to the next.

A mapping's legality and cost depend on the chip's figures as follows, by the formulas of `halley.cost` (docs/model.md): tiles
must fit the capacities, which nothing else depends on; every time is a sum or a maximum of bytes / bandwidth, latencies and
cycles of engines, all combined by sums and maxima; every energy is a count times an energy, plus static power times time. The
space of mappings depends on the structure alone: levels, axes, array and dtypes. So on a chip with the same structure that is no
worse in any of these figures, every legal mapping stays legal and takes no more time and energy. Figures that are not named here,
such as the rows of the array, must be equal. ``tests/laws/test_sweep_order.py`` draws chips and compares optima.

Plans on systems are not compared: that more bandwidth never makes the best plan slower has not been shown for every fit of a
library.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from halley.ir.hardware import NO_LINK, Axis, Chip, Exchange, Level, Link, MatrixEngine, Memory, Network, VectorEngine
from halley.ir.system import System
from halley.mapping.problem import Objective

Figures = tuple[tuple[float, ...], Hashable]
"""Figures of a chip of which more is better, and all else."""


def ranked(chip: Chip, objective: Objective) -> Figures:
    """The figures of a chip, with such signs that more is no worse for the objective, and the structure in which comparable chips
    agree.

    >>> from halley.io.chips.load import load_chip
    >>> edge = load_chip("edge")
    >>> dram = replace(edge.memory("dram"), capacity=1e12)
    >>> more = replace(edge, levels=(replace(edge.levels[0], memories=(dram,)), *edge.levels[1:]))
    >>> one, other = ranked(edge, Objective.TIME), ranked(more, Objective.TIME)
    >>> one[1] == other[1], all(a <= b for a, b in zip(one[0], other[0], strict=True)), one[0] == other[0]
    (True, True, False)
    """
    figures: list[float] = []
    powered = objective is not Objective.TIME
    structure = (
        tuple(_level(level, figures, powered) for level in chip.levels),
        _matrix(chip.matrix, figures, powered),
        _vector(chip.vector, figures, powered),
        chip.streams,
    )
    if powered:
        figures.append(-chip.static_power)
    return tuple(figures), repr(structure)


def _level(level: Level, figures: list[float], powered: bool) -> Level:
    memories = tuple(_memory(memory, figures, powered) for memory in level.memories)
    return Level(level.name, memories, _network(level.network, figures, powered) if level.network else None)


def _memory(memory: Memory, figures: list[float], powered: bool) -> Memory:
    figures += [memory.capacity, memory.read_bandwidth, memory.write_bandwidth, -memory.latency]
    if powered:
        figures += [-memory.read_energy, -memory.write_energy]
    return replace(memory, capacity=1, read_bandwidth=1, write_bandwidth=1, latency=0, read_energy=0, write_energy=0)


def _network(network: Network, figures: list[float], powered: bool) -> Network:
    axes = tuple(_axis(axis, figures, powered) for axis in network.axes)
    port = None if network.port is None else _link(network.port, figures, powered)
    return replace(network, axes=axes, port=port)


def _axis(axis: Axis, figures: list[float], powered: bool) -> Axis:
    given = axis.exchange
    figures += [-given.startup, -given.barrier, -given.adder, given.add_bandwidth]
    linked = axis.link != NO_LINK  # chips with and without links are not compared
    return replace(axis, link=_link(axis.link, figures, powered) if linked else NO_LINK, exchange=Exchange())


def _link(link: Link, figures: list[float], powered: bool) -> Link:
    figures += [link.bandwidth, -link.latency]
    if powered:
        figures.append(-link.energy)
    return replace(link, bandwidth=1, latency=0, energy=0)


def _matrix(engine: MatrixEngine | None, figures: list[float], powered: bool) -> MatrixEngine | None:
    if engine is None:
        return None
    figures.append(-engine.latency)
    return replace(engine, latency=0, energy=_energies(engine.energy.items(), figures, powered))


def _vector(engine: VectorEngine | None, figures: list[float], powered: bool) -> VectorEngine | None:
    if engine is None:
        return None
    figures += [float(engine.lanes), -engine.latency]
    return replace(engine, lanes=1, latency=0, energy=_energies(engine.energy.items(), figures, powered))


def _energies(given: Iterable[tuple[str, float]], figures: list[float], powered: bool) -> dict[str, float]:
    each = sorted(given)
    if powered:
        figures += [-energy for _, energy in each]
    return {name: 0.0 for name, _ in each}


class Order:
    """Which designs are comparable, for all designs of a study.

    >>> from halley.io.chips.load import load_chip
    >>> order = Order([load_chip("edge"), load_chip("edge"), load_chip("cloud")], Objective.TIME)
    >>> order.no_worse(0).tolist(), order.no_better(2).tolist()
    ([0, 1], [2])
    """

    def __init__(self, subjects: Iterable[Chip | System], objective: Objective) -> None:
        rows: dict[Hashable, tuple[list[int], list[tuple[float, ...]]]] = {}
        self._class: list[tuple[NDArray[np.int64], NDArray[np.float64], int]] = []
        placed = []
        for index, subject in enumerate(subjects):
            figures, structure = ranked(subject, objective) if isinstance(subject, Chip) else ((), index)
            indices, values = rows.setdefault((structure, len(figures)), ([], []))
            placed.append(((structure, len(figures)), len(indices)))
            indices.append(index)
            values.append(figures)
        tables = {key: (np.array(indices), np.array(values)) for key, (indices, values) in rows.items()}
        self._class = [(*tables[key], row) for key, row in placed]

    def alike(self, design: int) -> NDArray[np.int64]:
        """Designs of the same structure, itself among them."""
        return self._class[design][0]

    def no_worse(self, design: int) -> NDArray[np.int64]:
        """Designs on which each mapping of this one is legal and no slower, itself among them."""
        indices, values, row = self._class[design]
        return np.asarray(indices[(values >= values[row]).all(axis=1)])

    def no_better(self, design: int) -> NDArray[np.int64]:
        """Designs each of whose mappings is legal and no slower on this one, itself among them."""
        indices, values, row = self._class[design]
        return np.asarray(indices[(values <= values[row]).all(axis=1)])
