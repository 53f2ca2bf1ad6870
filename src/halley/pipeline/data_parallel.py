"""Data parallelism: what is sharded over the ranks, and which of its collectives are exposed.

The data-parallel ranks of a stage share one network. Tensor parallelism and the pipeline have networks of their own; the
collectives of tensor parallelism are part of the blocks' times. A block is a run of layers whose parameters are gathered, and
whose gradients are reduced, together.

    sharded      each backward pass           after the last microbatch          after the optimizer step
    nothing                                   all-reduce of gradients
    optimizer                                 reduce-scatter of gradients        all-gather of parameters
    gradients    reduce-scatter               (the last of these)                all-gather of parameters
    parameters   all-gather, reduce-scatter   (the last of these)
                 (forward: all-gather)

Reductions overlap with the backward work of the following blocks; what remains after it is exposed. Collectives of one pass do
not overlap with the next pass, so the first gather and the last scatter of each pass are exposed. Collectives of each pass may
take a share of the chip from the work beside them (``contention``); those after the last microbatch do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, groupby

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.formulas.training import contended_time, drained_time, prefetched_time, sharded_backward_time
from halley.ir.mapping import CollectiveKind
from halley.pipeline.schedule import TrainingPipeline, layers_per_chunk

CollectiveTime = Callable[[CollectiveKind, Number], Number]
"""Time [s] of a collective over the data-parallel ranks, by kind and payload [B]: the whole vector of one rank (all-reduce),
the whole gathered or unreduced vector (all-gather, reduce-scatter). Accepts numbers and arrays."""


class Sharded(IntEnum):
    """What is sharded over the data-parallel ranks instead of replicated; the numbers are the stages of ZeRO."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3

    def owners(self, ranks: Number) -> Number:
        """How many of the data-parallel ranks divide the update of a parameter; 1 means that every rank computes it."""
        return 1 if self is Sharded.NOTHING else ranks


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter: ``weight`` and ``gradient`` as passes use them; ``state`` of the optimizer, with the master weight."""

    weight: int
    gradient: int
    state: int

    @property
    def sharded_from(self) -> tuple[tuple[int, Sharded], ...]:
        """Bytes per parameter of weight, gradient and state, each with the stage of ZeRO from which it is sharded."""
        return (self.weight, Sharded.PARAMETERS), (self.gradient, Sharded.GRADIENTS), (self.state, Sharded.OPTIMIZER)

    def resident(self, offload: bool) -> tuple[tuple[int, Sharded], ...]:
        """Those of `sharded_from` that the chip itself holds: without the optimizer's state where it is offloaded."""
        return self.sharded_from[:2] if offload else self.sharded_from


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
        raise BadInput(Fault("optimizer", "a known one", repr(name), did_you_mean(name, RECIPES)))
    return RECIPES[name]


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """Layers as one chip runs them for one microbatch. ``forward``, ``backward`` [s]; ``recompute`` [s]: forward work repeated
    before the backward pass. ``parameters`` [1] on the chip, before sharding over data-parallel ranks. ``activation`` [B]
    saved from the forward to the backward pass; ``working`` [B] needed only during a pass, recomputed activations included."""

    forward: Number
    backward: Number
    recompute: Number = 0.0
    parameters: Number = 0.0
    activation: Number = 0.0
    working: Number = 0.0

    @property
    def backward_work(self) -> Number:
        """All work of the backward pass [s]."""
        return self.recompute + self.backward


LayerBlocks = Sequence[LayerBlock]

_KnownTime = tuple[LayerBlock, Number]
"""A block and the time of its collective. Keeping the block keeps its address from being used again."""


