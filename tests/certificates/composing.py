"""Every mapping of a group of ops: stages sequential, overlapped or on partitions of clusters, by the rules of docs/model.md.

What single stages look like is taken from the search. How they are put together is not: who is at work beside whom, on which
clusters, and with how many buffers for what passes between them is worked out here, on trees. A stage on some of the clusters is
laid out as on a chip that has no others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from halley.ir.axis_groups import divided
from halley.ir.hardware import Axis, Chip, Topology
from halley.ir.mapping import Collective, CollectiveKind, Compute, Hold, Node, Overlap, Parallel, Spatial, Temporal, walk
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.stages import BUFFERS, GroupStage, Slot

Runs = tuple[tuple[int, ...], ...]
"""Numbers of the stages that follow each other, by child."""

Together = Callable[[tuple[Node, ...]], Node]


def mappings(workload: Workload, chip: Chip, ops: Sequence[Op]) -> Iterator[tuple[Node, int]]:
    """Every mapping of a group that is fused, without the outermost Hold; those that differ in one buffer or two of their Holds
    together, with their number: their numbers of buffers are arrays. Holds with none are not in the tree."""
    known: dict[tuple[str, str, int], Sequence[GroupStage]] = {}
    for frame in in_turn(workload, served(chip), ops):
        yield from loaded_for_others(workload, chip, ops, frame, buffered(frame, frame.stages))
        if len(frame.stages) == 1:
            continue
        for runs in every_run(3 if frame.streamed else len(frame.stages)):  # the closing stage follows when all keys are done
            if not _overlaps(workload, frame, runs):
                continue
            found = _without_barriers(chip, buffered(frame, frame.stages, _Composer(workload, frame.stages, runs, Overlap)))
            found = ((tree, several) for tree, several in found if not _rounds_in_rounds(workload, tree))
            yield from loaded_for_others(workload, chip, ops, frame, found)
            if frame.name.startswith("through ") and "walked" not in frame.name:  # what passes between clusters of their own
                for together, stages in _on_shares(workload, chip, ops, runs, known, frame.name):
                    yield from _without_barriers(chip, buffered(frame, stages, _Composer(workload, stages, runs, together)))


def in_groups(chip: Chip) -> list[Chip]:
    """The chip, and the same with its axes in groups of each size: axes whose network copies, in equal groups."""
    found = [chip]
    for group in (2, 4, 8, 16):
        sizes = range(2 * group, 65, group)
        able = {(level, axis.name): group for level, axis in chip.axes if axis.multicast and axis.size in sizes}
        found += [divided(chip, able)] if able else []
    return found


def served(chip: Chip) -> Chip:
    """The chip on which one read serves all members, so that none loads for others."""
    levels = (replace(level, network=replace(level.network, multicast=True)) if level.network else level for level in chip.levels)
    return replace(chip, levels=tuple(levels))


def loaded_for_others(
    workload: Workload, chip: Chip, ops: Sequence[Op], frame: Frame, found: Iterator[tuple[Node, int]]
) -> Iterator[tuple[Node, int]]:
    """Mappings, and the same in which one member of an axis loads an operand of a contraction and broadcasts it."""
    for tree, several in found:
        skips = any(isinstance(node, Temporal) and node.visible for _, node in walk(tree))
        if skips or frame.idles or frame.name.startswith("through "):
            ways: list[Node] = [tree]
        else:
            ways = _broadcasting(workload, chip, {name for op in ops for name in op.outputs}, tree, ())
        for way in ways:
            yield way, several


def _broadcasting(workload: Workload, chip: Chip, made: set[str], node: Node, splits: tuple[Spatial, ...]) -> list[Node]:
    """A node in every way to broadcast what is loaded in it, inside some splits."""
    if isinstance(node, Steps | Overlap | Parallel):
        parts = [_broadcasting(workload, chip, made, child, splits) for child in node.children]
        return [replace(node, children=children) for children in itertools.product(*parts)]
    if isinstance(node, Compute | Collective):
        return [node]
    around = (*splits, node) if isinstance(node, Spatial) else splits
    bodies = _broadcasting(workload, chip, made, node.body, around)
    ways: list[Node] = [replace(node, body=body) for body in bodies]
    if isinstance(node, Hold) and len(node.names) == 1 and _loads(workload, node, made):
        (name,) = node.names
        level = next(each for each in chip.levels if any(memory.name == node.memory for memory in each.memories))
        lacking = [split for split in splits if split.dim not in workload.selectors(name)]
        members = {dim: math.prod(chip.axis(s.level, s.axis).size for s in lacking if s.dim == dim) for dim in workload.dims}
        if any(workload.dims[dim] % number for dim, number in members.items()):
            return ways  # some members have less to do than others
        for split in lacking:
            axis = chip.axis(split.level, split.axis)
            network = level.network
            alone = network is not None and network.port is not None and not network.multicast
            if split.level == level.name and axis.multicast and axis.topology is Topology.LINE and alone:
                sent = Collective(CollectiveKind.BROADCAST, (name,), split.level, split.axis, "multicast")
                ways += [replace(node, body=Steps((sent, body))) for body in bodies]
    return ways


def _loads(workload: Workload, hold: Hold, made: set[str]) -> bool:
    """Whether a Hold, the last on the way, brings an operand of a contraction from outside."""
    (name,), inside = hold.names, [node for _, node in walk(hold.body)]
    ops = [workload.op(node.op) for node in inside if isinstance(node, Compute)]
    readers = [op for op in ops if name in op.inputs]
    again = any(isinstance(node, Hold) and name in node.names for node in inside)
    return name not in made and not again and bool(readers) and all(op.kind is OpKind.CONTRACT for op in readers)


def _without_barriers(chip: Chip, found: Iterator[tuple[Node, int]]) -> Iterator[tuple[Node, int]]:
    """The mappings in which what is at work at once does not hand over through a lockstep memory."""
    for tree, several in found:
        around = [node for _, node in walk(tree) if isinstance(node, Hold) and chip.memory(node.memory).lockstep]
        if not any(_counts(node) > 1 and _works_together(node) for node in around):
            yield tree, several


def _rounds_in_rounds(workload: Workload, tree: Node) -> bool:
    """Whether children of an overlap pass on a tensor that is held around an overlap further out, whose rounds have its
    buffers."""
    for _, outer in walk(tree):
        for child in outer.children if isinstance(outer, Overlap) else ():
            for path, inner in walk(child):
                if isinstance(inner, Overlap):
                    held = {
                        name
                        for at, node in walk(child)
                        if isinstance(node, Hold) and at == path[: len(at)]
                        for name in node.names
                    }
                    users = [_touched(workload, part) for part in inner.children]
                    if any(sum(name in own for own in users) > 1 for name in set().union(*users) - held):
                        return True
    return False


def _touched(workload: Workload, tree: Node) -> set[str]:
    found: set[str] = set()
    for _, node in walk(tree):
        if isinstance(node, Compute):
            op = workload.op(node.op)
            found.update(op.inputs, op.outputs)
        elif isinstance(node, Collective):
            found.update(node.tensors)
    return found


def _counts(node: Hold) -> int:
    """The number of buffers of a Hold, the most of several mappings."""
    return int(np.max(node.buffers))


def _works_together(node: Hold) -> bool:
    return any(isinstance(inner, Overlap | Parallel) for _, inner in walk(node.body))


def _overlaps(workload: Workload, frame: Frame, runs: Runs) -> bool:
    """Whether the space has these runs of a frame at work at once. Where a further dim is walked, all that lacks it is held
    around its tiles then, each part of it for one run: several would need more than two buffers."""
    further = {slot.dim for slot in frame.shared if slot.name.startswith("tile of")}
    users: dict[str, set[int]] = {}
    for place, run in enumerate(runs):
        for name in (name for stage in run for op in frame.stages[stage].ops for name in _of(workload, op)):
            if not further <= {*workload.tensors[name].dims}:
                users.setdefault(name, set()).add(place)
    return {*users} <= {name for name, _ in frame.kept} and all(len(places) == 1 for places in users.values())


def _of(workload: Workload, op: str) -> tuple[str, ...]:
    return (*workload.op(op).inputs, *workload.op(op).outputs)


def in_turn(workload: Workload, chip: Chip, ops: Sequence[Op]) -> list[Frame]:
    """The frames of the search in which the stages follow each other."""
    return [frame for frame in frames(workload, hierarchy(chip), ops) if not frame.cut]


def every_run(stages: int) -> list[Runs]:
    """Every way to cut stages into runs, two at least."""
    found = []
    for lengths in shared_out(stages):
        ends = list(itertools.accumulate(lengths))
        found.append(tuple(tuple(range(end - length, end)) for end, length in zip(ends, lengths, strict=True)))
    return [runs for runs in found if len(runs) > 1]


def shared_out(total: int) -> list[tuple[int, ...]]:
    """Every row of positive numbers with this sum: there is a border after each one, or not."""
    found = []
    for borders in itertools.product((False, True), repeat=total - 1):
        at = [0, *(place + 1 for place, border in enumerate(borders) if border), total]
        found.append(tuple(end - start for start, end in itertools.pairwise(at)))
    return found


def _on_shares(
    workload: Workload,
    chip: Chip,
    ops: Sequence[Op],
    runs: Runs,
    known: dict[tuple[str, str, int], Sequence[GroupStage]],
    name: str,
) -> Iterator[tuple[Together, list[GroupStage]]]:
    """For each way to distribute the members of an axis to the runs: how to put them side by side, and what each stage can be
    there (``known`` by frame, axis and members). The axes are those inside the memory that the frame is named by; of axes of a
    level that differ in their name alone, the first."""
    outside = chip.depth(name.split()[1].rstrip(","))
    inside = [(level, axis) for level in chip.levels[outside + 1 :] if level.network for axis in level.network.axes]
    seen: list[tuple[str, Axis]] = []
    for level, axis in inside:
        if (level.name, replace(axis, name="")) in seen:
            continue
        seen.append((level.name, replace(axis, name="")))
        for counts in shared_out(axis.size):
            if len(counts) != len(runs):
                continue
            stages: dict[int, GroupStage] = {}
            for count, run in zip(counts, runs, strict=True):
                if (name, axis.name, count) not in known:
                    smaller = in_turn(workload, narrower(chip, axis.name, count), ops)
                    (frame,) = (frame for frame in smaller if frame.name == name)
                    known[name, axis.name, count] = frame.stages
                stages |= {stage: known[name, axis.name, count][stage] for stage in run}
            yield _beside(level.name, axis.name, counts), [stages[stage] for stage in sorted(stages)]


def _beside(level: str, axis: str, counts: tuple[int, ...]) -> Together:
    return lambda children: Parallel(level, axis, counts, children)


def narrower(chip: Chip, name: str, members: int) -> Chip:
    """The chip with only some members along an axis, whose name no other one has; some members of a ring stand in a line."""

    def part(axis: Axis) -> Axis:
        if axis.name != name:
            return axis
        opened = axis.topology is Topology.RING and members < axis.size
        return replace(axis, size=members, topology=Topology.LINE if opened else axis.topology)

    networks = [level.network and replace(level.network, axes=tuple(map(part, level.network.axes))) for level in chip.levels]
    levels = (replace(level, network=network) for level, network in zip(chip.levels, networks, strict=True))
    return replace(chip, levels=tuple(levels))


class _Composer:
    """Puts stages that follow each other in a tree at work together, in runs."""

    def __init__(self, workload: Workload, stages: Sequence[GroupStage], runs: Runs, together: Together) -> None:
        self.workload, self.stages, self.runs, self.together = workload, stages, runs, together

    def __call__(self, tree: Node, nodes: Sequence[Node]) -> Node:
        match tree:
            case Hold(memory, groups, Steps((loop, last))) if last is nodes[-1] and loop is not nodes[0]:
                return self.carried(memory, groups, Steps((self(loop, nodes[:-1]), last)))
            case Hold(memory, groups, Steps(children)) if all(a is b for a, b in zip(children, nodes, strict=False)):
                return self.composed(memory, groups, nodes)
            case Temporal() | Spatial() | Hold():
                return replace(tree, body=self(tree.body, nodes))
            case _:
                raise AssertionError("stages that follow each other in a Hold")

    def carried(self, memory: str, groups: tuple[tuple[str, ...], ...], tree: Node) -> Node:
        """What each round goes on with: where a run further on reads it, too, it finds that of its own round, and made what it
        has by that of the round before."""
        for group in groups:
            users = [place for place, run in enumerate(self.runs) if self.uses(run, group)]
            tree = Hold(memory, (group,), tree, users[-1] - users[0] + 2 if len(users) > 1 else 1)
        return tree

    def composed(self, memory: str, groups: tuple[tuple[str, ...], ...], nodes: Sequence[Node]) -> Node:
        """Rounds of the runs in Holds of several buffers; what one run alone touches lies inside it, unless it has to leave."""
        around: list[tuple[tuple[str, ...], int]] = []
        inside: list[list[tuple[str, ...]]] = [[] for _ in self.runs]
        for group in groups:
            users = [place for place, run in enumerate(self.runs) if self.uses(run, group)]
            leaves = any(self.leaves(name) for name in group)
            if len(users) == 1 and not leaves:
                inside[users[0]].append(group)
            else:
                around.append((group, users[-1] - users[0] + 1 + leaves))
        children = []
        for run, own in zip(self.runs, inside, strict=True):
            child = nodes[run[0]] if len(run) == 1 else Steps(tuple(nodes[stage] for stage in run))
            children.append(Hold(memory, tuple(own), child, 1) if own else child)
        tree = self.together(tuple(children))
        for group, count in around:
            tree = Hold(memory, (group,), tree, count)
        return tree

    def uses(self, run: Sequence[int], group: Sequence[str]) -> bool:
        ops = [self.workload.op(name) for stage in run for name in self.stages[stage].ops]
        return any(name in (*op.inputs, *op.outputs, op.scaled_by) for op in ops for name in group)

    def leaves(self, name: str) -> bool:
        here = {op for stage in self.stages for op in stage.ops}
        return name in self.workload.outputs or any(op.name not in here for op in self.workload.consumers(name))


def buffered(
    frame: Frame, stages: Sequence[GroupStage], composed: Callable[[Node, Sequence[Node]], Node] = lambda tree, nodes: tree
) -> Iterator[tuple[Node, int]]:
    """Every mapping of a frame with these stages."""
    for skeletons in itertools.product(*(stage.skeletons for stage in stages)):
        slots = [*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots)]
        for tiles, several in _sizes(slots):
            if frame.known_first and all(tiles[slot.name] == min(slot.sizes(int(slot.limit(tiles)))) for slot in frame.shared):
                continue
            nodes = [skeleton.build(tiles) for skeleton in skeletons]
            yield composed(frame.sequential(tiles, nodes), nodes), several


def _sizes(slots: Sequence[Slot]) -> Iterator[tuple[Mapping[str, int], int]]:
    """Every choice of tile sizes, those that differ in numbers of buffers together."""
    holds = [slot for slot in slots if slot.dim == BUFFERS]
    for tiles in assignments([slot for slot in slots if slot.dim != BUFFERS], {}):
        for there in itertools.product(*((0, 1) if 0 in slot.sizes(2) else (1,) for slot in holds)):
            open_ = [slot.name for slot, present in zip(holds, there, strict=True) if present]
            most = (int(slot.limit({})) for slot, present in zip(holds, there, strict=True) if present)
            counts = np.array(list(itertools.product(*(np.arange(1.0, up_to + 1) for up_to in most)))).T
            none = {slot.name: 0 for slot, present in zip(holds, there, strict=True) if not present}
            yield {**tiles, **none, **dict(zip(open_, counts, strict=True))}, counts.shape[-1] if open_ else 1


def assignments(slots: Sequence[Slot], tiles: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Every choice of tile sizes."""
    if not slots:
        yield tiles
        return
    for size in slots[0].sizes(int(slots[0].limit(tiles))):
        yield from assignments(slots[1:], {**tiles, slots[0].name: size})
