"""Requests of one tile of a `Compute` to engines and memory ports (docs/model.md, "Vector engine")."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

from halley.formulas.engines import vector_cycles
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute
from halley.ir.workload import Op, OpKind, Tensor, Workload, roles
from halley.simulate.holds import Visit
from halley.simulate.matrix import ArrayMapping
from halley.simulate.members import Box, SimulationScope, points
from halley.simulate.tasks import Requests
from halley.simulate.traffic import PortMove, Ports, together


class ComputeRequests:
    """Requests of the computes of one workload on one chip, cached for tiles with equal relative ranges."""

    def __init__(self, workload: Workload, chip: Chip) -> None:
        self.workload, self.chip, self.ports = workload, chip, Ports(chip)
        self.clock = 0  # visits of running maxima so far
        self._known: dict[tuple[object, ...], Requests] = {}

    def requests(self, node: Compute, scope: SimulationScope) -> Requests:
        """The requests of one tile; its results are recorded in the open Holds."""
        op = self.workload.op(node.op)
        hold = scope.holds[op.outputs[0]]
        box = scope.box(self.workload.tensors[op.outputs[0]])
        fresh = op.outputs[0] not in hold.refilled and box not in hold.touched.get(op.outputs[0], ())
        key = (scope.path, scope.team.critical, fresh, scope.form)
        if key not in self._known:
            self._known[key] = together(self._engine(node, scope), *self._accesses(node, scope, fresh))
        self._note(op, scope, fresh)
        return self._known[key]

    def _engine(self, node: Compute, scope: SimulationScope) -> Requests:
        """The request to the critical member's engine; none if that member is idle."""
        chip, op = self.chip, self.workload.op(node.op)
        if 0 not in scope.active():
            return ()
        depth, critical = len(chip.levels) - 1, scope.team.critical
        if (on_array := self._on_array(node)) is not None:
            engine = on_array.engine
            rate = engine.rate.get(self.workload.tensors[op.inputs[0]].dtype, 1.0) * engine.clock
            seconds = on_array.cycles(scope) / rate + engine.latency
            return ((scope.team.axes.server(critical, depth, "engine", engine.name), seconds),)
        if chip.vector is None:
            return ()
        *outer, last = scope.sizes(op.dims)
        work = self.workload.work(op) or ({"mul": 1.0, "add": 1.0} if op.kind is OpKind.CONTRACT else {})
        per_point = sum(count / chip.vector.rate[function] for function, count in work.items())
        taken = math.prod(outer) * -(-last // chip.vector.width) * chip.vector.width
        cycles = float(vector_cycles(taken / chip.vector.lanes, per_point))
        seconds = cycles / chip.vector.clock + chip.vector.latency
        return ((scope.team.axes.server(critical, depth, "engine", chip.vector.name), seconds),)

    def _accesses(self, node: Compute, scope: SimulationScope, fresh: bool) -> Iterable[Requests]:
        """Reads of each input, writes of each result, and reads of partial ones."""
        op, leaf, active = self.workload.op(node.op), len(self.chip.levels) - 1, scope.active()
        once, on_array = (1,) * (len(op.inputs) + 1), self._on_array(node)
        passes = {row: once if on_array is None else on_array.passes(scope, row) for row in active}
        for index, name in enumerate(op.inputs if op.kind is OpKind.CONTRACT else dict.fromkeys(op.inputs)):
            tensor, hold = self.workload.tensors[name], scope.holds[name]
            boxes = scope.boxes(tensor)
            if op.kind is OpKind.CONTRACT and op.indices:  # an array takes an operand at each point, padding included
                dims = self.workload.points(op, name)
                boxes = [scope.intervals(dims, row) for row in range(len(boxes))]
            moves = [PortMove(scope.team.members[row], boxes[row], points(boxes[row]) * passes[row][index]) for row in active]
            yield self.ports.read(scope.team, hold.node.memory, leaf, moves, tensor.word)
        for name in op.outputs:
            tensor, hold = self.workload.tensors[name], scope.holds[name]
            boxes = scope.boxes(tensor)
            moves = [PortMove(scope.team.members[row], boxes[row], points(boxes[row]) * passes[row][-1]) for row in active]
            yield self.ports.write(scope.team, hold.node.memory, leaf, moves, tensor.word)
            if self.workload.reduced(op):
                again = _heads(moves, self.chip, scope, hold, fresh)
                yield self.ports.read(scope.team, hold.node.memory, leaf, again, tensor.word)

    def _on_array(self, node: Compute) -> ArrayMapping | None:
        """The array mapping of a contraction on the matrix engine; None for ops of the vector engine."""
        op, engine = self.workload.op(node.op), self.chip.matrix
        if op.kind is not OpKind.CONTRACT or engine is None:
            return None
        return ArrayMapping(engine, roles(self.workload, op), node.array)

    def _note(self, op: Op, scope: SimulationScope, fresh: bool) -> None:
        """Record results as present, and the version of the running maximum that they are, or are relative to."""
        maxima = {other.scaled_by for other in self.workload.ops if other.scaled_by}
        if maxima.intersection(op.outputs):
            self.clock += 1
        if 0 not in scope.active():  # the critical member is idle in this tile: its data is unchanged
            return
        for name in op.outputs:
            tensor, hold = self.workload.tensors[name], scope.holds[name]
            box = scope.box(tensor)
            if box not in hold.touched.setdefault(name, set()):
                hold.touched[name].add(box)
                hold.later((scope.path, name, box), partial(_keep, hold, name, tensor, scope))
            if name in maxima:
                hold.stamps.setdefault(name, {})[box] = self.clock
            elif op.scaled_by:
                hold.stamps.setdefault(name, {})[box] = self.stamp(op.scaled_by, scope)

    # ---- running maxima

    def stamp(self, maximum: str, scope: SimulationScope) -> int:
        """The version of a running maximum that the critical member has."""
        return scope.holds[maximum].stamps.get(maximum, {}).get(scope.box(self.workload.tensors[maximum]), 0)

    def rescale(self, op: Op, scope: SimulationScope) -> Requests:
        """Requests to rescale an accumulator before its `Compute`, if it is relative to an older running maximum."""
        name, hold = op.outputs[0], scope.holds[op.outputs[0]]
        present = self.stamp(op.scaled_by, scope) if op.scaled_by else 0
        if hold.stamps.get(name, {}).get(scope.box(self.workload.tensors[name]), present) >= present:
            return ()
        boxes, rows = scope.boxes(self.workload.tensors[name]), scope.boxes(self.workload.tensors[op.scaled_by])
        width = scope.team.axes.width(hold.depth)
        heads: dict[object, int] = {}
        for row in scope.active():
            heads.setdefault((scope.team.members[row][:width], boxes[row]), row)
        places = [(scope.team.members[row], boxes[row], rows[row]) for row in heads.values()]
        return self.scaling(op, hold, scope, places, len(self.chip.levels) - 1)

    def scaling(
        self, op: Op, hold: Visit, scope: SimulationScope, places: list[tuple[tuple[int, ...], Box, Box]], inner: int
    ) -> Requests:
        """Requests to rescale ``places``: (instance, box of the accumulator, box of the maximum), for instances at depth
        ``inner``. Elements are read, multiplied and written; the factor is computed once per row."""
        name, maximum = op.outputs[0], op.scaled_by
        largest = scope.holds[maximum]
        scaled = [PortMove(who, box, points(box)) for who, box, _ in places]
        factors = [PortMove(who, rows, points(rows)) for who, _, rows in places]
        word = self.workload.tensors[name].word
        parts = [
            self.ports.read(scope.team, hold.node.memory, inner, scaled, word),
            self.ports.write(scope.team, hold.node.memory, inner, scaled, word),
            self.ports.read(scope.team, largest.node.memory, inner, factors, self.workload.tensors[maximum].word),
        ]
        if (engine := self.chip.vector) is not None:
            leaf, critical = len(self.chip.levels) - 1, scope.team.critical
            elements = sum(move.elements for move in scaled if scope.team.axes.alike(move.who, critical, inner))
            rows = sum(move.elements for move in factors if scope.team.axes.alike(move.who, critical, inner))
            cycles = elements / engine.rate["mul"] + rows / engine.rate["add"] + rows / engine.rate["exp"]
            seconds = cycles / engine.lanes / engine.clock + engine.latency
            parts.append(((scope.team.axes.server(critical, leaf, "engine", engine.name), seconds),))
        return together(*parts)


def _keep(hold: Visit, name: str, tensor: Tensor, scope: SimulationScope) -> None:
    """Record the regions that active members have written."""
    width, boxes = scope.team.axes.width(hold.depth), scope.boxes(tensor)
    for row in scope.active():
        hold.keep(name, scope.team.members[row][:width], boxes[row])


def _heads(moves: list[PortMove], chip: Chip, scope: SimulationScope, hold: Visit, fresh: bool) -> list[PortMove]:
    """Reads of partial results: of members that share a box in an instance, the first reads it; elements that are written for
    the first time are not read."""
    width = scope.team.axes.width(hold.depth)
    groups: dict[object, PortMove] = {}
    for move in moves:
        key = (move.who[:width], move.box)
        before = groups.get(key, move)
        groups[key] = PortMove(before.who, move.box, max(before.elements, move.elements))
    return [PortMove(who, box, elements - (points(box) if fresh else 0)) for who, box, elements in groups.values()]
