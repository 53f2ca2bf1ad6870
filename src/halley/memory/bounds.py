"""Lower bounds of the memory of many plans at once, from the moments at which a pipeline's memory may peak.

The number of parts that a stage holds, and the number whose activations its schedule holds, do not depend on the sharding. So
the memory of `halley.memory.peak` with the smallest sizes of each part is a lower bound over all shardings; with the sizes of
one sharding it is that sharding's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.formulas.timing import total
from halley.formulas.training import sharded_bytes
from halley.memory.peak import saved_at_moments
from halley.pipeline.data_parallel import Recipe, Sharded
from halley.pipeline.schedule import TrainingPipeline, layers_per_chunk, parts_of_chunks, without_repeats

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RELATIVE_ROUNDING = 1e-12
"""Relative difference of sizes that counts as rounding."""


class PeakMoments(NamedTuple):
    """Moments at which the memory of some stage may peak, [moments, parts], with parts embedding, kinds of layers, head.
    ``held``: number of parts of each kind on the stage; ``saved``: number of parts whose activations are saved."""

    held: Integers
    saved: Integers


def peak_moments(pipeline: TrainingPipeline, kinds: tuple[int, ...]) -> PeakMoments:
    """The moments of a model with ``kinds`` of layers, distributed as evenly as possible. Of stages with the same parts only
    the first is considered: it runs furthest ahead, so it holds the most activations.

    >>> found = peak_moments(TrainingPipeline(2, 8), (1, 4))
    >>> found.held.tolist(), found.saved.tolist()
    ([[1, 1, 2, 0], [0, 0, 2, 1]], [[2, 2, 4, 0], [0, 0, 2, 1]])
    """
    # a repeated group of microbatches has the same moments as the one before
    return _moments(without_repeats(pipeline)[0], kinds)


@lru_cache(maxsize=1 << 12)
def _moments(pipeline: TrainingPipeline, kinds: tuple[int, ...]) -> PeakMoments:
    stages = pipeline.stages
    parts = parts_of_chunks(kinds, layers_per_chunk(sum(kinds), pipeline.last + 1))
    firsts: dict[bytes, int] = {}
    for stage in range(stages):
        firsts.setdefault(parts[stage::stages].tobytes(), stage)
    held, most = list[Integers](), list[Integers]()
    for stage in firsts.values():
        own = parts[stage::stages]
        rows = _largest(saved_at_moments(pipeline, stage, own))
        most.append(rows)
        held.append(np.broadcast_to(own.sum(axis=0), rows.shape))
    return PeakMoments(np.concatenate(held), np.concatenate(most))


def _largest(rows: Integers) -> Integers:
    """The rows that no other row exceeds in every column."""
    most: Integers = rows.max(axis=0)
    if (rows == most).all(axis=1).any():
        return most[None]
    found = np.unique(rows, axis=0)
    below = (found[:, None] <= found).all(axis=2).sum(axis=1) > 1
    return np.asarray(found[~below])


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Smallest sizes of parts [plans, parts]: ``parameters`` [1] of a chip, ``activation`` and ``working`` [B]."""

    parameters: Floats
    activation: Floats
    working: Floats


def least_memory(
    pipelines: Sequence[PeakMoments], data: Integers, sizes: Sizes, sharded: Sharded, offload: bool, recipe: Recipe
) -> Floats:
    """[plans] [B] lower bound of the peak memory of a chip, over the stages, of plans with these ``pipelines`` and ``data``
    ranks.

    >>> from halley.pipeline.data_parallel import RECIPES
    >>> found = peak_moments(TrainingPipeline(2, 5), (2,))
    >>> none, layer = np.zeros((1, 3)), np.array([[0.0, 1.0, 0.0]])
    >>> given = Sizes(1000.0 * layer, 400.0 * layer, none)
    >>> least_memory([found], np.array([1]), given, Sharded.NOTHING, False, RECIPES["mixed-adam"]).round().tolist()
    [16800.0]
    """
    counts = [len(each.held) for each in pipelines]
    plan = np.repeat(np.arange(len(counts)), counts)
    held, most = (np.concatenate(each) for each in zip(*pipelines, strict=True))
    parameters, working = sizes.parameters[plan], np.where(held > 0, sizes.working[plan], 0.0)
    ranks, whole = data[plan].astype(np.float64), (held * parameters).sum(axis=1)
    states = total([sharded_bytes(whole, word, ranks if sharded >= least else 1.0) for word, least in recipe.resident(offload)])
    gathered = sum(word for word, least in recipe.sharded_from[:2] if sharded >= least)
    several = np.minimum(held.sum(axis=1), 2) * np.where(held > 0, parameters, 0.0).max(axis=1)
    peak = states + (most * sizes.activation[plan]).sum(axis=1) + working.max(axis=1) + gathered * several
    return np.asarray(np.maximum.reduceat(peak, np.cumsum([0, *counts[:-1]])) * (1 - RELATIVE_ROUNDING))
