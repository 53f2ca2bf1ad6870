"""An imported network: its distinct layers as workloads, how often each occurs, and what of the file is not among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halley.ir.workload import Workload


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


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """A node of the file in order: its ``name`` and ``operator``; ``lowered`` where it is a layer; ``reason``: why it is none;
    ``values``: the names of all that it reads and writes."""

    name: str
    operator: str
    lowered: LoweredNode | None
    reason: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkLayer:
    """A distinct layer: its ``workload``, the ``operator`` of the file, and the names of its ``nodes``."""

    name: str
    operator: str
    workload: Workload
    nodes: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all its nodes."""
        return self.count * self.workload.macs()

    @property
    def bytes(self) -> int:
        """Bytes of inputs and outputs of all its nodes."""
        return self.count * sum(self.workload.bytes(name) for name in (*self.workload.inputs, *self.workload.outputs))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Nodes that are no layers: ``count`` of the operator, ``bytes`` that they read and write, and the ``reason``."""

    operator: str
    reason: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ImportedNetwork:
    """A network. ``opset``: version of ONNX's operators, 0 for those of PyTorch; ``constants``: elements of weights and other
    constant inputs of layers; ``views``: by operator, how many nodes select or reorder elements, at no cost here; ``left_out``:
    nodes without a layer; ``nodes``: all of them in order, but those that compute constants; ``results``: values that the network
    returns; ``constant``: values that its inputs do not change."""

    name: str
    source: str
    opset: int
    dtype: str
    constants: int
    layers: tuple[NetworkLayer, ...]
    views: Mapping[str, int]
    left_out: tuple[LeftOut, ...]
    nodes: tuple[NetworkNode, ...]
    remarks: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    constant: frozenset[str] = frozenset()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all layers."""
        return sum(layer.macs for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Bytes of inputs and outputs of all nodes, those that are left out included."""
        return sum(layer.bytes for layer in self.layers) + sum(item.bytes for item in self.left_out)
