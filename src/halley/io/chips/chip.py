"""From the text of a chip file to a `Chip`: the rules between its parts, the origin of each number, and the value itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pydantic import BaseModel

from halley.errors import UnitError, did_you_mean
from halley.io.files.check import check
from halley.io.files.entries import Entry, origin, shown
from halley.io.files.models import (
    AxisFile,
    ChipFile,
    DieFile,
    GranularityFile,
    LevelFile,
    LinkFile,
    MatrixFile,
    MemoryFile,
    NetworkFile,
    VectorFile,
)
from halley.io.files.text import Document, DocumentFault, KeyPath
from halley.ir.hardware import (
    NO_LINK,
    Axis,
    Chip,
    Dataflow,
    Die,
    Exchange,
    Granularity,
    Level,
    Link,
    MatrixEngine,
    Memory,
    Network,
    Topology,
    VectorEngine,
)
from halley.ir.workload import DTYPE_BYTES, FUNCTIONS, MONOIDS
from halley.units import HERTZ, parse

ELEMENTARY = tuple(sorted({name for table in (FUNCTIONS, MONOIDS) for item in table.values() for name in item.work}))
"""Every elementary function that an operation may ask a vector engine for."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def read_chip(document: Document, path: KeyPath = (), sourced: bool = False) -> tuple[Chip | None, list[DocumentFault]]:
    """The chip at ``path`` in the document, or None and every finding.

    ``sourced``: each number must have a source or an assumption, its own or that of a section around it.
    """
    data = document.at(path)
    file, findings = check(ChipFile, data, path, clock=clock_of(data))
    findings += _rules(data, path)
    if file is None:
        return None, findings
    origins = dict(origins_of(file, (), ""))
    if sourced:
        for keys in (keys for keys, text in origins.items() if not text):
            findings.append(
                DocumentFault((*path, *keys), "a source, or assumed: and why", "neither", "add one here or around it")
            )
    if findings:
        return None, findings
    texts = {".".join(document.words((*path, *keys))[len(path) :]): text for keys, text in origins.items() if text}
    return _chip(file, texts), []


def clock_of(data: object) -> float:
    """The chip's clock [Hz]; 1 GHz where the key is missing or wrong, as the check reports that by itself."""
    value = data.get("clock") if isinstance(data, dict) else None
    try:
        return parse(value.get("value") if isinstance(value, dict) else value, HERTZ)
    except UnitError:
        return 1e9


def origins_of(value: object, path: KeyPath, inherited: str) -> Iterator[tuple[KeyPath, str]]:
    """(path, origin) of every entry inside; ``inherited``: the origin that the enclosing sections give."""
    match value:
        case Entry():
            yield path, value.origin or inherited
        case BaseModel():
            fields = type(value).model_fields
            own = origin(getattr(value, "source", None), getattr(value, "assumed", None))
            for name in fields:
                yield from origins_of(getattr(value, name), (*path, name), own or inherited)
        case dict():
            for key, item in value.items():
                yield from origins_of(item, (*path, key), inherited)
        case list():
            for index, item in enumerate(value):
                yield from origins_of(item, (*path, index), inherited)


# Rules between parts. They look at the raw data, whatever else may be wrong with it, so that one run shows all.


def _rules(data: object, path: KeyPath) -> list[DocumentFault]:
    levels = _list(_get(data, "levels"))
    findings = list(_names(levels, path))
    if levels and not _get(levels[0], "memories"):
        place = (*path, "levels", 0)
        findings.append(
            DocumentFault(place, "a memory in the outermost level, to hold inputs and outputs", "none", "add memories")
        )
    engines = _get(data, "engines")
    findings += _tables(_get(engines, "matrix"), (*path, "engines", "matrix"), DTYPE_BYTES, complete=False)
    accumulators = (*path, "engines", "matrix", "accumulators")
    for dtype in _map(_get(_get(engines, "matrix"), "accumulators")):
        if dtype not in DTYPE_BYTES:
            findings.append(DocumentFault((*accumulators, dtype), "a known key", shown(dtype), did_you_mean(dtype, DTYPE_BYTES)))
    findings += _tables(_get(engines, "vector"), (*path, "engines", "vector"), ELEMENTARY, complete=True)
    memories = [name for level in levels for name in _map(_get(level, "memories"))]
    inner = [name for level in levels[1:] for name in _map(_get(level, "memories"))]
    for index, name in enumerate(_list(_get(data, "streams"))):
        if isinstance(name, str) and name and name not in inner:
            remedy = did_you_mean(name, inner) if inner else "add memories inside the outermost level"
            findings.append(DocumentFault((*path, "streams", index), "the name of a memory on the chip", shown(name), remedy))
    for index, name in enumerate(_list(_get(_get(data, "die"), "registers"))):
        if isinstance(name, str) and name and name not in inner:
            remedy = did_you_mean(name, inner) if inner else ""
            findings.append(
                DocumentFault((*path, "die", "registers", index), "the name of a memory on the chip", shown(name), remedy)
            )
    findings += _links(levels, path)
    findings += _bursts(levels, path)
    return findings + list(_reads(engines, path, memories))


