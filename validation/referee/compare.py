"""One problem on one chip: the search's winner, its time by formula and by simulation, and the same of the next best plans.

Where a mapping takes more than `TASKS` tasks, both times are those of its first iterations (`halley.simulate.truncation`): the
same tree with the same tiles on smaller extents. The two are still times of one and the same mapping.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from validation.referee.neighbours import ten_best
from validation.referee.problems import Problem

from halley import Problem as Search
from halley import optimise
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.mapping.result import Result
from halley.rewrite import legality
from halley.simulate.simulation import Simulation, simulate
from halley.simulate.truncation import truncated_to_tasks
from halley.workloads import variants

TASKS = 100_000
"""About the most tasks of a simulation; a tenth of it for each of the next best plans."""

SECONDS = 30.0
"""Limit of each search; where it is reached, the best so far is the winner."""

GAP = 0.0
"""Gap at which a search ends: the default of users. With 0.002, the winner of GEMM 4096^3 on a100 was simulated 15 % slower than
the optimum."""


@dataclass(frozen=True, slots=True)
class Times:
    """Of one mapping [s], both of the same part of it: ``formula``, ``simulated``. ``iterations``: how many first iterations of
    each dim's outermost loop that part has, 0 for the whole."""

    formula: float
    simulated: float
    tasks: int
    iterations: int

    @property
    def ratio(self) -> float:
        """Simulated over formula: above 1 the formula is too fast."""
        return self.simulated / self.formula


@dataclass(frozen=True, slots=True)
class Compared:
    """A winner. ``formula`` [s] is that of the whole mapping, as the search reports it; ``gap`` that of its certificate."""

    chip: str
    problem: Problem
    workload: Workload
    tree: Node
    formula: float
    gap: float
    times: Times
    searched: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Rivals:
    """Of the ``plans`` that are best by formula, the winner among them, the one that the simulation finds fastest. ``lost``: the
    winner's simulated time over that one's, less one. Times of plans that are simulated in part are scaled to the whole."""

    plans: int
    best: Node
    lost: float


def winner(result: Result) -> tuple[Workload, Node]:
    """The variant of the workload that the best plan maps, and the plan."""
    plan, given = result.best.plan, result.problem.workload
    family = [work for work in variants(given) if work.variant == result.best.variant] or [given]
    return next((work for work in family if not legality.faults(plan, work, result.problem.chip)), given), plan


def times(workload: Workload, chip: Chip, tree: Node, tasks: int = TASKS) -> tuple[Times, Simulation]:
    """Both times of a mapping, or of its first iterations. Raises BadInput: even those take far too many tasks."""
    small = truncated_to_tasks(workload, tree, tasks)
    found = simulate(small.workload, chip, small.tree, limit=4 * tasks)
    formula = float(evaluate(small.workload, chip, small.tree).time)
    return Times(formula, found.time, found.tasks, small.iterations), found


def compare(chip_name: str, problem: Problem, seconds: float = SECONDS, tasks: int = TASKS) -> Compared:
    """Search, cost and simulate. Raises HalleyError where the chip cannot run the problem, or no mapping fits."""
    chip = load_chip(chip_name)
    begin = time.process_time()
    result = optimise(Search(problem.on(chip_name), chip, baselines=False, time_limit=seconds, gap=GAP))
    workload, tree = winner(result)
    searched = time.process_time()
    found, _ = times(workload, chip, tree, tasks)
    formula, gap = float(result.best.estimate.time), result.best.certificate.gap
    spent = time.process_time() - searched
    return Compared(chip_name, problem, workload, tree, formula, gap, found, searched - begin, spent)


def rivals(found: Compared, tasks: int = TASKS // 10) -> Rivals:
    """The plans around a winner, simulated."""
    chip = load_chip(found.chip)
    first, *others = ten_best(found.workload, chip, found.tree)
    told = [(first[0] * _ratio(found, first[1], tasks), first[1])]
    for formula, tree in others:
        with suppress(BadInput):  # too many tasks
            told.append((formula * times(found.workload, chip, tree, tasks)[0].ratio, tree))
    fastest, best = min(told, key=lambda item: item[0])
    return Rivals(len(told), best, told[0][0] / fastest - 1)


def _ratio(found: Compared, tree: Node, tasks: int) -> float:
    """Of the winner; of the larger part that `compare` has simulated, where ``tasks`` are too few for it."""
    try:
        return times(found.workload, load_chip(found.chip), tree, tasks)[0].ratio
    except BadInput:
        return found.times.ratio


def busiest(found: Simulation, count: int = 4) -> Sequence[str]:
    """The servers that work longest in a simulation, with their share of its time."""
    ordered = sorted(found.busy.items(), key=lambda item: -item[1])[:count]
    return [f"{' '.join(server.resource)} {100 * busy / found.time:.0f} %" for server, busy in ordered if busy]
