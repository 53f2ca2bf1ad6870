"""Events of a `Compute`: operand reads, result writes, engine work and time (docs/model.md, "Bytes" and "Time")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from halley.cost.counting import Axes, Counter, CountingScope, DimFactor, EnclosingHold, Loop
from halley.cost.events import PIPELINE, Access, Event, PortTraffic, Work
from halley.cost.masking import masked_rescales
from halley.cost.movement import refills
from halley.formulas.engines import pipeline_latency, systolic_cycles, vector_cycles
from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time
from halley.ir.array import Array, Side, on_sides, sides
from halley.ir.hardware import Dataflow, MatrixEngine, VectorEngine
from halley.ir.workload import Op, OpKind, Roles, roles

Leaf = Mapping[str, DimFactor]


def compute(counter: Counter, scope: CountingScope, op: Op, array: Array, common: tuple[Loop, ...]) -> tuple[Event, ...]:
    """All events of a Compute. ``array``: the dims that it names for the matrix engine's array. ``common``: for a rescaled
    accumulator, the loops that also enclose the Compute of its running maximum."""
    if op.kind is OpKind.CONTRACT and counter.chip.matrix is not None:
        events = list(_contract(counter, scope, op, array, counter.chip.matrix))
    else:
        events = list(_vector(counter, scope, op))
    if op.scaled_by:
        times = rescales(counter, scope, common, counter.workload.reduced(op))
        events += rescale(counter, scope, op, op.outputs[0], op.scaled_by, times, counter.leaf_depth, common)
    return tuple(events)


def _contract(counter: Counter, scope: CountingScope, op: Op, array: Array, engine: MatrixEngine) -> Iterator[Event]:
    role = roles(counter.workload, op)
    on_rows, on_columns = on_sides(array, role, engine.dataflow)
    rows, columns = engine.rows, engine.cols

    def folded(dims: tuple[str, ...], side: Side = (), width: int = 1) -> Leaf:
        return _folds(counter, scope.loops, dims, side, width)

    match engine.dataflow:
        case Dataflow.WEIGHT:
            leaves: tuple[Leaf, Leaf, Leaf] = (
                folded(role.columns, on_columns, columns), {}, folded(role.reduced, on_rows, rows)
            )  # fmt: skip
        case Dataflow.INPUT:
            leaves = ({}, folded(role.rows, on_columns, columns), folded(role.reduced, on_rows, rows))
        case Dataflow.OUTPUT:
            leaves = (folded(role.columns, on_columns, columns), folded(role.rows, on_rows, rows), {})
        case Dataflow.NONE:
            leaves = (folded(role.columns), folded(role.rows), folded(role.reduced))
    for name, leaf in zip(op.inputs, leaves[:2], strict=True):
        # the array takes an operand at each point, padding included
        yield from _operand(counter, scope, name, leaf, counter.workload.points(op, name))
    yield from _result(counter, scope, op, op.outputs[0], leaves[2])
    macs = counter.boxes(op.dims, scope, scope.loops, frozenset(counter.axis_depth)) if counter.totals else 0
    dtype = counter.workload.tensors[op.inputs[0]].dtype
    cycles = _matrix_cycles(counter, scope, role, array, engine) if counter.times else 0
    time = busy_time(cycles, engine.rate.get(dtype, 1.0) * engine.clock)
    yield Work(scope.path, engine.name, "mac", dtype, macs, time)
    yield from _pipeline(counter, scope, engine, dtype)


def _folds(counter: Counter, loops: tuple[Loop, ...], dims: tuple[str, ...], side: Side, width: int, multiple: int = 1) -> Leaf:
    """Folds of the dims of one role. The dims of the side are mapped to the array and counted with the first one, as the others
    are untiled; the other dims are iterated. ``multiple``: points are rounded up to it (whole instructions)."""
    first, others = side[:1], side[1:]
    beside = math.prod(counter.workload.dims[dim] for dim in others)

    def along(dim: str) -> DimFactor:
        if dim in first:
            return DimFactor(counter, dim, loops, "folds", width, beside, multiple)
        return DimFactor(counter, dim, loops, "visits" if dim in others else "covered")

    return {dim: along(dim) for dim in dims}


def _matrix_cycles(counter: Counter, scope: CountingScope, role: Roles, array: Array, engine: MatrixEngine) -> Number:
    """Cycles of member 0 over all its tiles."""
    none: Axes = frozenset()
    loops = scope.loops

    def covered(dims: Iterable[str]) -> Number:
        return _product(counter.covered(dim, loops, none) for dim in dims)

    def points(dims: tuple[str, ...], multiple: int = 1) -> Number:
        if multiple == 1 or not dims:
            return covered(dims)
        # the last dim is rounded up to whole instructions in each tile
        return covered(dims[:-1]) * (counter.folds(dims[-1], loops, none, multiple) * multiple)

    def tiles(dims: tuple[str, ...]) -> Number:
        return _product(counter.visits(dim, loops, none) for dim in dims)

    def passes(dims: tuple[str, ...], side: Side, width: int, multiple: int) -> Number:
        return _product(along(none) for along in _folds(counter, loops, dims, side, width, multiple).values())

    if any(loop.mask for loop in loops):
        return _masked_cycles(counter, loops, role, array, engine)
    whole = engine.granularity
    batch = points(role.batch)
    if engine.dataflow is Dataflow.NONE:
        result = points(role.rows, whole.rows) * points(role.columns, whole.columns)
        return batch * result * points(role.reduced, whole.reduced)
    stream, streamed, multiples = _streaming(engine, role)
    (rows, columns), (on_rows, on_columns) = sides(role, engine.dataflow), on_sides(array, role, engine.dataflow)
    folds = passes(rows, on_rows, engine.rows, multiples[0]) * passes(columns, on_columns, engine.cols, multiples[1])
    return systolic_cycles(batch * folds, points(stream, streamed), tiles(stream), *engine.filling, _load(engine))


def _streaming(engine: MatrixEngine, role: Roles) -> tuple[tuple[str, ...], int, tuple[int, int]]:
    """(dims that stream through an array, their points per instruction, (points per instruction on rows, on columns))."""
    whole = engine.granularity
    match engine.dataflow:
        case Dataflow.WEIGHT:
            return role.rows, whole.rows, (whole.reduced, whole.columns)
        case Dataflow.INPUT:
            return role.columns, whole.columns, (whole.reduced, whole.rows)
        case _:
            return role.reduced, whole.reduced, (whole.rows, whole.columns)


def _load(engine: MatrixEngine) -> int:
    """Exposed cycles per fold to load the stationary operand; 0 if the fold before hides them."""
    return 0 if engine.prefetch or engine.back_to_back or engine.dataflow is Dataflow.OUTPUT else engine.rows


def _masked_cycles(counter: Counter, loops: tuple[Loop, ...], role: Roles, array: Array, engine: MatrixEngine) -> Number:
    """`_matrix_cycles` inside a loop over visible keys: products over rows and keys become sums over the visible pairs of
    tiles."""
    dims = (*role.batch, *role.rows, *role.columns, *role.reduced)
    factors: Leaf = {dim: DimFactor(counter, dim, loops) for dim in dims}
    if engine.dataflow is Dataflow.NONE:
        whole, result = engine.granularity, 1
        for own, multiple in ((role.rows, whole.rows), (role.columns, whole.columns), (role.reduced, whole.reduced)):
            factors, times = _filled(counter, loops, factors, own, multiple)
            result *= times
        return result * counter.product(loops, factors)
    stream, streamed, multiples = _streaming(engine, role)
    for own, side, width, multiple in zip(
        sides(role, engine.dataflow), on_sides(array, role, engine.dataflow), (engine.rows, engine.cols), multiples, strict=True
    ):
        factors = {**factors, **_folds(counter, loops, own, side, width, multiple)}
    tiles = counter.product(loops, {**factors, **{dim: DimFactor(counter, dim, loops, "visits") for dim in stream}})
    factors, times = _filled(counter, loops, factors, stream, streamed)
    return systolic_cycles(1, times * counter.product(loops, factors), tiles, *engine.filling, _load(engine))


def _filled(counter: Counter, loops: tuple[Loop, ...], factors: Leaf, dims: tuple[str, ...], multiple: int) -> tuple[Leaf, int]:
    """Factors with the last of some dims counted in whole instructions, and the points of each instruction."""
    if multiple == 1 or not dims:
        return factors, 1
    return {**factors, dims[-1]: DimFactor(counter, dims[-1], loops, "folds", multiple)}, multiple


def _vector(counter: Counter, scope: CountingScope, op: Op) -> Iterator[Event]:
    engine = counter.chip.vector
    for name in dict.fromkeys(op.inputs):
        yield from _operand(counter, scope, name, {}, counter.workload.tensors[name].dims)
    for name in op.outputs:
        yield from _result(counter, scope, op, name, {})
    if engine is None:
        return
    points = counter.boxes(op.dims, scope, scope.loops, frozenset(counter.axis_depth)) if counter.totals else 0
    lanes: Number = 0
    if counter.times:
        factors = {dim: DimFactor(counter, dim, scope.loops) for dim in op.dims[:-1]}
        factors[op.dims[-1]] = DimFactor(counter, op.dims[-1], scope.loops, "folds", engine.width)
        lanes = counter.product(scope.loops, factors) * (engine.width / engine.lanes if engine.warp else 1)
    work = counter.workload.work(op) or ({"mul": 1.0, "add": 1.0} if op.kind is OpKind.CONTRACT else {})
    for function, count in work.items():
        time = busy_time(vector_cycles(lanes, count / engine.rate[function]), engine.clock)
        yield Work(scope.path, engine.name, function, "", points * count, time)
    yield from _pipeline(counter, scope, engine)


def _pipeline(counter: Counter, scope: CountingScope, engine: MatrixEngine | VectorEngine, dtype: str = "") -> Iterator[Work]:
    """Latency of an engine's pipeline, once for each tile of member 0, if the engine has one."""
    if engine.latency:
        tiles = counter.entries(scope) if counter.times else 0
        yield Work(scope.path, engine.name, PIPELINE, dtype, 0, pipeline_latency(tiles, engine.latency))


