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
from halley.ir.masks import masks
from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.space.affine import read_bytes
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.hierarchy import Hierarchy
from halley.mapping.space.stages import Split, member_ranges


@dataclass(frozen=True, slots=True)
class CompulsoryBounds:
    """Lower bounds of a fused group. ``kept``: the tensors that the outer memory holds. They pass its ports at least once: they
    are read if they come from outside the group, and written if the group computes them."""

    workload: Workload
    chip: Chip
    machine: Hierarchy
    ops: Sequence[Op]
    kept: Sequence[str]
    _known: dict[tuple[Compute, Split], tuple[float, float]] = field(default_factory=dict)

    def group(self) -> dict[str, float]:
        """Least time [s] and energy [J] of ops that may overlap: the work of each kind of engine at its total peak rate."""
        return self._group(None)

    def _group(self, laid: Compute | None, split: Split = ()) -> dict[str, float]:
        work = [(op.kind is OpKind.CONTRACT, self._work(op.name, laid, split)[0]) for op in self.ops]
        matrix = sum(seconds for contracts, seconds in work if contracts)
        vector = sum(seconds for contracts, seconds in work if not contracts)
        return self._costs(max(matrix, vector), laid, split)

    def frame(self, frame: Frame, laid: Compute | None = None) -> dict[str, float]:
        """The same for one frame: on partitions of the clusters, the stages of one child are sequential. Under its split around
        all stages the member that works longest has its whole part, and members that need the same tensors each read them.
        ``laid``: only for shapes with these dims of a contraction on the array."""
        shares = frame.shares
        if shares is None:
            return self._group(laid, () if self.workload.indices or masks(self.workload) else frame.split)
        (size,) = (own.axis.size for own in self.machine.axes if (own.level, own.axis.name) == (shares.level, shares.axis))
        times = [
            sum(self._work(op, laid)[0] for stage in child for op in frame.stages[stage].ops) * size / count
            for child, count in zip(frame.cut, shares.counts, strict=True)
        ]
        return self._costs(max(times), laid)

    def _costs(self, work: float, laid: Compute | None, split: Split = ()) -> dict[str, float]:
        """Of ops that take that long at the engines."""
        outer, shape = self.chip.memory(self.machine.outer), self.workload
        made = {name for op in self.ops for name in op.outputs}
        written = sum(shape.bytes(name) for name in self.kept if name in made)
        read = sum(self._read(name) * self._readers(name, split) for name in self.kept if name not in made)
        ports = (busy_time(read, outer.read_bandwidth), busy_time(written, outer.write_bandwidth))
        time = max(work, sum(ports) if outer.shared_bus else max(ports))
        moved = action_energy(read, outer.read_energy) + action_energy(written, outer.write_energy)
        energy = moved + sum(self._work(op.name, laid)[1] for op in self.ops)
        return {"time": float(time), "energy": float(energy + static_energy(self.chip.static_power, time))}

    def _read(self, tensor: str) -> float:
        """Bytes of a tensor that some op needs; of keys that no row sees, none."""
        needed = float(read_bytes(self.workload, tensor))
        for mask in set(masks(self.workload).values()):
            if mask.keys in self.workload.tensors[tensor].dims:
                keys = self.workload.dims[mask.keys]
                needed *= mask.visible(self.workload.dims[mask.rows], keys)[1] / keys
        return needed

    def _readers(self, tensor: str, split: Split) -> float:
        """How many members at least read each element of a tensor from the outer memory: of those that the split gives other
        parts of the dims that it lacks, one for each row along an axis on which one may load for others."""
        if not split:
            return 1
        readers, row = 1.0, 1
        ranges: dict[str, int] = {}
        for own, dim in zip(self.machine.axes, split, strict=True):
            if dim and dim not in self.workload.selectors(tensor) and not own.tier and self.machine.shares_loads(own.level):
                ranges[dim] = math.ceil(ranges.get(dim, self.workload.dims[dim]) / own.axis.size)
                row = max(row, own.axis.size if own.axis.multicast else 1)
        for dim, part in ranges.items():
            readers *= math.ceil(self.workload.dims[dim] / part)
        return max(1.0, readers / row)

    def _work(self, op: str, laid: Compute | None, split: Split = ()) -> tuple[float, float]:
        node = laid if laid is not None and laid.op == op else Compute(op)
        if (node, split) not in self._known:
            self._known[node, split] = _work(self.workload, self.chip, self.machine, self.workload.op(op), node.array, split)
        return self._known[node, split]


def _work(workload: Workload, chip: Chip, machine: Hierarchy, op: Op, array: Array, split: Split = ()) -> tuple[float, float]:
    """Least time [s] and energy [J] of an op at the engines; the member that works longest has at least an equal share, and under
    a ``split`` around all its whole part."""
    points = _points(workload, op)
    share = points / math.prod(axis.size for _, axis in chip.axes)
    if split:
        part = member_ranges(machine, split, workload.dims)
        share = math.prod(int(part[dim]) for dim in op.dims)
    if op.kind is OpKind.CONTRACT and chip.matrix is not None:
        engine, dtype = chip.matrix, workload.tensors[op.inputs[0]].dtype
        rows, columns = _at_work(workload, engine, array)
        energy = action_energy(points, engine.energy.get(dtype, 0.0))
        energy += _operand_energy(workload, chip, machine, op, rows, columns)
        return float(busy_time(share / (rows * columns * engine.rate.get(dtype, 1.0)), engine.clock)), float(energy)
    vector = chip.vector
    if vector is None:
        return 0.0, 0.0
    functions = workload.work(op).items()
    cycles = sum(count / vector.rate.get(function, math.inf) for function, count in functions)
    energy = sum(action_energy(points * count, vector.energy.get(function, 0.0)) for function, count in functions)
    return float(busy_time(vector_cycles(share / vector.lanes, cycles), vector.clock)), float(energy)


def _points(workload: Workload, op: Op) -> float:
    """The points of an op that its result depends on: under a mask, the visible ones."""
    points = math.prod(workload.dims[dim] for dim in op.dims)
    mask = masks(workload).get(op.name)
    if mask is None:
        return points
    rows, keys = workload.dims[mask.rows], workload.dims[mask.keys]
    return points * mask.visible(rows, keys)[0] / (rows * keys)


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
    macs = _points(workload, op)
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
