"""Placements of a tensor along one axis, and the collective that converts one placement to another.

Where a consumer needs another placement than the producer left, a transition is needed, and each transition is a collective (the
vocabulary is that of JAX and of PyTorch's DTensor):

    from           to            collective
    Partial        Replicate     all-reduce
    Partial        Shard(d)      reduce-scatter
    Partial        Single        reduce
    Shard(d)       Replicate     all-gather
    Shard(d)       Single        gather
    Shard(a)       Shard(b)      all-to-all
    Replicate      Shard, Single none: each member already has its part
    Single         Replicate     broadcast
    Single         Shard(d)      scatter
    anything       Partial       impossible
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.mapping import CollectiveKind
from halley.ir.workload import MONOIDS


@dataclass(frozen=True, slots=True)
class Shard:
    """Member i has the i-th tile of the dim."""

    dim: str

    def __post_init__(self) -> None:
        if not self.dim:
            raise BadInput(Fault("placement Shard", "the name of a dim", "''", "say which dim is split"))

    def __str__(self) -> str:
        return f"Shard({self.dim})"


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every member has all of it."""

    def __str__(self) -> str:
        return "Replicate"


@dataclass(frozen=True, slots=True)
class Partial:
    """Every member has a partial result of each element; combining all of them with the monoid gives the value."""

    monoid: str

    def __post_init__(self) -> None:
        if self.monoid not in MONOIDS:
            raise BadInput(Fault("placement Partial", "a known monoid", repr(self.monoid), did_you_mean(self.monoid, MONOIDS)))

    def __str__(self) -> str:
        return f"Partial({self.monoid})"


@dataclass(frozen=True, slots=True)
class Single:
    """Member 0 has all of it, the others nothing."""

    def __str__(self) -> str:
        return "Single"


Placement: TypeAlias = Shard | Replicate | Partial | Single


def transition(source: Placement, target: Placement) -> CollectiveKind | None:
    """The collective that converts ``source`` to ``target``; None where nothing has to move.

    Raises BadInput where no collective does: no placement can be converted to another `Partial`.

    >>> transition(Partial("sum"), Shard("n"))
    <CollectiveKind.REDUCE_SCATTER: 'reduce-scatter'>
    >>> transition(Replicate(), Shard("n")) is None
    True
    """
    if source == target:
        return None
    match target:
        case Replicate():
            return _to_all(source)
        case Single():
            return _to_one(source)
        case Shard():
            return _to_shards(source)
        case Partial():
            remedy = "reduce the parts first" if isinstance(source, Partial) else "ask for Replicate, Shard or Single"
            raise BadInput(Fault(f"transition {source} -> {target}", "a target that is not Partial", str(target), remedy))
        case _:
            assert_never(target)


def _to_all(source: Placement) -> CollectiveKind | None:
    match source:
        case Partial():
            return CollectiveKind.ALL_REDUCE
        case Shard():
            return CollectiveKind.ALL_GATHER
        case Single():
            return CollectiveKind.BROADCAST
        case Replicate():
            return None
        case _:
            assert_never(source)


def _to_one(source: Placement) -> CollectiveKind | None:
    match source:
        case Partial():
            return CollectiveKind.REDUCE
        case Shard():
            return CollectiveKind.GATHER
        case Replicate() | Single():
            return None
        case _:
            assert_never(source)


def _to_shards(source: Placement) -> CollectiveKind | None:
    match source:
        case Partial():
            return CollectiveKind.REDUCE_SCATTER
        case Shard():
            return CollectiveKind.ALL_TO_ALL
        case Single():
            return CollectiveKind.SCATTER
        case Replicate():
            return None
        case _:
            assert_never(source)
