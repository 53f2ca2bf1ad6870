"""A result as one self-contained HTML file, which makes no requests and can be printed."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from halley.answer import Status
from halley.cost.events import Path
from halley.cost.figures import resource_name
from halley.io.results.result import result_document
from halley.ir.mapping import Node, walk
from halley.mapping.result import Result, Solution
from halley.report import document
from halley.report.hardware import chip_tables
from halley.report.html_tables import table
from halley.report.mapping.activity import Totals, event_text, node_name, totals
from halley.report.mapping.facts import (
    certificate_tables,
    collectives,
    comparison,
    energy_table,
    front_table,
    objective_text,
    outer_name,
    outer_traffic,
    plan_text,
    power_text,
    time_table,
    verdict,
    workload_text,
)
from halley.report.mapping.figures import figure
from halley.report.mapping.reasons import Reasons, all_reasons, headline, reasons_table
from halley.report.mapping.tree import TreeLine, lines, path_name, phase_paths
from halley.report.markup import el
from halley.report.table import Table, gap_text, percent, ratio
from halley.units import format_bytes, format_energy, format_time

SECTIONS: tuple[tuple[str, str], ...] = (
    ("comparison", "Comparison"),
    ("mapping", "Mapping"),
    ("timeline", "Timeline"),
    ("limits", "Limits"),
    ("traffic", "Traffic"),
    ("front", "Time-energy front"),
    ("certificate", "Certificate"),
    ("chip", "Chip"),
)
"""Identifier and title of each section, in order."""
LONGEST_TITLE = 160
"""Most characters of a title; a longer one is shortened, and shown in full below."""


def page(result: Result, provenance: Mapping[str, str] | None = None) -> str:
    """The report of a result as HTML. ``provenance`` is that of its file, if it has one.

    The numbers of result.json stand in the page as JSON, in the element ``#result``.

    Raises BadInput: the result cannot be written as a file (a workload made by hand).
    """
    data = result_document(result)
    if provenance is not None:
        data["provenance"] = dict(provenance)
    made = data["provenance"]
    title = f"{_question(result)} on {result.problem.chip.label}"
    contents = {identifier: content for identifier, content in _sections(result) if content}
    sections = [
        el("section", el("h2", heading), *contents[identifier], id=identifier)
        for identifier, heading in SECTIONS
        if identifier in contents
    ]
    footer = (
        f"Halley {made['halley']}, Python {made['python']}; solved {made['created']}. All plans were costed again for this page."
    )
    return document.document(title, _header(result, title), sections, data, "result.json", footer)


def _question(result: Result) -> str:
    workload = result.problem.workload
    return workload_text(workload.name, workload.parameters)


# --- header ---------------------------------------------------------------------------------------------------------------


def _header(result: Result, title: str) -> list[Element]:
    best, problem = result.best, result.problem
    proven = best.status in (Status.OPTIMAL, Status.WITHIN)
    mark = "\N{WARNING SIGN} Not proven optimal:"
    if proven:
        close = "optimal" if best.status is Status.OPTIMAL else f"within {gap_text(best.certificate.gap)} of the best"
        mark = f"\N{CHECK MARK} Proven {close}:"
    sentence = verdict(best.certificate).partition(": ")[2]
    effort = f"{best.certificate.costed:,} mappings costed in {best.certificate.seconds:.1f} s"
    kind = "verdict" if proven else "verdict open"
    return [
        el("p", f"Halley report, objective: {problem.objective.value}", class_="kicker"),
        # a graph that the user wrote has its lines in its name
        el("h1", title if len(title) <= LONGEST_TITLE else f"{problem.workload.name} on {problem.chip.label}"),
        *([el("p", el("code", title))] if len(title) > LONGEST_TITLE else []),
        el("p", plan_text(best), class_="faint"),
        el("div", el("strong", mark), f"{sentence}; {effort}", class_=kind, id="verdict"),
        el("dl", *_tiles(result), class_="tiles"),
    ]


def _tiles(result: Result) -> list[Element]:
    best, chip = result.best, result.problem.chip
    cost, certificate = best.estimate, best.certificate
    time, energy = float(cost.time), float(cost.energy)
    busiest, busy = max(cost.busy.items(), key=lambda item: float(item[1]), default=((), 0.0))
    gap = f"{100 * certificate.gap:.2f} %" if certificate.bound > 0 else "unknown"
    tiles = [
        _tile("time", format_time(time), "time_s"),
        _tile("energy", format_energy(energy), "energy_J", power_text(chip, cost)),
        _tile(f"{outer_name(chip)} traffic", format_bytes(outer_traffic(chip, cost)), "outer_B"),
        _tile("busiest resource", percent(float(busy), time), "busy", resource_name(busiest) if busiest else "none"),
        _tile("gap to the bound", gap, "gap", f"bound {objective_text(certificate.objective, certificate.bound)}"),
    ]
    for index, baseline in enumerate(result.baselines):
        tiles.append(_tile(f"speed-up over {baseline.name}", ratio(float(baseline.estimate.time) / time), f"speedup-{index}"))
    return tiles


def _tile(name: str, value: str, key: str, note: str = "") -> Element:
    shown = el("dd", el("span", value, data_value=key))
    if note:
        shown.append(el("small", note))
    return el("div", el("dt", name), shown)


# --- sections -------------------------------------------------------------------------------------------------------------


def _sections(result: Result) -> tuple[tuple[str, list[Element]], ...]:
    return (
        ("comparison", _comparison(result)),
        ("mapping", _mapping(result)),
        ("timeline", _timeline(result)),
        ("limits", _limits(result)),
        ("traffic", _traffic(result)),
        ("front", _front(result)),
        ("certificate", _certificate(result)),
        ("chip", _chip(result)),
    )


def _picture(result: Result, name: str, words: str) -> Element:
    return document.framed(figure(result, name), words, f"figure-{name}")


def _comparison(result: Result) -> list[Element]:
    best, outer = result.best, outer_name(result.problem.chip)
    made = []
    if result.baselines:
        text = "The best plan and the best plans of restricted spaces, each searched with the same limits."
        made += [el("p", text, class_="lead"), table(comparison(result), titled=False)]
        made += [el("h3", "Why the plans differ"), *map(_reasons, all_reasons(result))]
    why = (
        "From the left: the work of the engines; the time by which the busiest port of a phase exceeds it; first fills and last "
        "drains; exposed collectives. The parts add up to the time."
    )
    times = time_table(best.plan, best.estimate, as_drawn=True)
    missing = f"Bytes read and written at {outer} by tensor: tensors that stay on the chip have no part in the bar."
    made += [
        el("h3", "Where the time goes"),
        _picture(result, "time", why),
        el("h3", f"What passes {outer}"),
        _picture(result, "outer-traffic", missing),
        el("h3", "Where the energy goes"),
        _picture(result, "energy", "By component; static power flows independently of activity."),
        el("h3", "The best plan in numbers"),
        el("div", table(times), table(energy_table(best.estimate)), class_="pair keep"),
    ]
    used = tuple((plan.name, "; ".join(collectives(plan.plan)) or "none") for plan in (*result.baselines, best))
    if any(text != "none" for _, text in used):
        made.append(table(Table("Collectives", ("plan", "collectives"), used), "pairs keep"))
    return made


def _reasons(found: Reasons) -> Element:
    shown = reasons_table(found)
    summary = el("summary", f"{shown.title}: {headline(found)}")
    return el("details", summary, table(shown, "pairs", titled=False))


def _mapping(result: Result) -> list[Element]:
    best = result.best
    about = (
        "The loop nest that every member runs. The time of a phase includes its first fill and last drain; that of other nodes "
        "does not. Energy and traffic include all inner nodes; energy excludes the static part."
    )
    tools = (el("button", "Unfold all", id="unfold", type="button"), el("button", "Fold all", id="fold", type="button"))
    words = (
        "The chip from its outermost memory down. Each memory lists the tiles that it holds. Blue bars say how full it is at "
        "most, red bars for what share of the time a port, link or engine is busy. Filled squares are members at work."
    )
    drawn = _picture(result, "chip", words)
    return [drawn, el("p", about, class_="lead"), el("div", *tools, class_="tools"), tree(result, best)]


def tree(result: Result, plan: Solution) -> Element:
    """The mapping, one node a row, with its time, energy and traffic at the outermost memories."""
    chip, cost = result.problem.chip, plan.estimate
    sums, whole = totals(chip, plan.plan, cost), float(cost.time)
    outer = [memory.name for memory in chip.levels[0].memories]
    parents = {path[:-1] for path, _ in walk(plan.plan) if path}
    phases, own = phase_paths(plan.plan), _own(plan)
    heads = (
        ("#", "right"),
        ("node", ""),
        ("time", "right"),
        ("share", ""),
        ("set by", ""),
        ("energy", "right"),
        (outer_name(chip), "right"),
    )
    rows = []
    for line in lines(plan.plan, cost):
        inner = sums[line.path]
        depth = len(line.path)
        button = el(
            "button",
            "\N{BLACK DOWN-POINTING SMALL TRIANGLE}",
            class_="fold" if line.path in parents else "fold leaf",
            type="button",
        )
        button.set("aria-expanded", "true")
        button.set("aria-label", f"fold line {line.number}")
        moved = inner.moved(outer)
        share = el("i", style=f"width:{100 * line.time / whole:.2f}%")
        cells = (
            el("td", str(line.number), class_="right faint"),
            el("td", button, line.text.strip(), class_="node", style=f"padding-left:{14 * depth}px"),
            el("td", format_time(line.time), class_="right", data_value="time"),
            el("td", share, el("span", percent(line.time, whole)), class_="share"),
            el("td", resource_name(line.bound) if line.bound else ""),
            el("td", format_energy(inner.energy), class_="right", data_value="energy"),
            el("td", format_bytes(moved) if moved else "", class_="right", data_value="traffic"),
        )
        row = el(
            "tr", *cells, data_depth=depth, data_path=path_name(line.path), data_tip=_tip(line, inner, own, line.path in phases)
        )
        rows.append(row)
    head = el("thead", el("tr", *(el("th", name, class_=kind) for name, kind in heads)))
    return el("table", head, el("tbody", *rows), class_="tree")


def _own(plan: Solution) -> dict[Path, list[str]]:
    """What each node itself does, in words."""
    kinds: dict[Path, Node] = dict(walk(plan.plan))
    made: dict[Path, list[str]] = {}
    for event in plan.estimate.events:
        if text := event_text(event):
            made.setdefault(event.path, []).append(text)
    return {path: found for path, found in made.items() if path in kinds}


def _tip(line: TreeLine, inner: Totals, own: Mapping[Path, list[str]], phase: bool) -> str:
    cost = line.cost
    said = [f"{line.text.strip()} (line {line.number}, path {path_name(line.path)})"]
    said.append(f"entered {float(cost.entries):,.0f} times by the first member of each axis")
    if phase:
        said.append(f"a phase: {format_time(float(cost.time))}")
    busiest = sorted(((float(value), resource_name(name)) for name, value in cost.busy.items()), reverse=True)[:4]
    said += [f"busy: {name} {format_time(value)}" for value, name in busiest if value > 0]
    said.append(f"energy of all inside: {format_energy(inner.energy)}")
    said += own.get(line.path, [])
    return "\n".join(said)


def _timeline(result: Result) -> list[Element]:
    text = (
        "Busy time of each resource in each phase. The model gives durations within a phase, not start times: fills are drawn as "
        "early and drains as late as possible, and all rounds of a loop as one. Every lane adds up to the busy time of its "
        "resource. Click a phase to zoom."
    )
    back = document.zoomed_out()
    words = "Memory ports have the colour of their tensor; networks are red, ports with several tensors grey."
    return [el("p", text, class_="lead"), back, _picture(result, "timeline", words), table(_phases(result.best))]


def _phases(plan: Solution) -> Table:
    """The phases with what sets their time."""
    found = [line for line in lines(plan.plan, plan.estimate) if line.path in phase_paths(plan.plan)]
    whole = float(plan.estimate.time)
    rows = tuple(
        (
            "\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}"
            * sum(line.path[: len(other.path)] == other.path for other in found if other is not line)
            + node_name(line.node),
            str(line.number),
            f"{float(line.cost.entries):,.0f}",
            format_time(line.time),
            percent(line.time, whole),
            format_time(float(line.cost.entries) * float(line.cost.limiting.ramp_up + line.cost.limiting.ramp_down)),
            resource_name(line.bound) if line.bound else "the work inside",
        )
        for line in found
    )
    heads = ("phase", "line", "entered", "time", "share", "first fills and last drains", "set by")
    return Table("Phases", heads, rows, frozenset({1, 2, 3, 4, 5}))


def _limits(result: Result) -> list[Element]:
    text = f"{document.ROOFLINE_WORDS} A mark below its line shows the effect of latency or of uneven members."
    counts = "Operations are 2 per multiply-accumulate and 1 per elementary function."
    return [el("p", text, class_="lead"), _picture(result, "roofline", counts)]


def _traffic(result: Result) -> list[Element]:
    words = "By tensor, then by cause (fill, drain, operand, ...). Each bar is 100 % of its port; its size is written behind it."
    return [
        el("h3", "Through each memory"),
        _picture(result, "traffic", words),
        el("h3", "Largest footprint"),
        _picture(result, "footprint", "Bytes live at once in one instance of each memory, of its capacity."),
    ]


def _front(result: Result) -> list[Element]:
    if not result.front:
        return []
    known = "no plan of the space" if result.status is Status.OPTIMAL else "no plan that was found"
    if len(result.front) == 1:
        return [el("p", f"One plan alone: {known} is faster, and none is lower in energy.", class_="lead")]
    text = f"{len(result.front)} plans; {known} is both faster and lower in energy than one of them."
    rows = el("details", el("summary", "All points"), table(front_table(result.front), titled=False), class_="small")
    return [
        el("p", text, class_="lead"),
        _picture(result, "front", "Diamonds are the best plan for the objective, and the baselines."),
        rows,
    ]


def _certificate(result: Result) -> list[Element]:
    whole, *lists = certificate_tables(result.best.certificate)
    listed = (el("details", el("summary", each.title), table(each, titled=False)) for each in lists)
    return [table(whole, titled=False), *listed]


def _chip(result: Result) -> list[Element]:
    chip = result.problem.chip
    made = [el("p", f"{chip.name}: {chip.description}")] if chip.description else []
    return [*made, el("details", el("summary", "Every number with its source"), *map(table, chip_tables(chip)), class_="small")]
