"""Random problems and random legal trees, for whoever compares two readings of the mapping language.

A tree grows from the plainest one (everything in one memory, one op after the other) by random edits: a loop, a split, a Hold, a
collective, another composition. An edit may break a rule; the caller keeps what the interpreter accepts. So every
node can turn up at every legal place, without a second account of what is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from tests.reference.problems import random_chip, random_workload

from halley.cost.estimate import Estimate
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Axis, Chip, Dataflow
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    children,
    walk,
)
from halley.ir.workload import Op, OpKind, Workload
from halley.network.algorithms import ALGORITHMS
from halley.network.time.axis import able

Path = tuple[int, ...]
Kind = CollectiveKind

# ---- trees -----------------------------------------------------------------------------------------


def plain_tree(workload: Workload, chip: Chip) -> Node:
    """Inputs and outputs in the outermost memory, everything in the innermost one, op after op."""
    ends = tuple((name,) for name in workload.tensors if name in (*workload.inputs, *workload.outputs))
    every = tuple((name,) for name in workload.tensors)
    ops = tuple(Compute(op.name) for op in workload.ops)
    inner = "obuf" if len(chip.memories) == 5 else "rf"
    return Hold(chip.levels[0].memories[0].name, ends, Hold(inner, every, ops[0] if len(ops) == 1 else Sequence(ops)))


def at(tree: Node, path: Path) -> Node:
    """The node at a path."""
    for index in path:
        tree = children(tree)[index]
    return tree


def put(tree: Node, path: Path, node: Node) -> Node:
    """The tree with another node at a path."""
    if not path:
        return node
    index, rest = path[0], path[1:]
    match tree:
        case Temporal() | Spatial() | Hold():
            return replace(tree, body=put(tree.body, rest, node))
        case Sequence() | Overlap() | Parallel() | Pipeline():
            parts = list(tree.children)
            parts[index] = put(parts[index], rest, node)
            return replace(tree, children=tuple(parts))
        case _:
            raise IndexError(path)


class Editor:
    """Random edits of the trees of one problem. An edit returns the new tree, or None where it finds no place. ``strays``: loops
    and splits over dims that nothing inside has are among them; they always are where a dim is read at sums."""

    def __init__(self, random: Random, workload: Workload, chip: Chip, strays: bool = False) -> None:
        self.random, self.workload, self.chip = random, workload, chip
        self.edits: tuple[tuple[Callable[[Node], Node | None], int], ...] = (
            (self.loop, 6),
            (self.split, 5),
            (self.hold, 7),
            (self.gather, 4),
            (self.shift, 1),
            (self.bracket, 2),
            (self.at_once, 2),
            (self.pipeline, 1),
            (self.loosen, 4),
            (self.resize, 3),
            (self.prefetch, 2),
            (self.in_place, 2),
            (self.move, 2),
        )
        self.engine = chip.matrix if chip.matrix is not None and chip.matrix.dataflow is not Dataflow.NONE else None
        if self.engine is not None and any(op.kind is OpKind.CONTRACT for op in workload.ops):
            self.edits = (*self.edits, (self.lay, 3))
        if strays or workload.indices:
            self.edits = (*self.edits, (self.stray, 6 if workload.indices else 3))

    def edit(self, tree: Node) -> Node | None:
        functions, weights = zip(*self.edits, strict=True)
        (chosen,) = self.random.choices(functions, weights)
        edited: Node | None = chosen(tree)
        return edited

    # -- helpers

    def ops(self, node: Node) -> list[Op]:
        return [self.workload.op(inner.op) for _, inner in walk(node) if isinstance(inner, Compute)]

    def touched(self, node: Node) -> list[str]:
        return list(dict.fromkeys(name for op in self.ops(node) for name in (*op.inputs, *op.outputs)))

    def places(self, tree: Node, *kinds: type) -> list[tuple[Path, Node]]:
        """Nodes inside the outermost Hold; of the kinds, if any are named."""
        return [(path, node) for path, node in walk(tree) if path and (not kinds or isinstance(node, kinds))]

    def place(self, tree: Node, *kinds: type) -> tuple[Path, Node] | None:
        found = self.places(tree, *kinds)
        return self.random.choice(found) if found else None

    def wrapped(self, tree: Node, around: Callable[[Node], Node | None]) -> Node | None:
        path, node = self.random.choice([(p, n) for p, n in self.places(tree) if self.ops(n)])
        new = around(node)
        return None if new is None else put(tree, path, new)

    def reduced(self, op: Op) -> tuple[str, ...]:
        kept = {dim for name in op.outputs for dim in self.workload.tensors[name].dims}
        return tuple(dim for dim in op.dims if dim not in kept)

    def series(self, *nodes: Node) -> Node:
        parts = [part for node in nodes for part in (node.children if isinstance(node, Sequence) else (node,))]
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    # -- edits

    def loop(self, tree: Node) -> Node | None:
        """A loop in time around a node, over a dim that all its ops have."""

        def around(node: Node) -> Node | None:
            common = [dim for dim in self.workload.dims if all(dim in op.dims for op in self.ops(node))]
            if not common:
                return None
            dim = self.random.choice(common)
            return Temporal(dim, self.random.randint(1, self.workload.dims[dim]), node)

        return self.wrapped(tree, around)

    def split(self, tree: Node) -> Node | None:
        """A split around a node, over any dim below it, with collectives after what reduces that dim."""
        level, axis = self.random.choice(self.chip.axes)

        def around(node: Node) -> Node | None:
            dims = list(dict.fromkeys(dim for op in self.ops(node) for dim in op.dims))
            dim = self.random.choice(dims)
            extent = self.workload.dims[dim]
            tile = self.random.randint(min(-(-extent // axis.size), extent), extent)
            for op in self.ops(node):
                if dim in self.reduced(op) and (self.random.random() < 0.8):
                    node = self._combined(node, op, level, axis)
            return Spatial(dim, tile, level, axis.name, node)

        return self.wrapped(tree, around)

    def stray(self, tree: Node) -> Node | None:
        """Loops or splits around a node, over any dim of the workload: its ops may lack it, or know it by other dims alone. Half
        of the time, where a dim is read at sums, two of them: over what is read and over what adds up to it."""
        dims = [self.random.choice(list(self.workload.dims))]
        if self.workload.indices and self.random.random() < 0.5:
            index = self.random.choice(self.workload.indices)
            dims = self.random.sample([index.dim, self.random.choice([index.dims[0], *index.dims])], 2)

        def around(node: Node) -> Node:
            for dim in dims:
                extent = self.workload.dims[dim]
                if self.random.random() < 0.2:
                    node = Temporal(dim, self.random.randint(1, extent), node)
                    continue
                level, axis = self.random.choice(self.chip.axes)
                tile = self.random.randint(min(-(-extent // axis.size), extent), extent)
                node = Spatial(dim, tile, level, axis.name, node)
            return node

        return self.wrapped(tree, around)

    def _combined(self, node: Node, op: Op, level: str, axis: Axis) -> Node:
        """Collectives that complete an op's parts, somewhere between its Compute and the node."""
        (path,) = (path for path, inner in walk(node) if isinstance(inner, Compute) and inner.op == op.name)
        up = path[: self.random.randint(0, len(path))]
        return put(node, up, self.series(at(node, up), *self._chain("partial", op, level, axis)))

    def _chain(self, state: str, op: Op, level: str, axis: Axis) -> Iterator[Collective]:
        """One to three collectives that lead from parts or shards to somewhere."""
        dims = self.workload.tensors[op.outputs[0]].dims
        for _ in range(3):
            options = [(kind, after) for (before, kind, after) in STEPS if before == state and (dims or after != "shard")]
            if not options:
                return
            kind, state = self.random.choice(options)
            names = [a.name for a in ALGORITHMS.values() if a.misfit(kind, axis.topology, axis.size, able(axis)) is None]
            if not names:
                return
            dim = self.random.choice(dims) if dims else ""
            yield Collective(kind, op.outputs, level, axis.name, self.random.choice(names), dim)
            if state == "shard" and self.random.random() < 0.4:
                return

    def gather(self, tree: Node) -> Node | None:
        """A split of a part whose results are then gathered: they are held, distributed, outside the split."""
        level, axis = self.random.choice(self.chip.axes)

        def around(node: Node) -> Node | None:
            op = self.random.choice(self.ops(node))
            dims = self.workload.tensors[op.outputs[0]].dims
            memories = [m.name for m in self.chip.level(level).memories]
            if not dims or not memories:
                return None
            dim = self.random.choice(op.dims)
            extent = self.workload.dims[dim]
            tile = self.random.randint(min(-(-extent // axis.size), extent), extent)
            state = "shard" if dim in dims else "partial"
            inner = Spatial(dim, tile, level, axis.name, node)
            memory = self.random.choice(memories)
            body = self.series(inner, *self._chain(state, op, level, axis))
            return Hold(memory, tuple((name,) for name in op.outputs), body) if self.random.random() < 0.5 else body

        return self.wrapped(tree, around)

    def shift(self, tree: Node) -> Node | None:
        """A tensor passed to the neighbour after a node."""
        level, axis = self.random.choice(self.chip.axes)
        tensor = self.random.choice(list(self.workload.tensors))
        return self.wrapped(
            tree, lambda node: self.series(node, Collective(Kind.SHIFT, (tensor,), level, axis.name, "neighbour"))
        )

    def hold(self, tree: Node) -> Node | None:
        """A Hold of some tensors around a node."""

        def around(node: Node) -> Node | None:
            names = self.touched(node)
            picked = self.random.sample(names, self.random.randint(1, min(3, len(names))))
            memory = self.random.choice([m.name for m in self.chip.memories])
            return Hold(memory, tuple((name,) for name in picked), node, self.random.choice([1, 1, 2]))

        return self.wrapped(tree, around)

    def bracket(self, tree: Node) -> Node | None:
        """Some children of a Sequence that follow each other become one child."""
        found = self.place(tree, Sequence)
        if found is None or len(children(found[1])) < 3:
            return None
        parts = children(found[1])
        start = self.random.randint(0, len(parts) - 2)
        stop = self.random.randint(start + 2, len(parts) - (start == 0))
        return put(tree, found[0], Sequence((*parts[:start], Sequence(parts[start:stop]), *parts[stop:])))

    def at_once(self, tree: Node) -> Node | None:
        """Neighbours in a Sequence at work at once: overlapped, or on disjoint members."""
        found = self.place(tree, Sequence)
        if found is None:
            return None
        parts = children(found[1])
        start = self.random.randint(0, len(parts) - 2)
        pair = parts[start : start + 2]
        level, axis = self.random.choice(self.chip.axes)
        together: Node = Overlap(pair)
        if self.random.random() < 0.5 and axis.size > 1:
            together = Parallel(level, axis.name, self._shares(axis.size, 2), pair)
        rest = (*parts[:start], together, *parts[start + 2 :])
        return put(tree, found[0], rest[0] if len(rest) == 1 else Sequence(rest))

    def _shares(self, size: int, count: int) -> tuple[int, ...]:
        cuts = sorted(self.random.sample(range(1, size), count - 1))
        return tuple(b - a for a, b in zip((0, *cuts), (*cuts, size), strict=True))

    def pipeline(self, tree: Node) -> Node | None:
        """The children of a Sequence as stages on disjoint members."""
        found = self.place(tree, Sequence)
        if found is None:
            return None
        parts = children(found[1])
        count = self.random.randint(2, min(3, len(parts))) if len(parts) > 1 else 2
        level, axis = self.random.choice(self.chip.axes)
        common = [dim for dim in self.workload.dims if all(dim in op.dims for op in self.ops(found[1]))]
        if axis.size < count or not common:
            return None
        cuts = sorted(self.random.sample(range(1, len(parts)), count - 1))
        stages = [parts[a:b] for a, b in zip((0, *cuts), (*cuts, len(parts)), strict=True)]
        nodes = tuple(stage[0] if len(stage) == 1 else Sequence(stage) for stage in stages)
        dim = self.random.choice(common)
        tile = self.random.randint(1, self.workload.dims[dim])
        return put(tree, found[0], Pipeline(dim, tile, level, axis.name, self._shares(axis.size, count), nodes))

    def loosen(self, tree: Node) -> Node | None:
        """A tensor taken out of a Hold, so that what it bypasses holds it no more."""
        found = self.place(tree, Hold)
        if found is None:
            return None
        path, node = found
        assert isinstance(node, Hold)
        kept = list(node.tensors)
        kept.pop(self.random.randrange(len(kept)))
        return put(tree, path, replace(node, tensors=tuple(kept)) if kept else node.body)

    def resize(self, tree: Node) -> Node | None:
        """Another tile for a loop or split."""
        found = self.place(tree, Temporal, Spatial, Pipeline)
        if found is None:
            return None
        path, node = found
        assert isinstance(node, Temporal | Spatial | Pipeline)
        return put(tree, path, replace(node, tile=self.random.randint(1, self.workload.dims[node.dim] + 1)))

    def prefetch(self, tree: Node) -> Node | None:
        found = self.place(tree, Hold)
        if found is None:
            return None
        path, node = found
        assert isinstance(node, Hold)
        return put(tree, path, replace(node, buffers=3 - node.buffers))

    def in_place(self, tree: Node) -> Node | None:
        """A map's result in the buffer of its input."""
        found = self.place(tree, Hold)
        if found is None:
            return None
        path, node = found
        assert isinstance(node, Hold)
        for op in self.random.sample(self.workload.ops, len(self.workload.ops)):
            one = next((g for g in node.tensors if g[-1] in op.inputs), None)
            two = next((g for g in node.tensors if op.outputs and g[0] == op.outputs[0]), None)
            if op.kind is OpKind.MAP and one and two and one != two:
                rest = tuple(group for group in node.tensors if group not in (one, two))
                return put(tree, path, replace(node, tensors=(*rest, one + two)))
        return None

    def move(self, tree: Node) -> Node | None:
        """A Hold in another memory."""
        found = self.place(tree, Hold)
        if found is None:
            return None
        path, node = found
        assert isinstance(node, Hold)
        return put(tree, path, replace(node, memory=self.random.choice([m.name for m in self.chip.memories])))

    def lay(self, tree: Node) -> Node | None:
        """Dims of a contraction on the array: some on each side, in any order, or the usual ones again."""
        found = self.place(tree, Compute)
        if found is None:
            return None
        path, node = found
        assert isinstance(node, Compute)
        if node.array and self.random.random() < 0.3:
            return put(tree, path, replace(node, array=()))
        op = self.workload.op(node.op)
        if op.kind is not OpKind.CONTRACT or self.engine is None:
            return None
        first, second = (set(self.workload.points(op, name)) for name in op.inputs)
        summed = set(self.reduced(op))
        roles = {"m": first - second - summed, "n": second - first - summed, "k": summed}
        put_there = {Dataflow.WEIGHT: "kn", Dataflow.INPUT: "km", Dataflow.OUTPUT: "mn"}[self.engine.dataflow]
        sides = ([dim for dim in op.dims if dim in roles[role]] for role in put_there)
        array = tuple(tuple(self.random.sample(dims, self.random.randint(min(1, len(dims)), len(dims)))) for dims in sides)
        return put(tree, path, replace(node, array=array))


STEPS: tuple[tuple[str, CollectiveKind, str], ...] = (
    ("partial", Kind.ALL_REDUCE, "whole"),
    ("partial", Kind.REDUCE_SCATTER, "shard"),
    ("partial", Kind.REDUCE, "single"),
    ("shard", Kind.ALL_GATHER, "whole"),
    ("shard", Kind.GATHER, "single"),
    ("shard", Kind.ALL_TO_ALL, "shard"),
    ("single", Kind.BROADCAST, "whole"),
    ("single", Kind.SCATTER, "shard"),
)
"""(before, kind, after) of a tensor's placement along an axis."""


def random_trees(
    random: Random, workload: Workload, chip: Chip, legal: Callable[[Node], bool], edits: int = 12, start: Node | None = None
) -> Iterator[Node]:
    """Legal trees, each an edit of the one before."""
    editor = Editor(random, workload, chip)
    tree = start or plain_tree(workload, chip)
    yield tree
    for _ in range(edits):
        edited = editor.edit(tree)
        if edited is not None and edited != tree and legal(edited):
            tree = edited
            yield tree


def grown(seed: int, edits: int, kinds: tuple[str, ...] = ()) -> tuple[Random, Workload, Chip, Node]:
    """A random problem and one of its legal trees."""
    random, workload, chip, trees = all_grown(seed, edits, kinds)
    return random, workload, chip, trees[-1]


def all_grown(seed: int, edits: int, kinds: tuple[str, ...] = ()) -> tuple[Random, Workload, Chip, list[Node]]:
    """A random problem and legal trees of it, each an edit of the one before."""
    random = Random(seed)
    workload, chip = random_workload(random, kinds), random_chip(random)
    arrays = random_inputs(workload, 0)

    def legal(tree: Node) -> bool:
        try:
            run(workload, chip, tree, arrays)
        except BadInput:
            return False
        return True

    return random, workload, chip, list(random_trees(random, workload, chip, legal, edits))


def numbers(estimate: Estimate) -> dict[Any, Any]:
    """Everything that an estimate says."""
    found: dict[Any, Any] = {"time": estimate.time, "energy": estimate.energy}
    for label in ("reads", "writes", "links", "ports", "work"):
        found |= {(label, key): value for key, value in getattr(estimate, label)().items()}
    for label in ("footprint", "energy_by", "busy"):
        found |= {(label, key): value for key, value in getattr(estimate, label).items()}
    for path, node in estimate.nodes.items():
        own = {"node": node.time, "inside": node.work, "up": node.ramp_up, "down": node.ramp_down, "entries": node.entries}
        found |= {(label, path): value for label, value in own.items()}
    return found
