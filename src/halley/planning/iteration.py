"""An iteration of training put together: passes, pipeline, data parallelism, optimizer. It adds no physics of its own.

Every time may be a number or an array over plans of the same pipeline. The account is that of the stage that is done last; its
parts add up to the iteration's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number, ceil_div
from halley.formulas.pipeline import pipeline_bound
from halley.formulas.timing import busy_time, total
from halley.formulas.training import offloaded_step_time, optimizer_traffic, sharded_bytes
from halley.planning.data_parallel import Blocks, DataParallel, Sharded, tally
from halley.planning.recurrence import Times, pipeline_times
from halley.planning.schedule import Integers, Pipeline

Floats = NDArray[np.float64]

AROUND = 16
"""Bytes per parameter that kernels around an optimizer's step move, as Megatron-LM runs them: fp32 gradients cleared, then read
and written again as they are clipped; the fp32 master weight read again to be rounded."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A step bound by memory: ``bandwidth`` [B/s] of the chip's memory, ``start`` [s] of its kernels. ``clipping``: gradients
    are scaled by their norm over all chips, which takes ``norm_reduction`` [s] to sum. ``offload`` [B/s]: bandwidth, each way,
    to a second tier of memory that keeps the state; None keeps it beside the weights. ``around`` [B]: per parameter, moved by
    kernels of their own before and after it (gradients cleared, scaled; weights rounded)."""

    bandwidth: Number
    start: Number = 0.0
    clipping: bool = False
    norm_reduction: Number = 0.0
    offload: Number | None = None
    around: Number = 0.0

    def norm_time(self, data: DataParallel, parameters: Number) -> Number:
        """A chip reads its gradients [s]; those that it alone has, where they are scattered."""
        own = 1 if data.sharded is Sharded.NOTHING else data.ranks
        return busy_time(sharded_bytes(parameters, data.recipe.gradient, own), self.bandwidth)

    def step_time(self, data: DataParallel, parameters: Number) -> Number:
        """A chip updates the parameters that are its own to update [s]."""
        own = parameters if data.sharded is Sharded.NOTHING else ceil_div(parameters, data.ranks)
        recipe = data.recipe
        traffic = optimizer_traffic(own, recipe.gradient, recipe.state, recipe.weight)
        before = self.start + busy_time(own * self.around, self.bandwidth)
        if self.offload is None:
            return before + busy_time(traffic, self.bandwidth)
        return before + offloaded_step_time(traffic, self.bandwidth, own * recipe.state, self.offload)


@dataclass(frozen=True, slots=True)
class Training:
    """``chunks`` [chunks] of blocks, in the order of the model; ``onward``, ``back`` [chunks - 1]: transfer of an activation
    to the next chunk, of a gradient from it, for one microbatch [s]; ``holding``: a transfer holds its sender, else it runs
    beside work. ``tied`` [s]: the first and the last stage add up the gradients of a table that both have.

    Raises BadInput: not as many chunks as the pipeline has, or one without blocks; transfers for other boundaries than there are.
    """

    pipeline: Pipeline
    chunks: Sequence[Blocks]
    data: DataParallel
    optimizer: Optimizer
    onward: Sequence[Number] = ()
    back: Sequence[Number] = ()
    holding: bool = False
    tied: Number = 0.0

    def __post_init__(self) -> None:
        expected, faults = self.pipeline.last + 1, []
        if len(self.chunks) != expected or not all(self.chunks):
            got = f"{len(self.chunks)} chunks, {sum(not blocks for blocks in self.chunks)} of them empty"
            wanted = f"{expected} chunks of at least one block ({self.pipeline.stages} stages x {self.pipeline.chunks})"
            faults.append(Fault("training, chunks", wanted, got, "deal the layers out again"))
        for name, times in (("onward", self.onward), ("back", self.back)):
            if len(times) not in (0, self.pipeline.last):
                wanted = f"{self.pipeline.last} transfers between chunks, or none"
                faults.append(Fault(f"training, {name}", wanted, str(len(times))))
        if faults:
            raise BadInput(faults)

    def of_stage(self, stage: int) -> Sequence[Blocks]:
        """The chunks of a stage."""
        return self.chunks[stage :: self.pipeline.stages]

    def parameters(self, stage: int) -> Number:
        """Parameters on a chip of a stage, before sharding over data-parallel ranks."""
        return total([times * block.parameters for block, times in tally(self.of_stage(stage))])

    @property
    def kinds(self) -> tuple[list[int], Integers]:
        """The first stage of each kind, and [stages] which kind each one is: those with the same chunks are alike."""
        found: dict[tuple[int, ...], int] = {}
        chunks = [tuple(id(blocks) for blocks in self.of_stage(stage)) for stage in range(self.pipeline.stages)]
        kind = np.array([found.setdefault(each, len(found)) for each in chunks])
        return np.unique(kind, return_index=True)[1].tolist(), kind


@dataclass(frozen=True, slots=True)
class Iteration:
    """Where the time of the stage that is done last goes, over all microbatches; arrays [plans] of seconds.

    ``forward``, ``recompute``, ``backward``: work of the blocks. ``sharding``: collectives of sharded gradients and parameters
    that passes wait for. ``bubble``: it waits for other stages. ``transfers``: what those between stages add, whether they hold
    the stage or it waits for them. ``reduction``: of gradients, exposed. ``waiting``: for other stages, where gradients are
    clipped. ``norm``, ``step`` of the optimizer, ``gather`` of updated parameters. ``stage`` [plans]: which one that is; no
    part of the time.
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


