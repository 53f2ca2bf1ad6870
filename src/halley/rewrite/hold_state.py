"""State of the open Holds during the static check: which part of each tensor which members hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halley.errors import Fault
from halley.ir.mapping import Collective, CollectiveKind, Hold
from halley.ir.placement import Partial, Placement, Replicate, Shard, Single
from halley.ir.workload import Op, OpKind, Workload
from halley.network.algorithms import ALGORITHMS
from halley.network.time.axis import able
from halley.rewrite.layout import AxisKey, Chain, DimCut, Interval, Shifts, restrict
from halley.rewrite.scopes import NodeScope, Path

NETWORK_ADDED_MONOIDS = ("", "sum", "mean")
"""Monoids whose partial results a network can add on the way to the parent."""
STATEFUL_MONOIDS = ("softmax", "welford")
"""Monoids whose state of several tensors cannot be refilled after a drain."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A collective that a tree lacks: to be inserted after the node ``setter`` and before the node ``before`` (``at_end``: at the
    end of its body, for a drain)."""

    node: Collective
    setter: Path
    before: Path
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, the missing collective, if that is the cause, and the path of the node (of the root if it is no single
    one)."""

    fault: Fault
    missing: Missing | None = None
    path: Path = ()


@dataclass(frozen=True, slots=True)
class TensorState:
    """What the members have of a tensor in one Hold.

    ``setter`` is the node that last changed it, inside the repeating ``loops``. ``chains``: the cuts of each dim. ``partial``: by
    axis whose members have partial results, the monoid. ``active``: the members that certainly have it, on axes where not all do;
    ``idled``: the cuts that left the others idle. ``single``: axes where a collective left it on the first member. ``filled``:
    the cuts of a fill, which brings exactly what its readers select. ``relative``: the running maximum that it is, or is
    relative to, and its version. ``shifted``: axes along which a shift has copied data from each member to the next.
    """

    setter: Path
    loops: frozenset[Path]
    chains: Mapping[str, Chain] = field(default_factory=dict)
    partial: Mapping[AxisKey, str] = field(default_factory=dict)
    active: Mapping[AxisKey, Interval] = field(default_factory=dict)
    idled: Mapping[AxisKey, Chain] = field(default_factory=dict)
    single: frozenset[AxisKey] = frozenset()
    filled: Mapping[str, Chain] | None = None
    relative: tuple[str, int] | None = None
    shifted: Shifts = field(default_factory=dict)

    def placement(self, key: AxisKey) -> Placement:
        if key in self.partial:
            return Partial(self.partial[key])
        if key in self.single:
            return Single()
        for dim, chain in self.chains.items():
            if any(cut.axis == key for cut in chain):
                return Shard(dim)
        return Replicate()

    def seen_from(self, axes: frozenset[AxisKey], setter: Path, scope: NodeScope) -> TensorState:
        """The state after the node ``setter`` moved the tensor to a memory that is private to members of these axes only."""
        return replace(
            self,
            setter=setter,
            loops=repeating(scope),
            chains={dim: restrict(chain, axes) for dim, chain in self.chains.items()},
            partial={key: monoid for key, monoid in self.partial.items() if key in axes},
            active={key: members for key, members in self.active.items() if key in axes},
            idled={key: chain for key, chain in self.idled.items() if key in axes},
            single=self.single & axes,
            shifted={key: members for key, members in self.shifted.items() if key in axes},
        )


@dataclass(slots=True)
class HoldState:
    """An open Hold. ``axes``: those of its memory's level and of outer levels. ``held``: state of each tensor that is present.
    ``overwritten``: by tensor, the tensor of its group that overwrote it in place. ``partly_replaced``: by tensor, the tensor of
    its group that it overwrote only in part; ``replaced``: the state of that other tensor before.
    """

    node: Hold
    path: Path
    scope: NodeScope
    depth: int
    axes: frozenset[AxisKey]
    held: dict[str, TensorState] = field(default_factory=dict)
    overwritten: dict[str, str] = field(default_factory=dict)
    partly_replaced: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, TensorState] = field(default_factory=dict)

    def group_members(self, name: str) -> list[str]:
        """The other tensors of its group that are present."""
        return [other for group in self.node.tensors if name in group for other in group if other != name and other in self.held]

    def put(self, name: str, held: TensorState) -> None:
        """Record that the tensor is present, and that it overwrote the others of its group."""
        for other in self.group_members(name):
            del self.held[other]
            self.overwritten[other] = name
        self.held[name] = held
        self.overwritten.pop(name, None)


def repeating(scope: NodeScope) -> frozenset[Path]:
    """Paths of the enclosing loops of a node that have more than one iteration."""
    return frozenset(loop.path for loop in scope.loops if loop.repeats)


