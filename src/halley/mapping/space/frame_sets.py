"""The frames of a group: an explicit list, and implicit sets of frames that are too many to enumerate.

Stages that hand over through the shared buffer may run on partitions of an axis: with every cut of the stages into runs, and
every partition of the members among the runs. Seven stages on forty members have millions of frames, which differ only in the
numbers of members. An implicit set constructs frames on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from halley.ir.hardware import Memory
from halley.ir.mapping import Compute, Node
from halley.ir.mapping import Sequence as Steps
from halley.mapping.space.compose import AxisPartition, Cut, compositions, cuts
from halley.mapping.space.stages import GroupStage, Skeleton, Slot, Split, Tiles


@dataclass(frozen=True, slots=True)
class Frame:
    """``wrap(tiles, nodes, cut, shares)`` puts one node per stage into the group's tree, with the stages one after the other or,
    by the ``cut``, overlapped; ``shared`` slots concern several stages; ``streamed``: attention with running softmax; ``behind``:
    how many stages follow when all rounds of the others are over; ``kept``: what is held outside a loop that encloses the stages,
    each with the stages that access it, which are in one child; ``partition``: clusters of each child of the cut, if these have
    clusters of their own; ``idles``: the shared slots are the tile sizes of its split, which leave members idle;
    ``known_first``: the first combination of the shared sizes is another frame, and not part of this one; ``split``: around all
    stages, in equal parts, where bounds make use of it; ``held_outside``: tensors held around the children of a cut."""

    name: str
    shared: tuple[Slot, ...]
    stages: tuple[GroupStage, ...]
    wrap: Callable[[Tiles, Sequence[Node], Cut, AxisPartition | None], Node]
    splits_reduction: bool
    streamed: bool = False
    behind: int = 0
    kept: tuple[tuple[str, frozenset[int]], ...] = ()
    cut: Cut = ()
    partition: AxisPartition | None = None
    idles: bool = False
    known_first: bool = False
    split: Split = ()
    held_outside: Callable[[Cut], frozenset[str]] = lambda cut: frozenset()

    def tree(self, tiles: Tiles, nodes: Sequence[Node]) -> Node:
        """The group's tree."""
        return self.wrap(tiles, nodes, self.cut, self.partition)

    def sequential(self, tiles: Tiles, nodes: Sequence[Node]) -> Node:
        """The group's tree with its stages one after the other."""
        return self.wrap(tiles, nodes, (), None)

    def users(self) -> list[Node]:
        """The ops of each stage, as what uses the frame's Holds."""
        return [Steps(tuple(Compute(op) for op in stage.ops)) for stage in self.stages]

    def alone(self, stage: int, node: Node) -> Node:
        """A stage's node on the clusters that it has."""
        if self.partition is None:
            return node
        child = next(at for at, stages in enumerate(self.cut) if stage in stages)
        return self.partition.of(child).place([node])

    @property
    def children(self) -> Cut:
        """Stages by child of what runs inside the frame's loops: all in one, if these follow each other."""
        return self.cut or (tuple(range(len(self.stages))),)

    @property
    def joint(self) -> bool:
        """Whether the costs of the stages do not add up: the stages overlap, or transfers overlap with them."""
        return bool(self.cut or self.kept)

    @property
    def last(self) -> tuple[int, ...]:
        """The stages that follow when all rounds are over."""
        stages = len(self.stages)
        return tuple(range(stages - self.behind, stages)) if self.cut else ()

    def compiled_by(self, skeleton: Skeleton) -> Hashable:
        """What a compiled shape is known by: frames may share a shape and differ in which of its sizes they open."""
        return id(skeleton), *map(id, self.shared)

    def known_by(self, stage: int, skeleton: Skeleton) -> Hashable:
        """The key of a shape's cost and footprint. Both depend on the ``cut`` for stages that follow the rounds; the footprint
        depends on what is held outside the rounds, too."""
        return id(skeleton), self.cut if stage in self.last else (), self.kept

    def overlapped(self, memory: Memory) -> Iterator[Frame]:
        """The same with stages at work on successive rounds, in every way. They hand over through the ``memory``; none if its
        buffers swap in lockstep, as rounds would wait for the barriers inside the stages."""
        if memory.lockstep:
            return
        made: dict[tuple[int, ...], GroupStage] = {}  # cuts share stages, so that these are searched once
        for cut in cuts(len(self.stages) - self.behind):
            if all(any(users <= {*child} for child in cut) for _, users in self.kept):
                stages = tuple(_without_rounds(stage, self.held_outside(cut), made) for stage in self.stages)
                yield replace(self, name=f"{self.name}, stages {_text(cut)} overlapped", stages=stages, cut=cut)


def _without_rounds(stage: GroupStage, held: frozenset[str], made: dict[tuple[int, ...], GroupStage]) -> GroupStage:
    """A stage without the shapes whose parts pass on what is ``held`` around overlapped stages; ``made``: those known."""
    left = tuple(skeleton for skeleton in stage.skeletons if skeleton.passed.isdisjoint(held))
    if len(left) == len(stage.skeletons):
        return stage
    return made.setdefault((id(stage), *map(id, left)), replace(stage, skeletons=left))


