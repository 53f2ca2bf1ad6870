"""What network files and the table of link technologies may hold: the models that check them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.entries import (
    Bandwidth,
    EnergyPerByte,
    Entry,
    Flag,
    Frequency,
    Latency,
    Ratio,
    Reads,
    Text,
    Whole,
    shown,
    word,
)
from halley.io.files.models import Section
from halley.io.files.text import read_yaml
from halley.ir.hardware import NETWORK_TOPOLOGIES
from halley.library import NETWORK_FITS, links_text

PRICE_LIMIT = 1e12
"""Highest price of one link."""


def _price(value: Any, clock: float | None) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= PRICE_LIMIT:
        return float(value)
    raise BadInput(Fault("", "a price, a number without a unit, not negative", shown(value)))


def _ends(value: Any, clock: float | None) -> tuple[int | str, int | str]:
    if isinstance(value, list) and len(value) == 2:
        first, second = value
        if all(isinstance(end, (int, str)) and not isinstance(end, bool) for end in value):
            return first, second
    got = repr(value)[:80] if isinstance(value, list) else shown(value)
    raise BadInput(Fault("", "two ends, each the number of a rank or the name of a switch", got, "write for example [0, 1]"))


def _technology(value: Any, clock: float | None) -> str:
    rows = links_table().rows
    if isinstance(value, str) and value in rows:
        return value
    raise BadInput(Fault("", "a row of the table of link technologies", shown(value), did_you_mean(str(value), rows)))


Price: TypeAlias = Annotated[Entry[float], Reads(_price, {"type": "number", "minimum": 0, "maximum": PRICE_LIMIT})]
_END = {"type": ["integer", "string"]}
_PAIR = {"type": "array", "items": _END, "minItems": 2, "maxItems": 2}
Ends: TypeAlias = Annotated[Entry[tuple[int | str, int | str]], Reads(_ends, _PAIR, cited=False)]
Row: TypeAlias = Annotated[Entry[str], Reads(_technology, {"type": "string", "examples": ["nvlink-4"]}, cited=False)]


class Technology(Section):
    """A row of the table of link technologies."""

    bandwidth: Bandwidth
    latency: Latency
    energy: EnergyPerByte
    price: Price | None = None
    switch: Price | None = None
    adapter: Price | None = None


class LinksFile(BaseModel):
    """The table of link technologies."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    dated: Text
    currency: Text
    rows: dict[str, Technology]


@cache
def links_table() -> LinksFile:
    """The shipped table of link technologies."""
    return LinksFile.model_validate(read_yaml(links_text(), "links.yaml").data)


class LinkEntry(Section):
    """A link, by its numbers or by a technology; a number beside the technology replaces that of its row."""

    technology: Row | None = Field(None, description="row of the table of link technologies")
    count: Whole | None = Field(None, description="parallel links of the technology; 1 unless given")
    bandwidth: Bandwidth | None = Field(None, description="bandwidth in each direction")
    share: Ratio | None = Field(None, description="share of the bandwidth that transfers reach; 1 unless given")
    latency: Latency | None = Field(None, description="latency from end to end")
    energy: EnergyPerByte | None = Field(None, description="energy per byte")
    price: Price | None = Field(None, description="price of both directions with the parts at their ends")
    overhead: Latency | None = Field(None, description="time of the sender for each message; 0 unless given")


AXIS_FLAGS = ("multicast", "reduction", "on_request", "one_way", "multipath")
"""Keys of an axis that are true or false."""


Library = Annotated[Entry[str], word(NETWORK_FITS.names())]
LIBRARY = "fit of the communication library that was measured on such an axis; left out, times are those of the links"


class BlockFile(Section):
    """One axis of the network: ranks, and how they are linked."""

    name: Text = Field(description="name of the axis")
    size: Whole = Field(description="number of ranks along the axis")
    topology: Annotated[Entry[str], word(NETWORK_TOPOLOGIES)] = Field(description="how they are linked")
    link: LinkEntry = Field(description="link between neighbours, or from a rank to its switch")
    shape: list[Whole] | None = Field(None, description="extents of a mesh or torus; numbers of a fat-tree or dragonfly")
    upper: LinkEntry | None = Field(None, description="link between switches; as `link` unless given")
    top: LinkEntry | None = Field(None, description="link between pods or groups; as `upper` unless given")
    multicast: Flag | None = Field(None, description="true: the switches can send one arrival on to several")
    reduction: Flag | None = Field(None, description="true: the switches can add what arrives")
    on_request: Flag | None = Field(None, description="true: the switches give a sum to the one rank that asks for it")
    one_way: Flag | None = Field(None, description="true: the links of the ring all point up")
    multipath: Flag | None = Field(None, description="true: a message shares all shortest paths; left out, it takes one")
    library: Library | None = Field(None, description=LIBRARY)


def libraries_of(axes: Sequence[BlockFile]) -> dict[str, str]:
    """The library of each axis that names one."""
    return {axis.name: axis.library.value for axis in axes if axis.library is not None}


class SwitchFile(Section):
    """A switch of a network whose links are listed."""

    name: Text = Field(description="name of the switch, as links call it")
    multicast: Flag | None = Field(None, description="true: it can send one arrival on to several")
    reduction: Flag | None = Field(None, description="true: it can add what arrives")
    on_request: Flag | None = Field(None, description="true: it gives a sum to the one rank that asks for it")


class LinkListFile(LinkEntry):
    """Links that are alike."""

    name: Text | None = Field(None, description="name of this kind of link, for messages")
    between: list[Ends] = Field(default_factory=list, description="pairs of ends with a link in both directions")
    from_to: list[Ends] = Field(default_factory=list, description="pairs (source, target) with a link in this direction alone")


class FabricFile(Section):
    """A network: the product of its axes, or ranks, switches and links one by one."""

    name: Text = Field(description="name of the network")
    description: str = Field("", description="one line for lists")
    currency: str = Field("", description="what prices are in")
    clock: Frequency | None = Field(None, description="clock that cycles refer to")
    axes: list[BlockFile] | None = Field(None, description="axes; the first changes slowest in a rank's number", min_length=1)
    ranks: Whole | None = Field(None, description="number of ranks of a network whose links are listed")
    switches: list[SwitchFile] = Field(default_factory=list, description="switches")
    links: list[LinkListFile] | None = Field(None, description="links, in groups that are alike", min_length=1)
    multipath: Flag | None = Field(None, description="true: a message shares all shortest paths; left out, it takes one")
