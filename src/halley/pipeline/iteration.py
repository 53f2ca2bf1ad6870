"""Time of a training iteration from passes, pipeline, data parallelism and optimizer. It adds no equations of its own.

Every time may be a number or an array over plans of the same pipeline. The breakdown is that of the stage that finishes last;
its parts add up to the iteration's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number, ceil_div
from halley.formulas.timing import busy_time, total
from halley.formulas.training import offloaded_step_time, optimizer_traffic, sharded_bytes
from halley.pipeline.block_counts import BlockCounts, block_counts, numbered, summed, table_of
from halley.pipeline.data_parallel import DataParallel, LayerBlock, LayerBlocks, Sharded
from halley.pipeline.recurrence import PipelineTimes, pipeline_times
from halley.pipeline.schedule import Integers, TrainingPipeline

Floats = NDArray[np.float64]

EXTRA_OPTIMIZER_BYTES_PER_PARAMETER = 16
"""Bytes per parameter that separate kernels move before and after an optimizer step in Megatron-LM: fp32 gradients are cleared,
then read and written when they are clipped; the fp32 master weight is read again to be rounded."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer step that is bound by memory. ``bandwidth`` [B/s] of the chip's memory; ``start`` [s] of its kernels.
    ``clipping``: gradients are scaled by their norm over all chips, which takes ``norm_reduction`` [s] to reduce.
    ``offload`` [B/s]: bandwidth, each way, to a second tier of memory that holds the state; None: the state is in the chip's
    memory. ``extra_bytes`` [B]: per parameter, moved by separate kernels (clearing and scaling of gradients, rounding of
    weights)."""

    bandwidth: Number
    start: Number = 0.0
    clipping: bool = False
    norm_reduction: Number = 0.0
    offload: Number | None = None
    extra_bytes: Number = 0.0

    def norm_time(self, data: DataParallel, parameters: Number) -> Number:
        """A chip reads its gradients [s]: only its own part where they are scattered."""
        own = sharded_bytes(parameters, data.recipe.gradient, data.sharded.owners(data.ranks))
        return busy_time(own, self.bandwidth)

    def step_time(self, data: DataParallel, parameters: Number) -> Number:
        """A chip updates the parameters that it owns [s]."""
        own = parameters if data.sharded is Sharded.NOTHING else ceil_div(parameters, data.ranks)
        recipe = data.recipe
        traffic = optimizer_traffic(own, recipe.gradient, recipe.state, recipe.weight)
        before = self.start + busy_time(own * self.extra_bytes, self.bandwidth)
        if self.offload is None:
            return before + busy_time(traffic, self.bandwidth)
        return before + offloaded_step_time(traffic, self.bandwidth, own * recipe.state, self.offload)


@dataclass(frozen=True)
class PipelinedTraining:
    """A training iteration. ``chunks`` [chunks] of blocks in the order of the model. ``onward``, ``back`` [chunks - 1] [s]:
    transfer of one microbatch's activation to the next chunk, and of its gradient from it. ``blocking``: a transfer blocks
    its sender; else it overlaps with work. ``tied`` [s]: reduction of the gradients of a table that the first and the last
    stage share.

    Raises BadInput: another number of chunks than the pipeline's, or an empty chunk; another number of transfers than
    boundaries.
    """

    pipeline: TrainingPipeline
    chunks: Sequence[LayerBlocks]
    data: DataParallel
    optimizer: Optimizer
    onward: Sequence[Number] = ()
    back: Sequence[Number] = ()
    blocking: bool = False
    tied: Number = 0.0

    def __post_init__(self) -> None:
        expected, faults = self.pipeline.last + 1, []
        if len(self.chunks) != expected or not all(self.chunks):
            got = f"{len(self.chunks)} chunks, {sum(not blocks for blocks in self.chunks)} of them empty"
            wanted = f"{expected} chunks of at least one block ({self.pipeline.stages} stages x {self.pipeline.chunks})"
            faults.append(Fault("training, chunks", wanted, got, "divide the layers over the chunks again"))
        for name, times in (("onward", self.onward), ("back", self.back)):
            if len(times) not in (0, self.pipeline.last):
                wanted = f"{self.pipeline.last} transfers between chunks, or none"
                faults.append(Fault(f"training, {name}", wanted, str(len(times))))
        if faults:
            raise BadInput(faults)

    @cached_property
    def distinct(self) -> tuple[list[LayerBlocks], list[LayerBlock], BlockCounts]:
        """Distinct chunks and blocks, and how many of them each chunk and stage has."""
        chunks, which = numbered(self.chunks)
        blocks, within = numbered([block for chunk in chunks for block in chunk])
        ends = [0, *accumulate(map(len, chunks))]
        return chunks, blocks, block_counts(which, tuple(within[a:b] for a, b in pairwise(ends)), self.pipeline.stages)

    @cached_property
    def sizes(self) -> Floats:
        """[distinct blocks, (parameters, activation, working), plans]."""
        blocks = self.distinct[1]
        flat = table_of([size for block in blocks for size in (block.parameters, block.activation, block.working)])
        return flat.reshape(len(blocks), 3, -1)

    def parameters(self, stage: int) -> Number:
        """Parameters on a chip of a stage, before sharding over data-parallel ranks."""
        return total([times * block.parameters for block, times in self.held(stage)])

    def held(self, stage: int) -> list[tuple[LayerBlock, int]]:
        """The distinct blocks of a stage with their numbers."""
        _, blocks, made = self.distinct
        counts = made.held[made.kind[stage]].tolist()
        return [(block, count) for block, count in zip(blocks, counts, strict=True) if count]


@dataclass(frozen=True, slots=True)
class Iteration:
    """Breakdown of the time of the stage that finishes last, over all microbatches; arrays [plans] [s].

    ``forward``, ``recompute``, ``backward``: work of the blocks. ``sharding``: exposed collectives of sharded gradients and
    parameters. ``bubble``: waits for other stages. ``transfers``: time added by transfers between stages, blocking or waited
    for. ``reduction``: exposed reduction of gradients. ``waiting``: for other stages before gradients are clipped. ``norm`` and
    ``step`` of the optimizer; ``gather`` of updated parameters. ``stage`` [plans]: the number of that stage; not a time.
    """

    forward: Floats
    recompute: Floats
    backward: Floats
    sharding: Floats
    bubble: Floats
    transfers: Floats
    reduction: Floats
    waiting: Floats
    norm: Floats
    step: Floats
    gather: Floats
    stage: Integers

    def breakdown(self) -> Mapping[str, Floats]:
        """The parts by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "stage"}

    @property
    def time(self) -> Floats:
        """[plans] the sum of the parts."""
        return np.asarray(total(list(self.breakdown().values())))


