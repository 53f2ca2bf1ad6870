"""What a study file may hold: the model that checks it, and from which its JSON Schema is made."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from halley.io.files.entries import Duration, Entry, Gap, Text
from halley.io.files.models import ChipFile, GraphWorkload, Model, WorkloadFile


def _unchecked(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """The schema shows what there is to choose from; the loader checks it, with the lines of the file."""
    return value


Unchecked = WrapValidator(_unchecked)


class LinkedAxisFile(Model):
    """An axis that sets several numbers at once: one list for all of them, or a list for each, of equal length."""

    set: list[Text] | dict[str, Any] = Field(description="paths of the chip file, or a map from these to their values")
    values: Any = Field(None, description="the values of all paths; left out where each has its own")


class StudyFile(Model):
    """A study: workloads on all designs that the axes span from a base chip."""

    workloads: dict[str, Annotated[WorkloadFile | GraphWorkload, Unchecked]] = Field(
        description="workloads by name: a kind with its parameters, or a graph", min_length=1
    )
    weights: dict[str, Annotated[float, Field(gt=0, le=1e12)]] = Field(
        default_factory=dict, description="how often each workload counts; left out, once"
    )
    chip: Annotated[Text | ChipFile, Unchecked] = Field(
        description="the base: name of a shipped chip, path to a chip file (from this file's folder), or the chip itself"
    )
    axes: dict[str, Annotated[LinkedAxisFile | list[Any] | Text, Unchecked]] = Field(
        description="values by path of the chip file, such as glb.capacity: 1, 2, 4 MiB", min_length=1
    )
    figures: dict[str, Text] = Field(default_factory=dict, description="figures of one's own, by formula: area: 2 + 1e-4 * macs")
    where: list[Text] = Field(default_factory=list, description="constraints on figures and axes that every design keeps")
    minimise: list[Text] = Field(
        default_factory=lambda: ["time"], description="time, energy or edp, and figures; left out, time", min_length=1
    )
    gap: Gap = Field(Entry(0.0), description="relative distance to the proven bound at which a search may stop; left out, 0")
    time_limit: Duration | None = Field(None, description="longest time of one search; left out, no limit")
