"""The checks of a result file, each on its own; none believes the file.

A check yields `Check`s. ``passed`` is None where there was not time enough to tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console

from halley.answer import Status
from halley.cli.errors import LimitReached
from halley.cli.estimate import capacity_faults
from halley.cli.plain import plain
from halley.cli.reduced import reduced
from halley.cli.solve import solve
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import BadInput, HalleyError
from halley.execute.counters import Counters
from halley.execute.interpreter import random_inputs, run
from halley.io.results.models import SolutionModel
from halley.io.results.result import UNITS, Record, estimate_document
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node, walk
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.mapping.optimise import objective_value
from halley.report.mapping.facts import objective_text
from halley.rewrite import legality
from halley.simulate.simulation import simulate
from halley.simulate.truncation import truncated_to_tasks
from halley.units import format_time
from halley.workloads import variants

TOLERANCE = 1e-9
"""Largest relative difference between two ways to the same number."""
ROUNDING = 1e-6
"""Largest relative difference between two orders of summing the same terms."""

DEVIATION = 0.15
"""Largest relative difference between the times by formula and by simulation: the longer over the shorter, less one."""
TASKS = 20_000
"""About the most tasks that are simulated."""
SIMULATED = "simulated time"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    plan: str
    what: str
    passed: bool | None
    detail: str


def solution_checks(record: Record, model: SolutionModel) -> Iterator[Check]:
    """Checks of one plan: legal, fits, costs what the file says, certificate in order, takes the time that the formulas give,
    runs and computes the right thing."""
    name, chip = model.name, record.problem.chip
    workload = record.workload(model)
    try:
        plan = record.plan(model)
    except HalleyError as error:
        yield Check(name, "plan reads", False, str(error.faults[0]))
        return
    faults = legality.faults(plan, workload, chip)
    yield Check(name, "plan is legal", not faults, str(faults[0]) if faults else "every rule of the mapping language holds")
    if faults:
        return  # the other checks mean something for legal plans only
    cost = evaluate(workload, chip, plan)
    overfull = capacity_faults(chip, cost, name)
    yield Check(name, "plan fits", not overfull, str(overfull[0]) if overfull else "no memory holds more than its capacity")
    different = differences(model.estimate.model_dump(), estimate_document(plan, cost))
    detail = "; ".join(different[:3]) if different else f"costed again, all figures equal to {TOLERANCE:g}"
    yield Check(name, "figures", not different, detail)
    yield certificate_check(record, model, cost)
    yield time_check(name, workload, chip, plan)
    yield from execution_checks(record, name, workload, plan)


def front_check(record: Record) -> Check:
    """Every point of the front is a legal plan that fits and costs what the file says."""
    chip, points = record.problem.chip, record.content.front
    wrong: list[str] = []
    for number, point in enumerate(points, 1):
        where = f"point {number}"
        try:
            plan = parse(point.plan, f"{record.name}: {where}")
        except HalleyError as error:
            wrong.append(str(error.faults[0]))
            continue
        ops = {node.op for _, node in walk(plan) if isinstance(node, Compute)}
        family = [work for work in variants(record.problem.workload) if {op.name for op in work.ops} == ops]
        workload = family[0] if family else record.problem.workload  # of no variant: legality says what is amiss
        if faults := legality.faults(plan, workload, chip):
            wrong.append(f"{where}: {faults[0]}")
            continue
        cost = evaluate(workload, chip, plan)
        wrong += [str(fault) for fault in capacity_faults(chip, cost, where)]
        found = {"time_s": float(cost.time), "energy_J": float(cost.energy)}
        wrong += differences({"time_s": point.time_s, "energy_J": point.energy_J}, found, f"{where}: ")
    detail = wrong[0] if wrong else f"{len(points)} points, legal, fitting, figures equal to {TOLERANCE:g}"
    return Check("front", "figures", not wrong, detail)


def differences(saved: Mapping[str, object], found: Mapping[str, object], path: str = "") -> list[str]:
    """Where two records differ by more than the tolerance."""
    told = []
    for key in sorted({*saved, *found}):
        a, b, at = saved.get(key, 0.0), found.get(key, 0.0), f"{path}{key}"
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            told += differences(a if isinstance(a, Mapping) else {}, b if isinstance(b, Mapping) else {}, f"{at}.")
        elif isinstance(a, (int, float)) and isinstance(b, (int, float)) and not close(a, b):
            told.append(f"{at}: {a!r} in the file, {b!r} costed again")
    return told


def close(a: float, b: float, tolerance: float = TOLERANCE) -> bool:
    """Equal to a relative tolerance."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def certificate_check(record: Record, model: SolutionModel, cost: Estimate) -> Check:
    """Value as costed, not below the bound, and equal to it where the file says optimal."""
    certificate, goal = model.certificate, record.problem.objective
    value = objective_value(goal, float(cost.time), float(cost.energy))
    bound, claimed = certificate.bound, certificate.value
    wrong = ""
    if certificate.objective != goal.value or bound.unit != UNITS[goal.value] or claimed.unit != UNITS[goal.value]:
        wrong = "objective or unit is not the problem's"
    elif not close(claimed.value, value):
        wrong = f"value {claimed.value!r} in the file, {value!r} costed again"
    elif bound.value > value * (1 + TOLERANCE):
        wrong = f"the bound {bound.value!r} is above the value {value!r}: not a bound"
    elif model.status == "optimal" and not close(bound.value, value):
        wrong = f"said to be optimal, yet the bound {bound.value!r} is below the value {value!r}"
    gap = f"value {objective_text(goal.value, value)}, bound {objective_text(goal.value, bound.value)}"
    return Check(model.name, "certificate", not wrong, wrong or gap)


