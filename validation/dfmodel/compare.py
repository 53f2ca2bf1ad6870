"""DFModel's published figures of two mappings, and the optima of its formulation, against Halley's under its assumptions.

Times are per layer and sample. Of a published partition's compute time, its solver only saw to it that it does not exceed the
longest of compute, memory and network; so the longest is compared, and memory, network and set-up.
"""

from __future__ import annotations

from collections.abc import Iterator

from validation.dfmodel.case import NS, Mapping, graph, mapping, problem, published
from validation.outcome import Case, Line, Outcome

from halley.formulas.spatial import amortised_time
from halley.spatial.chip import DFMODEL, Assumptions
from halley.spatial.solve import SpatialPlan, best_plan, plan

DIGITS = 1e-12
"""Sums in another order."""

PRINTED = 1e-6
"""What the printing of partitions' times and of intensities hides."""


def costed(chosen: Mapping, assumptions: Assumptions = DFMODEL, bandwidth: float | None = None) -> SpatialPlan:
    """A published mapping."""
    groups = [(group, 0) for group in chosen.groups]
    return plan(problem(chosen.tensor, chosen.stages, assumptions, bandwidth), chosen.tile, groups)


def whole(chosen: Mapping) -> Iterator[Case]:
    """Figures of a whole mapping."""
    found, figures = costed(chosen), chosen.figures
    data = published()
    work = graph(1).work * data["layers"]
    yield Case(f"{chosen.name}: samples in a row", found.samples, chosen.samples)
    yield Case(f"{chosen.name}: layer", found.layer, figures["layer"] * NS)
    yield Case(f"{chosen.name}: iteration", found.iteration, figures["iteration"] * NS)
    yield Case(f"{chosen.name}: utilisation", found.utilisation(work, data["chips"]), figures["utilisation"])


def intensities(chosen: Mapping) -> Iterator[Case]:
    """Operations per byte of memory, and per byte that a chip sends on one of its two links."""
    found, data = costed(chosen), published()
    work = graph(1).work / chosen.tensor
    sent = sum(part.network for part in found.partitions) * data["link_GBs"] / NS
    yield Case(f"{chosen.name}: per byte of memory", work / found.traffic, chosen.figures["memory_intensity"])
    yield Case(f"{chosen.name}: per byte of a link", work / sent, chosen.figures["network_intensity"])


def parts(chosen: Mapping) -> Iterator[Case]:
    """Figures of each partition."""
    found, figures = costed(chosen), chosen.figures
    for number, part in enumerate(found.partitions):
        name = f"{chosen.name}: partition {number + 1}"
        yield Case(f"{name}, memory", part.memory, figures["memory"][number] * NS)
        yield Case(f"{name}, network", part.network, figures["network"][number] * NS)
        yield Case(f"{name}, set-up", float(amortised_time(0.0, part.setup, found.samples)), figures["once"][number] * NS)
        longest = max(figures[each][number] for each in ("compute", "memory", "network"))
        yield Case(f"{name}, longest", part.steady, longest * NS)


def optima() -> Iterator[Case]:
    """The best partitions, proven, against the exact optima of others."""
    for row in published()["optima"]:
        asked = problem(row["tensor"], row["stages"], fused=row["fused"])
        found = best_plan(asked, None if row["tile"] is None else [row["tile"]])
        kind = "fused" if row["fused"] else "kernel by kernel"
        tile = row["tile"] or "free"
        yield Case(f"{kind}, {row['tensor']} x {row['stages']} chips, tile {tile}", found.layer, row["layer"] * NS)


def compare() -> Outcome:
    """All published figures; all must be equal."""
    mappings = [mapping(name) for name in published()["mappings"]]

    def line(quantity: str, cases: Iterator[Case], allowed: float) -> Line:
        return Line(quantity, tuple(cases), allowed, allowed)

    return Outcome(
        "dfmodel",
        (
            line("mappings", (case for each in mappings for case in whole(each)), 1e-11),
            line("partitions", (case for each in mappings for case in parts(each)), PRINTED),
            line("intensities", (case for each in mappings for case in intensities(each)), PRINTED),
            line("optima", optima(), DIGITS),
        ),
    )


__all__ = ["compare", "costed"]
