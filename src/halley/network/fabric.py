"""A network with a name: its graph, the axes that it is the product of, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halley.ir.hardware import Axis
from halley.network.graph import Graph


@dataclass(frozen=True, eq=False)
class Fabric:
    """A network as files hold it. ``axes`` is empty where the links are listed one by one; ``currency``: what prices are in;
    ``sources``: file key -> text."""

    name: str
    graph: Graph
    axes: tuple[Axis, ...] = ()
    currency: str = ""
    description: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
