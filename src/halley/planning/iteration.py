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
from halley.formulas.numbers import Number, ceil_div, maximum
from halley.formulas.pipeline import pipeline_bound
from halley.formulas.timing import busy_time, longest, total
from halley.formulas.training import offloaded_step_time, optimizer_traffic, sharded_bytes
from halley.planning.data_parallel import Blocks, DataParallel, Sharded
from halley.planning.recurrence import pipeline_times
from halley.planning.schedule import Integers, Pipeline

Floats = NDArray[np.float64]


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
        return total([block.parameters for blocks in self.of_stage(stage) for block in blocks])


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
    pipeline, stages = training.pipeline, range(training.pipeline.stages)
    forward, backward = _passes(training)
    times = pipeline_times(pipeline, forward, backward, training.onward, training.back, training.holding)
    ends = [list(times.last_backward[stage :: pipeline.stages]) for stage in stages]
    done = times.stage_ends
    reduced = [maximum(done[stage], training.data.reduced(training.of_stage(stage), ends[stage])) for stage in stages]
    if np.any(np.asarray(training.tied) > 0):
        reduced[0] = reduced[-1] = longest((reduced[0], reduced[-1])) + training.tied
    transfers = apart and (len(training.onward) or len(training.back))
    bare = pipeline_times(pipeline, forward, backward).stage_ends if transfers else done
    after = _after(training, reduced)
    accounts = []
    for stage in stages:
        busy = pipeline.microbatches * total([*forward[stage :: pipeline.stages], *backward[stage :: pipeline.stages]])
        waits = (bare[stage] - busy, done[stage] - bare[stage], reduced[stage] - done[stage])
        parts = (*_work(training, stage, busy), *waits, *after[stage])
        accounts.append(np.stack(np.broadcast_arrays(done[stage], *parts)[1:]))
    # [stages, parts, plans]
    table = np.stack(accounts)
    latest = table.sum(axis=1).argmax(axis=0)
    parts = np.take_along_axis(table, latest[None, None, :], axis=0)[0]
    return Iteration(*(*parts, latest))


def _passes(training: Training) -> tuple[list[Number], list[Number]]:
    """Forward and backward pass of each chunk [s]; chunks that are one object are worked out once."""
    known = {id(blocks): training.data.passes(blocks) for blocks in {id(blocks): blocks for blocks in training.chunks}.values()}
    passes = [known[id(blocks)] for blocks in training.chunks]
    return [ahead for ahead, _ in passes], [behind for _, behind in passes]


def _work(training: Training, stage: int, busy: Number) -> list[Number]:
    """Parts of the time that a stage's passes take, ``busy``: forward, recompute, backward, sharding."""
    count, blocks = training.pipeline.microbatches, [block for blocks in training.of_stage(stage) for block in blocks]
    work = [count * total([getattr(block, name) for block in blocks]) for name in ("forward", "recompute", "backward")]
    return [*work, busy - total(work)]


def _after(training: Training, reduced: Sequence[Number]) -> list[list[Number]]:
    """By stage, parts of its time once its gradients are summed, at ``reduced``: waiting, norm, step, gather."""
    data, optimizer, stages = training.data, training.optimizer, range(training.pipeline.stages)
    parameters = [training.parameters(stage) for stage in stages]
    parts: list[list[Number]] = [[0.0, 0.0] for _ in stages]
    if optimizer.clipping:
        norms = [optimizer.norm_time(data, count) for count in parameters]
        known = [end + own for end, own in zip(reduced, norms, strict=True)]
        parts = [[longest(known) - known[stage], norms[stage] + optimizer.norm_reduction] for stage in stages]
    ends = ([optimizer.step_time(data, parameters[s]), data.gathered_after(training.of_stage(s))] for s in stages)
    return [[*part, *end] for part, end in zip(parts, ends, strict=True)]


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
