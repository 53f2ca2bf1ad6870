"""State of the static check while it traverses a tree in execution order, and the check of a reader: does each member have what
the reader's ranges select? If a collective is missing, the fault names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from halley.errors import Fault
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, CollectiveKind, Compute, Node, walk
from halley.ir.placement import Placement, Replicate, Shard, transition
from halley.ir.text import to_text
from halley.ir.workload import Op, Workload
from halley.network.time.axis import able, algorithms
from halley.rewrite.held_regions import held_region, joined, touches
from halley.rewrite.hold_state import HoldState, Missing, TensorState, Violation, even_chain
from halley.rewrite.layout import AxisKey, Chain, Interval, beyond, covers, restrict
from halley.rewrite.scopes import NodeScope, Path


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of tensor ``name`` in the open Hold ``home``: the node at ``path`` (``at_end``: at the end of its body), in a
    ``scope``.

    ``chains``: the cuts of what it reads. ``active``: by axis, the members that read; where a split leaves others idle,
    ``idles`` has the cuts up to it.
    """

    where: str
    home: HoldState
    name: str
    path: Path
    scope: NodeScope
    chains: Mapping[str, Chain]
    active: Mapping[AxisKey, Interval]
    idles: Mapping[AxisKey, Chain]
    at_end: bool = False


