"""Partitions of a workload's kernels (single ops, if they are divisible) into fused groups that can run in sequence.

A group is a convex set of kernels: no path of the graph leaves it and enters it again. A partition is a set of such groups
without cyclic dependencies. `Partitions` represents all of them as the paths of a small graph, so that one dynamic program counts
them, bounds them and finds the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple, TypeVar

from halley.ir.workload import Op, Workload
from halley.mapping.space.fused_group import walked

Kernels = int
"""A set of kernels: bit i stands for kernel i."""

GROUP_LIMIT = 2_000
"""Largest number of groups of kernels in a search; with more, only a subset is tried (`Breadth`)."""

STEP_LIMIT = 100_000
"""Largest number of steps of the graph of partitions; likewise."""

Value = TypeVar("Value")


class TooMany(Exception):
    """More groups or partitions than the limits of a search."""


def kernels(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """Op names by kernel; each op alone where the workload names none, or where a search may cut them."""
    return workload.kernels if workload.kernels and not workload.divisible else _single(workload)


def _single(workload: Workload) -> tuple[tuple[str, ...], ...]:
    return tuple((op.name,) for op in workload.ops)


def divided(workload: Workload) -> Workload:
    """The workload whose kernels may be cut; the same one if they may, or if there is nothing to cut."""
    cut = all(len(part) == 1 for part in kernels(workload))
    return workload if cut else replace(workload, divisible=True)


def spans(workload: Workload, group: Kernels) -> bool:
    """Whether a group has ops of several of the workload's own kernels, cut or not."""
    inside = {op.name for op in group_ops(workload, group)}
    return not any(inside <= set(kernel) for kernel in workload.kernels or _single(workload))


def members(group: Kernels) -> tuple[int, ...]:
    """The kernels of a set, ascending.

    >>> members(0b1101)
    (0, 2, 3)
    """
    return tuple(place for place in range(group.bit_length()) if group >> place & 1)


def group_ops(workload: Workload, group: Kernels) -> tuple[Op, ...]:
    """The ops of a group, in the order of the workload."""
    parts = kernels(workload)
    inside = {name for place in members(group) for name in parts[place]}
    return tuple(op for op in workload.ops if op.name in inside)


def before(workload: Workload) -> tuple[Kernels, ...]:
    """For each kernel, all those that it needs, directly or through others."""
    parts = kernels(workload)
    owner = {name: place for place, part in enumerate(parts) for name in part}
    maker = {tensor: owner[op.name] for op in workload.ops for tensor in op.outputs}
    found: list[Kernels] = []
    for place, part in enumerate(parts):
        needed = 0
        for source in {maker[name] for op in part for name in workload.op(op).inputs if name in maker} - {place}:
            needed |= found[source] | 1 << source
        found.append(needed)
    return tuple(found)


def convex_groups(workload: Workload, joined: bool = False) -> list[Kernels]:
    """Every convex set of kernels whose ops have a dim that all can walk together, and each kernel alone; smaller sets first.
    Other sets have no frame (`halley.mapping.space.frames.group`). ``joined``: of these sets, those whose kernels are
    connected by tensors. Raises TooMany."""
    needs = before(workload)
    everything = range(len(needs))
    walks = [frozenset.intersection(*(walked(workload, workload.op(name)) for name in part)) for part in kernels(workload)]
    follow = [sum(1 << other for other in everything if needs[other] >> place & 1) for place in everything]
    beside = _neighbours(workload) if joined else [(1 << len(needs)) - 1] * len(needs)
    found = {1 << place: walks[place] for place in everything}
    left = [(group, needs[place], follow[place]) for place, group in enumerate(found)]
    while left:  # a kernel more at a time, with what lies between it and the group: a joined set stays joined
        group, earlier, later = left.pop()
        for place in members(_union(beside, group) & ~group):
            sources, readers = earlier | needs[place], later | follow[place]
            grown = group | 1 << place | (sources & readers)
            dims = found[group].intersection(*(walks[each] for each in members(grown & ~group)))
            if dims and grown not in found:
                found[grown] = dims
                left.append((grown, sources, readers))
                if len(found) > GROUP_LIMIT:
                    raise TooMany
    return sorted(found, key=lambda group: (group.bit_count(), members(group)))


