"""What a file of an answer to a mapping problem holds, and what answers of all kinds have in common.

Every number has its unit in the name of its key, or beside it as {value, unit}; numbers of plans and networks are in SI units.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from halley.io.files.entries import Text
from halley.io.files.models import ChipFile, Model

SCHEMA = "halley.answer/1"
"""Name and version of the format."""

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


def as_it_is(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """The schema shows a chip file; the chip's own reader checks it."""
    return value


class QuantityModel(Model):
    """A number whose unit depends on the objective."""

    value: Amount = Field(description="the number")
    unit: Literal["s", "J", "J s"] = Field(description="its unit")


class WorkloadModel(Model):
    """What was mapped."""

    kind: Text = Field(description="kind of workload")
    parameters: dict[str, int | bool | str | None] = Field(description="every parameter, the variant asked for included")


class QuestionModel(Model):
    """The problem, with every default filled in."""

    workload: WorkloadModel = Field(description="what was mapped")
    chip: Annotated[ChipFile, WrapValidator(as_it_is)] = Field(description="the whole chip, as in a chip file")
    objective: Literal["time", "energy", "edp"] = Field(description="objective of the search")
    gap: Annotated[Amount, Field(lt=1)] = Field(description="relative gap at which the search may stop")
    time_limit_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(description="limit of the search; null: none")
    baselines: bool | list[Text] = Field(description="true: every baseline that applies was searched too; or which ones")
    front: bool = Field(description="whether the time-energy front was asked for")
    fixed_variant: bool = Field(description="whether only the variant asked for was searched")


class TrafficModel(Model):
    """Bytes over all instances of a memory."""

    read_B: Amount = Field(description="bytes read")
    write_B: Amount = Field(description="bytes written")


class AnatomyModel(Model):
    """The time by cause [s]; all parts add up to time_s."""

    compute: dict[str, Amount] = Field(description="engines at work, by engine")
    ramps: Amount = Field(description="first fills and last drains")
    serial: Amount = Field(description="fills and drains of single buffers, for which the work waits")
    stages: Amount = Field(description="filling and draining pipelines of stages")
    latency: Amount = Field(0.0, description="waits for transfers because too few are in flight; left out, none")
    bandwidth: dict[str, Amount] = Field(description="by resource, the time by which it exceeds the work that it overlaps with")
    collective: dict[str, Amount] = Field(description="exposed collectives, by network axis")


class EstimateModel(Model):
    """What the plan costs."""

    time_s: Amount = Field(description="time of the whole plan")
    energy_J: Amount = Field(description="energy of the whole plan")
    energy_by_J: dict[str, Amount] = Field(description="by component; adds up to energy_J")
    busy_s: dict[str, Amount] = Field(description="time that each resource works, e.g. 'read dram'")
    footprint_B: dict[str, Amount] = Field(description="most bytes live in one instance of each memory")
    traffic: dict[str, TrafficModel] = Field(description="by memory")
    anatomy_s: AnatomyModel = Field(description="the time by cause")


class ClauseModel(Model):
    """A point of what a certificate declares."""

    what: Text = Field(description="what is chosen, or is not")
    how: Text = Field(description="what the search chooses from; or what it leaves out")


class SolutionCertificateModel(Model):
    """How good the plan is, and how that is known."""

    space: list[ClauseModel] = Field(description="the declared space of mappings")
    left_out: list[ClauseModel] = Field(description="what is not in the space")
    mappings: Count | None = Field(description="mappings in the space; null: not counted")
    method: Text = Field(description="how the bound was obtained")
    objective: Literal["time", "energy", "edp"] = Field(description="objective of the search")
    bound: QuantityModel = Field(description="no mapping of the space has a smaller objective")
    value: QuantityModel = Field(description="objective of the plan")
    costed: Count = Field(description="mappings that were costed")
    bounds: Count = Field(description="partial mappings that were bounded")
    search_s: Amount = Field(description="wall time of the search")
    closed: Text = Field(description="how the proof ended")


