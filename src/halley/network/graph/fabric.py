"""A network with a name: its graph, the axes that it is the product of, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halley.ir.hardware import Axis, Link
from halley.network.graph.graph import Graph
from halley.network.graph.products import product


@dataclass(frozen=True, eq=False)
class Fabric:
    """A network as files hold it. ``axes`` is empty where the links are listed one by one; ``currency``: what prices are in;
    ``sources``: file key -> text; ``libraries``: axis -> fit of the communication library that was measured there."""

    name: str
    graph: Graph
    axes: tuple[Axis, ...] = ()
    currency: str = ""
    description: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)


def with_overhead(fabric: Fabric, overhead: float) -> Fabric:
    """The network with this overhead of the sender for each message on all links [s].

    >>> from halley.ir.hardware import Topology
    >>> axes = (Axis("x", 4, Topology.RING, Link(1.0)),)
    >>> with_overhead(Fabric("ring", product(axes), axes), 0.5).graph.overheads.tolist()[:2]
    [0.5, 0.5]
    """

    def busy(link: Link) -> Link:
        return replace(link, overhead=overhead)

    if not fabric.axes:
        edges = tuple(replace(edge, link=busy(edge.link)) for edge in fabric.graph.edges)
        return replace(fabric, graph=replace(fabric.graph, edges=edges))
    axes = tuple(
        replace(axis, link=busy(axis.link), upper=axis.upper and busy(axis.upper), top=axis.top and busy(axis.top))
        for axis in fabric.axes
    )
    return replace(fabric, axes=axes, graph=replace(product(axes), name=fabric.name))
