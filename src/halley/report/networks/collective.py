"""Collectives as tables: what one costs, how far it is from the least possible, and why the others are slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from halley.io.networks.collectives import CollectiveAnswer, SingleCollective
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import KINDS
from halley.network.bounds.flow import Flow
from halley.network.bounds.reasons import ranks_of
from halley.network.graph.fabric import Fabric
from halley.network.graph.graph import Graph
from halley.network.graph.measures import power, price
from halley.network.time.choice import busiest_time, bytes_sent, loss
from halley.network.time.collective import CONVENTIONS, CollectiveCost, not_tried
from halley.network.time.contention import Contention
from halley.report.networks.sweep import sweep_document, sweep_table
from halley.report.table import Table, gap_text, ratio
from halley.units import counted, format_bytes, format_energy, format_power, format_rate, format_time

CANDIDATES_SHOWN = 8
"""Candidates that a table shows unless all are asked for."""
LINKS_SHOWN = 3
"""Shared links that are named."""


def end_words(graph: Graph, vertex: int, ranks: Sequence[int] | None = None) -> str:
    """A rank by its number in the network, a switch by its name."""
    if vertex < graph.ranks:
        return f"rank {vertex if ranks is None else ranks[vertex]}"
    return graph.switches[vertex - graph.ranks].name


def link_words(graph: Graph, ends: tuple[int, int], axes: Sequence[Any], ranks: Sequence[int] | None = None) -> str:
    """A link by its ends, its axis and its bandwidth."""
    edge = graph.edges[graph.between[ends]]
    axis = f"axis {axes[edge.dimension].name}, " if axes else ""
    source, target = (end_words(graph, end, ranks) for end in ends)
    return f"{source} to {target} ({axis}{format_rate(edge.link.bandwidth)})"


def limiting_words(answer: SingleCollective) -> str:
    """The link that works longest."""
    cost, team = answer.cost, answer.team
    if cost.limiting is None:
        return "none: nothing moves"
    return link_words(team.graph, cost.limiting, team.axes or (), team.ranks)


def facts(answer: SingleCollective) -> dict[str, str]:
    """What there is to say of the chosen schedule, in words."""
    cost, team, fabric = answer.cost, answer.team, answer.fabric
    delay, money = cost.waiting, price(fabric.graph)
    found = {}
    if answer.software is not None:
        library = answer.software
        remark = f"; {library.remark}" if library.remark else ""
        found["time, measured library"] = f"{format_time(library.time)} by the fit {library.name}{remark}"
        if library.time:
            found["its bus bandwidth"] = format_rate(cost.busbw * cost.time / library.time)
    found["fastest algorithm" if len(answer.candidates) > 1 else "algorithm"] = cost.algorithm
    parts = f"{format_time(delay)} in {counted(cost.steps, 'step')}, {format_time(cost.time - delay)} on links"
    found["time" if answer.software is None else "time at link rates"] = f"{format_time(cost.time)}: {parts}"
    if cost.size:
        found["algorithm bandwidth"] = format_rate(cost.algbw)
        found["bus bandwidth"] = format_rate(cost.busbw)
    found |= {"bound": f"{format_time(cost.bound.value)}: {cost.bound.why}", "gap": gap_text(cost.gap)}
    found["limiting link"] = limiting_words(answer)
    if cost.limiting is not None:
        found["limiting link"] += f", busy {format_time(busiest_time(cost, team))}"
    if answer.optimum is not None:
        found["optimum"] = optimum_words(answer.optimum)
    sent = f"{format_bytes(bytes_sent(cost, team))} leave the busiest rank"
    found["bytes"] = f"{sent}, {format_bytes(cost.byte_hops)} x links in all"
    found["energy"] = f"{format_energy(cost.energy)} on the links; {energy_sources(fabric, team.ranks)}"
    cost_words = "not stated" if money is None else f"{money:,.0f} {fabric.currency}".strip()
    if len(answer.candidates) > 1:
        found |= _not_tried(answer)
    found["network"] = f"price {cost_words}, {format_power(power(fabric.graph))} with all links busy"
    return found


def _not_tried(answer: SingleCollective) -> dict[str, str]:
    """Algorithms that are no candidates here, by what they need."""
    needing: dict[str, list[str]] = {}
    for name, needed in not_tried(answer.cost.kind, answer.team).items():
        needing.setdefault(needed, []).append(name)
    texts = [f"{', '.join(names)}: needs {needed}" for needed, names in needing.items()]
    return {"not tried": "; ".join(texts)} if texts else {}


def optimum_words(flow: Flow) -> str:
    """Time of the best routing, and what is proven of it."""
    proven = f"proven, {flow.status}" if flow.gap else "proven"
    return f"{format_time(flow.time)} over any routes, without start-ups; at least {format_time(flow.bound)} ({proven})"


def energy_sources(fabric: Fabric, ranks: Sequence[int]) -> str:
    """Where the energies come from, of the links that these ranks use among themselves."""
    strides = [math.prod(axis.size for axis in fabric.axes[place + 1 :]) for place in range(len(fabric.axes))]
    pairs = zip(fabric.axes, strides, strict=True)
    idle = {axis.name for axis, stride in pairs if len({rank // stride % axis.size for rank in ranks}) == 1}
    texts = {}
    for path, text in fabric.sources.items():
        keys = path.split(".")
        if keys[-1] == "energy" and not (keys[0] == "axes" and keys[1] in idle):
            texts[text] = path
    return "; ".join(texts) if texts else f"as the file of {fabric.name} states, without a source"


def answer_tables(answer: SingleCollective, everything: bool = False) -> list[Table]:
    """The chosen schedule, and the others, with why they are slower."""
    cost, team = answer.cost, answer.team
    size = f" of {format_bytes(cost.size)}" if cost.size else ""
    whole = team.graph.ranks == answer.fabric.graph.ranks
    among = f"{team.graph.ranks} ranks" if whole else ranks_of(answer.fabric.graph, team.ranks)
    title = f"{cost.kind}{size} ({CONVENTIONS[cost.kind]}) among {among} of {answer.fabric.name}"
    tables = [Table(title, ("", ""), tuple(facts(answer).items()))]
    shown = answer.candidates if everything else answer.candidates[:CANDIDATES_SHOWN]
    if len(answer.candidates) > 1:
        left = len(answer.candidates) - len(shown)
        more = f" ({left} slower ones left out; --all shows them)" if left else ""
        head = ("algorithm", "time", "steps", "bytes a rank", "gap", "why it is slower")
        rows = tuple(_row(item, answer) for item in shown)
        strong = frozenset(place for place, item in enumerate(shown) if item.algorithm == cost.algorithm)
        tables.append(Table(f"Candidates{more}", head, rows, frozenset({1, 2, 3, 4}), strong))
    return tables


def _row(cost: CollectiveCost, answer: SingleCollective) -> tuple[str, ...]:
    sent = format_bytes(bytes_sent(cost, answer.team))
    return (cost.algorithm, format_time(cost.time), str(cost.steps), sent, gap_text(cost.gap), why_slower(cost, answer))


def why_slower(cost: CollectiveCost, answer: SingleCollective) -> str:
    """What a candidate spends more than the fastest, largest part first; what it saves last."""
    fastest = answer.candidates[0]
    if cost is fastest:
        return "fastest"
    parts = loss(cost, fastest, answer.team)
    steps = cost.steps - fastest.steps
    difference = f", {counted(abs(steps), 'step')} {'more' if steps > 0 else 'fewer'}" if steps else ""
    known = (
        (parts.waiting, f"start-ups and latency{difference}"),
        (parts.bytes, "bytes on the busiest link"),
        (parts.idling, "idle time of that link while others work"),
    )
    least = 1e-3 * fastest.time
    ordered = sorted((item for item in known if abs(item[0]) > least), key=lambda item: -item[0])
    said = [f"{'+' if seconds > 0 else '-'}{format_time(abs(seconds))}: {text}" for seconds, text in ordered]
    return "; ".join(said) or "more byte-hops" * (cost.byte_hops > fastest.byte_hops) or "as fast"


def answer_document(answer: SingleCollective) -> dict[str, Any]:
    """The answer as plain data; SI units."""
    cost, team, fabric = answer.cost, answer.team, answer.fabric
    parts = [{"name": part.name, "value": part.value, "why": part.why} for part in cost.bound.parts]
    return {
        "collective": str(cost.kind),
        "size": cost.size,
        "convention": CONVENTIONS[cost.kind],
        "network": fabric.name,
        "ranks": list(team.ranks),
        "startup": answer.startup,
        "chosen": _cost_document(cost, answer) | {"limiting_link": limiting_words(answer), "busiest": busiest_time(cost, team)},
        "bound": {"value": cost.bound.value, "why": cost.bound.why, "parts": parts},
        "candidates": [_cost_document(item, answer) for item in answer.candidates],
        "not_tried": not_tried(cost.kind, team) if len(answer.candidates) > 1 else {},
        "energy_sources": energy_sources(fabric, team.ranks),
        "network_power": power(fabric.graph),
        "network_price": price(fabric.graph),
        "currency": fabric.currency,
        "software": None if answer.software is None else asdict(answer.software),
        "optimum": None
        if answer.optimum is None
        else {"time": answer.optimum.time, "bound": answer.optimum.bound, "status": str(answer.optimum.status)},
    }


def collective_document(answer: CollectiveAnswer) -> dict[str, Any]:
    """All that an answer says, as plain data."""
    document = {} if answer.single is None else answer_document(answer.single)
    if answer.contention is not None:
        document["beside"] = contention_document(answer.contention, answer.question.fabric)
    if answer.sweep is not None:
        document["sweep"] = sweep_document(answer.sweep, answer.swept_software)
    return document


def collective_tables(answer: CollectiveAnswer, everything: bool = False) -> list[Table]:
    """All that an answer says; ``everything``: every candidate."""
    tables = [] if answer.single is None else answer_tables(answer.single, everything)
    if answer.contention is not None:
        tables += contention_tables(answer.contention, answer.question.fabric)
    if answer.sweep is not None:
        tables.append(sweep_table(answer.sweep, answer.title, answer.swept_software))
    return tables


def _cost_document(cost: CollectiveCost, answer: SingleCollective) -> dict[str, Any]:
    return {
        "algorithm": cost.algorithm,
        "source": cost.schedule.source,
        "time": cost.time,
        "waiting": cost.waiting,
        "steps": cost.steps,
        "bytes_per_rank": bytes_sent(cost, answer.team),
        "byte_hops": cost.byte_hops,
        "energy": cost.energy,
        "algbw": cost.algbw,
        "busbw": cost.busbw,
        "gap": cost.gap,
        "why_it_loses": why_slower(cost, answer),
    }


def kind_tables() -> list[Table]:
    """The collectives, and the algorithms with where they come from."""
    kinds = []
    for kind in KINDS:
        serving = [name for name, item in ALGORITHMS.items() if kind in item.kinds]
        kinds.append((str(kind), CONVENTIONS[kind], ", ".join(serving)))
    algorithms = tuple((name, item.sizes, item.description) for name, item in ALGORITHMS.items())
    return [
        Table("Collectives", ("collective", "its size is", "algorithms"), tuple(kinds)),
        Table("Algorithms", ("name", "serves", "what it does, and its source"), algorithms),
    ]


def contention_tables(found: Contention, fabric: Fabric) -> list[Table]:
    """What each execution takes beside the others, and on which links it waits."""
    graph, rows = fabric.graph, []
    for item in found.outcomes:
        waits = [f"{format_time(seconds)} at {_edge(fabric, edge)}" for edge, seconds in list(item.waited.items())[:LINKS_SHOWN]]
        more = f" and {len(item.waited) - LINKS_SHOWN} links more" if len(item.waited) > LINKS_SHOWN else ""
        times = format_time(item.time), format_time(item.alone), ratio(item.slowdown)
        shared = f"{len(item.shared)} of {len(graph.edges)}"
        rows.append((item.name, *times, shared, (", ".join(waits) or "nowhere") + more))
    head = ("running at once", "time", "alone", "slowdown", "shared links", "it waits")
    ends = f"all ended after {format_time(found.end)}; no sharing ends them before {format_time(found.bound)}"
    return [Table(f"Beside each other ({ends})", head, tuple(rows), frozenset({1, 2, 3, 4}))]


def _edge(fabric: Fabric, edge: int) -> str:
    found = fabric.graph.edges[edge]
    return link_words(fabric.graph, (found.source, found.target), fabric.axes)


def contention_document(found: Contention, fabric: Fabric) -> dict[str, Any]:
    """The same as plain data; SI units."""
    outcomes = [
        {
            "name": item.name,
            "start": item.start,
            "time": item.time,
            "alone": item.alone,
            "slowdown": item.slowdown,
            "shared_links": [_edge(fabric, edge) for edge in item.shared],
            "waited": [{"link": _edge(fabric, edge), "time": seconds} for edge, seconds in item.waited.items()],
        }
        for item in found.outcomes
    ]
    return {"executions": outcomes, "end": found.end, "bound": found.bound}
