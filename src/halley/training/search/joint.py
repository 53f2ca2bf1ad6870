"""The best plan with kernels that are searched on the chip: one proof over plans and mappings.

Times of products, of attention and of groups of fused kernels start as lower bounds, so the best plan's time bounds all plans
with any mappings from below. The kernels of that plan are searched, and the plans again with their exact times, until the best
plan has none that was not. Then the kernels of the plan with the lowest bound are, for a smaller gap. A search that
ends before gives the plan that is best by bounds: what was not searched of it takes its time from formulas.
Shortest paths with costly edges are found like this (Dellin and Srinivasa, "A Unifying Formalism for Shortest Path Problems with
Expensive Edge Evaluations via Lazy Best-First Search and Edge Selectors", 2016).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from halley.answer import Status, relative_gap
from halley.errors import BadInput, Fault, Infeasible, SearchStopped
from halley.ir.hardware import Chip
from halley.kernels.ahead import SearchesAhead
from halley.kernels.groups import GroupKernel
from halley.kernels.machine import PEAK
from halley.kernels.searched import AnyKernel, AttentionShape, KernelCost, KernelShape, KernelStore, SearchedKernels, shape_of
from halley.optim.deadline import Deadline
from halley.sharding.decisions import decisions_of
from halley.training.groups import fused_groups, sharded_kernels
from halley.training.part_costs import ModelCosts, training_graphs
from halley.training.plan import Plan, TrainingProblem, TrainingResult
from halley.training.search.decided import decided_cost
from halley.training.search.search import OPTIMAL_GAP, best_training_plan, least_bound
from halley.units import counted

Progress = Callable[[str, float], None]

KERNELS = "kernels"
"""Name of the number of searched kernels in a certificate's effort."""

LEFT_OUT_KERNELS = (
    "in one kernel: more than a product with up to eight elementwise ops and reductions behind it, or than an MLP",
    "mappings of attention backward, of scans, and of kernels without products, which take their times from formulas",
)
"""What the mappings do not contain."""

UNSEARCHED_KERNELS = "mappings of {count} of this plan, which the search did not reach: {verb} from formulas"
"""What else they do not contain, of a search that ended before all kernels of any plan were searched."""

RELATIVE_TIME_MARGIN = 0.002
"""By how much the estimated time of a plan must be above the best time for its other kernels not to be searched [share]."""

ASKED = "asked"
"""Name of the number of kernels whose times plans asked for, of those that can be searched."""


def best_joint_plan(
    problem: TrainingProblem,
    progress: Progress | None = None,
    limit: float | None = None,
    store: KernelStore | None = None,
    workers: int = 1,
) -> TrainingResult:
    """The fastest plan of a problem over all mappings of its kernels, over all memories of a chip that can hold its tensors.

    ``progress`` and ``limit`` [s]: as in `halley.training.search.search.best_training_plan`; ``store``: kernels that were
    searched before, and where those of this search go; ``workers``: processes that search kernels, this one alone if fewer than
    two, on which the answer does not depend. The problem's efficiency is not used: other kernels take their times from formulas
    with the rates of the data sheet, and so do all that were not searched when the search ends before the kernels of any plan are
    (`SearchedKernels.by_formula`); its bound holds then too.

    Raises BadInput: the chip runs kernels side by side, or as `best_training_plan`; Infeasible: no plan fits; SearchStopped: none
    was found in time.
    """
    homes = _by_memory(problem, store)
    end = math.inf if limit is None else time.perf_counter() + limit
    found, bounds, misfit = list[TrainingResult](), list[float](), None
    for place, each in enumerate(homes):
        now = time.perf_counter()
        try:
            with SearchesAhead(each.chip, workers) as searches:
                deadline = Deadline(now + (end - now) / (len(homes) - place))
                found.append(_JointSearch(each, searches, progress, deadline).run())
            bounds.append(found[-1].certificate.bound)
        except Infeasible as error:
            misfit = error  # the last memory is the largest one
        except SearchStopped:
            if not found:
                raise
            bounds.append(least_bound(each))
    if not found:
        assert misfit is not None
        raise misfit
    best = min(found, key=lambda result: result.cost.time)
    return replace(best, certificate=replace(best.certificate, bound=min(*bounds, best.certificate.value)))


def least_joint_bound(problem: TrainingProblem) -> float:
    """A lower bound of all plans with any mappings of their kernels [s], before any is searched; infinite where none can fit.

    Raises BadInput: as `best_joint_plan`.
    """
    return min(map(least_bound, _by_memory(problem, None)))


