"""Lower bounds of the iteration times of all plans of a space at once.

They only use lower bounds of the model's parts, so they hold for every sharding. A stage waits for its first input, does all of
its work, and its last gradient travels back to the first stage, which then reduces gradients and runs the optimizer. Four
stages are evaluated: the first, the last two and the one with most layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.formulas.training import contended_time
from halley.pipeline.data_parallel import DataParallel, Recipe, Sharded
from halley.pipeline.iteration import Optimizer
from halley.pipeline.schedule import layers_before, layers_per_chunk

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PipelineShapes:
    """Distribution of ``layers`` [kinds] over pipelines, by number of the pipeline. For four stages each, the first one first:
    ``stage`` [pipelines, 4], its number; ``own`` [pipelines, 4, kinds], its layers; ``before`` [pipelines, 4, kinds], layers
    before its first chunk. ``opening`` [pipelines, kinds]: layers of the first chunk; ``least`` [pipelines, kinds]: least
    layers of any stage but the last."""

    layers: Integers
    stage: Integers
    own: Integers
    before: Integers
    opening: Integers
    least: Integers

    def of(self, pipelines: Integers) -> PipelineShapes:
        """The rows of some pipelines."""
        return PipelineShapes(
            self.layers,
            *(each[pipelines] for each in (self.stage, self.own, self.before, self.opening, self.least)),
        )


@lru_cache(maxsize=65536)
def _shape(kinds: tuple[int, ...], stages: int, chunks: int) -> tuple[Integers, ...]:
    """One pipeline's row of `PipelineShapes`; ``kinds``: layers of each kind, in the order of the model."""
    passed = layers_before(kinds, layers_per_chunk(sum(kinds), stages * chunks))
    held = np.diff(passed, axis=0)
    own = held.reshape(chunks, stages, len(kinds)).sum(axis=0)
    middle = own[: stages - 1].sum(axis=1)
    most = stages - 2 - int(middle[::-1].argmax()) if stages > 1 else 0
    stage = np.array([0, most, max(stages - 2, 0), stages - 1])
    least = own[: stages - 1].min(axis=0) if stages > 1 else own[0]
    return stage, own[stage], passed[stage], held[0], least


def pipeline_shapes(kinds: tuple[int, ...], pipelines: list[tuple[int, int]]) -> PipelineShapes:
    """`PipelineShapes` of pipelines, each given by stages and chunks per stage."""
    return PipelineShapes(
        np.array(kinds), *(np.stack(rows) for rows in zip(*(_shape(kinds, *each) for each in pipelines), strict=True))
    )


@dataclass(frozen=True, slots=True)
class PlanRows:
    """Plans with one option, to be bounded. Per plan [plans]: ``data`` ranks, ``stages``, ``chunks``, ``microbatches``,
    ``gpipe`` (1 or 0), ``transfer`` [s]: lower bound of an activation to the next stage and its gradient back. Lower bounds
    per plan and part of the model (embedding, kinds of layers, head) [plans, parts]: ``work`` [s] of a microbatch forward
    and backward; ``parameters`` [1] of a chip; ``gather`` of parameters and ``reduction`` of gradients over data-parallel
    ranks [s]. ``shape``: of the plans' pipelines."""

    data: Integers
    stages: Integers
    chunks: Integers
    microbatches: Integers
    gpipe: Integers
    transfer: Floats
    work: Floats
    parameters: Floats
    gather: Floats
    reduction: Floats
    shape: PipelineShapes

    def of_stages(self, part: Floats) -> Floats:
        """[plans, 4] a quantity of the parts, summed over all that a stage has."""
        found = (self.shape.own * part[:, None, 1:-1]).sum(axis=2)
        return np.asarray(found + self._first * part[:, :1] + self._last * part[:, -1:])

    def of_model(self, part: Floats) -> Floats:
        """[plans] a quantity of the parts, summed over the model."""
        return np.asarray(part[:, 0] + part[:, 1:-1] @ self.shape.layers + part[:, -1])

    @property
    def _first(self) -> NDArray[np.bool_]:
        return np.asarray(self.shape.stage == 0)

    @property
    def _last(self) -> NDArray[np.bool_]:
        return np.asarray(self.shape.stage == (self.stages - 1)[:, None])


