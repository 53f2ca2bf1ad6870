"""Verification of plans of training: laws, memory, certificate, shardings executed, and a search for better ones."""

from __future__ import annotations

import math
from collections.abc import Iterator

from halley.answer import Status
from halley.dfmodel.plan import DFModelResult, best_training
from halley.errors import Infeasible, SearchStopped
from halley.ir.hardware import Chip
from halley.ir.mapping import CollectiveKind
from halley.ir.text import parse
from halley.kernels.groups import GroupShape
from halley.kernels.search import mapped_workload
from halley.kernels.searched import AttentionShape, shape_of
from halley.pipeline.data_parallel import Sharded
from halley.sharding.axes import Role, assignment_text
from halley.training.op_mapping import op_mapping, ops_of_kernels
from halley.training.part_costs import training_graphs
from halley.training.plan import TrainingResult
from halley.training.search.decided import memory_faults, plan_faults
from halley.training.search.joint import best_joint_plan, searched_in_plan
from halley.training.search.search import OPTIMAL_GAP, best_training_plan
from halley.units import format_bytes, format_time
from halley.verify.data_parallel import gradients_finding
from halley.verify.findings import TOLERANCE, Finding, Progress, certificate_finding, out_of_time, stop_after
from halley.verify.iteration import iteration_finding
from halley.verify.mapping import execution_findings, time_finding
from halley.verify.sharding import bytes_finding, sharding_finding

BEST = "best"
"""What the best plan is called."""

LONGEST_KERNELS = 3
"""Searched kernels that are simulated and executed."""

MOST_MEMBERS = 64
"""Most members of all chips together on which a tree is executed."""


def training_findings(
    result: TrainingResult, limit: float = 60.0, search: bool = True, progress: Progress | None = None
) -> Iterator[Finding]:
    """A plan of training: its numbers go together, every stage fits, the parts of the time add up to it, no alternative is
    faster, the certificate is in order, a simulated iteration takes as long, sharded ops compute the right thing with collectives
    of the bytes that are counted, data-parallel ranks end with the gradients of all sequences, searched kernels take the time and
    move the bytes that they should, and a search of ``limit`` [s] finds nothing better."""
    problem, plan, cost = result.problem, result.plan, result.cost
    faults = plan_faults(problem, plan)
    text = assignment_text(plan.assignment)
    yield Finding(BEST, "laws", not faults, str(faults[0]) if faults else f"batch, layers and axes are all distributed: {text}")
    overfull = memory_faults(problem, plan, cost)
    held = max(sum(stage.values()) for stage in cost.memory)
    fits = f"{format_bytes(held)} of {format_bytes(cost.capacity)} on the fullest chip"
    yield Finding(BEST, "memory", not overfull, str(overfull[0]) if overfull else fits)
    parts = math.fsum(cost.account.values())
    yield Finding(BEST, "account", abs(parts - cost.time) <= TOLERANCE * cost.time, f"parts add up to {format_time(parts)}")
    faster = [other for other in result.alternatives if other.cost.time < cost.time * (1 - TOLERANCE)]
    detail = f"one takes {format_time(faster[0].cost.time)}" if faster else f"none of {len(result.alternatives)} is faster"
    yield Finding("alternatives", "times", not faster, detail)
    yield certificate_finding(BEST, result.certificate, cost.time, OPTIMAL_GAP)
    yield iteration_finding(BEST, result)
    graphs = training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused)
    kind = CollectiveKind.ALL_REDUCE if plan.sharded is Sharded.NOTHING else CollectiveKind.REDUCE_SCATTER
    for graph, part in zip(graphs, cost.parts.parts, strict=True):
        name = part.sharding.problem.workload.name
        yield sharding_finding(name, part.sharding)
        yield bytes_finding(name, part.sharding, part.parameters)
        if plan.data > 1:
            own = {weight: graph.found.gradients[weight] for weight in graph.weights}
            yield gradients_finding(name, part.sharding, own, plan.data, kind)
    yield from _kernel_findings(result)
    if search:
        yield _searched(result, limit, progress)


