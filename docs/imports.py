"""Draws docs/figures/imports.svg, the import graph of the packages: ``python -m docs.imports``.

Rows are those of ``tests/unit/test_house.py``, the highest on top. An arrow leads from a package to one that it imports from.
Arrows that follow from others are left out (the graph is the transitive reduction), and so are those to the packages of `BASE`,
which any package may use. An arrow that passes rows has a waypoint in each. Rows are ordered by the mean position of
neighbours, and the order with the fewest crossings is drawn (Sugiyama, Tagawa and Toda, IEEE Trans. Syst. Man Cybern. 11, 1981).
"""

from __future__ import annotations

import ast
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from statistics import fmean
from xml.etree.ElementTree import Element

from tests.unit.test_house import ORDER, RANK, files, imported, own, package, tree

from halley.report.markup import el, svg_file

FIGURE = Path(__file__).parent / "figures" / "imports.svg"
BASE = frozenset(name for row in ORDER[:2] for name in row)
"""Packages of the two lowest rows, to which no arrows are drawn."""

BOX, HEIGHT, ROW, GAP, BEND = 96, 30, 74, 26, 26
"""Pixels: a box, the distance of rows, the least distance of boxes and waypoints, the part of a row in which an arrow bends."""
SWEEPS = 40

Slot = tuple[str, ...]
"""A box (package,), or the waypoint of an arrow (from, to, row)."""


def graph() -> dict[str, set[str]]:
    """Packages that each package imports from, those in `BASE` aside."""
    found: dict[str, set[str]] = {name: set() for name in RANK}
    for path in files("src"):
        for node in ast.walk(tree(path)):
            modules = {package(module) for module, _ in imported(node) if module.startswith("halley.")}
            if own(path):
                found[own(path)] |= modules - {own(path)} - BASE
    return found


