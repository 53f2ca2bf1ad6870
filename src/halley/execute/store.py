"""State of the interpreter: buffers, open Holds, and tables about the workload's tensors.

A buffer covers the index space of the whole tensor, so boxes need no translation; elements that an instance does not hold have
the count 0. Besides the value, a buffer stores per element which tensor of the group owns it, how many points of the reduction it
contains, and, for tensors relative to a running maximum, which version of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from halley.execute.counters import CountedMove, Tally
from halley.execute.functions import MONOID_DEFINITIONS, Array, Monoid
from halley.execute.members import AxisKey, Box, ExecutionScope, Instance, Member, size, slices
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold
from halley.ir.placement import Placement
from halley.ir.workload import Op, OpKind, Workload

Placements: TypeAlias = dict[AxisKey, Placement]


class Buffer:
    """Buffer of the tensors of one group in one instance of a memory.

    Per element: ``owner`` is the number of the tensor whose value is stored, ``count`` the points of its reduction so far,
    ``stamp`` the version of the running maximum that it is, or is relative to, and ``relative`` the value of that maximum.
    """

    __slots__ = ("count", "owner", "relative", "stamp", "value")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.value = np.full(shape, np.nan, dtype)
        self.owner = np.full(shape, -1)
        self.count = np.zeros(shape, int)
        self.stamp = np.zeros(shape, int)
        self.relative = np.full(shape, np.nan)

    def held(self, tensor: int, box: Box) -> Array:
        """Per element of the box, how many points of the tensor have been accumulated there (0: not held)."""
        part = slices(box)
        return np.where(self.owner[part] == tensor, self.count[part], 0)

    def take(self, other: Buffer, tensor: int, where: Any) -> None:
        """Copy elements from another buffer."""
        self.owner[where] = tensor
        for mine, theirs in zip(self.arrays, other.arrays, strict=True):
            mine[where] = theirs[where]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.value, self.count, self.stamp, self.relative

    def drop(self, tensor: int, where: Any) -> None:
        """Remove elements of a tensor."""
        gone = np.zeros(self.owner.shape, bool)
        gone[where] = True
        gone &= self.owner == tensor
        self.owner[gone] = -1
        self.count[gone] = 0


@dataclass(slots=True)
class OpenHold:
    """A Hold between its entry and its exit: a buffer per tensor and instance, the boxes that each instance holds, and the
    placement of each tensor along the axes after its last write or collective."""

    node: Hold
    depth: int
    scope: ExecutionScope
    buffers: dict[str, dict[Instance, Buffer]] = field(default_factory=dict)
    boxes: dict[str, dict[Instance, tuple[Box, ...]]] = field(default_factory=dict)
    placements: dict[str, Placements] = field(default_factory=dict)

    def buffer(self, tensor: str, member: Member) -> Buffer:
        return self.buffers[tensor][member[: self.scope.siblings.width(self.depth)]]

    def reaches_beyond(self, tensor: str, scope: ExecutionScope) -> bool:
        """Whether an instance outside the members of an inner scope holds a part of the tensor."""
        there = {member[: self.scope.siblings.width(self.depth)] for member in scope.ranges}
        return any(instance not in there for instance, boxes in self.boxes[tensor].items() if any(map(size, boxes)))


class Store:
    """Tables of the workload, its inputs and outputs, and the counters of an execution."""

    def __init__(self, workload: Workload, chip: Chip, arrays: Mapping[str, Array], dtype: Any, tally: Tally) -> None:
        self.workload = workload
        self.chip = chip
        self.tally = tally
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        self.numbers = {name: number for number, name in enumerate(workload.tensors)}
        self.producers = {name: op for op in workload.ops for name in op.outputs}
        self.shapes = {t.name: tuple(workload.dims[d] for d in t.dims) for t in workload.tensors.values()}
        parts = {dim: workload.read_part(dim) for dim in workload.dims}
        self.read_shapes = {t.name: tuple(parts[d][1] - parts[d][0] for d in t.dims) for t in workload.tensors.values()}
        self.dtypes = _dtypes(workload, arrays, dtype)
        self.maxima = {op.scaled_by for op in workload.ops if op.scaled_by}
        self.outputs = {name: np.full(self.shapes[name], np.nan, self.dtypes[name]) for name in workload.outputs}
        self.stored = {name: np.zeros(self.shapes[name], bool) for name in workload.outputs}

    def read(self, hold: OpenHold, name: str, cause: str, moves: list[CountedMove], to: int | None = None) -> None:
        """Count moves from a Hold to members or instances at depth ``to`` (by default, to members)."""
        inner = len(self.chip.levels) - 1 if to is None else to
        self.tally.read((hold.node.memory, name, cause), self.workload.tensors[name].word, (hold.depth, inner), moves)

    def write(self, hold: OpenHold, name: str, cause: str, moves: list[CountedMove], to: int | None = None) -> None:
        """Count moves into a Hold from members or instances at depth ``to`` (by default, from members)."""
        inner = len(self.chip.levels) - 1 if to is None else to
        self.tally.write((hold.node.memory, name, cause), self.workload.tensors[name].word, (hold.depth, inner), moves)

    def scaled_by(self, tensor: str) -> str:
        """The running maximum that the tensor is relative to, or an empty string."""
        return self.producers[tensor].scaled_by if tensor in self.producers else ""

    def reduced(self, op: Op) -> tuple[str, ...]:
        """Dims that an op accumulates over."""
        return self.workload.reduced(op)

    def full(self, tensor: str) -> int:
        """Points of the reduction in a complete element of the tensor."""
        if tensor not in self.producers:
            return 1
        return int(np.prod([self.workload.dims[dim] for dim in self.reduced(self.producers[tensor])], dtype=int))

    def monoid(self, op: Op) -> Monoid:
        """The monoid that merges partial results of the op."""
        return MONOID_DEFINITIONS[op.monoid if op.kind is OpKind.REDUCE else "sum"]

    def stateful(self, op: Op) -> bool:
        """Whether the op accumulates a state that cannot be refilled after a drain."""
        return bool(op.scaled_by) or op.monoid in ("softmax", "welford")


def _dtypes(workload: Workload, arrays: Mapping[str, Array], dtype: Any) -> dict[str, Any]:
    """The NumPy type of each tensor: complex if it depends on a complex input or on a transform of a single tensor, else
    ``dtype``."""
    wide = np.result_type(dtype, np.complex64)
    kinds = {name: wide if np.iscomplexobj(arrays[name]) else np.dtype(dtype) for name in workload.inputs}
    for op in workload.ops:
        transform = op.kind is OpKind.FFT and len(op.inputs) == len(op.outputs) == 1
        spectral = transform or any(np.issubdtype(kinds[name], np.complexfloating) for name in op.inputs)
        kinds.update(dict.fromkeys(op.outputs, wide if spectral else np.dtype(dtype)))
    return kinds
