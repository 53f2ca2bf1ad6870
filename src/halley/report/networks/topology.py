"""Networks as pictures and tables: who is joined to whom, and what one number can say of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from halley.errors import BadInput, Fault
from halley.ir.hardware import Axis, Link
from halley.network.graph.fabric import Fabric
from halley.network.graph.graph import Edge, Graph
from halley.network.graph.measures import bisection, diameter, injection, power, price
from halley.report.draw import FAINT, FONT_SIZE, INK, PAPER, WIDTH, canvas, colours, ink_on, legend, width_of, words
from halley.report.markup import el
from halley.report.networks.layout import GRIDS, Points, layout
from halley.report.table import Table
from halley.units import format_energy_per_byte, format_power, format_rate, format_time

MOST_LINKS_DRAWN = 20_000
"""Most links in a picture."""
TEXT_VERTICES = 100
"""Most vertices in a picture made of characters."""
MARGIN, TALLEST = 40.0, 760.0


def cables(graph: Graph) -> Iterator[tuple[Edge, bool]]:
    """(edge, whether it goes both ways): each link of both directions once."""
    for edge in graph.edges:
        both = (edge.target, edge.source) in graph.between
        if not both or edge.source < edge.target:
            yield edge, both


def network_list(fabrics: Sequence[Fabric]) -> Table:
    """One network a row."""
    rows = tuple((item.name, str(item.graph.ranks), _shape(item), item.description) for item in fabrics)
    return Table("Networks", ("name", "ranks", "topology", "description"), rows, right=frozenset({1}), spare=frozenset({3}))


def _shape(fabric: Fabric) -> str:
    return " x ".join(_block(axis) for axis in fabric.axes) or "links one by one"


def _block(axis: Axis) -> str:
    return f"{axis.topology} {','.join(map(str, axis.shape)) or axis.size}"


def network_tables(fabric: Fabric) -> tuple[Table, ...]:
    """What the network is, its links, and where its numbers come from."""
    facts = tuple(network_facts(fabric).items())
    return (Table("Network", ("", ""), facts), _links(fabric), *_sources(fabric))


def network_facts(fabric: Fabric) -> dict[str, str]:
    """What one number can say of the network, in words."""
    graph = fabric.graph
    hops, latency = diameter(graph)
    cost, links = price(graph), list(cables(graph))
    return {
        "ranks": str(graph.ranks),
        "switches": str(len(graph.switches)),
        "links": f"{len(links)}, {sum(both for _, both in links)} of them in both directions",
        "diameter": f"{hops} links, {format_time(latency)}",
        "bisection bandwidth": f"{format_rate(bisection(graph))} in each direction",
        "injection bandwidth": f"{format_rate(injection(graph))} a rank",
        "price": "not stated" if cost is None else f"{cost:,.0f} {fabric.currency}".strip(),
        "power": f"{format_power(power(graph))} with all links busy",
    }


def _links(fabric: Fabric) -> Table:
    """Kinds of links, by axis, with how many there are."""
    kinds: dict[tuple[int, Link], int] = {}
    for edge, _ in cables(fabric.graph):
        kinds[edge.dimension, edge.link] = kinds.get((edge.dimension, edge.link), 0) + 1
    rows = []
    for (dimension, link), count in kinds.items():
        axis = fabric.axes[dimension].name if fabric.axes else "-"
        cost = f"{link.price:,.0f}" if link.price else "-"
        numbers = format_rate(link.bandwidth), format_time(link.latency), format_energy_per_byte(link.energy)
        rows.append((axis, str(count), *numbers, cost))
    return Table("Links", ("axis", "number", "bandwidth", "latency", "energy", "price"), tuple(rows), frozenset({1, 2, 3, 4, 5}))


def _sources(fabric: Fabric) -> Iterator[Table]:
    if fabric.sources:
        keys: dict[str, list[str]] = {}
        for path, text in fabric.sources.items():
            keys.setdefault(text, []).append(path)
        rows = tuple((text, ", ".join(paths[:4]) + (", ..." if paths[4:] else "")) for text, paths in keys.items())
        yield Table("Sources", ("source", "of"), rows)


def topology_figure(fabric: Fabric) -> Element:
    """The network as a picture: ranks as circles, switches as squares, a colour for the links of each axis.

    Raises BadInput: more links than a picture can show.
    """
    graph = fabric.graph
    if len(graph.edges) > MOST_LINKS_DRAWN:
        where, remedy = f"picture of {fabric.name}", "draw one of its axes, or a smaller one"
        raise BadInput(Fault(where, f"at most {MOST_LINKS_DRAWN} links", str(len(graph.edges)), remedy))
    places, zoom, height = _fitted(layout(fabric), WIDTH - 2 * MARGIN, TALLEST)
    fills = colours(_kind(fabric, edge) for edge in graph.edges)
    entries, top = legend(fills.items(), MARGIN, 6, WIDTH - 2 * MARGIN)
    places = places + np.array([(WIDTH - np.ptp(places[:, 0])) / 2, top + MARGIN])
    radius = min(max(zoom * 0.24, 2.0), 14.0)
    content = [*entries, *_wires(fabric, places, zoom, fills), *_vertices(graph, places, radius)]
    return canvas(height + top + 2 * MARGIN, f"Topology of {fabric.name}", content)


def _kind(fabric: Fabric, edge: Edge) -> str:
    """What the legend calls a link: its axis, whether it joins switches, and its bandwidth."""
    axis = f"{fabric.axes[edge.dimension].name}: {_block(fabric.axes[edge.dimension])}, " if fabric.axes else ""
    between = "between switches, " if min(edge.source, edge.target) >= fabric.graph.ranks else ""
    return f"{axis}{between}{format_rate(edge.link.bandwidth)}"


def _fitted(places: Points, width: float, height: float) -> tuple[Points, float, float]:
    """The places in pixels from the corner, pixels per step, and the height that they take."""
    size = np.maximum(np.ptp(places, axis=0), 1e-9)
    zoom = float(min(width / size[0], height / size[1], 90.0))
    return (places - places.min(axis=0)) * zoom, zoom, float(size[1] * zoom)


def _wires(fabric: Fabric, places: Points, zoom: float, fills: dict[str, str]) -> Iterator[Element]:
    graph = fabric.graph
    widest = float(graph.bandwidths.max()) if len(graph.edges) else 1.0
    many = 0.45 if len(graph.edges) > 600 else 0.8
    straight = not fabric.axes or (len(fabric.axes) == 1 and fabric.axes[0].topology not in GRIDS)
    ways = {ends: _way(*(places[vertex] for vertex in ends)) for ends in graph.between}
    nearest: dict[float, float] = {}
    for angle, length in ways.values():
        nearest[angle] = min(length, nearest.get(angle, length))
    for edge, both in cables(graph):
        (x1, y1), (x2, y2) = places[edge.source], places[edge.target]
        angle, length = ways[edge.source, edge.target]
        # on a grid, what passes a neighbour bends around it
        bend = 0.0 if straight or length < 1.5 * nearest[angle] else min(0.18, zoom / length)
        middle = (x1 + x2) / 2 + bend * (y2 - y1), (y1 + y2) / 2 - bend * (x2 - x1)
        wire = el(
            "path",
            el("title", _said(graph, edge, both)),
            d=f"M{x1:.1f} {y1:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {x2:.1f} {y2:.1f}",
            fill="none",
            stroke=fills[_kind(fabric, edge)],
            stroke_opacity=many,
            stroke_width=0.6 + 1.8 * edge.link.bandwidth / widest,
        )
        if not both:
            wire.set("stroke-dasharray", "5 3")
        yield wire


def _way(start: Points, stop: Points) -> tuple[float, float]:
    """Angle, the same both ways, and length."""
    x, y = stop - start
    return round(math.atan2(y, x) % math.pi, 3) % 3.142, math.hypot(x, y)


def _said(graph: Graph, edge: Edge, both: bool) -> str:
    ends = (_name(graph, vertex) for vertex in (edge.source, edge.target))
    link = f"{format_rate(edge.link.bandwidth)}, {format_time(edge.link.latency)}, {format_energy_per_byte(edge.link.energy)}"
    return f"{(' and ' if both else ' to ').join(ends)}: {link}"


def _name(graph: Graph, vertex: int) -> str:
    return f"rank {vertex}" if vertex < graph.ranks else graph.switches[vertex - graph.ranks].name


def _vertices(graph: Graph, places: Points, radius: float) -> Iterator[Element]:
    numbered = width_of(str(graph.ranks - 1), FONT_SIZE - 2.5) <= 2.1 * radius  # all of them or none
    for vertex, (x, y) in enumerate(places.tolist()):
        tip = el("title", _name(graph, vertex))
        if vertex < graph.ranks:
            yield el("circle", tip, cx=x, cy=y, r=radius, fill=INK, stroke=PAPER, stroke_width=1)
            if numbered:
                yield words(x, y + 3.6, str(vertex), "middle", ink_on(INK), FONT_SIZE - 2.5, pointer_events="none")
        else:
            side = max(1.7 * radius, 9.0)
            corner = {"x": x - side / 2, "y": y - side / 2, "width": side, "height": side}
            yield el("rect", tip, fill=PAPER, stroke=FAINT, stroke_width=1.5, **corner)


def topology_text(fabric: Fabric, width: int = 78) -> str:
    """The network as a picture of characters; "" where it has more than `TEXT_VERTICES` vertices. Switches are [].

    >>> from halley.ir.hardware import Topology
    >>> from halley.network.graph.topologies import build
    >>> axis = Axis("x", 4, Topology.LINE, Link(1.0))
    >>> print(topology_text(Fabric("line", build(axis), (axis,)), 25))
    0 ···· 1 ····· 2 ···· 3
    """
    graph = fabric.graph
    if graph.vertices > TEXT_VERTICES:
        return ""
    places, _, _ = _fitted(layout(fabric), width - 3.0, 44.0)
    rows = np.rint(places[:, 1] * 0.5).astype(int)  # a character is about twice as tall as wide
    columns = np.rint(places[:, 0]).astype(int)
    sheet = [[" "] * (width + 2) for _ in range(int(rows.max()) + 1)]
    for edge, _ in cables(graph):
        steps = max(abs(int(rows[edge.target] - rows[edge.source])), abs(int(columns[edge.target] - columns[edge.source])))
        for part in range(steps + 1):
            at = part / max(steps, 1)
            row = round(rows[edge.source] + at * (rows[edge.target] - rows[edge.source]))
            sheet[row][round(columns[edge.source] + at * (columns[edge.target] - columns[edge.source]))] = "·"
    for vertex in range(graph.vertices):
        label = str(vertex) if vertex < graph.ranks else "[]"
        start = int(columns[vertex])
        for offset, char in enumerate(f" {label} ", start - 1):
            if 0 <= offset < width + 2:
                sheet[int(rows[vertex])][offset] = char
    return "\n".join("".join(row).rstrip() for row in sheet)
