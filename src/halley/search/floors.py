"""Lower bounds that need no search: what a group must compute, and move to and from the outer memory, whatever its mapping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from halley.formulas.energy import action_energy, static_energy
from halley.formulas.engines import vector_cycles
from halley.formulas.timing import busy_time
from halley.ir.array import Array
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute
from halley.ir.workload import Op, OpKind, Workload
from halley.search.space import Frame
from halley.search.template import Template


@dataclass(frozen=True, slots=True)
class Floors:
    """Lower bounds of a fused group. ``kept``: the tensors that the outer memory holds, which cross its ports once at least: read
    if they come from outside the group, written if they are made there."""

    workload: Workload
    chip: Chip
    machine: Template
    ops: Sequence[Op]
    kept: Sequence[str]
    _known: dict[Compute, tuple[float, float]] = field(default_factory=dict)

    def group(self) -> dict[str, float]:
        """Least time [s] and energy [J] of ops that may overlap: the work of each engine at the peak of all of its kind."""
        return self._group(None)

    def _group(self, laid: Compute | None) -> dict[str, float]:
        work = [(op.kind is OpKind.CONTRACT, self._work(op.name, laid)[0]) for op in self.ops]
        matrix = sum(seconds for contracts, seconds in work if contracts)
        vector = sum(seconds for contracts, seconds in work if not contracts)
        return self._costs(max(matrix, vector))

    def frame(self, frame: Frame, laid: Compute | None = None) -> dict[str, float]:
        """The same for one frame: where stages are at work on shares of the clusters, those of one child follow each other.
        ``laid``: of the shapes in which these dims of a contraction lie on the array."""
        shares = frame.shares
        if shares is None:
            return self._group(laid)
        (size,) = (axis.size for axis in self.machine.axes if axis.name == shares.axis)
        times = [
            sum(self._work(op, laid)[0] for stage in child for op in frame.stages[stage].ops) * size / count
            for child, count in zip(frame.cut, shares.counts, strict=True)
        ]
        return self._costs(max(times))

    def _costs(self, work: float) -> dict[str, float]:
        """Of ops that take that long at the engines."""
        outer, shape = self.chip.memory(self.machine.outer), self.workload
        made = {name for op in self.ops for name in op.outputs}
        written = sum(shape.bytes(name) for name in self.kept if name in made)
        read = sum(shape.bytes(name) for name in self.kept if name not in made)
        ports = (busy_time(read, outer.read_bandwidth), busy_time(written, outer.write_bandwidth))
        time = max(work, sum(ports) if outer.shared_bus else max(ports))
        moved = action_energy(read, outer.read_energy) + action_energy(written, outer.write_energy)
        energy = moved + sum(self._work(op.name, None)[1] for op in self.ops)
        return {"time": time, "energy": energy + static_energy(self.chip.static_power, time)}

    def _work(self, op: str, laid: Compute | None) -> tuple[float, float]:
        node = laid if laid is not None and laid.op == op else Compute(op)
        if node not in self._known:
            self._known[node] = _work(self.workload, self.chip, self.workload.op(op), node.array)
        return self._known[node]


def _work(workload: Workload, chip: Chip, op: Op, array: Array) -> tuple[float, float]:
    """Least time [s] and energy [J] of an op at the engines; the member that works longest has at least an equal share.

    Where the dims on the array have fewer points than it is wide, as many of its rows or columns are at work at most: of a tile
    with t of e points there, on a width w, ceil(t / w) passes are no fewer than t / min(w, e).
    """
    points = math.prod(workload.dims[dim] for dim in op.dims)
    share = points / math.prod(axis.size for _, axis in chip.axes)
    if op.kind is OpKind.CONTRACT and chip.matrix is not None:
        engine, dtype = chip.matrix, workload.tensors[op.inputs[0]].dtype
        rows, columns = (math.prod(workload.dims[dim] for dim in side) for side in array) if array else (math.inf, math.inf)
        per_cycle = min(engine.rows, rows) * min(engine.cols, columns) * engine.rate.get(dtype, 1.0)
        return busy_time(share / per_cycle, engine.clock), action_energy(points, engine.energy.get(dtype, 0.0))
    vector = chip.vector
    if vector is None:
        return 0.0, 0.0
    functions = workload.work(op).items()
    cycles = sum(count / vector.rate.get(function, math.inf) for function, count in functions)
    energy = sum(action_energy(points * count, vector.energy.get(function, 0.0)) for function, count in functions)
    return busy_time(vector_cycles(share / vector.lanes, cycles), vector.clock), energy
