"""Pipelines as values: stages, chunks, microbatches, schedule; how layers, chips and batches are distributed over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.pipeline import passes_in_flight, warmup_passes
from halley.optim.switch import CompiledLoops

Integers = NDArray[np.int64]

Numbers: TypeAlias = list[int] | Integers
"""A list or an array of integers."""

SWITCH = CompiledLoops("halley.pipeline.recurrence_compiled", load_after=2.0)
"""Whether schedules run compiled: only after work that took twice as long as loading the loops, which also take 130 MiB."""

GROUPS_WITHOUT_REPEATS = 4
"""Groups of as many microbatches as stages after which a 1F1B pipeline only repeats itself: stages run ahead by less than two
groups, and a state that occurs twice recurs."""

MAX_CHUNKS = 1024
"""Most chunks of a pipeline, of all stages: larger schedules take minutes to compute and are not built in practice."""
MAX_MICROBATCHES = 65_536
"""Most microbatches of a pipeline, for the same reason."""


class PipelineSchedule(StrEnum):
    """The order in which a stage runs its passes. 1F1B with several chunks per stage is interleaved 1F1B."""

    GPIPE = "gpipe"
    ONE_FORWARD_ONE_BACKWARD = "1f1b"


@dataclass(frozen=True, slots=True)
class TrainingPipeline:
    """``chunks`` of layers per stage: chunk c of stage s has number c S + s in the order of the model, where S is the number of
    stages.

    Raises BadInput: numbers below 1; several chunks with one stage or with GPipe; a last group of microbatches with which an
    interleaved schedule deadlocks.
    """

    stages: int
    microbatches: int
    chunks: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD

    def __post_init__(self) -> None:
        numbers = (("stages", self.stages), ("microbatches", self.microbatches), ("chunks", self.chunks))
        faults = [_whole(f"pipeline, {name}", number) for name, number in numbers if not _is_whole(number)]
        if not faults:
            faults = self._limits()
        if not faults and self.chunks > 1 and (self.stages == 1 or self.schedule is PipelineSchedule.GPIPE):
            remedy = "take 1 chunk, or schedule 1f1b over several stages"
            faults.append(Fault("pipeline, chunks", "1 with GPipe and with a single stage", str(self.chunks), remedy))
        if faults:
            raise BadInput(faults)
        # running a schedule takes long; the rule agrees with it in all tests
        if self.chunks > 1 and not never_deadlocks(self.stages, self.microbatches, self.chunks) and deadlocked(self):
            below, above = ((self.microbatches // self.stages + more) * self.stages for more in (0, 1))
            near = " or ".join(str(count) for count in (below, above) if count)
            expected = f"microbatches whose last group of fewer than {self.stages} keeps all stages going"
            remedy = f"take {near}, a multiple of the stages, or 1 chunk per stage"
            raise BadInput(Fault("pipeline, microbatches", expected, f"{self.microbatches} (stages would deadlock)", remedy))

    def _limits(self) -> list[Fault]:
        chunks = self.stages * self.chunks
        limits = (("stages x chunks", chunks, MAX_CHUNKS), ("microbatches", self.microbatches, MAX_MICROBATCHES))
        return [Fault(f"pipeline, {name}", f"at most {limit}", str(got)) for name, got, limit in limits if got > limit]

    @property
    def last(self) -> int:
        """Number of the model's last chunk."""
        return self.stages * self.chunks - 1

    def warmup(self, stage: int) -> int:
        """Number of forward passes that a stage runs before its first backward pass."""
        passes = self.microbatches * self.chunks
        if self.schedule is PipelineSchedule.GPIPE:
            return passes
        return min(passes, int(warmup_passes(self.stages, self.chunks, stage)))

    def in_flight(self, stage: int) -> int:
        """Largest number of passes whose activations a stage holds at once."""
        return int(passes_in_flight(self.warmup(stage), self.chunks, self.microbatches))


@dataclass(frozen=True, slots=True)
class PassOrder:
    """The order of passes, the same for every stage. ``chunk`` and ``microbatch`` [passes of a stage]: of the k-th forward
    pass. The k-th backward pass has the same microbatch, and chunk v - 1 - c of v chunks."""

    chunk: Integers
    microbatch: Integers


