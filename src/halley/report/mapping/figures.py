"""The figures of a result, each one function from a result to an SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from xml.etree.ElementTree import Element

from halley.cost.estimate import Estimate
from halley.errors import BadInput, Fault, did_you_mean
from halley.mapping.result import Result, Solution
from halley.report.draw import BarPart, ChartBar, byte_base, colours, stacked
from halley.report.mapping.causes import causes
from halley.report.mapping.chip_picture import chip_picture
from halley.report.mapping.facts import outer_name
from halley.report.mapping.gantt import gantt
from halley.report.mapping.plots import front_plot, roofline_plot
from halley.report.mapping.roofline import roofline
from halley.report.mapping.timeline import timeline
from halley.report.table import percent
from halley.units import format_bytes, format_energy, format_time
from halley.workloads.registry import mapped_variant


def plans(result: Result) -> tuple[Solution, ...]:
    """The baselines, then the best plan."""
    return (*result.baselines, result.best)


def ranked(shares: Iterable[tuple[str, float]]) -> list[str]:
    """Names by their sum, largest first."""
    sums: dict[str, float] = {}
    for name, value in shares:
        sums[name] = sums.get(name, 0.0) + value
    return sorted(sums, key=lambda name: -sums[name])


def tensor_colours(result: Result) -> dict[str, str]:
    """One colour per tensor in all figures of a result; the tensors that move most have one of their own."""
    moved = ((key[1], float(value)) for plan in plans(result) for key, value in accesses(plan.estimate).items())
    return colours(ranked(moved))


def accesses(estimate: Estimate) -> dict[tuple[str, str, str, str], float]:
    """Bytes by (memory, tensor, cause, "read" or "write")."""
    found: dict[tuple[str, str, str, str], float] = {}
    for way, counted in (("read", estimate.reads()), ("write", estimate.writes())):
        for (memory, tensor, cause), value in counted.items():
            if float(value) > 0:
                found[memory, tensor, cause, way] = float(value)
    return found


def time_figure(result: Result) -> Element:
    """Time of each plan by what sets it, on one scale."""
    parts = {plan.name: causes(plan.plan, plan.estimate) for plan in plans(result)}
    # in the order of kinds, those of the best plan first
    names = list(dict.fromkeys(cause for name in reversed(parts) for cause in parts[name]))
    kinds = ("waiting", "first", "fil", "collectives")
    names.sort(key=lambda cause: next((place for place, kind in enumerate(kinds, 1) if cause.startswith(kind)), 0))
    return _compared(result, "Time of each plan by cause", parts, names, format_time)


def energy_figure(result: Result) -> Element:
    """Energy of each plan by component, on one scale."""
    parts = {plan.name: {name: float(value) for name, value in plan.estimate.energy_by.items()} for plan in plans(result)}
    names = ranked((name, value) for items in parts.values() for name, value in items.items())
    return _compared(result, "Energy of each plan by component", parts, names, format_energy)


def outer_figure(result: Result) -> Element:
    """Bytes at the outermost memories by tensor, plan by plan, on one scale."""
    outer = {memory.name for memory in result.problem.chip.levels[0].memories}
    parts: dict[str, dict[str, float]] = {}
    for plan in plans(result):
        of_plan = parts.setdefault(plan.name, {})
        for (memory, tensor, _, way), value in accesses(plan.estimate).items():
            if memory in outer:
                name = f"{tensor} {'read' if way == 'read' else 'written'}"
                of_plan[name] = of_plan.get(name, 0.0) + value
    order = list(tensor_colours(result))
    found = dict.fromkeys(name for items in parts.values() for name in items)
    names = sorted(found, key=lambda name: order.index(_tensor(name)))
    title = f"{outer_name(result.problem.chip)} traffic of each plan by tensor"
    return _compared(result, title, parts, names, format_bytes, _tensor, tensor_colours(result), byte_base)


def _tensor(name: str) -> str:
    return name.rpartition(" ")[0]


def _compared(
    result: Result,
    title: str,
    parts: dict[str, dict[str, float]],
    names: list[str],
    show: Callable[[float], str],
    key: Callable[[str], str] = str,
    fills: dict[str, str] | None = None,
    base: Callable[[float], float] = lambda largest: 1.0,
) -> Element:
    """One bar per plan; parts in the same order in all."""
    bars = []
    for plan in plans(result):
        items = parts[plan.name]
        whole = sum(items.values())
        pieces = tuple(
            BarPart(key(name), items[name], f"{plan.name}\n{name}: {show(items[name])}, {percent(items[name], whole)}", name)
            for name in names
            if items.get(name, 0.0) > 0
        )
        bars.append(ChartBar(plan.name, pieces, show(whole), strong=plan is result.best))
    largest = max((bar.total for bar in bars), default=0.0)
    return stacked(title, bars, fills or colours(names), show, base(largest))


def traffic_figure(result: Result) -> Element:
    """What passes each memory of the best plan: one bar for its reads and one for its writes, by tensor and cause."""
    chip, estimate = result.problem.chip, result.best.estimate
    fills = tensor_colours(result)
    order = list(fills)
    found = accesses(estimate)
    bars = []
    for memory in chip.memories:
        for way in ("read", "write"):
            items = {key: value for key, value in found.items() if key[0] == memory.name and key[3] == way}
            whole = sum(items.values())
            if not whole:
                continue
            port = "bus" if memory.shared_bus else way
            busy = percent(float(estimate.busy.get((port, memory.name), 0.0)), float(estimate.time))
            pieces = []
            for (_, tensor, cause, _), value in sorted(items.items(), key=lambda item: (order.index(item[0][1]), item[0][2])):
                tip = f"{way} {memory.name}\n{tensor}, {cause}: {format_bytes(value)}, {percent(value, whole)}"
                pieces.append(BarPart(tensor, value, tip, f"{tensor} {cause}"))
            note = f"{format_bytes(whole)}, {'bus' if memory.shared_bus else 'port'} busy {busy}"
            bars.append(ChartBar(f"{way} {memory.name}", tuple(pieces), note, scale=whole))
    return stacked("Traffic of each memory by tensor and cause; each bar is 100 % of its own port", bars, fills, None)


def footprint_figure(result: Result) -> Element:
    """How full each memory is at most."""
    chip, estimate = result.problem.chip, result.best.estimate
    bars = []
    for memory in chip.memories:
        name, capacity = memory.name, memory.capacity
        live = float(estimate.footprint.get(name, 0.0))
        text = f"{name}: {format_bytes(live)} live at most, of {format_bytes(capacity)}"
        pieces = (BarPart("live", live, text), BarPart("free", max(capacity - live, 0.0), text))
        bars.append(
            ChartBar(name, pieces, f"{format_bytes(live)} of {format_bytes(capacity)}, {percent(live, capacity)}", scale=capacity)
        )
    return stacked("Largest footprint of each memory", bars, {"live": "#0072b2", "free": "#e6e6e6"}, None)


def roofline_figure(result: Result) -> Element:
    """The best plan under the limit of each of its resources."""
    return roofline_plot(roofline(result.problem.chip, result.best.estimate))


def timeline_figure(result: Result) -> Element:
    """When each resource works in the best plan."""
    best = result.best
    return gantt(timeline(result.problem.chip, best.plan, best.estimate), tensor_colours(result))


def chip_figure(result: Result) -> Element:
    """The chip with the best plan on it."""
    best, problem = result.best, result.problem
    workload = mapped_variant(problem.workload, best.plan)
    return chip_picture(workload, problem.chip, best.plan, best.estimate, tensor_colours(result))


def front_figure(result: Result) -> Element:
    """The time-energy front, and where the plans lie."""
    if not result.front:
        raise BadInput(
            Fault("figure front", "a result with a time-energy front", "one without", "solve with 'halley optimise --front'")
        )
    marks = [(plan.name, float(plan.estimate.time), float(plan.estimate.energy)) for plan in plans(result)]
    return front_plot([(point.time, point.energy) for point in result.front], marks)


Figure = Callable[[Result], Element]

FIGURES: dict[str, Figure] = {
    "time": time_figure,
    "energy": energy_figure,
    "outer-traffic": outer_figure,
    "chip": chip_figure,
    "timeline": timeline_figure,
    "roofline": roofline_figure,
    "traffic": traffic_figure,
    "footprint": footprint_figure,
    "front": front_figure,
}
"""Every figure by the name that the command line knows it by."""


def figure(result: Result, name: str) -> Element:
    """The figure of that name as an ``svg`` element.

    Raises BadInput: there is no figure of that name, or the result lacks what it shows.
    """
    if name not in FIGURES:
        raise BadInput(Fault("FIGURE", ", ".join(FIGURES), repr(name), did_you_mean(name, FIGURES)))
    return FIGURES[name](result)
