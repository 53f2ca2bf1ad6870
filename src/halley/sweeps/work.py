"""The work of a sweep on one design: a lower bound, and the search. Both run in worker processes."""

from __future__ import annotations

import gc
import math
import time

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
from halley.sweeps.answered import RELATIVE_ROUNDING, Answered, LowerBound
from halley.sweeps.study import Question
from halley.workloads import variants


def lower_bound(problem: Question) -> LowerBound:
    """The lower bound that a search begins with; of mappings, over all partitions of the kernels into fused groups, the least sum
    of the compulsory costs of the groups (`halley.mapping.bounds.compulsory`).

    >>> from halley import build, load_chip
    >>> lower_bound(Problem(build("gemm", {"m": 64, "n": 64, "k": 64}), load_chip("edge"))).value > 0
    True

    Raises BadInput: the chip lacks an engine or a memory that the workload needs.
    """
    if not isinstance(problem, Problem):
        return problem.lower_bound()
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


def search(problem: Question) -> Answered:
    """The best mapping or plan of a problem. Raises KeyboardInterrupt: Ctrl-C ended the search."""
    gc.collect()  # what the search before was made of: its terms know each other, and take gigabytes
    if not isinstance(problem, Problem):
        return problem.search()
    begun = time.process_time()
    try:
        result = optimise(problem)
    except Infeasible as fault:
        return Answered.without(math.inf, time.process_time() - begun, "infeasible", str(fault))
    except SearchStopped as stop:
        return Answered.without(0.0, time.process_time() - begun, "stopped", str(stop))
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


def transferred(problem: Question, mapping: str, variant: str) -> float:
    """The objective of a mapping that was found on another chip, on this one; infinite where it is not legal or does not fit, and
    of plans."""
    if not isinstance(problem, Problem):
        return math.inf
    workload = next((each for each in variants(problem.workload) if each.variant == variant), problem.workload)
    tree = parse(mapping)
    if faults(tree, workload, problem.chip):
        return math.inf
    cost = evaluate(workload, problem.chip, tree)
    if any(used > problem.chip.memory(name).capacity for name, used in cost.footprint.items()):
        return math.inf
    return float(objective_value(problem.objective, float(cost.time), float(cost.energy)))


def lower_bounds(problems: list[Question]) -> list[LowerBound]:
    """The lower bounds of several problems, in one task: each alone is too short for one."""
    return [lower_bound(problem) for problem in problems]
