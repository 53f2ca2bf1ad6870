"""Data parallelism: what is sharded over the ranks, and when its collectives hold up the work.

The ranks of a stage share one network, apart from those of tensor parallelism and of the pipeline, whose collectives are part
of the blocks' times. A block is a run of layers whose parameters are gathered, and whose gradients are reduced, at once.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, groupby

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.formulas.training import drained_time, prefetched_time, sharded_backward_time
from halley.ir.mapping import CollectiveKind
from halley.pipeline.schedule import Pipeline, deal

CollectiveTime = Callable[[CollectiveKind, Number], Number]
"""Time [s] of a collective over the data-parallel ranks, by kind and payload [B]: the whole vector of one rank (all-reduce),
the whole gathered or unreduced vector (all-gather, reduce-scatter). Numbers and arrays alike."""


class Sharded(IntEnum):
    """What data-parallel ranks share out instead of keeping a copy each; the numbers are the stages of ZeRO."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3

    def owners(self, ranks: Number) -> Number:
        """How many of the data-parallel ranks have a share in the update of a parameter; all others repeat it."""
        return 1 if self is Sharded.NOTHING else ranks


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter: ``weight`` and ``gradient`` as passes use them, ``state`` of the optimizer (master weight among
    it)."""

    weight: int
    gradient: int
    state: int

    @property
    def shares(self) -> tuple[tuple[int, Sharded], ...]:
        """Bytes per parameter of weight, gradient and state, each with what has to be sharded for ranks to share it out."""
        return (self.weight, Sharded.PARAMETERS), (self.gradient, Sharded.GRADIENTS), (self.state, Sharded.OPTIMIZER)

    def resident(self, offload: bool) -> tuple[tuple[int, Sharded], ...]:
        """Of these ``shares`` what the chip itself holds: all but the optimizer's state where that is offloaded."""
        return self.shares[:2] if offload else self.shares


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

Known = tuple[Block, Number]
"""A block and the time of its collective; an object that is kept shares its address with no other."""


def dealt_out(layers: Blocks, pipeline: Pipeline, first: Blocks = (), last: Blocks = ()) -> tuple[Blocks, ...]:
    """A stack of layers over the chunks of a pipeline, contiguous and as evenly as can be (`halley.pipeline.schedule.deal`);
    ``first`` (embedding) and ``last`` (head, loss) go to the ends. Chunks of the same blocks are one object.

    >>> [len(chunk) for chunk in dealt_out([Block(1, 2)] * 10, Pipeline(4, 8), first=[Block(0.1, 0.2)])]
    [3, 3, 3, 2]

    Raises BadInput: fewer layers than chunks.
    """
    counts = deal(len(layers), pipeline.last + 1)
    known: dict[tuple[int, ...], Blocks] = {}
    found = []
    for chunk, (end, count) in enumerate(zip(accumulate(counts), counts, strict=True)):
        ends = first if chunk == 0 else (), last if chunk == pipeline.last else ()
        blocks = (*ends[0], *layers[end - count : end], *ends[1])
        found.append(known.setdefault(tuple(map(id, blocks)), blocks))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DataParallel:
    """``ranks`` [1], a number or an array over plans; what is ``sharded``; the collectives' ``time``."""

    ranks: Number
    sharded: Sharded
    time: CollectiveTime
    recipe: Recipe
    _known: dict[tuple[CollectiveKind, int], Known] = field(default_factory=dict, init=False, repr=False, compare=False)

    def gather(self, block: Block) -> Number:
        """All-gather of a block's parameters [s]."""
        return self._time(CollectiveKind.ALL_GATHER, self.recipe.weight, block)

    def reduction(self, block: Block) -> Number:
        """All-reduce of a block's gradients, or reduce-scatter where each rank updates its share [s]."""
        kind = CollectiveKind.ALL_REDUCE if self.sharded is Sharded.NOTHING else CollectiveKind.REDUCE_SCATTER
        return self._time(kind, self.recipe.gradient, block)

    def _time(self, kind: CollectiveKind, word: int, block: Block) -> Number:
        """A collective of ``word`` bytes per parameter [s], worked out once for a block."""
        key = kind, id(block)
        if key not in self._known:
            self._known[key] = block, self.time(kind, word * block.parameters)
        return self._known[key][1]

    def passes(self, blocks: Blocks) -> tuple[Number, Number]:
        """Forward and backward pass of one microbatch [s], with what their collectives add."""
        if self.sharded is Sharded.PARAMETERS:
            return self._fetched(blocks)
        counted = runs(blocks)
        ahead = total([count * block.forward for block, count in counted])
        if self.sharded is Sharded.GRADIENTS:
            return ahead, self._summed(blocks)[0]
        return ahead, total([count * block.behind for block, count in counted])

    def _fetched(self, blocks: Blocks) -> tuple[Number, Number]:
        """Forward and backward pass of one microbatch whose parameters are gathered [s]."""
        gathers, scatters = [self.gather(block) for block in blocks], [self.reduction(block) for block in blocks]
        backward = sharded_backward_time(gathers[::-1], [block.behind for block in reversed(blocks)], scatters[::-1])
        return prefetched_time(gathers, [block.forward for block in blocks]), backward

    def _summed(self, blocks: Blocks) -> tuple[Number, Number, Number]:
        """From the start of a backward pass on: when its gradients are summed over the ranks, and its work done; and how long its
        reductions take [s]."""
        end: Number = 0
        work: Number = 0
        busy: Number = 0
        for block, count in reversed(runs(blocks)):
            behind, reduction = block.behind, self.reduction(block)
            end = drained_time(end, work + behind, behind, reduction, count)
            work, busy = work + count * behind, busy + count * reduction
        return end, work, busy

    def drain(self, blocks: Blocks) -> tuple[Number, Number]:
        """How long after a chunk's last backward pass its gradients are summed over the ranks, where the network has nothing else
        to do; and how long their reductions take [s]."""
        end, work, busy = self._summed(blocks)
        return end - work, busy

    def gathered_after(self, held: Iterable[tuple[Block, Number]]) -> Number:
        """All-gathers of a stage's updated parameters after the optimizer step [s]; ``held``: how often it has each block."""
        if self.sharded in (Sharded.NOTHING, Sharded.PARAMETERS):
            return 0.0
        return total([times * self.gather(block) for block, times in held])


def runs(blocks: Blocks) -> list[tuple[Block, int]]:
    """Blocks in their order; those in a row that are one object together, with how many they are.

    >>> layer = Block(1, 2)
    >>> [count for _, count in runs([Block(3, 4), layer, layer])]
    [1, 2]
    """
    found = []
    for _, alike in groupby(blocks, key=id):
        block, *others = alike
        found.append((block, 1 + len(others)))
    return found