def iteration_time(training: Training, apart: bool = True) -> Iteration:
    """Time of an iteration, taken apart. Not ``apart``, what transfers add is left in the bubble: half the effort, for a search.

    >>> from halley.planning.data_parallel import RECIPES, Block
    >>> alone = DataParallel(1, Sharded.NOTHING, lambda kind, payload: 0.0, RECIPES["mixed-adam"])
    >>> two = Training(Pipeline(2, 5), [[Block(2.0, 3.0)], [Block(7.0, 11.0)]], alone, Optimizer(1e9))
    >>> found = iteration_time(two)
    >>> found.time.tolist(), found.forward.tolist(), found.bubble.tolist()
    ([95.0], [10.0], [70.0])
    """
    pipeline, (firsts, kind) = training.pipeline, training.kinds
    forward, backward = _passes(training)
    times = pipeline_times(pipeline, forward, backward, training.onward, training.back, training.holding)
    done, reduced = times.stage_ends, _reduced(training, times)
    transfers = apart and (len(training.onward) or len(training.back))
    bare = pipeline_times(pipeline, forward, backward).stage_ends if transfers else done
    work = _table([_work(training, stage, forward, backward) for stage in firsts])
    after = _table([_after(training, stage) for stage in firsts])
    clipping = training.optimizer.clipping
    known = reduced + after[kind, 0]
    # all stages wait for the norm
    waiting = known.max(axis=0) - known if clipping else np.zeros_like(known)
    latest = (known + waiting + after[kind, 1] + after[kind, 2]).argmax(axis=0)
    by_stage = np.stack(np.broadcast_arrays(bare, done - bare, reduced - done, waiting, np.empty(len(latest)))[:-1])
    passed, *waits = by_stage[:, latest, np.arange(len(latest))]
    own = [np.broadcast_to(part, (*part.shape[:2], len(latest))) for part in (work, after)]
    of_work, of_after = (part[kind[latest], :, np.arange(len(latest))].T for part in own)
    norm = of_after[0] + (training.optimizer.norm_reduction if clipping else 0.0)
    return Iteration(*(*of_work, passed - of_work.sum(axis=0), *waits, norm, *of_after[1:], latest))


