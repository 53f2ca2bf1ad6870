"""Lower bounds of the costs of a model's parts on any number of chips under any sharding, to prune plans.

No sharding over m ranks leaves all of them with less than 1/m of an op's points, of a tensor, of a product. Collectives count
as 0, and kernels run at the fitted rates, without waves, refetches or padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number, minimum
from halley.formulas.timing import longest, total
from halley.ir.workload import Op, OpKind
from halley.kernels.bounds import rate_time
from halley.kernels.groups import GroupKernel, group_demand, group_rate_time
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.operations import tensor_bytes
from halley.kernels.searched import AnyKernel
from halley.kernels.times import demand
from halley.pipeline.data_parallel import RECIPES, Recipe
from halley.rewrite.recompute import Recompute
from halley.sharding.joint import disjoint
from halley.training.groups import GroupTimes, ProductGroup, overlapping_groups, product_groups
from halley.training.kernels import TrainingGraph, lifetimes, saved_tensors
from halley.training.op_costs import Task, op_tasks, times_at_many
from halley.training.part_costs import part_counts, training_graphs
from halley.training.per_part import PerPart
from halley.workloads.transformer import Transformer


@dataclass(frozen=True, slots=True, eq=False)
class PartBound:
    """Lower bounds of the fields of `halley.training.part_costs.PartCosts`, numbers or arrays over plans. ``excess`` [s]: least
    time of the kernels of all passes beyond their local work at the rates of the chip (`RateTimes`)."""

    forward: Number
    recompute: Number
    backward: Number
    parameters: Number
    activation: Number
    working: Number
    macs: Number
    traffic: Number
    excess: Number = 0.0

    @property
    def time(self) -> Number:
        """All passes of a microbatch [s]."""
        return self.forward + self.recompute + self.backward


@dataclass(frozen=True, slots=True, eq=False)
class ModelBound(PerPart[PartBound]):
    """Lower bounds of `ModelCosts`."""

    @property
    def time(self) -> Number:
        """All passes of a microbatch through all layers [s]."""
        return total([part.time * count for part, count in self.counted])


def model_bound(
    shape: Transformer,
    microbatch: Number,
    sequence: int,
    ranks: Number,
    chip: Machine,
    efficiency: Efficiency,
    recompute: Recompute = Recompute.NONE,
    fused: bool = True,
    recipe: Recipe = RECIPES["mixed-adam-fp32-gradients"],
    grouped: bool = False,
) -> ModelBound:
    """Lower bounds of `model_costs` for every mesh of ``ranks`` in all; ``microbatch`` and ``ranks``: numbers, or arrays that
    broadcast. Fields have the broadcast shape. ``grouped``: groups of kernels may run as one (`halley.training.groups`).

    Raises BadInput: a model or sequence that cannot be trained, a function that the chip lacks.
    """
    bounds = [
        _part_bound(graph, microbatch, ranks, chip, efficiency, recipe.gradient, grouped)
        for graph in training_graphs(shape, 1, sequence, recompute, fused)
    ]
    counts = part_counts(shape, 1, sequence)
    return ModelBound(bounds[0], tuple(zip(bounds[1:-1], counts[1:-1], strict=True)), bounds[-1])


def _part_bound(
    graph: TrainingGraph,
    microbatch: Number,
    ranks: Number,
    chip: Machine,
    efficiency: Efficiency,
    gradient: int,
    grouped: bool,
) -> PartBound:
    work, local = graph.workload, {**graph.workload.dims, "b": microbatch}
    passes = graph.found.passes
    size = {name: tensor_bytes(work, name, local) / ranks for name in work.tensors}
    times: dict[str, list[Number]] = {"forward": [], "recompute": [], "backward": []}
    macs: Number = 0.0
    traffic: Number = 0.0
    excess: Number = 0.0
    for op in work.ops:
        tasks = op_tasks(graph, op, local, gradient)
        times[passes[op.name]].append(total([task.times * least_time(task, ranks, chip, efficiency) for task in tasks]))
        excess = excess + total([task.times * start_time(task, efficiency) for task in tasks])
        traffic = traffic + total([task.times * demand(task.kernel)[1] / ranks for task in tasks])
        if op.kind is OpKind.CONTRACT:
            macs = macs + math.prod(local[dim] for dim in op.dims) / ranks
    for groups in overlapping_groups(graph) if grouped else ():
        bound = groups_bound(groups, local, ranks, chip, efficiency, gradient)
        times[passes[groups[0].first[0]]].append(bound.together - bound.apart)
        traffic = traffic + bound.saved
    return PartBound(
        forward=total(times["forward"]),
        recompute=total(times["recompute"]),
        backward=total(times["backward"]),
        parameters=sum(math.prod(work.dims[dim] for dim in work.tensors[name].dims) for name in graph.weights) / ranks,
        activation=total([size[name] for name in saved_tensors(graph)]),
        working=longest(total([size[name] for name in alive]) for alive in set(lifetimes(graph)) if alive),
        macs=macs,
        traffic=traffic,
        excess=excess,
    )


class GroupBound(NamedTuple):
    """Lower bounds of 1/ranks of groups that overlap [s]: of all their kernels ``apart``, and ``together``, in whichever way they
    run. ``saved`` [B], at most 0: what they may move less where some are fused."""

    apart: Number
    together: Number
    saved: Number


def groups_bound(
    groups: Sequence[ProductGroup],
    local: Mapping[str, Number],
    ranks: Number,
    chip: Machine,
    efficiency: Efficiency,
    gradient: int,
) -> GroupBound:
    """Bounds of groups that overlap, of which ``local`` are the extents over all ranks."""
    graph, names = groups[0].graph, dict.fromkeys(name for group in groups for name in group.ops)
    tasks = {name: op_tasks(graph, graph.workload.op(name), local, gradient) for name in names}
    apart = {name: total([task.times * least_time(task, ranks, chip, efficiency) for task in own]) for name, own in tasks.items()}
    moved = {name: total([task.times * demand(task.kernel)[1] / ranks for task in own]) for name, own in tasks.items()}
    one, once = dict[str, Number](), dict[str, Number]()
    for group in groups:
        kernel, beside = group.kernel(local), list(group.others(local, gradient))
        rates = [rate_time(each, ranks, chip, efficiency) for each in beside]
        one[group.name] = total([group_rate_time(kernel, ranks, chip, efficiency), *rates])
        _, read, written = group_demand(kernel)
        once[group.name] = total([read + written, *(demand(each)[1] for each in beside)]) / ranks
    whole, before = total(list(apart.values())), total(list(moved.values()))
    together, least = whole, before
    for some in disjoint(groups):
        left = names.keys() - {name for group in some for name in group.ops}
        together = minimum(
            together, total([*(one[group.name] for group in some), *(apart[name] for name in names if name in left)])
        )
        least = minimum(least, total([*(once[group.name] for group in some), *(moved[name] for name in names if name in left)]))
    return GroupBound(whole, together, minimum(least - before, 0.0))


def least_time(task: Task, ranks: Number, chip: Machine, efficiency: Efficiency) -> Number:
    """Lower bound of the time of 1/ranks of a kernel [s]: its work at the rate of the engine, its bytes at the bandwidth of all
    cores."""
    return start_time(task, efficiency) + rate_time(task.kernel, ranks, chip, efficiency)


def start_time(task: Task, efficiency: Efficiency) -> float:
    """Launch and latency of a kernel [s], for any size."""
    return (efficiency.launch if task.launched else 0.0) + (efficiency.latency if task.opened else 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class RateTimes:
    """Ops at the rates of the chip, without waves, padding and launches: a `halley.sharding.solve.KernelTimes`; and `groups`."""

    graph: TrainingGraph
    chip: Machine
    efficiency: Efficiency
    gradient: int

    def __call__(self, op: Op, local: Mapping[str, int]) -> float:
        return float(self.times(op, local))

    def many(self, op: Op, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """Times [s] at many extents [many] of each dim."""
        return times_at_many(self.graph, op, local, self.times)

    def times(self, op: Op, extents: Mapping[str, Number]) -> NDArray[np.float64]:
        """Times [s] of an op, of the shape that the extents broadcast to."""
        tasks = op_tasks(self.graph, op, extents, self.gradient)
        found = [task.times * rate_time(task.kernel, 1, self.chip, self.efficiency) for task in tasks]
        return np.asarray(total(found) if found else 0.0, np.float64)

    def groups(self) -> tuple[GroupTimes, ...]:
        """The groups of the graph that may run as one kernel, at these rates."""
        return tuple(map(self.timed, product_groups(self.graph)))

    def timed(self, group: ProductGroup) -> GroupTimes:
        """A group at these rates."""
        return GroupTimes(group, self._kernel_time, self.gradient)

    def _kernel_time(self, kernel: AnyKernel) -> Number:
        if isinstance(kernel, GroupKernel):
            return group_rate_time(kernel, 1, self.chip, self.efficiency)
        return rate_time(kernel, 1, self.chip, self.efficiency)
