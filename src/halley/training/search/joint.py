"""The best plan with kernels that are searched on the chip: one proof over plans and mappings.

Times of products, of attention and of groups of fused kernels start as lower bounds, so the best plan's time bounds all plans with any mappings from below.
The kernels of that plan are searched, and the plans again with their exact times, until the best plan has none that was not.
Shortest paths with costly edges are found like this (Dellin and Srinivasa, "A Unifying Formalism for Shortest Path Problems with
Expensive Edge Evaluations via Lazy Best-First Search and Edge Selectors", 2016).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from halley.answer import Status, relative_gap
from halley.errors import BadInput, Fault, SearchStopped
from halley.kernels.machine import PEAK
from halley.kernels.searched import AnyKernel, AttentionShape, KernelCost, KernelShape, KernelStore, SearchedKernels, shape_of
from halley.sharding.decisions import decisions_of
from halley.training.groups import sharded_kernels
from halley.training.part_costs import training_graphs
from halley.training.plan import Plan, PlanCost, TrainingProblem, TrainingResult
from halley.training.search.decided import decided_cost
from halley.training.search.search import OPTIMAL_GAP, best_training_plan

Progress = Callable[[str, float], None]

KERNELS = "kernels"
"""Name of the number of searched kernels in a certificate's effort."""

ASKED = "asked"
"""Name of the number of kernels whose times plans asked for, of those that can be searched."""


def best_joint_plan(
    problem: TrainingProblem,
    progress: Progress | None = None,
    limit: float | None = None,
    store: KernelStore | None = None,
) -> TrainingResult:
    """The fastest plan of a problem over all mappings of its kernels, over all memories of a chip that can hold its tensors.

    ``progress`` and ``limit`` [s]: as in `halley.training.search.search.best_training_plan`; ``store``: kernels that were
    searched before, and where those of this search go. The problem's efficiency is not used: other kernels take their times from
    formulas with the rates of the data sheet.

    Raises BadInput: the chip runs kernels side by side, or as `best_training_plan`; Infeasible: no plan fits; SearchStopped: none
    was found in time.
    """
    chip = problem.system.chip
    if chip.streams:
        raise BadInput(Fault("--kernels searched", "a chip that runs one kernel at a time", f"{chip.name}", "leave it out"))
    homes = [problem.home] if problem.home else list(problem.homes)
    end = math.inf if limit is None else time.perf_counter() + limit
    found = []
    for place, home in enumerate(homes):
        each = replace(problem, home=home, efficiency=PEAK)
        known = dict(problem.searched.known) if problem.searched and problem.searched.chip == each.chip else {}
        each = replace(each, searched=SearchedKernels(each.chip, known, store))
        now = time.perf_counter()
        found.append(_JointSearch(each, progress, now + (end - now) / (len(homes) - place)).run())
    best = min(found, key=lambda result: result.cost.time)
    bound = min(result.certificate.bound for result in found)
    return replace(best, certificate=replace(best.certificate, bound=min(bound, best.certificate.value)))


def plan_kernels(problem: TrainingProblem, plan: Plan, cost: PlanCost) -> Iterator[AnyKernel]:
    """The kernels of all parts of a plan, at the extents of one chip."""
    graphs = training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused)
    for graph, part in zip(graphs, cost.parts.parts, strict=True):
        for _, kernel, _ in sharded_kernels(graph, part.sharding, problem.recipe.gradient):
            yield kernel


def searched_in_plan(result: TrainingResult) -> dict[KernelShape, KernelCost]:
    """The searched kernels of a plan, with their mappings; none if the times are a library's."""
    searched = result.problem.searched
    if searched is None:
        return {}
    kernels = plan_kernels(result.problem, result.plan, result.cost)
    shapes = dict.fromkeys(map(shape_of, kernels))
    return {shape: searched.known[shape] for shape in shapes if shape in searched.known}


@dataclass(slots=True)
class _JointSearch:
    """The search for a plan whose tensors live in one memory; ``end`` [s]: on the clock of `time.perf_counter`."""

    problem: TrainingProblem
    progress: Progress | None
    end: float
    best: TrainingResult | None = None
    bound: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @property
    def kernels(self) -> SearchedKernels:
        assert self.problem.searched is not None
        return self.problem.searched

    def run(self) -> TrainingResult:
        stopped = False
        try:
            while not stopped:
                found = best_training_plan(self.problem, self._told, self._left(), others=0)
                self.bound = max(self.bound, found.certificate.bound)
                stopped = found.status is Status.LIMIT
                missing = self.kernels.missing(plan_kernels(self.problem, found.plan, found.cost))
                if missing and stopped and self.best is not None:
                    break
                # bounds of attention are loose: most plans that look best before it is searched are not so afterwards
                loose = [] if stopped else [shape for shape in missing if isinstance(shape, AttentionShape)]
                for number, shape in enumerate(loose or missing):
                    self._tell(f"searches {shape}, {number + 1} of {len(missing)} of a plan", found)
                    self.kernels.search(shape, None if stopped else self._left())
                if 0 < len(loose) < len(missing):
                    continue
                self._keep(found, exact=not missing)
                assert self.best is not None
                stopped |= time.perf_counter() > self.end
                if not missing or relative_gap(self.best.cost.time, self.bound) <= OPTIMAL_GAP:
                    break
        except KeyboardInterrupt:
            stopped = True
        except SearchStopped:
            if self.best is None:
                raise
            stopped = True
        if self.best is None:
            raise SearchStopped(
                Fault(self.problem.shape.name, "a plan whose kernels are searched, in time", "none yet", "raise the time limit")
            )
        return self._answer(stopped)

    def _left(self) -> float | None:
        return None if math.isinf(self.end) else max(self.end - time.perf_counter(), 0.0)

    def _keep(self, found: TrainingResult, exact: bool) -> None:
        """Keeps the plan if it is the fastest with exact times."""
        cost = found.cost
        if not exact:
            decisions = [decisions_of(part.sharding) for part in cost.parts.parts]
            cost = decided_cost(self.problem, found.plan, decisions)
        if self.best is None or cost.time < self.best.cost.time:
            self.best = replace(found, cost=cost)

    def _answer(self, stopped: bool) -> TrainingResult:
        assert self.best is not None
        value = self.best.cost.time
        bound = min(self.bound, value)
        optimal = relative_gap(value, bound) <= OPTIMAL_GAP
        certificate = replace(
            self.best.certificate,
            value=value,
            bound=bound,
            status=Status.OPTIMAL if optimal else Status.LIMIT if stopped else Status.WITHIN,
            effort={**self.best.certificate.effort, KERNELS: self.kernels.searched, ASKED: self.kernels.asked},
            seconds=time.perf_counter() - self.began,
        )
        return replace(self.best, certificate=certificate)

    def _told(self, words: str, share: float) -> None:
        if self.progress is not None:
            self.progress(words, share)

    def _tell(self, words: str, found: TrainingResult) -> None:
        self._told(words, found.certificate.bound / found.certificate.value)