def _operand(counter: Counter, scope: CountingScope, name: str, leaf: Leaf, dims: tuple[str, ...]) -> Iterator[Event]:
    """Reads of an input's elements over ``dims`` from its innermost Hold, once per visit, with multicast."""
    hold = scope.holds[name]
    tensor = counter.workload.tensors[name]

    def boxes(each: Axes, depth: int, critical: bool) -> Number:
        if not counter.wanted(critical):
            return 0
        first = counter.upto(depth) if critical else frozenset()
        return counter.boxes(dims, scope, scope.loops, each, first, leaf) * tensor.word

    def count(depth: int, critical: bool) -> Number:
        return boxes(counter.upto(depth), depth, critical)

    asking = counter.asking(hold.depth, counter.leaf_depth)
    total, critical = (boxes(asking, hold.depth, only_first) for only_first in (False, True))
    yield Access(scope.path, hold.memory, name, "operand", True, total, critical)
    yield from _passages(counter, scope, hold.depth, True, count)


def _result(counter: Counter, scope: CountingScope, op: Op, name: str, leaf: Leaf) -> Iterator[Event]:
    """Writes of an output's region to its innermost Hold, and reads of the accumulator there."""
    hold = scope.holds[name]
    tensor = counter.workload.tensors[name]
    reduced = counter.workload.reduced(op)
    adding = frozenset(loop.axis for loop in scope.loops if loop.axis in counter.adding and loop.dim in reduced and loop.axis)

    def written(depth: int, critical: bool, also: Axes = frozenset()) -> Number:
        if not counter.wanted(critical):
            return 0
        first = counter.upto(depth) if critical else frozenset()
        each = counter.upto(hold.depth) | also
        return counter.boxes(tensor.dims, scope, scope.loops, each, first, leaf) * tensor.word

    def passing(depth: int, critical: bool) -> Number:
        return written(depth, critical, adding & counter.upto(depth))

    yield Access(scope.path, hold.memory, name, "result", False, written(hold.depth, False), written(hold.depth, True))
    yield from _passages(counter, scope, hold.depth, False, passing)
    if reduced:
        total = written(hold.depth, False) - fresh(counter, scope, hold, name, reduced, None) if counter.totals else 0
        critical = written(hold.depth, True) - fresh(counter, scope, hold, name, reduced, hold.depth) if counter.times else 0
        yield Access(scope.path, hold.memory, name, "accumulate", True, total, critical)

        def again(depth: int, critical: bool) -> Number:
            if not counter.wanted(critical):
                return 0
            return written(depth, critical) - fresh(counter, scope, hold, name, reduced, depth if critical else None)

        yield from _passages(counter, scope, hold.depth, True, again)


