"""What a model's parts take at least where groups of kernels may run as one: the bounds of kernels apart, less what groups can
save.

A group under a sharding takes its kernels apart or the one kernel, whichever is less; so no less than the lesser of the bounds of
both. What that is below the bound apart is taken from the bound of the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from halley.formulas.numbers import Number, maximum
from halley.formulas.timing import total
from halley.kernels.times import demand
from halley.training.fusion.groups import Fusion, fusions
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import op_tasks
from halley.training.part_bounds import ModelBound, PartBound, least_time, start_time
from halley.training.product_bounds import BATCH, ProductBounds


class Least(NamedTuple):
    """Of a group's ops, apart or as one: least ``time`` and ``excess`` [s], ``traffic`` [B], as in `PartBound`."""

    time: Number
    excess: Number
    traffic: Number


def with_fusions(
    products: ProductBounds, bound: ModelBound, graphs: Sequence[TrainingGraph], microbatch: Number, ranks: Number
) -> ModelBound:
    """The bounds of a model whose groups may run as one, from those of kernels apart, raised by ``products``."""
    found = [_part(products, part, graph, microbatch, ranks) for part, graph in zip(bound.parts, graphs, strict=True)]
    return ModelBound(found[0], tuple(zip(found[1:-1], bound.layers, strict=True)), found[-1])


def _part(products: ProductBounds, bound: PartBound, graph: TrainingGraph, microbatch: Number, ranks: Number) -> PartBound:
    saved: dict[str, list[Number]] = {"forward": [], "recompute": [], "backward": [], "excess": [], "traffic": []}
    passes = graph.found.passes
    for fusion in fusions(graph):
        apart, one = (_least(products, each, fusion, microbatch, ranks) for each in (graph, fusion.graph))
        saved[passes[fusion.first[0]]].append(apart.time - one.time)
        saved["excess"].append(apart.excess - one.excess)
        saved["traffic"].append(apart.traffic - one.traffic)
    less = {name: getattr(bound, name) - total([maximum(0.0, each) for each in found]) for name, found in saved.items() if found}
    return replace(bound, **less)


def _least(products: ProductBounds, graph: TrainingGraph, fusion: Fusion, microbatch: Number, ranks: Number) -> Least:
    """What the ops of a group take at least where ``graph`` says which kernels they are."""
    work, chip, efficiency = graph.workload, products.chip, products.efficiency
    local = {**work.dims, BATCH: microbatch}
    times, excess, traffic = list[Number](), list[Number](), list[Number]()
    for op in map(work.op, fusion.ops):
        gain = products.gain(graph, op, microbatch, ranks)
        times.append(gain.time)
        excess.append(gain.excess)
        for task in op_tasks(graph, op, local, products.gradient):
            times.append(task.times * least_time(task, ranks, chip, efficiency))
            excess.append(task.times * start_time(task, efficiency))
            traffic.append(task.times * demand(task.kernel)[1] / ranks)
    return Least(total(times), total(excess), total(traffic))
