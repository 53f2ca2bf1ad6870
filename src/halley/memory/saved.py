"""Which tensors of a training graph are saved from the forward to the backward pass, and which ops are recomputed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Workload


@dataclass(frozen=True, slots=True)
class SavedActivations:
    """``tensors`` that are saved; ``recomputed``: ops that run again before the backward pass, in order."""

    tensors: tuple[str, ...]
    recomputed: tuple[str, ...]

    def size(self, workload: Workload, extents: Mapping[str, int] | None = None) -> int:
        """Bytes saved; ``extents`` of dims on one chip, where they differ from the workload's."""
        local = {**workload.dims, **(extents or {})}
        found = [workload.tensors[name] for name in self.tensors]
        return sum(tensor.word * math.prod(local[dim] for dim in tensor.dims) for tensor in found)


def saved_activations(
    workload: Workload, backward: Collection[str], parameters: Collection[str] = (), recompute: Collection[str] = ()
) -> SavedActivations:
    """What a graph of forward and ``backward`` ops (by name) saves between the two passes.

    Saved is what backward ops read and forward ops read or write, except ``parameters``, which stay in memory anyway. Outputs
    of the forward ops named in ``recompute`` are not saved: if the backward pass needs them, these ops run again from their
    inputs.

    Raises BadInput: ops or parameters that the workload lacks; a recomputed op that is a backward op.
    """
    faults = [*_unknown(workload, backward, "backward"), *_unknown(workload, recompute, "recompute")]
    for name in parameters:
        if name not in workload.tensors:
            where = f"workload {workload.name}, parameters"
            faults.append(Fault(where, "the name of a tensor", repr(name), did_you_mean(name, workload.tensors)))
    for name in sorted(set(backward) & set(recompute)):
        faults.append(Fault(f"workload {workload.name}, recompute", "forward ops", f"{name}, a backward op", "leave it out"))
    if faults:
        raise BadInput(faults)
    forward = [op for op in workload.ops if op.name not in backward]
    touched = {name for op in forward for name in (*op.inputs, *op.outputs)}
    needed = {name for op in workload.ops if op.name in backward for name in op.inputs} & touched
    again = []
    for op in reversed(forward):
        if op.name in recompute and needed & set(op.outputs):
            needed = (needed - set(op.outputs)) | set(op.inputs)
            again.append(op.name)
    tensors = tuple(name for name in workload.tensors if name in needed and name not in parameters)
    return SavedActivations(tensors, tuple(reversed(again)))


def _unknown(workload: Workload, names: Collection[str], what: str) -> list[Fault]:
    known = [op.name for op in workload.ops]
    where = f"workload {workload.name}, {what}"
    return [Fault(where, "the name of an op", repr(name), did_you_mean(name, known)) for name in names if name not in known]
