"""Costs and the host of a system's chips: what a file says itself, and the table of parts for the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from halley.formulas.price import busy_power
from halley.io.chips.chip import origins_of
from halley.io.files.text import DocumentFault, KeyPath
from halley.io.networks.network import read_link
from halley.io.systems.models import ChipParts, CostsFile, DramFile, HostFile, parts_table
from halley.ir.hardware import Chip
from halley.ir.system import Cost, Host


@dataclass(frozen=True, slots=True)
class Parts:
    """``chip``, ``memory``, ``node``: costs; ``sources``: of the numbers that come from tables, by key path."""

    chip: Cost
    memory: Cost
    node: Cost
    host: Host | None
    findings: list[DocumentFault]
    sources: dict[KeyPath, str]


def parts_row(chip: str) -> ChipParts:
    """What the table of parts says of a chip: nothing, where it does not have it."""
    return parts_table().chips.get(chip) or ChipParts(source=None, assumed=None)


SAME_MEMORY = 0.1
"""Relative difference of a reported capacity from that of the chip file, up to which it is that of the same memory."""


def usable_of(chip: Chip) -> float | None:
    """What plans may fill of the chip's outermost memory [B]; None: all of it."""
    capacity = chip.levels[0].memories[0].capacity
    found = usable_memory(chip.name, capacity)
    return None if found == capacity else found


def usable_memory(chip: str, capacity: float) -> float:
    """What a plan may fill of a chip's memory of this capacity [B]: what its driver reports less a reserve, by the table of
    parts; all of it where the table says nothing, or where the memory is not the chip's own.

    >>> usable_memory("a100", 80e9) / 2**30, usable_memory("a100", 120e9), usable_memory("tpu-v4", 32e9)
    (78.15, 120000000000.0, 32000000000.0)
    """
    device = parts_row(chip).device
    if device is None or abs(device.reported.value / capacity - 1) > SAME_MEMORY:
        return capacity
    return device.reported.value - device.reserve.value


def read_parts(chip: str, costs: CostsFile | None = None, host: HostFile | None = None, dram: DramFile | None = None) -> Parts:
    """The parts of a system of the shipped chip of that name, or of another chip, of which the table says nothing.

    ``costs``, ``host``, ``dram``: what the system's file says, which counts first. Other DRAM than the chip's own takes its
    bandwidth times its energy, and the table's price of memory is not its.
    """
    reader = _Reader(chip)
    found = {part: reader.cost(part, costs, dram if part == "memory" else None) for part in ("chip", "memory", "node")}
    return Parts(**found, host=reader.host(host), findings=reader.findings, sources=reader.sources)


@dataclass(slots=True)
class _Reader:
    chip: str
    findings: list[DocumentFault] = field(default_factory=list)
    sources: dict[KeyPath, str] = field(default_factory=dict)

    def cost(self, part: str, costs: CostsFile | None, dram: DramFile | None) -> Cost:
        own, table = (getattr(given, part) if given else None for given in (costs, parts_row(self.chip).costs))
        found: dict[str, float] = {}
        for key in ("price", "power"):
            path: KeyPath = ("costs", part, key)
            stated, tabled = (getattr(entry, key) if entry else None for entry in (own, table))
            if stated is not None:
                found[key] = stated.value
            elif dram is None and tabled is not None:
                found[key] = tabled.value
                self._cite(path)
            elif dram is not None and key == "power":
                found[key] = float(busy_power(dram.bandwidth.value, dram.energy.value))
                self.sources[path] = "bandwidth times energy of the DRAM, always busy"
        return Cost(**found)

    def host(self, own: HostFile | None) -> Host | None:
        given = own or parts_row(self.chip).host
        if given is None:
            return None
        link, self.findings, brought = read_link(given.link, ("host", "link"))
        self.sources |= brought
        if own is None:
            self._cite(("host",))
        return Host(given.capacity.value, given.bandwidth.value, link)

    def _cite(self, path: KeyPath) -> None:
        """Note where the numbers at or below a path of the table come from."""
        row = f"table of parts of {parts_table().dated}, row {self.chip}"
        for inner, text in origins_of(parts_row(self.chip), (), ""):
            if inner[: len(path)] == path and text:
                self.sources[inner] = f"{row}: {text}"