def _passes(training: Training) -> tuple[list[Number], list[Number]]:
    """Forward and backward pass of each chunk [s]; chunks that are one object are worked out once."""
    known = {id(blocks): training.data.passes(blocks) for blocks in {id(blocks): blocks for blocks in training.chunks}.values()}
    passes = [known[id(blocks)] for blocks in training.chunks]
    return [ahead for ahead, _ in passes], [behind for _, behind in passes]


def _table(rows: Sequence[Sequence[Number]]) -> Floats:
    """[rows, parts, plans] of numbers and arrays over plans."""
    flat = np.broadcast_arrays(*(np.atleast_1d(np.asarray(part, np.float64)) for row in rows for part in row))
    return np.stack(flat).reshape(len(rows), len(rows[0]), -1)


def _work(training: Training, stage: int, forward: Sequence[Number], backward: Sequence[Number]) -> list[Number]:
    """Parts of the time that a stage's passes take: forward, recompute, backward, sharding."""
    count, stages = training.pipeline.microbatches, training.pipeline.stages
    blocks = tally(training.of_stage(stage))
    names = ("forward", "recompute", "backward")
    work = [count * total([times * getattr(block, name) for block, times in blocks]) for name in names]
    return [*work, count * total([*forward[stage::stages], *backward[stage::stages]]) - total(work)]


def _after(training: Training, stage: int) -> list[Number]:
    """Parts of a stage's time once its gradients are summed: its own part of the norm, step, gather."""
    data, optimizer, parameters = training.data, training.optimizer, training.parameters(stage)
    norm = optimizer.norm_time(data, parameters) if optimizer.clipping else 0.0
    return [norm, optimizer.step_time(data, parameters), data.gathered_after(training.of_stage(stage))]


def _reduced(training: Training, times: Times) -> Floats:
    """[stages, plans] when stages are done and their gradients are summed."""
    reduced = times.stage_ends
    if training.data.sharded < Sharded.GRADIENTS:
        reduced = np.maximum(reduced, _drained(training, times.last_backward))
    if np.any(np.asarray(training.tied) > 0):
        both = np.maximum(reduced[0], reduced[-1]) + training.tied
        reduced = np.broadcast_to(reduced, (len(reduced), both.shape[-1])).copy()
        reduced[0] = reduced[-1] = both
    return reduced


def _drained(training: Training, last_backward: Floats) -> Floats:
    """[stages, plans] when a stage's gradients are summed that its network begins to sum after the last microbatch."""
    pipeline, (firsts, kind) = training.pipeline, training.kinds
    ends = last_backward.reshape(pipeline.chunks, pipeline.stages, -1)
    known = {id(blocks): training.data.drain(blocks) for blocks in {id(blocks): blocks for blocks in training.chunks}.values()}
    found = []
    for stages, first in ((np.flatnonzero(kind == kind[first]), first) for first in firsts):
        after, busy = _table([known[id(blocks)] for blocks in training.of_stage(first)]).transpose(1, 0, 2)
        # those of earlier chunks are still to follow
        behind = after + np.cumsum(busy, axis=0) - busy
        found.append((stages, (ends[:, stages] + behind[:, None]).max(axis=0)))
    drained = np.empty((pipeline.stages, found[0][1].shape[-1]))
    for stages, each in found:
        drained[stages] = each
    return drained


def iteration_bound(training: Training) -> Number:
    """Lower bound of an iteration's time [s], without running its schedule: the first stage is the last to finish its passes."""
    data, first, pipeline = training.data, training.of_stage(0), training.pipeline
    forward, backward = _passes(training)
    none = [0.0] * pipeline.last
    given = () if training.holding else (training.onward, training.back)
    onward, back = [times if len(times) else none for times in given] or [none, none]
    work = pipeline_bound(forward, backward, onward, back, pipeline.stages, pipeline.microbatches)
    last = data.reduction(first[0][0]) if data.sharded < Sharded.GRADIENTS else 0.0
    return work + last + training.optimizer.step_time(data, training.parameters(0)) + data.gathered_after(first)
