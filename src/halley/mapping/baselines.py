"""Baselines: restricted map spaces that represent common mapping styles, each searched to its own optimum.

| baseline | kernels | shapes of a group |
|---|---|---|
| unfused | each alone, undivided, or divided if it is divisible | all |
| unfused, no split reductions | the same | those that split no reduction over clusters |
| op by op | divided: each op alone | all |
| op by op, no split reductions | the same | those that split no reduction over clusters |
| partially fused | at least two together, not all together | all |
| FlashAttention-2 style | those of attention together, others alone | running softmax; clusters split heads and query rows |
| FlashDecoding style | the same | running softmax; clusters split the keys, collectives combine their states |
| fused, no split reductions | all together | those that split no reduction over clusters |

Op by op is a part of the space of the best mapping if the workload lets its kernels be divided. Otherwise a problem that asks for
it adds it to that space, so that no baseline beats the best. Unfused and op by op, with and without split reductions,
are the four that COMET's speed-ups could be over (Negi et al., arXiv 2509.00599).

Sources of the two attention kernels: Dao, arXiv 2307.08691; Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context
inference", 2023. Taken from them are the dims that are split over the clusters, the collectives, and sequential stages; loop
order and tile sizes are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Op, Workload
from halley.mapping.problem import Problem
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.partitions import Kernels, group_ops, kernels, spans
from halley.mapping.space.stages import GroupStage, Skeleton


class AdmittedShapes(Enum):
    """The shapes of a group that a baseline admits."""

    EVERY = auto()
    LOCAL = auto()
    STREAMED_WHOLE = auto()
    STREAMED_SPLIT = auto()

    def of(self, space: GroupSpace) -> GroupSpace:
        """The admitted frames, with the admitted shapes of their stages."""
        match self:
            case AdmittedShapes.EVERY:
                return space
            case AdmittedShapes.LOCAL:
                return _local(space)
            case AdmittedShapes.STREAMED_WHOLE | AdmittedShapes.STREAMED_SPLIT:  # none streams on shares
                streams = GroupSpace(tuple(frame for frame in space.plain if self._streams(frame)))
                return _restricted(streams, lambda skeleton: not skeleton.broadcasts)

    def admits(self, choice: GroupMapping) -> bool:
        """Whether a mapping is in the space that `of` returns."""
        match self:
            case AdmittedShapes.EVERY:
                return True
            case AdmittedShapes.LOCAL:
                return all(map(_is_local, choice.skeletons))
            case AdmittedShapes.STREAMED_WHOLE | AdmittedShapes.STREAMED_SPLIT:
                return self._streams(choice.frame) and not any(skeleton.broadcasts for skeleton in choice.skeletons)

    def _streams(self, frame: Frame) -> bool:
        return frame.streamed and not frame.cut and frame.splits_reduction is (self is AdmittedShapes.STREAMED_SPLIT)


def _is_local(skeleton: Skeleton) -> bool:
    """Whether a shape needs no collective."""
    return not skeleton.splits_reduction and not skeleton.broadcasts


def _local(space: GroupSpace) -> GroupSpace:
    """The frames that have any, with only those shapes that need no collective."""
    left = _restricted(space, _is_local)
    return replace(left, plain=tuple(replace(frame, splits_reduction=False) for frame in left.plain))


def _restricted(space: GroupSpace, admits: Callable[[Skeleton], bool]) -> GroupSpace:
    """The frames that have any, with only the shapes that are admitted. Stages that frames have in common stay so: what is found
    of one serves all."""
    known: dict[int, tuple[GroupStage, GroupStage]] = {}  # the first is kept: a freed one's id could be given to another

    def left(stage: GroupStage) -> GroupStage:
        if id(stage) not in known:
            known[id(stage)] = stage, replace(stage, skeletons=tuple(filter(admits, stage.skeletons)))
        return known[id(stage)][1]

    made = (replace(frame, stages=tuple(map(left, frame.stages))) for frame in space.plain)
    plain = tuple(frame for frame in made if all(stage.skeletons for stage in frame.stages))
    return GroupSpace(plain, tuple(implicit_set.restricted(left) for implicit_set in space.implicit_sets))


@dataclass(frozen=True, slots=True)
class Restriction:
    """A restriction of the declared space: partitions of the kernels into admitted groups, if ``fused`` with at least one group
    of several kernels; and the admitted shapes of a group. ``divides``: also with axes in groups. ``by_op``: of the single ops
    in the place of the kernels. ``usual``: searched unless a problem says otherwise. ``about`` completes "of these mappings,
    those with ..."."""

    name: str
    about: str
    admits: Callable[[Workload, Kernels], bool]
    shapes: Callable[[Sequence[Op]], AdmittedShapes]
    fused: bool = False
    divides: bool = True
    by_op: bool = False
    usual: bool = True


