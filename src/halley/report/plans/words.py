"""A plan of training in words: in one line, and what its roles are called in the field."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from halley.ir.system import System
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.sharding.text import joined
from halley.training.plan import Plan, PlanCost

DIMS: Mapping[str, str] = {
    "b": "sequences",
    "m": "tokens",
    "n": "keys",
    "k": "model width",
    "h": "heads",
    "g": "queries of a head",
    "d": "head width",
    "e": "head width",
    "f": "hidden width",
    "s": "hidden width, shared",
    "q": "latent queries",
    "l": "latent keys",
    "r": "rotary width",
    "v": "vocabulary",
    "x": "experts",
    "c": "tokens of an expert",
}
"""What the dims of a transformer's parts are (`halley.workloads.training`)."""


def system_words(system: System) -> str:
    """The chips of a system, and its name or what a short form says beside them.

    >>> from halley.io.systems.system import load_system
    >>> system_words(load_system("16 x h100, nvlink 8, ib")), system_words(load_system("sn10-torus"))
    ('16 x h100 (nvlink 8, ib)', '8 x sn10 (sn10-torus)')
    """
    head = f"{system.chips:,} x {system.chip.name}"
    rest = system.name.lower().removeprefix(f"{system.chips} x {system.chip.name}".lower())
    return f"{head} ({rest.removeprefix(', ')})" if rest else head


STATE_SPACE_DIMS: Mapping[str, str] = {
    "b": "sequences",
    "c": "chunks",
    "l": "positions in a chunk",
    "s": "positions in a chunk",
    "k": "model width",
    "g": "groups of heads",
    "h": "heads",
    "p": "head width",
    "n": "columns of the state",
    "j": "taps",
    "v": "vocabulary",
}
"""The same of a model with a state space."""


def dim_words(dims: Collection[str]) -> Mapping[str, str]:
    """What the dims of a part are, which has tokens m, or chunks of tokens."""
    return DIMS if "m" in dims else STATE_SPACE_DIMS


def plan_words(plan: Plan, cost: PlanCost | None = None) -> str:
    """A plan in one line; with its ``cost``, what the chips that share ops are called in the field.

    ``data 16 x pipeline 8 x model 8 (TP+SP), microbatch 1, interleaved 1F1B with 4 chunks, recompute selective, ZeRO 1``
    """
    names = model_names(cost) if cost else ""
    degrees = f"data {plan.data} x pipeline {plan.pipeline.stages} x model {plan.model}{f' ({names})' if names else ''}"
    parts = [degrees, f"microbatch {plan.microbatch}"]
    if plan.pipeline.stages > 1:
        parts.append(schedule_words(plan))
    if plan.recompute is not Recompute.NONE:
        parts.append(f"recompute {plan.recompute}")
    if plan.sharded is not Sharded.NOTHING:
        parts.append(f"ZeRO {int(plan.sharded)}")
    if plan.offload:
        parts.append("offload")
    if not plan.fused:
        parts.append("attention or scans not fused")
    return ", ".join(parts)


def short_words(plan: Plan) -> str:
    """A plan in a few characters: ``16 x 8 x 8, mb 1, v 4, full, Z1``, degrees in the order data, pipeline, model."""
    parts = [f"{plan.data} x {plan.pipeline.stages} x {plan.model}", f"mb {plan.microbatch}"]
    if plan.pipeline.chunks > 1:
        parts.append(f"v {plan.pipeline.chunks}")
    if plan.recompute is not Recompute.NONE:
        parts.append("sel" if plan.recompute is Recompute.SELECTIVE else str(plan.recompute))
    if plan.sharded:
        parts.append(f"Z{int(plan.sharded)}")
    if plan.offload:
        parts.append("off")
    return ", ".join(parts)


def schedule_words(plan: Plan) -> str:
    """The schedule of a pipeline."""
    pipeline = plan.pipeline
    if pipeline.schedule is PipelineSchedule.GPIPE:
        return "GPipe"
    return f"interleaved 1F1B, {pipeline.chunks} chunks a stage" if pipeline.chunks > 1 else "1F1B"


def model_names(cost: PlanCost) -> str:
    """What the chips that share ops do, over all axes: ``TP+SP``; "" where there is one."""
    return joined({name for names in cost.parallelisms.values() for name in names})


def role_words(role: Role, plan: Plan, cost: PlanCost) -> str:
    """A role as the field calls it: ``DP, ZeRO 3``, ``PP``, ``TP+SP``."""
    if role is Role.DATA:
        return f"DP, ZeRO {int(plan.sharded)}" if plan.sharded else "DP"
    return "PP" if role is Role.PIPELINE else model_names(cost) or "ops"