def _text(cut: Cut) -> str:
    return "|".join("+".join(map(str, child)) for child in cut)


def _in_the_place(frame: Frame, other: Frame) -> bool:
    """Whether two frames are the same but for shapes of their stages that one of them lacks."""
    return frame.wrap is other.wrap and frame.cut == other.cut and frame.shared == other.shared


@dataclass(frozen=True, slots=True, eq=False)
class ImplicitFrames:
    """An implicit set of frames: stages on partitions of the ``members`` of an axis, one frame for each cut and partition.

    ``sequential``: the frame with sequential stages on all clusters. ``lay_out(stage, members)``: a stage on a number of members
    of the axis, shared by all frames that give it this number."""

    level: str
    axis: str
    members: int
    sequential: Frame
    lay_out: Callable[[int, int], GroupStage]
    _made: dict[tuple[int, int], GroupStage] = field(default_factory=dict)

    def stage(self, index: int, members: int) -> GroupStage:
        """A stage on so many members of the axis, made once."""
        if (index, members) not in self._made:
            self._made[index, members] = self.lay_out(index, members)
        return self._made[index, members]

    def has(self, frame: Frame) -> bool:
        """Whether a frame is one of these: other sets may have the same axis, and another memory or split around the stages."""
        part = frame.partition
        return part is not None and (part.level, part.axis) == (self.level, self.axis) and frame.wrap is self.sequential.wrap

    def frame(self, cut: Cut, counts: tuple[int, ...]) -> Frame:
        """The frame in which each child of a cut has so many members."""
        stages = tuple(self.stage(index, count) for child, count in zip(cut, counts, strict=True) for index in child)
        name = f"{self.sequential.name}, stages {_text(cut)} on {'|'.join(map(str, counts))} of {self.axis}"
        reduces = any(skeleton.splits_reduction for stage in stages for skeleton in stage.skeletons)
        partition = AxisPartition(self.level, self.axis, counts)
        return replace(self.sequential, name=name, stages=stages, splits_reduction=reduces, cut=cut, partition=partition)

    def part(self, run: tuple[int, ...], members: int) -> Frame:
        """What holds for all frames in which a run of stages has so many members: a frame of this run alone. The shapes of the
        stages are those on all clusters."""
        return replace(self.sequential, cut=(run,), partition=AxisPartition(self.level, self.axis, (members,)))

    def coarsest(self) -> Iterator[Frame]:
        """The cuts of the stages into two runs, with shapes of the stages on all clusters."""
        every = range(len(self.sequential.stages))
        for first in every[1:]:
            cut = tuple(every[:first]), tuple(every[first:])
            yield replace(self.sequential, cut=cut, partition=AxisPartition(self.level, self.axis, (1, self.members - 1)))

    def alone(self, index: int, members: int) -> Frame:
        """What is known of all frames in which a stage is alone on so many members, with its own shapes."""
        part, stage = self.part((index,), members), self.stage(index, members)
        return replace(part, stages=(*part.stages[:index], stage, *part.stages[index + 1 :]))

    def restricted(self, to: Callable[[GroupStage], GroupStage]) -> ImplicitFrames:
        """The same with some of the shapes of each stage."""
        return replace(self, lay_out=lambda index, members: to(self.stage(index, members)), _made={})

    def __iter__(self) -> Iterator[Frame]:
        """Every frame whose stages all have a shape. There can be millions."""
        for cut in cuts(len(self.sequential.stages)):
            for counts in compositions(self.members, len(cut)):
                frame = self.frame(cut, counts)
                if all(stage.skeletons for stage in frame.stages):
                    yield frame


@dataclass(frozen=True, slots=True, eq=False)
class GroupSpace:
    """The frames of a group: ``plain`` ones, on all clusters, and ``implicit_sets`` with stages on partitions of an axis."""

    plain: tuple[Frame, ...] = ()
    implicit_sets: tuple[ImplicitFrames, ...] = ()

    def __iter__(self) -> Iterator[Frame]:
        """Every frame, made when its turn comes."""
        yield from self.plain
        for implicit_set in self.implicit_sets:
            yield from implicit_set

    def __bool__(self) -> bool:
        return any(True for _ in self)

    @property
    def ops(self) -> tuple[str, ...]:
        """The ops of the group: every frame has them all."""
        some = (*self.plain, *(implicit_set.sequential for implicit_set in self.implicit_sets))[:1]
        return tuple(op for frame in some for stage in frame.stages for op in stage.ops)

    def counterpart(self, frame: Frame, other: GroupSpace) -> Frame:
        """The frame that stands here where another one, or some of its shapes, stands in a space that is alike."""
        if frame.partition is not None:
            at = next(at for at, its in enumerate(other.implicit_sets) if its.has(frame))
            return self.implicit_sets[at].frame(frame.cut, frame.partition.counts)
        at = next(at for at, its in enumerate(other.plain) if _in_the_place(its, frame))
        return self.plain[at]