def _kernel_findings(result: TrainingResult) -> Iterator[Finding]:
    """Of the searched kernels of a plan that take longest, of attention and of groups: the event simulation of one, and its tree
    at a reduced size, on the chips of a stage if these are few, else on one chip. Its bytes on every axis and in every memory are
    those of the formulas."""
    known = sorted(searched_in_plan(result).items(), key=lambda item: -item[1].time)
    rest = known[LONGEST_KERNELS:]
    kinds = (AttentionShape, GroupShape)
    others = [next((item for item in rest if isinstance(item[0], kind)), None) for kind in kinds]
    parts = ops_of_kernels(result)
    for shape, cost in (*known[:LONGEST_KERNELS], *filter(None, others)):
        part, op = next((part, op) for part, ops in parts.items() for op, kernel in ops.items() if shape_of(kernel) == shape)
        found, tree = op_mapping(result, f"{part}/{op}"), parse(cost.mapping)
        name, work, chip = f"{part}/{op}", mapped_workload(shape, tree), result.problem.chip
        yield time_finding(name, work, chip, tree)
        if found.whole and found.workload and found.chip and found.tree and _members(found.chip) <= MOST_MEMBERS:
            chips = math.prod(split.part.size for split in found.splits if split.part.role is not Role.PIPELINE)
            yield from execution_findings(f"{name} on {chips} chips", found.workload, found.chip, found.tree)
        else:
            yield from execution_findings(name, work, chip, tree)


def _members(chip: Chip) -> int:
    return math.prod(axis.size for _, axis in chip.axes)


def _searched(result: TrainingResult, limit: float, progress: Progress | None) -> Finding:
    """Nothing better exists, and the bound is confirmed if there is time."""
    what, time, bound = "search again", result.cost.time, result.certificate.bound
    try:
        if result.problem.searched is None:
            again = best_training_plan(result.problem, progress, limit, others=0)
        else:
            again = best_joint_plan(result.problem, progress, limit)
    except SearchStopped:
        return out_of_time(BEST, what, limit)
    except Infeasible as error:
        return Finding(BEST, what, False, f"no plan fits, yet the file has one: {error.faults[0]}")
    found = f"{format_time(again.cost.time)} found anew, bound {format_time(again.certificate.bound)}"
    by_formula = result.problem.searched is not None and result.problem.searched.by_formula  # it may be below every mapping
    if again.certificate.bound > time * (1 + OPTIMAL_GAP) and not by_formula:
        return Finding(BEST, what, False, f"{found}; yet the file has {format_time(time)}")
    if bound > again.cost.time * (1 + OPTIMAL_GAP):
        return Finding(BEST, what, False, f"{found}, below the file's bound of {format_time(bound)}")
    if again.status is Status.OPTIMAL:
        return Finding(BEST, what, True, f"{found}, proven")
    if again.status is Status.WITHIN and bound <= again.certificate.bound * (1 + OPTIMAL_GAP):
        return Finding(BEST, what, True, f"{found}, which is where the search ends")
    return Finding(BEST, what, None, f"{found}, not proven within {limit:g} s; raise --time-limit")


def dfmodel_findings(
    result: DFModelResult, limit: float = 60.0, search: bool = True, progress: Progress | None = None
) -> Iterator[Finding]:
    """A plan in the view of DFModel: memory, the parts of its time, no candidate faster, and a search of at most ``limit`` [s]
    finds nothing better."""
    problem = result.problem
    fits = result.memory <= problem.chip.dram
    yield Finding(BEST, "memory", fits, f"{format_bytes(result.memory)} of {format_bytes(problem.chip.dram)} on a chip")
    parts = math.fsum(result.account.values())
    yield Finding(BEST, "account", abs(parts - result.time) <= TOLERANCE * result.time, f"parts add up to {format_time(parts)}")
    first = min((item for item in result.candidates), key=lambda item: item.time, default=None)
    own = [item for item in result.candidates if item.assignment == result.choice.assignment]
    right = first is not None and first.time >= result.time * (1 - TOLERANCE) and bool(own)
    yield Finding("candidates", "times", right, f"none of {len(result.candidates)} is faster" if right else "one is faster")
    if search:
        try:
            again = best_training(problem, stop_after(limit, progress))
        except SearchStopped:
            yield out_of_time(BEST, "search again", limit)
            return
        same = abs(again.time - result.time) <= OPTIMAL_GAP * result.time and again.choices == result.choices
        yield Finding(BEST, "search again", same, f"{format_time(again.time)} is the optimum of {again.choices:,} choices")
