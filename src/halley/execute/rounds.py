"""Rules of nodes whose children run concurrently on successive rounds and hand tensors over (docs/model.md, "Rounds")."""

from __future__ import annotations

from halley.errors import Fault
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Temporal,
    children,
    walk,
)
from halley.ir.workload import Workload

Path = tuple[int, ...]


def round_faults(workload: Workload, tree: Node) -> list[Fault]:
    """Faults of the nodes with concurrent children."""
    nodes = dict(walk(tree))
    faults: list[Fault] = []
    for path, node in nodes.items():
        if isinstance(node, Overlap | Parallel | Pipeline):
            faults += _Round(workload, nodes, path, node).faults()
    return faults


class _Round:
    """``uses`` and ``changes``: by tensor, the children that access it, and that change it; ``writers``: the child with the
    tensor's op."""

    def __init__(self, workload: Workload, nodes: dict[Path, Node], path: Path, node: Overlap | Parallel | Pipeline) -> None:
        self.workload, self.node = workload, node
        self.enclosing = [(nodes[path[:depth]], depth) for depth in range(len(path))]
        self.uses: dict[str, set[int]] = {}
        self.changes: dict[str, set[int]] = {}
        self.writers: dict[str, int] = {}
        for index, child in enumerate(node.children):
            self._child(child, index, frozenset())

    def _child(self, tree: Node, index: int, filled: frozenset[str]) -> None:
        """Note what a child accesses. ``filled``: tensors of its own Holds around ``tree``; a broadcast fills these alone."""
        match tree:
            case Compute(op=name):
                self._op(name, index)
            case Collective(kind=kind, tensors=tensors):
                for name in tensors:
                    self.uses.setdefault(name, set()).add(index)
                    if kind is not CollectiveKind.BROADCAST or name not in filled:
                        self.changes.setdefault(name, set()).add(index)
            case Hold(body=body):
                self._child(body, index, filled.union(tree.names))
            case _:
                for inner in children(tree):
                    self._child(inner, index, filled)

    def _op(self, name: str, index: int) -> None:
        op = self.workload.op(name)
        for tensor in (*op.inputs, *op.outputs, *([op.scaled_by] if op.scaled_by else [])):
            self.uses.setdefault(tensor, set()).add(index)
        for tensor in op.outputs:
            self.changes.setdefault(tensor, set()).add(index)
            self.writers[tensor] = index

    def faults(self) -> list[Fault]:
        handed = [name for name, users in self.uses.items() if len(users) > 1 and name in self.changes]
        if not handed:
            return []
        if isinstance(self.node, Pipeline):  # a pipeline has its own buffers between stages
            return self._order(handed)
        return [*self._order(handed), *self._buffers(handed), *self._circles()]

    def _fault(self, expected: str, got: str) -> Fault:
        place = "" if isinstance(self.node, Overlap) else f" over {self.node.level}.{self.node.axis}"
        where = type(self.node).__name__.lower() + place
        return Fault(where, expected, got, "use sequence or pipeline")

    def _order(self, handed: list[str]) -> list[Fault]:
        """The first child that accesses a handed-over tensor must compute it."""
        late = [name for name in handed if self.writers.get(name) != min(self.uses[name])]
        return [
            self._fault(f"children that follow each other, {name} computed in the first that uses it", "another order")
            for name in late
        ]

    def _circles(self) -> list[Fault]:
        """A tensor that is carried from round to round must be changed by one child only: later children are a round behind."""
        found = []
        for name, makers in self.changes.items():
            walked: set[str] = set()
            for node, _ in reversed(self.enclosing):
                if isinstance(node, Hold) and name in node.names:
                    break
                if isinstance(node, Temporal | Pipeline):
                    walked.add(node.dim)
            else:
                continue
            late = self.writers.get(name) != min(self.uses[name])
            if len(makers) > 1 and not late and walked - set(self.workload.tensors[name].dims):
                found.append(self._fault(f"{name} recomputed in each round", "changes by several children"))
        return found

    def _buffers(self, handed: list[str]) -> list[Fault]:
        """A tensor needs a buffer for each round between the first and the last child that accesses it, and one more if it is
        filled or drained meanwhile, or carried from round to round."""
        found = []
        inner: set[str] = set()
        walked: set[str] = set()
        for node, depth in reversed(self.enclosing):
            if isinstance(node, Temporal | Pipeline):
                walked.add(node.dim)
            if not isinstance(node, Hold):
                continue
            for group in node.tensors:
                names = [name for name in group if name not in inner]
                users = set().union(*(self.uses.get(name, set()) for name in names))
                further = [other for other, above in self.enclosing if above < depth and isinstance(other, Hold)]
                outer = {name for other in further for name in other.names}
                carried = any(walked - set(self.workload.tensors[name].dims) for name in names if name in handed)
                extra = 1 if carried or outer.intersection(names) else 0
                least = max(users) - min(users) + 1 + extra if len(users) > 1 else 1
                if node.buffers < least and (carried or node.buffers > 1):
                    alone = "" if carried else "1 or "
                    found.append(self._fault(f"{alone}at least {least} buffers of {' '.join(names)}", str(node.buffers)))
            inner.update(node.names)
        return found