def fresh(
    counter: Counter, scope: CountingScope, hold: EnclosingHold, name: str, reduced: tuple[str, ...], critical: int | None
) -> Number:
    """Bytes that are written for the first time since the Hold's entry and were not filled; ``critical``: only in sibling 0 at
    that depth."""
    tensor = counter.workload.tensors[name]
    below = scope.loops[len(hold.loops) :]
    loops = hold.loops + tuple(loop.first if loop.axis is None and loop.dim in reduced else loop for loop in below)
    first = frozenset() if critical is None else counter.upto(critical)
    each = counter.upto(hold.depth)
    entered = counter.boxes(tensor.dims, scope, loops, each, first)
    if hold.parent is None or not any(loop.dim in reduced and loop.axis is None for loop in hold.loops):
        return entered * tensor.word
    splitting: Axes = frozenset(loop.axis for loop in hold.loops if loop.axis and loop.dim in reduced)
    # of refilled bytes, each sibling works on its own part
    parts = (*hold.loops, *(loop for loop in below if loop.dim in tensor.dims))
    again = counter.boxes(tensor.dims, scope, parts, each - splitting, first, skip=reduced)
    return (entered - again * refills(counter, hold.loops, reduced)) * tensor.word


def _passages(
    counter: Counter, scope: CountingScope, depth: int, down: bool, count: Callable[[int, bool], Number], asker: int | None = None
) -> Iterator[Event]:
    for inner in range(depth + 1, (counter.leaf_depth if asker is None else asker) + 1):
        level = counter.chip.levels[inner]
        if level.network and level.network.port:
            yield PortTraffic(scope.path, level.name, down, count(inner, False), count(inner, True))