def _names(levels: list[object], path: KeyPath) -> Iterator[DocumentFault]:
    """Names that the mapping language can print and tell apart."""
    seen: dict[tuple[str, str], bool] = {}
    for index, level in enumerate(levels):
        place: KeyPath = (*path, "levels", index)
        named = [("level", _get(level, "name"), (*place, "name"))]
        named += [("memory", name, (*place, "memories", name)) for name in _map(_get(level, "memories"))]
        axes = _map(_get(_get(level, "network"), "axes"))
        named += [(f"axis of level {index}", name, (*place, "network", "axes", name)) for name in axes]
        for kind, name, where in named:
            if not isinstance(name, str) or not name:
                continue
            if not _NAME.fullmatch(name):
                yield DocumentFault(where, "a name of letters, digits and _, at most 64", shown(name))
            elif (kind, name) in seen:
                yield DocumentFault(where, f"a {kind} with a name of its own", f"{name!r} twice", "rename one")
            seen[kind, name] = True


def _links(levels: list[object], path: KeyPath) -> Iterator[DocumentFault]:
    """An axis has a link, unless its topology says that there is none."""
    for index, level in enumerate(levels):
        for name, axis in _map(_get(_get(level, "network"), "axes")).items():
            where = (*path, "levels", index, "network", "axes", name)
            topology = _get(axis, "topology")
            apart = Topology.NONE in (topology, _get(topology, "value"))
            linked = _get(axis, "link") is not None
            if apart and linked:
                remedy = "remove it, or name another topology"
                yield DocumentFault((*where, "link"), "no link where the topology is none", "a link", remedy)
            elif isinstance(axis, dict) and not apart and not linked:
                yield DocumentFault(
                    where, "the link between neighbours", "nothing", "add it, or set topology to none", key="link"
                )


def _bursts(levels: list[object], path: KeyPath) -> Iterator[DocumentFault]:
    """Bursts are those of tensors that are laid out whole."""
    for index, level in enumerate(levels[1:], 1):
        for name, memory in _map(_get(level, "memories")).items():
            if (burst := _get(memory, "burst")) is not None:
                where = (*path, "levels", index, "memories", name, "burst")
                yield DocumentFault(where, "a burst length in the outermost level only", shown(burst), "remove it")


def _tables(engine: object, path: KeyPath, known: Iterable[str], complete: bool) -> Iterator[DocumentFault]:
    """``rate`` and ``energy`` have the same keys, all of them known; ``complete``: and every known one."""
    tables = {name: _map(_get(engine, name)) for name in ("rate", "energy") if isinstance(_get(engine, name), dict)}
    needed = set(known) if complete else {key for table in tables.values() for key in table if key in known}
    for name, table in tables.items():
        for key in table:
            if key not in known:
                yield DocumentFault((*path, name, key), "a known key", shown(key), did_you_mean(key, known))
        for key in sorted(needed - set(table)):
            yield DocumentFault((*path, name), f"an entry for {key}", "nothing", "add it", key=key)


