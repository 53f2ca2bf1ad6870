"""A plan of training as plain data, in SI units: what ``halley plan --json`` prints and ``-o`` writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from halley.io.systems.save import system_document
from halley.sharding.solution import Sharding
from halley.sharding.text import op_names
from halley.spatial.solve import SpatialPlan
from halley.training.plan import Plan, PlanCost, TrainingResult
from halley.version import halley_version

SCHEMA = "halley.plan/1"
"""Version of the document."""


def plan_document(result: TrainingResult) -> dict[str, Any]:
    """All that a result says. Times in seconds, sizes in bytes, work in operations, prices in USD, power in watts."""
    problem, certificate = result.problem, result.certificate
    return {
        "schema": SCHEMA,
        "problem": {
            "model": asdict(problem.shape),
            "system": system_document(problem.system),
            "batch": problem.batch,
            "sequence": problem.sequence,
            "efficiency": asdict(problem.efficiency),
            "recipe": asdict(problem.recipe),
        },
        "status": result.status.name.lower(),
        "plan": _plan(result.plan),
        "cost": _cost(result.cost),
        "on_chip": {
            name: {passing: _partitions(plan) for passing, plan in part.on_chip.items()}
            for name, part in zip(result.cost.shardings, result.cost.parts.parts, strict=True)
            if part.on_chip
        },
        "shardings": {name: _sharding(each, result.cost.splitting) for name, each in result.cost.shardings.items()},
        "alternatives": [
            {
                "plan": _plan(item.plan),
                "time": item.cost.time,
                "account": dict(item.cost.account),
                "changes": list(item.changes),
                "slower": dict(item.slower),
            }
            for item in result.alternatives
        ],
        "untimed": _finite(result.untimed),
        "unfit": _finite(result.unfit),
        "certificate": asdict(certificate) | {"space": dict(certificate.space), "gap": certificate.gap},
        "provenance": {"halley": halley_version(), "created": datetime.now(UTC).isoformat(timespec="seconds")},
    }


def _finite(time: float) -> float | None:
    return time if isfinite(time) else None


def _plan(plan: Plan) -> dict[str, Any]:
    pipeline = plan.pipeline
    return {
        "axes": [asdict(part) for part in plan.assignment],
        "data": plan.data,
        "stages": pipeline.stages,
        "model": plan.model,
        "microbatch": plan.microbatch,
        "microbatches": pipeline.microbatches,
        "schedule": str(pipeline.schedule),
        "chunks": pipeline.chunks,
        "layers": list(plan.layers),
        "recompute": str(plan.recompute),
        "zero": int(plan.sharded),
        "offload": plan.offload,
        "fused": plan.fused,
    }


def _cost(cost: PlanCost) -> dict[str, Any]:
    return {
        "time": cost.time,
        "account": dict(cost.account),
        "tokens_per_second": cost.tokens_per_second,
        "utilisation": cost.utilisation,
        "hardware_utilisation": cost.hardware_utilisation,
        "model_work": cost.model_work,
        "hardware_work": cost.hardware_work,
        "peak": cost.peak,
        "price": cost.bill.price,
        "power": cost.bill.power,
        "memory": [dict(stage) for stage in cost.memory],
        "offloaded": list(cost.offloaded),
        "tier": cost.tier,
        "second_tier": cost.second,
        "capacity": cost.capacity,
        "exposed": [{"role": str(item.role), "kind": item.kind, "time": item.time} for item in cost.exposed],
        "traffic": [asdict(item) | {"role": str(item.role), "axes": list(item.axes)} for item in cost.traffic],
        "loads": [asdict(load) for load in cost.loads],
        "parallelisms": {axis: list(names) for axis, names in cost.parallelisms.items()},
    }


def _partitions(plan: SpatialPlan) -> dict[str, Any]:
    """A pass on a spatial chip: its partitions in the order in which they run."""
    return {
        "time": plan.layer,
        "bound": plan.bound,
        "tokens": plan.problem.graph.sequence,
        "partitions": [
            {
                "kernels": list(part.names),
                "tokens_at_a_time": min(part.tile, plan.problem.graph.sequence),
                "tiles": list(part.tiles),
                "alone": part.unfused,
                "streamed": list(part.streamed),
                "time": part.steady + part.once,
                "compute": part.compute,
                "memory": part.memory,
                "network": part.network,
                "once": part.once,
                "traffic": part.traffic,
                "loaded": part.loaded,
                "sram": part.sram,
                "limit": part.bottleneck,
            }
            for part in plan.partitions
        ],
    }


def _sharding(sharding: Sharding, splitting: Collection[str]) -> dict[str, Any]:
    """Ops with the dim that each axis splits, and the collectives between them."""
    names: Mapping[str, tuple[str, ...]] = op_names(sharding, splitting)
    return {
        "axes": {axis.name: axis.ranks for axis in sharding.problem.mesh},
        "time": sharding.time,
        "bound": sharding.certificate.bound,
        "ops": [
            {"op": item.op, "ways": [way.name for way in item.strategy], "names": list(names[item.op]), "time": item.time}
            for item in sharding.ops
        ],
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
