"""Masks: which points of a plane of rows and keys an op need not compute.

The op that hides scores (`scale_mask`, `scale_window`) defines the mask. An op *has the mask* (``mask: causal``) if no result
depends on what it computes at hidden points. These are ops before the masking op whose results only that op reads, and ops after
it that find the neutral value at hidden points (minus infinity in a maximum, 0 in a sum).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from halley.ir.workload import Op, OpKind, Workload


@dataclass(frozen=True, slots=True)
class Mask:
    """Row i of the dim ``rows`` (modulo ``queries``, as the rows of several heads are stacked) sees the keys j of the dim
    ``keys`` with ``i + offset - window < j <= i + offset``; without a window, all keys up to ``i + offset``."""

    rows: str
    keys: str
    queries: int
    offset: int
    window: int | None = None

    def visible(self, rows: int, keys: int) -> tuple[int, int]:
        """How many points of so many rows and keys are visible, and how many of the keys any row sees.

        >>> Mask("m", "n", 4, 0).visible(8, 4)  # two heads
        (20, 4)
        >>> Mask("m", "n", 2, 4, window=3).visible(2, 8)
        (6, 4)
        """
        row = np.arange(rows, dtype=np.int64) % self.queries
        stop = np.minimum(row + self.offset + 1, keys)
        start = np.zeros_like(row) if self.window is None else np.maximum(row + self.offset + 1 - self.window, 0)
        return int((stop - start).sum()), int(stop.max() - start.min())

    def __str__(self) -> str:
        return f"causal, offset {self.offset}" + (f", window {self.window}" if self.window else "")


_MASKING_FUNCTIONS = {"scale_mask": ("queries", "offset"), "scale_window": ("queries", "offset", "window")}
"""Functions that hide scores, with the constants that define which."""

_MINUS_INFINITY, _ZERO = "-inf", "0"

_PRESERVING_FUNCTIONS = ("identity", "scale")
"""Functions that keep minus infinity and 0 (scales are positive)."""

_ZERO_AT_MINUS_INFINITY = ("exp", "exp_difference", "softmax_from_stats")
"""Functions that return 0 where their first argument is minus infinity."""

_ZERO_AT_ZERO = ("mul", "divide", "scaled_product", "square")
"""Functions that return 0 where their first argument is 0."""


def masks(workload: Workload) -> Mapping[str, Mask]:
    """The mask of each op that has one, by its name."""
    if not any(op.function in _MASKING_FUNCTIONS for op in workload.ops):
        return {}
    return _masks(workload.ops, tuple((t.name, t.dims) for t in workload.tensors.values()), workload.outputs,
                  tuple(workload.dims.items()))  # fmt: skip


def mask_over(workload: Workload, keys: str) -> Mask | None:
    """The mask whose dim of keys is ``keys``; None if there is none, or if there are several different ones."""
    found = {mask for mask in masks(workload).values() if mask.keys == keys}
    return found.pop() if len(found) == 1 else None


def with_extents(workload: Workload, dims: Mapping[str, int]) -> Workload:
    """The workload with other extents, its masks adapted so that every row still sees a key: the queries become the last
    positions, and a window is widened to reach the last key."""
    made = replace(workload, dims=dims)
    return replace(made, ops=tuple(_fitted(op, dims) for op in made.ops)) if masks(workload) else made


def _fitted(op: Op, dims: Mapping[str, int]) -> Op:
    if op.function not in _MASKING_FUNCTIONS or len(op.dims) < 2:
        return op
    (rows, keys), numbers = (dims[dim] for dim in op.dims[-2:]), dict(op.constants)
    queries = min(int(numbers["queries"]), rows)
    offset = max(min(int(numbers["offset"]), keys - queries), 0)
    fitted = {"queries": float(queries), "offset": float(offset)}
    if "window" in numbers:
        fitted["window"] = max(numbers["window"], float(queries + offset - keys + 1))
    return replace(op, constants=tuple({**numbers, **fitted}.items()))


@lru_cache(maxsize=1 << 8)
def _masks(
    ops: tuple[Op, ...],
    tensors: tuple[tuple[str, tuple[str, ...]], ...],
    outputs: tuple[str, ...],
    extents: tuple[tuple[str, int], ...],
) -> Mapping[str, Mask]:
    graph = _Graph(ops, dict(tensors), outputs, dict(extents))
    found: dict[str, Mask] = {}
    for op in ops:
        mask = graph.hides(op)
        if mask is not None:
            for name in (op.name, *graph.behind(op, mask), *graph.before(op, mask)):
                found.setdefault(name, mask)
    return found


@dataclass(frozen=True, slots=True)
class _Graph:
    ops: tuple[Op, ...]
    dims: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...]
    extents: Mapping[str, int]

    def hides(self, op: Op) -> Mask | None:
        """The mask that an op defines; None if it masks nothing, or if some row would see no key."""
        numbers = dict(op.constants)
        if op.function not in _MASKING_FUNCTIONS or op.kind is not OpKind.MAP or len(op.dims) < 2:
            return None
        if numbers.get("scale", 1.0) <= 0 or (op.function == "scale_mask" and not numbers.get("causal")):
            return None
        queries, offset, *rest = (int(numbers[name]) for name in _MASKING_FUNCTIONS[op.function])
        rows, keys = op.dims[-2:]
        window = rest[0] if rest else None
        last_start = queries - 1 + offset - (window or queries + offset) + 1
        if queries < 1 or offset < 0 or (window is not None and window < 1) or last_start >= self.extents[keys]:
            return None
        return Mask(rows, keys, queries, offset, window)

    def spans(self, tensor: str, mask: Mask) -> bool:
        """Whether a tensor has hidden points."""
        return mask.rows in self.dims[tensor] and mask.keys in self.dims[tensor]

    def behind(self, first: Op, mask: Mask) -> Iterator[str]:
        """Ops after the masking op that find neutral values at hidden points."""
        hidden = dict.fromkeys(first.outputs, _MINUS_INFINITY)
        for op in self.ops[self.ops.index(first) + 1 :]:
            states = [hidden.get(name) for name in op.inputs]
            made = self._made(op, states) if any(states) else None
            if made is None:
                continue
            yield op.name
            hidden |= {name: made for name in op.outputs if self.spans(name, mask)}

    def _made(self, op: Op, states: list[str | None]) -> str | None:
        """The neutral value that an op returns for neutral inputs; None if its result is not known to be neutral."""
        first = states[0]
        match op.kind:
            case OpKind.MAP if op.function in _PRESERVING_FUNCTIONS:
                return first
            case OpKind.MAP if op.function in _ZERO_AT_MINUS_INFINITY and first == _MINUS_INFINITY and not any(states[1:]):
                return _ZERO
            case OpKind.MAP if op.function in _ZERO_AT_ZERO and first == _ZERO and not any(states[1:]):
                return _ZERO
            case OpKind.REDUCE if op.function == "identity" and op.monoid in ("max", "softmax") and first == _MINUS_INFINITY:
                return _MINUS_INFINITY
            case OpKind.REDUCE if op.function in ("identity", "square") and op.monoid == "sum" and first == _ZERO:
                return _ZERO
            case OpKind.CONTRACT if _ZERO in states and _MINUS_INFINITY not in states:
                return _ZERO
        return None

    def before(self, first: Op, mask: Mask) -> Iterator[str]:
        """Ops before the masking op whose results only it reads, point by point."""
        through = {first.name}
        for op in reversed(self.ops[: self.ops.index(first)]):
            readers = [other for name in op.outputs for other in self.ops if name in other.inputs]
            alone = not set(op.outputs) & set(self.outputs) and all(other.name in through for other in readers)
            own = op.kind in (OpKind.MAP, OpKind.CONTRACT, OpKind.REDUCE) and mask.rows in op.dims and mask.keys in op.dims
            if readers and alone and own and all(self.spans(name, mask) for name in op.outputs):
                through.add(op.name)
                yield op.name
