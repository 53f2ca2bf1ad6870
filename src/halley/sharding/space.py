"""In which ways a graph can be shared out over the axes of a mesh, whatever that costs and however large its dims are: the
strategies of its ops, the layouts of its tensors, and which variables they are the values of.

Graphs that differ in the extents of their dims alone (another microbatch, another mesh of as many axes) share one space, so that
a search over them makes it once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.ir.workload import Op, Tensor, Workload
from halley.sharding.layouts import Options, options_of
from halley.sharding.strategies import Way, partial_monoid, ways

Strategy: TypeAlias = tuple[Way, ...]
"""A way per axis of the mesh."""

Groups: TypeAlias = tuple[tuple[str, ...], ...]

Named: TypeAlias = Mapping[str, Way]
"""Ways along one axis by name."""


@dataclass(frozen=True, slots=True)
class Use:
    """A reader of a tensor: the input of an op, the end of the graph (``op`` is ""), or, with ``kept``, what lies still between
    the passes."""

    op: str = ""
    place: int = 0
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a space depends on. ``cut``: dims of more than one element; ``axes``: names; ``splits``: (op, axis, dim) that the user
    says; the rest as in `halley.sharding.solve.ShardingProblem`."""

    workload: Workload = field(compare=False)
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    cut: tuple[str, ...]
    axes: tuple[str, ...]
    splits: tuple[tuple[str, str, str], ...]
    tied: Groups
    alike: Groups
    together: Groups
    backward: str


def pattern_of(
    workload: Workload,
    axes: tuple[str, ...],
    splits: Mapping[str, Mapping[str, str]],
    tied: Groups,
    alike: Groups,
    together: Groups,
    backward: str,
) -> Pattern:
    """The pattern of a problem; extents are left out but for whether they are 1."""
    given = tuple((op, axis, dim) for op, split in splits.items() for axis, dim in split.items())
    cut = tuple(dim for dim, extent in workload.dims.items() if extent > 1)
    tensors = tuple(workload.tensors.values())
    return Pattern(workload, workload.ops, tensors, workload.outputs, cut, axes, given, tied, alike, together, backward)


@dataclass(frozen=True, slots=True, eq=False)
class OpWays:
    """The strategies of an op, as numbers too: ``places`` [strategies, axes] among its ``ways``. ``splits`` [dims, shares, axes]:
    which axes split each of its ``dims``, for each way to share out its points, of which each strategy has one (``share``
    [strategies]). ``moving``: strategies with a collective of the op itself."""

    strategies: tuple[Strategy, ...]
    ways: tuple[Way, ...]
    places: NDArray[np.intp]
    dims: tuple[str, ...]
    splits: NDArray[np.bool_]
    share: NDArray[np.intp]
    moving: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A reader of a tensor with the ``variable`` of the layout in which it is kept for it: "" for the last, which needs none, as
    what is kept before it and what it reads are joined by one change. ``wanted``: the layout that it reads for each value of the
    variable ``reader``."""

    use: Use
    variable: str
    reader: str
    wanted: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A tensor from its maker (a variable, and the layout that is ``made`` for each of its values) to its readers, in order."""

    maker: str
    made: NDArray[np.intp]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShardingSpace:
    """``variables``: by what they stand for, ``op C`` or ``end X``; one of a group stands for all. ``ends``: inputs that are
    read, and outputs. ``order``: the numbers of the ops."""

    ops: Mapping[str, OpWays]
    options: Mapping[str, Options]
    variables: Mapping[str, str]
    chains: Mapping[str, Chain]
    ends: tuple[str, ...]
    order: Mapping[str, int]


@lru_cache(maxsize=128)
def sharding_space(pattern: Pattern) -> ShardingSpace:
    """The space of a graph over so many axes. Raises BadInput: ties that leave an op no way."""
    work, partials = pattern.workload, dict.fromkeys(pattern.workload.tensors, "")
    free: dict[str, list[Named]] = {}
    for op in work.ops:
        found = ways(work, op, partials)
        partials |= dict.fromkeys(op.outputs, partial_monoid(found))
        free[op.name] = _wanted(pattern, op, found)
    options = {name: options_of(tensor, work.dims, partials[name], len(pattern.axes)) for name, tensor in work.tensors.items()}
    variables = _variables(pattern)
    strategies = _tied(pattern, variables, free)
    ops = {op.name: _op_ways(op, strategies[op.name], len(pattern.axes)) for op in work.ops}
    uses = _uses(pattern)
    chains = {name: _chain(work, name, uses[name], ops, options[name], variables) for name in work.tensors if uses[name]}
    order = {op.name: number for number, op in enumerate(work.ops)}
    return ShardingSpace(ops, options, variables, chains, ends_of(work), order)


def ends_of(work: Workload) -> tuple[str, ...]:
    """Inputs that are read, and outputs."""
    read = {name for op in work.ops for name in op.inputs}
    return tuple(dict.fromkeys((*(name for name in work.inputs if name in read), *work.outputs)))


def _variables(pattern: Pattern) -> dict[str, str]:
    """Tied ops, and ends that lie together, share the variable of the first."""
    named = {name: name for name in (*(f"op {op.name}" for op in pattern.ops), *(f"end {n}" for n in ends_of(pattern.workload)))}
    for kind, groups in (("op", (*pattern.tied, *pattern.alike)), ("end", pattern.together)):
        for first, *others in groups:
            old = {named[f"{kind} {name}"] for name in others}
            named |= {name: named[f"{kind} {first}"] for name, variable in named.items() if variable in old}
    return named


