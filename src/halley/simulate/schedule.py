"""Pipeline schedules: for each stage, its passes in order. A schedule checks itself.

Chunk c of stage s has number u = c S + s in the order of the model, with S stages. A forward pass needs the forward pass of the
chunk before it, a backward pass the backward pass of the chunk after it; that of the last chunk needs its own forward pass. The
builders follow the definitions in the papers (passes in flight per stage), not the formulas that are compared with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from halley.errors import BadInput, Fault


class Direction(StrEnum):
    """Direction of a pass through the model."""

    FORWARD = "forward"
    BACKWARD = "backward"


class PipelinePass(NamedTuple):
    """One pass of a microbatch through a chunk."""

    direction: Direction
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.direction} pass of microbatch {self.microbatch} through chunk {self.chunk}"


StageOrder = tuple[PipelinePass, ...]


@dataclass(frozen=True, slots=True)
class PassTable:
    """``orders[stage]``: the passes of a stage in order. Raises BadInput: a pass that is missing, occurs twice or is on the wrong
    stage; a deadlock."""

    stages: int
    chunks: int
    microbatches: int
    orders: tuple[StageOrder, ...]

    def __post_init__(self) -> None:
        faults = [fault for stage in range(self.stages) for fault in self._stage_faults(stage)]
        if faults:
            raise BadInput(faults)
        self.linear()

    @property
    def last(self) -> int:
        """Number of the last chunk of the model."""
        return self.stages * self.chunks - 1

    def needed(self, each: PipelinePass) -> PipelinePass | None:
        """The pass whose result a pass needs; None for the first chunk's forward pass."""
        match each:
            case PipelinePass(Direction.FORWARD, chunk, microbatch):
                return PipelinePass(Direction.FORWARD, chunk - 1, microbatch) if chunk else None
            case PipelinePass(_, chunk, microbatch) if chunk < self.last:
                return PipelinePass(Direction.BACKWARD, chunk + 1, microbatch)
            case PipelinePass(_, chunk, microbatch):
                return PipelinePass(Direction.FORWARD, chunk, microbatch)

    def linear(self) -> tuple[PipelinePass, ...]:
        """All passes in a topological order. Raises BadInput: a deadlock."""
        done: dict[PipelinePass, None] = {}
        waiting = [iter(order) for order in self.orders]
        heads = [next(passes, None) for passes in waiting]
        progress = True
        while progress:
            progress = False
            for stage, passes in enumerate(waiting):
                while (head := heads[stage]) is not None and self._ready(head, done):
                    done[head], heads[stage], progress = None, next(passes, None), True
        stuck = [f"stage {stage} waits for the input of the {head}" for stage, head in enumerate(heads) if head is not None]
        if stuck:
            where = f"schedule of {self.stages} stages, {self.chunks} chunks each, {self.microbatches} microbatches"
            more = f"; and {len(stuck) - 2} more" if len(stuck) > 2 else ""
            raise BadInput(Fault(where, "passes that can all run", "a deadlock: " + "; ".join(stuck[:2]) + more))
        return tuple(done)

    def _ready(self, each: PipelinePass, done: dict[PipelinePass, None]) -> bool:
        needed = self.needed(each)
        return needed is None or needed in done

    def _stage_faults(self, stage: int) -> Iterator[Fault]:
        chunks = range(stage, self.last + 1, self.stages)
        due = {PipelinePass(d, chunk, i) for d in Direction for chunk in chunks for i in range(self.microbatches)}
        order = self.orders[stage]
        if len(order) != len(due) or set(order) != due:
            odd = [str(each) for each in (*sorted(set(order) - due), *sorted(due - set(order)))] or ["a pass twice"]
            yield Fault(f"schedule, stage {stage}", f"each of {len(due)} passes once", f"{len(order)} passes; {odd[0]}")


def gpipe(stages: int, microbatches: int) -> PassTable:
    """All forward passes, then all backward passes (Huang et al., NeurIPS 2019).

    >>> [str(each) for each in gpipe(1, 1).orders[0]]
    ['forward pass of microbatch 0 through chunk 0', 'backward pass of microbatch 0 through chunk 0']
    """
    orders = [
        [PipelinePass(direction, stage, i) for direction in (Direction.FORWARD, Direction.BACKWARD) for i in range(microbatches)]
        for stage in range(stages)
    ]
    return PassTable(stages, 1, microbatches, tuple(map(tuple, orders)))


def one_forward_one_backward(stages: int, microbatches: int) -> PassTable:
    """1F1B: a stage has at most as many microbatches in flight as there are stages from it to the end (Narayanan et al.,
    PipeDream-Flush, ICML 2021)."""
    orders = []
    for stage in range(stages):
        ahead = [PipelinePass(Direction.FORWARD, stage, i) for i in range(microbatches)]
        behind = [PipelinePass(Direction.BACKWARD, stage, i) for i in range(microbatches)]
        orders.append(_alternate(ahead, behind, stages - stage))
    return PassTable(stages, 1, microbatches, tuple(orders))


def interleaved(stages: int, chunks: int, microbatches: int) -> PassTable:
    """Interleaved 1F1B: microbatches in groups of S (the last may be smaller); a group runs through a stage's first chunk, then
    its second, and so on. A stage s may have 2 (S - 1 - s) + (v - 1) S + 1 passes in flight: a round trip through the later
    stages in its last chunk, and a group in each earlier chunk (Narayanan et al., SC 2021; Megatron-LM).

    Raises BadInput: a smaller last group with which the stages deadlock.
    """
    groups = [range(first, min(first + stages, microbatches)) for first in range(0, microbatches, stages)]
    orders = []
    for stage in range(stages):
        own = range(stage, stages * chunks, stages)
        ahead = [PipelinePass(Direction.FORWARD, chunk, i) for group in groups for chunk in own for i in group]
        behind = [PipelinePass(Direction.BACKWARD, chunk, i) for group in groups for chunk in reversed(own) for i in group]
        round_trip = 2 * (stages - 1 - stage)
        orders.append(_alternate(ahead, behind, round_trip + (chunks - 1) * stages + 1))
    return PassTable(stages, chunks, microbatches, tuple(orders))


def _alternate(ahead: Iterable[PipelinePass], behind: Iterable[PipelinePass], limit: int) -> StageOrder:
    """Forward passes while fewer than ``limit`` are in flight, else a backward pass."""
    forward, backward, order, flying = list(ahead)[::-1], list(behind)[::-1], [], 0
    while backward:
        if forward and flying < limit:
            order.append(forward.pop())
            flying += 1
        else:
            order.append(backward.pop())
            flying -= 1
    return tuple(order)
