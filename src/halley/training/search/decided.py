"""The cost of a training plan from its decisions alone, recomputed by the model that the search uses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halley.errors import BadInput, Fault, Infeasible
from halley.sharding.axes import Role, assignment_text, cuts, degree
from halley.sharding.communication import Communication, Interconnect
from halley.sharding.decisions import ShardingDecisions, decided
from halley.training.axis_bounds import GraphVariant
from halley.training.cost import PlanInputs, plan_cost
from halley.training.part_costs import ModelCosts, PartCosts, part_counts, sharded_costs, training_graphs
from halley.training.part_solvers import PartSolver
from halley.training.plan import Plan, PlanCost, TrainingProblem
from halley.training.sharded_model import ShardedModel
from halley.training.spatial.model import SpatialModel, cost_model
from halley.units import format_bytes


def plan_faults(problem: TrainingProblem, plan: Plan) -> list[Fault]:
    """Where the decisions contradict the problem or each other: axes that the system does not have, a batch or layers that are
    not all distributed."""
    where, faults = f"plan of {problem.shape.name}", list[Fault]()
    axes = {axis.name: axis for axis in problem.system.axes}
    for name, axis in axes.items():
        own = tuple(part for part in plan.assignment if part.axis == name)
        # equal parts in another order are the same cut on a switch, so that only one order is listed
        if own not in cuts(axis):
            got = assignment_text(own) if own else "no part of it"
            faults.append(Fault(f"{where}, axes", f"a cut of {name} into parts whose ranks multiply to {axis.size}", got))
    strange = [part.axis for part in plan.assignment if part.axis not in axes]
    faults += [Fault(f"{where}, axes", f"axes of {problem.system.name}: {', '.join(axes)}", repr(name)) for name in strange]
    stages = degree(plan.assignment, Role.PIPELINE)
    if plan.pipeline.stages != stages:
        faults.append(Fault(f"{where}, stages", f"{stages}, the ranks of the axes for layers", str(plan.pipeline.stages)))
    sequences = plan.data * plan.microbatch * plan.pipeline.microbatches
    if sequences != problem.batch:
        expected = f"data x microbatch x microbatches = {problem.batch}, the batch"
        faults.append(
            Fault(f"{where}, microbatches", expected, f"{plan.data} x {plan.microbatch} x {plan.pipeline.microbatches}")
        )
    chunks = plan.pipeline.last + 1
    if len(plan.layers) != chunks or sum(plan.layers) != problem.shape.layers or min(plan.layers, default=1) < 0:
        expected = f"{chunks} chunks with {problem.shape.layers} layers together"
        faults.append(Fault(f"{where}, layers", expected, f"{len(plan.layers)} chunks with {sum(plan.layers)} layers"))
    if plan.offload and problem.second is None:
        faults.append(Fault(f"{where}, offload", "a second memory to offload to", f"none in {problem.system.name}"))
    return faults


def decided_cost(problem: TrainingProblem, plan: Plan, parts: Sequence[ShardingDecisions]) -> PlanCost:
    """What the plan costs under the shardings that ``parts`` decide: embedding, each kind of layer, head.

    Kernels that a spatial chip runs side by side are partitioned anew, as well as can be.

    Raises BadInput: decisions that contradict the problem or each other; Infeasible: a chip has too little memory.
    """
    faults = plan_faults(problem, plan)
    counts = part_counts(problem.shape, plan.microbatch, problem.sequence)
    if len(parts) != len(counts):
        expected = f"{len(counts)}: embedding, {len(counts) - 2} kinds of layers, head"
        faults.append(Fault(f"plan of {problem.shape.name}, shardings", expected, str(len(parts))))
    if len(numbers := {part.in_flight for part in parts}) > 1:
        expected = "one number of microbatches in flight for all parts"
        faults.append(Fault(f"plan of {problem.shape.name}, shardings", expected, ", ".join(map(str, sorted(numbers)))))
    if faults:
        raise BadInput(faults)
    named = bool(problem.fixed.splits) or problem.fixed.boundary is not None
    communication = Communication(Interconnect(problem.system, problem.libraries, named), plan.assignment)
    costs = _model_costs(problem, plan, parts, communication, counts)
    found = plan_cost(problem, plan, PlanInputs(communication, costs))
    if misfits := list(memory_faults(problem, plan, found)):
        raise Infeasible(misfits)
    return found


def _model_costs(
    problem: TrainingProblem,
    plan: Plan,
    parts: Sequence[ShardingDecisions],
    communication: Communication,
    counts: Sequence[int],
) -> ModelCosts:
    model, variant = cost_model(problem), GraphVariant(plan.recompute, plan.fused)
    base = model.base if isinstance(model, SpatialModel) else model
    assert isinstance(base, ShardedModel)  # `cost_model` makes no other
    terms = base.terms(communication, variant)
    found = list[PartCosts]()
    for graph, decisions in zip(
        training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused), parts, strict=True
    ):
        solver: PartSolver = base.solvers.of(graph, terms).within(terms.weight_bytes, decisions.in_flight)
        costs = sharded_costs(solver, decided(solver.tables, decisions), decisions.in_flight)
        found.append(model.fused(costs, graph, communication) if isinstance(model, SpatialModel) else costs)
    first, *layers, last = found
    meets = [(part.sharding.ends[end]) for part in found for end in ("X", "Y") if end in part.sharding.ends and part is not last]
    if "X" in last.sharding.ends:
        meets.append(last.sharding.ends["X"])
    if any(layout != first.sharding.ends["Y"] for layout in meets[1:]):
        where = f"plan of {problem.shape.name}, shardings"
        raise BadInput(Fault(where, "one layout in which all parts of the model meet", "different ones"))
    return ModelCosts(first, tuple(zip(layers, counts[1:-1], strict=True)), last, first.sharding.ends["Y"])


def memory_faults(problem: TrainingProblem, plan: Plan, cost: PlanCost) -> list[Fault]:
    """Stages whose chips hold more than the capacity of their memory or of its second tier."""
    where, faults = f"plan of {problem.shape.name}", list[Fault]()
    second = problem.second.capacity if problem.second and plan.offload else math.inf
    for stage, (held, away) in enumerate(zip(cost.memory, cost.offloaded, strict=True), 1):
        for name, size, capacity in ((cost.tier, sum(held.values()), cost.capacity), (cost.second, away, second)):
            if size > capacity:
                expected = f"at most {format_bytes(capacity)} in {name}"
                faults.append(Fault(f"{where}, stage {stage}", expected, format_bytes(size)))
    return faults
