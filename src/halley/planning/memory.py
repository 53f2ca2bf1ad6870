"""Memory of a chip at the peak of an iteration, by what it holds; what to change where it does not fit.

    weights       parameters as passes use them; a share of them where parameters are sharded
    gradients     a share where gradients are sharded
    states        of the optimizer; a share where anything is sharded; elsewhere where they are offloaded
    activations   most that the schedule keeps at once, over all chunks of the stage
    working       of the pass at work; and what is whole for a moment where it is stored in shares: the weights of two blocks
    (one
                  at work, one fetched ahead), the gradients of two (one made, one scattered)

What a schedule keeps is exact, chunk by chunk. Not modelled: fragmentation, buffers of libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.errors import Fault, Infeasible
from halley.formulas.numbers import Number
from halley.formulas.timing import longest, total
from halley.formulas.training import sharded_bytes
from halley.planning.data_parallel import Sharded, tally
from halley.planning.iteration import Training
from halley.planning.schedule import Integers, Pipeline, Schedule, order
from halley.planning.timetable import SHORT_GROUPS
from halley.units import format_bytes

Floats = NDArray[np.float64]


SHARES = {
    Sharded.OPTIMIZER: "the optimizer's state",
    Sharded.GRADIENTS: "state and gradients",
    Sharded.PARAMETERS: "state, gradients and parameters",
}
"""What is shared out, in words."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one chip of each stage at its peak, arrays [stages, plans]. ``offloaded`` lie in the second tier of memory."""

    weights: Floats
    gradients: Floats
    states: Floats
    activations: Floats
    working: Floats
    offloaded: Floats

    def breakdown(self) -> Mapping[str, Floats]:
        """The parts in the chip's own memory, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "offloaded"}

    @property
    def total(self) -> Floats:
        """[stages, plans] the sum of the parts."""
        return np.asarray(total(list(self.breakdown().values())))

    @property
    def peak(self) -> Floats:
        """[plans] of the stage that needs most."""
        return np.asarray(self.total.max(axis=0))


def memory(training: Training) -> Memory:
    """What a training plan keeps on a chip of each stage.

    >>> from halley.planning.data_parallel import RECIPES, Block, DataParallel
    >>> from halley.planning.iteration import Optimizer
    >>> alone = DataParallel(1, Sharded.NOTHING, lambda kind, payload: 0.0, RECIPES["mixed-adam"])
    >>> layer = Block(2.0, 3.0, parameters=1000, activation=400)
    >>> found = memory(Training(Pipeline(2, 5), [[layer], [layer]], alone, Optimizer(1e9)))
    >>> found.total.tolist(), found.activations.tolist()
    ([[16800.0], [16400.0]], [[800.0], [400.0]])
    """
    pipeline, (firsts, kind) = training.pipeline, training.kinds
    alike = [_of_kind(training, stage) for stage in firsts]
    activations = np.stack([(in_flight(pipeline, stage) @ alike[k][1]).max(axis=0) for stage, k in enumerate(kind.tolist())])
    every = np.broadcast_arrays(activations[0], *(np.asarray(part, np.float64) for held, _ in alike for part in held))
    weights, gradients, states, working, offloaded = np.stack(every[1:]).reshape(len(firsts), 5, -1)[kind].transpose(1, 0, 2)
    return Memory(weights, gradients, states, np.broadcast_to(activations, weights.shape), working, offloaded)


def _of_kind(training: Training, stage: int) -> tuple[tuple[Number, ...], Floats]:
    """What stages keep that have the chunks of this one: all parts of `Memory` but activations; and those of a microbatch, by
    chunk."""
    data, chunks = training.data, training.of_stage(stage)
    blocks, parameters = tally(chunks), training.parameters(stage)
    recipe, sharded = data.recipe, data.sharded
    kinds = ((recipe.weight, Sharded.PARAMETERS), (recipe.gradient, Sharded.GRADIENTS), (recipe.state, Sharded.OPTIMIZER))
    weights, gradients, states = (
        sharded_bytes(parameters, word, data.ranks if sharded >= least else 1) for word, least in kinds
    )
    distinct = {id(chunk): chunk for chunk in chunks}
    kept = {key: total([times * block.activation for block, times in tally((chunk,))]) for key, chunk in distinct.items()}
    whole = total(word for word, least in kinds[:2] if sharded >= least)
    most = longest([block.parameters for block, _ in blocks]) * min(sum(times for _, times in blocks), 2)
    working = longest([block.working for block, _ in blocks]) + whole * most
    here, away = (states, 0.0) if training.optimizer.offload is None else (0.0, states)
    activations = np.stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(kept[id(chunk)], np.float64)) for chunk in chunks)))
    return (weights, gradients, here, working, away), activations


@lru_cache(maxsize=1 << 14)
def in_flight(pipeline: Pipeline, stage: int) -> Integers:
    """[moments, chunks] microbatches whose activations a stage keeps of each of its chunks, at every distinct moment that
    could be the fullest.

    >>> in_flight(Pipeline(2, 8, 2), 0).tolist()
    [[3, 2], [4, 1]]
    >>> in_flight(Pipeline(4, 8), 1).tolist()
    [[3]]
    """
    spare = pipeline.microbatches // pipeline.stages - SHORT_GROUPS
    if spare > 0 and pipeline.schedule is Schedule.ONE_FORWARD_ONE_BACKWARD:
        # between the first and the last groups of microbatches, moments are those of a group before
        pipeline = replace(pipeline, microbatches=pipeline.microbatches - spare * pipeline.stages)
    return _in_flight(pipeline, stage)


@lru_cache(maxsize=4096)
def _in_flight(pipeline: Pipeline, stage: int) -> Integers:
    """The same, all microbatches walked through."""
    passes, warmup = pipeline.microbatches * pipeline.chunks, pipeline.warmup(stage)
    forward = np.eye(pipeline.chunks, dtype=np.int64)[order(pipeline).chunk]
    ahead = np.cumsum(forward, axis=0)
    # backward passes take the chunks the other way round
    behind = np.vstack((np.zeros((1, pipeline.chunks), dtype=np.int64), np.cumsum(forward[:, ::-1], axis=0)))
    # before the first backward pass it only fills up; then one goes for one that comes
    moments = np.arange(min(warmup, passes - 1), passes)
    return np.unique(ahead[moments] - behind[np.maximum(moments - warmup, 0)], axis=0)


def check_memory(
    training: Training,
    capacity: float,
    name: str = "memory",
    second: float | None = None,
    alternatives: Mapping[str, Training] | None = None,
) -> Memory:
    """The memory of one plan that fits.

    ``capacity`` [B] of the chip's memory, called ``name``; ``second`` [B] of the tier that offloaded states go to.
    ``alternatives``: other plans by what they change, the smallest change first; sharding more is tried before them.

    Raises Infeasible: the stage that needs most, with its breakdown, and the first change that fits or else the best one.
    """
    found = memory(training)
    faults = []
    if found.peak.max() > capacity:
        changes = {**dict(_sharding_more(training)), **(alternatives or {})}
        needs = {words: float(memory(change).peak.max()) for words, change in changes.items()}
        faults.append(_over(found, capacity, name, _remedy(needs, capacity)))
    if second is not None and found.offloaded.max() > second:
        stage = int(found.offloaded.max(axis=1).argmax())
        got = f"{format_bytes(float(found.offloaded.max()))} of the optimizer's state"
        remedy = "shard the optimizer over more ranks, or offload nothing"
        faults.append(Fault(f"second tier of {name}, stage {stage}", f"at most {format_bytes(second)}", got, remedy))
    if faults:
        raise Infeasible(faults)
    return found


def _over(found: Memory, capacity: float, name: str, remedy: str) -> Fault:
    stage = int(found.total.max(axis=1).argmax())
    parts = sorted(((float(part[stage].max()), word) for word, part in found.breakdown().items()), reverse=True)
    listed = ", ".join(f"{word} {format_bytes(size)}" for size, word in parts if size)
    got = f"{format_bytes(float(found.peak.max()))} ({listed})"
    return Fault(f"{name}, chip of stage {stage}", f"at most {format_bytes(capacity)}", got, remedy)


def _sharding_more(training: Training) -> Iterator[tuple[str, Training]]:
    """Plans that share out more over the same data-parallel ranks, the smallest change first."""
    if np.max(training.data.ranks) > 1:
        for sharded in Sharded:
            if sharded > training.data.sharded:
                words = f"shard {SHARES[sharded]} over the data-parallel ranks"
                yield words, replace(training, data=replace(training.data, sharded=sharded))


def _remedy(needs: Mapping[str, float], capacity: float) -> str:
    """Names the first change that fits, or the one that helps most."""
    if not needs:
        return "take more tensor-parallel ranks or stages, smaller microbatches, or recompute activations"
    fitting = next(((words, size) for words, size in needs.items() if size <= capacity), None)
    if fitting:
        return f"{fitting[0]}, which takes {format_bytes(fitting[1])}"
    best = min(needs, key=lambda words: needs[words])
    return f"no single change fits; the best is to {best}, which takes {format_bytes(needs[best])}"
