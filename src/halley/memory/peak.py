"""Peak memory of a chip in an iteration, by content; and what to change where it does not fit.

    weights       parameters as passes use them; divided where parameters are sharded
    gradients     divided where gradients are sharded
    states        of the optimizer; divided where anything is sharded; not in this memory where they are offloaded
    activations   the most that the schedule holds at once, over all chunks of the stage
    working       of the running pass; and what is temporarily whole although it is stored sharded: the weights of two
                  blocks (one in use, one prefetched), the gradients of two (one computed, one scattered)

The activations of a schedule are exact, chunk by chunk. Not modelled: fragmentation, buffers of libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.formulas.timing import total
from halley.formulas.training import sharded_bytes
from halley.pipeline.block_counts import BlockCounts, summed
from halley.pipeline.iteration import PipelinedTraining
from halley.pipeline.schedule import Integers, TrainingPipeline, pass_order, without_repeats

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Peak memory [B] of one chip of each stage, arrays [stages, plans]. ``offloaded``: in the second tier of memory."""

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
        """[plans] the largest total of a stage."""
        return np.asarray(self.total.max(axis=0))


def training_memory(training: PipelinedTraining) -> TrainingMemory:
    """The peak memory of a training plan on a chip of each stage.

    >>> from halley.pipeline.data_parallel import RECIPES, DataParallel, LayerBlock, Sharded
    >>> from halley.pipeline.iteration import Optimizer
    >>> alone = DataParallel(1, Sharded.NOTHING, lambda kind, payload: 0.0, RECIPES["mixed-adam"])
    >>> layer = LayerBlock(2.0, 3.0, parameters=1000, activation=400)
    >>> found = training_memory(PipelinedTraining(TrainingPipeline(2, 5), [[layer], [layer]], alone, Optimizer(1e9)))
    >>> found.total.tolist(), found.activations.tolist()
    ([[16800.0], [16400.0]], [[800.0], [400.0]])
    """
    data, made, recipe = training.data, training.distinct[2], training.data.recipe
    parameters, activation, working = training.sizes.transpose(1, 0, 2)
    whole = summed(made.held, parameters)
    shares = ((word, data.ranks if data.sharded >= least else 1) for word, least in recipe.sharded_from)
    weights, gradients, states = (np.asarray(sharded_bytes(whole, word, ranks)) for word, ranks in shares)
    gathered = total([word for word, least in recipe.sharded_from[:2] if data.sharded >= least])
    held = (made.held > 0)[:, :, None]
    few = np.minimum(made.held.sum(axis=1), 2)[:, None]
    moment = (held * working).max(axis=1) + gathered * few * (held * parameters).max(axis=1)
    moments, starts = _moments(training.pipeline, made)
    activations = np.maximum.reduceat(summed(moments, activation), starts, axis=0)
    away = np.zeros_like(states)
    here, there = (states, away) if training.optimizer.offload is None else (away, states)
    stages = (each[made.kind] for each in (weights, gradients, here, moment, there))
    activations, weights, gradients, here, moment, there = np.broadcast_arrays(activations, *stages)
    return TrainingMemory(weights, gradients, here, activations, moment, there)


@lru_cache(maxsize=1024)
def _moments(pipeline: TrainingPipeline, made: BlockCounts) -> tuple[Integers, Integers]:
    """[moments, distinct blocks] number of saved activations of each block at every distinct moment that may be the peak, stage
    by stage; and the first row of each stage."""
    # a repeated group of microbatches has the same moments as the one before
    pipeline, chunks = without_repeats(pipeline)[0], made.chunk.reshape(pipeline.chunks, pipeline.stages)
    sums = [_running(pipeline, made.blocks[chunks[:, first]]) for first in made.firsts]
    found = []
    for stage, kind in enumerate(made.kind.tolist()):
        rows = _saved(pipeline, stage, *sums[kind])
        # rows compared as bytes, many times faster than number by number
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
        found.append(rows[np.unique(whole, return_index=True)[1]])
    ends = np.cumsum([len(each) for each in found])
    return np.concatenate(found), np.concatenate(([0], ends[:-1]))


@lru_cache(maxsize=4096)
def in_flight(pipeline: TrainingPipeline, stage: int) -> Integers:
    """[moments, chunks] microbatches whose activations a stage holds for each of its chunks, at every distinct moment that may
    be the peak.

    >>> in_flight(TrainingPipeline(2, 8, 2), 0).tolist()
    [[3, 2], [4, 1]]
    >>> in_flight(TrainingPipeline(4, 8), 1).tolist()
    [[3]]
    """
    return np.unique(saved_at_moments(pipeline, stage, np.eye(pipeline.chunks, dtype=np.int64)), axis=0)


def saved_at_moments(pipeline: TrainingPipeline, stage: int, chunks: Integers) -> Integers:
    """[moments, columns] what a stage holds at every moment that may be the peak; ``chunks`` [chunks of the stage, columns]:
    what a pass through each of them saves.

    >>> saved_at_moments(TrainingPipeline(2, 5), 0, np.array([[3, 1]]))[0].tolist()
    [6, 2]
    """
    pipeline, _ = without_repeats(pipeline)
    return _saved(pipeline, stage, *_running(pipeline, chunks))


def _running(pipeline: TrainingPipeline, chunks: Integers) -> tuple[Integers, Integers]:
    """[passes + 1, columns] what the forward passes of a stage have saved, and its backward passes released, after each of
    them; ``chunks`` [chunks of the stage, columns]: what a pass saves."""
    forward = pass_order(pipeline).chunk
    # backward passes take the chunks in reverse order
    ahead, behind = np.zeros((2, len(forward) + 1, chunks.shape[1]), np.int64)
    np.cumsum(chunks[forward], axis=0, out=ahead[1:])
    np.cumsum(chunks[::-1][forward], axis=0, out=behind[1:])
    return ahead, behind


def _saved(pipeline: TrainingPipeline, stage: int, ahead: Integers, behind: Integers) -> Integers:
    """[moments, columns] what a stage holds."""
    passes = len(ahead) - 1
    # it only grows before the first backward pass; then each forward pass alternates with a backward pass
    warmup = min(pipeline.warmup(stage), passes - 1)
    return ahead[warmup + 1 :] - behind[: passes - warmup]
