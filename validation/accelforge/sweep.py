"""AccelForge's tutorial on design spaces: 32 sizes of a global buffer, side by side with ``halley sweep``.

``python -m validation.accelforge.sweep`` sweeps `sweep.yaml` in this folder, writes ``sweep.json`` and the figure of the page,
and prints its table. The peer's figures were measured once (accelforge 1.0.467 on Python 3.12, one process, `eyeriss-peer.yaml`
with the sizes and energies of the study).
"""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element

import halley
from halley.io.files.save import write_atomic
from halley.report.draw import FAINT, PALETTE, WIDTH, canvas, decades, legend, line, words
from halley.report.markup import el, svg_file

HERE = Path(__file__).parent
STUDY, FIGURES = HERE / "sweep.yaml", HERE / "sweep.json"
PICTURE = HERE.parents[1] / "docs" / "figures" / "accelforge-sweep.svg"
MACS = 4096**3
LEFT, HIGH, MOST = 52.0, 220.0, 9.0
"""Of the figure: margin and height [px], and the end of its scale [pJ]."""


@dataclass(frozen=True, slots=True)
class Point:
    """The least energy [J] at a size [B] of the buffer, and the CPU time [s] of the search; the peer's and Halley's."""

    size: int
    peer_energy: float
    peer_cpu: float
    energy: float
    cpu: float


def points() -> tuple[Point, ...]:
    """The stored figures."""
    return tuple(Point(**entry) for entry in json.loads(FIGURES.read_text()))


def swept() -> tuple[Point, ...]:
    """The stored figures of the peer, beside those of a sweep made now."""
    with tempfile.TemporaryDirectory() as folder:
        result = halley.sweep(STUDY, store=Path(folder) / "sweep.db", everything=True).run()
    found = []
    for point, outcome in zip(points(), result.outcomes, strict=True):
        (answer,) = outcome.answers.values()
        assert outcome.design.chip.memory("glb").capacity == point.size
        found.append(replace(point, energy=float(f"{answer.value:.9g}"), cpu=round(answer.seconds, 2)))
    return tuple(found)


def table(found: tuple[Point, ...]) -> str:
    """Every fourth size, in markdown, and the sums of CPU times."""
    rows = ["| buffer | AccelForge: energy of a MAC | Halley | ratio |", "|---|---|---|---|"]
    for point in found[::4] + found[-1:]:
        theirs, ours = (1e12 * energy / MACS for energy in (point.peer_energy, point.energy))
        rows.append(f"| {point.size:,} B | {theirs:.3f} pJ | {ours:.3f} pJ | {ours / theirs:.2f} |")
    theirs, ours = sum(point.peer_cpu for point in found), sum(point.cpu for point in found)
    return "\n".join([*rows, "", f"CPU time of the 32 searches: AccelForge {theirs:.0f} s, Halley {ours:.0f} s."])


def figure(found: tuple[Point, ...]) -> Element:
    """Energy of a multiplication by size of the buffer."""
    fills = {"AccelForge": PALETTE[1], "Halley": PALETTE[0]}
    content, used = legend(fills.items(), LEFT, 4, WIDTH - LEFT)
    top = used + 20
    marks = decades(found[0].size, found[-1].size)
    scale = _Scale(top, marks[0], marks[-1])
    for energy in range(0, int(MOST) + 1, 3):
        y = scale.y(energy)
        content += [line(LEFT, y, WIDTH - 10, y), words(LEFT - 6, y + 4, f"{energy} pJ", "end", FAINT, 12)]
    for mark in marks:
        content.append(words(scale.x(mark), top + HIGH + 18, f"{mark:,.0f} B", "middle", FAINT, 12))
    for name, energies in (("AccelForge", [p.peer_energy for p in found]), ("Halley", [p.energy for p in found])):
        places = [(scale.x(p.size), scale.y(1e12 * energy / MACS)) for p, energy in zip(found, energies, strict=True)]
        line_of = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        content.append(el("polyline", points=line_of, fill="none", stroke=fills[name], stroke_width=2))
        content += [el("circle", cx=x, cy=y, r=3, fill=fills[name]) for x, y in places]
    content.append(words((LEFT + WIDTH) / 2, top + HIGH + 40, "size of the global buffer", "middle", FAINT, 12))
    return canvas(top + HIGH + 50, "Least energy of a multiplication, GEMM of 4096 x 4096 x 4096 on Eyeriss", content)


@dataclass(frozen=True, slots=True)
class _Scale:
    top: float
    least: float
    most: float

    def x(self, size: float) -> float:
        return LEFT + 14 + (WIDTH - LEFT - 50) * math.log(size / self.least) / math.log(self.most / self.least)

    def y(self, energy: float) -> float:
        return self.top + HIGH * (1 - energy / MOST)


if __name__ == "__main__":
    made = swept()
    write_atomic(FIGURES, "[\n" + ",\n".join(" " + json.dumps(asdict(point)) for point in made) + "\n]\n", force=True)
    write_atomic(PICTURE, svg_file(figure(made)), force=True)
    print(table(made))