def reduction(found: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Arrows that do not follow from others.

    >>> reduction({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    [('a', 'b'), ('b', 'c')]
    """

    def below(name: str) -> set[str]:
        return found[name].union(*(below(other) for other in found[name]))

    arrows = [(name, other) for name in found for other in sorted(found[name])]
    return [(name, other) for name, other in arrows if not any(other in below(via) for via in found[name])]


def chains(arrows: list[tuple[str, str]]) -> list[list[Slot]]:
    """Each arrow as the slots that it passes, from its upper end to its lower end."""
    return [[(a,), *((a, b, str(row)) for row in range(RANK[a] - 1, RANK[b], -1)), (b,)] for a, b in arrows]


def row_of(slot: Slot) -> int:
    return RANK[slot[0]] if len(slot) == 1 else int(slot[2])


def crossings(rows: list[list[Slot]], links: list[tuple[Slot, Slot]]) -> int:
    place = {slot: index for row in rows for index, slot in enumerate(row)}
    pairs = [(row_of(a), place[a], place[b]) for a, b in links]
    return sum(p[0] == q[0] and (p[1] - q[1]) * (p[2] - q[2]) < 0 for p, q in combinations(pairs, 2))


def ordered(links: list[tuple[Slot, Slot]]) -> list[list[Slot]]:
    """Slots of each row from left to right, lowest row first."""
    rows: list[list[Slot]] = [[(name,) for name in row] for row in ORDER]
    for slot in dict.fromkeys(slot for link in links for slot in link):
        if len(slot) > 1:
            rows[row_of(slot)].append(slot)
    best = (crossings(rows, links), rows)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for index in reversed(range(len(rows))) if down else range(len(rows)):
            place = {slot: (number + 0.5) / len(row) for row in rows for number, slot in enumerate(row)}
            near = {slot: [place[a if down else b] for a, b in links if (b if down else a) == slot] for slot in rows[index]}
            rows[index] = sorted(rows[index], key=lambda slot: fmean(near[slot]) if near[slot] else place[slot])
        best = min(best, (crossings(rows, links), [list(row) for row in rows]), key=lambda item: item[0])
    return best[1]


def positions(rows: list[list[Slot]], links: list[tuple[Slot, Slot]]) -> dict[Slot, float]:
    """Centre of each slot [px]: at the mean of its neighbours, as far as the order and the gaps of its row allow."""

    def half(slot: Slot) -> float:
        return BOX / 2 if len(slot) == 1 else 0

    offsets = [[0.0, *accumulate(half(a) + GAP + half(b) for a, b in pairwise(row))] for row in rows]
    x = {
        slot: least - offset[-1] / 2
        for row, offset in zip(rows, offsets, strict=True)
        for slot, least in zip(row, offset, strict=True)
    }
    near: dict[Slot, list[Slot]] = {slot: [] for slot in x}
    for a, b in links:
        near[a].append(b)
        near[b].append(a)
    for _ in range(4 * SWEEPS):
        for row, offset in zip(rows, offsets, strict=True):
            wish = [fmean(x[other] for other in near[slot]) if near[slot] else x[slot] for slot in row]
            free = rising([value - least for value, least in zip(wish, offset, strict=True)])
            x.update({slot: value + least for slot, value, least in zip(row, free, offset, strict=True)})
    return x


def rising(wishes: list[float]) -> list[float]:
    """The nearest values (least squares) that never fall: neighbours in the wrong order meet at their mean.

    >>> rising([1.0, 5.0, 3.0, 6.0])
    [1.0, 4.0, 4.0, 6.0]
    """
    blocks: list[list[float]] = []
    for wish in wishes:
        blocks.append([wish])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [fmean(block) for block in blocks for _ in block]


def figure() -> Element:
    paths = chains(reduction(graph()))
    links = list(dict.fromkeys(link for path in paths for link in pairwise(path)))
    rows = ordered(links)
    x = positions(rows, links)
    left, right = (side(x[slot] for link in links for slot in link) for side in (min, max))
    x.update({(name,): x[name,] + (left + right) / 2 for name in BASE})  # they have no arrows, and stay around 0
    left, right = left - BOX / 2 - 12, right + BOX / 2 + 12
    tall = len(rows) * ROW - (ROW - HEIGHT) + 24

    def top(slot: Slot) -> float:
        return 12 + (len(rows) - 1 - row_of(slot)) * ROW

    drawn = []
    for path in paths:
        line = f"M {x[path[0]] - left:.1f} {top(path[0]) + HEIGHT:.1f}"
        for a, b in pairwise(path):
            start, stop, end = x[a] - left, x[b] - left, top(b) - (3 if len(b) == 1 else 0)
            line += f" C {start:.1f} {top(a) + HEIGHT + BEND:.1f} {stop:.1f} {end - BEND:.1f} {stop:.1f} {end:.1f}"
            line += "" if len(b) == 1 else f" L {stop:.1f} {top(b) + HEIGHT:.1f}"
        drawn.append(el("path", d=line, fill="none", stroke="#5b7083", stroke_width=1.3, marker_end="url(#head)"))
    for slot, middle in x.items():
        if len(slot) == 1:
            box = {"x": middle - left - BOX / 2, "y": top(slot), "width": BOX, "height": HEIGHT, "rx": 4}
            fill = "#f0f0f0" if slot[0] in BASE else "#dcebf7"
            drawn.append(el("rect", **box, fill=fill, stroke="#5b7083"))
            drawn.append(el("text", slot[0], x=middle - left, y=top(slot) + HEIGHT / 2 + 5, text_anchor="middle", fill="#111"))
    head = el("marker", el("path", d="M 0 0 L 8 4 L 0 8 z", fill="#5b7083"), id="head", viewBox="0 0 8 8", refX=6, refY=4)
    head.attrib |= {"markerWidth": "7", "markerHeight": "7", "orient": "auto"}
    title = "Import graph of the packages: an arrow leads to a package that is imported"
    ground = el("rect", width=right - left, height=tall, fill="white")
    whole = el("svg", el("title", title), el("defs", head), ground, *drawn, width=right - left, height=tall)
    whole.attrib |= {"viewBox": f"0 0 {right - left:.0f} {tall:.0f}", "font-family": "sans-serif", "font-size": "14"}
    return whole


if __name__ == "__main__":
    FIGURE.write_text(svg_file(figure()), encoding="utf-8")
