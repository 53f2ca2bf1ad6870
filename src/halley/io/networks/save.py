"""From a `Fabric` to the text of a network file: what `halley.io.networks.network.parse_network` reads back as the equal
network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from halley.errors import BadInput, Fault
from halley.io.networks.models import AXIS_FLAGS
from halley.ir.hardware import Axis, Link
from halley.network.graph.fabric import Fabric
from halley.network.graph.graph import Graph
from halley.network.graph.routes import EveryShortest


def network_text(fabric: Fabric) -> str:
    """The network as YAML, each number to the last digit, with its unit and, where it has one, its source.

    Raises BadInput: a graph that routes by rules of its own and is no product of axes, which a file cannot hold.
    """
    return yaml.safe_dump(network_document(fabric), sort_keys=False, width=120, allow_unicode=True)


def network_document(fabric: Fabric) -> dict[str, Any]:
    """The content of a network file."""
    content: dict[str, Any] = {"name": fabric.name}
    content |= {key: text for key, text in (("description", fabric.description), ("currency", fabric.currency)) if text}
    if fabric.axes:
        content["axes"] = [axis_document(axis) | library_document(fabric.libraries, axis.name) for axis in fabric.axes]
    else:
        content |= _listed(fabric.graph)
    return {key: _sourced(value, key, fabric.sources) for key, value in content.items()}


def _sourced(value: Any, path: str, sources: Mapping[str, str]) -> Any:
    """The value with the source of each number put beside it; items of a list are called by their name, or else counted."""
    match value:
        case dict():
            return {key: item if key in _PLAIN else _sourced(item, f"{path}.{key}", sources) for key, item in value.items()}
        case list():
            names = (item.get("name", place) if isinstance(item, dict) else place for place, item in enumerate(value))
            return [_sourced(item, f"{path}.{name}", sources) for name, item in zip(names, value, strict=True)]
        case _:
            return {"value": value, "source": sources[path]} if path in sources else value


_PLAIN = ("name", "between", "from_to")
"""Keys that name no source of their own."""


def link_document(link: Link) -> dict[str, Any]:
    numbers = {"bandwidth": (link.bandwidth, "B/s"), "latency": (link.latency, "s"), "energy": (link.energy, "J/B")}
    more: dict[str, Any] = {"price": float(link.price)} if link.price else {}
    more |= {"overhead": f"{float(link.overhead)!r} s"} if link.overhead else {}
    return {key: f"{float(value)!r} {unit}" for key, (value, unit) in numbers.items()} | more


def library_document(libraries: Mapping[str, str], axis: str) -> dict[str, Any]:
    return {"library": libraries[axis]} if axis in libraries else {}


def axis_document(axis: Axis) -> dict[str, Any]:
    links = {key: link_document(link) for key, link in (("upper", axis.upper), ("top", axis.top)) if link}
    flags = {key: True for key in AXIS_FLAGS if getattr(axis, key)}
    shape = {"shape": list(axis.shape)} if axis.shape else {}
    head = {"name": axis.name, "size": axis.size, "topology": axis.topology.value}
    return head | shape | {"link": link_document(axis.link)} | links | flags


def _listed(graph: Graph) -> dict[str, Any]:
    shared = isinstance(graph.router, EveryShortest)
    if graph.router is not None and not shared:
        where, remedy = f"network {graph.name}", "give its axes, or leave the router out"
        raise BadInput(Fault(where, "shortest routes", type(graph.router).__name__, remedy))
    kinds: dict[Link, dict[str, list[list[int | str]]]] = {}
    for edge in graph.edges:
        back = graph.between.get((edge.target, edge.source))
        both = back is not None and graph.edges[back].link == edge.link
        if both and edge.source > edge.target:
            continue
        pairs = kinds.setdefault(edge.link, {}).setdefault("between" if both else "from_to", [])
        pairs.append([_end(graph, edge.source), _end(graph, edge.target)])
    flags = ("multicast", "reduction", "on_request")
    switches = [{"name": switch.name, **{key: True for key in flags if getattr(switch, key)}} for switch in graph.switches]
    return {
        "ranks": graph.ranks,
        **({"switches": switches} if switches else {}),
        "links": [link_document(link) | pairs for link, pairs in kinds.items()],
        **({"multipath": True} if shared else {}),
    }


def _end(graph: Graph, vertex: int) -> int | str:
    return vertex if vertex < graph.ranks else graph.switches[vertex - graph.ranks].name
