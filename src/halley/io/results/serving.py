"""Answers about one deployment: the question in a file, and back. The figures are computed anew when a file is read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.chips.kernel_fits import serving_fits
from halley.io.files.models import Model
from halley.io.networks.fits import load_libraries
from halley.io.results.envelope import Plain, Saved, enveloped
from halley.io.results.models import AnswerFile
from halley.io.results.systems import system_in, whole_system
from halley.kernels.machine import Efficiency
from halley.serving.deployment import Deployment, Load
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.served import Served, served
from halley.serving.software import ServingSoftware
from halley.serving.speculation import LONGEST_WINDOW, Acceptance, Speculation
from halley.serving.steady import Lengths
from halley.workloads.transformer import Hybrid, Transformer

KIND = "serving"

Length = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]


class ServingModelModel(Model):
    """The model and its dtypes (`halley.serving.model.ServedModel`)."""

    shape: Transformer = Field(description="extents of the model, as in a model file")
    weights: str = Field(description="dtype of matrices")
    cache: str = Field(description="dtype of keys and values")
    window: int = Field(ge=0, description="tokens of a sliding window; 0: none")
    windowed: int = Field(ge=0, description="layers with a window")
    hybrid: Hybrid | None = Field(default=None, description="recurrent layers, as in a model file; null: none")
    state: str = Field(default="bf16", description="dtype of the states of recurrent layers")

    @property
    def served(self) -> ServedModel:
        """The model itself."""
        return ServedModel(self.shape, self.weights, self.cache, self.window, self.windowed, self.hybrid, self.state)


class SpeculationModel(Model):
    """How a deployment speculates (`halley.serving.speculation.Speculation`)."""

    draft: ServingModelModel = Field(description="the model that proposes tokens")
    acceptance: Acceptance = Field(description="chance that the first proposed token is accepted, and its decay")
    window: int = Field(ge=1, le=LONGEST_WINDOW, description="tokens that are proposed in a round")


class LoadModel(Model):
    """What is served (`halley.serving.deployment.Load`)."""

    input: Length = Field(description="mean tokens of a prompt")
    output: Length = Field(description="mean tokens of an answer")
    prefix: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(description="of a prompt, tokens that are cached")
    concurrency: Length | None = Field(description="users of a closed loop; null: arrivals")
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        description="requests per second; null: a closed loop"
    )


class ServingQuestionModel(Model):
    """What was asked."""

    model: ServingModelModel = Field(description="the model")
    system: dict[str, Any] = Field(description="the system with its whole chip, as in a system file")
    layout: ReplicaLayout = Field(description="degrees of parallelism of a replica")
    software: ServingSoftware = Field(description="the serving framework")
    efficiency: Efficiency = Field(description="how near kernels come to the data sheet")
    load: LoadModel = Field(description="what is served")
    speculation: SpeculationModel | None = Field(default=None, description="how it speculates; null: it does not")


class ServingFile(AnswerFile):
    """What one deployment does under a load: what ``halley serve`` writes."""

    kind: Literal["serving"] = Field(description="kind of the answer")
    question: ServingQuestionModel = Field(description="what was asked")
    certificate: None = Field(description="null: one deployment, nothing was searched; bounds are among the figures")
    answer: dict[str, Any] = Field(description="figures that follow from the question, in SI units")


def model_document(model: ServedModel) -> Plain:
    """A model as plain data."""
    found = asdict(model)
    if model.hybrid is None:
        return {name: value for name, value in found.items() if name not in ("hybrid", "state")}
    return found


def speculation_document(own: Speculation) -> Plain:
    """How a deployment speculates, as plain data."""
    return {"draft": model_document(own.draft), "acceptance": asdict(own.acceptance), "window": own.window}


def question_document(deployment: Deployment) -> Plain:
    """The deployment as plain data."""
    return {
        "model": model_document(deployment.model),
        "system": whole_system(deployment.system),
        "layout": asdict(deployment.layout),
        "software": asdict(deployment.software),
        "efficiency": asdict(deployment.efficiency),
    } | ({} if deployment.speculation is None else {"speculation": speculation_document(deployment.speculation)})


def load_document(load: Load) -> Plain:
    """The load as plain data."""
    return asdict(load.lengths) | {"concurrency": load.concurrency, "rate": load.rate}


def figures(value: Served, bounds: list[Plain]) -> Plain:
    """What follows from the question, in SI units."""
    state, remarks, memory = value.state, list(value.deployment.remarks), value.deployment.memory
    return ({"remarks": remarks} if remarks else {}) | {
        "ttft_s": state.ttft,
        "tpot_s": state.tpot,
        "end_to_end_s": value.end_to_end,
        "requests_per_s": value.requests,
        "output_tokens_per_s": value.output,
        "tokens_per_s": value.total,
        "output_tokens_per_s_user": value.user,
        "output_tokens_per_s_chip": value.chip,
        "users": value.users,
        "replicas": value.deployment.replicas,
        "step_s": state.step,
        "parts_s": state.parts,
        "limit": state.limit,
        "memory_B": {
            "weights": memory.weights,
            **({} if memory.draft is None else {"draft": memory.draft.weights}),
            "cache": value.used,
            "cache_capacity": memory.cache,
            "activations": memory.activations,
            "reserve": memory.reserve,
            "usable": memory.usable,
        },
        "bounds": bounds,
    }


def serving_document(value: Served, bounds: list[Plain]) -> Plain:
    """The content of a file."""
    question = question_document(value.deployment) | {"load": load_document(value.load)}
    return enveloped(KIND, question, None, figures(value, bounds))


def deployment_in(saved: Saved, asked: ServingQuestionModel) -> Deployment:
    """The deployment of a question. Raises BadInput: every fault of it."""
    system = system_in(saved, asked.system)
    own = asked.speculation
    return Deployment(
        asked.model.served,
        system,
        asked.layout,
        asked.software,
        asked.efficiency,
        load_libraries(system),
        fits=serving_fits(system.chip.name),
        speculation=None if own is None else Speculation(own.draft.served, own.acceptance, own.window),
    )


def read_serving(saved: Saved) -> Served:
    """The answer to the question in a file, computed anew. Raises BadInput: every fault; Infeasible: what does not fit."""
    asked = saved.checked(ServingFile).question
    load = asked.load
    if (load.concurrency is None) == (load.rate is None):
        raise BadInput(Fault(f"{saved.name}: question.load", "a concurrency or a rate", "both or neither"))
    given = Load(Lengths(load.input, load.output, load.prefix), load.concurrency, load.rate)
    return served(deployment_in(saved, asked), given)
