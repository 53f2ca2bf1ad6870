"""What a sharding decides, without what follows from it: enough to cost it again from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.placement import Partial, Placement, Replicate, Shard
from halley.optim.constrained import ConstrainedMinimum
from halley.optim.elimination import cost
from halley.sharding.joint import ops_of
from halley.sharding.layouts import Layout
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import ShardingGraph

PARTIAL = "partial "
"""Before the monoid of a placement that is a partial sum."""


@dataclass(frozen=True, slots=True)
class ShardingDecisions:
    """``ops``: by op, the name of its way along each axis, which is the dim that the axis splits. ``ends``: by input and output,
    its layout. ``copies``: by variable of `halley.sharding.solve.ShardingGraph`, the layout in which a tensor is kept for a
    reader. Layouts have a placement per axis: the dim that is split, "" for a copy on every rank, ``partial sum`` and the like.
    ``in_flight``: microbatches whose tensors are kept at once; copies of weights are kept once for all of them. ``fused``: the
    names of the groups of kernels that run as one.
    """

    ops: Mapping[str, tuple[str, ...]]
    ends: Mapping[str, tuple[str, ...]]
    copies: Mapping[str, tuple[str, ...]]
    in_flight: float = 1.0
    fused: tuple[str, ...] = ()


def decisions_of(sharding: Sharding) -> ShardingDecisions:
    """The decisions of a sharding."""
    return ShardingDecisions(
        {item.op: tuple(way.name for way in item.strategy) for item in sharding.ops},
        {name: _words(layout) for name, layout in sharding.ends.items()},
        {name: _words(layout) for name, layout in sharding.copies.items()},
        sharding.problem.in_flight,
        tuple(each.group.name for each in sharding.fused_groups),
    )


def decided(graph: ShardingGraph, decisions: ShardingDecisions) -> Sharding:
    """The sharding of the decisions, with times, memory and collectives computed anew; its certificate claims nothing.

    Raises BadInput with every fault: ops, ends or copies that the graph lacks or that are not decided, ways and layouts that
    they cannot have, ops that are to be split alike and are not, decisions that the problem forbids together, groups that cannot
    be one kernel or that share an op.
    """
    left: dict[str, set[int]] = {}
    faults: list[Fault] = []
    where = f"sharding of {graph.problem.workload.name}"

    def decide(what: str, variable: str, numbers: set[int], expected: str, got: object) -> None:
        if not numbers:
            faults.append(Fault(f"{where}, {what}", expected, repr(got)))
        elif not (now := left.get(variable, numbers) & numbers):
            faults.append(Fault(f"{where}, {what}", "the same as what is decided together with it", repr(got)))
        else:
            left[variable] = now

    space, axes = graph.space, len(graph.problem.mesh)
    faults += _names(where, "ops", decisions.ops, space.ops)
    faults += _names(where, "inputs and outputs", decisions.ends, space.ends)
    copies = {link.variable: name for name, chain in space.chains.items() for link in chain.links if link.variable}
    faults += _names(where, "copies that are kept for a reader", decisions.copies, copies)
    groups = {group.name: group for group in graph.problem.groups}
    faults += (
        Fault(where, "names of groups that may be one kernel", repr(name), did_you_mean(name, groups))
        for name in decisions.fused
        if name not in groups
    )
    taken = Counter(op for name in decisions.fused if name in groups for op in ops_of(groups[name]))
    faults += (Fault(where, f"{op} in one kernel", f"in {count}") for op, count in taken.items() if count > 1)
    if faults:
        raise BadInput(faults)
    for op, found in space.ops.items():
        wanted = decisions.ops[op]
        # an op that lacks a dim which others of its kernel split has several strategies of equal names
        alike = {n for n, strategy in enumerate(found.strategies) if tuple(way.name for way in strategy) == wanted}
        strategies = ", ".join(way.name or "not split" for way in found.axis_strategies)
        decide(f"op {op}", graph.variables[f"op {op}"], alike, f"{axes} of its ways: {strategies}", wanted)
    for tensor in space.ends:
        layouts, layout = graph.layouts[tensor], _layout(decisions.ends[tensor])
        numbers = {place for place, number in enumerate(layouts.complete) if layouts.options[number] == layout}
        decide(f"end {tensor}", graph.variables[f"end {tensor}"], numbers, f"a layout over {axes} axes", decisions.ends[tensor])
    for variable, tensor in copies.items():
        layout = _layout(decisions.copies[variable])
        numbers = {number for number, option in enumerate(graph.layouts[tensor].options) if option == layout}
        decide(f"copy {variable}", variable, numbers, f"a layout of {tensor} over {axes} axes", decisions.copies[variable])
    if faults:
        raise BadInput(faults)
    values = {variable: min(numbers) for variable, numbers in left.items()}
    for name in (name for table in graph.time for name in table.variables):
        values.setdefault(name, 0)  # how the kernels of groups run: apart, which is possible under any sharding
    time, memory = cost(graph.time, values), cost(graph.memory, values)
    if not np.isfinite(time):
        raise BadInput(Fault(where, "changes of layout that collectives can make", "one that none makes"))
    return decoded(graph, ConstrainedMinimum(values, time, memory, 0.0, 0, 0), decisions.fused)


def _names(where: str, what: str, given: Mapping[str, object], known: Mapping[str, object] | tuple[str, ...]) -> list[Fault]:
    """A decision about each, and about nothing else."""
    faults = [Fault(where, f"known {what}", repr(name), did_you_mean(name, known)) for name in given if name not in known]
    return faults + [Fault(where, f"a decision about {name}", "none") for name in known if name not in given]


def _words(layout: Layout) -> tuple[str, ...]:
    return tuple(_word(placement) for placement in layout)


def _word(placement: Placement) -> str:
    match placement:
        case Shard(dim):
            return dim
        case Partial(monoid):
            return f"{PARTIAL}{monoid}"
        case _:
            return ""


def _layout(words: tuple[str, ...]) -> Layout | None:
    """None where the words are no layout."""
    try:
        return tuple(_placement(word) for word in words)
    except BadInput:
        return None


def _placement(word: str) -> Placement:
    if word.startswith(PARTIAL):
        return Partial(word.removeprefix(PARTIAL))
    return Shard(word) if word else Replicate()
