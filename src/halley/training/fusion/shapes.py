"""What a group of kernels is to one chip, whatever model and sharding it comes from: a small graph, and extents of its dims.

Dims that always come together are one (batch and tokens of a feed-forward block), and names of tensors do not matter. So one
search of the chip's mappings serves every sharding that leaves a rank these extents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.ir.workload import Op, Tensor, Workload
from halley.training.fusion.groups import Fusion


class FusionKey(NamedTuple):
    """``graph``: the ops of a group with their tensors, as text; ``extents`` of its dims."""

    graph: str
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FusionPattern:
    """A group without extents. ``merged``: by dim, those of the training graph that it stands for."""

    ops: tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    merged: Mapping[str, tuple[str, ...]]
    graph: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", "; ".join((*map(self._line, self.ops), f"-> {' '.join(self.outputs)}")))

    def _line(self, op: Op) -> str:
        """An op on one line, all that its cost depends on."""
        used = " ".join(map(self._named, op.inputs))
        constants = (f"{name}={value!r}" for name, value in op.constants)
        what = " ".join(filter(None, (op.kind.value, op.function, op.monoid, *constants)))
        return f"{' '.join(map(self._named, op.outputs))} = {what}({used}) over {' '.join(op.dims)}"

    def _named(self, name: str) -> str:
        tensor = self.tensors[name]
        return f"{name}:{tensor.dtype}[{','.join(tensor.dims)}]"

    def extents(self, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """[many, dims] extents, from those of the dims of the training graph."""
        return np.stack([math.prod((local[dim] for dim in dims), start=np.int64(1)) for dims in self.merged.values()], axis=-1)

    def workload(self, extents: Sequence[int]) -> Workload:
        """The group as a workload of one kernel."""
        dims = dict(zip(self.merged, map(int, extents), strict=True))
        kernel = tuple(op.name for op in self.ops)
        return Workload("fused group", dims, self.tensors, self.ops, self.outputs, kernels=(kernel,))


@lru_cache(maxsize=1024)
def fusion_pattern(fusion: Fusion) -> FusionPattern:
    """The pattern of a group.

    >>> from halley.training.fusion.groups import fusions
    >>> from halley.training.kernels import training_graph
    >>> from halley.rewrite.backward import backward
    >>> from halley.workloads.mlp import gemm_gelu_gemm
    >>> first, _ = fusions(training_graph(backward(gemm_gelu_gemm(4, 5, 6)), ["W1", "W2"]))
    >>> fusion_pattern(first).graph.split("; ")[1]
    't3:bf16[d0,d2] = map gelu(t2:bf16[d0,d2]) over d0 d2'
    """
    work = fusion.graph.workload
    ops = [work.op(name) for name in fusion.ops]
    tensors = [work.tensors[name] for name in dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))]
    merged, dim_of = _merged(ops, tensors)
    named = {tensor.name: f"t{number}" for number, tensor in enumerate(tensors)}

    def dims(given: Sequence[str]) -> tuple[str, ...]:
        """Each once, in the place of its last."""
        return tuple(reversed(dict.fromkeys(dim_of[dim] for dim in reversed(given))))

    new = tuple(
        replace(
            op,
            name=f"op{number}",
            inputs=tuple(named[name] for name in op.inputs),
            outputs=tuple(named[name] for name in op.outputs),
            dims=dims(op.dims),
        )
        for number, op in enumerate(ops)
    )
    read = {name for op in work.ops if op.name not in fusion.ops for name in op.inputs}
    left = tuple(named[name] for op in ops for name in op.outputs if name in read or name in work.outputs)
    made = {named[each.name]: Tensor(named[each.name], dims(each.dims), each.dtype) for each in tensors}
    return FusionPattern(new, made, left, merged)


def _merged(ops: Sequence[Op], tensors: Sequence[Tensor]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """New dims with those that they stand for, and the other way round: dims are one that no op and no tensor tells apart."""
    places = [op.dims for op in ops] + [tensor.dims for tensor in tensors]
    alike: dict[tuple[bool, ...], list[str]] = {}
    for dim in dict.fromkeys(dim for op in ops for dim in op.dims):
        alike.setdefault(tuple(dim in each for each in places), []).append(dim)
    merged = {f"d{number}": tuple(dims) for number, dims in enumerate(alike.values())}
    return merged, {dim: new for new, dims in merged.items() for dim in dims}
