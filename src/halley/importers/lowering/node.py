"""A node of a network as the lowerings read it, the graph that they make of it, and words of its lines.

Tensors keep the order of the elements of their values, so that a value becomes a tensor by a reshape: axes of extent 1 are
dropped, and axes along which all operands behave alike are joined. A node that has no equal graph raises `NotLowered` with the
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node as a graph in Halley's notation: ``lines`` over ``dims``. ``inputs``, ``outputs``: by tensor of the lines, the value
    of the file, whose elements are those of the tensor in the same order. ``steps``: by tensor and axis of its value, the
    distance of the elements that it has, where it lacks the others. ``computed``: tensors that follow from the node's
    attributes. ``ahead``: lines that follow from constants alone, and are computed once before the network runs. ``rows``: by
    tensor that is looked up in a table, the value with the numbers of its rows."""

    lines: tuple[str, ...]
    dims: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    computed: Mapping[str, Any] = field(default_factory=dict)
    steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ahead: tuple[str, ...] = ()
    rows: Mapping[str, str] = field(default_factory=dict)


class NotLowered(Exception):
    """The node has no equal graph; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: its attributes, the names of its ``inputs`` ("" where one is left out) and ``outputs``, the shapes of all values,
    and the ``known`` values. ``opset``: of the operators."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    known: Mapping[str, Any]
    opset: int

    def shape(self, name: str) -> Shape:
        if name not in self.shapes:
            raise NotLowered(f"the shape of {name[:40]!r} is not known")
        shape = self.shapes[name]
        if 0 in shape:
            raise NotLowered(f"{name[:40]!r} has no elements")
        return shape

    def has(self, place: int) -> bool:
        """Whether an optional input is there."""
        return place < len(self.inputs) and bool(self.inputs[place])

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def constant(self, place: int, what: str) -> Any:
        """The value of an input that has to be known."""
        name = self.inputs[place]
        if name not in self.known:
            raise NotLowered(f"{what} is computed")
        return self.known[name]


def real(value: Any) -> float:
    """An attribute, which is fp32, as the number that was meant.

    >>> real(np.float32(1e-5))
    1e-05
    """
    return float(str(np.float32(value)))


def dim_names(count: int) -> list[str]:
    """Names of so many dims."""
    return list("ijklmnopq"[:count]) if count <= 9 else [f"i_{place}" for place in range(count)]


def indexed(name: str, dims: Sequence[str]) -> str:
    """A tensor with its dims, as in a line."""
    return f"{name}[{','.join(dims)}]"


def factors(node: NodeView) -> dict[str, str]:
    """The inputs of a product of X and W."""
    return {"X": node.inputs[0], "W": node.inputs[1]}