def least_time(rows: PlanRows, sharded: Sharded, optimizer: Optimizer, recipe: Recipe, contention: float = 0.0) -> Floats:
    """[plans] lower bound of an iteration [s]; ``contention``: share of the chip that collectives of each pass take."""
    passes = _passes(rows, sharded, contention)
    done = _done(rows, passes)
    if sharded < Sharded.GRADIENTS:
        done = done + _exposed(rows)
    # after the passes of the first stage
    parameters = rows.of_stages(rows.parameters)[:, 0]
    data = DataParallel(rows.data.astype(np.float64), sharded, lambda kind, payload: 0.0, recipe)
    after = optimizer.step_time(data, parameters)
    if optimizer.clipping:
        after = after + optimizer.norm_time(data, parameters) + optimizer.norm_reduction
    if sharded in (Sharded.OPTIMIZER, Sharded.GRADIENTS):
        after = after + rows.of_stages(rows.gather)[:, 0]
    return np.asarray(done + after)


def least_work_time(rows: PlanRows) -> Floats:
    """[plans] lower bound of an iteration [s] for any sharding over data-parallel ranks, and with or without offloading."""
    return _done(rows, rows.of_stages(rows.work))


def _passes(rows: PlanRows, sharded: Sharded, contention: float) -> Floats:
    """[plans, 4] all passes of one microbatch on a stage, with their exposed collectives."""
    work = rows.of_stages(rows.work)
    if sharded < Sharded.GRADIENTS:
        return work
    # the block with the shortest collectives is the first of each chunk
    scatter, gather = rows.reduction.min(axis=1), rows.gather.min(axis=1)
    chunks = rows.chunks[:, None]
    if sharded is Sharded.GRADIENTS:
        busy = rows.of_stages(rows.reduction)
        return np.asarray(np.maximum(contended_time(work, busy, contention) + chunks * scatter[:, None], busy))
    ends, busy = chunks * (2 * gather + scatter)[:, None], rows.of_stages(rows.reduction + 2 * rows.gather)
    return np.asarray(np.maximum(contended_time(work, busy, contention) + ends, busy))


def _done(rows: PlanRows, passes: Floats) -> Floats:
    """[plans] when the first stage has finished its passes."""
    shape, count = rows.shape, rows.microbatches[:, None]
    embedding = np.where(rows._first, 0.0, rows.work[:, :1])
    travel = (shape.before * rows.work[:, None, 1:-1]).sum(axis=2) + embedding + shape.stage * rows.transfer[:, None]
    found = (travel + count * passes).max(axis=1)
    # one microbatch through all chunks
    chain = rows.of_model(rows.work) + (rows.stages * rows.chunks - 1) * rows.transfer
    flow = np.where(rows.gpipe == 1, chain + (rows.microbatches - 1) * passes.max(axis=1), chain)
    alternating = (rows.gpipe == 0) & (rows.chunks == 1)
    return np.asarray(np.maximum(np.maximum(found, flow), np.where(alternating, _round_trips(rows, chain), 0.0)))


def _round_trips(rows: PlanRows, chain: Floats) -> Floats:
    """[plans] 1F1B: microbatches wait for round trips of earlier ones, the last ones for trips over the last stages.

    .. math:: T \\ge (1 + n) L_S + L_r, \\quad m - 1 = n S + r

    Symbols: m [1] microbatches, S [1] stages, L_k [s] a round trip over the last k stages, after which the first of them starts
    the microbatch that is k later; here with the least work of any stage for all but the last. Source: a path of the schedule's
    event graph.
    """
    whole, rest = np.divmod(rows.microbatches - 1, rows.stages)
    last = rows.of_stages(rows.work)[:, 3]
    each = (rows.shape.least * rows.work[:, 1:-1]).sum(axis=1) + rows.transfer
    return np.asarray((1 + whole) * chain + np.where(rest > 0, last + (rest - 1) * each, 0.0))


def _exposed(rows: PlanRows) -> Floats:
    """[plans] exposed reductions of the first stage after its passes: at least that of the first block, and those of its first
    chunk less the work after its first gradient."""
    opening = rows.shape.opening
    layers = (opening * rows.reduction[:, 1:-1]).sum(axis=1)
    # the first gradient is ready after the chunk's last block; at most the work of all other blocks follows
    work = (opening * rows.work[:, 1:-1]).sum(axis=1)
    alone = rows.stages == 1
    layers = layers + np.where(alone, rows.reduction[:, -1], 0.0)
    work = work + np.where(alone, rows.work[:, -1], 0.0) + rows.work[:, 0]
    return np.asarray(np.maximum(rows.reduction[:, 0], layers + rows.reduction[:, 0] - work))
