"""Networks of ASTRA-sim: the YAML of its analytical back ends, read as a `Fabric`.

A file has four lists of one length, one entry per dimension: ``topology`` (Ring, FullyConnected, Switch), ``npus_count``,
``bandwidth`` per link and direction, ``latency`` per link [ns]. The first dimension changes fastest in an NPU's number, so the
axes come out in the opposite order. Its "GB/s" are GiB/s: the back end takes 1 GB for 2^30 bytes. Rings have links both ways; a
switch's link joins an NPU to the switch. Source: astra-network-analytical, ``input/*.yml``, the conversion of bandwidths in
``common/NetworkFunction`` and the translation of NPU numbers to addresses.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.text import Document, DocumentFault, read_text_bounded, read_yaml
from halley.io.networks.network import EDGE_LIMIT, RANK_LIMIT
from halley.ir.hardware import Axis, Link, Topology
from halley.network.graph.fabric import Fabric
from halley.network.graph.products import COORDINATES, product
from halley.network.graph.topologies import edge_count

KEYS = ("topology", "npus_count", "bandwidth", "latency")
TOPOLOGIES = {"Ring": Topology.RING, "FullyConnected": Topology.FULL, "Switch": Topology.SWITCH}
BYTES_PER_GB = 2**30
"""Bytes that ASTRA-sim's analytical back ends call 1 GB."""
NANOSECONDS_PER_SECOND = 1e9
"""ASTRA-sim's latencies are in nanoseconds."""


def load_astra(path: str | Path) -> Fabric:
    """The network of an ASTRA-sim file, called after it. Raises BadInput: no such file, and every fault of it."""
    return parse_astra(read_text_bounded(path), str(path))


def parse_astra(text: str, name: str = "astra.yml") -> Fabric:
    """The network that the text describes; energies are 0 and prices not stated, as the format has neither.

    >>> fabric = parse_astra("topology: [Ring, Switch]\\nnpus_count: [4, 2]\\nbandwidth: [100, 50]\\nlatency: [500, 1000]\\n")
    >>> [(axis.name, axis.size, str(axis.topology), axis.link.bandwidth) for axis in fabric.axes]
    [('dim2', 2, 'switch', 53687091200.0), ('dim1', 4, 'ring', 107374182400.0)]

    Raises BadInput: every fault of the text.
    """
    document = read_yaml(text, name)
    findings = list(_findings(document.data))
    if findings:
        raise BadInput(document.faults(findings))
    axes = _axes(document)
    ranks = math.prod(axis.size for axis in axes)
    edges = sum(ranks // axis.size * edge_count(axis) for axis in axes)
    if ranks > RANK_LIMIT or edges > EDGE_LIMIT or len(axes) > COORDINATES:
        got = f"{ranks} NPUs and {edges} links in {len(axes)} dimensions"
        expected = f"at most {RANK_LIMIT} NPUs, {EDGE_LIMIT} links and {COORDINATES} dimensions"
        raise BadInput(Fault(name, expected, got))
    source = f"ASTRA-sim network {Path(name).name}, 1 GB read as 2^30 B"
    sources = {f"axes.{axis.name}.link.{key}": source for axis in axes for key in ("bandwidth", "latency")}
    sources |= {f"axes.{axis.name}.link.energy": "assumed: 0, ASTRA-sim networks state none" for axis in axes}
    stem = Path(name).stem
    graph = product(axes)
    return Fabric(stem, graph, axes, description="imported from ASTRA-sim; energies and prices not stated", sources=sources)


def _axes(document: Document) -> tuple[Axis, ...]:
    data: Any = document.data
    rows = list(zip(*(data[key] for key in KEYS), strict=True))
    return tuple(
        Axis(f"dim{place}", size, TOPOLOGIES[word], Link(float(bandwidth * BYTES_PER_GB), latency / NANOSECONDS_PER_SECOND))
        for place, (word, size, bandwidth, latency) in reversed(list(enumerate(rows, 1)))
    )


def _findings(data: object) -> list[DocumentFault]:
    """All that is wrong with the content of a file."""
    if not isinstance(data, dict):
        return [DocumentFault((), f"the keys {', '.join(KEYS)}", type(data).__name__)]
    strange = [key for key in data if key not in KEYS]
    found = [DocumentFault((key,), "a key of an ASTRA-sim network", repr(key)[:60], did_you_mean(key, KEYS)) for key in strange]
    found += [DocumentFault((), "this key", "none", "add it", key=key) for key in KEYS if key not in data]
    lengths = set()
    for key in (key for key in KEYS if key in data):
        if not isinstance(data[key], list) or not data[key]:
            found.append(DocumentFault((key,), "a list with an entry per dimension", repr(data[key])[:60]))
            continue
        lengths.add(len(data[key]))
        found += [_entry(key, place, value) for place, value in enumerate(data[key]) if not _fits(key, value)]
    if len(lengths) > 1:
        found.append(DocumentFault((), "lists of one length", " and ".join(map(str, sorted(lengths)))))
    return found


def _fits(key: str, value: object) -> bool:
    if key == "topology":
        return value in TOPOLOGIES if isinstance(value, str) else False
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if key == "npus_count":
        return isinstance(value, int) and 1 <= value <= RANK_LIMIT
    return 0 < value < 1e9 if key == "bandwidth" else 0 <= value < 1e12


_EXPECTED = {
    "topology": f"one of {', '.join(TOPOLOGIES)}",
    "npus_count": f"a whole number from 1 to {RANK_LIMIT}",
    "bandwidth": "a bandwidth above zero, in GB/s without a unit",
    "latency": "a latency of at least zero, in ns without a unit",
}


def _entry(key: str, place: int, value: object) -> DocumentFault:
    remedy = did_you_mean(value, TOPOLOGIES) if key == "topology" and isinstance(value, str) else ""
    return DocumentFault((key, place), _EXPECTED[key], repr(value)[:60], remedy)
