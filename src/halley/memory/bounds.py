"""What plans keep in memory at least, many at once: the moments of each pipeline, and what parts of the model take at least.

What a stage holds and what its schedule keeps are counts of parts, which no sharding changes. So the memory of
`halley.memory.peak` with parts that take the least is a bound of all shardings; with those of one sharding it is its own.
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
from halley.memory.peak import kept
from halley.pipeline.data_parallel import Recipe, Sharded
from halley.pipeline.schedule import Pipeline, deal, parts_of_chunks, shortened

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ROUNDING = 1e-12
"""Relative difference of sizes that is put down to rounding."""


class Moments(NamedTuple):
    """Moments at which some stage of a pipeline may need most, [moments, parts]: how many parts of each kind the stage has
    (``held``), embedding, kinds of layers, head, and of how many its schedule keeps the activations (``kept``)."""

    held: Integers
    kept: Integers


def moments(pipeline: Pipeline, kinds: tuple[int, ...]) -> Moments:
    """Those of a model with ``kinds`` of layers, as they are distributed. Of stages with the same parts only the first is looked
    at: it runs ahead furthest, so that what it keeps at some moment is no less than what the others keep at any.

    >>> found = moments(Pipeline(2, 8), (1, 4))
    >>> found.held.tolist(), found.kept.tolist()
    ([[1, 1, 2, 0], [0, 0, 2, 1]], [[2, 2, 4, 0], [0, 0, 2, 1]])
    """
    # a group of microbatches that is left out has the moments of the one before
    return _moments(shortened(pipeline)[0], kinds)


@lru_cache(maxsize=1 << 12)
def _moments(pipeline: Pipeline, kinds: tuple[int, ...]) -> Moments:
    stages = pipeline.stages
    parts = parts_of_chunks(kinds, deal(sum(kinds), pipeline.last + 1))
    firsts: dict[bytes, int] = {}
    for stage in range(stages):
        firsts.setdefault(parts[stage::stages].tobytes(), stage)
    held, most = list[Integers](), list[Integers]()
    for stage in firsts.values():
        own = parts[stage::stages]
        rows = _largest(kept(pipeline, stage, own))
        most.append(rows)
        held.append(np.broadcast_to(own.sum(axis=0), rows.shape))
    return Moments(np.concatenate(held), np.concatenate(most))


def _largest(rows: Integers) -> Integers:
    """The rows that are not below another in every column."""
    most: Integers = rows.max(axis=0)
    if (rows == most).all(axis=1).any():
        return most[None]
    found = np.unique(rows, axis=0)
    below = (found[:, None] <= found).all(axis=2).sum(axis=1) > 1
    return np.asarray(found[~below])


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """What parts take at least, [plans, parts]: ``parameters`` [1] of a chip, ``activation`` and ``working`` [B]."""

    parameters: Floats
    activation: Floats
    working: Floats


def least_memory(
    pipelines: Sequence[Moments], data: Integers, sizes: Sizes, sharded: Sharded, offload: bool, recipe: Recipe
) -> Floats:
    """[plans] bytes that a chip of some stage needs at its peak, at least: of plans with these ``pipelines`` and ``data`` ranks.

    >>> from halley.pipeline.data_parallel import RECIPES
    >>> found = moments(Pipeline(2, 5), (2,))
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
    gathered = sum(word for word, least in recipe.shares[:2] if sharded >= least)
    several = np.minimum(held.sum(axis=1), 2) * np.where(held > 0, parameters, 0.0).max(axis=1)
    peak = states + (most * sizes.activation[plan]).sum(axis=1) + working.max(axis=1) + gathered * several
    return np.asarray(np.maximum.reduceat(peak, np.cumsum([0, *counts[:-1]])) * (1 - ROUNDING))
