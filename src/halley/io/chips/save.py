"""From a `Chip` to the content of a chip file: what `halley.io.chips.chip.read_chip` reads back as the equal chip."""

from __future__ import annotations

import math
from typing import Any

import yaml

from halley.ir.hardware import Axis, Chip, Die, Level, Link, MatrixEngine, Memory, Network, Topology, VectorEngine


def chip_document(chip: Chip) -> dict[str, Any]:
    """The content of a chip file, each number with its unit, to the last digit, and with its source where it has one.

    >>> from halley.io.chips.load import load_chip
    >>> chip_document(load_chip("edge"))["levels"][0]["memories"]["dram"]["capacity"]["value"]
    '8589934592.0 B'
    """
    clock = chip.matrix.clock if chip.matrix else chip.vector.clock if chip.vector else 1e9
    content: dict[str, Any] = {
        "name": chip.name,
        "clock": _unit(clock, "Hz"),
        "static_power": _unit(chip.static_power, "W"),
        "levels": [_level(level) for level in chip.levels],
        "engines": {
            **({"matrix": _matrix(chip.matrix)} if chip.matrix else {}),
            **({"vector": _vector(chip.vector)} if chip.vector else {}),
        },
    }
    if math.isfinite(chip.power_limit):
        content["power_limit"] = _unit(chip.power_limit, "W")
    if chip.version > 1:
        content["version"] = chip.version
    if chip.streams:
        content["streams"] = list(chip.streams)
    if chip.die is not None:
        content["die"] = _die(chip.die)
    if chip.description:
        content["description"] = chip.description
    return {key: _sourced(value, key, chip) for key, value in content.items()}


def chip_text(chip: Chip) -> str:
    """The text of a chip file.

    >>> from halley.io.chips.load import load_chip, parse_chip
    >>> parse_chip(chip_text(load_chip("edge"))) == load_chip("edge")
    True
    """
    return yaml.safe_dump(chip_document(chip), sort_keys=False, allow_unicode=True, width=120)


def _sourced(value: Any, path: str, chip: Chip) -> Any:
    """The value with the source of each number put beside it; items of a list are called by their name."""
    match value:
        case dict():
            return {key: _sourced(item, f"{path}.{key}", chip) for key, item in value.items()}
        case list() if value and isinstance(value[0], dict):
            return [_sourced(item, f"{path}.{item['name']}", chip) for item in value]
        case _:
            source = chip.sources.get(path)
            return {"value": value, "source": source} if source else value


def _die(die: Die) -> dict[str, Any]:
    return {
        "process": die.process,
        **({"dram": die.dram} if die.dram else {}),
        **({"links": _unit(die.links, "B/s")} if die.links else {}),
        **({"clusters": die.clusters} if die.clusters else {}),
        **({"simt": True} if die.simt else {}),
        **({"registers": list(die.registers)} if die.registers else {}),
        **({"multipliers": die.multipliers} if die.multipliers else {}),
        **({} if die.fp64 is None else {"fp64": die.fp64}),
        **({"summed": die.summed} if die.summed != 1 else {}),
        **({} if die.lanes is None else {"lanes": die.lanes}),
        **({"area": _unit(die.area, "m2")} if die.area else {}),
    }


def _unit(value: float, unit: str) -> str:
    return f"{float(value)!r} {unit}"


def _link(link: Link) -> dict[str, Any]:
    return {"bandwidth": _unit(link.bandwidth, "B/s"), "latency": _unit(link.latency, "s"), "energy": _unit(link.energy, "J/B")}


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "capacity": _unit(memory.capacity, "B"),
        "read_bandwidth": _unit(memory.read_bandwidth, "B/s"),
        "write_bandwidth": _unit(memory.write_bandwidth, "B/s"),
        "latency": _unit(memory.latency, "s"),
        "read_energy": _unit(memory.read_energy, "J/B"),
        "write_energy": _unit(memory.write_energy, "J/B"),
        **({"shared_bus": True} if memory.shared_bus else {}),
        **({"lockstep": True} if memory.lockstep else {}),
        **({"dma": True} if memory.dma else {}),
        **({"buffers": memory.buffers} if memory.buffers != 2 else {}),
        **({"burst": f"{memory.burst} B"} if memory.burst else {}),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    exchange = axis.exchange
    given: dict[str, Any] = {
        key: _unit(value, "s")
        for key, value in (("startup", exchange.startup), ("barrier", exchange.barrier), ("adder", exchange.adder))
        if value
    }
    if exchange.add_bandwidth < math.inf:
        given["add_bandwidth"] = _unit(exchange.add_bandwidth, "B/s")
    given |= {key: True for key, able in (("multicast", axis.multicast), ("reduction", axis.reduction)) if able}
    link = {} if axis.topology is Topology.NONE else {"link": _link(axis.link)}
    content = {"size": axis.size, "topology": axis.topology.value, **link}
    return content | ({"collectives": given} if given else {})


def _network(network: Network) -> dict[str, Any]:
    axes = {axis.name: _axis(axis) for axis in network.axes}
    port = {"port": _link(network.port)} if network.port else {}
    return {"axes": axes, **port, "multicast": network.multicast, "reduction": network.reduction}


def _level(level: Level) -> dict[str, Any]:
    memories = {memory.name: _memory(memory) for memory in level.memories}
    network = {"network": _network(level.network)} if level.network else {}
    return {"name": level.name, "memories": memories, **network}


def _matrix(engine: MatrixEngine) -> dict[str, Any]:
    multiples = engine.granularity
    granularity = {key: value for key in ("rows", "columns", "reduced") if (value := getattr(multiples, key)) > 1}
    return {
        "rows": engine.rows,
        "cols": engine.cols,
        "clock": _unit(engine.clock, "Hz"),
        "dataflow": engine.dataflow.value,
        "prefetch": engine.prefetch,
        **({"back_to_back": True} if engine.back_to_back else {}),
        "rate": dict(engine.rate),
        **({"nvfp4": engine.nvfp4} if engine.nvfp4 else {}),
        "energy": {dtype: _unit(energy, "J") for dtype, energy in engine.energy.items()},
        **({"latency": _unit(engine.latency, "s")} if engine.latency else {}),
        **({"granularity": granularity} if granularity else {}),
        **({"accumulators": dict(engine.accumulators)} if engine.accumulators else {}),
        "reads": {role: list(names) for role, names in engine.reads.items()},
    }


def _vector(engine: VectorEngine) -> dict[str, Any]:
    return {
        "lanes": engine.lanes,
        **({"warp": engine.warp} if engine.warp else {}),
        "clock": _unit(engine.clock, "Hz"),
        "rate": dict(engine.rate),
        "energy": {function: _unit(energy, "J") for function, energy in engine.energy.items()},
        **({"latency": _unit(engine.latency, "s")} if engine.latency else {}),
        "reads": list(engine.reads),
    }
