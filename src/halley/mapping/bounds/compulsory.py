"""Compulsory costs: lower bounds for any mapping of a group, from its work and its compulsory traffic of the outer memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from halley.formulas.energy import action_energy, static_energy
from halley.formulas.engines import vector_cycles
from halley.formulas.timing import busy_time
from halley.ir.array import Array
from halley.ir.hardware import Chip, Dataflow, MatrixEngine
from halley.ir.mapping import Compute
from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.space.affine import read_bytes
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.hierarchy import Hierarchy


@dataclass(frozen=True, slots=True)
class CompulsoryBounds:
    """Lower bounds of a fused group. ``kept``: the tensors that the outer memory holds. They pass its ports at least once: they
    are read if they come from outside the group, and written if the group computes them."""

    workload: Workload
    chip: Chip
    machine: Hierarchy
    ops: Sequence[Op]
    kept: Sequence[str]
    _known: dict[Compute, tuple[float, float]] = field(default_factory=dict)

    def group(self) -> dict[str, float]:
        """Least time [s] and energy [J] of ops that may overlap: the work of each kind of engine at its total peak rate."""
        return self._group(None)

    def _group(self, laid: Compute | None) -> dict[str, float]:
        work = [(op.kind is OpKind.CONTRACT, self._work(op.name, laid)[0]) for op in self.ops]
        matrix = sum(seconds for contracts, seconds in work if contracts)
        vector = sum(seconds for contracts, seconds in work if not contracts)
        return self._costs(max(matrix, vector), laid)

    def frame(self, frame: Frame, laid: Compute | None = None) -> dict[str, float]:
        """The same for one frame: on partitions of the clusters, the stages of one child are sequential. ``laid``: only for
        shapes with these dims of a contraction on the array."""
        shares = frame.shares
        if shares is None:
            return self._group(laid)
        (size,) = (own.axis.size for own in self.machine.axes if (own.level, own.axis.name) == (shares.level, shares.axis))
        times = [
            sum(self._work(op, laid)[0] for stage in child for op in frame.stages[stage].ops) * size / count
            for child, count in zip(frame.cut, shares.counts, strict=True)
        ]
        return self._costs(max(times), laid)

    def _costs(self, work: float, laid: Compute | None) -> dict[str, float]:
        """Of ops that take that long at the engines."""
        outer, shape = self.chip.memory(self.machine.outer), self.workload
        made = {name for op in self.ops for name in op.outputs}
        written = sum(shape.bytes(name) for name in self.kept if name in made)
        read = sum(read_bytes(shape, name) for name in self.kept if name not in made)
        ports = (busy_time(read, outer.read_bandwidth), busy_time(written, outer.write_bandwidth))
        time = max(work, sum(ports) if outer.shared_bus else max(ports))
        moved = action_energy(read, outer.read_energy) + action_energy(written, outer.write_energy)
        energy = moved + sum(self._work(op.name, laid)[1] for op in self.ops)
        return {"time": time, "energy": energy + static_energy(self.chip.static_power, time)}

    def _work(self, op: str, laid: Compute | None) -> tuple[float, float]:
        node = laid if laid is not None and laid.op == op else Compute(op)
        if node not in self._known:
            self._known[node] = _work(self.workload, self.chip, self.machine, self.workload.op(op), node.array)
        return self._known[node]


def _work(workload: Workload, chip: Chip, machine: Hierarchy, op: Op, array: Array) -> tuple[float, float]:
    """Least time [s] and energy [J] of an op at the engines; the member that works longest has at least an equal share."""
    points = math.prod(workload.dims[dim] for dim in op.dims)
    share = points / math.prod(axis.size for _, axis in chip.axes)
    if op.kind is OpKind.CONTRACT and chip.matrix is not None:
        engine, dtype = chip.matrix, workload.tensors[op.inputs[0]].dtype
        rows, columns = _at_work(workload, engine, array)
        energy = action_energy(points, engine.energy.get(dtype, 0.0))
        energy += _operand_energy(workload, chip, machine, op, rows, columns)
        return busy_time(share / (rows * columns * engine.rate.get(dtype, 1.0)), engine.clock), energy
    vector = chip.vector
    if vector is None:
        return 0.0, 0.0
    functions = workload.work(op).items()
    cycles = sum(count / vector.rate.get(function, math.inf) for function, count in functions)
    energy = sum(action_energy(points * count, vector.energy.get(function, 0.0)) for function, count in functions)
    return busy_time(vector_cycles(share / vector.lanes, cycles), vector.clock), energy


def _at_work(workload: Workload, engine: MatrixEngine, array: Array) -> tuple[int, int]:
    """The largest number of rows and columns of the array that can be busy.

    It is min(w, e) for a side of width w whose dims have e points: a tile of t points takes ceil(t / w) passes, at least
    t / min(w, e).
    """
    if not array:
        return engine.rows, engine.cols
    rows, columns = (math.prod(workload.dims[dim] for dim in side) for side in array)
    return min(engine.rows, rows), min(engine.cols, columns)


def _operand_energy(workload: Workload, chip: Chip, machine: Hierarchy, op: Op, rows: int, columns: int) -> float:
    """Least energy [J] of an array's accesses to its buffers: one read of a streamed operand serves all busy columns (or rows),
    and results are reduced over all busy rows. The stationary operand is omitted."""
    macs = math.prod(workload.dims[dim] for dim in op.dims)
    assert machine.engine is not None
    match machine.engine.dataflow:
        case Dataflow.WEIGHT:
            first, second, result = macs / columns, 0.0, macs / rows
        case Dataflow.INPUT:
            first, second, result = 0.0, macs / columns, macs / rows
        case Dataflow.OUTPUT:
            first, second, result = macs / columns, macs / rows, 0.0
        case Dataflow.NONE:
            first, second, result = macs, macs, macs
    words = [workload.tensors[name].word for name in (*op.inputs, op.outputs[0])]
    weights = min(chip.memory(name).read_energy for name in machine.beside_engine("weight"))
    energies = chip.memory(machine.input).read_energy, weights, chip.memory(machine.output).write_energy
    counts = zip((first, second, result), words, energies, strict=True)
    return float(sum(action_energy(count * word, energy) for count, word, energy in counts))
