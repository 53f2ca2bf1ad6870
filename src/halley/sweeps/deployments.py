"""Deployments on the systems of a study: the question for one system, and its search."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from halley.errors import Infeasible
from halley.importers.serving import STATE, lengths_of, serving_problem
from halley.ir.system import System
from halley.kernels.machine import machine
from halley.serving.model import WEIGHT_ONLY
from halley.serving.plans.problem import ServingProblem
from halley.serving.plans.search import ServingPlan
from halley.serving.plans.search import search as best_deployment
from halley.sweeps.answered import RELATIVE_ROUNDING, Answered, LowerBound
from halley.sweeps.options import asked_of, nameless, text, whole


@dataclass(frozen=True, slots=True)
class ServingQuestion:
    """A deployment to be found."""

    problem: ServingProblem

    @property
    def inputs(self) -> object:
        """As those of a plan."""
        return replace(self.problem, system=nameless(self.problem.system))

    def lower_bound(self) -> LowerBound:
        """The bound that the search proves: it takes no longer than a bound by itself."""
        found = self.search()
        return LowerBound(found.bound * (1 - RELATIVE_ROUNDING), found.reason)

    def search(self) -> Answered:
        """The best deployment. Its value is the time of an output token of all chips [s]: the inverse of their throughput."""
        begun = time.process_time()
        try:
            found = best_deployment(self.problem)
        except Infeasible as fault:
            return Answered.without(math.inf, time.process_time() - begun, "infeasible", str(fault))
        chips = self.problem.system.chips
        value = float(found.certificate.value) / chips
        return Answered(
            value=value,
            bound=min(value, float(found.certificate.bound) / chips),
            time=value,
            energy=math.inf,
            seconds=time.process_time() - begun,
            ended="within",
            mapping=layout_of(found),
        )


@dataclass(frozen=True, slots=True)
class StudyDeployment:
    """A deployment of a study, as `StudyPlan`."""

    name: str
    weight: float
    given: Mapping[str, object]

    def question(self, system: System, setting: Mapping[str, str], time_limit: float | None) -> ServingQuestion:
        """As that of `StudyPlan`; no search of a deployment takes so long that it needs a limit."""
        asked = asked_of(self.given, setting)
        lengths = lengths_of(whole(asked, "input") or 0, whole(asked, "output") or 0, whole(asked, "prefix", 0) or 0)
        words = text(asked, "slo"), _able(text(asked, "weights") or "bf16", system), text(asked, "cache") or "bf16"
        fits = text(asked, "software"), text(asked, "efficiency")
        together, state = bool(asked.get("together")), text(asked, "state") or STATE
        model = str(asked["model"])
        return ServingQuestion(serving_problem(model, system, lengths, *words, *fits, together=together, state=state))


def _able(weights: str, system: System) -> str:
    """Of the dtypes to choose from, those that the chips of a design have; all where they have none, for the complaint."""
    able = {*machine(system.chip).macs, *WEIGHT_ONLY}
    return ",".join(dtype for dtype in weights.split(",") if dtype.strip() in able) or weights


def layout_of(plan: ServingPlan) -> str:
    """A deployment in one line."""
    if plan.pools is not None:
        pools = plan.pools
        prompts, decoding = f"{pools.prompt_replicas} x {pools.prompts.text}", f"{pools.decode_replicas} x {pools.decoding.text}"
        return f"prompts: {prompts}; decoding: {decoding}, {pools.users:.0f} users"
    deployment = plan.served.deployment
    return f"{deployment.replicas} x {deployment.layout.text}, {plan.best.users:.0f} users"