def layers_of_chunks(
    layers: LayerBlocks, pipeline: TrainingPipeline, first: LayerBlocks = (), last: LayerBlocks = ()
) -> tuple[LayerBlocks, ...]:
    """A stack of layers divided over the chunks of a pipeline, contiguous and as evenly as possible
    (`halley.pipeline.schedule.layers_per_chunk`). ``first`` (embedding) and ``last`` (head, loss) go to the first and the
    last chunk. Chunks of the same blocks are one object.

    >>> [len(chunk) for chunk in layers_of_chunks([LayerBlock(1, 2)] * 10, TrainingPipeline(4, 8), first=[LayerBlock(0.1, 0.2)])]
    [3, 3, 3, 2]

    Raises BadInput: fewer layers than chunks.
    """
    counts = layers_per_chunk(len(layers), pipeline.last + 1)
    known: dict[tuple[int, ...], LayerBlocks] = {}
    found = []
    for chunk, (end, count) in enumerate(zip(accumulate(counts), counts, strict=True)):
        ends = first if chunk == 0 else (), last if chunk == pipeline.last else ()
        blocks = (*ends[0], *layers[end - count : end], *ends[1])
        found.append(known.setdefault(tuple(map(id, blocks)), blocks))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DataParallel:
    """``ranks`` [1], a number or an array over plans; what is ``sharded``; ``time`` of the collectives. ``contention``: share of
    the chip that a collective takes from the kernels beside it."""

    ranks: Number
    sharded: Sharded
    time: CollectiveTime
    recipe: Recipe
    contention: float = 0.0
    _known: dict[tuple[CollectiveKind, int], _KnownTime] = field(default_factory=dict, init=False, repr=False, compare=False)

    def gather(self, block: LayerBlock) -> Number:
        """All-gather of a block's parameters [s]."""
        return self._time(CollectiveKind.ALL_GATHER, self.recipe.weight, block)

    def reduction(self, block: LayerBlock) -> Number:
        """All-reduce of a block's gradients, or reduce-scatter where each rank updates its own part [s]."""
        kind = CollectiveKind.ALL_REDUCE if self.sharded is Sharded.NOTHING else CollectiveKind.REDUCE_SCATTER
        return self._time(kind, self.recipe.gradient, block)

    def _time(self, kind: CollectiveKind, word: int, block: LayerBlock) -> Number:
        """Time of a collective of ``word`` bytes per parameter [s], computed once per block."""
        key = kind, id(block)
        if key not in self._known:
            self._known[key] = block, self.time(kind, word * block.parameters)
        return self._known[key][1]

    def forward(self, block: LayerBlock) -> Number:
        """Work of a block's forward pass beside its collectives [s]."""
        if not self.contention or self.sharded is not Sharded.PARAMETERS:
            return block.forward
        return contended_time(block.forward, self.gather(block), self.contention)

    def backward(self, block: LayerBlock) -> Number:
        """Work of a block's backward pass beside its collectives [s]."""
        if not self.contention or self.sharded < Sharded.GRADIENTS:
            return block.backward_work
        busy = self.reduction(block)
        if self.sharded is Sharded.PARAMETERS:
            busy = busy + self.gather(block)
        return contended_time(block.backward_work, busy, self.contention)

    def passes(self, blocks: LayerBlocks) -> tuple[Number, Number]:
        """Forward and backward pass of one microbatch [s], with the exposed time of their collectives."""
        if self.sharded is Sharded.PARAMETERS:
            return self._gathered_passes(blocks)
        counted = run_lengths(blocks)
        ahead = total([count * self.forward(block) for block, count in counted])
        if self.sharded is Sharded.GRADIENTS:
            return ahead, self._reduced_backward(blocks)[0]
        return ahead, total([count * self.backward(block) for block, count in counted])

    def _gathered_passes(self, blocks: LayerBlocks) -> tuple[Number, Number]:
        """Forward and backward pass of one microbatch with gathered parameters [s]."""
        gathers, scatters = [self.gather(block) for block in blocks], [self.reduction(block) for block in blocks]
        backward = sharded_backward_time(gathers[::-1], [self.backward(block) for block in reversed(blocks)], scatters[::-1])
        return prefetched_time(gathers, [self.forward(block) for block in blocks]), backward

    def _reduced_backward(self, blocks: LayerBlocks) -> tuple[Number, Number, Number]:
        """From the start of a backward pass [s]: when its gradients are reduced over the ranks, when its work ends; and the
        total time of its reductions."""
        end: Number = 0
        work: Number = 0
        busy: Number = 0
        for block, count in reversed(run_lengths(blocks)):
            behind, reduction = self.backward(block), self.reduction(block)
            end = drained_time(end, work + behind, behind, reduction, count)
            work, busy = work + count * behind, busy + count * reduction
        return end, work, busy

    def drain(self, blocks: LayerBlocks) -> tuple[Number, Number]:
        """How long after a chunk's last backward pass its gradients are reduced over the ranks if the network is otherwise
        idle; and the total time of these reductions [s]."""
        end, work, busy = self._reduced_backward(blocks)
        return end - work, busy

    def parameter_gather(self, held: Iterable[tuple[LayerBlock, Number]]) -> Number:
        """All-gathers of a stage's updated parameters after the optimizer step [s]; ``held``: the stage's blocks and how many
        it has of each."""
        if self.sharded in (Sharded.NOTHING, Sharded.PARAMETERS):
            return 0.0
        return total([times * self.gather(block) for block, times in held])


def run_lengths(blocks: LayerBlocks) -> list[tuple[LayerBlock, int]]:
    """Consecutive blocks that are one object, once each, with their number.

    >>> layer = LayerBlock(1, 2)
    >>> [count for _, count in run_lengths([LayerBlock(3, 4), layer, layer])]
    [1, 2]
    """
    found = []
    for _, alike in groupby(blocks, key=id):
        block, *others = alike
        found.append((block, 1 + len(others)))
    return found
