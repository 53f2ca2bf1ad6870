"""Lower bounds that need no search: what a group must compute, and move to and from the outer memory, whatever its mapping."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halley.ir.hardware import Chip
from halley.ir.workload import Op, OpKind, Workload
from halley.search.template import Template


def floor(workload: Workload, chip: Chip, machine: Template, ops: Sequence[Op], kept: Sequence[str]) -> dict[str, float]:
    """Least time [s] and energy [J] of ops: their multiply-accumulates at the array's peak, and each tensor of ``kept`` (those
    that the outer memory holds) once over the outer memory's port: read if it comes from outside the group, written if it is made
    there."""
    matrix, outer = chip.matrix, chip.memory(machine.outer)
    macs, energy = 0, 0.0
    for op in ops:
        if op.kind is OpKind.CONTRACT:
            count = math.prod(workload.dims[dim] for dim in op.dims)
            macs += count
            energy += count * (matrix.energy.get(workload.tensors[op.inputs[0]].dtype, 0.0) if matrix else 0.0)
    members = math.prod(axis.size for _, axis in chip.axes)
    rate = members * matrix.rows * matrix.cols * matrix.clock * max([1.0, *matrix.rate.values()]) if matrix else math.inf
    made = {name for op in ops for name in op.outputs}
    written = sum(workload.bytes(name) for name in kept if name in made)
    read = sum(workload.bytes(name) for name in kept if name not in made)
    energy += read * outer.read_energy + written * outer.write_energy
    return {"time": max(macs / rate, read / outer.read_bandwidth, written / outer.write_bandwidth), "energy": energy}
