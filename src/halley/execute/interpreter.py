"""The interpreter: it executes a mapping tree on arrays, with simulated members and counters.

It is the oracle of the cost formulas and shares no code with them: it counts every access as it executes it. The rules are those
of docs/model.md; a tree that breaks a rule raises `IllegalMapping`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import numpy as np

from halley.errors import BadInput, Fault, IllegalMapping, did_you_mean
from halley.execute.collective import collective
from halley.execute.compute import Journal, compute
from halley.execute.counters import Counters, Tally
from halley.execute.functions import Array
from halley.execute.holds import enter, leave
from halley.execute.masking import visible_keys
from halley.execute.members import ExecutionScope, Siblings, shares
from halley.execute.prefetch import PrefetchedHolds, prefetch_faults, prefetched_holds
from halley.execute.rounds import round_faults
from halley.execute.store import OpenHold, Store
from halley.ir.axis_groups import with_axis_groups
from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.workload import OpKind, Workload


@dataclass(frozen=True, slots=True)
class Execution:
    """``outputs``: the workload's outputs, indexed in the order of `Tensor.dims`. ``counters``: counts of the execution."""

    outputs: dict[str, Array]
    counters: Counters


def run(workload: Workload, chip: Chip, tree: Node, arrays: Mapping[str, Array], dtype: Any = np.float64) -> Execution:
    """Execute a mapping of the workload on the chip.

    ``arrays`` holds every input of the workload, indexed in the order of `Tensor.dims`. Values are computed in
    ``dtype``; bytes are counted with the tensors' own words.

    Raises `BadInput` if an array is missing or misshapen, `IllegalMapping` if the tree breaks a rule.
    """
    _check_arrays(workload, arrays)
    chip = with_axis_groups(chip, (node for _, node in walk(tree)))
    siblings = Siblings(chip)
    tally = Tally(siblings)
    early = _check_tree(workload, chip, tree)
    machine = _Machine(Store(workload, chip, arrays, dtype, tally), Journal(), tally, early)
    whole = {dim: workload.read_part(dim) for dim in workload.dims}
    machine.node(tree, ExecutionScope(siblings, dict.fromkeys(siblings.members, whole), indices=workload.indices))
    machine.check_complete()
    return Execution(machine.store.outputs, tally.counters())


def random_inputs(workload: Workload, seed: int) -> dict[str, Array]:
    """Standard normal arrays for the workload's inputs; an index tensor gets random row numbers of its table."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for name in workload.inputs:
        shape = tuple(workload.dims[dim] for dim in workload.tensors[name].dims)
        rows = _rows(workload, name)
        arrays[name] = rng.integers(0, rows, shape) if rows else rng.standard_normal(shape)
    return arrays


def _rows(workload: Workload, index: str) -> int:
    """Extent of the dim that an index tensor selects from; 0 for any other tensor."""
    for op in workload.ops:
        indexed = op.kind in (OpKind.GATHER, OpKind.SCATTER) and len(op.inputs) == 2
        if indexed and op.inputs[workload.index_input(op)] == index:
            source = workload.tensors[op.inputs[1 - workload.index_input(op)]].dims
            target = workload.tensors[op.outputs[0]].dims
            table, other = (source, target) if op.kind is OpKind.GATHER else (target, source)
            return next(workload.dims[dim] for dim in table if dim not in other)
    return 0


@dataclass(slots=True)
class _Machine:
    store: Store
    journal: Journal
    tally: Tally
    early: Mapping[int, PrefetchedHolds]
    sizes: dict[int, dict[Any, int]] = field(default_factory=dict)
    """Of each prefetched Hold, its peak bytes by (memory, instance)."""

    def node(self, node: Node, scope: ExecutionScope) -> None:
        match node:
            case Temporal() if node.visible:
                visible_keys(self.store, self.journal, node, scope, self.node)
            case Temporal():
                for index in range(scope.steps(node.dim, node.tile)):
                    self.node(node.body, scope.iteration(node.dim, node.tile, index))
            case Spatial():
                self.node(node.body, scope.spread(node))
            case Hold():
                hold = self.enter(node, scope)
                inner = {name: (*scope.holds.get(name, ()), hold) for name in node.names}
                self.node(node.body, replace(scope, holds={**scope.holds, **inner}))
                leave(self.store, hold)
            case Collective():
                collective(self.store, self.journal, node, scope)
            case Compute():
                compute(self.store, self.journal, node, scope)
            case Sequence() if node.prefetch:
                self.prefetching_sequence(node, scope)
            case Sequence():
                for child in node.children:
                    self.node(child, scope)
            case Overlap():
                self.at_once([(child, scope) for child in node.children])
            case Parallel():
                self.at_once(list(zip(node.children, shares(node, scope), strict=True)))
            case Pipeline():
                # sequential, tile by tile through all stages: results and counts equal those of overlapped stages
                stages = list(zip(node.children, shares(node, scope), strict=True))
                for index in range(scope.steps(node.dim, node.tile)):
                    self.at_once([(child, inner.iteration(node.dim, node.tile, index)) for child, inner in stages])
            case _:
                assert_never(node)

    def enter(self, node: Hold, scope: ExecutionScope) -> OpenHold:
        """Open a Hold; record its bytes if it is prefetched."""
        if not any(id(node) in holds for early in self.early.values() for holds in early.holds):
            return enter(self.store, node, scope)
        before = dict(self.tally.live)
        hold = enter(self.store, node, scope)
        sizes = self.sizes.setdefault(id(node), {})
        for key, live in self.tally.live.items():
            sizes[key] = max(sizes.get(key, 0), live - before.get(key, 0))
        return hold

    def prefetching_sequence(self, node: Sequence, scope: ExecutionScope) -> None:
        """Run children sequentially; the prefetched Holds of a child's neighbours add to its peak."""
        early = self.early[id(node)]
        needs = self.peaks([(child, scope) for child in node.children])
        held: list[dict[Any, int]] = [{} for _ in node.children]
        for index, holds in enumerate(early.holds):
            for hold in holds:
                for key, size in self.sizes.get(hold, {}).items():
                    held[index][key] = held[index].get(key, 0) + size
        for index, need in enumerate(needs):
            beside = [held[i] for i in early.beside[index]]
            for key in set(need).union(*beside):
                live = self.tally.live[key] + need.get(key, 0) + sum(other.get(key, 0) for other in beside)
                self.tally.peak[key] = max(self.tally.peak[key], live)

    def peaks(self, children: list[tuple[Node, ExecutionScope]]) -> list[dict[Any, int]]:
        """Run nodes sequentially; the peak bytes of each beyond the bytes that are already live."""
        before = dict(self.tally.peak)
        base = dict(self.tally.live)
        needs = []
        for child, scope in children:
            self.tally.peak.clear()
            self.node(child, scope)
            needs.append({key: max(peak - base.get(key, 0), 0) for key, peak in self.tally.peak.items()})
        self.tally.peak.clear()
        self.tally.peak.update(before)
        return needs

    def at_once(self, children: list[tuple[Node, ExecutionScope]]) -> None:
        """Run concurrent children: their peaks add up."""
        base = dict(self.tally.live)
        needs: dict[Any, int] = {}
        for need in self.peaks(children):
            for key, peak in need.items():
                needs[key] = needs.get(key, 0) + peak
        for key, peak in needs.items():
            self.tally.peak[key] = max(self.tally.peak[key], base.get(key, 0) + peak)

    def check_complete(self) -> None:
        """Check that every point of every op was run, and that every output was delivered."""
        faults = []
        for op in self.store.workload.ops:
            done = self.journal.done.get(op.name, {}).values()
            if not done or not np.logical_or.reduce(list(done)).all():
                faults.append(
                    Fault(f"compute {op.name}", "every point once", "points that are never computed", f"add compute {op.name}")
                )
        for name, stored in self.store.stored.items():
            if not stored.all():
                faults.append(
                    Fault(
                        f"output {name}",
                        "every element to leave its outermost hold",
                        "some that do not",
                        f"hold {name} further out",
                    )
                )
        if faults:
            raise IllegalMapping(faults)


