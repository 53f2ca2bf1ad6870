"""What Halley says of a case, next to what Timeloop said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validation.timeloop.convention import Counts, compute_cycles, counts, cycles, energies, instances
from validation.timeloop.convert import WORD, clock, from_timeloop, machine, workload
from validation.timeloop.files import Case, read_case

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate

PRINTED = 0.005
"""Timeloop's table of energies is in pJ, rounded to two decimals."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``tolerance`` is how much Timeloop's own rounding hides; 0 for counts and cycles."""

    case: str
    level: str
    tensor: str
    quantity: str
    halley: float
    timeloop: float
    tolerance: float = 0.0

    @property
    def agrees(self) -> bool:
        return abs(self.halley - self.timeloop) <= self.tolerance


def compare(folder: Path) -> list[Row]:
    """Every figure of the case in the folder: counts, instances, cycles by level, energies, and the footprint of each level."""
    case = read_case(folder)
    chip = machine(case.architecture, case.blocks)
    estimate = evaluate(workload(case.problem), chip, from_timeloop(case.blocks, case.architecture, case.problem))
    return [*_count_rows(case, estimate), *_cost_rows(case, estimate, clock(chip))]


def _count_rows(case: Case, estimate: Estimate) -> Iterator[Row]:
    found = counts(estimate, case.problem.output)
    working = instances(case)
    stored: dict[str, float] = {}
    reported: set[tuple[str, str]] = set()
    for level in case.figures["levels"]:
        for tensor, figures in level["dataspaces"].items():
            place = (case.name, level["name"], tensor)
            reported.add((level["name"], tensor))
            count = found.get((level["name"], tensor), Counts())
            yield Row(*place, "reads", count.reads, figures["reads"])
            yield Row(*place, "fills", count.fills, figures["fills"])
            yield Row(*place, "updates", count.updates, figures["updates"])
            yield Row(*place, "temporal_reductions", count.temporal_reductions, figures["temporal_reductions"])
            yield Row(*place, "instances", working[level["name"]], figures["instances"])
            stored[level["name"]] = stored.get(level["name"], 0) + figures["utilized_capacity"]
    for memory, tensor in found.keys() - reported:
        yield Row(case.name, memory, tensor, "accesses that Timeloop does not have", 1, 0)
    for memory, words in stored.items():
        yield Row(case.name, memory, "", "utilized_capacity", float(estimate.footprint[memory]) / WORD, words)


def _cost_rows(case: Case, estimate: Estimate, frequency: float) -> Iterator[Row]:
    found = counts(estimate, case.problem.output)
    compute = compute_cycles(estimate, frequency)
    macs = int(estimate.work()["mac"])
    by_level = cycles(found, case.architecture, compute) | {case.architecture.arithmetic: compute}
    by_tensor = energies(found, case)
    for level in case.figures["levels"]:
        yield Row(case.name, level["name"], "", "cycles", by_level[level["name"]], level["cycles"])
        for tensor, figures in level["dataspaces"].items():
            energy = by_tensor.get((level["name"], tensor), 0.0)
            rounding = _rounding(figures["energy_total_pJ"])
            yield Row(case.name, level["name"], tensor, "energy_total_pJ", energy, figures["energy_total_pJ"], rounding)
    mac_energy = macs * case.mac_energy
    summary = case.figures["summary"]
    yield Row(case.name, "", "", "computes", macs, summary["computes"])
    yield Row(case.name, "", "", "cycles", max(by_level.values()), summary["cycles"])
    total = sum(by_tensor.values()) + mac_energy
    rounding = _rounding(summary["energy_pJ_sum"], terms=len(by_tensor) + 1)
    yield Row(case.name, "", "", "energy_pJ_sum", total, summary["energy_pJ_sum"], rounding)


def _rounding(figure: float, terms: int = 1) -> float:
    """Half of the last printed digit of each term, and the rounding of binary fractions (1e-14 relative)."""
    return terms * PRINTED + 1e-14 * terms * abs(figure)


__all__ = ["Row", "compare"]
