"""Answers about the best deployment: the question in a file, and back. The search is done again when a file is read."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.chips.kernel_fits import serving_fits
from halley.io.files.models import Model
from halley.io.networks.fits import load_libraries
from halley.io.results.envelope import Plain, Saved, enveloped
from halley.io.results.models import AnswerFile, CertificateModel
from halley.io.results.serving import Length, ServingModelModel, figures, model_document
from halley.io.results.systems import system_in, whole_system
from halley.kernels.machine import Efficiency
from halley.serving.plans.problem import Drafts, Limits, ServingObjective, ServingProblem
from halley.serving.plans.search import ServingPlan, search
from halley.serving.software import ServingSoftware
from halley.serving.speculation import Acceptance, Speculation
from halley.serving.steady import Lengths
from halley.units import counted

KIND = "serving-plan"

Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


class DraftsModel(Model):
    """Drafts that may speculate (`halley.serving.plans.problem.Drafts`)."""

    models: list[ServingModelModel] = Field(min_length=1, description="a draft for each of the models")
    acceptance: Acceptance = Field(description="chance that the first proposed token is accepted, and its decay")


class ServingPlanQuestionModel(Model):
    """What was asked (`halley.serving.plans.problem.ServingProblem`)."""

    models: list[ServingModelModel] = Field(min_length=1, description="the model in each precision that may be chosen")
    system: dict[str, Any] = Field(description="the system with its whole chip, as in a system file")
    software: ServingSoftware = Field(description="the serving framework")
    efficiency: Efficiency = Field(description="how near kernels come to the data sheet")
    input: Length = Field(description="mean tokens of a prompt")
    output: Length = Field(description="mean tokens of an answer")
    prefix: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(description="of a prompt, tokens that are cached")
    ttft: Limit = Field(description="most mean time to first token [s]; null: no limit")
    tpot: Limit = Field(description="most mean time per output token [s]; null: no limit")
    objective: ServingObjective = Field(description="throughput, or least chips for a rate")
    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(description="requests per second to be served; 0: none")
    pools: bool = Field(description="whether prompts and decoding may have separate pools of chips")
    front: bool = Field(description="whether all candidates were costed")
    budgets: list[Annotated[int, Field(ge=1)]] = Field(description="tokens of a step that were tried")
    drafts: DraftsModel | None = Field(default=None, description="drafts for speculative decoding; null: it was not tried")


class ServingPlanFile(AnswerFile):
    """The best deployment: what ``halley plan --serve`` writes."""

    kind: Literal["serving-plan"] = Field(description="kind of the answer")
    question: ServingPlanQuestionModel = Field(description="what was asked")
    certificate: CertificateModel = Field(description="how good the deployment is")
    answer: dict[str, Any] = Field(description="the deployment and its figures, in SI units")


def _drafts_document(drafts: Drafts) -> Plain:
    return {"models": [model_document(model) for model in drafts.models], "acceptance": asdict(drafts.acceptance)}


def serving_plan_document(plan: ServingPlan) -> Plain:
    """The content of a file."""
    problem, value = plan.problem, plan.served
    question = {
        "models": [model_document(model) for model in problem.models],
        "system": whole_system(problem.system),
        "software": asdict(problem.software),
        "efficiency": asdict(problem.efficiency),
        **asdict(problem.lengths),
        "ttft": problem.limits.ttft if math.isfinite(problem.limits.ttft) else None,
        "tpot": problem.limits.tpot if math.isfinite(problem.limits.tpot) else None,
        "objective": str(problem.objective),
        "rate": problem.rate,
        "pools": problem.pools,
        "front": problem.front,
        "budgets": list(problem.budgets),
    } | ({} if problem.drafts is None else {"drafts": _drafts_document(problem.drafts)})
    deployment = value.deployment
    pools = plan.pools
    answer = {
        "layout": asdict(deployment.layout),
        "replicas": deployment.replicas,
        "weights": deployment.model.weights,
        "cache": deployment.model.cache,
        "budget": deployment.software.budget,
        "users_per_engine": plan.best.users,
        "chips": plan.chips,
        **_speculation(problem, deployment.speculation),
        "figures": figures(value, []),
        "pools": None
        if pools is None
        else {
            "prompts": asdict(pools.prompts) | {"replicas": pools.prompt_replicas, "budget": pools.prompt_budget},
            "decoding": asdict(pools.decoding) | {"replicas": pools.decode_replicas, "users_per_engine": pools.users},
            "requests_per_s": pools.rate,
            "ttft_s": pools.ttft,
            "tpot_s": pools.tpot,
            "transfer_s": pools.transfer,
            **_speculation(problem, pools.speculation),
        },
        "bound": {"requests_per_s": plan.bound, "why": plan.bound_why},
        "front": [
            {
                "tokens_per_s_user": point.user,
                "tokens_per_s_chip": point.chip,
                "ttft_s": point.ttft,
                "tpot_s": point.tpot,
                "users_per_engine": point.users,
                "layout": asdict(item.layout),
                "weights": item.model.weights,
                "budget": item.software.budget,
                **_speculation(problem, item.speculation),
            }
            for point, item in plan.front
        ],
    }
    return enveloped(KIND, question, plan.certificate, answer)


def _speculation(problem: ServingProblem, chosen: Speculation | None) -> Plain:
    """The chosen window, 0 for none, and the expected tokens of a round; nothing where no draft was asked for."""
    if problem.drafts is None:
        return {}
    return (
        {"window": 0, "tokens_per_round": 1.0}
        if chosen is None
        else {
            "window": chosen.window,
            "tokens_per_round": chosen.tokens,
        }
    )


def read_serving_plan(saved: Saved) -> ServingPlan:
    """The best deployment of the question in a file, searched again. Raises BadInput: every fault; Infeasible: nothing fits."""
    asked = saved.checked(ServingPlanFile).question
    system = system_in(saved, asked.system)
    models, drafts = tuple(item.served for item in asked.models), asked.drafts
    if drafts is not None and len(drafts.models) != len(models):
        where = f"{saved.name}: question.drafts.models"
        raise BadInput(Fault(where, f"{counted(len(models), 'model')}, as question.models has", str(len(drafts.models))))
    problem = ServingProblem(
        models,
        system,
        asked.software,
        asked.efficiency,
        Lengths(asked.input, asked.output, asked.prefix),
        Limits(asked.ttft or math.inf, asked.tpot or math.inf),
        load_libraries(system),
        asked.objective,
        asked.rate,
        asked.pools,
        asked.front,
        tuple(asked.budgets),
        serving_fits(system.chip.name),
        None if drafts is None else Drafts(tuple(item.served for item in drafts.models), drafts.acceptance),
    )
    return search(problem)