def iteration_time(training: PipelinedTraining, attribute_transfers: bool = True) -> Iteration:
    """Time of an iteration and its breakdown. Without ``attribute_transfers``, time added by transfers counts as bubble; that
    takes half as long to compute, for searches.

    >>> from halley.pipeline.data_parallel import RECIPES, LayerBlock
    >>> alone = DataParallel(1, Sharded.NOTHING, lambda kind, payload: 0.0, RECIPES["mixed-adam"])
    >>> two = PipelinedTraining(TrainingPipeline(2, 5), [[LayerBlock(2.0, 3.0)], [LayerBlock(7.0, 11.0)]], alone, Optimizer(1e9))
    >>> found = iteration_time(two)
    >>> found.time.tolist(), found.forward.tolist(), found.bubble.tolist()
    ([95.0], [10.0], [70.0])
    """
    pipeline, made, clipping = training.pipeline, training.distinct[2], training.optimizer.clipping
    passes = _passes(training)
    forward, backward = ([each[number] for number in made.chunk.tolist()] for each in zip(*passes, strict=True))
    times = pipeline_times(pipeline, forward, backward, training.onward, training.back, training.blocking)
    done, reduced = times.stage_ends, _gradients_summed(training, times)
    transfers = attribute_transfers and (len(training.onward) or len(training.back))
    bare = pipeline_times(pipeline, forward, backward).stage_ends if transfers else done
    after = _optimizer_times(training)
    known = reduced + after[0][made.kind]
    # the norm needs the gradients of all stages
    ready = np.broadcast_to(known.max(axis=0), known.shape) if clipping else known
    latest = (ready + (after[1] + after[2])[made.kind]).argmax(axis=0)
    passed, ended, final, alone, together = (_row_of_plan(latest, each) for each in (bare, done, reduced, known, ready))
    kind = made.kind[latest]
    norm, step, gather = (_row_of_plan(kind, each) for each in after)
    work = _work(training, kind, passes)
    waits = ended - passed, final - ended, together - alone
    norm = norm + (training.optimizer.norm_reduction if clipping else 0.0)
    bubble = np.maximum(passed - work.sum(axis=0), 0.0)  # rounding may leave less than 0
    return Iteration(*(*work, bubble, *waits, norm, step, gather, latest))


