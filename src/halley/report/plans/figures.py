"""Pictures of a plan of training: where time goes beside the alternatives, what memory holds, the roofline of every level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from halley.dfmodel.loads import dfmodel_loads
from halley.dfmodel.plan import DFModelResult
from halley.errors import BadInput, Fault, did_you_mean
from halley.graphs.loads import graph_loads
from halley.graphs.plan import GraphPlan
from halley.report.draw import BarPart, ChartBar, byte_base, colours, stacked
from halley.report.mapping.plots import roofline_plot
from halley.report.mapping.roofline import Peak, Roof, Roofline
from halley.report.plans.cluster import cluster_picture
from halley.report.plans.plan import ACCOUNT, HELD
from halley.report.plans.schedule import schedule_figure
from halley.report.plans.traffic import ROUNDING
from halley.report.plans.words import short_words
from halley.report.table import percent
from halley.sharding.loads import ResourceLoad
from halley.training.plan import Plan, PlanCost, TrainingResult
from halley.units import format_bytes, format_time

FREE = "free"

LEAST_DRAWN_SHARE = 0.005
"""Share of the iteration below which a resource's work is not drawn."""


def account_figure(result: TrainingResult) -> Element:
    """Iteration time of the best plan and of the alternatives by part, on one scale."""
    rows = [(result.plan, result.cost), *((item.plan, item.cost) for item in result.alternatives)]
    used = [key for key in ACCOUNT if any(cost.account.get(key, 0.0) > ROUNDING * cost.time for _, cost in rows)]
    fills = colours([ACCOUNT[key] for key in used])
    bars = [_account(plan, cost, used, place == 0) for place, (plan, cost) in enumerate(rows)]
    return stacked("Breakdown of the iteration time", bars, fills, format_time)


def _account(plan: Plan, cost: PlanCost, keys: list[str], strong: bool) -> ChartBar:
    parts = []
    for key in keys:
        if time := cost.account.get(key, 0.0):
            name = ACCOUNT[key]
            parts.append(BarPart(name, time, f"{name}: {format_time(time)}, {percent(time, cost.time)}"))
    return ChartBar(short_words(plan), tuple(parts), format_time(cost.time), strong)


def memory_figure(result: TrainingResult) -> Element:
    """Memory of a chip of each stage at its peak, by what it holds, against its capacity."""
    cost = result.cost
    fills = colours([HELD.get(key, key) for key in cost.memory[0]]) | {FREE: "#e6e6e6"}
    bars, same = [], list[tuple[int, int, Mapping[str, float]]]()
    for stage, held in enumerate(cost.memory):
        if same and same[-1][2] == held:
            same[-1] = (same[-1][0], stage, held)
        else:
            same.append((stage, stage, held))
    for first, last, held in same:
        total = sum(held.values())
        name = f"stage {first + 1}" if first == last else f"stages {first + 1} to {last + 1}"
        parts = [
            BarPart(HELD.get(key, key), value, f"{name}: {HELD.get(key, key)} {format_bytes(value)}")
            for key, value in held.items()
        ]
        rest = max(cost.capacity - total, 0.0)
        parts.append(BarPart(FREE, rest, f"{name}: {format_bytes(rest)} free"))
        bars.append(ChartBar(name, tuple(parts), f"{format_bytes(total)}, {percent(total, cost.capacity)}"))
    title = f"Memory of a chip at its peak, of {format_bytes(cost.capacity)}"
    return stacked(title, bars, fills, format_bytes, byte_base(cost.capacity))


def roofline_figure(result: TrainingResult) -> Element:
    """What a chip reaches under the limits of its engines, its memory and each network."""
    cost = result.cost
    return roofline_plot(loads_roofline(cost.loads, sum(load.demand for load in cost.loads if load.unit == "op"), cost.time))


def graph_roofline_figure(plan: GraphPlan) -> Element:
    """The same for a sharded graph."""
    found = graph_loads(plan)
    return roofline_plot(loads_roofline(found.loads, found.operations, plan.time))


def dfmodel_roofline_figure(result: DFModelResult) -> Element:
    """The same for a plan in the view of DFModel."""
    found = dfmodel_loads(result)
    return roofline_plot(loads_roofline(found.loads, found.operations, result.time))


def loads_roofline(loads: Sequence[ResourceLoad], operations: float, time: float) -> Roofline:
    """The loads of a chip as roofs and peaks, without resources that hardly work. ``operations`` [op] of the chip in ``time``
    [s]."""
    roofs, peaks = [], []
    for load in loads:
        if load.time < LEAST_DRAWN_SHARE * time:
            continue
        limit, used = operations / load.time, load.time / time
        if load.unit == "op":
            peaks.append(Peak(load.resource, load.capacity, load.time, limit, used))
        else:
            intensity = operations / load.demand
            roofs.append(Roof((load.resource,), load.resource, load.capacity, load.demand, intensity, load.time, limit, used))
    return Roofline(operations, operations / time, tuple(roofs), tuple(peaks))


FIGURES: Mapping[str, Callable[[TrainingResult], Element]] = {
    "account": account_figure,
    "cluster": cluster_picture,
    "schedule": schedule_figure,
    "memory": memory_figure,
    "roofline": roofline_figure,
}
"""By name."""


def figure(result: TrainingResult, name: str) -> Element:
    """A figure as SVG. Raises BadInput: there is none of that name."""
    if name not in FIGURES:
        raise BadInput(Fault("figure", f"one of {', '.join(FIGURES)}", repr(name), did_you_mean(name, FIGURES)))
    return FIGURES[name](result)
