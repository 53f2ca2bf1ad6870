"""Composition of the stages of a fused group: sequential, overlapped on successive rounds (docs/model.md, "Rounds"), or
overlapped with separate clusters for each child (a pipeline).

A *cut* lists the stages of each child: with ``((0,), (1, 2))`` stage 0 works on one tile while stages 1 and 2, in sequence, work
on the tile before. Tensors that are handed over between children have one buffer per round in flight. Children run on all
clusters (`Overlap`) or on the parts of an `AxisPartition` (`Parallel`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from halley.ir.mapping import Hold, Node, Overlap, Parallel
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, Workload
from halley.rewrite.rounds import buffers_needed

Cut = tuple[tuple[int, ...], ...]
"""Stages by child; none at all: one after the other."""


def cuts(stages: int) -> Iterator[Cut]:
    """Every way to overlap stages in their order: each of their cuts into at least two runs.

    >>> list(cuts(3))
    [((0, 1), (2,)), ((0,), (1, 2)), ((0,), (1,), (2,))]
    """
    for mask in range(1, 1 << (stages - 1)):
        found: list[tuple[int, ...]] = [(0,)]
        for stage in range(1, stages):
            behind = mask >> (stages - 1 - stage) & 1
            found = [*found, (stage,)] if behind else [*found[:-1], (*found[-1], stage)]
        yield tuple(found)


@dataclass(frozen=True, slots=True)
class AxisPartition:
    """A partition of an axis over the children of a cut: ``counts[i]`` consecutive members for child i."""

    level: str
    axis: str
    counts: tuple[int, ...]

    def place(self, children: Sequence[Node]) -> Node:
        """The children at once, each on its share."""
        return Parallel(self.level, self.axis, self.counts, tuple(children))

    def of(self, child: int) -> AxisPartition:
        """The share of one child alone."""
        return AxisPartition(self.level, self.axis, (self.counts[child],))


def compositions(members: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every partition of all members into so many parts of at least one.

    >>> list(compositions(4, 2)), list(compositions(2, 3))
    ([(1, 3), (2, 2), (3, 1)], [])
    """
    if parts == 1:
        yield (members,)
        return
    for first in range(1, members - parts + 2):
        for rest in compositions(members - first, parts - 1):
            yield (first, *rest)


@dataclass(frozen=True, slots=True)
class Handover:
    """Stages of ops that hand over through groups of tensors in a memory; each group's tensors share one buffer."""

    workload: Workload
    memory: str
    groups: tuple[tuple[str, ...], ...]
    stages: tuple[tuple[Op, ...], ...]

    def body(self, nodes: Sequence[Node], cut: Cut, partition: AxisPartition | None) -> Node:
        """The stages' nodes inside the Holds of what they hand over. ``partition``: of the children of the cut, if these
        have members of their own."""
        if not cut:
            return self._held(self.groups, 1, _series(nodes))
        own: dict[int, list[tuple[str, ...]]] = {}
        passed: dict[int, list[tuple[str, ...]]] = {}
        outside = self.held_outside(cut)
        for group in self.groups:
            users = self._users(group, cut)
            if outside.issuperset(group):  # what leaves does so behind the rounds
                passed.setdefault(buffers_needed(users[0], users[-1], self._leaves(group)), []).append(group)
            else:
                own.setdefault(users[0], []).append(group)
        parts = [
            self._held(tuple(own.get(at, ())), 1, _series([nodes[stage] for stage in child])) for at, child in enumerate(cut)
        ]
        node: Node = partition.place(parts) if partition else Overlap(tuple(parts))
        for buffers, groups in sorted(passed.items()):
            node = self._held(tuple(groups), buffers, node)
        return node

    def held_outside(self, cut: Cut) -> frozenset[str]:
        """The tensors that lie outside the children of a cut: of several children, or needed further out."""
        outer = (group for group in self.groups if len(self._users(group, cut)) > 1 or self._leaves(group))
        return frozenset(name for group in outer for name in group)

    def carried(self, groups: Sequence[tuple[str, ...]], node: Node, cut: Cut) -> Node:
        """A node around the stages and their loops, in Holds of what is carried from round to round. Of what several children
        touch, each finds what its own round left: there are buffers for all that are under way."""
        held: dict[int, list[tuple[str, ...]]] = {}
        for group in groups:
            users = self._users(group, cut)
            held.setdefault(buffers_needed(users[0], users[-1], True) if len(users) > 1 else 1, []).append(group)
        for buffers, own in sorted(held.items(), reverse=True):
            node = self._held(tuple(own), buffers, node)
        return node

    def _held(self, groups: tuple[tuple[str, ...], ...], buffers: int, node: Node) -> Node:
        return Hold(self.memory, groups, node, buffers) if groups else node

    def _users(self, group: tuple[str, ...], cut: Cut) -> list[int]:
        """The children that touch a group."""
        return [at for at, child in enumerate(cut) if any(self._touches(stage, group) for stage in child)]

    def _touches(self, stage: int, group: tuple[str, ...]) -> bool:
        return any(set(group).intersection((*op.inputs, *op.outputs, op.scaled_by)) for op in self.stages[stage])

    def _leaves(self, group: tuple[str, ...]) -> bool:
        """Whether some of it is needed further out, too."""
        here = {op.name for stage in self.stages for op in stage}
        return any(self.workload.leaves(name, here) for name in group)


def _series(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Steps(tuple(nodes))
