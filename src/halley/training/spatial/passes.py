"""The passes of a model's part on a spatial chip: its kernels under a sharding, and the tensors between them.

A pass (forward, recomputation, backward) is a `halley.spatial.chip.SpatialGraph`. Its kernels are those of
`halley.training.kernels`; each may also run unfused, at the time that the sharding was found with, so fusion is never slower
than running kernel by kernel. Tokens are streamed. Where a kernel iterates over other tokens than the producer of its input, or
the producer sums over them, the reader waits for all of them: such a tensor passes through memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from halley.errors import Fault, InternalError
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Shard
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.operations import moved_bytes
from halley.kernels.times import Stream, demand
from halley.sharding.layouts import CollectiveTime, Layout, local_extents
from halley.sharding.solution import Sharding
from halley.spatial.chip import Engine, Kernel, SpatialChip, SpatialGraph, SpatialTensor, TiledDim
from halley.training.kernels import TrainingGraph, kernels
from halley.training.op_costs import op_tasks

TOKENS, CHUNKED_TOKENS = ("m", "n"), ("c", "l", "s")
"""Names of the dims of tokens, where they are in chunks too: an op streams along the first that its result has, or else the first
that it reduces."""

BATCH = "b"
"""The dim of sequences, which are processed one after the other."""

PASSES = ("forward", "recompute", "backward")


@dataclass(frozen=True, slots=True)
class PassKernel:
    """A kernel of a pass: its ``ops``. ``tiled``: the dim along which it streams, ``summed`` if it sums over it; "" where it
    does not stream. ``unfused``: it only runs as a separate kernel (a fused attention core, a scatter, one that does not
    stream)."""

    ops: tuple[str, ...]
    tiled: str
    summed: bool
    unfused: bool

    @property
    def name(self) -> str:
        return self.ops[0]


@dataclass(frozen=True, slots=True)
class ChipRates:
    """Rates that a kernel on all of a chip reaches. ``lane_cycles`` [1]: cycles of a lane of the array per cycle of a lane of
    the vector engines."""

    machine: Machine
    chip: SpatialChip
    efficiency: Efficiency
    gradient: int

    @property
    def lane_cycles(self) -> float:
        array = self.chip.tiles * self.chip.width * self.chip.clock
        return array / (self.efficiency.vector * self.machine.lanes)


@lru_cache(maxsize=512)
def pass_kernels(graph: TrainingGraph) -> tuple[tuple[PassKernel, ...], ...]:
    """By pass, its kernels in an order in which they can run."""
    work = graph.workload
    passes = graph.found.passes
    cuts = [[op for op in work.ops if passes[op.name] == name] for name in PASSES]
    return tuple(_in_order(graph, ops, list(_groups(graph, ops))) for ops in cuts)


def _groups(graph: TrainingGraph, ops: Sequence[Op]) -> Iterator[tuple[str, ...]]:
    """Ops that are one kernel: as in the graph, with merged products and attention cores."""
    work, here = graph.workload, [op.name for op in ops]
    cores = [group for group in graph.same_split if any(graph.contributions[name].core for name in group)]
    merged = [graph.contributions[name].merged for name in here if graph.contributions[name].merged]
    added = [_added(graph, group) for group in merged]
    taken: set[str] = set()
    for group in itertools.chain(cores, added, kernels(work)):
        found = tuple(name for name in here if name in group and name not in taken)
        taken.update(found)
        if found:
            yield found


def _added(graph: TrainingGraph, merged: tuple[str, ...]) -> tuple[str, ...]:
    """Products that are computed as one, and the additions that they replace."""
    work, found = graph.workload, list(merged)
    made = {name for op in merged for name in work.op(op).outputs}
    for op in work.ops:
        if op.function == "add" and graph.contributions[op.name].part and made.issuperset(op.inputs):
            found.append(op.name)
            made.update(op.outputs)
    return tuple(found)


def _in_order(graph: TrainingGraph, ops: Sequence[Op], groups: Sequence[tuple[str, ...]]) -> tuple[PassKernel, ...]:
    """Raises InternalError: kernels that wait for each other."""
    work = graph.workload
    place = {name: number for number, group in enumerate(groups) for name in group}
    makers = {name: place[op.name] for op in ops for name in op.outputs}
    waits = [
        {makers[name] for op in group for name in work.op(op).inputs if name in makers} - {number}
        for number, group in enumerate(groups)
    ]
    found, left = list[int](), list(range(len(groups)))
    while left:
        ready = next((number for number in left if waits[number].issubset(found)), None)
        if ready is None:
            names = ", ".join(groups[number][0] for number in left)
            raise InternalError(Fault(f"kernels of {work.name}", "an order in which they can run", f"a cycle among {names}"))
        found.append(ready)
        left.remove(ready)
    return tuple(_pass_kernel(graph, groups[number]) for number in found)


def _pass_kernel(graph: TrainingGraph, names: tuple[str, ...]) -> PassKernel:
    work = graph.workload
    ops = [work.op(name) for name in names]
    results = {dim for op in ops for name in op.outputs for dim in work.tensors[name].dims}
    touched = {dim for op in ops for dim in op.dims}
    tokens = token_dims(work)
    walked = next((dim for dim in tokens if dim in results), "") or next((dim for dim in tokens if dim in touched), "")
    core = any(graph.contributions[name].core for name in names) or all(graph.contributions[name].part for name in names)
    products = [op for op in ops if op.kind is OpKind.CONTRACT]
    summed = bool(walked) and walked not in results
    # a scatter may write anywhere, a scan may run from the end; a kernel that only sums has few results for one that streams
    apart = core or not walked or any(op.kind in (OpKind.SCATTER, OpKind.SCAN) for op in ops) or (summed and not products)
    return PassKernel(names, walked, summed, apart)


@dataclass(slots=True, eq=False)
class PassGraphs:
    """Graphs of the passes of parts under shardings. ``collective`` [s]: between the chips that share ops."""

    graph: TrainingGraph
    rates: ChipRates
    collective: CollectiveTime
    _starts: dict[tuple[CollectiveKind, tuple[str, ...]], float] = field(default_factory=dict)

    def of(self, sharding: Sharding, times: Mapping[str, float]) -> tuple[SpatialGraph | None, ...]:
        """By pass; None where it has no kernels. ``times`` [s]: by op, of its unfused work alone."""
        return tuple(
            _Pass(self, sharding, groups, others).graph(times) if groups else None
            for groups, others in zip(pass_kernels(self.graph), read_elsewhere(self.graph), strict=True)
        )

    def start(self, kind: CollectiveKind, axes: tuple[str, ...]) -> float:
        """Time of a collective of one byte [s]."""
        key = kind, axes
        if key not in self._starts:
            self._starts[key] = self.collective(kind, axes, 1)
        return self._starts[key]


@lru_cache(maxsize=512)
def read_elsewhere(graph: TrainingGraph) -> tuple[frozenset[str], ...]:
    """By pass, the tensors that other passes read or that are outputs."""
    work, passes = graph.workload, pass_kernels(graph)
    reads = [frozenset(name for group in groups for op in group.ops for name in work.op(op).inputs) for groups in passes]
    outputs = frozenset(work.outputs)
    return tuple(outputs.union(*(other for number, other in enumerate(reads) if number != place)) for place in range(len(passes)))


@dataclass(slots=True, eq=False)
class _Pass:
    """The kernels of one pass at the extents of a chip."""

    parent: PassGraphs
    sharding: Sharding
    groups: tuple[PassKernel, ...]
    wanted: frozenset[str]
    local: dict[str, dict[str, int]] = field(init=False)
    place: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        work, mesh = self.work, self.sharding.problem.mesh
        here = {name for group in self.groups for name in group.ops}
        self.place = {name: number for number, group in enumerate(self.groups) for name in group.ops}
        self.local = {
            item.op: {**work.dims, **local_extents(work.dims, [way.split for way in item.strategy], mesh)}
            for item in self.sharding.ops
            if item.op in here
        }

    @property
    def work(self) -> Workload:
        return self.parent.graph.workload

    def graph(self, times: Mapping[str, float]) -> SpatialGraph:
        kernels = [
            replace(self._kernel(group, math.fsum(times[op] for op in group.ops)), network=sent, latency=latency)
            for group, (sent, latency) in zip(self.groups, self._network(), strict=True)
        ]
        sequence = max((self._tokens(group) for group in self.groups), default=1)
        return SpatialGraph(tuple(kernels), tuple(self._tensors()), sequence)

    def _tokens(self, group: PassKernel) -> int:
        """Points along which a kernel streams: its sequences one after the other."""
        if group.unfused:
            return 1
        walking = [name for name in group.ops if group.tiled in self.work.op(name).dims]
        batched = [BATCH if BATCH in self.work.op(name).dims else "" for name in walking]
        return max(self.local[name][group.tiled] * self.local[name].get(b, 1) for name, b in zip(walking, batched, strict=True))

    def _kernel(self, group: PassKernel, alone: float) -> Kernel:
        """The kernel without its network."""
        moved = self._alone_traffic(group)
        apart = Kernel(group.name, Engine.VECTOR, 1, 1, unfused_time=alone, unfused_traffic=moved, unfused=True)
        if group.unfused:
            return apart
        products = [op for op in map(self.work.op, group.ops) if op.kind is OpKind.CONTRACT]
        found = self._product(group, products) if products else self._elementwise(group)
        weights = math.fsum(self._read(op, name) for op, name in self._weights(group))
        return apart if found is None else replace(found, unfused_time=alone, unfused_traffic=moved, weights=weights)

    def _alone_traffic(self, group: PassKernel) -> float:
        """Bytes that pass the memory as its ops run one by one: what their times have been found with."""
        graph, gradient = self.parent.graph, self.parent.rates.gradient
        tasks = (task for name in group.ops for task in op_tasks(graph, self.work.op(name), self.local[name], gradient))
        return math.fsum(float(task.times * demand(task.kernel)[1]) for task in tasks)

    def _elementwise(self, group: PassKernel) -> Kernel:
        tokens = self._tokens(group)
        points = [math.prod(self.local[op.name][dim] for dim in op.dims) for op in map(self.work.op, group.ops)]
        rows = max(1, math.ceil(max(points) / tokens))
        return Kernel(group.name, Engine.VECTOR, rows, tokens, cycles=self._lane_cycles(group) / (rows * tokens))

    def _product(self, group: PassKernel, products: Sequence[Op]) -> Kernel | None:
        """Products that are computed as one, which differ in at most one extent; None where they cannot be."""
        sides = [self._sides(group, op) for op in products]
        walked = TiledDim.DEPTH if group.summed else TiledDim.COLUMNS
        for joined in range(3):
            if len({side[:joined] + side[joined + 1 :] for side in sides}) == 1:
                whole = list(sides[0])
                whole[joined] = sum(side[joined] for side in sides)
                rows, columns, depth = whole
                return Kernel(group.name, Engine.MATRIX, rows, columns, depth, walked)
        return None

    def _sides(self, group: PassKernel, op: Op) -> tuple[int, ...]:
        """Rows, columns and depth of a product on the array."""
        local, reduced = self.local[op.name], self.work.reduced(op)
        kept = [dim for dim in op.dims if dim not in reduced]
        columns = roles(self.work, op).columns if group.summed else (BATCH, group.tiled)
        parts = ([d for d in kept if d not in columns], [d for d in kept if d in columns], reduced)
        return tuple(math.prod(local[dim] for dim in dims) for dims in parts)

    def _lane_cycles(self, group: PassKernel) -> float:
        """Lane cycles of the array for all points of an elementwise kernel."""
        rates, found = self.parent.rates, 0.0
        for name in group.ops:
            for task in op_tasks(self.parent.graph, self.work.op(name), self.local[name], rates.gradient):
                if isinstance(task.kernel, Stream):
                    points = float(task.times) * float(task.kernel.points)
                    found += points * rates.machine.lane_cycles(task.kernel.work)
        return found * rates.lane_cycles

    def _read(self, op: str, name: str) -> float:
        return float(moved_bytes(self.work, self.work.op(op), name, self.local[op]))

    def _weights(self, group: PassKernel) -> Iterator[tuple[str, str]]:
        """The graph's inputs that a kernel holds, each with the first op that reads it."""
        known: set[str] = set()
        for op in map(self.work.op, group.ops):
            for name in op.inputs if op.kind is not OpKind.GATHER else ():
                if name not in known and is_weight(self.work, name):
                    known.add(name)
                    yield op.name, name

    def _network(self) -> list[tuple[float, float]]:
        """By kernel, the collectives that it waits for [s]: without their latency, and their latency, which each sequence tile
        has where the kernel streams."""
        sent, starts = [0.0] * len(self.groups), [0.0] * len(self.groups)
        for group, time, start in self.collectives():
            sent[group] += time - start
            starts[group] += start
        return list(zip(sent, starts, strict=True))

    def collectives(self) -> Iterator[tuple[int, float, float]]:
        """Kernel, time and latency of each collective of the pass [s]."""
        for op, move_time, kind, axes, streams in awaited_collectives(self.parent.graph, self.sharding, self.parent.collective):
            if op in self.place:
                group = self.place[op]
                start = min(move_time, self.parent.start(kind, axes)) if streams and not self.groups[group].unfused else 0.0
                yield group, move_time, start

    def _tensors(self) -> Iterator[SpatialTensor]:
        """Tensors between kernels, and into and out of the pass."""
        work = self.work
        makers = {name: op for group in self.groups for op in group.ops for name in work.op(op).outputs}
        readers: dict[str, dict[int, str]] = {}
        for number, group in enumerate(self.groups):
            for op in group.ops:
                for name in work.op(op).inputs:
                    if not drawn_locally(self.parent.graph, op, name):
                        readers.setdefault(name, {}).setdefault(number, op)
        for name in dict.fromkeys((*readers, *makers)):
            maker = makers.get(name)
            writer = None if maker is None else self.place[maker]
            found = {number: op for number, op in readers.get(name, {}).items() if number != writer}
            leaves = maker is not None and name in self.wanted
            gathers = {op for op in found.values() if work.op(op).kind is OpKind.GATHER}
            if (found or leaves) and (gathers or not is_weight(self.work, name)):
                yield self._tensor(name, writer, found, leaves)
        for number, group in enumerate(self.groups):
            for op in group.ops if not group.unfused else ():
                if summed := self.parent.graph.contributions[op].summed:
                    # the sum over previous microbatches, to which the kernel adds
                    size = self._sum_bytes(op, summed)
                    yield SpatialTensor(None, (number,), size, least_read=size, needed_whole=True)

    def _sum_bytes(self, op: str, name: str) -> float:
        local = self.local[op]
        return float(math.prod(local[dim] for dim in self.work.tensors[name].dims) * self.parent.rates.gradient)

    def _tensor(self, name: str, writer: int | None, readers: Mapping[int, str], leaves: bool) -> SpatialTensor:
        graph, work = self.parent.graph, self.work
        reads = [0.0 if self.groups[number].unfused else self._read(op, name) for number, op in readers.items()]
        maker = work.producer(name)
        if maker is not None and graph.contributions[maker.name].summed == name and maker.name in self.local:
            size = self._sum_bytes(maker.name, name)
        elif any(work.op(op).kind is OpKind.GATHER for op in readers.values()) and maker is None:
            size = max(reads)
        else:
            size = self._lying(name, maker)
        return SpatialTensor(
            writer,
            tuple(sorted(readers)),
            size,
            leaves,
            gathered_bytes=max(reads, default=0.0),
            least_read=min(reads, default=0.0),
            needed_whole=any(
                waits(work, None if writer is None else self.groups[writer], self.groups[number], name, op)
                for number, op in readers.items()
            ),
        )

    def _lying(self, name: str, maker: Op | None) -> float:
        """Bytes of a tensor in memory: as it is saved, given, or produced."""
        work, mesh = self.work, self.sharding.problem.mesh
        dims = work.tensors[name].dims
        layout: Layout | None = None
        if maker is None or maker.name not in self.place:
            layout = self.sharding.saved.get(name) or self.sharding.ends.get(name)
        if layout is None and maker is not None:
            layout = tuple(way.writes[maker.outputs.index(name)] for way in self.sharding.strategy(maker.name))
        splits = [item.dim if isinstance(item, Shard) else "" for item in layout or (None,) * len(mesh)]
        local = local_extents({dim: work.dims[dim] for dim in dims}, splits, mesh)
        return float(math.prod(local.values()) * work.tensors[name].word)


