"""Fusion of two kernels of a graph on each rank, chosen together with the sharding.

Two kernels can be fused where every rank reads exactly those results of the first that it computes, so that neither a
collective nor a slice is between them. The time of the pair is the lesser of both kernels apart and the fused one, for each
strategy of the first and of the second:

    T(s, t) = min(T1(s) + T2(t), T12(s, t)) if the layout written under s is the one read under t, else T1(s) + T2(t)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from halley.ir.workload import Workload
from halley.optim.elimination import CostTable, cost_table
from halley.sharding.layouts import Mesh, local_counts
from halley.sharding.space import ShardingSpace

Floats = NDArray[np.float64]
Extents = Mapping[str, NDArray[np.int64]]


class Pair(Protocol):
    """Two kernels that may be fused: ops of the ``first`` have the same splits, and so do those of the ``second``."""

    @property
    def first(self) -> tuple[str, ...]: ...

    @property
    def second(self) -> tuple[str, ...]: ...

    def many(self, local: Extents) -> Floats:
        """Times [many] [s] of the fused kernel at many extents [many] of each dim; infinite where fusion is impossible."""


@dataclass(frozen=True, slots=True)
class ShardingContext:
    """The workload, its sharding space, and the mesh."""

    work: Workload
    space: ShardingSpace
    mesh: Mesh


@dataclass(frozen=True, slots=True)
class FusedPair:
    """A fused pair at the ``local`` extents of a rank; its ``time`` [s]; ``apart`` [s]: both kernels separately."""

    pair: Pair
    local: Mapping[str, int]
    time: float
    apart: float


def pair_table(where: ShardingContext, pair: Pair, apart: Mapping[str, Floats]) -> CostTable:
    """Times [s] of a pair by the strategies of both; ``apart`` [s]: of each op, by its strategies."""
    ahead, after = (sum((apart[name] for name in names), np.zeros(1)) for names in (pair.first, pair.second))
    times = ahead[:, None] + after[None, :]
    rows, columns = np.nonzero(_may_fuse(where, pair))
    if len(rows):
        times[rows, columns] = np.minimum(times[rows, columns], _fused_times(where, pair, rows, columns))
    variables = where.space.variables
    return cost_table((variables[f"op {pair.first[0]}"], variables[f"op {pair.second[0]}"]), times)


def fused_pair(where: ShardingContext, pair: Pair, values: Mapping[str, int], apart: float) -> FusedPair | None:
    """The pair as one kernel, if that is possible and takes less than ``apart`` [s] under these values."""
    first, second = (values[where.space.variables[f"op {names[0]}"]] for names in (pair.first, pair.second))
    if not _may_fuse(where, pair)[first, second]:
        return None
    places = np.array([first]), np.array([second])
    time = float(_fused_times(where, pair, *places)[0])
    local = {dim: int(counts[0]) for dim, counts in _local(where, pair, *places).items()}
    return FusedPair(pair, local, time, apart) if time < apart else None


def _may_fuse(where: ShardingContext, pair: Pair) -> NDArray[np.bool_]:
    """[strategies of the first, of the second] whether tensors between them keep their layout and neither has a collective."""
    space, work = where.space, where.work
    first, second = (len(space.ops[names[0]].strategies) for names in (pair.first, pair.second))
    found = np.ones((first, second), bool)
    for name in pair.first:
        found[list(space.ops[name].moving), :] = False
    for name in pair.second:
        found[:, list(space.ops[name].moving)] = False
    for name in (tensor for op in pair.first for tensor in work.op(op).outputs if tensor in space.chains):
        chain = space.chains[name]
        for link in chain.links:
            if link.use.op in pair.second:
                found &= chain.made[:, None] == link.wanted[None, :]
    return found


def _fused_times(where: ShardingContext, pair: Pair, first: NDArray[np.intp], second: NDArray[np.intp]) -> Floats:
    """Times [s] of the fused pair under these strategies of both; each distinct set of extents is evaluated once."""
    local = _local(where, pair, first, second)
    rows, which = np.unique(np.stack(list(local.values()), axis=1), axis=0, return_inverse=True)
    return pair.many(dict(zip(local, rows.T, strict=True)))[which.ravel()]


def _local(where: ShardingContext, pair: Pair, first: NDArray[np.intp], second: NDArray[np.intp]) -> dict[str, NDArray[np.int64]]:
    """Extents of all dims on a rank [strategies]; dims of both kernels have the same split, because the tensors between them
    do."""
    found = dict[str, NDArray[np.int64]]()
    for names, strategies in ((pair.first, first), (pair.second, second)):
        for name in names:
            own = where.space.ops[name]
            for place, dim in enumerate(own.dims):
                if dim not in found:
                    found[dim] = local_counts(where.work.dims[dim], own.splits[place][own.share[strategies]], where.mesh)
    return found
