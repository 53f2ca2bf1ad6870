"""Compulsory costs: lower bounds for any mapping of a group, from its work and its compulsory traffic of the outer memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from halley.formulas.energy import action_energy, static_energy
from halley.formulas.engines import vector_cycles
from halley.formulas.timing import busy_time
from halley.ir.array import Array
from halley.ir.hardware import Chip, Dataflow
from halley.ir.mapping import Compute
from halley.ir.masks import masks
from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.bounds.array_time import at_work, seconds_per_mac
from halley.mapping.bounds.row_tiles import RowTiles, least_work, reloads, row_tiles
from halley.mapping.space.affine import read_bytes
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import Hierarchy
from halley.mapping.space.stages import Split, member_ranges


@dataclass(frozen=True, slots=True)
class CompulsoryBounds:
    """Lower bounds of a fused group. ``kept``: the tensors that the outer memory holds. They pass its ports at least once: they
    are read if they come from outside the group, and written if the group computes them. ``known``: work of ops, which groups of
    the same workload and chip may share."""

    workload: Workload
    chip: Chip
    machine: Hierarchy
    ops: Sequence[Op]
    kept: Sequence[str]
    known: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _least: dict[str, float] = field(default_factory=dict)

    def group(self) -> dict[str, float]:
        """Least time [s] and energy [J]: the work of each kind of engine at its total peak rate, or the traffic of the outer
        memory; of several stages, over all numbers of tiles of their rows (`halley.mapping.bounds.row_tiles`)."""
        if not self._least:
            self._least.update(self._group(None))
            stages = FusedOps(self.workload, self.machine, tuple(self.ops))
            if len(stages.runs) > 1 and stages.row:
                found = [self._on_tiles(stages, tiles) for tiles in row_tiles(stages)]
                self._least.update(
                    {name: max(own, min((each[name] for each in found), default=math.inf)) for name, own in self._least.items()}
                )
        return self._least

    @property
    def _skips(self) -> bool:
        """Whether some frame may skip keys that no row sees: only those with a running softmax do."""
        return any(op.running or op.scaled_by for op in self.ops)

    def _group(self, laid: Compute | None, split: Split = ()) -> dict[str, float]:
        matrix, vector = self._busy(lambda op: self._work(op, laid, split)[0])
        return self._costs(max(matrix, vector), laid, lambda name: self._readers(name, split))

    def _on_tiles(self, stages: FusedOps, tiles: RowTiles) -> dict[str, float]:
        matrix, vector = self._busy(lambda op: self._work(op, None, (), stages.row, tiles.tile)[0])
        return self._costs(least_work(matrix, vector, tiles), None, lambda name: reloads(stages, name, tiles))

    def _busy(self, work: Callable[[str], float]) -> tuple[float, float]:
        """Work [s] of the matrix and of the vector engines."""
        each = [(op.kind is OpKind.CONTRACT, work(op.name)) for op in self.ops]
        return sum(time for contracts, time in each if contracts), sum(time for contracts, time in each if not contracts)

    def frame(self, frame: Frame, laid: Compute | None = None) -> dict[str, float]:
        """The same for one frame: on partitions of the clusters, the stages of one child are sequential. Under its split around
        all stages the member that works longest has its whole part, and members that need the same tensors each read them.
        ``laid``: only for shapes with these dims of a contraction on the array."""
        partition = frame.partition
        if partition is None:
            return self._above(self._group(laid, () if self.workload.indices or masks(self.workload) else frame.split))
        return self._above(self._costs(self.engines(frame, laid), laid, lambda name: 1.0))

    def engines(self, frame: Frame, laid: Compute | None = None) -> float:
        """Least time [s] of the engines of the busiest child of a frame with partitions. Unlike `frame` it has no traffic of the
        group as a whole, of which a child may have no part: times of children may be added."""
        partition = frame.partition
        assert partition is not None
        (size,) = (own.axis.size for own in self.machine.axes if (own.level, own.axis.name) == (partition.level, partition.axis))
        return max(
            sum(self._work(op, laid)[0] for stage in child for op in frame.stages[stage].ops) * size / count
            for child, count in zip(frame.cut, partition.counts, strict=True)
        )

    def _above(self, costs: Mapping[str, float]) -> dict[str, float]:
        """Costs that are at least those of the group."""
        return {name: max(own, costs[name]) for name, own in self.group().items()}

    def _costs(self, work: float, laid: Compute | None, reads: Callable[[str], float]) -> dict[str, float]:
        """Of ops that take that long at the engines. ``reads``: how often a tensor is read at least."""
        outer, shape = self.chip.memory(self.machine.outer), self.workload
        made = {name for op in self.ops for name in op.outputs}
        written = sum(shape.bytes(name) for name in self.kept if name in made)
        read = sum(self._read(name) * reads(name) for name in self.kept if name not in made)
        ports = (busy_time(read, outer.read_bandwidth), busy_time(written, outer.write_bandwidth))
        time = max(work, sum(ports) if outer.shared_bus else max(ports))
        moved = action_energy(read, outer.read_energy) + action_energy(written, outer.write_energy)
        energy = moved + sum(self._work(op.name, laid)[1] for op in self.ops)
        return {"time": float(time), "energy": float(energy + static_energy(self.chip.static_power, time))}

    def _read(self, tensor: str) -> float:
        """Bytes of a tensor that some op needs; of keys that no row sees, none."""
        needed = float(read_bytes(self.workload, tensor))
        for mask in set(masks(self.workload).values()) if self._skips else ():
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
            if dim and dim not in self.workload.selectors(tensor) and not own.tier and self.machine.loads_for_others(own.level):
                ranges[dim] = math.ceil(ranges.get(dim, self.workload.dims[dim]) / own.axis.size)
                row = max(row, own.axis.size if own.axis.multicast else 1)
        for dim, part in ranges.items():
            readers *= math.ceil(self.workload.dims[dim] / part)
        return max(1.0, readers / row)

    def _work(self, op: str, laid: Compute | None, split: Split = (), tiled: str = "", tile: float = 1.0) -> tuple[float, float]:
        array = laid.array if laid is not None and laid.op == op else ()
        own = self.workload.op(op)
        key = op, array, split, tiled, tile, self._skips
        if key not in self.known:
            points = _points(self.workload, own, self._skips)
            self.known[key] = _work(self.workload, self.chip, self.machine, own, points, array, split, tiled, tile)
        return self.known[key]


def _work(
    workload: Workload, chip: Chip, machine: Hierarchy, op: Op, points: float, array: Array, split: Split, tiled: str, tile: float
) -> tuple[float, float]:
    """Least time [s] and energy [J] of an op at the engines; the member that works longest has at least an equal share, and under
    a ``split`` around all its whole part. ``tiled``: a dim with tiles of at most ``tile`` points."""
    share = points / math.prod(axis.size for _, axis in chip.axes)
    if split:
        part = member_ranges(machine, split, workload.dims)
        share = math.prod(int(part[dim]) for dim in op.dims)
    if op.kind is OpKind.CONTRACT and chip.matrix is not None:
        engine, dtype = chip.matrix, workload.tensors[op.inputs[0]].dtype
        energy = action_energy(points, engine.energy.get(dtype, 0.0))
        energy += _operand_energy(workload, chip, machine, op, points, *at_work(workload, engine, op, array))
        return float(share * seconds_per_mac(workload, machine, op, array, tiled, tile)), float(energy)
    vector = chip.vector
    if vector is None:
        return 0.0, 0.0
    functions = workload.work(op).items()
    cycles = sum(count / vector.rate.get(function, math.inf) for function, count in functions)
    energy = sum(action_energy(points * count, vector.energy.get(function, 0.0)) for function, count in functions)
    return float(busy_time(vector_cycles(share / vector.lanes, cycles), vector.clock)), float(energy)


def _points(workload: Workload, op: Op, skips: bool) -> float:
    """The points of an op; those under a mask that are visible, if a mapping may skip the others."""
    points = math.prod(workload.dims[dim] for dim in op.dims)
    mask = masks(workload).get(op.name) if skips else None
    if mask is None:
        return points
    rows, keys = workload.dims[mask.rows], workload.dims[mask.keys]
    return points * mask.visible(rows, keys)[0] / (rows * keys)


def _operand_energy(
    workload: Workload, chip: Chip, machine: Hierarchy, op: Op, macs: float, rows: float, columns: float
) -> float:
    """Least energy [J] of an array's accesses to its buffers: one read of a streamed operand serves all busy columns (or rows),
    and results are reduced over all busy rows. The stationary operand is omitted."""
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