class SolutionModel(Model):
    """A plan with its estimate and certificate."""

    name: Text = Field(description="best, or the name of the baseline")
    variant: str = Field(description="algorithmic variant; empty where there is only one")
    status: Literal["optimal", "within", "limit"] = Field(
        description="optimal: proven; within: proven to be within the gap that was asked for; limit: stopped early, with a bound"
    )
    groups: list[list[str]] = Field(description="ops that are fused together")
    shape: list[str] = Field(description="frame and stages that the search chose, one per group")
    plan: Text = Field(description="the mapping, in the text form of the mapping language")
    estimate: EstimateModel = Field(description="what the plan costs")
    certificate: SolutionCertificateModel = Field(description="how good the plan is at least")


class PointModel(Model):
    """One point of the time-energy front."""

    time_s: Amount = Field(description="time of the plan")
    energy_J: Amount = Field(description="energy of the plan")
    plan: Text = Field(description="the mapping, in the text form of the mapping language")


class MappingsModel(Model):
    """The answer to a mapping problem."""

    best: SolutionModel = Field(description="the best plan found")
    baselines: list[SolutionModel] = Field(description="best plans of restricted spaces")
    absent: list[Text] = Field(
        default=[], description="baselines that apply, but have no plan: none fits, or the search was stopped"
    )
    front: list[PointModel] = Field(description="empty unless asked for")


class OwnMappingModel(Model):
    """A mapping that the user wrote, with its cost."""

    plan: Text = Field(description="the mapping, in the text form of the mapping language")
    estimate: EstimateModel = Field(description="what the mapping costs")


class OwnQuestionModel(Model):
    """What a mapping of the user's maps, and to what."""

    workload: WorkloadModel = Field(description="what is mapped")
    chip: Annotated[ChipFile, WrapValidator(as_it_is)] = Field(description="the whole chip, as in a chip file")


class ChoiceModel(Model):
    """A choice of a space."""

    choice: Text = Field(description="what is chosen")
    options: Count = Field(description="among how many")


class CertificateModel(Model):
    """How good the answer is, and how that is known (`halley.answer.Certificate`)."""

    value: Amount = Field(description="objective of the answer")
    bound: Amount = Field(description="nothing in the declared space has a smaller objective")
    gap: Amount | None = Field(description="value / bound - 1; null without a bound")
    unit: Literal["s", "J", "J s", "chips"] = Field(description="unit of value and bound")
    status: Literal["optimal", "within", "enumerated", "limit", "interrupted"] = Field(description="how the search ended")
    space: list[ChoiceModel] = Field(description="the choices of the space")
    size: Count | None = Field(description="candidates of the space; null: not counted")
    left_out: list[Text] = Field(description="what the space lacks")
    effort: dict[str, Count] = Field(description="how many candidates were bounded, costed and so on")
    seconds: Amount = Field(description="wall time of the search [s]")
    closed: str = Field(description="how the proof ended")


class ProvenanceModel(Model):
    """What made the file."""

    halley: Text = Field(description="version of Halley")
    python: Text = Field(description="version of Python")
    created: Text = Field(description="date and time, UTC, ISO 8601")


class AnswerFile(Model):
    """What files of all answers have."""

    schema_: Literal["halley.answer/1"] = Field(alias="schema", description="name and version of this format")
    kind: Text = Field(description="kind of the answer")
    certificate: CertificateModel | None = Field(None, description="how good the answer is; null where nothing is proven")
    provenance: ProvenanceModel = Field(description="what made the file")


class MappingFile(AnswerFile):
    """The best mapping of a workload on a chip: what ``halley optimise`` writes."""

    kind: Literal["mapping"] = Field(description="kind of the answer")
    question: QuestionModel = Field(description="what was asked")
    answer: MappingsModel = Field(description="the best mapping, and baselines")


class EstimateFile(AnswerFile):
    """The cost of a mapping that the user wrote: what ``halley estimate`` writes."""

    kind: Literal["estimate"] = Field(description="kind of the answer")
    question: OwnQuestionModel = Field(description="what was asked")
    answer: OwnMappingModel = Field(description="the mapping and its cost")
