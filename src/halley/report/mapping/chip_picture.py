"""The chip with the mapping on it: what each memory holds, how members share the work, how busy every port and engine is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from halley.cost.estimate import Estimate, Resource
from halley.formulas.numbers import ceil_div
from halley.ir.hardware import Chip, Level, Memory
from halley.ir.mapping import Collective, Hold, Node, Pipeline, Spatial, Temporal, children
from halley.ir.workload import Workload
from halley.report.draw import FAINT, GRID, HIGHLIGHT, INK, PAPER, WIDTH, box, canvas, ink_on, line, shortened, words
from halley.report.table import percent
from halley.units import format_bytes

PAD, HEAD, ROW, LANE = 14.0, 26.0, 18.0, 46.0
"""Space inside a box, its title, a line of text, and the lane between two levels."""
MOST_TENSORS = 6
"""Tensors of a memory that are listed; the tooltip has all."""
MOST_MEMBERS = 32
"""Members along an axis that are drawn one by one."""
HELD, BUSY = "#0072b2", HIGHLIGHT


@dataclass(frozen=True, slots=True)
class Held:
    """A Hold in words, and the colour of its first tensor."""

    text: str
    tensor: str


def chip_picture(workload: Workload, chip: Chip, tree: Node, estimate: Estimate, fills: Mapping[str, str]) -> Element:
    """The levels of the chip from the outermost one down. ``fills``: a colour for each tensor."""
    held = dict[str, list[Held]]()
    splits, joins = dict[str, list[Spatial]](), dict[str, list[str]]()
    used = dict[tuple[str, str], int]()
    for node, extents in _walk(tree, dict(workload.dims)):
        match node:
            case Hold():
                text = held.setdefault(node.memory, [])
                text += [item for item in _holds(workload, node, extents) if item not in text]
            case Spatial():
                members = ceil_div(extents[node.dim], node.tile)
                used[node.level, node.axis] = max(used.get((node.level, node.axis), 1), int(members))
                if node not in (known := splits.setdefault(node.level, [])):
                    known.append(node)
            case Collective():
                said = f"{node.kind.value} {' '.join(node.tensors)} over {node.axis}"
                if said not in (texts := joins.setdefault(node.level, [])):
                    texts.append(said)
            case _:
                pass
    made, top = list[Element](), 6.0
    for depth, level in enumerate(chip.levels):
        if depth:
            made += _lane(chip, estimate, chip.levels[depth - 1], level, top)
            top += LANE
        notes = [f"{split.dim} by {split.tile} over {split.axis}" for split in _texts(splits.get(level.name, []))]
        notes += joins.get(level.name, [])
        last = depth == len(chip.levels) - 1
        band, height = _band(chip, level, last, held, notes, used, estimate, fills, top)
        made += band
        top += height
    return canvas(top + 6, "The chip with the mapping on it", made)


def _walk(node: Node, extents: dict[str, int]) -> Iterator[tuple[Node, dict[str, int]]]:
    """Every node with the range of each dim at its entry."""
    yield node, extents
    inside = extents
    if isinstance(node, Temporal | Spatial | Pipeline):
        inside = {**extents, node.dim: min(int(node.tile), extents[node.dim])}
    for child in children(node):
        yield from _walk(child, inside)


def _holds(workload: Workload, node: Hold, extents: Mapping[str, int]) -> Iterator[Held]:
    for group in node.tensors:
        shape = " x ".join(str(extents[dim]) for dim in workload.tensors[group[0]].dims)
        buffers = f", {node.buffers} buffers" if node.buffers > 1 else ""
        yield Held(f"{'|'.join(group)}: {shape or '1'}{buffers}", group[0])


def _texts(splits: Iterable[Spatial]) -> list[Spatial]:
    """One split for each dim, tile and axis."""
    return list({(split.dim, split.tile, split.axis): split for split in splits}.values())


def _band(
    chip: Chip,
    level: Level,
    last: bool,
    held: Mapping[str, list[Held]],
    notes: list[str],
    used: Mapping[tuple[str, str], int],
    estimate: Estimate,
    fills: Mapping[str, str],
    top: float,
) -> tuple[list[Element], float]:
    """A level: its members, its memories, and, in the last one, its engines; and its height."""
    engines = [engine for engine in (chip.matrix, chip.vector) if engine is not None] if last else []
    grid, wide = _members(level, used, WIDTH - PAD, top + 8)
    cells = len(level.memories) + len(engines)
    tall = max([min(len(held.get(memory.name, [])), MOST_TENSORS + 1) for memory in level.memories] + [2])
    inside = 2 * HEAD + ROW * tall + 6
    height = max(HEAD + (inside + PAD if cells else 0.0) + ROW * bool(notes), wide and 64.0)
    size = " x ".join(f"{axis.size} ({axis.name})" for axis in level.network.axes) if level.network else ""
    made = [box(1, top, WIDTH - 2, height, "#fafafa", stroke=GRID, rx=6)]
    made.append(words(PAD, top + 18, f"{level.name}: {size}" if size else level.name, font_weight="bold"))
    inner_width = WIDTH - 3 * PAD - wide
    if notes:
        made.append(words(PAD, top + HEAD + 10, shortened("; ".join(notes), inner_width), fill=FAINT))
    start = top + HEAD + ROW * bool(notes)
    across = (inner_width - PAD * max(cells - 1, 0)) / max(cells, 1)
    for place, memory in enumerate(level.memories):
        x = PAD + place * (across + PAD)
        made += _memory(memory, held.get(memory.name, []), estimate, fills, x, start, across, inside)
    for place, engine in enumerate(engines, len(level.memories)):
        x = PAD + place * (across + PAD)
        if engine is chip.matrix:
            facts = [f"{chip.matrix.rows} x {chip.matrix.cols}", chip.matrix.dataflow.value]
        else:
            facts = [f"{chip.vector.lanes} lanes" if chip.vector else ""]
        busy = _busy(estimate, ("engine", engine.name))
        made.append(box(x, start, across, inside, PAPER, stroke=INK))
        made.append(words(x + 8, start + 18, shortened(f"{engine.name} engine", across - 16), font_weight="bold"))
        made += _meter(x + 8, start + 26, across - 16, busy, BUSY, "busy")
        for row, fact in enumerate(facts):
            made.append(words(x + 8, start + 2 * HEAD + 6 + ROW * row, shortened(fact, across - 16, 12), fill=FAINT, size=12))
    return [*made, *grid], height


def _members(level: Level, used: Mapping[tuple[str, str], int], right: float, top: float) -> tuple[list[Element], float]:
    """The members of a level as squares, those at work filled; and the width of the drawing."""
    axes = level.network.axes if level.network else ()
    if not axes or len(axes) > 2 or any(axis.size > MOST_MEMBERS for axis in axes):
        return [], 0.0
    sizes = [axis.size for axis in axes] + [1] * (2 - len(axes))
    counts = [_used(level.name, axis.name, used) for axis in axes] + [1] * (2 - len(axes))
    side = min(14.0, 112.0 / max(sizes))
    left = right - side * sizes[0]
    made = []
    for x in range(sizes[0]):
        for y in range(sizes[1]):
            works = x < counts[0] and y < counts[1]
            fill = HELD if works else PAPER
            tip = "at work" if works else "idle"
            made.append(box(left + side * x, top + side * y, side - 1, side - 1, fill, tip, stroke=GRID, stroke_width=0.5))
    return made, side * sizes[0] + PAD


def _used(level: str, axis: str, used: Mapping[tuple[str, str], int]) -> int:
    """Members of an axis at work; of an axis that a mapping divides into groups, the groups times the members of one."""
    found = 1
    for (own, name), count in used.items():
        if own == level and name.partition("/")[0].partition("%")[0] == axis:
            found *= count
    return found


def _memory(
    memory: Memory,
    holds: list[Held],
    estimate: Estimate,
    fills: Mapping[str, str],
    x: float,
    top: float,
    width: float,
    height: float,
) -> list[Element]:
    live = float(estimate.footprint.get(memory.name, 0.0))
    made = [box(x, top, width, height, PAPER, "\n".join(item.text for item in holds), stroke=FAINT)]
    title = shortened(f"{memory.name}, {format_bytes(memory.capacity)}", width - 16)
    made.append(words(x + 8, top + 18, title, font_weight="bold"))
    made += _meter(x + 8, top + 26, width - 16, live / memory.capacity, HELD, "full")
    shown = holds if len(holds) <= MOST_TENSORS + 1 else holds[:MOST_TENSORS]
    for row, item in enumerate(shown):
        y = top + 2 * HEAD + ROW * row
        fill = fills.get(item.tensor, GRID)
        made.append(box(x + 8, y - 3, 10, 10, fill, stroke=FAINT, stroke_width=0.5))
        made.append(words(x + 23, y + 6, shortened(item.text, width - 31, 12), size=12))
    if len(holds) > len(shown):
        y = top + 2 * HEAD + ROW * len(shown)
        made.append(words(x + 23, y + 6, f"and {len(holds) - len(shown)} more", fill=FAINT, size=12))
    return made


def _lane(chip: Chip, estimate: Estimate, outer: Level, inner: Level, top: float) -> list[Element]:
    """What moves between two levels: the port of the inner one where it has one, else the ports of the outer memories."""
    found: list[tuple[str, Resource]] = []
    if inner.network is not None and inner.network.port is not None:
        found = [(f"down to {inner.name}", ("port", inner.name, "down")), (f"up from {inner.name}", ("port", inner.name, "up"))]
    for memory in outer.memories:
        ports = ("bus",) if memory.shared_bus else ("read", "write")
        found += [(f"{port} {memory.name}", (port, memory.name)) for port in ports]
    if inner.network is not None:
        found += [(f"links along {axis.name}", ("axis", inner.name, axis.name)) for axis in inner.network.axes]
    busy = [(name, _busy(estimate, resource)) for name, resource in found]
    shown = [(name, share) for name, share in busy if share > 0][:6]
    if not shown:
        return [line(WIDTH / 2, top, WIDTH / 2, top + LANE)]
    made, across = [], (WIDTH - 2 * PAD) / len(shown)
    for place, (name, share) in enumerate(shown):
        x = PAD + place * across
        made.append(words(x, top + 17, shortened(name, across - PAD), size=12))
        made += _meter(x, top + 23, across - PAD, share, BUSY, "busy")
    return made


def _busy(estimate: Estimate, resource: Resource) -> float:
    """The share of the time in which a resource works; of an axis with its groups, the busiest."""
    times = [float(time) for name, time in estimate.busy.items() if _same(name, resource)]
    return max(times, default=0.0) / float(estimate.time)


def _same(name: Resource, resource: Resource) -> bool:
    if name == resource:
        return True
    return resource[0] == "axis" and name[:2] == resource[:2] and name[-1].partition("/")[0].partition("%")[0] == resource[-1]


def _meter(x: float, top: float, width: float, share: float, fill: str, what: str) -> list[Element]:
    """A bar for a share of 1, with the share in words."""
    text = f"{percent(share, 1.0)} {what}"
    long = min(share, 1.0) * width
    made = [box(x, top, width, 14, "#ececec"), box(x, top, long, 14, fill)]
    inside = long > 90
    made.append(words(x + (4 if inside else long + 4), top + 11, text, fill=ink_on(fill) if inside else INK, size=11))
    return made
