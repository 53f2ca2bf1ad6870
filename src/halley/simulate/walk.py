"""Traversal of a mapping tree, iteration by iteration, that generates dependent tasks (docs/simulation.md).

A *block* is a node that the enclosing phase runs as a unit, after the block before it: a `Compute`, a `Collective`, a `Hold` with
one buffer, a `Sequence`, `Overlap`, `Parallel` or `Pipeline`. A *phase* is a sequence of blocks; the fills of its `Hold`s with
several buffers run ahead of the blocks, their drains after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import assert_never

import numpy as np

from halley.ir.axis_groups import with_axis_groups
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.ir.workload import Op, Workload
from halley.simulate.collective import CollectiveRequests
from halley.simulate.compute import ComputeRequests
from halley.simulate.holds import Holds, Visit
from halley.simulate.masking import busiest_first, visible_tiles
from halley.simulate.members import SimulationScope
from halley.simulate.tasks import Path, Requests, Tasks


@dataclass(slots=True)
class PhaseState:
    """State of a phase; values are task numbers. ``start``: after which the phase may begin; ``base``: the same for rounds.
    ``last``: its last block. ``pending``: by tensor, further dependencies of the next block. ``releases``: by Hold and group,
    the tasks that free the buffers of its visits. ``filled``: by Hold, the last fill of its last visit. ``ends``: drains after
    the blocks. ``rounds``: for children that hand over, the end of each child in each round; ``done``: by tensor, the end of the
    children that access it in the last round. ``made``: in a sequence with prefetch, by tensor, the task after which the results
    of an earlier child are available. ``gate``: after which a child of such a sequence may fill; ``gates``: the same for its
    next run, by path. ``begun``: the start of the child's first block, None before it."""

    start: int
    last: int
    pending: dict[str, int] = field(default_factory=dict)
    releases: dict[tuple[Path, tuple[str, ...]], list[int]] = field(default_factory=dict)
    filled: dict[Path, int] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    rounds: list[list[int]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    base: int = -1
    gate: int = -1
    gates: dict[Path, int] = field(default_factory=dict)
    begun: int | None = -1


class Walk:
    """Generates the tasks of one tree."""

    def __init__(self, workload: Workload, chip: Chip, tree: Node, limit: int) -> None:
        chip = with_axis_groups(chip, (node for _, node in walk(tree)))
        self.workload, self.chip = workload, chip
        self.tasks = Tasks(f"simulation of {workload.name} on {chip.name}", limit)
        scope = SimulationScope.of_root(workload, chip)
        self.holds = Holds(workload, chip, scope.team.axes)
        self.computing = ComputeRequests(workload, chip)
        self.exchanging = CollectiveRequests(self.computing)
        self.phase(tree, scope, self.tasks.add("", (), ()))

    def phase(self, node: Node, scope: SimulationScope, start: int) -> int:
        """Add a node as a phase of its own; the task that ends it."""
        phase = PhaseState(start, start, base=start, gate=start)
        self.node(node, scope, phase)
        return self.tasks.join((phase.last, *phase.pending.values(), *phase.ends), scope.path)

    def begin(self, phase: PhaseState, scope: SimulationScope) -> int:
        """The task after which the next block may begin."""
        start = self.tasks.join((phase.last, *phase.pending.values()), scope.path)
        phase.pending.clear()
        if phase.begun is None:
            phase.begun = start
        return start

    def node(self, node: Node, scope: SimulationScope, phase: PhaseState) -> None:
        match node:
            case Temporal() if node.visible:
                for index, ranges in visible_tiles(node, scope, self.workload):
                    self.node(node.body, scope.at(0, ranges, loops=(*scope.loops, (node.dim, index))), phase)
            case Temporal():
                for index in range(scope.steps(node.dim, node.tile)):
                    ranges, loops = scope.narrowed(node.dim, node.tile, index), (*scope.loops, (node.dim, index))
                    self.node(node.body, scope.at(0, ranges, loops=loops), phase)
            case Spatial():
                position = scope.team.axes.position(node.level, node.axis)
                places = busiest_first(node, scope, self.workload, scope.team.indices[:, position] - scope.team.span(position)[0])
                ranges, splits = scope.narrowed(node.dim, node.tile, places), {**scope.splits, position: node.dim}
                self.node(node.body, scope.at(0, ranges, splits=splits), phase)
            case Hold():
                visit = self.holds.open(node, scope)
                inside = scope.at(0, holds={**scope.holds, **dict.fromkeys(node.names, visit)})
                run = self.prefetched if node.buffers > 1 else self.serial
                run(node, visit, scope, inside, phase)
            case Compute():
                self.compute(node, scope, phase)
            case Collective():
                self.collective(node, scope, phase)
            case Sequence() if node.prefetch:
                self.prefetching_sequence(node, scope, phase)
            case Sequence():
                last = self.begin(phase, scope)
                for index, child in enumerate(node.children):
                    last = self.phase(child, scope.at(index), last)
                phase.last = last
            case Overlap():
                self.together(node, [scope.at(index) for index in range(len(node.children))], scope, phase)
            case Parallel():
                self.together(node, self.shares(node, scope), scope, phase)
            case Pipeline():
                self.pipeline(node, scope, phase)
            case _:
                assert_never(node)

    def prefetching_sequence(self, node: Sequence, scope: SimulationScope, phase: PhaseState) -> None:
        """Sequential children in the enclosing phase: the fills of a child may start when the child before it has started, and
        its drains overlap the next child. Tensors that an earlier child changes are available after its drains."""
        makers, touched = zip(*map(self.touches, node.children), strict=True)
        before = phase.start
        for index, child in enumerate(node.children):
            for name in phase.made.keys() & touched[index]:
                waits = (phase.made[name], phase.pending.get(name, phase.made[name]))
                phase.pending[name] = self.tasks.join(waits, scope.path)
            behind, phase.rounds, phase.base, phase.begun = len(phase.ends), [], phase.last, None
            inside = scope.at(index)
            phase.gate = phase.gates.get(inside.path, before)
            self.node(child, inside, phase)
            before = phase.gates[inside.path] = phase.last if phase.begun is None else phase.begun
            phase.gate = phase.start
            done = self.tasks.join((phase.last, *phase.ends[behind:]), scope.path)
            others = set().union(*(names for i, names in enumerate(touched) if i != index))
            phase.made.update(dict.fromkeys(makers[index] & others, done))

    def shares(self, node: Parallel | Pipeline, scope: SimulationScope) -> list[SimulationScope]:
        """The scope of each child: the members of its share."""
        position = scope.team.axes.position(node.level, node.axis)
        found = []
        for index, count in enumerate(node.shares):
            team, rows = scope.team.share(position, sum(node.shares[:index]), count)
            found.append(scope.at(index, np.ascontiguousarray(scope.ranges[:, :, rows]), team=team))
        return found

    def together(
        self, node: Overlap | Parallel, scopes: list[SimulationScope], scope: SimulationScope, phase: PhaseState
    ) -> None:
        """Concurrent children; if they hand over, they work on successive rounds."""
        makers = [{name for op in self.ops(child) for name in op.outputs} for child in node.children]
        touched = [{name for op in self.ops(child) for name in (*op.inputs, op.scaled_by)} for child in node.children]
        if any(makers[i] & touched[j] for j in range(len(touched)) for i in range(j)):
            self.round(node.children, scopes, scope, phase, makers, touched)
            return
        start = self.begin(phase, scope)
        ends, spans = [], [len(self.tasks.names)]
        for index, child in enumerate(node.children):
            ends.append(self.phase(child, scopes[index], start))
            spans.append(len(self.tasks.names))
        for first, last in pairwise(spans):
            self.tasks.interleave(range(first, last), range(spans[0], spans[-1]))
        phase.last = self.tasks.join(ends, scope.path)

    def round(
        self, children: tuple[Node, ...], scopes: list[SimulationScope], scope: SimulationScope, phase: PhaseState,
        makers: list[set[str]], touched: list[set[str]],
    ) -> None:  # fmt: skip
        """Add one round of children that hand over. A child starts after its own previous round, after the children that it reads
        from in this round, after its fills, and so that no more rounds are in flight than there are children. The next round may
        start meanwhile, as this node is the phase's only block."""
        ends: list[int] = []
        spans = [len(self.tasks.names)]
        for index, child in enumerate(children):
            own = makers[index] | touched[index]
            waits = [phase.base, *(task for name, task in phase.pending.items() if name in own)]
            waits += [ends[i] for i in range(index) if makers[i] & touched[index]]
            waits += [done[index] for done in phase.rounds[-1:]]
            back = len(children) - index
            if back <= len(phase.rounds):
                waits.append(phase.rounds[-back][-1])
            waits += self.copies(scope, phase, makers[index], touched[index + 1 :])
            ends.append(self.phase(child, scopes[index], self.tasks.join(waits, scope.path)))
            spans.append(len(self.tasks.names))
        if phase.begun is None:
            phase.begun = phase.base
        for name in set().union(*makers, *touched):
            users = [end for end, made, used in zip(ends, makers, touched, strict=True) if name in made | used]
            phase.done[name] = self.tasks.join(users, scope.path)
        phase.pending.clear()
        phase.rounds.append(ends)
        for index, (first, last) in enumerate(pairwise(spans)):  # concurrent with the first child ``index`` rounds later
            self.tasks.interleave(range(first, last), range(spans[0], spans[-1]), index)
        phase.last = self.tasks.join(ends, scope.path)

    def copies(self, scope: SimulationScope, phase: PhaseState, makes: set[str], behind: list[set[str]]) -> Iterator[int]:
        """Tasks after which a copy of a carried tensor is free: the last child that reads it has finished the round of the oldest
        copy, and the next round, in which its results are still relative to that copy."""
        for name in makes & set().union(*behind):
            last = max(at for at, used in enumerate(behind) if name in used) - len(behind)
            walked = {dim for dim, _ in scope.loops[scope.holds[name].loops :]}
            back = scope.holds[name].node.buffers - 1
            if walked - set(self.workload.tensors[name].dims) and 0 < back <= len(phase.rounds):
                yield phase.rounds[-back][last]

    def touches(self, tree: Node) -> tuple[set[str], set[str]]:
        """Tensors that ops and collectives in a tree change, and those that they access."""
        moved = {name for _, node in walk(tree) if isinstance(node, Collective) for name in node.tensors}
        ops = self.ops(tree)
        made = moved.union(*(op.outputs for op in ops))
        return made, made.union(*((*op.inputs, op.scaled_by) for op in ops))

    def ops(self, tree: Node) -> list[Op]:
        """The ops that are computed in a tree."""
        return [self.workload.op(node.op) for _, node in walk(tree) if isinstance(node, Compute)]

    def pipeline(self, node: Pipeline, scope: SimulationScope, phase: PhaseState) -> None:
        """Tile i enters a stage when the stage has finished tile i - 1, and the stage before has finished tile i."""
        last = [self.begin(phase, scope)] * len(node.children)
        stages = self.shares(node, scope)
        for index in range(scope.steps(node.dim, node.tile)):
            handed: int | None = None
            for stage, inside in enumerate(stages):
                ranges, loops = inside.narrowed(node.dim, node.tile, index), (*inside.loops, (node.dim, index))
                tile = replace(inside, ranges=ranges, loops=loops, _form=b"")
                start = self.tasks.join((last[stage], *((handed,) if handed is not None else ())), inside.path)
                last[stage] = handed = self.phase(node.children[stage], tile, start)
        phase.last = self.tasks.join(last, scope.path)

    # ---- Holds

    def serial(self, node: Hold, visit: Visit, scope: SimulationScope, inside: SimulationScope, phase: PhaseState) -> None:
        """One buffer: fills, then the body, then drains."""
        start = self.begin(phase, scope)
        start = self.fills(node, visit, scope, start)
        end = self.phase(node.body, inside, start)
        phase.last = self.drains(node, visit, scope, end)

    def prefetched(
        self, node: Hold, visit: Visit, scope: SimulationScope, phase_scope: SimulationScope, phase: PhaseState
    ) -> None:
        """Several buffers: fills of a visit wait for a free buffer, its drains run after the body. In lockstep the buffers swap
        at a barrier: fills also wait for those of the visit before."""
        barrier = phase.gate
        if self.chip.memory(node.memory).lockstep and scope.path in phase.filled:
            barrier = phase.filled[scope.path]
            if phase.gate != phase.start:
                barrier = self.tasks.join((barrier, phase.gate), scope.path)
        free: dict[str, int] = {}
        for group in node.tensors:
            releases = phase.releases.setdefault((scope.path, group), [])
            free |= dict.fromkeys(group, releases[-node.buffers] if len(releases) >= node.buffers else phase.start)
        for name in phase.made.keys() & free.keys():
            free[name] = self.tasks.join((free[name], phase.made[name]), scope.path)
        phase.filled[scope.path] = self.fills(node, visit, scope, barrier, free)
        for name in node.names:
            ready = visit.filled.get(name, free[name])
            phase.pending[name] = self.tasks.join((ready, phase.pending.get(name, ready)), scope.path)
        phase.done.clear()
        self.node(node.body, phase_scope, phase)
        end = self.drains(node, visit, scope, phase.last)
        for group in node.tensors:
            leaves = any(self.holds.writer(node, name) for name in group)
            done = [end if leaves else phase.done.get(name, phase.last) for name in group]
            phase.releases[scope.path, group].append(self.tasks.join(done, scope.path))
        phase.ends.append(end)

    def fills(
        self, node: Hold, visit: Visit, scope: SimulationScope, after: int, free: Mapping[str, int] = MappingProxyType({})
    ) -> int:
        """Add the fills of a visit, each after a ``free`` buffer is available; a task that ends them. Fills into several buffers
        are concurrent; into one buffer, and in lockstep, sequential."""
        in_series = self.in_series(node)
        begin, filled = after, [after]
        for name in node.names:
            requests = self.holds.fill(visit, name, scope)
            parent = visit.parents[name]
            if requests is None or parent is None:
                continue
            waits = [after if in_series else begin, *(where[name] for where in (parent.filled, free) if name in where)]
            if name in visit.refilled and name in parent.returned:
                box = scope.box(self.workload.tensors[name])
                exact = parent.returned[name].get(box)
                waits += [exact] if exact is not None else list(parent.returned[name].values())
            requests, latency = self.transfer(parent.node.memory, node.memory, requests, scope)
            after = visit.filled[name] = self.tasks.add(f"fill {name}", scope.path, waits, requests, latency)
            filled.append(after)
        return after if in_series else self.tasks.join(filled, scope.path)

    def drains(self, node: Hold, visit: Visit, scope: SimulationScope, after: int) -> int:
        """Add the drains of a visit, each after the drains of inner Holds; a task that ends them. They are concurrent or
        sequential like the fills."""
        in_series = self.in_series(node)
        begin, drained = after, [after]
        for name in node.names:
            requests = self.holds.drain(visit, name, scope)
            parent = visit.parents[name]
            if requests is None or parent is None:
                continue
            requests, latency = self.transfer(parent.node.memory, node.memory, requests, scope)
            waits = (after if in_series else begin, *visit.drains.get(name, ()))
            after = self.tasks.add(f"drain {name}", scope.path, waits, requests, latency)
            drained.append(after)
            parent.drains.setdefault(name, []).append(after)
            parent.returned.setdefault(name, {})[scope.box(self.workload.tensors[name])] = after
        return after if in_series else self.tasks.join(drained, scope.path)

    def transfer(self, outer: str, inner: str, requests: Requests, scope: SimulationScope) -> tuple[Requests, float]:
        """The requests of a transfer and its latency. A DMA engine is occupied from the start of the latency to the end."""
        latency = self.chip.transfer_latency(outer, inner)
        if not self.chip.memory(inner).dma:
            return requests, latency
        depth = self.chip.depth(inner)
        axes = scope.team.axes
        server = axes.server(scope.team.critical[: axes.width(depth)], depth, "dma", inner)
        return (*requests, (server, latency + max((seconds for _, seconds in requests), default=0.0))), 0.0

    def in_series(self, node: Hold) -> bool:
        """Whether the transfers of a visit are sequential: with one buffer, and in lockstep."""
        return node.buffers == 1 or self.chip.memory(node.memory).lockstep

    # ---- leaves

    def compute(self, node: Compute, scope: SimulationScope, phase: PhaseState) -> None:
        op = self.workload.op(node.op)
        after = [self.begin(phase, scope)] if phase.begun is None else [phase.last, *phase.pending.values()]
        phase.pending.clear()
        if scaling := self.computing.rescale(op, scope):
            after = [self.tasks.add(f"rescale {op.outputs[0]}", scope.path, after, scaling)]
        phase.last = self.tasks.add(f"compute {op.name}", scope.path, after, self.computing.requests(node, scope))

    def collective(self, node: Collective, scope: SimulationScope, phase: PhaseState) -> None:
        last = self.begin(phase, scope)
        for requests in self.exchanging.rescale(node, scope):
            last = self.tasks.add(f"rescale {' '.join(node.tensors)}", scope.path, (last,), requests)
        for number, requests in enumerate(self.exchanging.requests(node, scope), 1):
            last = self.tasks.add(f"{node.kind} {' '.join(node.tensors)}, step {number}", scope.path, (last,), requests)
        phase.last = last
