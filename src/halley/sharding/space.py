"""The sharding space of a graph over the axes of a mesh, independent of costs and extents: the strategies of its ops, the
layouts of its tensors, and the variables that range over them.

Graphs that differ only in the extents of their dims (another microbatch, another mesh with as many axes) share one space, which
a search constructs once.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.ir.placement import Partial
from halley.ir.workload import Op, Tensor, Workload
from halley.sharding.layouts import LayoutOptions, options_of
from halley.sharding.strategies import AxisStrategy, axis_strategies, partial_monoid

Strategy: TypeAlias = tuple[AxisStrategy, ...]
"""An `AxisStrategy` per axis of the mesh."""

Groups: TypeAlias = tuple[tuple[str, ...], ...]

NamedStrategies: TypeAlias = Mapping[str, AxisStrategy]
"""Strategies along one axis by name."""


@dataclass(frozen=True, slots=True)
class CompoundKernel:
    """Ops that a kernel may compute together: chips split the given ``dims`` alone, without a collective between the ops.

    So an op that lacks a split dim passes on the partial sums that it reads, and the results of the kernel are reduced. It
    repeats its work, as it would on their sum.
    """

    ops: tuple[str, ...]
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorUse:
    """A use of a tensor: as the input of an op, as an output of the graph (``op`` is ""), or, with ``saved``, its storage
    between the passes."""

    op: str = ""
    place: int = 0
    saved: bool = False


@dataclass(frozen=True, slots=True)
class SpaceKey:
    """What a space depends on. ``cut``: dims of more than one element; ``axes``: names; ``splits``: (op, axis, dim) fixed by
    the user; the rest as in `halley.sharding.solve.ShardingProblem`."""

    workload: Workload = field(compare=False)
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    cut: tuple[str, ...]
    axes: tuple[str, ...]
    splits: tuple[tuple[str, str, str], ...]
    tied: Groups
    same_split: Groups
    same_layout: Groups
    backward: str
    compounds: tuple[CompoundKernel, ...] = ()


def space_key(
    workload: Workload,
    axes: tuple[str, ...],
    splits: Mapping[str, Mapping[str, str]],
    tied: Groups,
    same_split: Groups,
    same_layout: Groups,
    backward: str,
    compounds: tuple[CompoundKernel, ...] = (),
) -> SpaceKey:
    """The key of a problem; of the extents it only contains whether they are 1."""
    given = tuple((op, axis, dim) for op, split in splits.items() for axis, dim in split.items())
    cut = tuple(dim for dim, extent in workload.dims.items() if extent > 1)
    tensors = tuple(workload.tensors.values())
    ties = tied, same_split, same_layout
    return SpaceKey(workload, workload.ops, tensors, workload.outputs, cut, axes, given, *ties, backward, compounds)


@dataclass(frozen=True, slots=True, eq=False)
class OpStrategies:
    """The strategies of an op. ``places`` [strategies, axes]: each strategy as indices into ``axis_strategies``. ``splits``
    [dims, shares, axes]: which axes split each of its ``dims``, for each distinct split; ``share`` [strategies]: the split
    of each strategy. ``moving``: strategies with a collective within the op."""

    strategies: tuple[Strategy, ...]
    axis_strategies: tuple[AxisStrategy, ...]
    places: NDArray[np.intp]
    dims: tuple[str, ...]
    splits: NDArray[np.bool_]
    share: NDArray[np.intp]
    moving: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReaderLink:
    """A use of a tensor. ``variable``: the layout in which the tensor is stored for it; "" for the last use, where one
    redistribution leads from the previous stored layout to the one read. ``wanted``: the layout that it reads, for each
    value of the variable ``reader``."""

    use: TensorUse
    variable: str
    reader: str
    wanted: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A tensor from its producer to its readers in order. ``maker``: the producer's variable; ``made``: the layout produced for
    each of its values."""

    maker: str
    made: NDArray[np.intp]
    links: tuple[ReaderLink, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShardingSpace:
    """``variables``: by name, ``op C`` or ``end X``; a group of tied names has one variable. ``ends``: inputs that are read,
    and outputs. ``order``: the numbers of the ops."""

    ops: Mapping[str, OpStrategies]
    options: Mapping[str, LayoutOptions]
    variables: Mapping[str, str]
    chains: Mapping[str, Chain]
    ends: tuple[str, ...]
    order: Mapping[str, int]


@lru_cache(maxsize=128)
def sharding_space(pattern: SpaceKey) -> ShardingSpace:
    """The space of a graph. Raises BadInput: ties that leave an op without a strategy."""
    work, partials = pattern.workload, dict.fromkeys(pattern.workload.tensors, "")
    free: dict[str, list[NamedStrategies]] = {}
    splits = {name: {"", *kernel.dims} for kernel in pattern.compounds for name in kernel.ops}
    for op in work.ops:
        found = axis_strategies(work, op, partials, op.name in splits)
        if op.name in splits:
            found = tuple(way for way in found if way.split in splits[op.name])
        partials |= dict.fromkeys(op.outputs, partial_monoid(found))
        free[op.name] = _wanted(pattern, op, found)
    options = {name: options_of(tensor, work.dims, partials[name], len(pattern.axes)) for name, tensor in work.tensors.items()}
    variables = _variables(pattern)
    strategies = _tied(pattern, variables, free)
    ops = {op.name: _op_strategies(op, strategies[op.name], len(pattern.axes)) for op in work.ops}
    uses = _uses(pattern)
    chains = {name: _chain(work, name, uses[name], ops, options[name], variables) for name in work.tensors if uses[name]}
    order = {op.name: number for number, op in enumerate(work.ops)}
    return ShardingSpace(ops, options, variables, chains, ends_of(work), order)


def ends_of(work: Workload) -> tuple[str, ...]:
    """Inputs that are read, and outputs."""
    read = {name for op in work.ops for name in op.inputs}
    return tuple(dict.fromkeys((*(name for name in work.inputs if name in read), *work.outputs)))


def _variables(pattern: SpaceKey) -> dict[str, str]:
    """Tied ops, and ends with the same layout, share the variable of the first."""
    named = {name: name for name in (*(f"op {op.name}" for op in pattern.ops), *(f"end {n}" for n in ends_of(pattern.workload)))}
    for kind, groups in (("op", (*pattern.tied, *pattern.same_split)), ("end", pattern.same_layout)):
        for first, *others in groups:
            old = {named[f"{kind} {name}"] for name in others}
            named |= {name: named[f"{kind} {first}"] for name, variable in named.items() if variable in old}
    return named


def _wanted(pattern: SpaceKey, op: Op, found: tuple[AxisStrategy, ...]) -> list[NamedStrategies]:
    """By axis, the strategies of an op with the split that the user fixed, by name."""
    fixed = {axis: dim for name, axis, dim in pattern.splits if name == op.name}
    return [{way.name: way for way in found if way.split == fixed.get(axis, way.split)} for axis in pattern.axes]


def _tied(
    pattern: SpaceKey, variables: Mapping[str, str], free: Mapping[str, list[NamedStrategies]]
) -> dict[str, tuple[Strategy, ...]]:
    """The strategies of each op; tied ops keep those that they have in common, in one order."""
    groups: dict[str, list[Op]] = {}
    for op in pattern.workload.ops:
        groups.setdefault(variables[f"op {op.name}"], []).append(op)
    loose, found = set(itertools.chain(*pattern.same_split)), dict[str, tuple[Strategy, ...]]()
    compound = {name for kernel in pattern.compounds for name in kernel.ops}
    for group in groups.values():
        names = [op.name for op in group]
        called = _by_names(group, [free[name] for name in names], not loose.isdisjoint(names), compound)
        common = _common([free[name] for name in names], called)
        if not common:
            remedy = "split a dim that it has and need not see whole, or untie the ops"
            raise BadInput(Fault(f"sharding of {', '.join(names)}", "a sharding that all of these ops allow", "none", remedy))
        for op_name, each in zip(names, called, strict=True):
            found[op_name] = tuple(tuple(along[name] for along, name in zip(each, strategy, strict=True)) for strategy in common)
    return found


def _common(own: list[list[NamedStrategies]], called: list[list[NamedStrategies]]) -> list[tuple[str, ...]]:
    """The strategies, by the names of their axis strategies, that some op of a group has and that all of them can follow;
    whether an op can is decided axis by axis."""
    everywhere = [set[str].intersection(*(set(each) for each in along)) for along in zip(*called, strict=True)]
    products = (
        itertools.product(
            *(
                [name for name in axis_strategies if name in allowed]
                for axis_strategies, allowed in zip(each, everywhere, strict=True)
            )
        )
        for each in own
    )
    return list(dict.fromkeys(itertools.chain(*products)))


def _by_names(
    ops: list[Op], own: list[list[NamedStrategies]], loose: bool, compound: Collection[str]
) -> list[list[NamedStrategies]]:
    """For each op and axis, its strategies by the names that the ops of the group use; ``loose``: an op that lacks a dim
    repeats its work, or passes on partial sums if it is one of a ``compound`` kernel."""
    if not loose:
        return own
    dims = [{*op.dims, *op.sequence} for op in ops]
    every, found = [dict.fromkeys(itertools.chain(*along)) for along in zip(*own, strict=True)], list[list[NamedStrategies]]()
    for op, known, has in zip(ops, own, dims, strict=True):
        lacks = set[str]().union(*dims) - has
        shorter = [
            {name: (_passing(along) if op.name in compound else "") if name in lacks else name for name in names}
            for along, names in zip(known, every, strict=True)
        ]
        pairs = zip(known, shorter, strict=True)
        found.append([{name: along[short] for name, short in each.items() if short in along} for along, each in pairs])
    return found


def _passing(along: NamedStrategies) -> str:
    """The name of the strategy that passes on partial sums; "" (repeated work) if there is none."""
    return next((name for name, way in along.items() if any(isinstance(item, Partial) for item in way.reads)), "")


def _op_strategies(op: Op, strategies: tuple[Strategy, ...], axes: int) -> OpStrategies:
    found: dict[str, AxisStrategy] = {}
    for strategy in strategies:
        for way in strategy:
            found.setdefault(way.name, way)
    place = {name: number for number, name in enumerate(found)}
    places = np.array([[place[way.name] for way in strategy] for strategy in strategies], np.intp)
    places = places.reshape(len(strategies), axes)
    dims = tuple(dict.fromkeys((*op.dims, *op.sequence)))
    shares: dict[tuple[str, ...], int] = {}
    share = [shares.setdefault(tuple(way.split for way in strategy), len(shares)) for strategy in strategies]
    splits = np.array([[[split == dim for split in each] for each in shares] for dim in dims], bool)
    moving = tuple(n for n, strategy in enumerate(strategies) if any(way.collective is not None for way in strategy))
    splits = splits.reshape(len(dims), len(shares), axes)
    return OpStrategies(strategies, tuple(found.values()), places, dims, splits, np.array(share, np.intp), moving)


def _uses(pattern: SpaceKey) -> dict[str, tuple[TensorUse, ...]]:
    """The uses of every tensor."""
    work = pattern.workload
    forward: dict[str, list[TensorUse]] = {name: [] for name in work.tensors}
    later: dict[str, list[TensorUse]] = {name: [] for name in work.tensors}
    now, home, made = forward, dict.fromkeys(work.tensors, forward), set[str]()
    for op in work.ops:
        now = later if op.name == pattern.backward else now
        for place, name in enumerate(op.inputs):
            now[name].append(TensorUse(op.name, place))
        for name in op.outputs:
            home[name] = now
            made.add(name)
    for name in work.outputs:
        home[name][name].append(TensorUse())
    # inputs that only the backward pass reads are not stored before it
    saved = {n for n in work.tensors if later[n] and home[n] is forward and (n in made or forward[n])}
    return {n: (*forward[n], *([TensorUse(saved=True)] if n in saved else []), *later[n]) for n in work.tensors}


def _chain(
    work: Workload,
    tensor: str,
    uses: tuple[TensorUse, ...],
    ops: Mapping[str, OpStrategies],
    options: LayoutOptions,
    variables: Mapping[str, str],
) -> Chain:
    """A tensor from its producer to its readers."""
    complete, maker = np.array(options.complete), work.producer(tensor)
    if maker is None:
        start = variables[f"end {tensor}"], complete
    else:
        made, place = ops[maker.name], maker.outputs.index(tensor)
        start = variables[f"op {maker.name}"], options.numbers([way.writes[place] for way in made.axis_strategies], made.places)
    links = []
    for number, use in enumerate(uses, 1):
        if use.op:
            read = ops[use.op]
            target = (
                variables[f"op {use.op}"],
                options.numbers([way.reads[use.place] for way in read.axis_strategies], read.places),
            )
        else:  # no op reads the copy that is saved between the passes
            target = ("", complete) if use.saved else (variables[f"end {tensor}"], complete)
        links.append(ReaderLink(use, f"{tensor} {number}" if number < len(uses) else "", *target))
    return Chain(*start, tuple(links))