def _row_of_plan(rows: Integers, table: Floats) -> Floats:
    """[plans] for each plan, the value in one row of a table [rows, plans] or [rows, 1]."""
    return np.asarray(table[rows, np.arange(len(rows)) if table.shape[1] > 1 else 0])


def _passes(training: PipelinedTraining) -> list[tuple[Number, Number]]:
    """Forward and backward pass of each distinct chunk [s]."""
    return [training.data.passes(blocks) for blocks in training.distinct[0]]


def _work(training: PipelinedTraining, kind: Integers, passes: Sequence[tuple[Number, Number]]) -> Floats:
    """[parts, plans] the time of the passes of a stage of this ``kind`` [plans], by part: forward, recompute, backward,
    sharding."""
    _, blocks, made = training.distinct
    names = ("forward", "recompute", "backward")
    counts, runs = made.held[kind].T, made.run[kind].T
    parts = [total(count * getattr(block, name) for block, count in zip(blocks, counts, strict=True)) for name in names]
    whole = total(count * (ahead + behind) for (ahead, behind), count in zip(passes, runs, strict=True))
    work = training.pipeline.microbatches * np.stack([*parts, whole])
    work[3] -= work[:3].sum(axis=0)
    return work


def _optimizer_times(training: PipelinedTraining) -> tuple[Floats, Floats, Floats]:
    """[kinds, plans] times of a stage after its gradients are reduced: its part of the norm, step, gather."""
    data, optimizer, (_, blocks, made) = training.data, training.optimizer, training.distinct
    parameters = summed(made.held, training.sizes[:, 0])
    norm = optimizer.norm_time(data, parameters) if optimizer.clipping else np.zeros_like(parameters)
    gather = data.parameter_gather(zip(blocks, made.held.T[:, :, None], strict=True))
    return np.asarray(norm), np.asarray(optimizer.step_time(data, parameters)), np.zeros_like(parameters) + gather


def _gradients_summed(training: PipelinedTraining, times: PipelineTimes) -> Floats:
    """[stages, plans] when stages have finished and their gradients are reduced."""
    reduced = times.stage_ends
    if training.data.sharded < Sharded.GRADIENTS:
        reduced = np.maximum(reduced, _drain_ends(training, times.last_backward))
    if np.any(np.asarray(training.tied) > 0):
        both = np.maximum(reduced[0], reduced[-1]) + training.tied
        reduced = np.broadcast_to(reduced, (len(reduced), both.shape[-1])).copy()
        reduced[0] = reduced[-1] = both
    return reduced


def _drain_ends(training: PipelinedTraining, last_backward: Floats) -> Floats:
    """[stages, plans] when a stage's gradients are reduced if the reduction starts after the last microbatch."""
    pipeline, (chunks, _, made) = training.pipeline, training.distinct
    after, busy = (table_of(each) for each in zip(*(training.data.drain(blocks) for blocks in chunks), strict=True))
    shape = pipeline.chunks, pipeline.stages, -1
    busy = busy[made.chunk].reshape(shape)
    # chunks with a lower number finish later, so their reductions follow
    behind = after[made.chunk].reshape(shape) + np.cumsum(busy, axis=0) - busy
    return np.asarray((last_backward.reshape(shape) + behind).max(axis=0))