def _wanted(pattern: Pattern, op: Op, found: tuple[Way, ...]) -> list[Named]:
    """By axis, the ways of an op that split what the user said, by name."""
    fixed = {axis: dim for name, axis, dim in pattern.splits if name == op.name}
    return [{way.name: way for way in found if way.split == fixed.get(axis, way.split)} for axis in pattern.axes]


def _tied(
    pattern: Pattern, variables: Mapping[str, str], free: Mapping[str, list[Named]]
) -> dict[str, tuple[Strategy, ...]]:
    """The strategies of each op; tied ops keep those that they have in common, in one order."""
    groups: dict[str, list[Op]] = {}
    for op in pattern.workload.ops:
        groups.setdefault(variables[f"op {op.name}"], []).append(op)
    loose, found = set(itertools.chain(*pattern.alike)), dict[str, tuple[Strategy, ...]]()
    for group in groups.values():
        names = [op.name for op in group]
        called = _by_names(group, [free[name] for name in names], not loose.isdisjoint(names))
        common = _common([free[name] for name in names], called)
        if not common:
            remedy = "split a dim that it has and need not see whole, or untie the ops"
            raise BadInput(Fault(f"sharding of {', '.join(names)}", "a sharding that all of these ops allow", "none", remedy))
        for op_name, each in zip(names, called, strict=True):
            found[op_name] = tuple(tuple(along[name] for along, name in zip(each, strategy, strict=True)) for strategy in common)
    return found


def _common(own: list[list[Named]], called: list[list[Named]]) -> list[tuple[str, ...]]:
    """The strategies, by the names of their ways, that some op of a group has, and all of them can follow: what an op can do is
    decided axis by axis."""
    everywhere = [set[str].intersection(*(set(each) for each in along)) for along in zip(*called, strict=True)]
    products = (
        itertools.product(*([name for name in ways if name in allowed] for ways, allowed in zip(each, everywhere, strict=True)))
        for each in own
    )
    return list(dict.fromkeys(itertools.chain(*products)))


def _by_names(ops: list[Op], own: list[list[Named]], loose: bool) -> list[list[Named]]:
    """For each op and axis its ways by the names that the ops of the group have for them; ``loose``: an op that lacks a dim
    repeats its work."""
    if not loose:
        return own
    dims = [{*op.dims, *op.sequence} for op in ops]
    every, found = [dict.fromkeys(itertools.chain(*along)) for along in zip(*own, strict=True)], list[list[Named]]()
    for known, has in zip(own, dims, strict=True):
        lacks = set[str]().union(*dims) - has
        shorter = [{name: "" if name in lacks else name for name in names} for names in every]
        pairs = zip(known, shorter, strict=True)
        found.append([{name: along[short] for name, short in each.items() if short in along} for along, each in pairs])
    return found


def _op_ways(op: Op, strategies: tuple[Strategy, ...], axes: int) -> OpWays:
    found: dict[str, Way] = {}
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
    return OpWays(strategies, tuple(found.values()), places, dims, splits, np.array(share, np.intp), moving)


def _uses(pattern: Pattern) -> dict[str, tuple[Use, ...]]:
    """The readers of every tensor."""
    work = pattern.workload
    forward: dict[str, list[Use]] = {name: [] for name in work.tensors}
    later: dict[str, list[Use]] = {name: [] for name in work.tensors}
    now, home, made = forward, dict.fromkeys(work.tensors, forward), set[str]()
    for op in work.ops:
        now = later if op.name == pattern.backward else now
        for place, name in enumerate(op.inputs):
            now[name].append(Use(op.name, place))
        for name in op.outputs:
            home[name] = now
            made.add(name)
    for name in work.outputs:
        home[name][name].append(Use())
    # what comes in for the backward pass alone does not lie there before
    kept = {n for n in work.tensors if later[n] and home[n] is forward and (n in made or forward[n])}
    return {n: (*forward[n], *([Use(kept=True)] if n in kept else []), *later[n]) for n in work.tensors}


def _chain(
    work: Workload,
    tensor: str,
    uses: tuple[Use, ...],
    ops: Mapping[str, OpWays],
    options: Options,
    variables: Mapping[str, str],
) -> Chain:
    """A tensor's way from its maker to its readers."""
    complete, maker = np.array(options.complete), work.producer(tensor)
    if maker is None:
        start = variables[f"end {tensor}"], complete
    else:
        made, place = ops[maker.name], maker.outputs.index(tensor)
        start = variables[f"op {maker.name}"], options.numbers([way.writes[place] for way in made.ways], made.places)
    links = []
    for number, use in enumerate(uses, 1):
        if use.op:
            read = ops[use.op]
            target = variables[f"op {use.op}"], options.numbers([way.reads[use.place] for way in read.ways], read.places)
        else:  # what is kept between the passes is read by nobody
            target = ("", complete) if use.kept else (variables[f"end {tensor}"], complete)
        links.append(Link(use, f"{tensor} {number}" if number < len(uses) else "", *target))
    return Chain(*start, tuple(links))
