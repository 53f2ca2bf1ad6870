"""Demand of a plan in the view of DFModel on each resource of a chip: compute tiles, memory, every axis of the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halley.dfmodel.layer import BYTES_PER_ELEMENT
from halley.dfmodel.network import INJECTION_BANDWIDTH, axis_times
from halley.dfmodel.plan import DFModelResult, gradient_bytes
from halley.formulas.spatial import stage_time
from halley.formulas.timing import total
from halley.ir.mapping import CollectiveKind
from halley.sharding.axes import Role
from halley.sharding.loads import ResourceLoad
from halley.spatial.chip import Engine


@dataclass(frozen=True, slots=True)
class DFModelLoads:
    """Of a chip of a stage in an iteration: ``operations`` [op], kernels that every tensor-parallel chip repeats included, and
    what each resource is asked for."""

    operations: float
    loads: tuple[ResourceLoad, ...]


def dfmodel_loads(result: DFModelResult) -> DFModelLoads:
    """The loads of a chip of the stage with most layers, at full rates: a product uses all lanes and stages of the compute tiles,
    an elementwise kernel their lanes. Lanes and stages that a kernel leaves idle are not counted."""
    stage, partitions = result.layer.problem, result.layer.partitions
    chip, graph = stage.chip, stage.graph
    layers = float(stage_time(1.0, stage.layers, stage.stages))
    times = layers * result.problem.samples(result.choice.assignment)  # that a layer is run
    work = {engine: float(total(kernel.work for kernel in graph.kernels if kernel.engine is engine)) for engine in Engine}
    traffic = {
        "tensors": times * float(total(part.traffic for part in partitions)),
        "weights": times / result.layer.samples * float(total(part.loaded for part in partitions)),
    }
    found = (
        ResourceLoad("compute tiles", times * work[Engine.MATRIX], chip.peak, "op"),
        ResourceLoad("vector lanes", times * work[Engine.VECTOR], chip.tiles * chip.width * chip.clock, "op"),
        ResourceLoad.of("memory", traffic, chip.bandwidth),
        *_sent(result, layers, times),
    )
    return DFModelLoads(times * graph.work, tuple(load for load in found if load.demand))


def _sent(result: DFModelResult, layers: float, times: float) -> Iterator[ResourceLoad]:
    """What a chip sends on each axis; a whole axis has one role."""
    problem, choice, stage = result.problem, result.choice, result.layer.problem
    sums = (kernel.rows * kernel.columns * BYTES_PER_ELEMENT for kernel in stage.graph.kernels if kernel.network)
    for role, size in ((Role.MODEL, times * float(total(sums))), (Role.DATA, layers * gradient_bytes(stage.graph))):
        axes = problem.axes(choice.assignment, role)
        busy = axis_times(CollectiveKind.ALL_REDUCE, axes, size)
        for axis in axes:
            rate = INJECTION_BANDWIDTH[axis.topology](axis)
            yield ResourceLoad(f"network {axis.name}", busy[axis.name] * rate, rate, "B")
    if pipeline := problem.axes(choice.assignment, Role.PIPELINE):
        # the time of a layer is at least that of a message over the slowest of these axes
        slowest = min(pipeline, key=lambda axis: axis.link.bandwidth)
        size = times * stage.transfer * slowest.link.bandwidth
        yield ResourceLoad(f"network {slowest.name}", size, slowest.link.bandwidth, "B")