def check_one_kernel_at_a_time(chip: Chip) -> None:
    """Raises BadInput: a chip that runs kernels side by side, for which no kernel is searched."""
    if chip.streams:
        raise BadInput(Fault("--kernels searched", "a chip that runs one kernel at a time", f"{chip.name}", "leave it out"))


def _by_memory(problem: TrainingProblem, store: KernelStore | None) -> list[TrainingProblem]:
    """The problem with kernels to be searched, for each memory that can hold the tensors. Raises BadInput: as
    `best_joint_plan`."""
    check_one_kernel_at_a_time(problem.system.chip)
    found = []
    for home in [problem.home] if problem.home else problem.homes:
        each = replace(problem, home=home, efficiency=PEAK)
        known = dict(problem.searched.known) if problem.searched and problem.searched.chip == each.chip else {}
        grouped = problem.fixed.fused is not False
        found.append(replace(each, searched=SearchedKernels(each.chip, known, store, grouped=grouped)))
    return found


def plan_kernels(problem: TrainingProblem, plan: Plan, costs: ModelCosts) -> Iterator[AnyKernel]:
    """The kernels of all parts of a plan with these costs, at the extents of one chip."""
    yield from (kernel for kernel, _ in _counted_kernels(problem, plan, costs))


def _counted_kernels(problem: TrainingProblem, plan: Plan, costs: ModelCosts) -> Iterator[tuple[AnyKernel, float]]:
    """The same with how often each runs for a microbatch in all layers."""
    graphs = training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused)
    for graph, (part, count) in zip(graphs, costs.counted, strict=True):
        for _, kernel, runs in sharded_kernels(graph, part.sharding, problem.recipe.gradient):
            yield kernel, count * runs


def searched_in_plan(result: TrainingResult) -> dict[KernelShape, KernelCost]:
    """The searched kernels of a plan, with their mappings; none if the times are a library's."""
    searched = result.problem.searched
    if searched is None:
        return {}
    return searched.found(plan_kernels(result.problem, result.plan, result.cost.parts))