def _neighbours(workload: Workload) -> list[Kernels]:
    """For each kernel, those that touch a tensor that it touches."""
    touched = [
        {name for op in part for name in (*workload.op(op).inputs, *workload.op(op).outputs)} for part in kernels(workload)
    ]
    return [sum(1 << place for place, other in enumerate(touched) if mine & other) for mine in touched]


def consecutive_groups(count: int) -> list[Kernels]:
    """Every run of consecutive kernels, shorter ones first."""
    return [(1 << length) - 1 << start for length in range(1, count + 1) for start in range(count - length + 1)]


class PartitionState(NamedTuple):
    """A state of the walk over the kernels: those that have run, and the stack of groups that were chosen but wait for others to
    run first; the last one chosen runs first."""

    done: Kernels = 0
    pending: tuple[Kernels, ...] = ()

    @property
    def chosen(self) -> Kernels:
        return self.done + sum(self.pending)


class PartitionStep(NamedTuple):
    """The choice of a group, from a state to a state."""

    source: int
    group: Kernels
    target: int


@dataclass(frozen=True)
class Partitions:
    """Partitions as paths from state 0 to the last one: each path is one partition, each partition one path. ``steps`` lead from
    lower to higher states, in the order of these. No partition: no steps, and no states."""

    states: int
    steps: tuple[PartitionStep, ...]

    @cached_property
    def groups(self) -> tuple[Kernels, ...]:
        """The groups that are in some partition, smaller ones first."""
        return tuple(sorted({step.group for step in self.steps}, key=lambda group: (group.bit_count(), members(group))))

    @cached_property
    def arriving(self) -> list[list[tuple[int, Kernels]]]:
        """For each state, the states that come before it and the groups that are chosen on the way."""
        return self._ends((step.target, step.source, step.group) for step in self.steps)

    @cached_property
    def leaving(self) -> list[list[tuple[int, Kernels]]]:
        """For each state, the states that follow it and the groups that are chosen on the way."""
        return self._ends((step.source, step.target, step.group) for step in self.steps)

    def _ends(self, steps: Iterable[tuple[int, int, Kernels]]) -> list[list[tuple[int, Kernels]]]:
        ends: list[list[tuple[int, Kernels]]] = [[] for _ in range(self.states)]
        for here, there, group in steps:
            ends[here].append((there, group))
        return ends

    def fold(
        self, one: Value, times: Callable[[Value, Kernels], Value], plus: Callable[[Sequence[Value]], Value], back: bool = False
    ) -> list[Value]:
        """For each state, ``plus`` over all paths that lead to it (``back``: from it to the end) of ``times`` along the path."""
        ends = self.leaving if back else self.arriving
        values = [one] * self.states
        for place in range(self.states - 2, -1, -1) if back else range(1, self.states):
            values[place] = plus([times(values[other], group) for other, group in ends[place]])
        return values

    def total(self, times: Callable[[int, Kernels], int]) -> int:
        """Sum over all partitions of the products along them; with 1 for each group, their number."""
        return self.fold(1, times, sum)[-1] if self.steps else 0

    @property
    def count(self) -> int:
        return self.total(lambda value, group: value)

    def restricted(self, admits: Callable[[Kernels], bool], fused: Callable[[Kernels], bool] | None = None) -> Partitions:
        """Those whose groups are all admitted; of these, those with a group that is ``fused``, if that is asked for."""
        admitted = {group for group in self.groups if admits(group)}
        steps = [step for step in self.steps if step.group in admitted]
        if fused is None:
            return _pruned(steps, self.states)
        marked = {group for group in admitted if fused(group)}
        doubled = [  # a second copy of the states for after the first such group
            (2 * step.source + seen, step.group, 2 * step.target + (1 if step.group in marked else seen))
            for step in steps
            for seen in (0, 1)
        ]
        return _pruned([PartitionStep(*step) for step in sorted(doubled)], 2 * self.states)


class Breadth(Enum):
    """Which sets of kernels are tried as fused groups: as many as a search can look at."""

    CONVEX = auto()
    JOINED = auto()
    CONSECUTIVE = auto()


