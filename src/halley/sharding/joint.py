"""Two kernels of a graph that may run as one on each rank: a choice that is made with the sharding.

The two can be one where ranks read of the first's results just what they make: no collective, no slice stands between them. The
time of the pair is then the lesser of both kernels apart and the two as one, for each way to split the one and the other:

    T(s, t) = min(T1(s) + T2(t), T12(s, t)) where what is made under s lies as it is read under t, else T1(s) + T2(t)
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
    """Two kernels that may be one: ops of the ``first`` are split alike, those of the ``second`` too."""

    @property
    def first(self) -> tuple[str, ...]: ...

    @property
    def second(self) -> tuple[str, ...]: ...

    def many(self, local: Extents) -> Floats:
        """Times [many] [s] of both as one at many extents [many] of each dim of theirs; infinite where they cannot be."""


@dataclass(frozen=True, slots=True)
class Where:
    """What is shared out, in which ways, over what."""

    work: Workload
    space: ShardingSpace
    mesh: Mesh


@dataclass(frozen=True, slots=True)
class Joined:
    """A pair that runs as one, at the ``local`` extents of a rank, in ``time`` [s]; ``apart`` [s]: what both take one by one."""

    pair: Pair
    local: Mapping[str, int]
    time: float
    apart: float


def pair_table(where: Where, pair: Pair, apart: Mapping[str, Floats]) -> CostTable:
    """Times [s] of a pair by the ways of both; ``apart``: of each op, by its ways."""
    ahead, after = (sum((apart[name] for name in names), np.zeros(1)) for names in (pair.first, pair.second))
    times = ahead[:, None] + after[None, :]
    rows, columns = np.nonzero(_may_join(where, pair))
    if len(rows):
        times[rows, columns] = np.minimum(times[rows, columns], _joined_times(where, pair, rows, columns))
    variables = where.space.variables
    return cost_table((variables[f"op {pair.first[0]}"], variables[f"op {pair.second[0]}"]), times)


def joined(where: Where, pair: Pair, values: Mapping[str, int], apart: float) -> Joined | None:
    """The pair as one, if it may be and takes less than ``apart`` [s] under these values."""
    first, second = (values[where.space.variables[f"op {names[0]}"]] for names in (pair.first, pair.second))
    if not _may_join(where, pair)[first, second]:
        return None
    places = np.array([first]), np.array([second])
    time = float(_joined_times(where, pair, *places)[0])
    local = {dim: int(counts[0]) for dim, counts in _local(where, pair, *places).items()}
    return Joined(pair, local, time, apart) if time < apart else None


def _may_join(where: Where, pair: Pair) -> NDArray[np.bool_]:
    """[ways of the first, ways of the second] what passes between them lies as it was made, and neither has a collective."""
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


def _joined_times(where: Where, pair: Pair, first: NDArray[np.intp], second: NDArray[np.intp]) -> Floats:
    """Times [s] as one under these ways of both, each extents asked for once."""
    local = _local(where, pair, first, second)
    rows, which = np.unique(np.stack(list(local.values()), axis=1), axis=0, return_inverse=True)
    return pair.many(dict(zip(local, rows.T, strict=True)))[which.ravel()]


def _local(where: Where, pair: Pair, first: NDArray[np.intp], second: NDArray[np.intp]) -> dict[str, NDArray[np.int64]]:
    """Extents of all dims on a rank [ways]: dims that both have are split alike, as what passes between them is."""
    found = dict[str, NDArray[np.int64]]()
    for names, ways in ((pair.first, first), (pair.second, second)):
        for name in names:
            own = where.space.ops[name]
            for place, dim in enumerate(own.dims):
                if dim not in found:
                    found[dim] = local_counts(where.work.dims[dim], own.splits[place][own.share[ways]], where.mesh)
    return found
