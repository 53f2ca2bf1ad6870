"""Plans of training on the systems of a study: the question for one system, a lower bound, and the search."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from halley.answer import Status
from halley.errors import Infeasible, SearchStopped
from halley.importers.training import RECIPE, training_problem
from halley.ir.system import System
from halley.launch.limits import limits_of
from halley.sharding.axes import assignment_text
from halley.sweeps.answered import RELATIVE_ROUNDING, Answered, LowerBound
from halley.sweeps.options import asked_of, nameless, text, whole
from halley.training.energy import plan_energy
from halley.training.plan import Plan, TrainingProblem
from halley.training.search.search import best_training_plan, least_bound


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A training problem, and the limit of its search [s]; None: no limit."""

    problem: TrainingProblem
    time_limit: float | None

    @property
    def inputs(self) -> object:
        """All that the answer depends on, without names, descriptions and sources."""
        return replace(self.problem, system=nameless(self.problem.system))

    def lower_bound(self) -> LowerBound:
        """The lower bound of all plans that the search begins with."""
        least = least_bound(self.problem)
        if math.isinf(least):
            return LowerBound(math.inf, self.search().reason)
        return LowerBound(least * (1 - RELATIVE_ROUNDING))

    def search(self) -> Answered:
        """The fastest plan. Raises KeyboardInterrupt: Ctrl-C ended the search."""
        begun, began = time.process_time(), time.monotonic()
        try:
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
            mapping=decisions(result.plan),
        )

    def _only_by_limit(self, began: float) -> None:
        """Raises KeyboardInterrupt: a search was stopped before its limit, which only a signal does."""
        if self.time_limit is None or time.monotonic() - began < self.time_limit:
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
        )
        return PlanQuestion(problem if framework is None else replace(problem, limits=limits_of(framework)), time_limit)


def decisions(plan: Plan) -> str:
    """A plan in one line."""
    found = [assignment_text(plan.assignment), f"microbatch {plan.microbatch}"]
    if plan.pipeline.stages > 1:
        found.append(f"{plan.pipeline.schedule}, {plan.pipeline.chunks} chunks")
    found += [f"recompute {plan.recompute}", f"ZeRO {int(plan.sharded)}"]
    found += [words for words, chosen in (("offload", plan.offload), ("attention op by op", not plan.fused)) if chosen]
    return "; ".join(found)
