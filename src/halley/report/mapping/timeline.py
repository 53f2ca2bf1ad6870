"""When each resource works, phase by phase, as the formulas see it.

A phase says how long each resource works in it, not when. The picture is therefore a schedule that agrees with every total:
children of a `Sequence` follow one another, fills come as early and drains as late as they fit, and all iterations of a loop are
drawn as one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from halley.cost.estimate import Estimate, Resource
from halley.cost.events import Access, Event, Path, PortTraffic
from halley.cost.figures import resource_name
from halley.ir.axis_groups import with_axis_groups
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.report.mapping.activity import activity, event_name, node_name, resources

PHASES = "phases"
"""The lane of the phases themselves."""

_EMPTY = 1e-12
"""Share of the whole below which an interval is nothing."""

Window = tuple[float, float]
_Piece = tuple[float, float, str, Path, str]
"""Start and stop [s], name, path and tensor: an interval without its lane."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Something that takes from ``start`` to ``stop`` [s] on a ``lane`` (a resource, or the phases) for the node at ``path``.

    ``tensor`` names what a memory port moves; it is empty for all else.
    """

    lane: str
    start: float
    stop: float
    name: str
    path: Path
    tensor: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """``phases``, outer before inner; ``intervals`` of work by lane and start, which on one lane do not overlap; ``time`` [s] of
    the whole. ``lanes`` are all lanes of the intervals, outermost resource first."""

    time: float
    phases: tuple[Interval, ...]
    intervals: tuple[Interval, ...]
    lanes: tuple[str, ...]


def timeline(chip: Chip, tree: Node, estimate: Estimate) -> Timeline:
    """The schedule of a mapping from its estimate."""
    chip = with_axis_groups(chip, (node for _, node in walk(tree)))
    layout = _Layout(chip, tree, estimate)
    layout.phase((), tree, 0.0, ())
    layout.flows.reverse()  # inner phases first: their windows are the shortest
    for flow in layout.flows:
        layout.place(flow.event, flow.lane, flow.windows, flow.late)
    intervals = tuple(sorted(layout.intervals()))
    used = {interval.lane for interval in intervals}
    order = [resource_name(resource) for resource in resources(chip)]
    lanes = sorted(used, key=lambda lane: (order.index(lane.split(" | ")[0]), lane))
    return Timeline(float(estimate.time), tuple(layout.phases), intervals, tuple(lanes))


@dataclass(frozen=True, slots=True)
class _Flow:
    """A transfer that may run anywhere in its phase."""

    event: Event
    lane: str
    windows: tuple[Window, ...]
    late: bool


class _Layout:
    def __init__(self, chip: Chip, tree: Node, estimate: Estimate) -> None:
        self.chip, self.estimate = chip, estimate
        self.kinds = dict(walk(tree))
        self.tiny = _EMPTY * float(estimate.time)
        self.events: dict[Path, list[Event]] = {}
        for event in estimate.events:
            self.events.setdefault(event.path, []).append(event)
        self.depths = {resource: self._depth(resource) for resource in resources(chip)}
        self.shares: dict[Path, tuple[int, str]] = {}  # phases on members of their own: depth of these, name
        self.taken: dict[str, list[_Piece]] = {}
        self.phases: list[Interval] = []
        self.flows: list[_Flow] = []

    def phase(self, path: Path, node: Node, start: float, outer: tuple[Window, ...], lane: str = PHASES) -> float:
        """Draw a phase that begins at ``start``; when it ends."""
        cost = self.estimate.nodes[path]
        stop = start + float(cost.time)
        self.phases.append(Interval(lane, start, stop, node_name(node), path))
        up, down = (float(cost.entries) * float(ramp) for ramp in (cost.limiting.ramp_up, cost.limiting.ramp_down))
        self._inside(path, node, (start + up, stop - down), ((start, stop), *outer), lane)
        return stop

    def _inside(self, path: Path, node: Node, body: Window, windows: tuple[Window, ...], lane: str) -> None:
        """Lay out a node whose work fits into ``body``; its phase, on ``lane``, and the phases around it are ``windows``."""
        start, stop = body
        match node:
            case Temporal() | Spatial():
                self._inside((*path, 0), node.body, body, windows, lane)
            case Hold():
                inner = body
                if node.buffers == 1:
                    inner = self._serial(path, body)
                    windows = (inner, *windows)
                    self._flows(path, ((start, inner[0]), *windows), late=False)
                    self._flows(path, ((inner[1], stop), *windows), late=True)
                else:
                    self._flows(path, windows, late=False)
                    self._flows(path, windows, late=True)
                self._inside((*path, 0), node.body, inner, windows, lane)
            case Sequence():
                for index, child in enumerate(node.children):
                    start = self.phase((*path, index), child, start, windows, lane)
            case Overlap():
                for index, child in enumerate(node.children):
                    self.phase((*path, index), child, start, windows, f"{lane} | {index + 1} of {len(node.children)}")
            case Parallel() | Pipeline():
                self._members(path, node, start, windows, lane)
            case Compute() | Collective():
                for event in self.events.get(path, ()):
                    self.place(event, self._lane(event), ((start, windows[0][1]), *windows), late=False)

    def _members(self, path: Path, node: Parallel | Pipeline, start: float, windows: tuple[Window, ...], lane: str) -> None:
        """Children on members of their own.

        Of a pipeline's stages, the longest works all the time between the first tile's way to it and the last one's way from it;
        those before it begin as early, those behind it end as late as they can.
        """
        depth = [level.name for level in self.chip.levels].index(node.level)
        times = [float(self.estimate.nodes[(*path, index)].time) for index in range(len(node.children))]
        longest = times.index(max(times))
        waiting = float(self.estimate.nodes[path].work) - max(times) if isinstance(node, Pipeline) else 0.0
        others = sum(times) - max(times)
        # time of one tile in each stage
        tiles = [time * min(waiting / others, 1.0) if others > 0 else 0.0 for time in times]
        for index, child in enumerate(node.children):
            name = f"{index + 1} of {len(node.children)}"
            self.shares[(*path, index)] = (depth, name)
            begin = start + sum(tiles[:index])
            if index > longest and isinstance(node, Pipeline):
                begin = start + float(self.estimate.nodes[path].work) - sum(tiles[index + 1 :]) - times[index]
            self.phase((*path, index), child, begin, windows, f"{lane} | {name}")

    def _serial(self, path: Path, body: Window) -> Window:
        """What is left of ``body`` between the fills and the drains of a single buffer."""
        spent = max(body[1] - body[0] - float(self.estimate.nodes[(*path, 0)].time), 0.0)
        fills = self._longest(path, late=False)
        drains = self._longest(path, late=True)
        first = spent * fills / (fills + drains) if fills + drains > 0 else 0.0
        return (body[0] + first, body[1] - (spent - first))

    def _longest(self, path: Path, late: bool) -> float:
        works = self._moves(path, late)
        return max((seconds for _, (_, seconds) in works), default=0.0)

    def _moves(self, path: Path, late: bool) -> list[tuple[Event, tuple[Resource, float]]]:
        return [(event, activity(self.chip, event)) for event in self.events.get(path, ()) if _is_late(event) is late]

    def _flows(self, path: Path, windows: tuple[Window, ...], late: bool) -> None:
        for event, _ in self._moves(path, late):
            self.flows.append(_Flow(event, self._lane(event), windows, late))

    def _depth(self, resource: Resource) -> int:
        names = [level.name for level in self.chip.levels]
        match resource[0]:
            case "read" | "write" | "bus" | "dma":
                return self.chip.depth(resource[1])
            case "engine":
                return len(names)
            case _:
                return names.index(resource[1])

    def _lane(self, event: Event) -> str:
        """The resource, and whose it is where phases run on members of their own."""
        resource, _ = activity(self.chip, event)
        name = resource_name(resource)
        for length in range(len(event.path), -1, -1):
            share = self.shares.get(event.path[:length])
            if share and self.depths[resource] >= share[0]:
                return f"{name} | {share[1]}"
        return name

    def place(self, event: Event, lane: str, windows: tuple[Window, ...], late: bool) -> None:
        """Place an event on its lane: in the innermost window, and what does not fit in the enclosing ones."""
        left = activity(self.chip, event)[1]
        what = (event_name(event, self.kinds[event.path]), event.path, _tensor(event, self.kinds[event.path]))
        taken = self.taken.setdefault(lane, [])
        for window in (*windows, (0.0, float(self.estimate.time))):
            for start, stop in list(_gaps(taken, window, late, self.tiny)):
                if left <= self.tiny:
                    return
                length = min(left, stop - start)
                begin = stop - length if late else start
                insort(taken, (begin, begin + length, *what))
                left -= length

    def intervals(self) -> Iterator[Interval]:
        """All that was placed; pieces of one thing that touch are one."""
        for lane, taken in self.taken.items():
            joined: list[_Piece] = []
            for piece in taken:
                if joined and joined[-1][2:] == piece[2:] and piece[0] - joined[-1][1] <= self.tiny:
                    joined[-1] = (joined[-1][0], *piece[1:])
                else:
                    joined.append(piece)
            yield from (Interval(lane, *piece) for piece in joined)


def _tensor(event: Event, node: Node) -> str:
    if isinstance(event, Access):
        return event.tensor
    return node.names[0] if isinstance(event, PortTraffic) and isinstance(node, Hold) and len(node.names) == 1 else ""


def _is_late(event: Event) -> bool:
    """Whether a Hold's transfer belongs to its exit."""
    return (isinstance(event, Access) and event.cause == "drain") or (isinstance(event, PortTraffic) and not event.down)


def _gaps(taken: list[_Piece], window: Window, late: bool, tiny: float) -> Iterator[Window]:
    """Free stretches of a lane within a window, from its start, or from its end where ``late``."""
    free: list[Window] = []
    at, end = window
    for start, stop, *_ in taken:
        if start >= end:
            break
        if start > at:
            free.append((at, start))
        at = max(at, stop)
    if at < end:
        free.append((at, end))
    wide = [gap for gap in free if gap[1] - gap[0] > tiny]
    yield from reversed(wide) if late else wide
