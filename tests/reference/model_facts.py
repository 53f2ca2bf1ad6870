"""What training a model needs on any system: parameters, operations, bytes of weights, bytes saved for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from halley.ir.workload import Workload
from halley.memory.saved import saved_activations
from halley.rewrite.backward import backward
from halley.rewrite.recompute import Recompute, recompute
from halley.units import format_bytes
from halley.workloads.model import ModelPart, TrainingModel


@dataclass(frozen=True, slots=True)
class PartFacts:
    """One of ``count`` equal parts: trained ``parameters``; ``weights`` [B]; operations of contractions in the ``forward`` and
    ``backward`` pass [op], recomputed ops among the latter; ``saved`` [B]: activations that the backward pass reads. Masks
    of dropout whose op is recomputed are generated again."""

    name: str
    count: int
    parameters: int
    weights: int
    forward: int
    backward: int
    saved: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model on one batch. ``tokens`` of the batch; ``parameters``: a tied table counts once."""

    name: str
    tokens: int
    parameters: int
    parts: tuple[PartFacts, ...]

    @property
    def forward(self) -> int:
        """Operations of contractions in the forward pass [op]."""
        return sum(part.count * part.forward for part in self.parts)

    @property
    def backward(self) -> int:
        """Operations of contractions in the backward pass [op], recomputed ones included."""
        return sum(part.count * part.backward for part in self.parts)

    @property
    def saved(self) -> int:
        """Activations saved for the whole batch [B]."""
        return sum(part.count * part.saved for part in self.parts)

    def __str__(self) -> str:
        """A line for the model and one for each part."""
        lines = [
            f"{self.name}: {self.parameters:,} parameters; {self.tokens:,} tokens take"
            f" {_work(self.forward)} forward, {_work(self.backward)} backward, keep {format_bytes(self.saved)}"
        ]
        for part in self.parts:
            lines.append(
                f"  {part.count} x {part.name}: {part.parameters:,} parameters ({format_bytes(part.weights)}),"
                f" {_work(part.forward)} forward, {_work(part.backward)} backward, {format_bytes(part.saved)} kept"
            )
        return "\n".join(lines)


def model_facts(model: TrainingModel, choice: Recompute = Recompute.NONE, whole: bool = False) -> ModelFacts:
    """Figures of a model on the batch that it was built for.

    ``choice`` and ``whole``: as in `halley.rewrite.recompute`, for the layers; embedding and head recompute nothing.

    >>> from halley.workloads.training import training_model
    >>> from halley.workloads.transformer import Transformer
    >>> small = Transformer("small", layers=2, model=8, heads=2, kv_heads=1, head_dim=4, hidden=16, vocabulary=32, sequence=6)
    >>> facts = model_facts(training_model(small, batch=3))
    >>> facts.parameters, facts.backward == 2 * facts.forward
    (1704, True)
    """
    embedding = model.embedding.workload
    layers = {id(block) for block in model.blocks}
    parts = tuple(_part(part, choice if id(part) in layers else Recompute.NONE, whole) for part in model.parts)
    return ModelFacts(
        model.name, math.prod(embedding.dims[dim] for dim in embedding.tensors["token"].dims), model.parameters, parts
    )


def bytes_of(workload: Workload, names: Collection[str]) -> int:
    """Bytes of tensors."""
    return sum(workload.bytes(name) for name in names)


def _part(part: ModelPart, choice: Recompute, whole: bool) -> PartFacts:
    work = part.workload
    found = recompute(backward(part.workload), choice, whole)
    names = {op.name for op in found.backward}
    held = saved_activations(found.workload, names, part.weights).tensors
    # other inputs of a recomputed op are generated again (dropout), or are in memory anyway (routes)
    again = found.backward[: len(found.repeated)]
    drawn = {name for op in again for name in op.inputs} - {"X"}
    activations = [name for name in held if name not in drawn.intersection(work.inputs)]
    forward = 2 * work.macs()
    return PartFacts(
        work.name,
        part.count,
        part.parameters,
        bytes_of(work, part.weights),
        forward,
        2 * found.workload.macs() - forward,
        bytes_of(found.workload, activations),
    )


def _work(operations: int) -> str:
    """With a prefix: 1.2 Top."""
    power = min(int(math.log10(max(operations, 1))) // 3, 7)
    return f"{operations / 1000**power:.4g} {['', 'k', 'M', 'G', 'T', 'P', 'E', 'Z'][power]}op"
