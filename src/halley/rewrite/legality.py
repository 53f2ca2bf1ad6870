"""Whether a tree is a legal mapping: every rule of docs/model.md (capacities aside), decided without executing it.

`check` raises all faults at once. The tree is walked once, in the order in which it would run; for every open Hold the walk
knows what each axis' members have of each tensor (`Held`), and asks at every reader whether that is what its loops and
splits select. Where it is not, the fault names the collective that would help, and `findings` carries it as a value.

The rules are the interpreter's; it finds them broken by looking at elements, this module by looking at cuttings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from halley.errors import Fault, IllegalMapping, did_you_mean
from halley.ir.hardware import Chip, MatrixEngine
from halley.ir.mapping import Collective, CollectiveKind, Compute, Hold, Node, Pipeline, Temporal, children, walk
from halley.ir.network import algorithms
from halley.ir.placement import Partial, Placement, Replicate, Shard, Single, transition
from halley.ir.workload import Op, OpKind, Workload
from halley.rewrite.layout import AxisKey, Need, covers, restrict
from halley.rewrite.names import name_faults
from halley.rewrite.residence import (
    Finding,
    Held,
    Missing,
    Residence,
    collective_text,
    combined,
    even_chain,
    is_stateful,
    network_adds,
    proposal,
    reduced_dims,
    repeating,
    unfit,
    written,
)
from halley.rewrite.scopes import Path, Scope, scopes

_SHARDING = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER, CollectiveKind.ALL_TO_ALL)
_REDUCING = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE)
_STARTS_FROM: dict[CollectiveKind, tuple[type[Placement], ...]] = {
    CollectiveKind.ALL_REDUCE: (Partial,),
    CollectiveKind.REDUCE_SCATTER: (Partial,),
    CollectiveKind.REDUCE: (Partial,),
    CollectiveKind.ALL_GATHER: (Shard,),
    CollectiveKind.GATHER: (Shard,),
    CollectiveKind.ALL_TO_ALL: (Shard,),
    CollectiveKind.BROADCAST: (Single,),
    CollectiveKind.SCATTER: (Single,),
    CollectiveKind.SHIFT: (Shard, Replicate, Single),
}
"""The placement along its axis that each kind starts from."""


def check(tree: Node, workload: Workload, chip: Chip) -> None:
    """Raise IllegalMapping with every fault of the tree, if it has one."""
    found = faults(tree, workload, chip)
    if found:
        raise IllegalMapping(found)


def faults(tree: Node, workload: Workload, chip: Chip) -> list[Fault]:
    """Every broken rule, in the order in which the tree would run. Capacities are not looked at."""
    return list(dict.fromkeys(finding.fault for finding in findings(tree, workload, chip)))


def findings(tree: Node, workload: Workload, chip: Chip) -> list[Finding]:
    """The faults, each with the collective that is missing, where one is.

    Later checks presuppose earlier ones: unknown names hide what else is wrong, and so do splits that do not fit.
    """
    names = list(name_faults(tree, workload, chip))
    if names:
        return [Finding(fault) for fault in names]
    misfits: list[Fault] = []
    found = scopes(tree, chip, workload.dims, misfits)
    if misfits:
        return [Finding(fault) for fault in misfits]
    walker = _Walker(tree, workload, chip, found)
    walker.node(tree, ())
    return walker.findings


class _Walker:
    """The state of the walk. ``open``: the open Holds of each tensor, outermost first. ``versions``: how often each running
    maximum has changed."""

    def __init__(self, tree: Node, workload: Workload, chip: Chip, scopes: Mapping[Path, Scope]) -> None:
        self.workload, self.chip, self.scopes = workload, chip, scopes
        self.findings: list[Finding] = []
        self.open: dict[str, tuple[Residence, ...]] = {}
        self.producers = {name: op for op in workload.ops for name in op.outputs}
        self.computes = {node.op: path for path, node in walk(tree) if isinstance(node, Compute)}
        self.maxima = {op.scaled_by for op in workload.ops if op.scaled_by}
        self.versions = dict.fromkeys(self.maxima, 0)

    def fault(self, where: str, expected: str, got: str, remedy: str = "", missing: Missing | None = None) -> None:
        self.findings.append(Finding(Fault(where, expected, got, remedy), missing))

    # ---- the walk ----------------------------------------------------------------------------------

    def node(self, node: Node, path: Path) -> None:
        match node:
            case Hold():
                self.hold(node, path)
            case Collective():
                self.collective(node, path)
            case Compute():
                self.compute(self.workload.op(node.op), path)
            case _:
                for index, child in enumerate(children(node)):
                    self.node(child, (*path, index))
                if isinstance(node, Temporal | Pipeline):
                    self.accumulates_again(node, path)

    def accumulates_again(self, node: Temporal | Pipeline, path: Path) -> None:
        """The next iteration adds to what this one left; on members that have the sum already it would count twice."""
        if path not in repeating(self.scopes[(*path, 0)]):
            return
        for op, leaf in self.ops_in(node, path):
            if node.dim not in reduced_dims(self.workload, op):
                continue
            scope = self.scopes[leaf]
            for name, home in ((name, home) for name in op.outputs for home in self.open.get(name, ())):
                for key, split in scope.split.items():
                    twice = key in home.axes and split.dim in reduced_dims(self.workload, op) and scope.size(key) > 1
                    if twice and name in home.held and home.held[name].placement(key) == Replicate():
                        where = f"for {node.dim} by {node.tile}"
                        expected = f"{name} Partial over {_dot(key)} where its accumulation goes on"
                        self.fault(where, expected, "Replicate", f"move the collective out of the loop over {node.dim}")

    def ops_in(self, node: Node, path: Path) -> Iterator[tuple[Op, Path]]:
        for inner, leaf in walk(node):
            if isinstance(leaf, Compute):
                yield self.workload.op(leaf.op), (*path, *inner)

    # ---- holds -------------------------------------------------------------------------------------

    def hold(self, node: Hold, path: Path) -> None:
        depth = self.chip.depth(node.memory)
        levels = {level.name for level in self.chip.levels[: depth + 1]}
        axes = frozenset((level, axis.name) for level, axis in self.chip.axes if level in levels)
        home = Residence(node, path, self.scopes[path], depth, axes)
        made = {name: op for op, _ in self.ops_in(node, path) for name in op.outputs}
        for name in node.names:
            self.position(home, name)
            if name in made:
                self.fill_again(home, name, made[name])
            elif any(True for _ in self.touches(home, name)):
                self.fill(home, name)
        outer = dict(self.open)
        self.open = {**outer, **{name: (*outer.get(name, ()), home) for name in node.names}}
        self.node(node.body, (*path, 0))
        self.open = outer
        for name in made:
            if name in node.names:
                self.drain(home, name)

    def parent(self, name: str) -> Residence | None:
        """The innermost open Hold, seen from where a further one opens or has closed."""
        around = self.open.get(name)
        return around[-1] if around else None

    def position(self, home: Residence, name: str) -> None:
        parent, where = self.parent(name), f"hold {home.node.memory}: {name}"
        if parent and parent.depth > home.depth:
            self.fault(where, "a memory as deep as the hold around it or deeper", f"{parent.node.memory} around it")
        ends = parent is None and (name in self.workload.outputs or name not in self.producers)
        if ends and home.depth != 0:
            expected = f"an outermost hold of {name} in a memory of {self.chip.levels[0].name}"
            self.fault(where, expected, f"none around {home.node.memory}", f"hold {name} further out first")

    def touches(self, home: Residence, name: str) -> Iterator[tuple[Path, bool]]:
        """The nodes inside that read the tensor, and whether all members take part, also idle ones."""
        for inner, node in walk(home.node):
            if isinstance(node, Compute):
                op = self.workload.op(node.op)
                if name in (*op.inputs, op.scaled_by):
                    yield (*home.path, *inner), False
            elif isinstance(node, Collective) and name in node.tensors:
                yield (*home.path, *inner), True

    def fill(self, home: Residence, name: str) -> None:
        """The Hold takes what its body reads from the next one out."""
        parent, where = self.parent(name), f"hold {home.node.memory}: {name}"
        start = Held(home.path, repeating(home.scope), filled=True)
        if parent is None:
            if name in self.producers:
                remedy = f"hold {name} outside both its writer and its readers"
                self.fault(where, f"a hold of {name} further out that has it", "none", remedy)
            home.put(name, start)
            return
        held = self.present(where, parent, name)
        if held is not None:
            needs = [(self.scopes[path], everyone) for path, everyone in self.touches(home, name)]
            self.covered(where, parent, held, name, home.scope, needs, home.path)
            moved = held.seen_from(parent.axes, home.path, home.scope)
            start = replace(moved, filled=True)
        home.put(name, start)

    def fill_again(self, home: Residence, name: str, op: Op) -> None:
        """The Hold of an accumulator inside a loop over a reduced dim takes up what its last visit left further out."""
        reduced = reduced_dims(self.workload, op)
        loops = [loop for loop in home.scope.loops if loop.repeats and loop.dim in reduced]
        parent, where = self.parent(name), f"hold {home.node.memory}: {name}"
        if loops and parent is None:
            remedy = f"hold {name} outside that loop"
            self.fault(where, f"a hold of {name} around the loop over {loops[0].dim}", "none", remedy)
        if parent is None:
            return
        between = [loop.dim for loop in loops if loop not in parent.scope.loops]
        for key, split in home.scope.split.items():
            # only the first member is filled again, so that the others' parts must have met in the parent
            if between and key in parent.axes and split.dim in reduced and home.scope.size(key) > 1:
                expected = f"no loop over {between[0]} between it and hold {parent.node.memory}, which has a part per {_dot(key)}"
                self.fault(where, expected, "one", f"move the loop inside, or do not hold {name} here")

    def drain(self, home: Residence, name: str) -> None:
        """The Hold gives what its body wrote to the next one out, or to the world outside."""
        parent = self.parent(name)
        if parent is None and name not in self.workload.outputs:
            return
        where, op = f"drain of {name} from {home.node.memory}", self.producers[name]
        if name in home.lost:
            remedy = f"take {name} out of the group, or do not hold it further out"
            self.fault(where, f"{name} to be there still", f"{home.lost[name]}, which overwrote it in place", remedy)
        if name not in home.held:
            return
        held = home.held[name]
        outer = parent.axes if parent else frozenset()
        for key in sorted(home.axes - outer):
            if key in held.partial and not network_adds(home.scope, key, op):
                self.wrong_placement(where, home, held, name, key, Replicate(), home.scope, home.path, at_end=True)
        if parent:
            parent.put(name, held.seen_from(parent.axes, home.path, home.scope))
        else:
            self.delivered(home, name, op)

    def delivered(self, home: Residence, name: str, op: Op) -> None:
        for loop in home.scope.loops:
            if loop.repeats and loop.dim in reduced_dims(self.workload, op):
                remedy = "complete the reduction before the outermost hold ends"
                self.fault(f"output {name}", f"every element reduced over all {loop.dim}", "a part of it", remedy)

    # ---- what a reader needs -----------------------------------------------------------------------

    def present(self, where: str, home: Residence, name: str) -> Held | None:
        memory = home.node.memory
        if name in home.lost:
            got = f"{home.lost[name]}, which overwrote it in place"
            self.fault(where, f"{name} in {memory}", got, f"give {home.lost[name]} a buffer of its own")
        elif name not in home.held:
            remedy = f"compute {name} earlier, or hold it further out"
            self.fault(where, f"{name} in {memory}", "elements that are not there", remedy)
        return home.held.get(name)

    def covered(
        self,
        where: str,
        home: Residence,
        held: Held,
        name: str,
        around: Scope,
        readers: Sequence[tuple[Scope, bool]],
        path: Path,
    ) -> bool:
        """Whether each member has what the readers' ranges select; ``around`` is the scope that they share."""
        for key in sorted(home.axes):
            first, stop = held.active.get(key, (0, self.chip.axis(*key).size))
            for scope, everyone in readers:
                low, high = scope.share(key) if everyone else scope.active(key)
                if low < first or high > stop:
                    needed = _needed(scope, key, self.workload.tensors[name].dims)
                    self.wrong_placement(where, home, held, name, key, needed, scope, path)
                    return False
        if held.filled:
            return True
        sizes = {key: self.chip.axis(*key).size for key in home.axes}
        for dim, chains in held.chains.items():
            prefix, length = restrict(around.chain(dim), home.axes), len(around.chain(dim))
            needs = [
                Need(restrict(scope.chain(dim)[length:], home.axes), _active(scope, home.axes, everyone))
                for scope, everyone in readers
            ]
            if not all(covers(chain, prefix, needs, self.workload.dims[dim], sizes) for chain in chains):
                self.wrong_cut(where, home, held, name, dim, readers[0][0], path)
                return False
        return True

    def wrong_cut(self, where: str, home: Residence, held: Held, name: str, dim: str, scope: Scope, path: Path) -> None:
        """Some member lacks indices of ``dim``: the axis to blame is one that cuts it in another way than the reader."""
        keys = list(dict.fromkeys(cut.axis for chain in held.chains[dim] for cut in chain if cut.axis))
        blamed = next((key for key in keys if _needed(scope, key, self.workload.tensors[name].dims) != Shard(dim)), None)
        if blamed is not None:
            needed = _needed(scope, blamed, self.workload.tensors[name].dims)
            self.wrong_placement(where, home, held, name, blamed, needed, scope, path)
            return
        expected = f"{name} cut along {dim} over {' '.join(map(_dot, keys))} as its reader cuts it"
        self.fault(where, expected, "another cut", f"loop over and spread {dim} alike where {name} is written and read")

    def wrong_placement(
        self,
        where: str,
        home: Residence,
        held: Held,
        name: str,
        key: AxisKey,
        needed: Placement,
        scope: Scope,
        path: Path,
        at_end: bool = False,
    ) -> None:
        """Name the tensor, the axis, the placement found and the one needed, and the collective that leads there."""
        found = held.placement(key)
        missing = self.missing(home, held, name, key, needed, scope, path, at_end)
        expected = f"{name} {'Replicate, Shard or Single' if at_end else needed} over {_dot(key)}"
        first, stop = held.active.get(key, scope.share(key))
        got = f"members {first} to {stop - 1} only" if found == Replicate() else str(found)
        end = "before the hold ends" if at_end else "before it"
        if missing:
            remedy = f"insert '{collective_text(missing.node)}' {end}"
        else:
            remedy = f"hold {name} in a memory outside {key[0]} between its writer and its reader"
        self.fault(where, expected, got, remedy, missing)

    def missing(
        self, home: Residence, held: Held, name: str, key: AxisKey, needed: Placement, scope: Scope, path: Path, at_end: bool
    ) -> Missing | None:
        producer = self.producers.get(name)
        names = producer.outputs if producer else (name,)
        if producer and producer.scaled_by and producer.scaled_by in self.open:
            largest = self.open[producer.scaled_by][-1]
            state = largest.held.get(producer.scaled_by)
            if state and key in state.partial:  # parts can be added only once they are relative to the same maximum
                return self.missing(largest, state, producer.scaled_by, key, Replicate(), scope, path, at_end)
        found = held.placement(key)
        if isinstance(needed, Shard) and not self.even(held, home, name, key, needed.dim, scope, path):
            needed = Replicate()
        kind = transition(found, needed)
        if kind is None:
            return None
        dim = needed.dim if isinstance(needed, Shard) else ""
        node = proposal(kind, names, key, dim, self.scopes[held.setter])
        return Missing(node, held.setter, path, at_end) if node else None

    def even(self, held: Held, home: Residence, name: str, key: AxisKey, dim: str, scope: Scope, path: Path) -> bool:
        """Whether even shards of ``dim``, made between the writer and the reader, serve the reader."""
        between = self.scopes[_meeting(held.setter, path)]
        sizes = {axis: self.chip.axis(*axis).size for axis in home.axes}
        have = restrict(even_chain(between, key, dim), home.axes)
        need = Need((), _active(scope, home.axes, everyone=False))
        return covers(have, restrict(scope.chain(dim), home.axes), [need], self.workload.dims[dim], sizes)

    # ---- computes ----------------------------------------------------------------------------------

    def compute(self, op: Op, path: Path) -> None:
        where, scope = f"compute {op.name}", self.scopes[path]
        touched = dict.fromkeys((*op.inputs, *op.outputs, *((op.scaled_by,) if op.scaled_by else ())))
        homeless = [name for name in touched if not self.open.get(name)]
        for name in homeless:
            self.fault(where, f"a hold around it with {name}", "none", f"hold {name} in a memory further out")
        self.loops(where, op, scope)
        self.whole_dims(where, op, scope)
        if homeless:
            return
        self.engine(where, op)
        for name in op.inputs:
            self.read(where, op, name, path)
        if op.scaled_by and op.scaled_by not in op.inputs:
            home = self.open[op.scaled_by][-1]
            held = self.present(where, home, op.scaled_by)
            if held:
                self.covered(where, home, held, op.scaled_by, scope, [(scope, False)], path)
        self.write(where, op, path)

    def loops(self, where: str, op: Op, scope: Scope) -> None:
        for dim in dict.fromkeys(loop.dim for loop in scope.loops if loop.dim not in op.dims):
            expected = f"loops in time over its own dims ({', '.join(op.dims)})"
            self.fault(where, expected, f"a loop over {dim}", "move it out of that loop")
        reduced = reduced_dims(self.workload, op)
        for name, homes in ((name, self.open.get(name, ())) for name in op.outputs):
            for home in homes:
                outside = [loop.dim for loop in home.scope.loops if loop.dim in reduced]
                if not outside:
                    continue
                if is_stateful(op) and home is homes[-1]:
                    expected = f"no loop over {outside[0]} outside the innermost hold of {name}"
                    self.fault(where, expected, "one", f"hold {name} outside that loop")
                if any(key in home.axes and key not in home.scope.split for key in scope.split):
                    expected = f"no loop over {outside[0]} outside the distributed hold {home.node.memory}: {name}"
                    self.fault(where, expected, "one", f"hold {name} outside that loop, or inside the spread")

    def whole_dims(self, where: str, op: Op, scope: Scope) -> None:
        """Dims along which an op cannot be cut: that of a scan or transform, and the rows that an index selects."""
        tensors = self.workload.tensors
        match op.kind:
            case OpKind.SCAN | OpKind.FFT:
                dims = {op.along}
            case OpKind.GATHER:
                dims = {dim for name in op.inputs for dim in tensors[name].dims} - set(tensors[op.outputs[0]].dims)
            case OpKind.SCATTER:
                dims = set(tensors[op.outputs[0]].dims) - {dim for name in op.inputs for dim in tensors[name].dims}
            case _:
                return
        for dim in sorted(dims):
            if scope.extents[dim] != {self.workload.dims[dim]}:
                got = f"tiles of {max(scope.extents[dim])} of {self.workload.dims[dim]}"
                self.fault(where, f"{dim} whole in the tile", got, f"do not loop over or split {dim}")

    def engine(self, where: str, op: Op) -> None:
        contract = op.kind is OpKind.CONTRACT
        engine = self.chip.matrix if contract else self.chip.vector
        if engine is None:
            kind = "matrix" if contract else "vector"
            self.fault(where, f"a {kind} engine", f"none on {self.chip.name}", "use another chip")
            return
        roles = [*(("input", "weight") if contract else ("input",) * len(op.inputs)), *("output",) * len(op.outputs)]
        for role, name in zip(roles, (*op.inputs, *op.outputs), strict=True):
            admitted = engine.reads.get(role, ()) if isinstance(engine, MatrixEngine) else engine.reads
            memory = self.open[name][-1].node.memory
            if admitted and memory not in admitted:
                remedy = f"hold {name} in {admitted[0]} around it"
                self.fault(where, f"{role} {name} in {' or '.join(admitted)}", memory, remedy)

    def read(self, where: str, op: Op, name: str, path: Path) -> None:
        scope, home = self.scopes[path], self.open[name][-1]
        held = self.present(where, home, name)
        if held is None:
            return
        producer = self.producers.get(name)
        reduced = reduced_dims(self.workload, producer) if producer else ()
        running = name in op.running
        for key in held.partial:
            alike = key in scope.split and scope.split[key].dim in reduced
            if not (running and alike):
                self.wrong_placement(where, home, held, name, key, Replicate(), scope, path)
                return
        if not self.covered(where, home, held, name, scope, [(scope, False)], path) or producer is None:
            return
        shared = repeating(self.scopes[self.computes[producer.name]]) & repeating(scope)
        partly = sorted({loop.dim for loop in scope.loops if loop.path in shared and loop.dim in reduced})
        if partly and not running:
            remedy = f"move the read of {name} out of the loop over {partly[0]}"
            self.fault(where, f"{name} reduced over all {' '.join(partly)}", "a part of it", remedy)
        self.is_present_relative(where, op, name, held, producer, path)

    def is_present_relative(self, where: str, op: Op, name: str, held: Held, producer: Op, path: Path) -> None:
        """A value that is relative to a running maximum is used with that same state of the maximum."""
        maximum = self.maximum(producer)
        if not maximum or not self.open.get(maximum) or not (producer.scaled_by or op.scaled_by == maximum):
            return
        reduced = reduced_dims(self.workload, self.producers[maximum])
        around = self.scopes[self.computes[self.producers[maximum].name]]
        both = repeating(around) & repeating(self.scopes[self.computes[producer.name]])
        left = [loop.dim for loop in around.loops if loop.path in both and loop.dim in reduced]
        inside = [loop.dim for loop in self.scopes[path].loops if loop.path in both and loop.dim in reduced]
        stale = not producer.scaled_by and left != inside
        if stale or held.relative != (maximum, self.versions[maximum]):
            got = f"{name} relative to an earlier visit of {maximum}"
            remedy = f"compute or combine {name} after {maximum}"
            self.fault(where, f"{name} relative to the present {maximum}", got, remedy)

    def maximum(self, op: Op) -> str:
        """The running maximum that what the op writes is relative to, or nothing."""
        return op.scaled_by or next((name for name in op.running if name in self.maxima), "")

    def write(self, where: str, op: Op, path: Path) -> None:
        scope, homes = self.scopes[path], {name: self.open[name][-1] for name in op.outputs}
        if len({home.depth for home in homes.values()}) > 1:
            self.fault(where, f"{' and '.join(op.outputs)} in memories of one level", "two levels", "hold them together")
            return
        reduced, home = reduced_dims(self.workload, op), homes[op.outputs[0]]
        for key, split in scope.split.items():
            crossed = key not in home.axes and split.dim in reduced and scope.size(key) > 1
            if crossed and not network_adds(scope, key, op):
                name, partial = op.outputs[0], Partial(op.monoid or "sum")
                expected = f"{name} held inside {key[0]}, or a network there that adds on the way up"
                remedy = f"hold {name} in a memory of {key[0]} or deeper, and all-reduce it over {_dot(key)}"
                self.fault(where, expected, f"{partial} over {_dot(key)}", remedy)
        for name in op.outputs:
            if name in self.maxima:
                self.versions[name] += 1
        maximum = self.maximum(op)
        for name, home in homes.items():
            held = written(self.workload, scope, op, name, home.axes, path)
            home.put(name, replace(held, relative=(maximum, self.versions[maximum]) if maximum else None))

    # ---- collectives -------------------------------------------------------------------------------

    def collective(self, node: Collective, path: Path) -> None:
        scope, key = self.scopes[path], (node.level, node.axis)
        if scope.size(key) == 1:
            return
        where = collective_text(node)
        misfit = unfit(node, scope)
        if misfit:
            known = algorithms(node.kind, scope.topology(key), scope.size(key))
            remedy = did_you_mean(node.algorithm, known) if known else f"no algorithm serves {node.kind} here"
            self.fault(where, *misfit, remedy)
        homes = {name: self.home(where, node, name) for name in node.tensors}
        dims = {self.workload.tensors[name].dims for name in node.tensors}
        if len(dims) > 1:
            self.fault(where, "tensors with the same dims", " and ".join(map(" ".join, sorted(dims))), "use one collective each")
        elif not self.placed(where, node, scope, next(iter(dims))):
            return
        for name, home in homes.items():
            if home and self.combinable(where, node, name, home, path):
                home.held[name] = combined(node, home.held[name], scope, path)
        for name in self.maxima & set(node.tensors):
            self.versions[name] += 1
        for name, home in homes.items():
            if home and name in home.held and (maximum := self.producers[name].scaled_by if name in self.producers else ""):
                home.held[name] = replace(home.held[name], relative=(maximum, self.versions[maximum]))

    def home(self, where: str, node: Collective, name: str) -> Residence | None:
        """The innermost Hold at the collective's level."""
        depth = [level.name for level in self.chip.levels].index(node.level)
        found = [home for home in self.open.get(name, ()) if home.depth == depth]
        if not found:
            remedy = f"hold {name} there around the collective"
            self.fault(where, f"{name} held in a memory of {node.level}", "no such hold around it", remedy)
        return found[-1] if found else None

    def placed(self, where: str, node: Collective, scope: Scope, dims: tuple[str, ...]) -> bool:
        """The collective stands outside the splits that would hide parts of its payload."""
        before = len(self.findings)
        levels = [level.name for level in self.chip.levels]
        for level, axis in scope.split:
            if levels.index(level) > levels.index(node.level):
                self.fault(where, "a place outside splits of deeper levels", f"inside a split over {level}.{axis}", "move it out")
        split = scope.split.get((node.level, node.axis))
        if split and split.dim in dims:
            remedy = "hold the tensor outside the spread, and put the collective between"
            self.fault(where, f"a place outside the split of {split.dim} over that axis", "inside it", remedy)
        if node.kind in _SHARDING and node.dim not in dims:
            self.fault(where, f"a dim of {node.tensors[0]} to shard", repr(node.dim), f"add 'to' and one of {', '.join(dims)}")
        return len(self.findings) == before

    def combinable(self, where: str, node: Collective, name: str, home: Residence, path: Path) -> bool:
        """The tensor lies along the axis as the kind wants it, whole state and all."""
        before, key = len(self.findings), (node.level, node.axis)
        held = self.present(where, home, name)
        if held is None:
            return False
        if not isinstance(held.placement(key), _STARTS_FROM[node.kind]):
            wanted = " or ".join(kind.__name__ for kind in _STARTS_FROM[node.kind])
            remedy = "remove it, or use the kind that fits"
            self.fault(where, f"{name} {wanted} over {_dot(key)}", str(held.placement(key)), remedy)
            return False
        again = repeating(self.scopes[path]) - repeating(home.scope) - held.loops
        if again:
            dims = sorted({loop.dim for loop in self.scopes[path].loops if loop.path in again})
            remedy = "move it out of the loop, or move the writer in"
            self.fault(where, f"{name} written again before each time", f"a loop over {', '.join(dims)} around it alone", remedy)
        op = self.producers.get(name)
        lacking = [other for other in op.outputs if other not in node.tensors] if op else []
        if op and lacking and node.kind in _REDUCING:
            got = f"{name} without {lacking[0]}"
            self.fault(where, f"the whole state of {op.name}", got, f"add {lacking[0]} to the collective")
        if op and op.scaled_by:
            self.settled(where, name, op.scaled_by, key)
        return len(self.findings) == before

    def settled(self, where: str, name: str, maximum: str, key: AxisKey) -> None:
        """Parts relative to a running maximum can be joined only once all are relative to the same one."""
        around = self.open.get(maximum)
        held = around[-1].held.get(maximum) if around else None
        if held is None or key in held.partial:
            got = str(held.placement(key)) if held else f"no hold of {maximum} that has it"
            expected = f"{maximum} Replicate over {_dot(key)}, for {name} is relative to it"
            self.fault(where, expected, got, f"all-reduce {maximum} over {_dot(key)} before it")


def _dot(key: AxisKey) -> str:
    return ".".join(key)


def _needed(scope: Scope, key: AxisKey, dims: tuple[str, ...]) -> Placement:
    """How a reader wants a tensor along an axis: cut as its own split cuts it, or whole on every member."""
    split = scope.split.get(key)
    return Shard(split.dim) if split and split.dim in dims and scope.size(key) > 1 else Replicate()


def _active(scope: Scope, axes: frozenset[AxisKey], everyone: bool) -> dict[AxisKey, tuple[int, int]]:
    return {key: scope.share(key) if everyone else scope.active(key) for key in axes}


def _meeting(one: Path, other: Path) -> Path:
    """The innermost node around both."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]