def reduced_dims(workload: Workload, op: Op) -> tuple[str, ...]:
    """Dims that an op accumulates over; for a scatter, all dims that its result lacks."""
    if op.kind is OpKind.SCATTER:
        kept = {dim for name in op.outputs for dim in workload.tensors[name].dims}
        return tuple(dim for dim in op.dims if dim not in kept)
    return workload.reduced(op)


def is_stateful(op: Op) -> bool:
    """Whether the op accumulates a state that cannot be refilled after a drain."""
    return bool(op.scaled_by) or op.monoid in STATEFUL_MONOIDS


def network_adds(scope: NodeScope, key: AxisKey, op: Op) -> bool:
    """Whether the level's network adds partial results of the op on the way to the parent."""
    network = scope.chip.level(key[0]).network
    monoid = op.monoid if op.kind is OpKind.REDUCE else "sum"
    return network is not None and network.reduction and monoid in NETWORK_ADDED_MONOIDS and not is_stateful(op)


def written(workload: Workload, scope: NodeScope, op: Op, name: str, axes: frozenset[AxisKey], setter: Path) -> TensorState:
    """The state of an op's result in a memory that is private to members of ``axes``."""
    dims, reduced = workload.tensors[name].dims, reduced_dims(workload, op)
    partial: dict[AxisKey, str] = {}
    active = {key: members for key, members in scope.shares.items() if key in axes}
    idled: dict[AxisKey, Chain] = {}
    for key, split in scope.split.items():
        if key not in axes or scope.size(key) == 1:
            continue
        first, _ = scope.share(key)
        if split.dim in reduced:
            partial[key] = op.monoid or "sum"
        if split.dim not in dims and split.least < scope.size(key):
            active[key], idled[key] = (first, first + split.least), scope.until(key)
    chains = {dim: restrict(scope.chain(dim), axes) for dim in dims}
    return TensorState(setter, repeating(scope), chains, partial, active, idled)


def combined(node: Collective, held: TensorState, scope: NodeScope, path: Path) -> TensorState:
    """The state of a tensor after a collective."""
    key = (node.level, node.axis)
    first, stop = scope.share(key)
    partial = {axis: monoid for axis, monoid in held.partial.items() if axis != key}
    gathered = {dim: restrict(chain, _axes(chain) - {key}) for dim, chain in held.chains.items()}
    idled = {axis: chain for axis, chain in held.idled.items() if axis != key}
    after = replace(held, setter=path, loops=repeating(scope), partial=partial, idled=idled)
    everywhere = {**held.active, key: (first, stop)}
    one = {**held.active, key: (first, first + 1)}
    match node.kind:
        case CollectiveKind.ALL_REDUCE | CollectiveKind.ALL_GATHER | CollectiveKind.BROADCAST:
            return replace(after, chains=gathered, active=everywhere, single=held.single - {key})
        case CollectiveKind.REDUCE | CollectiveKind.GATHER:
            return replace(after, chains=gathered, active=one, single=held.single | {key})
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.SCATTER | CollectiveKind.ALL_TO_ALL:
            chains = {**gathered, node.dim: even_chain(scope, key, node.dim)}
            return replace(after, chains=chains, active=everywhere, single=held.single - {key}, filled=None)
        case _:
            return _shifted(replace(after, idled=held.idled), scope, key)


def _shifted(held: TensorState, scope: NodeScope, key: AxisKey) -> TensorState:
    """After a shift, each member has its own block and that of the member before."""
    (first, stop), before = scope.share(key), held.placement(key)
    if before == Replicate():
        return held
    active = {**held.active, key: (first, min(first + 2, stop))} if before == Single() else held.active
    return replace(held, active=active, shifted={**held.shifted, key: (first, stop)})


def even_chain(scope: NodeScope, key: AxisKey, dim: str) -> Chain:
    """The cuts of a dim into even shards, one per member of the axis."""
    return (*scope.chain(dim), DimCut(0, key, scope.share(key)[0], scope.size(key)))


def _axes(chain: Chain) -> set[AxisKey]:
    return {cut.axis for cut in chain if cut.axis is not None}


def unfit(node: Collective, scope: NodeScope) -> tuple[str, str] | None:
    """(expected, got) if the node's algorithm does not exist or does not support the collective; else None."""
    key = (node.level, node.axis)
    algorithm = ALGORITHMS.get(node.algorithm)
    if algorithm is None:
        return "a known algorithm", repr(node.algorithm)
    return algorithm.misfit(node.kind, scope.topology(key), scope.size(key), able(scope.chip.axis(*key)))
