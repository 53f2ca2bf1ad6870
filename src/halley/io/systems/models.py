"""What system files, the table of parts and grids of systems may hold: the models that check them."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from halley.io.files.entries import Bandwidth, EnergyPerByte, Entry, Flag, Frequency, Latency, Power, Size, Text, Whole, word
from halley.io.files.models import Section
from halley.io.files.text import read_yaml
from halley.io.networks.models import LIBRARY, BlockFile, Library, LinkEntry, Price
from halley.ir.hardware import Topology
from halley.library import parts_text

SIMPLE = (Topology.SWITCH, Topology.RING, Topology.LINE, Topology.FULL)
"""Topologies that need no more than a size."""


class CostFile(Section):
    """What one part costs; what is left out is not stated."""

    price: Price | None = Field(None, description="price in US dollars")
    power: Power | None = Field(None, description="power when busy")


class CostsFile(Section):
    """What a chip and what belongs to it cost."""

    chip: CostFile | None = Field(None, description="a chip with what is in its package")
    memory: CostFile | None = Field(None, description="a chip's memory beside its package")
    node: CostFile | None = Field(None, description="a chip's share of what else is in its node")


class HostFile(Section):
    """A chip's share of the memory of its node's processors, and its link to it."""

    capacity: Size = Field(description="share of the capacity")
    bandwidth: Bandwidth = Field(description="share of the bandwidth")
    link: LinkEntry = Field(description="link between the chip and the node's processors")


class DramFile(Section):
    """DRAM in place of a chip's own."""

    capacity: Size = Field(description="capacity of a chip's outermost memory")
    bandwidth: Bandwidth = Field(description="its bandwidth, of reads and writes together")
    energy: EnergyPerByte = Field(description="its energy per byte")


class SystemFile(Section):
    """A system: chips, and the axes that join them."""

    name: Text = Field(description="name of the system")
    description: str = Field("", description="one line for lists")
    clock: Frequency | None = Field(None, description="clock that cycles refer to")
    chip: object = Field(description="a shipped chip's name, a path to a chip file, or a chip")
    memories: list[Text] | None = Field(None, description="the chip's memories that tensors may live in, nearest first")
    dram: DramFile | None = Field(None, description="other DRAM than the chip's own")
    costs: CostsFile | None = Field(None, description="prices and power; the table of parts has those left out")
    host: HostFile | None = Field(None, description="memory of the node's processors; left out, that of the table of parts")
    axes: list[BlockFile] = Field(default_factory=list, description="axes, the outermost first; none for a single chip")


class PortFile(Section):
    """How chips of a kind are joined by one of their links, as the short form of a system names it."""

    link: LinkEntry = Field(description="all links of this kind that a chip has to a switch, or one to a neighbour")
    topology: Annotated[Entry[str], word(SIMPLE)] = Field(description="switch, ring, line or full")
    multicast: Flag | None = Field(None, description="true: the switches can send one arrival on to several")
    reduction: Flag | None = Field(None, description="true: the switches can add what arrives")
    on_request: Flag | None = Field(None, description="true: the switches give a sum to the one rank that asks for it")
    library: Library | None = Field(None, description=LIBRARY)


class DeviceFile(Section):
    """What software finds of a chip's memory."""

    reported: Size = Field(description="bytes that the driver reports")
    reserve: Size = Field(description="bytes of those that the context of the chip and its libraries take")


class ChipParts(Section):
    """A row of the table of parts."""

    device: DeviceFile | None = None
    costs: CostsFile | None = None
    host: HostFile | None = None
    ports: dict[str, PortFile] = Field(default_factory=dict)


class PartsFile(BaseModel):
    """The table of parts, by the names of shipped chips."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    dated: Text
    currency: Text
    chips: dict[str, ChipParts]


@cache
def parts_table() -> PartsFile:
    """The shipped table of parts."""
    return PartsFile.model_validate(read_yaml(parts_text(), "parts.yaml").data)


class GridChip(Section):
    """A chip of a grid."""

    chip: Text = Field(description="a shipped chip's name")
    price: Price = Field(description="price of a chip in US dollars")
    power: Power | None = Field(None, description="power of a chip without its DRAM; left out, fitted to its peak in bf16")


class GridMemory(DramFile):
    """A memory of a grid."""

    price: Price = Field(description="price per GB/s in US dollars")


class GridLink(Section):
    """A link technology of a grid."""

    bandwidth: Bandwidth = Field(description="bandwidth of a link in each direction")
    latency: Latency = Field(description="latency of a link from end to end")
    energy: EnergyPerByte = Field(description="energy per byte over a link")
    price: Price = Field(description="price of a link per GB/s in US dollars")
    port_energy: EnergyPerByte = Field(description="energy per byte through a port of a switch")
    port_price: Price = Field(description="price of a port of a switch per GB/s in US dollars")


class GridAxis(Section):
    """An axis of a topology of a grid."""

    name: Text
    size: Whole
    topology: Annotated[Entry[str], word(SIMPLE)]


class GridFile(Section):
    """All systems that a list of chips, of topologies, of memories and of links make."""

    name: Text
    description: str = ""
    chips: dict[str, GridChip]
    topologies: dict[str, list[GridAxis]]
    memories: dict[str, GridMemory]
    links: dict[str, GridLink]
