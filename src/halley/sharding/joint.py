"""Fusion of kernels of a graph on each rank, chosen together with the sharding.

Kernels can be fused where every rank reads exactly those results of one that it computes, so that neither a collective nor a
slice is between them. Two kernels take the lesser of both apart and the fused one, for each strategy of the first and of the
second:

    T(s, t) = min(T1(s) + T2(t), T12(s, t)) if the layout written under s is the one read under t, else T1(s) + T2(t)

Groups of more kernels, and groups that share a kernel, have a variable for each set of kernels that the same groups contain. Its
values are that these run apart, or that one of the groups is fused under one of its strategies. So all tables have two variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from halley.ir.workload import Workload
from halley.optim.elimination import CostTable, cost_table
from halley.sharding.layouts import Mesh, local_counts
from halley.sharding.space import ShardingSpace

Floats = NDArray[np.float64]
Extents = Mapping[str, NDArray[np.int64]]
Part = tuple[str, ...]


class KernelParts(Protocol):
    """Kernels in order: ops of each part have the same splits."""

    @property
    def parts(self) -> tuple[Part, ...]: ...


class FusibleKernels(KernelParts, Protocol):
    """Kernels that may be fused, with a ``name`` that no other group of the graph has."""

    @property
    def name(self) -> str: ...

    def many(self, local: Extents) -> Floats:
        """Times [many] [s] of the fused kernel at many extents [many] of each dim; infinite where fusion is impossible."""


Group = TypeVar("Group", bound=KernelParts)


@dataclass(frozen=True, slots=True)
class ShardingContext:
    """The workload, its sharding space, and the mesh."""

    work: Workload
    space: ShardingSpace
    mesh: Mesh


@dataclass(frozen=True, slots=True)
class FusedKernels:
    """A fused group at the ``local`` extents of a rank; its ``time`` [s]; ``apart`` [s]: all its kernels separately."""

    group: FusibleKernels
    local: Mapping[str, int]
    time: float
    apart: float


def ops_of(group: KernelParts) -> tuple[str, ...]:
    """All ops of a group."""
    return tuple(op for part in group.parts for op in part)


def overlapping(groups: Sequence[Group]) -> list[tuple[Group, ...]]:
    """The groups in sets: those that share an op, or share one with a third, are in one set."""
    sets = list[tuple[Group, ...]]()
    for group in groups:
        own = set(ops_of(group))
        near = [each for each in sets if any(not own.isdisjoint(ops_of(other)) for other in each)]
        sets = [each for each in sets if each not in near]
        sets.append((*(other for each in near for other in each), group))
    return sets


def disjoint(groups: Sequence[Group]) -> Iterator[tuple[Group, ...]]:
    """All choices of groups that share no op, the empty one included."""
    if not groups:
        yield ()
        return
    first, *others = groups
    own = set(ops_of(first))
    yield from disjoint(others)
    yield from ((first, *rest) for rest in disjoint([other for other in others if own.isdisjoint(ops_of(other))]))


# --- tables -------------------------------------------------------------------------------------------------------------


def group_tables(where: ShardingContext, groups: Sequence[FusibleKernels], apart: Mapping[str, Floats]) -> Iterator[CostTable]:
    """Times [s] of the kernels of groups that overlap, over the strategies of their ops, the first op first; ``apart`` [s]: of
    each op, by its strategies. Groups that are nowhere faster than their kernels apart get no variables."""
    faster = [group for group in groups if len(group.parts) == 2 or _is_faster(where, group, apart)]
    left = dict.fromkeys(part for group in groups for part in group.parts)
    for some in overlapping(faster):
        for part in {part: None for group in some for part in group.parts}:
            del left[part]
        if len(some) == 1 and len(some[0].parts) == 2:
            yield _pair_table(where, some[0], apart)
        else:
            yield from _class_tables(where, some, apart)
    for part in left:
        yield CostTable((_variable(where, part),), _apart(part, apart))


def _is_faster(where: ShardingContext, group: FusibleKernels, apart: Mapping[str, Floats]) -> bool:
    rows = _strategies(where, group)
    separate = sum((_apart(part, apart)[rows[:, n]] for n, part in enumerate(group.parts)), np.zeros(len(rows)))
    return bool((_times(where, group, rows) < separate).any())


def _pair_table(where: ShardingContext, pair: FusibleKernels, apart: Mapping[str, Floats]) -> CostTable:
    """Times [s] of a group of two kernels by the strategies of both."""
    ahead, after = (_apart(part, apart) for part in pair.parts)
    times, rows = ahead[:, None] + after[None, :], _strategies(where, pair)
    if len(rows):
        places = tuple(rows.T)
        times[places] = np.minimum(times[places], _times(where, pair, rows))
    return cost_table(tuple(_variable(where, part) for part in pair.parts), times)


def _class_tables(where: ShardingContext, groups: Sequence[FusibleKernels], apart: Mapping[str, Floats]) -> Iterator[CostTable]:
    """The tables of groups that overlap, with a variable for each class of parts that are in the same groups: 0 if they run
    apart, else a number of a group and of its strategies."""
    rows = [_strategies(where, group) for group in groups]
    classes: dict[tuple[int, ...], list[Part]] = {}
    for part in dict.fromkeys(part for group in groups for part in group.parts):
        classes.setdefault(tuple(n for n, group in enumerate(groups) if part in group.parts), []).append(part)
    starts, sizes = dict[tuple[int, ...], dict[int, int]](), dict[tuple[int, ...], int]()
    for members in classes:
        starts[members], sizes[members] = {}, 1
        for n in members:
            starts[members][n] = sizes[members]
            sizes[members] += len(rows[n])
    times = [_times(where, group, own) for group, own in zip(groups, rows, strict=True)]
    for members, parts in classes.items():
        for part in parts:
            alone = _apart(part, apart)
            table = np.full((sizes[members], len(alone)), np.inf)
            table[0] = alone
            for n, start in starts[members].items():
                place = groups[n].parts.index(part)
                numbers = np.arange(len(rows[n]))
                table[start + numbers, rows[n][:, place]] = 0.0 if place else times[n]
            yield cost_table((_choice(parts), _variable(where, part)), table)
    for number, (members, parts) in enumerate(classes.items()):
        for others, behind in list(classes.items())[number + 1 :]:
            if common := set(members) & set(others):
                together = np.zeros((sizes[members], sizes[others]))
                for n in common:
                    mine = slice(starts[members][n], starts[members][n] + len(rows[n]))
                    theirs = slice(starts[others][n], starts[others][n] + len(rows[n]))
                    together[mine, :], together[:, theirs] = np.inf, np.inf
                for n in common:
                    numbers = np.arange(len(rows[n]))
                    together[starts[members][n] + numbers, starts[others][n] + numbers] = 0.0
                yield CostTable((_choice(parts), _choice(behind)), together)


def _choice(parts: Sequence[Part]) -> str:
    """The variable that decides how these parts run."""
    return f"kernel {parts[0][0]}"


def _variable(where: ShardingContext, part: Part) -> str:
    return where.space.variables[f"op {part[0]}"]


def _apart(part: Part, apart: Mapping[str, Floats]) -> Floats:
    return np.asarray(sum((apart[name] for name in part), np.zeros(1)))


# --- the best way for given strategies ----------------------------------------------------------------------------------


def fused_group(where: ShardingContext, group: FusibleKernels, values: Mapping[str, int], apart: float) -> FusedKernels | None:
    """The group as one kernel, if that is possible and takes less than ``apart`` [s] under these values."""
    rows = np.array([[values[_variable(where, part)] for part in group.parts]])
    if not (_strategies(where, group) == rows).all(axis=1).any():
        return None
    time = float(_times(where, group, rows)[0])
    local = {dim: int(counts[0]) for dim, counts in _local(where, group, rows).items()}
    return FusedKernels(group, local, time, apart) if time < apart else None


def fastest_groups(
    where: ShardingContext, groups: Sequence[FusibleKernels], values: Mapping[str, int], times: Mapping[str, float]
) -> list[FusedKernels]:
    """Of groups that overlap, those that are fused under these values for the least time; ``times`` [s]: of each op."""
    able = dict[str, FusedKernels]()
    for group in groups:
        apart = math.fsum(times[name] for name in ops_of(group))
        if (found := fused_group(where, group, values, apart)) is not None:
            able[group.name] = found
    choices = ([able[group.name] for group in some] for some in disjoint([item.group for item in able.values()]))
    return min(choices, key=lambda some: math.fsum(item.time - item.apart for item in some))


def _strategies(where: ShardingContext, group: FusibleKernels) -> NDArray[np.intp]:
    """[many, parts] the strategies of all parts under which the group may be one kernel."""
    made = tuple(tuple(name for op in part for name in where.work.op(op).outputs) for part in group.parts)
    return _fusable(where.space, group.parts, made)


@lru_cache(maxsize=1 << 11)
def _fusable(space: ShardingSpace, parts: tuple[Part, ...], made: tuple[tuple[str, ...], ...]) -> NDArray[np.intp]:
    """Tensors between parts keep their layout, no part has a collective, and all parts split a dim alike; ``made``: tensors of
    each part."""
    found = np.zeros((1, 0), np.intp)
    for number, part in enumerate(parts):
        still = np.ones(len(space.ops[part[0]].strategies), bool)
        for name in part:
            still[list(space.ops[name].moving)] = False
        own = np.flatnonzero(still)
        rows = np.column_stack((np.repeat(found, len(own), axis=0), np.tile(own, len(found))))
        fits = np.ones(len(rows), bool)
        for before in range(number):
            for tensor in (name for name in made[before] if name in space.chains):
                chain = space.chains[tensor]
                for link in chain.links:
                    if link.use.op in part:
                        fits &= chain.made[rows[:, before]] == link.wanted[rows[:, number]]
            fits &= _alike(space, parts[before], part, rows[:, before], rows[:, number])
        found = rows[fits]
    return found


def _alike(space: ShardingSpace, one: Part, other: Part, first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether two parts split the dims that both have alike under these strategies."""
    found = np.ones(len(first), bool)
    for left, right in ((left, right) for left in one for right in other):
        mine, theirs = space.ops[left], space.ops[right]
        for dim in set(mine.dims) & set(theirs.dims):
            splits = (
                mine.splits[mine.dims.index(dim)][mine.share[first]],
                theirs.splits[theirs.dims.index(dim)][theirs.share[second]],
            )
            found &= (splits[0] == splits[1]).all(axis=-1)
    return found


def _times(where: ShardingContext, group: FusibleKernels, rows: NDArray[np.intp]) -> Floats:
    """Times [many] [s] of the fused group under strategies [many, parts]; each distinct set of extents is evaluated once."""
    if not len(rows):
        return np.zeros(0)
    local = _local(where, group, rows)
    distinct, which = np.unique(np.stack(list(local.values()), axis=1), axis=0, return_inverse=True)
    return group.many(dict(zip(local, distinct.T, strict=True)))[which.ravel()]


def _local(where: ShardingContext, group: FusibleKernels, rows: NDArray[np.intp]) -> dict[str, NDArray[np.int64]]:
    """Extents of all dims on a rank [many]."""
    found = dict[str, NDArray[np.int64]]()
    for number, part in enumerate(group.parts):
        for name in part:
            own = where.space.ops[name]
            for place, dim in enumerate(own.dims):
                if dim not in found:
                    found[dim] = local_counts(where.work.dims[dim], own.splits[place][own.share[rows[:, number]]], where.mesh)
    return found
