"""Demand of a sharded graph on each resource of a chip: its engines, its memory, every axis of the network."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.formulas.numbers import ceil_div
from halley.graphs.kernels import inner_tensors, op_extents, op_work
from halley.graphs.plan import GraphPlan, graph_kernel
from halley.kernels.machine import machine
from halley.kernels.times import demand
from halley.network.time.phased import sending_bandwidth
from halley.sharding.axes import Role, degree, parts_of
from halley.sharding.loads import ResourceLoad, crossed, sent_by_axis


@dataclass(frozen=True, slots=True)
class GraphLoads:
    """Of a chip of the first stage, for its layers and all microbatches: ``operations`` [op] of all ops, and what each resource
    is asked for."""

    operations: float
    loads: tuple[ResourceLoad, ...]


def graph_loads(plan: GraphPlan) -> GraphLoads:
    """The loads of a chip. Each kernel reads its inputs from memory and writes its results once; a partition of fused kernels
    moves what the partition states."""
    problem, sharding = plan.problem, plan.sharding
    work, system = problem.workload, problem.system
    chip, inner = machine(system.chip), inner_tensors(work)
    stages = degree(plan.assignment, Role.PIPELINE)
    times = int(ceil_div(problem.layers, stages)) * problem.microbatches
    operations, products, kernels = 0.0, 0.0, 0.0
    for op in work.ops:
        local = op_extents(sharding, op)
        macs, size = demand(graph_kernel(work, op, local, inner))
        operations += op_work(work, op, local)
        products += 2.0 * float(macs)
        kernels += float(size)
    moved = math.fsum(part.traffic for part in plan.partitions) if plan.partitions else kernels
    sent = dict.fromkeys((axis.name for axis in system.axes), 0.0)
    own = {part.axis: part.size for part in parts_of(plan.assignment, Role.MODEL)}
    for move, step in sharding.steps:
        if step.kind is not None:
            for axis, part in sent_by_axis(system, step.kind, {name: own[name] for name in step.axes}, step.bytes).items():
                sent[axis] += times * part / move.runs
    if stages > 1:
        for axis in crossed(parts_of(plan.assignment, Role.PIPELINE), 0, 1):
            sent[axis] += problem.microbatches * plan.memory.outputs
    found = (
        ResourceLoad("matrix engine", times * products, 2.0 * chip.mac_rate(problem.dtype), "op"),
        ResourceLoad("memory", times * moved, chip.memory, "B"),
        *(
            ResourceLoad(f"network {axis.name}", sent[axis.name], sending_bandwidth(axis, axis.size), "B")
            for axis in reversed(system.axes)
        ),
    )
    return GraphLoads(times * operations, tuple(load for load in found if load.demand))
