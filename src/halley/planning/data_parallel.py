"""Data parallelism: what is sharded over the ranks, and when its collectives hold up the work.

The ranks of a stage share one network, apart from those of tensor parallelism and of the pipeline, whose collectives are part
of the blocks' times. A block is a run of layers whose parameters are gathered, and whose gradients are reduced, at once (a
bucket).

    sharded      each backward pass           after the last microbatch          after the optimizer step
    nothing                                   all-reduce of gradients
    optimizer                                 reduce-scatter of gradients        all-gather of parameters
    gradients    reduce-scatter               (the last of these)                all-gather of parameters
    parameters   all-gather, reduce-scatter   (the last of these)
                 (forward: all-gather)

Reductions run beside the backward work of the blocks that follow; what is left after it is exposed. Collectives of one pass do
not run beside the next pass: the first gather and the last scatter of each are exposed. Work is not slowed by collectives
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number
from halley.formulas.timing import longest, total
from halley.formulas.training import drained_time, prefetched_time, sharded_backward_time
from halley.ir.mapping import CollectiveKind
from halley.planning.schedule import Pipeline, deal

CollectiveTime = Callable[[CollectiveKind, Number], Number]
"""Time [s] of a collective over the data-parallel ranks, by kind and payload [B]: the whole vector of one rank (all-reduce),
the whole gathered or unreduced vector (all-gather, reduce-scatter). Numbers and arrays alike."""


class Sharded(IntEnum):
    """What data-parallel ranks share out instead of keeping a copy each; the numbers are the stages of ZeRO."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter: ``weight`` and ``gradient`` as passes use them, ``state`` of the optimizer (master weight among
    it)."""

    weight: int
    gradient: int
    state: int


RECIPES: dict[str, Recipe] = {
    "mixed-adam": Recipe(2, 2, 12),  # Rajbhandari et al. (ZeRO), SC 2020: 16 bytes
    "mixed-adam-fp32-gradients": Recipe(2, 4, 12),  # Megatron-LM: gradients accumulate in fp32
    "fp32-adam": Recipe(4, 4, 8),  # Kingma and Ba, ICLR 2015: two moments; the weight is its own master
}


def recipe(name: str) -> Recipe:
    """A recipe by name.

    >>> recipe("fp32-adam").state
    8

    Raises BadInput: there is none of that name.
    """
    if name not in RECIPES:
        raise BadInput(Fault("recipe of the optimizer", "a known one", repr(name), did_you_mean(name, RECIPES)))
    return RECIPES[name]


@dataclass(frozen=True, slots=True)
class Block:
    """Layers as one chip runs them for one microbatch: ``forward``, ``backward`` [s], ``recompute`` [s] of forward work before
    the backward pass; ``parameters`` [1] on the chip (before sharding over data-parallel ranks); ``activation`` [B] kept from
    the forward pass to the backward pass; ``working`` [B] needed only while a pass is at work (recomputed activations too)."""

    forward: Number
    backward: Number
    recompute: Number = 0.0
    parameters: Number = 0.0
    activation: Number = 0.0
    working: Number = 0.0

    @property
    def behind(self) -> Number:
        """All work of the backward pass [s]."""
        return self.recompute + self.backward


Blocks = Sequence[Block]


def buckets(layers: Blocks, size: int) -> tuple[Block, ...]:
    """Layers merged into blocks of ``size``, counted from the end as gradients come: the first block may be smaller.

    >>> [block.forward for block in buckets([Block(1, 2), Block(3, 4), Block(5, 6)], 2)]
    [1, 8]

    Raises BadInput: no layers, or a size below 1.
    """
    if size < 1 or not layers:
        got = f"{len(layers)} layers, {size} in a bucket"
        raise BadInput(Fault("buckets of layers", "layers, and at least 1 in a bucket", got, "take at least 1 of each"))
    first = len(layers) % size or size
    starts = [0, *range(first, len(layers), size), len(layers)]
    groups = [layers[start:stop] for start, stop in pairwise(starts)]
    return tuple(_merged(group) for group in groups)


def dealt_out(
    layers: Blocks, pipeline: Pipeline, first: Blocks = (), last: Blocks = (), bucket: int = 1
) -> tuple[tuple[Block, ...], ...]:
    """A stack of layers over the chunks of a pipeline, contiguous and as evenly as can be (`halley.planning.schedule.deal`), then
    merged into buckets; ``first`` (embedding) and ``last`` (head, loss) go to the ends.

    >>> [len(chunk) for chunk in dealt_out([Block(1, 2)] * 10, Pipeline(4, 8), first=[Block(0.1, 0.2)])]
    [3, 3, 3, 2]

    Raises BadInput: fewer layers than chunks.
    """
    counts = deal(len(layers), pipeline.last + 1)
    ends = list(accumulate(counts))
    stack = [list(layers[end - count : end]) for count, end in zip(counts, ends, strict=True)]
    stack[0] = [*first, *stack[0]]
    stack[-1] = [*stack[-1], *last]
    return tuple(buckets(chunk, bucket) for chunk in stack)


def _merged(layers: Blocks) -> Block:
    """Layers one after the other: all adds up but the memory that each needs only while it is at work."""
    return Block(
        forward=total([layer.forward for layer in layers]),
        backward=total([layer.backward for layer in layers]),
        recompute=total([layer.recompute for layer in layers]),
        parameters=total([layer.parameters for layer in layers]),
        activation=total([layer.activation for layer in layers]),
        working=longest([layer.working for layer in layers]),
    )


@dataclass(frozen=True, slots=True)
class DataParallel:
    """``ranks`` [1], a number or an array over plans; what is ``sharded``; the collectives' ``time``."""

    ranks: Number
    sharded: Sharded
    time: CollectiveTime
    recipe: Recipe

    def gather(self, block: Block) -> Number:
        """All-gather of a block's parameters [s]."""
        return self.time(CollectiveKind.ALL_GATHER, self.recipe.weight * block.parameters)

    def reduction(self, block: Block) -> Number:
        """All-reduce of a block's gradients, or reduce-scatter where each rank updates its share [s]."""
        kind = CollectiveKind.ALL_REDUCE if self.sharded is Sharded.NOTHING else CollectiveKind.REDUCE_SCATTER
        return self.time(kind, self.recipe.gradient * block.parameters)

    def passes(self, blocks: Blocks) -> tuple[Number, Number]:
        """Forward and backward pass of one microbatch [s], with what their collectives add."""
        ahead, behind = [block.forward for block in blocks], [block.behind for block in reversed(blocks)]
        if self.sharded is Sharded.PARAMETERS:
            gathers = [self.gather(block) for block in blocks]
            scatters = [self.reduction(block) for block in reversed(blocks)]
            return prefetched_time(gathers, ahead), sharded_backward_time(gathers[::-1], behind, scatters)
        if self.sharded is Sharded.GRADIENTS:
            return total(ahead), drained_time(list(accumulate(behind)), [self.reduction(block) for block in reversed(blocks)])
        return total(ahead), total(behind)

    def reduced(self, chunks: Sequence[Blocks], last_backward: Sequence[Number]) -> Number:
        """When a stage's gradients are summed over the ranks, for its chunks and the ends of their last backward passes [s]."""
        if self.sharded >= Sharded.GRADIENTS:
            return last_backward[0]
        ready: list[Number] = []
        reductions: list[Number] = []
        for blocks, end in zip(reversed(chunks), reversed(last_backward), strict=True):
            following = [0.0, *accumulate(block.behind for block in blocks[:-1])]
            ready += [end - work for work in reversed(following)]
            reductions += [self.reduction(block) for block in reversed(blocks)]
        return drained_time(ready, reductions)

    def gathered_after(self, chunks: Sequence[Blocks]) -> Number:
        """All-gathers of a stage's updated parameters after the optimizer step [s]."""
        if self.sharded in (Sharded.NOTHING, Sharded.PARAMETERS):
            return 0.0
        return total([self.gather(block) for blocks in chunks for block in blocks])