def _check_arrays(workload: Workload, arrays: Mapping[str, Array]) -> None:
    faults = []
    for name in workload.inputs:
        shape = tuple(workload.dims[dim] for dim in workload.tensors[name].dims)
        if name not in arrays:
            faults.append(
                Fault(f"workload {workload.name}, input {name}", f"an array of shape {shape}", "none", "pass it in arrays")
            )
        elif np.shape(arrays[name]) != shape:
            faults.append(Fault(f"workload {workload.name}, input {name}", f"the shape {shape}", f"{np.shape(arrays[name])}"))
    if faults:
        raise BadInput(faults)


def _check_tree(workload: Workload, chip: Chip, tree: Node) -> Mapping[int, PrefetchedHolds]:
    """Static checks: names and tiles are valid, an op has one compute, concurrent children can hand over to each other, and every
    sequence with prefetch has a prefetched Hold. Returns the prefetched Holds."""
    faults = []
    seen: set[str] = set()
    for _, node in walk(tree):
        if isinstance(node, Temporal | Spatial | Pipeline):
            where = f"{'spread' if isinstance(node, Spatial) else 'for'} {node.dim} by {node.tile}"
            if node.dim not in workload.dims:
                faults.append(Fault(where, "a dim of the workload", repr(node.dim), did_you_mean(node.dim, workload.dims)))
            if isinstance(node.tile, bool) or not isinstance(node.tile, int | np.integer) or node.tile < 1:
                faults.append(Fault(where, "a tile that is a whole number of at least 1", repr(node.tile)))
        elif isinstance(node, Compute):
            workload.op(node.op)
            if node.op in seen:
                faults.append(Fault(f"compute {node.op}", "one compute per op", "a second one", "remove it"))
            seen.add(node.op)
    faults.extend(_unfinished(workload, tree))
    faults.extend(round_faults(workload, tree))
    early = prefetched_holds(workload, chip, tree)
    faults.extend(prefetch_faults(tree, early))
    if faults:
        raise IllegalMapping(faults)
    return early


def _unfinished(workload: Workload, tree: Node) -> list[Fault]:
    """Loops in time over a reduced dim that enclose both the reduction and a reader of its result."""
    nodes = dict(walk(tree))
    places = {node.op: path for path, node in nodes.items() if isinstance(node, Compute)}
    faults = []
    for reader in workload.ops:
        for name in reader.inputs:
            writer = workload.producer(name)
            if writer is None or name in reader.running or not {writer.name, reader.name} <= places.keys():
                continue
            for depth in range(len(places[reader.name])):
                node = nodes[places[reader.name][:depth]]
                common = places[writer.name][:depth] == places[reader.name][:depth]
                if common and isinstance(node, Temporal | Pipeline) and node.dim in workload.reduced(writer):
                    got = f"both inside the loop over {node.dim}"
                    remedy = f"move the read of {name} out of that loop"
                    faults.append(Fault(f"compute {reader.name}", f"{name} reduced over all {node.dim}", got, remedy))
    return faults