def _reads(engines: object, path: KeyPath, memories: list[str]) -> Iterator[DocumentFault]:
    roles = _map(_get(_get(engines, "matrix"), "reads"))
    lists: list[tuple[KeyPath, object]] = [(("engines", "matrix", "reads", role), names) for role, names in roles.items()]
    lists.append((("engines", "vector", "reads"), _get(_get(engines, "vector"), "reads")))
    for place, names in lists:
        for index, name in enumerate(_list(names)):
            if isinstance(name, str) and name and name not in memories:
                remedy = did_you_mean(name, memories) if memories else "add memories"
                yield DocumentFault((*path, *place, index), "the name of a memory", shown(name), remedy)


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _map(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


# Values.


def _chip(file: ChipFile, sources: dict[str, str]) -> Chip:
    clock = file.clock.value
    return Chip(
        name=file.name,
        levels=tuple(_level(level) for level in file.levels),
        matrix=_matrix(file.engines.matrix, clock) if file.engines.matrix else None,
        vector=_vector(file.engines.vector, clock) if file.engines.vector else None,
        static_power=file.static_power.value,
        power_limit=file.power_limit.value if file.power_limit else math.inf,
        description=file.description.strip(),
        streams=tuple(file.streams),
        sources=sources,
        version=file.version.value if file.version else 1,
        die=_die(file.die) if file.die else None,
    )


def _die(file: DieFile) -> Die:
    return Die(
        file.process.value,
        file.dram.value if file.dram else "",
        file.links.value if file.links else 0.0,
        file.clusters.value if file.clusters else 0,
        file.simt is not None and file.simt.value,
        tuple(file.registers),
        file.multipliers.value if file.multipliers else "",
        file.fp64.value if file.fp64 else None,
        file.summed.value if file.summed else 1,
        file.lanes.value if file.lanes else None,
        file.area.value if file.area else 0.0,
    )


def _level(file: LevelFile) -> Level:
    memories = tuple(_memory(name, memory) for name, memory in file.memories.items())
    return Level(file.name, memories, _network(file.network) if file.network else None)


def _memory(name: str, file: MemoryFile) -> Memory:
    return Memory(
        name,
        file.capacity.value,
        file.read_bandwidth.value,
        file.write_bandwidth.value,
        file.latency.value,
        file.read_energy.value,
        file.write_energy.value,
        shared_bus=file.shared_bus is not None and file.shared_bus.value,
        lockstep=file.lockstep is not None and file.lockstep.value,
        buffers=2 if file.buffers is None else file.buffers.value,
        burst=0 if file.burst is None else file.burst.value,
        dma=file.dma is not None and file.dma.value,
    )


def _network(file: NetworkFile) -> Network:
    axes = (_axis(name, axis) for name, axis in file.axes.items())
    return Network(tuple(axes), _link(file.port) if file.port else None, file.multicast.value, file.reduction.value)


def _axis(name: str, file: AxisFile) -> Axis:
    axis = Axis(name, file.size.value, Topology(file.topology.value), NO_LINK if file.link is None else _link(file.link))
    given = file.collectives
    if given is None:
        return axis
    keys = ("startup", "barrier", "adder", "add_bandwidth")
    exchange = Exchange(**{key: entry.value for key in keys if (entry := getattr(given, key)) is not None})
    copies, adds = (flag is not None and flag.value for flag in (given.multicast, given.reduction))
    return replace(axis, exchange=exchange, multicast=copies, reduction=adds)


def _link(file: LinkFile) -> Link:
    return Link(file.bandwidth.value, file.latency.value, file.energy.value)


def _matrix(file: MatrixFile, clock: float) -> MatrixEngine:
    roles = (("input", file.reads.input), ("weight", file.reads.weight), ("output", file.reads.output))
    return MatrixEngine(
        name="matrix",
        rows=file.rows.value,
        cols=file.cols.value,
        clock=file.clock.value if file.clock else clock,
        dataflow=Dataflow(file.dataflow.value),
        prefetch=file.prefetch.value,
        rate={dtype: entry.value for dtype, entry in file.rate.items()},
        energy={dtype: entry.value for dtype, entry in file.energy.items()},
        reads={role: tuple(names) for role, names in roles if names},
        latency=file.latency.value if file.latency else 0.0,
        granularity=_granularity(file.granularity),
        accumulators={dtype: entry.value for dtype, entry in file.accumulators.items()},
        back_to_back=file.back_to_back is not None and file.back_to_back.value,
        nvfp4=file.nvfp4.value if file.nvfp4 else 0.0,
    )


def _granularity(file: GranularityFile | None) -> Granularity:
    if file is None:
        return Granularity()
    keys = ("rows", "columns", "reduced")
    return Granularity(**{key: entry.value for key in keys if (entry := getattr(file, key)) is not None})


def _vector(file: VectorFile, clock: float) -> VectorEngine:
    return VectorEngine(
        name="vector",
        lanes=file.lanes.value,
        clock=file.clock.value if file.clock else clock,
        rate={function: entry.value for function, entry in file.rate.items()},
        energy={function: entry.value for function, entry in file.energy.items()},
        reads=tuple(file.reads),
        latency=file.latency.value if file.latency else 0.0,
        warp=file.warp.value if file.warp else 0,
    )
