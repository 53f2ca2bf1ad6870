"""Models for training: an embedding, repeated layers, a head with the loss, each a workload.

Consecutive parts are connected by one tensor: a part reads it as X [b, m, k] (with chunks of tokens, [b, c, l, k]) and writes the
next one as Y. Other inputs are
weights if they hold real numbers, and data if they hold integers (tokens, targets, routes, dropout masks).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from halley.ir.workload import Workload


@dataclass(frozen=True, slots=True)
class ChunkedScan:
    """Ops of a workload that compute a scan by chunks, which libraries have as one kernel.

    ``ops`` in order, the last one with its result. ``heads``: dims of independent recurrences; ``chunks``: the dim along which
    states pass on; ``target``, ``source``: positions in a chunk, of which a target sees the sources up to its own; ``state``:
    the dims of a head's state.
    """

    ops: tuple[str, ...]
    heads: tuple[str, ...]
    chunks: str
    target: str
    source: str
    state: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A workload that is repeated ``count`` times. ``scans``: of its ops."""

    workload: Workload
    count: int = 1
    scans: tuple[ChunkedScan, ...] = ()

    @property
    def weights(self) -> tuple[str, ...]:
        """Inputs that are trained."""
        work = self.workload
        return tuple(name for name in work.inputs if name != "X" and not work.tensors[name].dtype.startswith("int"))

    @property
    def data(self) -> tuple[str, ...]:
        """Inputs that depend on the batch, including X."""
        return tuple(name for name in self.workload.inputs if name not in self.weights)

    @property
    def parameters(self) -> int:
        """Trained parameters of one repetition."""
        return sum(self.elements(name) for name in self.weights)

    def elements(self, tensor: str) -> int:
        """Number of elements of a tensor of the workload."""
        return math.prod(self.workload.dims[dim] for dim in self.workload.tensors[tensor].dims)


@dataclass(frozen=True, slots=True)
class TrainingModel:
    """``embedding``: tokens -> Y. ``blocks``: kinds of layers in order, X -> Y. ``head``: X -> L, the loss of each token.

    ``tied``: embedding and head share one table. ``source``: the publication.
    """

    name: str
    embedding: ModelPart
    blocks: tuple[ModelPart, ...]
    head: ModelPart
    tied: bool = False
    source: str = ""

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def parts(self) -> Iterator[ModelPart]:
        """The parts in the order of the forward pass."""
        yield self.embedding
        yield from self.blocks
        yield self.head

    @property
    def parameters(self) -> int:
        """Trained parameters; a tied table counts once."""
        shared = self.embedding.elements("table") if self.tied else 0
        return sum(part.count * part.parameters for part in self.parts) - shared
