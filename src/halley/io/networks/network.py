"""Network files: text in, a `Fabric` out, every fault of the file at once with its line; and back into a file.

A network is the product of axes, or a list of ranks, switches and links. A link gives its numbers, or the row of the table of
link technologies (`halley/library/networks/links.yaml`) that they stand in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halley.errors import BadInput, did_you_mean
from halley.io.chips.chip import clock_of, origins_of
from halley.io.files.check import about_others, check_with_rest
from halley.io.files.entries import Entry, origin, shown
from halley.io.files.shelf import found
from halley.io.files.text import Document, DocumentFault, KeyPath, read_yaml
from halley.io.networks.models import (
    AXIS_FLAGS,
    BlockFile,
    FabricFile,
    LinkEntry,
    SwitchFile,
    Technology,
    libraries_of,
    links_table,
)
from halley.ir.hardware import Axis, Exchange, Link, Topology
from halley.library import NETWORKS
from halley.network.graph.fabric import Fabric
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.products import COORDINATES, product
from halley.network.graph.routes import EveryShortest, tree
from halley.network.graph.topologies import coordinates, edge_count, misfits

RANK_LIMIT = 2**14
"""Most ranks of a network in a file."""
EDGE_LIMIT = 2**18
"""Most directed links."""
GBPS = 1e9
"""Prices of technologies are per GB/s [B/s]."""


def load_network(path_or_name: str | Path) -> Fabric:
    """The network of that name, if it is one that ships with Halley, else that of the file.

    >>> dgx = load_network("dgx-1")
    >>> dgx.graph.ranks, dgx.graph.injection(0)
    (8, 150000000000.0)

    Raises BadInput: neither a shipped network nor a file that can be read; every fault of the file.
    """
    return parse_network(*found(NETWORKS, path_or_name))


def parse_network(text: str, name: str = "network", sourced: bool = False) -> Fabric:
    """The network that the text of a file describes; ``name`` is the file's name for messages.

    ``sourced``: every number must have a source or an assumption, as in shipped networks.

    Raises BadInput: every fault of the text.
    """
    document = read_yaml(text, name)
    file, findings = check_with_rest(FabricFile, document.data, clock=clock_of(document.data))
    if file is None:
        raise BadInput(document.faults(findings))
    reader = _Reader(file)
    fabric = reader.fabric()
    reader.findings = [*findings, *about_others(reader.findings, findings)]
    origins = dict(origins_of(file, (), "")) | reader.origins
    if sourced:
        for keys in (keys for keys, text in origins.items() if not text):
            reader.findings.append(DocumentFault(keys, "a source, or assumed: and why", "neither", "add one here or around it"))
    if fabric is None or reader.findings:
        raise BadInput(document.faults(reader.findings))
    return replace(fabric, sources=_texts(document, origins))


def _texts(document: Document, origins: dict[KeyPath, str]) -> dict[str, str]:
    return {".".join(document.words(path)): text for path, text in origins.items() if text}


def read_axes(
    blocks: Sequence[BlockFile], limit: int = RANK_LIMIT
) -> tuple[tuple[Axis, ...], list[DocumentFault], dict[KeyPath, str]]:
    """Axes of another file that has the key ``axes``: the axes, what is wrong with them, and the origins of numbers that
    technologies bring. ``limit``: the most ranks; those of a network whose graph is drawn unless given."""
    reader = _Reader(FabricFile.model_construct(name="", axes=list(blocks)), limit)
    return reader._axes(list(blocks)), reader.findings, reader.origins


def read_link(entry: LinkEntry, path: KeyPath) -> tuple[Link, list[DocumentFault], dict[KeyPath, str]]:
    """A link between two chips at ``path`` of another file, what is wrong with it, and such origins."""
    reader = _Reader(FabricFile.model_construct(name=""))
    return reader.link(entry, path, _Ports(2, 0)), reader.findings, reader.origins


@dataclass(frozen=True, slots=True)
class _Ports:
    """Who stands at the ends of a link: how many ranks with an adapter, how many switches with a port."""

    adapters: int
    switches: int


class _Reader:
    """From a checked file to the network; collects what is wrong, and the origins of numbers that technologies bring."""

    def __init__(self, file: FabricFile, limit: int = RANK_LIMIT) -> None:
        self.file, self.limit = file, limit
        self.findings: list[DocumentFault] = []
        self.origins: dict[KeyPath, str] = {}

    def fabric(self) -> Fabric | None:
        """The network; None where something is wrong that forbids to build it."""
        file = self.file
        axes: tuple[Axis, ...] = ()
        graph = None
        if file.axes is not None:
            listed = [key for key, given in (("ranks", file.ranks), ("switches", file.switches), ("links", file.links)) if given]
            listed += ["multipath"] if file.multipath else []
            for key in listed:
                self.findings.append(DocumentFault((key,), "axes, or ranks and links", "both", "leave one out"))
            axes = self._axes(file.axes)
            graph = product(axes) if axes and not self.findings else None
        else:
            missing = [key for key in ("ranks", "links") if getattr(file, key) is None]
            for key in missing if len(missing) == 1 else ["axes"] * bool(missing):
                got = "neither" if key == "axes" else f"no {key}"
                self.findings.append(DocumentFault((), "axes, or ranks and links", got, "add them", key=key))
            graph = self._graph() if not self.findings else None
        if graph is None:
            return None
        libraries = libraries_of(file.axes or ())
        return Fabric(file.name, replace(graph, name=file.name), axes, file.currency, file.description.strip(), {}, libraries)

    # links

    def link(self, entry: LinkEntry, path: KeyPath, ports: _Ports) -> Link:
        """The link; what its technology says of it where it says nothing itself."""
        row = links_table().rows[entry.technology.value] if entry.technology else None
        count = entry.count.value if entry.count else 1
        if entry.count is not None and row is None:
            self.findings.append(DocumentFault((*path, "count"), "a count beside a technology", "no technology", "leave it out"))
        numbers: dict[str, float] = {}
        for key in ("bandwidth", "latency", "energy"):
            given: Entry[float] | None = getattr(entry, key)
            if given is not None:
                numbers[key] = given.value
            elif row is not None:
                numbers[key] = getattr(row, key).value * (count if key == "bandwidth" else 1)
                self._cite(entry, row, key, path)
            else:
                self.findings.append(DocumentFault(path, "this key, or a technology", "neither", "add it", key=key))
        if len(numbers) < 3:
            return Link(1.0)
        price = self._price(entry, row, numbers["bandwidth"], ports, path)
        if entry.share is not None:
            if entry.share.value > 1:
                self.findings.append(DocumentFault((*path, "share"), "a share of at most 1", f"{entry.share.value:g}"))
            numbers["bandwidth"] *= entry.share.value
        return Link(**numbers, price=price, overhead=entry.overhead.value if entry.overhead else 0.0)

    def _price(self, entry: LinkEntry, row: Technology | None, bandwidth: float, ports: _Ports, path: KeyPath) -> float:
        if entry.price is not None:
            return entry.price.value
        if row is None or row.price is None:
            return 0.0
        parts = ((row.price, 1), (row.adapter, ports.adapters), (row.switch, ports.switches))
        for key, (part, count) in zip(("price", "adapter", "switch"), parts, strict=True):
            if part is not None and count:
                self._cite(entry, row, key, path)
        return bandwidth / GBPS * sum(count * part.value for part, count in parts if part is not None)

    def _cite(self, entry: LinkEntry, row: Technology, key: str, path: KeyPath) -> None:
        """Note where a number that a technology brings comes from."""
        table, name = links_table(), entry.technology.value if entry.technology else ""
        own: Entry[float] = getattr(row, key)
        text = own.origin or origin(row.source, row.assumed)
        self.origins[*path, key] = f"link table of {table.dated}, row {name}: {text}"

    # axes

    def _axes(self, blocks: list[BlockFile]) -> tuple[Axis, ...]:
        found: list[Axis] = []
        for place, block in enumerate(blocks):
            path: KeyPath = ("axes", place)
            axis = self._axis(block, path)
            if block.name in (other.name for other in found):
                self.findings.append(DocumentFault((*path, "name"), "axes with names of their own", f"{block.name!r} twice"))
            for item in misfits(axis):
                given = getattr(block, item.field) is not None
                self.findings.append(
                    DocumentFault((*path, item.field) if given else path, *item[1:], key="" if given else item.field)
                )
            found.append(axis)
        if self.findings:
            return ()
        ranks = math.prod(axis.size for axis in found)
        edges = sum(ranks // axis.size * edge_count(axis) for axis in found)
        if sum(map(coordinates, found)) > COORDINATES:
            got = str(sum(map(coordinates, found)))
            self.findings.append(DocumentFault(("axes",), f"at most {COORDINATES} coordinates, all axes together", got))
        links = EDGE_LIMIT // RANK_LIMIT * self.limit
        if ranks > self.limit or edges > links:
            got = f"{ranks} ranks and {edges} links"
            self.findings.append(DocumentFault(("axes",), f"at most {self.limit} ranks and {links} links", got))
        return tuple(found)

    def _axis(self, block: BlockFile, path: KeyPath) -> Axis:
        topology = Topology(block.topology.value)
        tiered = topology in (Topology.FAT_TREE, Topology.DRAGONFLY)
        below = _Ports(1, 1) if tiered or topology is Topology.SWITCH else _Ports(2, 0)
        # what joins switches needs no adapter, so its price differs even where nothing else does
        upper = block.upper or (block.link if tiered and block.link.technology else None)
        return Axis(
            block.name,
            block.size.value,
            topology,
            self.link(block.link, (*path, "link"), below),
            tuple(part.value for part in block.shape or ()),
            self.link(upper, (*path, "upper" if block.upper else "link"), _Ports(0, 2)) if upper else None,
            self.link(block.top, (*path, "top"), _Ports(0, 2)) if block.top else None,
            exchange=Exchange(),
            **{key: bool(flag and flag.value) for key, flag in _flags(block, AXIS_FLAGS)},
        )

    # listed links

    def _graph(self) -> Graph | None:
        file = self.file
        ranks = file.ranks.value if file.ranks else 0
        if ranks > RANK_LIMIT:
            self.findings.append(DocumentFault(("ranks",), f"at most {RANK_LIMIT} ranks", str(ranks)))
            return None
        names: dict[str, int] = {}
        for place, item in enumerate(file.switches):
            if item.name in names:
                self.findings.append(DocumentFault(("switches", place, "name"), "a name of its own", f"{item.name!r} twice"))
            names[item.name] = ranks + place
        edges = list(self._edges(ranks, names))
        if self.findings:
            return None
        flags = ("multicast", "reduction", "on_request")
        switches = tuple(
            Switch(item.name, **{key: bool(flag and flag.value) for key, flag in _flags(item, flags)}) for item in file.switches
        )
        shared = file.multipath is not None and file.multipath.value
        graph = Graph(file.name, ranks, tuple(edges), switches, EveryShortest() if shared else None)
        self._check_joined(graph)
        return graph

    def _edges(self, ranks: int, names: dict[str, int]) -> Iterator[Edge]:
        seen: dict[tuple[int, int], KeyPath] = {}
        for kind, item in enumerate(self.file.links or ()):
            links: dict[int, Link] = {}
            listed = [(key, place, ends.value) for key in ("between", "from_to") for place, ends in enumerate(getattr(item, key))]
            if not listed:
                self.findings.append(DocumentFault(("links", kind), "pairs in between or from_to", "none"))
            for key, place, ends in listed:
                path: KeyPath = ("links", kind, key, place)
                first, second = (self._end(end, ranks, names, path) for end in ends)
                if first is None or second is None:
                    continue
                if first == second:
                    self.findings.append(DocumentFault(path, "two different ends", f"{ends[0]!r} twice"))
                    continue
                switches = sum(end >= ranks for end in (first, second)) if item.technology else 0  # they set its price alone
                if switches not in links:
                    links[switches] = self.link(item, ("links", kind), _Ports(2 - switches, switches))
                for pair in ((first, second), (second, first))[: 2 if key == "between" else 1]:
                    if pair in seen:
                        got = f"a second one, first at {'.'.join(map(str, seen[pair]))}"
                        self.findings.append(DocumentFault(path, "one link from an end to another", got, "join their bandwidths"))
                    seen.setdefault(pair, path)
                    yield Edge(*pair, links[switches])

    def _end(self, end: int | str, ranks: int, names: dict[str, int], path: KeyPath) -> int | None:
        if isinstance(end, int) and 0 <= end < ranks:
            return end
        if isinstance(end, str) and end in names:
            return names[end]
        remedy = did_you_mean(end, names) if isinstance(end, str) and names else ""
        self.findings.append(DocumentFault(path, f"a rank from 0 to {ranks - 1} or the name of a switch", shown(end), remedy))
        return None

    def _check_joined(self, graph: Graph) -> None:
        turned = tuple(Edge(edge.target, edge.source, edge.link) for edge in graph.edges)
        back = Graph(graph.name, graph.ranks, turned, graph.switches)
        for way, expected in ((graph, "a way from rank 0 to every rank"), (back, "a way from every rank to rank 0")):
            hops, _ = tree(way, 0)
            missing = [rank for rank in range(graph.ranks) if hops[rank] < 0]
            if missing:
                more = f" and {len(missing) - 8} more" if missing[8:] else ""
                got = f"none for rank {', '.join(map(str, missing[:8]))}{more}"
                self.findings.append(DocumentFault(("links",), expected, got, "add links that join them"))


def _flags(item: BlockFile | SwitchFile, keys: Sequence[str]) -> Iterator[tuple[str, Entry[bool] | None]]:
    for key in keys:
        yield key, getattr(item, key)
