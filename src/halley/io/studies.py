"""What a study file may hold: the model that checks it, and from which its JSON Schema is made."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from halley.io.files.entries import Duration, Entry, Gap, Text
from halley.io.files.models import ChipFile, GraphWorkload, Model, WorkloadFile
from halley.io.systems.models import SystemFile


def _unchecked(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """The schema shows what there is to choose from; the loader checks it, with the lines of the file."""
    return value


Unchecked = WrapValidator(_unchecked)


class LinkedAxisFile(Model):
    """An axis that sets several numbers at once: one list for all of them, or a list for each, of equal length."""

    set: list[Text] | dict[str, Any] = Field(description="paths of the chip file, or a map from these to their values")
    values: Any = Field(None, description="the values of all paths; left out where each has its own")


class StudyPlanFile(Model):
    """A model to be trained, with the options of ``halley plan``; text may have names of axes in braces."""

    model: Text = Field(description="name of a shipped model, or a path to a model file or a config.json")
    batch: int | Text = Field(description="sequences of an iteration")
    sequence: int | Text | None = Field(None, description="tokens of a sequence; left out, those of the training")
    fix: Text | None = Field(None, description="fixed decisions, such as tp=8,pp=8")
    whole: bool = Field(False, description="true: each axis for one kind of parallelism")
    optimizer: Text | None = Field(None, description="bytes per parameter, by name")
    efficiency: Text | None = Field(None, description="fit of a chip's kernels, by name or path")
    software: Text | None = Field(None, description="what launches the kernels, by name or path")
    kernels: Text = Field("library", description="library, or searched: each kernel by its best mapping on the chip")
    framework: Text | None = Field(None, alias="for", description="only plans that this framework can run")


class StudyDeploymentFile(Model):
    """A model to be served, with the options of ``halley plan --serve``; text may have names of axes in braces."""

    model: Text = Field(description="name of a shipped model, or a path to a model file or a config.json")
    input: int | Text = Field(description="mean tokens of a prompt")
    output: int | Text = Field(description="mean tokens of an answer")
    prefix: int | Text = Field(0, description="tokens of a prompt that the cache has already; left out, 0")
    slo: Text | None = Field(None, description="limits, such as 'ttft 1 s, tpot 30 ms'")
    weights: Text = Field("bf16", description="dtypes of matrices to choose from, such as bf16,fp8")
    cache: Text = Field("bf16", description="dtype of the cache")
    state: Text = Field("bf16", description="dtype of the states of recurrent layers")
    software: Text | None = Field(None, description="serving framework, by name or path")
    efficiency: Text | None = Field(None, description="fit of a chip's kernels, by name or path")
    together: bool = Field(False, description="true: no separate pools for prompts and decoding")


class StudyFile(Model):
    """A study: workloads on all designs that the axes span from a base chip, or plans and deployments on those from a system."""

    workloads: dict[str, Annotated[WorkloadFile | GraphWorkload, Unchecked]] | None = Field(
        None, description="workloads of a chip by name: a kind with its parameters, or a graph", min_length=1
    )
    plans: dict[str, Annotated[StudyPlanFile, Unchecked]] | None = Field(
        None, description="models to be trained on a system, by name", min_length=1
    )
    weights: dict[str, Annotated[float, Field(gt=0, le=1e12)]] = Field(
        default_factory=dict, description="how often each workload counts; left out, once"
    )
    deployments: dict[str, Annotated[StudyDeploymentFile, Unchecked]] | None = Field(
        None, description="models to be served by a system, by name", min_length=1
    )
    chip: Annotated[Text | ChipFile | None, Unchecked] = Field(
        None, description="the base of workloads: name of a shipped chip, path to a chip file, or the chip itself"
    )
    system: Annotated[Text | SystemFile | None, Unchecked] = Field(
        None,
        description="the base of plans and deployments: a name, a path, a short form with {axes} in braces, or the system",
    )
    axes: dict[str, Annotated[LinkedAxisFile | list[Any] | Text, Unchecked]] = Field(
        description="values by path of the base's file, such as glb.capacity: 1, 2, 4 MiB", min_length=1
    )
    figures: dict[str, Text] = Field(default_factory=dict, description="figures of one's own, by formula: area: 2 + 1e-4 * macs")
    where: list[Text] = Field(default_factory=list, description="constraints on figures and axes that every design keeps")
    minimise: list[Text] = Field(
        default_factory=lambda: ["time"], description="time, energy or edp, and figures; left out, time", min_length=1
    )
    gap: Gap = Field(Entry(0.0), description="relative distance to the proven bound at which a search may stop; left out, 0")
    time_limit: Duration | None = Field(None, description="longest time of one search; left out, no limit")
