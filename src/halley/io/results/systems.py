"""Questions about whole systems in files of answers: the model, the system with its whole chip, kernels' efficiency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import yaml
from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.chips.save import chip_document
from halley.io.files.entries import Text
from halley.io.files.models import Model
from halley.io.results.envelope import Saved
from halley.io.systems.save import system_document
from halley.io.systems.system import parse_system
from halley.ir.system import System
from halley.sharding.axes import Role, SubAxis
from halley.sharding.decisions import ShardingDecisions, decisions_of
from halley.sharding.solution import Sharding


class AxisPartModel(Model):
    """A part of an axis of the system (`halley.sharding.axes.SubAxis`)."""

    axis: Text = Field(description="name of the axis")
    role: Role = Field(description="what is distributed over its ranks: data, pipeline or model")
    size: int = Field(ge=2, description="ranks")
    stride: int = Field(ge=1, description="how far apart along the axis they are")

    def part(self) -> SubAxis:
        """As the search has it."""
        return SubAxis(self.axis, self.role, self.size, self.stride)


class ShardingModel(Model):
    """The sharding of a graph: the decisions, from which it is costed again, and figures that follow from them."""

    ops: dict[str, tuple[str, ...]] = Field(description="by op, its way along each axis: the dim that is split")
    ends: dict[str, tuple[str, ...]] = Field(description="by input and output, its layout: the dim that each axis splits")
    copies: dict[str, tuple[str, ...]] = Field(description="by kept copy of a tensor, its layout")
    in_flight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        description="microbatches whose tensors are kept at once"
    )
    fused: tuple[str, ...] = Field((), description="names of the groups of kernels that run as one")
    axes: dict[str, int] = Field(description="ranks of each axis")
    time: float = Field(description="time of work and collectives [s]")
    work: dict[str, float] = Field(description="by op, time of its own work on one chip [s]")
    names: dict[str, list[str]] = Field(description="by op, what its sharding is called in the field")
    collectives: list[dict[str, Any]] = Field(description="collectives in their order, bytes and seconds")

    def decisions(self) -> ShardingDecisions:
        """What is decided."""
        return ShardingDecisions(self.ops, self.ends, self.copies, self.in_flight, self.fused)


def sharding_document(sharding: Sharding, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Ops with the dim that each axis splits, layouts, and the collectives between ops; ``names``: by op, of its parallelisms."""
    return {
        **asdict(decisions_of(sharding)),
        "axes": {axis.name: axis.ranks for axis in sharding.problem.mesh},
        "time": sharding.time,
        "work": {item.op: item.time for item in sharding.ops},
        "names": {item.op: list(names[item.op]) for item in sharding.ops},
        "collectives": [
            {
                "kind": str(step.kind),
                "tensor": move.tensor,
                "axes": list(step.axes),
                "before": move.reader,
                "bytes": step.bytes,
                "time": step.time,
            }
            for move, step in sharding.steps
        ],
    }


def whole_system(system: System) -> dict[str, Any]:
    """The content of a system file with the whole chip in it, so that the answer does not depend on the chips of another
    version."""
    return system_document(system) | {"chip": chip_document(system.chip)}


def system_in(saved: Saved, data: Mapping[str, Any]) -> System:
    """The system of the question. Raises BadInput: every fault of it."""
    where = f"{saved.name}: question.system"
    try:
        return parse_system(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), where)
    except yaml.YAMLError:
        raise BadInput(Fault(where, "the content of a system file", "text that YAML cannot hold")) from None
