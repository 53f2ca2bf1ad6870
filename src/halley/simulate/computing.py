"""One `Compute`, one tile: what it asks of the engines and of the ports (docs/model.md, "Matrix engine", "Vector engine")."""

from __future__ import annotations

import math
from collections.abc import Iterable

from halley.formulas.engines import systolic_cycles, vector_cycles
from halley.ir.hardware import Chip, Dataflow, MatrixEngine
from halley.ir.workload import Op, OpKind, Roles, Workload, roles
from halley.simulate.holds import Visit
from halley.simulate.members import Box, Scope, points
from halley.simulate.tasks import Requests
from halley.simulate.traffic import Move, Ports, together


class Computing:
    """Computes of one workload on one chip. Tiles of the same form cost the same, so each form is counted once."""

    def __init__(self, workload: Workload, chip: Chip) -> None:
        self.workload, self.chip, self.ports = workload, chip, Ports(chip)
        self.clock = 0  # visits of running maxima so far
        self._known: dict[tuple[object, ...], Requests] = {}

    def requests(self, op: Op, scope: Scope) -> Requests:
        """What one tile asks for; its results are noted in the open Holds."""
        hold = scope.holds[op.outputs[0]]
        box = scope.box(self.workload.tensors[op.outputs[0]])
        fresh = op.outputs[0] not in hold.refilled and box not in hold.touched.get(op.outputs[0], ())
        key = (scope.path, scope.team.critical, fresh, scope.form)
        if key not in self._known:
            self._known[key] = together(self._engine(op, scope), *self._accesses(op, scope, fresh))
        self._note(op, scope, fresh)
        return self._known[key]

    def _engine(self, op: Op, scope: Scope) -> Requests:
        """The critical member's engine."""
        chip = self.chip
        if 0 not in scope.active():
            return ()
        depth, critical = len(chip.levels) - 1, scope.team.critical
        if op.kind is OpKind.CONTRACT and chip.matrix is not None:
            dtype = self.workload.tensors[op.inputs[0]].dtype
            rate = chip.matrix.rate.get(dtype, 1.0) * chip.matrix.clock
            cycles = _matrix_cycles(roles(self.workload, op), chip.matrix, scope)
            return ((scope.team.axes.server(critical, depth, "engine", chip.matrix.name), cycles / rate),)
        if chip.vector is None:
            return ()
        *outer, last = scope.extents(op.dims)
        work = self.workload.work(op) or ({"mul": 1.0, "add": 1.0} if op.kind is OpKind.CONTRACT else {})
        per_point = sum(count / chip.vector.rate[function] for function, count in work.items())
        cycles = vector_cycles(math.prod(outer) * -(-last // chip.vector.lanes), per_point)
        return ((scope.team.axes.server(critical, depth, "engine", chip.vector.name), cycles / chip.vector.clock),)

    def _accesses(self, op: Op, scope: Scope, fresh: bool) -> Iterable[Requests]:
        leaf, active = len(self.chip.levels) - 1, scope.active()
        passes = {row: self._passes(op, scope, row) for row in active}
        for index, name in enumerate(op.inputs if op.kind is OpKind.CONTRACT else dict.fromkeys(op.inputs)):
            tensor, hold = self.workload.tensors[name], scope.holds[name]
            boxes = scope.boxes(tensor)
            moves = [Move(scope.team.members[row], boxes[row], points(boxes[row]) * passes[row][index]) for row in active]
            yield self.ports.read(scope.team, hold.node.memory, leaf, moves, tensor.word)
        for name in op.outputs:
            tensor, hold = self.workload.tensors[name], scope.holds[name]
            boxes = scope.boxes(tensor)
            moves = [Move(scope.team.members[row], boxes[row], points(boxes[row]) * passes[row][-1]) for row in active]
            yield self.ports.write(scope.team, hold.node.memory, leaf, moves, tensor.word)
            if self.workload.reduced(op):
                again = _heads(moves, self.chip, scope, hold, fresh)
                yield self.ports.read(scope.team, hold.node.memory, leaf, again, tensor.word)

    def _passes(self, op: Op, scope: Scope, row: int) -> tuple[int, ...]:
        """How often a member reads each element of each input, and, last, how often it writes each element of its results."""
        engine = self.chip.matrix
        if op.kind is not OpKind.CONTRACT or engine is None:
            return (1,) * (len(op.inputs) + 1)
        role = roles(self.workload, op)
        rows, columns, reduced = (scope.extents(dims, row) for dims in (role.rows, role.columns, role.reduced))
        match engine.dataflow:
            case Dataflow.WEIGHT:
                return _folds(columns, engine.cols), 1, _folds(reduced, engine.rows)
            case Dataflow.INPUT:
                return 1, _folds(rows, engine.cols), _folds(reduced, engine.rows)
            case Dataflow.OUTPUT:
                return _folds(columns, engine.cols), _folds(rows, engine.rows), 1
            case Dataflow.NONE:
                return math.prod(columns), math.prod(rows), math.prod(reduced)

    def _note(self, op: Op, scope: Scope, fresh: bool) -> None:
        """The results are there now; a running maximum, and what is relative to one, says of which visit it is."""
        maxima = {other.scaled_by for other in self.workload.ops if other.scaled_by}
        if maxima.intersection(op.outputs):
            self.clock += 1
        for name in op.outputs:
            tensor, hold = self.workload.tensors[name], scope.holds[name]
            box = scope.box(tensor)
            if box not in hold.touched.setdefault(name, set()):
                hold.touched[name].add(box)
                width, boxes = scope.team.axes.width(hold.depth), scope.boxes(tensor)
                for row in scope.active():
                    hold.keep(name, scope.team.members[row][:width], boxes[row])
            if name in maxima:
                hold.stamps.setdefault(name, {})[box] = self.clock
            elif op.scaled_by:
                hold.stamps.setdefault(name, {})[box] = self.stamp(op.scaled_by, scope)

    # ---- running maxima

    def stamp(self, maximum: str, scope: Scope) -> int:
        """The visit of a running maximum that the critical member sees."""
        return scope.holds[maximum].stamps.get(maximum, {}).get(scope.box(self.workload.tensors[maximum]), 0)

    def rescale(self, op: Op, scope: Scope) -> Requests:
        """Before a `Compute` of an op with ``scaled_by``: its present elements, if they are relative to an older maximum."""
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

    def scaling(self, op: Op, hold: Visit, scope: Scope, places: list[tuple[tuple[int, ...], Box, Box]], inner: int) -> Requests:
        """(who, elements, rows of the maximum) by engines at depth ``inner``: read, multiplied, written; a row's factor once."""
        name, maximum = op.outputs[0], op.scaled_by
        largest = scope.holds[maximum]
        scaled = [Move(who, box, points(box)) for who, box, _ in places]
        factors = [Move(who, rows, points(rows)) for who, _, rows in places]
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
            parts.append(((scope.team.axes.server(critical, leaf, "engine", engine.name), cycles / engine.lanes / engine.clock),))
        return together(*parts)


def _heads(moves: list[Move], chip: Chip, scope: Scope, hold: Visit, fresh: bool) -> list[Move]:
    """Reads of partial results: of those who share a box in an instance, the first reads it, less what is written for the
    first time."""
    width = scope.team.axes.width(hold.depth)
    groups: dict[object, Move] = {}
    for move in moves:
        key = (move.who[:width], move.box)
        before = groups.get(key, move)
        groups[key] = Move(before.who, move.box, max(before.elements, move.elements))
    return [Move(who, box, elements - (points(box) if fresh else 0)) for who, box, elements in groups.values()]


def _folds(extents: list[int], part: int) -> int:
    """Passes over an array that takes ``part`` points of the last dim at once; the other dims are walked index by index.

    >>> _folds([3, 10], 4)
    9
    """
    return math.prod(extents[:-1]) * -(-extents[-1] // part) if extents else 1


def _matrix_cycles(role: Roles, engine: MatrixEngine, scope: Scope) -> float:
    """Cycles of the critical member's tile."""
    rows, columns, reduced, batch = (scope.extents(dims) for dims in (role.rows, role.columns, role.reduced, role.batch))
    load = 0 if engine.prefetch else engine.rows
    match engine.dataflow:
        case Dataflow.WEIGHT:
            folds, stream = _folds(reduced, engine.rows) * _folds(columns, engine.cols), rows
        case Dataflow.INPUT:
            folds, stream = _folds(reduced, engine.rows) * _folds(rows, engine.cols), columns
        case Dataflow.OUTPUT:
            folds, stream, load = _folds(rows, engine.rows) * _folds(columns, engine.cols), reduced, 0
        case Dataflow.NONE:
            return math.prod((*rows, *columns, *reduced, *batch))
    cycles: float = systolic_cycles(math.prod(batch) * folds, math.prod(stream), 1, engine.rows, engine.cols, load)
    return cycles