def token_dims(work: Workload) -> tuple[str, ...]:
    """The dims of tokens in a graph."""
    return TOKENS if TOKENS[0] in work.dims else CHUNKED_TOKENS


def is_weight(work: Workload, name: str) -> bool:
    """An input of the graph without a dim of tokens."""
    return name in work.inputs and not set(token_dims(work)) & set(work.tensors[name].dims)


def drawn_locally(graph: TrainingGraph, op: str, name: str) -> bool:
    """A random mask that an op generates and that is not stored in memory."""
    share = graph.contributions[op]
    return name in share.drawn and name not in share.written


def waits(work: Workload, writer: PassKernel | None, reader: PassKernel, name: str, op: str) -> bool:
    """Whether a streaming reader needs all of a tensor for its ``op`` before it starts. A copy to another dim name streams."""
    if reader.unfused:
        return False
    dims, copied = work.tensors[name].dims, work.op(op).kind is OpKind.PERMUTE
    if writer is None or writer.unfused:
        return not copied and reader.tiled not in dims
    if writer.summed or writer.tiled not in dims:
        return True
    return not copied and reader.tiled != writer.tiled


def awaited_collectives(
    graph: TrainingGraph, sharding: Sharding, collective: CollectiveTime
) -> Iterator[tuple[str, float, CollectiveKind, tuple[str, ...], bool]]:
    """The collectives of a sharding: the op that waits for each, its time [s], its kind and axes, and whether its tensor
    streams. Outputs are redistributed after their producer."""
    work = graph.workload
    makers = {name: op.name for op in work.ops for name in op.outputs}
    for move, step in sharding.steps:
        if step.kind is None:
            continue
        op = move.reader or makers.get(move.tensor, work.ops[0].name)
        names = move.tensor.split(" ")
        streams = any(set(token_dims(work)) & set(work.tensors[name].dims) for name in names if name in work.tensors)
        yield op, collective(step.kind, step.axes, step.bytes) / move.runs, step.kind, step.axes, streams