def rescale(
    counter: Counter,
    scope: CountingScope,
    op: Op,
    name: str,
    maximum: str,
    times: tuple[Number, Number],
    asker: int,
    common: tuple[Loop, ...] = (),
) -> Iterator[Event]:
    """Events of rescaling an accumulator by exp(old max - new max), by engines on behalf of instances at depth ``asker``:
    ``times`` per element, (over all members, on member 0). ``common``: as for `compute`."""
    engine = counter.chip.vector
    dims = {role: counter.workload.tensors[tensor].dims for role, tensor in (("elements", name), ("rows", maximum))}
    words = {role: counter.workload.tensors[tensor].word for role, tensor in (("elements", name), ("rows", maximum))}
    reduced = counter.workload.reduced(op)
    # one engine rescales a box on behalf of all members that share it, and reads the rows of the box
    doing = counter.upto(scope.holds[name].depth)
    doing |= frozenset(loop.axis for loop in scope.loops if loop.axis and loop.dim in dims["elements"])

    def again(over: tuple[str, ...], each: Axes, critical: int | None) -> Number:
        first = frozenset() if critical is None else counter.upto(critical)
        if any(loop.mask for loop in common):
            return masked_rescales(counter, scope, over, each, first, reduced, common)
        boxes = counter.boxes(over, scope, scope.loops, each, first, skip=reduced)
        return boxes * (times[0] if critical is None else times[1])

    def count(role: str, each: Axes, critical: int | None) -> Number:
        return again(dims[role], each, critical)

    def access(role: str, tensor: str, is_read: bool) -> Iterator[Event]:
        hold, word = scope.holds[tensor], words[role]

        def moved(depth: int, critical: bool) -> Number:
            each = doing & counter.upto(depth) if role == "rows" else doing
            return count(role, each, depth if critical else None) * word

        each = doing & counter.asking(hold.depth, asker) if role == "rows" else doing
        total, critical = (count(role, each, first) * word for first in (None, hold.depth))
        yield Access(scope.path, hold.memory, tensor, "rescale", is_read, total, critical)
        yield from _passages(counter, scope, hold.depth, is_read, moved, asker)

    yield from access("elements", name, True)
    yield from access("elements", name, False)
    yield from access("rows", maximum, True)
    if isinstance(engine, VectorEngine):
        for function, role in (("mul", "elements"), ("add", "rows"), ("exp", "rows")):
            cycles = vector_cycles(count(role, doing, counter.leaf_depth) / engine.lanes, 1 / engine.rate[function])
            yield Work(scope.path, engine.name, function, "", count(role, doing, None), busy_time(cycles, engine.clock))
        if engine.latency:
            tiles = again((), frozenset(), counter.leaf_depth) if counter.times else 0
            yield Work(scope.path, engine.name, PIPELINE, "", 0, pipeline_latency(tiles, engine.latency))


def rescales(counter: Counter, scope: CountingScope, common: tuple[Loop, ...], reduced: tuple[str, ...]) -> tuple[Number, Number]:
    """How often elements of an accumulator are rescaled, (summed over members, on member 0): iterations, except for the first, of
    the loops over reduced dims that enclose both the maximum and the accumulator."""
    result: list[Number] = []
    for axes in (frozenset(counter.axis_depth), frozenset[tuple[str, str]]()):
        visited: Number = 1
        first: Number = 1
        for dim in reduced:
            chain = tuple(loop for loop in scope.loops if loop.dim == dim and (loop.axis is not None or loop in common))
            visited = visited * counter.visits(dim, chain, axes)
            first = first * counter.visits(dim, tuple(x.first if x.axis is None else x for x in chain), axes)
        result.append(visited - first)
    return result[0], result[1]


def _product(factors: Iterator[Number]) -> Number:
    result: Number = 1
    for factor in factors:
        result = result * factor
    return result
