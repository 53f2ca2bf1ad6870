"""A result as tables of bare numbers (CSV), one row per node, access, plan or point. The heads have units, as in result.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from halley.cost.figures import resource_name
from halley.mapping.result import Result
from halley.report.mapping.activity import totals
from halley.report.mapping.causes import causes
from halley.report.mapping.facts import outer_traffic
from halley.report.mapping.figures import accesses, plans
from halley.report.mapping.tree import lines, path_name
from halley.report.rows import Row


def nodes(result: Result) -> Iterator[Row]:
    """Every node of every plan; energy and bytes of a node hold what is inside."""
    chip = result.problem.chip
    outer = [memory.name for memory in chip.levels[0].memories]
    yield ("plan", "line", "path", "depth", "node", "entered", "time_s", "share", "set_by", "energy_J", "outer_B")
    for plan in plans(result):
        sums = totals(chip, plan.plan, plan.estimate)
        for line in lines(plan.plan, plan.estimate):
            inside = sums[line.path]
            place: Row = (
                plan.name,
                line.number,
                path_name(line.path),
                len(line.path),
                line.text.strip(),
                float(line.cost.entries),
            )
            share = line.time / float(plan.estimate.time)
            bound = resource_name(line.bound) if line.bound else ""
            yield (*place, line.time, share, bound, inside.energy, inside.moved(outer))


def traffic(result: Result) -> Iterator[Row]:
    """Bytes at every memory by tensor and cause."""
    yield ("plan", "memory", "tensor", "cause", "way", "bytes_B")
    for plan in plans(result):
        for key, value in sorted(accesses(plan.estimate).items()):
            yield (plan.name, *key, value)


def resources(result: Result) -> Iterator[Row]:
    """How long each resource works."""
    yield ("plan", "resource", "busy_s", "share")
    for plan in plans(result):
        for resource, busy in plan.estimate.busy.items():
            yield (plan.name, resource_name(resource), float(busy), float(busy) / float(plan.estimate.time))


def parts(result: Result) -> Iterator[Row]:
    """Time by cause and energy by component; each adds up to its whole."""
    yield ("plan", "quantity", "part", "value", "unit")
    for plan in plans(result):
        yield from ((plan.name, "time", cause, value, "s") for cause, value in causes(plan.plan, plan.estimate).items())
        yield from ((plan.name, "energy", part, float(value), "J") for part, value in plan.estimate.energy_by.items())


def comparison(result: Result) -> Iterator[Row]:
    """The baselines and the best plan."""
    yield ("plan", "time_s", "energy_J", "outer_B", "gap", "status")
    for plan in plans(result):
        cost = plan.estimate
        moved = outer_traffic(result.problem.chip, cost)
        yield (plan.name, float(cost.time), float(cost.energy), moved, plan.certificate.gap, plan.status.name.lower())


def front(result: Result) -> Iterator[Row]:
    """The time-energy front, fastest first; heads alone where it was not asked for."""
    yield ("time_s", "energy_J", "edp_Js")
    yield from ((point.time, point.energy, point.time * point.energy) for point in result.front)


SHEETS: dict[str, Callable[[Result], Iterator[Row]]] = {
    "nodes": nodes,
    "traffic": traffic,
    "resources": resources,
    "parts": parts,
    "comparison": comparison,
    "front": front,
}
"""Every table by the name that the command line knows it by."""