def time_check(name: str, workload: Workload, chip: Chip, plan: Node) -> Check:
    """The time by event simulation, which shares no code for counting or timing with the formulas, beside theirs."""
    small = truncated_to_tasks(workload, plan, TASKS)
    if small.iterations and (faults := legality.faults(small.tree, small.workload, chip)):
        return Check(name, SIMULATED, None, f"too long to simulate, and no mapping when cut to its first iterations: {faults[0]}")
    try:
        simulated = simulate(small.workload, chip, small.tree, limit=10 * TASKS).time
    except BadInput as error:
        return Check(name, SIMULATED, None, f"too large to simulate: {error.faults[0]}")
    formula = float(evaluate(small.workload, chip, small.tree).time)
    detail = f"{format_time(simulated)} simulated, {format_time(formula)} by formula, {100 * (formula / simulated - 1):+.1f} %"
    detail += f", both of the first {small.iterations} iterations of each loop" if small.iterations else ""
    return Check(name, SIMULATED, max(simulated / formula, formula / simulated) <= 1 + DEVIATION, detail)


def execution_checks(record: Record, name: str, workload: Workload, plan: Node) -> Iterator[Check]:
    """The plan at a reduced size on random arrays: outputs against plain NumPy, bytes and operations against the formulas."""
    chip = record.problem.chip
    small, tree = reduced(workload, plan)
    size = " ".join(f"{dim}={extent}" for dim, extent in small.dims.items())
    arrays = random_inputs(small, seed=0)
    try:
        execution = run(small, chip, tree, arrays)
    except HalleyError as error:
        yield Check(name, "execution", False, f"at {size}: {error.faults[0]}")
        return
    wanted = plain(small, arrays)
    wrong = [
        output
        for output, value in wanted.items()
        if not np.allclose(execution.outputs[output], value, rtol=ROUNDING, atol=ROUNDING * float(np.abs(value).max()))
    ]
    detail = f"{', '.join(wrong)} differs from plain NumPy at {size}" if wrong else f"outputs equal plain NumPy at {size}"
    yield Check(name, "execution", not wrong, detail)
    different = miscounted(execution.counters, evaluate(small, chip, tree))
    counted = f"bytes, operations and footprint equal the formulas at {size}"
    yield Check(name, "counts", not different, "; ".join(different[:3]) if different else counted)


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
    told = []
    for what, counted, given in pairs:
        for key in sorted({*counted, *given}, key=str):
            a, b = float(counted.get(key, 0)), float(given.get(key, 0))
            if not close(a, b):
                place = " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
                told.append(f"{what}, {place}: {a:,.0f} counted, {b:,.0f} by the formulas")
    return told


def search_check(record: Record, limit: float, console: Console) -> Check:
    """Search again, for the best plan alone: nothing better exists, and the bound is confirmed if there is time."""
    best, goal = record.content.best, record.problem.objective
    name, what = best.name, "search again"
    try:
        again = solve(replace(record.problem, baselines=False, front=False, time_limit=limit), console, "proving again")
    except LimitReached:
        return Check(name, what, None, f"no mapping found within {limit:g} s; raise --time-limit")
    certificate, claimed = again.best.certificate, best.certificate
    found = objective_text(goal.value, certificate.value)
    if certificate.bound > claimed.value.value * (1 + TOLERANCE):
        least = objective_text(goal.value, certificate.bound)
        return Check(name, what, False, f"no mapping is better than {least}, yet the file has one")
    if claimed.bound.value > certificate.value * (1 + TOLERANCE):
        return Check(name, what, False, f"a mapping with {found} exists, below the file's bound")
    if again.best.status is Status.OPTIMAL:
        return Check(name, what, True, f"the optimum is {found}, proven anew in {certificate.seconds:.1f} s")
    return Check(name, what, None, f"not proven anew within {limit:g} s, nothing below the bound found; raise --time-limit")
