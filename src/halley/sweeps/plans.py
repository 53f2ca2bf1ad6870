"""Plans of training on the systems of a study: the question for one system, a lower bound, and the search."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from halley.answer import Status
from halley.errors import Infeasible, SearchStopped
from halley.importers.training import LIBRARY, RECIPE, is_searched, training_problem
from halley.io.cache import user_store
from halley.ir.system import System
from halley.launch.limits import limits_of
from halley.sharding.axes import assignment_text
from halley.sweeps.answered import RELATIVE_ROUNDING, Answered, LowerBound
from halley.sweeps.options import asked_of, nameless, text, whole
from halley.training.energy import plan_energy
from halley.training.plan import TrainingProblem, TrainingResult
from halley.training.search.joint import best_joint_plan, check_one_kernel_at_a_time, least_joint_bound, searched_in_plan
from halley.training.search.search import best_training_plan, least_bound
from halley.units import counted


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A training problem, and the limit of its search [s]; None: no limit. ``searched``: kernels take the times of their best
    mappings on the chip, which are searched with the plan."""

    problem: TrainingProblem
    time_limit: float | None
    searched: bool = False

    @property
    def inputs(self) -> object:
        """All that the answer depends on, without names, descriptions and sources."""
        return replace(self.problem, system=nameless(self.problem.system)), self.searched

    def lower_bound(self) -> LowerBound:
        """The lower bound of all plans that the search begins with; of searched kernels, of all plans with any mappings."""
        least = least_joint_bound(self.problem) if self.searched else least_bound(self.problem)
        if math.isinf(least):
            return LowerBound(math.inf, self.search().reason)
        return LowerBound(least * (1 - RELATIVE_ROUNDING))

    def search(self) -> Answered:
        """The fastest plan. Kernels that are searched are kept for other designs and commands. Raises KeyboardInterrupt: Ctrl-C
        ended the search."""
        begun, began = time.process_time(), time.monotonic()
        try:
            if self.searched:
                result = best_joint_plan(self.problem, limit=self.time_limit, store=user_store())
            else:
                result = best_training_plan(self.problem, limit=self.time_limit, others=0)
        except Infeasible as fault:
            return Answered.without(math.inf, time.process_time() - begun, "infeasible", str(fault))
        except SearchStopped as stop:
            self._only_by_limit(began)
            return Answered.without(0.0, time.process_time() - begun, "stopped", str(stop))
        if result.status is Status.LIMIT:
            self._only_by_limit(began)
        proof = result.certificate
        return Answered(
            value=float(proof.value),
            bound=float(proof.bound),
            time=float(proof.value),
            energy=plan_energy(result).total,
            seconds=time.process_time() - begun,
            ended=proof.status.name.lower(),
            mapping=decisions(result),
        )

    def _only_by_limit(self, began: float) -> None:
        """Raises KeyboardInterrupt: a search was stopped before its limit, which only a signal does. Each of several memories has
        an equal part of the limit."""
        if self.time_limit is None or time.monotonic() - began < self.time_limit / len(self.problem.homes):
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A plan of a study, how often it counts, and what the file says of it: text may have names of axes in braces."""

    name: str
    weight: float
    given: Mapping[str, object]

    def question(self, system: System, setting: Mapping[str, str], time_limit: float | None) -> PlanQuestion:
        """What is searched on a system, where ``setting`` has the value of each axis. Raises BadInput: as `training_problem`."""
        asked = asked_of(self.given, setting)
        framework = text(asked, "for")
        searched = is_searched(text(asked, "kernels") or LIBRARY, text(asked, "efficiency"))
        if searched:
            check_one_kernel_at_a_time(system.chip)
        problem = training_problem(
            str(asked["model"]),
            system,
            whole(asked, "batch") or 0,
            whole(asked, "sequence"),
            text(asked, "fix"),
            bool(asked.get("whole")),
            text(asked, "optimizer") or RECIPE,
            text(asked, "efficiency"),
            text(asked, "software"),
            searched,
        )
        if framework is not None:
            problem = replace(problem, limits=limits_of(framework))
        return PlanQuestion(problem, time_limit, searched)


def decisions(result: TrainingResult) -> str:
    """A plan in one line."""
    plan = result.plan
    found = [assignment_text(plan.assignment), f"microbatch {plan.microbatch}"]
    if plan.pipeline.stages > 1:
        found.append(f"{plan.pipeline.schedule}, {plan.pipeline.chunks} chunks")
    found += [f"recompute {plan.recompute}", f"ZeRO {int(plan.sharded)}"]
    found += [words for words, chosen in (("offload", plan.offload), ("attention op by op", not plan.fused)) if chosen]
    if result.problem.searched is not None:
        found.append(counted(len(searched_in_plan(result)), "kernel") + " with searched mappings")
    return "; ".join(found)
