"""Masks: which points of a plane of rows and keys an op need not compute.

A mask comes into a graph with the op that hides scores (`scale_mask`, `scale_window`). An op *has the mask* (``mask: causal``)
if no result depends on what it does at hidden points: those before the mask, whose results only the mask reads, and those behind
it, which meet the neutral value there (minus infinity in a maximum, 0 in a sum).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from halley.ir.workload import Op, OpKind, Workload


@dataclass(frozen=True, slots=True)
class Mask:
    """Row i (modulo ``queries``, as the rows of several heads are stacked) of the dim ``rows`` sees the keys j of the dim
    ``keys`` with ``i + offset - window < j <= i + offset``; no window: all up to ``i + offset``."""

    rows: str
    keys: str
    queries: int
    offset: int
    window: int | None = None

    def __str__(self) -> str:
        return f"causal, offset {self.offset}" + (f", window {self.window}" if self.window else "")


_MASKING_FUNCTIONS = {"scale_mask": ("queries", "offset"), "scale_window": ("queries", "offset", "window")}
"""Functions that hide scores, and the constants that say which."""

_MINUS_INFINITY, _ZERO = "-inf", "0"

_PRESERVING_FUNCTIONS = ("identity", "scale")
"""Functions that leave a hidden value what it is (scales are positive)."""

_ZERO_AT_MINUS_INFINITY = ("exp", "exp_difference", "softmax_from_stats")
"""Functions that make 0 of minus infinity in their first argument."""

_ZERO_AT_ZERO = ("mul", "divide", "scaled_product", "square")
"""Functions that make 0 of 0 in their first argument."""


def masks(workload: Workload) -> Mapping[str, Mask]:
    """The mask of each op that has one, by its name."""
    if not any(op.function in _MASKING_FUNCTIONS for op in workload.ops):
        return {}
    return _masks(workload.ops, tuple((t.name, t.dims) for t in workload.tensors.values()), workload.outputs,
                  tuple(workload.dims.items()))  # fmt: skip


def mask_over(workload: Workload, keys: str) -> Mask | None:
    """The mask whose keys a dim is; none where there is none, or several that differ."""
    found = {mask for mask in masks(workload).values() if mask.keys == keys}
    return found.pop() if len(found) == 1 else None


def with_extents(workload: Workload, dims: Mapping[str, int]) -> Workload:
    """The workload with other extents, and masks that fit them: where rows would see nothing, the queries are the last positions
    again, and a window reaches the last key."""
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
        """The mask that an op brings in; none if a row sees nothing."""
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
        """Ops that meet neutral values at hidden points."""
        hidden = dict.fromkeys(first.outputs, _MINUS_INFINITY)
        for op in self.ops[self.ops.index(first) + 1 :]:
            states = [hidden.get(name) for name in op.inputs]
            made = self._made(op, states) if any(states) else None
            if made is None:
                continue
            yield op.name
            hidden |= {name: made for name in op.outputs if self.spans(name, mask)}

    def _made(self, op: Op, states: list[str | None]) -> str | None:
        """What an op makes of neutral inputs; none where it may be anything."""
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
        """Ops whose results the mask alone reads, each point for itself."""
        through = {first.name}
        for op in reversed(self.ops[: self.ops.index(first)]):
            readers = [other for name in op.outputs for other in self.ops if name in other.inputs]
            alone = not set(op.outputs) & set(self.outputs) and all(other.name in through for other in readers)
            own = op.kind in (OpKind.MAP, OpKind.CONTRACT, OpKind.REDUCE) and mask.rows in op.dims and mask.keys in op.dims
            if readers and alone and own and all(self.spans(name, mask) for name in op.outputs):
                through.add(op.name)
                yield op.name