class WalkState:
    """``workload``, ``chip`` and ``scopes`` are constant; the other fields change during the traversal.

    ``at``: path of the current node. ``open``: the open Holds of each tensor, outermost first. ``versions``: how often each
    running maximum has changed, in any Hold. ``computes``: path of each op's `Compute`.
    """

    def __init__(self, tree: Node, workload: Workload, chip: Chip, scopes: Mapping[Path, NodeScope]) -> None:
        self.workload, self.chip, self.scopes = workload, chip, scopes
        self.findings: list[Violation] = []
        self.at: Path = ()
        self.open: dict[str, tuple[HoldState, ...]] = {}
        self.producers = {name: op for op in workload.ops for name in op.outputs}
        self.computes = {node.op: path for path, node in walk(tree) if isinstance(node, Compute)}
        self.maxima = {op.scaled_by for op in workload.ops if op.scaled_by}
        self.versions = dict.fromkeys(self.maxima, 0)

    def fault(self, where: str, expected: str, got: str, remedy: str = "", missing: Missing | None = None) -> None:
        self.findings.append(Violation(Fault(where, expected, got, remedy), missing, self.at))

    def ops_in(self, node: Node, path: Path) -> Iterator[tuple[Op, Path]]:
        for inner, leaf in walk(node):
            if isinstance(leaf, Compute):
                yield self.workload.op(leaf.op), (*path, *inner)

    def innermost(self, name: str) -> HoldState | None:
        """The innermost open Hold of a tensor."""
        enclosing = self.open.get(name)
        return enclosing[-1] if enclosing else None

    def maximum(self, op: Op) -> str:
        """The running maximum that the op's result is relative to, or an empty string."""
        return op.scaled_by or next((name for name in op.running if name in self.maxima), "")

    def renewed(self, maximum: str) -> tuple[str, int]:
        """A new version of a running maximum."""
        self.versions[maximum] += 1
        return maximum, self.versions[maximum]

    def version(self, maximum: str) -> tuple[str, int] | None:
        """The version of a running maximum in its innermost open Hold; None if it is not there.

        A collective renews the copy in one Hold: Holds further out keep their version, for a Hold drains only what its computes
        wrote.
        """
        home = self.innermost(maximum)
        held = home.held.get(maximum) if home else None
        return held.relative if held else None

    def sizes(self, axes: frozenset[AxisKey]) -> dict[AxisKey, int]:
        return {key: self.chip.axis(*key).size for key in axes}

    def put(self, home: HoldState, name: str, held: TensorState) -> None:
        """Record that the tensor is present, and check that it overwrites all of the tensor whose buffer it shares."""
        group_members = home.group_members(name)
        for other in group_members:
            if self.overwrites(home, name, held, other, home.held[other]):
                home.partly_replaced.pop(name, None)
            else:
                home.partly_replaced[name], home.replaced[name] = other, home.held[other]
        home.put(name, held)

    def after_collective(self, home: HoldState, name: str) -> None:
        """Check again whether the tensor has replaced the other one of its group, as a collective brought it to more members."""
        other = home.partly_replaced.get(name)
        if other and self.overwrites(home, name, home.held[name], other, home.replaced[name]):
            del home.partly_replaced[name]

    def overwrites(self, home: HoldState, name: str, new: TensorState, other: str, old: TensorState) -> bool:
        """Whether the new tensor is present on all members that had the old one, ``other``, and covers its indices."""
        sizes, before = self.sizes(home.axes), old.filled if old.filled is not None else old.chains
        keeps, everyone = held_region(self.workload, home, name, self.scopes), joined(self.workload, home, name)
        had = self.had(home, other)
        for key, (first, stop) in new.active.items():
            # members that are idle in the writer but hold a region of its result still have the old tensor
            low, high = home.scope.share(key) if everyone else keeps.active[key]
            begin, end = old.active.get(key, (low, high))
            begin, end = max(begin, had[key][0]), min(end, had[key][1])
            alike = not everyone and key in new.idled and new.idled[key] == keeps.idles.get(key)
            low, high = max(low, begin), min(high, end)
            if not alike and low < high and (low < first or high > stop):
                return False
        active = {**keeps.active, **new.active}
        return all(
            covers(chain, before.get(dim, ()), active, self.workload.dims[dim], sizes) for dim, chain in new.chains.items()
        )

    def had(self, home: HoldState, name: str) -> Mapping[AxisKey, Interval]:
        """By axis, the members with space for a tensor: those with work on it, or all, if a collective may give others a part."""
        if joined(self.workload, home, name) or not any(True for _ in touches(self.workload, home, name)):
            return {key: home.scope.share(key) for key in home.axes}
        return held_region(self.workload, home, name, self.scopes).active

    # ---- what a reader needs -----------------------------------------------------------------------

    def present(self, where: str, home: HoldState, name: str) -> TensorState | None:
        """The state of the tensor in the Hold; a fault and None if it is absent."""
        memory = home.node.memory
        if name in home.overwritten:
            got = f"{home.overwritten[name]}, which overwrote it in place"
            self.fault(where, f"{name} in {memory}", got, f"give {home.overwritten[name]} a buffer of its own")
        elif name not in home.held:
            remedy = f"compute {name} earlier, or hold it further out"
            self.fault(where, f"{name} in {memory}", "elements that are not there", remedy)
        return home.held.get(name)

    def reader(self, where: str, home: HoldState, name: str, path: Path, at_end: bool = False) -> Reader:
        """The reader for the node at ``path``: it reads what the node's ranges select."""
        scope = self.scopes[path]
        chains = {dim: restrict(scope.chain(dim), home.axes) for dim in self.workload.tensors[name].dims}
        active = {key: scope.active(key) for key in home.axes}
        return Reader(where, home, name, path, scope, chains, active, {key: scope.until(key) for key in home.axes}, at_end)

    def covered(self, reader: Reader, held: TensorState) -> bool:
        """Whether each member has what the reader needs; a fault if not."""
        home, sizes = reader.home, self.sizes(reader.home.axes)
        for key in sorted(home.axes & reader.active.keys()):
            (low, high), (first, stop) = reader.active[key], held.active.get(key, (0, sizes[key]))
            # with equal cuts up to the split, the same members are active in the reader and in the writer
            alike = key in held.idled and held.idled[key] == reader.idles.get(key)
            if not alike and (low < first or high > stop):
                self.wrong_placement(reader, held, key, self.needed(reader, key))
                return False
        if held.filled is not None:
            return True
        for dim, chain in held.chains.items():
            if not covers(chain, reader.chains[dim], reader.active, self.workload.dims[dim], sizes, held.shifted):
                self.wrong_cut(reader, held, dim)
                return False
        return True

    def needed(self, reader: Reader, key: AxisKey) -> Placement:
        """The placement along an axis that a reader needs: sharded by its own split, or replicated."""
        split, dims = reader.scope.split.get(key), self.workload.tensors[reader.name].dims
        return Shard(split.dim) if split and split.dim in dims and reader.scope.size(key) > 1 else Replicate()

    def wrong_cut(self, reader: Reader, held: TensorState, dim: str) -> None:
        """Fault: some member lacks indices of ``dim``. It names an axis that shards the dim in another way than the reader."""
        keys = list(dict.fromkeys(cut.axis for cut in held.chains[dim] if cut.axis))
        blamed = next((key for key in keys if self.needed(reader, key) != Shard(dim)), None)
        if blamed is not None:
            self.wrong_placement(reader, held, blamed, self.needed(reader, blamed))
            return
        expected = f"{reader.name} cut along {dim} over {' '.join(map(dot, keys))} as its reader cuts it"
        self.fault(reader.where, expected, "another cut", f"loop over and split {dim} alike where it is written and read")

    def wrong_placement(self, reader: Reader, held: TensorState, key: AxisKey, needed: Placement) -> None:
        """Fault: the placement found, the placement needed, and the collective that converts one to the other."""
        found, name = held.placement(key), reader.name
        missing = self.missing(reader, held, key, needed)
        expected = f"{name} {'Replicate, Shard or Single' if reader.at_end else needed} over {dot(key)}"
        first, stop = held.active.get(key, reader.scope.share(key))
        got = f"members {first} to {stop - 1} only" if found == Replicate() else str(found)
        remedy = f"hold {name} in a memory outside {key[0]} between its writer and its reader"
        if missing:
            remedy = f"insert '{to_text(missing.node)}' before {'the hold ends' if reader.at_end else 'it'}"
        self.fault(reader.where, expected, got, remedy, missing)

    def missing(self, reader: Reader, held: TensorState, key: AxisKey, needed: Placement) -> Missing | None:
        """The collective that converts the placement to the one needed; None if there is none, as after a shift."""
        if key in held.shifted:
            return None
        producer = self.producers.get(reader.name)
        if producer and producer.scaled_by:
            home = self.innermost(producer.scaled_by)
            state = home.held.get(producer.scaled_by) if home else None
            if home and state and key in state.partial:
                # partial results can be added only if they are relative to the same maximum
                first = replace(reader, home=home, name=producer.scaled_by)
                return self.missing(first, state, key, Replicate())
        if isinstance(needed, Shard) and not self.even(reader, held, key, needed.dim):
            needed = Replicate()
        kind = transition(held.placement(key), needed)
        if kind is None:
            return None
        names = producer.outputs if producer else (reader.name,)
        node = self.proposal(kind, names, key, needed, self.scopes[held.setter])
        return Missing(node, held.setter, reader.path, reader.at_end) if node else None

    def proposal(
        self, kind: CollectiveKind, names: tuple[str, ...], key: AxisKey, needed: Placement, scope: NodeScope
    ) -> Collective | None:
        """The collective with the first algorithm that supports it; None if there is none."""
        fitting = algorithms(kind, scope.topology(key), scope.size(key), able(scope.chip.axis(*key)))
        dim = needed.dim if isinstance(needed, Shard) else ""
        return Collective(kind, names, *key, fitting[0], dim) if fitting else None

    def even(self, reader: Reader, held: TensorState, key: AxisKey, dim: str) -> bool:
        """Whether an even sharding of ``dim`` is possible between writer and reader, and gives the reader what it needs."""
        axes, chain = reader.home.axes, reader.scope.chain(dim)
        between = self.scopes[meeting(held.setter, reader.path)]
        if any(cut.axis not in (None, key) for cut in beyond(held.chains.get(dim, ()), restrict(between.chain(dim), axes))):
            return False
        have = restrict(even_chain(between, key, dim), axes)
        return covers(have, restrict(chain, axes), reader.active, self.workload.dims[dim], self.sizes(axes))


def dot(key: AxisKey) -> str:
    return ".".join(key)


def meeting(one: Path, other: Path) -> Path:
    """The path of the innermost node around both.

    >>> meeting((0, 1, 2), (0, 1, 0, 3))
    (0, 1)
    """
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]