@dataclass(slots=True)
class _JointSearch:
    """The search for a plan whose tensors live in one memory. ``best``: of the plans with exact times; ``bounded``: the last one
    that was best by bounds."""

    problem: TrainingProblem
    searches: SearchesAhead
    progress: Progress | None
    deadline: Deadline
    best: TrainingResult | None = None
    bounded: TrainingResult | None = None
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
                found = best_training_plan(self.problem, self._report_progress, self.deadline.left(), others=0)
                self.bounded, self.bound = found, max(self.bound, found.certificate.bound)
                stopped = found.status is Status.LIMIT
                missing = self.kernels.missing(plan_kernels(self.problem, found.plan, found.cost.parts))
                if missing and stopped:
                    break
                # bounds of attention are loose: most plans that look best before it is searched are not so afterwards
                loose = [shape for shape in missing if isinstance(shape, AttentionShape)]
                if not self._search(loose or missing, found) or 0 < len(loose) < len(missing):
                    continue
                if any(math.isinf(self.kernels.known[shape].time) for shape in missing):
                    continue  # a group that no mapping fits: its kernels run apart
                self._keep(found, exact=not missing)
                assert self.best is not None
                stopped |= self.deadline()
                if relative_gap(self.best.cost.time, self.bound) <= OPTIMAL_GAP:
                    break
                if not missing and not self._raise_lowest(found):
                    break
        except KeyboardInterrupt:
            stopped = True
        except SearchStopped:
            if self.bounded is None:
                raise
            stopped = True
        if self.best is None:
            if self.bounded is None:
                name, remedy = self.problem.shape.name, "raise the time limit"
                raise SearchStopped(Fault(name, "a plan that fits, in time", "none yet", remedy))
            self.best = self._by_formula(self.bounded)
        return self._answer(stopped)

    def _search(self, missing: Sequence[KernelShape], found: TrainingResult) -> bool:
        """Searches kernels of the best plan by bounds until it is probably slower than the best one with exact times; whether all
        were searched."""
        return self._searched_until(missing, found, found.plan, found.cost.parts, found.cost.time)

    def _raise_lowest(self, found: TrainingResult) -> bool:
        """Searches kernels of the plan with the lowest bound until this is probably above the best time; False if all of them
        were searched before."""
        if found.lowest is None:
            return False
        missing = self.kernels.missing(plan_kernels(self.problem, *found.lowest))
        self._searched_until(missing, found, *found.lowest, found.certificate.bound)
        return bool(missing)

    def _searched_until(
        self,
        missing: Sequence[KernelShape],
        found: TrainingResult,
        plan: Plan,
        costs: ModelCosts,
        bound: float,
    ) -> bool:
        """Searches kernels of a plan with this ``bound`` [s], those with most work first. It ends early where the bound, raised
        in proportion to the time of the plan's kernels, is above the best time: the plans are then searched again, which decides.
        """
        work, before = self._work(plan, costs), self._kernel_time(plan, costs)
        ordered = sorted(missing, key=lambda shape: -work[shape])
        # the first plan needs all of its kernels; later ones are mostly left after a few
        ahead = len(ordered) if self.best is None else self.searches.workers
        for number, shape in enumerate(ordered):
            raised = bound * (1 + (self._kernel_time(plan, costs) - before) / costs.time)
            if number and self.best is not None and raised > self.best.cost.time * (1 + RELATIVE_TIME_MARGIN):
                return False
            self._report_gap(f"searches {shape}, {number + 1} of {len(missing)} of a plan", found)
            self.searches.expect(ordered[number : number + ahead], self.deadline.left())
            self.kernels.add(shape, self.searches.search(shape, self.deadline.left()))
        return True

    def _work(self, plan: Plan, costs: ModelCosts) -> dict[KernelShape, float]:
        """Multiply-accumulates of the kernels of a plan, in all layers."""
        found: dict[KernelShape, float] = {}
        for kernel, runs in _counted_kernels(self.problem, plan, costs):
            if (shape := shape_of(kernel)) is not None:
                found[shape] = found.get(shape, 0.0) + runs * shape.macs
        return found

    def _kernel_time(self, plan: Plan, costs: ModelCosts) -> float:
        """Of one microbatch in all layers [s]."""
        return math.fsum(runs * float(self.kernels.times(kernel)) for kernel, runs in _counted_kernels(self.problem, plan, costs))

    def _keep(self, found: TrainingResult, exact: bool) -> None:
        """Keeps the plan if it is the fastest with exact times."""
        cost = found.cost
        if not exact:
            decisions = [decisions_of(part.sharding) for part in cost.parts.parts]
            cost = decided_cost(self.problem, found.plan, decisions)
        if self.best is None or cost.time < self.best.cost.time:
            self.best = replace(found, cost=cost)

    def _by_formula(self, found: TrainingResult) -> TrainingResult:
        """The plan with times from formulas for what was not searched; groups of that run as kernels of their own."""
        kernels = SearchedKernels(self.kernels.chip, dict(self.kernels.known), by_formula=True, grouped=self.kernels.grouped)
        problem = replace(self.problem, searched=kernels)
        graphs = training_graphs(problem.shape, found.plan.microbatch, problem.sequence, found.plan.recompute, found.plan.fused)
        decisions = []
        for graph, part in zip(graphs, found.cost.parts.parts, strict=True):
            ops, groups = sharded_kernels(graph, part.sharding, problem.recipe.gradient), fused_groups(part.sharding)
            # not searched, or of no mapping that fits
            unable = (
                op for op, kernel, _ in ops if isinstance(kernel, GroupKernel) and not np.isfinite(kernels.times(kernel)).all()
            )
            apart, own = {groups[op][0].name for op in unable}, decisions_of(part.sharding)
            decisions.append(replace(own, fused=tuple(name for name in own.fused if name not in apart)))
        cost = decided_cost(problem, found.plan, decisions)
        left = len(kernels.missing(plan_kernels(problem, found.plan, cost.parts)))
        if not left:  # all of its kernels were searched
            return replace(found, cost=cost)
        words = UNSEARCHED_KERNELS.format(count=counted(left, "kernel"), verb="its time is" if left == 1 else "their times are")
        certificate = replace(found.certificate, left_out=(words, *found.certificate.left_out))
        return replace(found, problem=problem, cost=cost, certificate=certificate)

    def _answer(self, stopped: bool) -> TrainingResult:
        assert self.best is not None
        value = self.best.cost.time
        bound = min(self.bound, value)
        searched = self.best.problem.searched
        optimal = relative_gap(value, bound) <= OPTIMAL_GAP and searched is not None and not searched.by_formula
        certificate = replace(
            self.best.certificate,
            value=value,
            bound=bound,
            status=Status.OPTIMAL if optimal else Status.LIMIT if stopped else Status.WITHIN,
            effort={**self.best.certificate.effort, KERNELS: self.kernels.searched, ASKED: self.kernels.asked},
            seconds=time.perf_counter() - self.began,
            left_out=(*LEFT_OUT_KERNELS, *self.best.certificate.left_out),
        )
        return replace(self.best, certificate=certificate)

    def _report_progress(self, words: str, share: float) -> None:
        if self.progress is not None:
            self.progress(words, share)

    def _report_gap(self, words: str, found: TrainingResult) -> None:
        self._report_progress(words, found.certificate.bound / found.certificate.value)