def every_partition(workload: Workload) -> tuple[Partitions, Breadth]:
    """All partitions into convex groups; where these are too many, into those whose kernels have tensors in common; where these
    are too many as well, into runs of consecutive kernels."""
    needs = before(workload)
    for breadth in (Breadth.CONVEX, Breadth.JOINED):
        try:
            groups = convex_groups(workload, joined=breadth is Breadth.JOINED)
            return partitions(needs, groups, most=STEP_LIMIT), breadth
        except TooMany:
            continue
    return partitions(needs, consecutive_groups(len(needs))), Breadth.CONSECUTIVE


def op_by_op(workload: Workload) -> Partitions:
    """The one partition of a divided workload into single ops."""
    needs = before(workload)
    return partitions(needs, [1 << place for place in range(len(needs))])


def partitions(
    needs: Sequence[Kernels], groups: Sequence[Kernels], inside: Kernels | None = None, most: int | None = None
) -> Partitions:
    """Every partition of the kernels (or of those ``inside``) into some of the groups; ``needs``: see `before`.

    The kernel to place next is the first that has no group yet, or, where the group chosen last waits for others, the first that
    it waits for: so a partition is met in one order only.

    >>> diamond = (0b0, 0b1, 0b1, 0b111)
    >>> partitions(diamond, [0b1, 0b10, 0b100, 0b1000, 0b110, 0b1010]).count
    3

    Raises TooMany: more steps than ``most``.
    """
    everything = (1 << len(needs)) - 1
    start = PartitionState(0 if inside is None else everything & ~inside)
    having = [[group for group in groups if group >> place & 1 and not group & start.done] for place in range(len(needs))]
    sources = {group: _union(needs, group) & ~group for group in groups}
    places = {start: 0}
    left, steps = [start], []
    while left:
        state = left.pop()
        target = sources[state.pending[-1]] & ~state.done if state.pending else everything & ~state.done
        waiting = sum(state.pending)
        for group in having[(target & -target).bit_length() - 1] if target else ():
            if group & state.chosen or sources[group] & waiting:
                continue  # taken already, or each would wait for the other
            following = _with_ready_groups(PartitionState(state.done, (*state.pending, group)), sources)
            if following not in places:
                places[following] = len(places)
                left.append(following)
            steps.append((state, group, following))
            if most is not None and len(steps) > most:
                raise TooMany
    ordered = sorted(places, key=lambda state: (state.chosen.bit_count(), places[state]))
    order = {state: place for place, state in enumerate(ordered)}
    if PartitionState(everything) not in order:
        return Partitions(0, ())
    return _pruned(sorted(PartitionStep(order[source], group, order[target]) for source, group, target in steps), len(order))


def in_order(needs: Sequence[Kernels], groups: Sequence[Kernels]) -> tuple[Kernels, ...]:
    """Groups of a partition in an order in which they can run: of those that can, the one with the first kernel.

    >>> in_order((0b0, 0b1, 0b0, 0b101), (0b1001, 0b10, 0b100))
    (4, 9, 2)
    """
    left, done, order = list(groups), 0, []
    while left:
        ready = (group for group in left if not _union(needs, group) & ~group & ~done)
        chosen = min(ready, key=lambda group: group & -group)
        left.remove(chosen)
        done |= chosen
        order.append(chosen)
    return tuple(order)


def _union(needs: Sequence[Kernels], group: Kernels) -> Kernels:
    found = 0
    for place in members(group):
        found |= needs[place]
    return found


def _with_ready_groups(state: PartitionState, sources: dict[Kernels, Kernels]) -> PartitionState:
    """With the groups run that wait for nothing any more."""
    done, pending = state
    while pending and not sources[pending[-1]] & ~done:
        done, pending = done | pending[-1], pending[:-1]
    return PartitionState(done, pending)


def _pruned(steps: Sequence[PartitionStep], states: int) -> Partitions:
    """Only the states and steps that lie on a path from the first state to the last."""
    reached, useful = {0}, {states - 1}
    for step in steps:
        if step.source in reached:
            reached.add(step.target)
    for step in reversed(steps):
        if step.target in useful:
            useful.add(step.source)
    kept = sorted(reached & useful)
    if len(kept) < 2 or kept[0] != 0:
        return Partitions(0, ())
    place = {state: number for number, state in enumerate(kept)}
    return Partitions(
        len(kept), tuple(PartitionStep(place[a], group, place[b]) for a, group, b in steps if a in place and b in place)
    )
