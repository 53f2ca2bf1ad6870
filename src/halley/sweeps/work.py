"""The work of a sweep on one design: a lower bound, and the search. Both run in worker processes."""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass

import numpy as np

from halley.cost.checks import check_bursts, check_engines
from halley.cost.evaluate import evaluate
from halley.errors import Infeasible, SearchStopped
from halley.ir.text import parse, to_text
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.groups import FusedGroups
from halley.mapping.infeasible import check_operands, check_outer_memory
from halley.mapping.optimise import optimise
from halley.mapping.plans import Plans
from halley.mapping.problem import Objective, Problem, objective_value
from halley.mapping.space.affine import check_indices
from halley.mapping.space.partitions import every_partition
from halley.rewrite.legality import faults
from halley.workloads import variants

RELATIVE_ROUNDING = 1e-9
"""What a bound may lose, relatively, by sums in another order."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound of the objective of a problem; infinite where no mapping can fit, for the ``reason``."""

    value: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a search found: the objective's ``value`` (infinite without a mapping, for the ``reason``) and its proven ``bound``,
    the ``time`` [s] and ``energy`` [J] of the mapping, the mapping as text with its variant and fused groups, how the search
    ended, and the processor time that it took [s]."""

    value: float
    bound: float
    time: float
    energy: float
    seconds: float
    ended: str
    mapping: str = ""
    variant: str = ""
    groups: str = ""
    reason: str = ""

    @property
    def gap(self) -> float:
        """How far the value may be from the optimum."""
        return self.value / self.bound - 1 if 0 < self.bound < math.inf else 0.0 if self.value == self.bound else math.inf


def lower_bound(problem: Problem) -> LowerBound:
    """The lower bound that a search begins with: over all partitions of the kernels into fused groups, the least sum of the
    compulsory costs of the groups (`halley.mapping.bounds.compulsory`).

    >>> from halley import build, load_chip
    >>> lower_bound(Problem(build("gemm", {"m": 64, "n": 64, "k": 64}), load_chip("edge"))).value > 0
    True

    Raises BadInput: the chip lacks an engine or a memory that the workload needs.
    """
    tried = (problem.workload,) if problem.fixed_variant else variants(problem.workload)
    check_indices(problem.workload)
    check_engines(problem.workload, problem.chip, (op.name for op in problem.workload.ops))
    check_bursts(problem.workload, problem.chip)
    try:
        check_outer_memory(problem)
        check_operands(problem, tried)
    except Infeasible as fault:
        return LowerBound(math.inf, str(fault))
    goals = ("time", "energy") if problem.objective is Objective.EDP else (problem.objective.value,)
    groups, least = FusedGroups(problem, goals, goals, 0.0, SearchCounter()), math.inf
    for workload in tried:
        partitions, _ = every_partition(workload)
        for division in range(len(groups.machines)):
            plans = Plans(workload, partitions, lambda part, own=workload, at=division: groups.of(own, part, at), division)  # type: ignore[misc]
            rows, _ = plans.lower(len(goals))
            least = min(least, float(np.min(rows.prod(axis=1), initial=math.inf)))
    return LowerBound(least * (1 - RELATIVE_ROUNDING))


def search(problem: Problem) -> Answered:
    """The best mapping of a problem. Raises KeyboardInterrupt: Ctrl-C ended the search."""
    gc.collect()  # what the search before was made of: its terms know each other, and take gigabytes
    begun = time.process_time()
    try:
        result = optimise(problem)
    except Infeasible as fault:
        return Answered(math.inf, math.inf, math.inf, math.inf, time.process_time() - begun, "infeasible", reason=str(fault))
    except SearchStopped as stop:
        return Answered(math.inf, 0.0, math.inf, math.inf, time.process_time() - begun, "stopped", reason=str(stop))
    best, proof = result.best, result.best.certificate
    return Answered(
        value=float(proof.value),
        bound=float(proof.bound),
        time=float(best.estimate.time),
        energy=float(best.estimate.energy),
        seconds=time.process_time() - begun,
        ended=proof.status.name.lower(),
        mapping=to_text(best.plan),
        variant=best.variant,
        groups=" / ".join(" + ".join(group) for group in best.groups),
    )


def transferred(problem: Problem, mapping: str, variant: str) -> float:
    """The objective of a mapping that was found on another chip, on this one; infinite where it is not legal or does not fit."""
    workload = next((each for each in variants(problem.workload) if each.variant == variant), problem.workload)
    tree = parse(mapping)
    if faults(tree, workload, problem.chip):
        return math.inf
    cost = evaluate(workload, problem.chip, tree)
    if any(used > problem.chip.memory(name).capacity for name, used in cost.footprint.items()):
        return math.inf
    return float(objective_value(problem.objective, float(cost.time), float(cost.energy)))


def lower_bounds(problems: list[Problem]) -> list[LowerBound]:
    """The lower bounds of several problems, in one task: each alone is too short for one."""
    return [lower_bound(problem) for problem in problems]