def pass_order(pipeline: TrainingPipeline) -> PassOrder:
    """The order of passes: each group of as many microbatches as stages passes through one chunk of a stage after the other.

    >>> pass_order(TrainingPipeline(2, 4, 2)).chunk.tolist(), pass_order(TrainingPipeline(2, 4, 2)).microbatch.tolist()
    ([0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 2, 3, 2, 3])
    """
    stages, chunks, microbatches = pipeline.stages, pipeline.chunks, pipeline.microbatches
    number = np.arange(microbatches * chunks)
    group = number // (stages * chunks)
    size = np.minimum(stages, microbatches - group * stages)
    within = number - group * stages * chunks
    return PassOrder(within // size, group * stages + within % size)


def run_schedule(
    chunk: Numbers, microbatch: Numbers, warmup: Numbers, chunks: int, done: Numbers, counts: Numbers, found: Numbers
) -> int:
    """Runs all stages as far as possible, where each pass takes one step and starts as soon as it can. Writes ``found`` [passes
    x (step, stage, direction, chunk, microbatch)] and returns the number of passes run: fewer than all if the stages
    deadlock.

    ``chunk``, ``microbatch`` [passes of a stage]: as in `PassOrder`; ``warmup`` [stages]; ``chunks`` per stage. Work space,
    zero on entry: ``done`` [2 x chunks of the model x microbatches], ``counts`` [3 x stages]. Plain loops, which can be
    compiled unchanged and are fast over lists otherwise.
    """
    stages, count = len(warmup), len(chunk)
    last, microbatches = stages * chunks - 1, count // chunks
    # counts of each stage: forward passes, backward passes, and the step in which it is free
    behind_at, free_at, back_at = stages, 2 * stages, (last + 1) * microbatches
    passes, before = 0, -1
    while passes > before:
        before = passes
        for stage in range(stages):
            while counts[behind_at + stage] < count:
                ahead, behind = counts[stage], counts[behind_at + stage]
                # forward while at most warmup passes are in flight
                back = 1 if ahead == count or ahead - behind > warmup[stage] else 0
                number = behind if back else ahead
                of, which = microbatch[number], (chunks - 1 - chunk[number] if back else chunk[number]) * stages + stage
                if back:
                    ready = done[last * microbatches + of] if which == last else done[back_at + (which + 1) * microbatches + of]
                else:
                    ready = -1 if which == 0 else done[(which - 1) * microbatches + of]
                if ready == 0:
                    break
                step, row = max(counts[free_at + stage], ready, 0), 5 * passes
                found[row] = step
                found[row + 1] = stage
                found[row + 2] = back
                found[row + 3] = which
                found[row + 4] = of
                done[back * back_at + which * microbatches + of] = counts[free_at + stage] = step + 1
                counts[behind_at + stage] += back
                counts[stage] += 1 - back
                passes += 1
    return passes


def unit_time_schedule(pipeline: TrainingPipeline) -> Integers:
    """[passes, (step, stage, direction (0 forward), chunk in the order of the model, microbatch)] of a 1F1B schedule whose
    passes take one step each, sorted by step and stage. Raises BadInput: the stages deadlock."""
    plan, stages, compiled = pass_order(pipeline), pipeline.stages, SWITCH.loops()
    warmup = np.array([pipeline.warmup(stage) for stage in range(stages)])
    passes = 2 * len(plan.chunk) * stages
    sizes = passes, 3 * stages, 5 * passes
    if compiled is not None:
        buffers: list[Numbers] = [np.zeros(size, np.int64) for size in sizes]
        got = compiled.run_schedule_compiled(plan.chunk, plan.microbatch, warmup, pipeline.chunks, *buffers)
    else:
        buffers = [[0] * size for size in sizes]
        got = run_schedule(plan.chunk.tolist(), plan.microbatch.tolist(), warmup.tolist(), pipeline.chunks, *buffers)
    if got < passes:
        raise BadInput(Fault("pipeline", "a schedule whose stages can all go on", f"{pipeline}, which deadlocks"))
    found = np.asarray(buffers[2], np.int64).reshape(passes, 5)
    return found[np.lexsort((found[:, 1], found[:, 0]))]


def without_repeats(pipeline: TrainingPipeline) -> tuple[TrainingPipeline, int]:
    """The pipeline without the groups of microbatches that repeat what those before them do, and the number of these groups; 0
    for GPipe.

    >>> short, groups = without_repeats(TrainingPipeline(2, 101))
    >>> short.microbatches, groups, without_repeats(TrainingPipeline(2, 9))[1]
    (9, 46, 0)

    Raises BadInput: the shorter pipeline deadlocks.
    """
    spare = pipeline.microbatches // pipeline.stages - GROUPS_WITHOUT_REPEATS
    if spare <= 0 or pipeline.schedule is PipelineSchedule.GPIPE:
        return pipeline, 0
    return replace(pipeline, microbatches=pipeline.microbatches - spare * pipeline.stages), spare


def never_deadlocks(stages: int, microbatches: int, chunks: int) -> bool:
    """Whether an interleaved schedule is known not to deadlock: its last group of microbatches is full, is the only one, or
    lacks at most two microbatches; with two chunks per stage it may also have a single one.

    >>> never_deadlocks(8, 24, 3), never_deadlocks(8, 25, 3), never_deadlocks(8, 25, 2), never_deadlocks(8, 5, 3)
    (True, False, True, True)
    """
    rest = microbatches % stages
    return chunks == 1 or microbatches < stages or not (1 if chunks > 2 else 2) <= rest <= stages - 3


@lru_cache(maxsize=4096)
def deadlocked(pipeline: TrainingPipeline) -> bool:
    """Whether the stages of a schedule deadlock."""
    try:
        # a shorter pipeline checks itself when it is constructed
        if not without_repeats(pipeline)[1]:
            unit_time_schedule(pipeline)
    except BadInput:
        return True
    return False


def layers_per_chunk(layers: int, parts: int) -> tuple[int, ...]:
    """Layers divided over the chunks of a pipeline as evenly as possible. The remainder goes, one layer each, to the last
    chunks but the last one: the last chunk also has the head, and the first ones hold the most activations.

    >>> layers_per_chunk(10, 4)
    (2, 3, 3, 2)

    Raises BadInput: fewer layers than parts.
    """
    faults = [_whole(f"layers distributed, {name}", n) for name, n in (("layers", layers), ("parts", parts)) if not _is_whole(n)]
    if not faults and layers < parts:
        remedy = f"take at most {layers} stages x chunks"
        faults = [Fault("layers distributed", f"at least one layer for each of {parts} parts", f"{layers} layers", remedy)]
    if faults:
        raise BadInput(faults)
    each, rest = divmod(layers, parts)
    return tuple(each + (parts - 1 - rest <= part < parts - 1) for part in range(parts))


def layers_before(kinds: Sequence[int], layers: Sequence[int]) -> Integers:
    """[chunks + 1, kinds] the number of layers of each kind before each chunk, and in all. ``kinds``: layers of each kind, in
    the order of the model; ``layers`` [chunks]: layers of each chunk.

    >>> layers_before((2, 4), (1, 3, 2)).tolist()
    [[0, 0], [1, 0], [2, 2], [2, 4]]
    """
    ends, starts = np.cumsum((0, *layers)), np.cumsum((0, *kinds[:-1]))
    passed: Integers = np.clip(ends[:, None] - starts, 0, np.array(kinds))
    return passed


def parts_of_chunks(kinds: Sequence[int], layers: Sequence[int]) -> Integers:
    """[chunks, 1 + kinds + 1] how many of each part of a model a chunk has: embedding, layers of each kind, head. The first
    chunk has the embedding, the last one the head; ``kinds`` and ``layers`` as in `layers_before`.

    >>> parts_of_chunks((2, 4), (1, 3, 2)).tolist()
    [[1, 1, 0, 0], [0, 1, 2, 0], [0, 0, 2, 1]]
    """
    parts: Integers = np.pad(np.diff(layers_before(kinds, layers), axis=0), ((0, 0), (1, 1)))
    parts[0, 0] = parts[-1, -1] = 1
    return parts


def microbatches(batch: int, ranks: int, microbatch: int) -> int:
    """Number of microbatches that each data-parallel rank runs in an iteration.

    >>> microbatches(2048, 16, 4)
    32

    Raises BadInput: ranks x microbatch does not divide the batch.
    """
    named = (("batch", batch), ("data-parallel ranks", ranks), ("sequences of a microbatch", microbatch))
    faults = [_whole(name, number) for name, number in named if not _is_whole(number)]
    if not faults and batch % (ranks * microbatch):
        got = f"{batch} sequences over {ranks} ranks in microbatches of {microbatch}"
        near = max(1, round(batch / (ranks * microbatch))) * ranks * microbatch
        faults = [Fault("batch", f"a multiple of {ranks * microbatch}", got, f"take a batch of {near}, or other degrees")]
    if faults:
        raise BadInput(faults)
    return batch // (ranks * microbatch)


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _whole(where: str, got: object) -> Fault:
    return Fault(where, "a whole number of at least 1", repr(got))
