"""Lower bounds that need no search: what a group must compute, and move to and from the outer memory, whatever its mapping."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halley.formulas.energy import action_energy, static_energy
from halley.formulas.engines import vector_cycles
from halley.formulas.timing import busy_time
from halley.ir.hardware import Chip
from halley.ir.workload import Op, OpKind, Workload
from halley.search.template import Template


def floor(workload: Workload, chip: Chip, machine: Template, ops: Sequence[Op], kept: Sequence[str]) -> dict[str, float]:
    """Least time [s] and energy [J] of ops that may overlap: the work of each engine at the peak of all of its kind, and each
    tensor of ``kept`` (those that the outer memory holds) once over the outer memory's ports: read if it comes from outside the
    group, written if it is made there."""
    outer = chip.memory(machine.outer)
    work = [_work(workload, chip, op) for op in ops]
    made = {name for op in ops for name in op.outputs}
    written = sum(workload.bytes(name) for name in kept if name in made)
    read = sum(workload.bytes(name) for name in kept if name not in made)
    ports = (busy_time(read, outer.read_bandwidth), busy_time(written, outer.write_bandwidth))
    matrix = sum(seconds for op, (seconds, _) in zip(ops, work, strict=True) if op.kind is OpKind.CONTRACT)
    vector = sum(seconds for op, (seconds, _) in zip(ops, work, strict=True) if op.kind is not OpKind.CONTRACT)
    time = max(matrix, vector, sum(ports) if outer.shared_bus else max(ports))
    moved = action_energy(read, outer.read_energy) + action_energy(written, outer.write_energy)
    return {"time": time, "energy": moved + sum(joules for _, joules in work) + static_energy(chip.static_power, time)}


def _work(workload: Workload, chip: Chip, op: Op) -> tuple[float, float]:
    """Least time [s] and energy [J] of an op at the engines; the member that works longest has at least an equal share."""
    points = math.prod(workload.dims[dim] for dim in op.dims)
    share = points / math.prod(axis.size for _, axis in chip.axes)
    if op.kind is OpKind.CONTRACT and chip.matrix is not None:
        engine, dtype = chip.matrix, workload.tensors[op.inputs[0]].dtype
        per_cycle = engine.rows * engine.cols * engine.rate.get(dtype, 1.0)
        return busy_time(share / per_cycle, engine.clock), action_energy(points, engine.energy.get(dtype, 0.0))
    vector = chip.vector
    if vector is None:
        return 0.0, 0.0
    functions = workload.work(op).items()
    cycles = sum(count / vector.rate.get(function, math.inf) for function, count in functions)
    energy = sum(action_energy(points * count, vector.energy.get(function, 0.0)) for function, count in functions)
    return busy_time(vector_cycles(share / vector.lanes, cycles), vector.clock), energy
