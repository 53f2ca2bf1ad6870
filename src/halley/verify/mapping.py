"""Verification of mappings: legal, fitting, costing what is claimed, taking the simulated time, computing the right thing, and
no worse than what a search finds anew. Nothing that a file says is believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halley.answer import Status
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.figures import UNITS, estimate_document
from halley.cost.own import capacity_faults
from halley.errors import BadInput, HalleyError, Infeasible, SearchStopped
from halley.execute.counters import Counters
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.mapping.baselines import by_op
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem, objective_value
from halley.rewrite import legality
from halley.simulate.simulation import simulate
from halley.simulate.truncation import truncated_to_tasks
from halley.units import format_energy, format_time
from halley.verify.findings import TOLERANCE, Finding, Progress, close, differences, out_of_time
from halley.verify.plain import plain
from halley.verify.reduced import reduced
from halley.workloads.registry import mapped_variant

ROUNDING = 1e-6
"""Largest relative difference between two orders of summing the same terms."""

DEVIATION = 0.15
"""Largest relative difference between the times by formula and by simulation: the longer over the shorter, less one."""

TASKS = 20_000
"""About the most tasks that are simulated."""

SIMULATED = "simulated time"


@dataclass(frozen=True, slots=True)
class CertificateClaim:
    """What a certificate claims: an ``objective`` with its ``value`` and ``bound`` in ``unit``, and that it is ``optimal``."""

    objective: str
    unit: str
    value: float
    bound: float
    optimal: bool


@dataclass(frozen=True, slots=True)
class MappingClaim:
    """A mapping as text (``plan``) with what is claimed of it: ``figures``, as `halley.cost.figures` has them, and a proof."""

    name: str
    workload: Workload
    chip: Chip
    plan: str
    figures: Mapping[str, Any] | None = None
    proof: CertificateClaim | None = None


@dataclass(frozen=True, slots=True)
class PointClaim:
    """A point of a time-energy front: a mapping as text, time [s] and energy [J]."""

    plan: str
    time: float
    energy: float


def mapping_findings(claim: MappingClaim, objective: str = "time") -> Iterator[Finding]:
    """One mapping: legal, fits, costs what is claimed, certificate in order, takes the time that the formulas give, runs and
    computes the right thing."""
    name, chip, workload = claim.name, claim.chip, claim.workload
    try:
        plan = parse(claim.plan, name)
    except HalleyError as error:
        yield Finding(name, "plan reads", False, str(error.faults[0]))
        return
    faults = legality.faults(plan, workload, chip)
    yield Finding(name, "plan is legal", not faults, str(faults[0]) if faults else "every rule of the mapping language holds")
    if faults:
        return  # the other checks mean something for legal plans only
    cost = evaluate(workload, chip, plan)
    overfull = capacity_faults(chip, cost, name)
    yield Finding(name, "plan fits", not overfull, str(overfull[0]) if overfull else "no memory holds more than its capacity")
    if claim.figures is not None:
        different = differences(claim.figures, estimate_document(plan, cost))
        detail = "; ".join(different[:3]) if different else f"costed again, all figures equal to {TOLERANCE:g}"
        yield Finding(name, "figures", not different, detail)
    if claim.proof is not None:
        yield proof_finding(name, claim.proof, objective, cost)
    yield time_finding(name, workload, chip, plan)
    yield from execution_findings(name, workload, chip, plan)


def front_finding(problem: Problem, points: tuple[PointClaim, ...]) -> Finding:
    """Every point of the front is a legal plan that fits and costs what is claimed."""
    chip = problem.chip
    wrong: list[str] = []
    for number, point in enumerate(points, 1):
        where = f"point {number}"
        try:
            plan = parse(point.plan, where)
        except HalleyError as error:
            wrong.append(str(error.faults[0]))
            continue
        workload = mapped_variant(problem.workload, plan)  # the same for a plan of no variant: legality says what is amiss
        if faults := legality.faults(plan, workload, chip):
            wrong.append(f"{where}: {faults[0]}")
            continue
        cost = evaluate(workload, chip, plan)
        wrong += [str(fault) for fault in capacity_faults(chip, cost, where)]
        found = {"time_s": float(cost.time), "energy_J": float(cost.energy)}
        different = differences({"time_s": point.time, "energy_J": point.energy}, found)
        wrong += (f"{where}: {text}" for text in different)
    detail = wrong[0] if wrong else f"{len(points)} points, legal, fitting, figures equal to {TOLERANCE:g}"
    return Finding("front", "figures", not wrong, detail)


def objective_text(unit: str, value: float) -> str:
    """A value of an objective with its unit."""
    match unit:
        case "s":
            return format_time(value)
        case "J":
            return format_energy(value)
    return f"{value:.4g} {unit}"


def proof_finding(name: str, proof: CertificateClaim, objective: str, cost: Estimate) -> Finding:
    """Value as costed, not below the bound, and equal to it where the claim is optimal."""
    unit, wrong = UNITS[objective], ""
    if proof.objective != objective or proof.unit != unit:
        wrong = "objective or unit is not the problem's"
    else:
        value = objective_value(Objective(objective), float(cost.time), float(cost.energy))
        if not close(proof.value, value):
            wrong = f"value {proof.value!r} in the file, {value!r} costed again"
        elif proof.bound > value * (1 + TOLERANCE):
            wrong = f"the bound {proof.bound!r} is above the value {value!r}: not a bound"
        elif proof.optimal and not close(proof.bound, value):
            wrong = f"said to be optimal, yet the bound {proof.bound!r} is below the value {value!r}"
    gap = f"value {objective_text(unit, proof.value)}, bound {objective_text(unit, proof.bound)}"
    return Finding(name, "certificate", not wrong, wrong or gap)


def time_finding(name: str, workload: Workload, chip: Chip, plan: Node) -> Finding:
    """The time by event simulation, which shares no code for counting or timing with the formulas, beside theirs."""
    small = truncated_to_tasks(workload, plan, TASKS)
    if small.iterations and (faults := legality.faults(small.tree, small.workload, chip)):
        return Finding(
            name, SIMULATED, None, f"too long to simulate, and not legal when reduced to its first iterations: {faults[0]}"
        )
    try:
        simulated = simulate(small.workload, chip, small.tree, limit=10 * TASKS).time
    except BadInput as error:
        return Finding(name, SIMULATED, None, f"too large to simulate: {error.faults[0]}")
    formula = float(evaluate(small.workload, chip, small.tree).time)
    ratio = max(simulated / formula, formula / simulated)
    detail = f"{format_time(simulated)} simulated, {format_time(formula)} by formula, {100 * (formula / simulated - 1):+.1f} %: "
    detail += f"ratio {ratio:.3f}, at most {1 + DEVIATION:g}"
    detail += f"; both of the first {small.iterations} iterations of each loop" if small.iterations else ""
    return Finding(name, SIMULATED, ratio <= 1 + DEVIATION, detail)


def execution_findings(name: str, workload: Workload, chip: Chip, plan: Node) -> Iterator[Finding]:
    """The plan at a reduced size on random arrays: outputs against plain NumPy, bytes and operations against the formulas."""
    small, tree = reduced(workload, plan)
    size = " ".join(f"{dim}={extent}" for dim, extent in small.dims.items())
    arrays = random_inputs(small, seed=0)
    try:
        execution = run(small, chip, tree, arrays)
    except HalleyError as error:
        yield Finding(name, "execution", False, f"at {size}: {error.faults[0]}")
        return
    wanted = plain(small, arrays)
    wrong = [
        output
        for output, value in wanted.items()
        if not np.allclose(execution.outputs[output], value, rtol=ROUNDING, atol=ROUNDING * float(np.abs(value).max()))
    ]
    detail = f"{', '.join(wrong)} differs from plain NumPy at {size}" if wrong else f"outputs equal plain NumPy at {size}"
    yield Finding(name, "execution", not wrong, detail)
    different = miscounted(execution.counters, evaluate(small, chip, tree))
    counted = f"bytes, operations and footprint equal the formulas at {size}"
    yield Finding(name, "counts", not different, "; ".join(different[:3]) if different else counted)


def miscounted(counters: Counters, cost: Estimate) -> list[str]:
    """Counts of the interpreter that the formulas do not give, and the other way round."""
    pairs: tuple[tuple[str, Mapping[Any, Any], Mapping[Any, Any]], ...] = (
        ("read", counters.reads, cost.reads()),
        ("written", counters.writes, cost.writes()),
        ("over a link", counters.links, cost.links()),
        ("through a port", counters.ports, cost.ports()),
        ("operations", counters.work, cost.work()),
        ("live", counters.footprint, cost.footprint),
    )
    found = []
    for what, counted, given in pairs:
        for key in sorted({*counted, *given}, key=str):
            a, b = float(counted.get(key, 0)), float(given.get(key, 0))
            if not close(a, b):
                place = " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
                found.append(f"{what}, {place}: {a:,.0f} counted, {b:,.0f} by the formulas")
    return found


def mapping_search_finding(
    name: str, problem: Problem, proof: CertificateClaim, limit: float, progress: Progress | None = None
) -> Finding:
    """Search again, for the best mapping in the same space (some baselines add to it): nothing better exists, and the bound is
    confirmed if there is time.

    ``limit`` [s]: when the search ends.
    """
    what = "search again"
    try:
        again = optimise(replace(problem, baselines=by_op(problem), front=False, time_limit=limit), progress)
    except SearchStopped:
        return out_of_time(name, what, limit)
    except Infeasible as error:
        return Finding(name, what, False, f"no mapping exists, yet the file has one: {error.faults[0]}")
    certificate = again.best.certificate
    found = objective_text(proof.unit, certificate.value)
    if certificate.bound > proof.value * (1 + TOLERANCE):
        least = objective_text(proof.unit, certificate.bound)
        return Finding(name, what, False, f"no mapping is better than {least}, yet the file has one")
    if proof.bound > certificate.value * (1 + TOLERANCE):
        return Finding(name, what, False, f"a mapping with {found} exists, below the file's bound")
    if again.best.status is Status.OPTIMAL:
        return Finding(name, what, True, f"the optimum is {found}, proven anew in {certificate.seconds:.1f} s")
    if again.best.status is Status.WITHIN:
        return Finding(name, what, True, f"{found} anew, within the gap that was asked for; nothing below the bound found")
    return Finding(name, what, None, f"not proven anew within {limit:g} s, nothing below the bound found; raise --time-limit")
