"""A plan in the terms of training frameworks: degrees of data, pipeline, tensor, context and expert parallelism, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halley.errors import BadInput, Fault
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role, parts_of
from halley.sharding.text import joined, parallelisms
from halley.training.plan import Plan, PlanCost, TrainingResult

PURE = frozenset(frozenset(names) for names in ((), ("TP",), ("TP", "SP"), ("CP",), ("EP",), ("DP",), ("EP", "DP")))
"""Uses of one axis that frameworks have, in each layer."""


@dataclass(frozen=True, slots=True)
class LaunchDecisions:
    """What flags say. Degrees [ranks]: ``data``, ``pipeline``, ``tensor``, ``context``; ``expert``: over which experts
    are distributed, ranks that the other degrees count too. ``inner``: of the data-parallel ranks, those among the chips that
    share the ops of a stage in the plan. ``gathered``: weights are sharded over them and gathered for their use.
    ``sequence_parallel``: tensor-parallel ranks split the tokens between the matrices. ``microbatch`` [sequences] of a
    data-parallel rank, ``microbatches`` of an iteration. ``layers``: of each chunk, in the order of the model.
    ``remarks``: what no framework has a setting for.
    """

    model: str
    chips: int
    batch: int
    sequence: int
    data: int
    pipeline: int
    tensor: int
    context: int
    expert: int
    inner: int
    gathered: bool
    sequence_parallel: bool
    experts: bool
    microbatch: int
    microbatches: int
    schedule: PipelineSchedule
    chunks: int
    layers: tuple[int, ...]
    recompute: Recompute
    zero: Sharded
    offload: bool
    remarks: tuple[str, ...]

    @property
    def even(self) -> bool:
        """Whether all chunks have the same number of layers."""
        return len(set(self.layers)) == 1


def decisions(result: TrainingResult) -> LaunchDecisions:
    """The decisions of the best plan of a result. Raises BadInput: a model with a state space."""
    problem, plan, cost = result.problem, result.plan, result.cost
    if problem.shape.state_space is not None:
        expected = "a plan of a transformer for launch flags"
        raise BadInput(Fault(f"plan of {problem.shape.name}", expected, "layers with a state space", "set the flags by hand"))
    tensor = context = expert = inner = 1
    gathered = sequence = False
    remarks = list(_remarks(plan, cost))
    for part in parts_of(plan.assignment, Role.MODEL):
        names = layer_names(cost).get(part.axis, frozenset())
        gathered |= "FSDP" in names
        sequence |= "SP" in names
        expert *= part.size if "EP" in names else 1
        if "TP" in names:
            tensor *= part.size
        elif "CP" in names:
            context *= part.size
        else:
            inner *= part.size
            if not names:
                remarks.append(f"the {part.size} chips along {part.axis} repeat all work; a framework has more data ranks there")
        uses = names - {"FSDP"}
        if uses not in PURE and uses - {"EP"} not in PURE:
            remarks.append(f"the plan uses {part.axis} for {joined(names)}, which differs from op to op; see 'halley show --op'")
    if plan.microbatch % inner:
        remarks.append(
            f"{inner} of the data-parallel ranks share a microbatch of {plan.microbatch} sequences, which they do not divide"
        )
    return LaunchDecisions(
        problem.shape.name,
        problem.system.chips,
        problem.batch,
        problem.sequence,
        plan.data * inner,
        plan.pipeline.stages,
        tensor,
        context,
        expert,
        inner,
        gathered,
        sequence,
        problem.shape.experts is not None,
        max(plan.microbatch // inner, 1),
        plan.pipeline.microbatches,
        plan.pipeline.schedule,
        plan.pipeline.chunks,
        plan.layers,
        plan.recompute,
        plan.sharded,
        plan.offload,
        tuple(remarks),
    )


def layer_names(cost: PlanCost) -> dict[str, frozenset[str]]:
    """By axis, the names of its uses in the layers, which frameworks configure; embedding and head follow them."""
    found: dict[str, set[str]] = {}
    for part, sharding in cost.shardings.items():
        if part in ("embedding", "head"):
            continue
        for axis, names in parallelisms(sharding).items():
            found.setdefault(axis, set()).update(names)
    return {axis: frozenset(names) for axis, names in found.items()}


INNERMOST_FIRST = (Role.MODEL, Role.DATA, Role.PIPELINE)
"""The order in which frameworks number the ranks."""


def _remarks(plan: Plan, cost: PlanCost) -> Iterator[str]:
    order = [INNERMOST_FIRST.index(part.role) for part in reversed(plan.assignment)]
    if order != sorted(order):
        words = ", ".join(f"{part.size} {part.role} of {part.axis}" for part in plan.assignment)
        yield (
            f"the plan distributes the chips as {words}, outermost first; frameworks number tensor-parallel ranks first, then"
            " data-parallel ones, then stages: order the ranks of the launcher accordingly"
        )
    whole, layers = cost.parallelisms, layer_names(cost)
    if any(set(names) - {"FSDP"} != layers.get(axis, frozenset()) - {"FSDP"} for axis, names in whole.items()):
        yield "embedding and head are sharded in another way than the layers in the plan; a framework shards them like the layers"
    if not plan.fused:
        yield "the plan runs attention kernel by kernel; frameworks have one kernel by default"