def _any_group(workload: Workload, group: Kernels) -> bool:
    return True


def _alone(workload: Workload, group: Kernels) -> bool:
    return len(workload.kernels or workload.ops) > 1 and not spans(workload, group)


def _single_op(workload: Workload, group: Kernels) -> bool:
    return len(workload.ops) > 1 and len(group_ops(workload, group)) == 1


def _not_all(workload: Workload, group: Kernels) -> bool:
    return group.bit_count() < len(kernels(workload))


def _together(workload: Workload, group: Kernels) -> bool:
    return group.bit_count() == len(kernels(workload))


def _alone_or_attention(workload: Workload, group: Kernels) -> bool:
    return not spans(workload, group) or _rescales(group_ops(workload, group))


def _rescales(ops: Sequence[Op]) -> bool:
    """Whether the ops have an accumulator that follows a running maximum."""
    return any(op.scaled_by for op in ops)


def _every(ops: Sequence[Op]) -> AdmittedShapes:
    return AdmittedShapes.EVERY


def _local_only(ops: Sequence[Op]) -> AdmittedShapes:
    return AdmittedShapes.LOCAL


def _streamed_whole(ops: Sequence[Op]) -> AdmittedShapes:
    return AdmittedShapes.STREAMED_WHOLE if _rescales(ops) else AdmittedShapes.EVERY


def _streamed_split(ops: Sequence[Op]) -> AdmittedShapes:
    return AdmittedShapes.STREAMED_SPLIT if _rescales(ops) else AdmittedShapes.EVERY


BEST = Restriction("best", "nothing left out", _any_group, _every)

BASELINES: dict[str, Restriction] = {
    "unfused": Restriction("unfused", "each kernel on its own", _alone, _every),
    "unfused-local": Restriction(
        "unfused, no split reductions",
        "each kernel on its own; no reduced dim is split over members, so that no collective is needed",
        _alone,
        _local_only,
        usual=False,
    ),
    "op-by-op": Restriction(
        "op by op", "each op on its own, its result in the outermost memory", _single_op, _every, by_op=True, usual=False
    ),
    "op-by-op-local": Restriction(
        "op by op, no split reductions",
        "each op on its own, its result in the outermost memory; no reduced dim is split over members, so that no collective is "
        "needed",
        _single_op,
        _local_only,
        by_op=True,
        usual=False,
    ),
    "partially-fused": Restriction(
        "partially fused", "some kernels fused, but not all of them together", _not_all, _every, fused=True
    ),
    "flash-attention-2": Restriction(
        "FlashAttention-2 style",
        "attention fused with running softmax, its stages sequential; members split heads and rows of queries only",
        _alone_or_attention,
        _streamed_whole,
        fused=True,
        divides=False,
    ),
    "flash-decoding": Restriction(
        "FlashDecoding style",
        "attention fused with running softmax, stages sequential; members split the keys, collectives combine their states",
        _alone_or_attention,
        _streamed_split,
        fused=True,
        divides=False,
    ),
    "fused-local": Restriction(
        "fused, no split reductions",
        "all kernels fused; no reduced dim is split over members, so that no collective is needed",
        _together,
        _local_only,
    ),
}
"""Baselines by name, in the order of results."""


def wanted(problem: Problem) -> tuple[Restriction, ...]:
    """The baselines that a problem requests. Raises BadInput: an unknown name."""
    if isinstance(problem.baselines, bool):
        return tuple(restriction for restriction in BASELINES.values() if restriction.usual) if problem.baselines else ()
    expected = f"none, all, or some of {', '.join(BASELINES)}"
    faults = [
        Fault("baselines", expected, repr(word), did_you_mean(word, BASELINES))
        for word in problem.baselines
        if word not in BASELINES
    ]
    if faults:
        raise BadInput(faults)
    return tuple(restriction for word, restriction in BASELINES.items() if word in problem.baselines)


def by_op(problem: Problem) -> tuple[str, ...]:
    """The baselines of single ops that a problem requests: they may add to the space of its best mapping."""
    return tuple(word for word, restriction in BASELINES.items() if restriction.by_op and restriction in wanted(problem))
