"""A network of layers: its distinct layers as workloads, how often each occurs, and what of its file is not among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halley.ir.workload import Workload


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
class NeuralNetwork:
    """A network. ``opset``: version of ONNX's operators, 0 for those of PyTorch; ``constants``: elements of weights and other
    constant inputs of layers; ``views``: by operator, how many nodes select or reorder elements, at no cost here; ``left_out``:
    nodes without a layer."""

    name: str
    source: str
    opset: int
    dtype: str
    constants: int
    layers: tuple[NetworkLayer, ...]
    views: Mapping[str, int]
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all layers."""
        return sum(layer.macs for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Bytes of inputs and outputs of all nodes, those that are left out included."""
        return sum(layer.bytes for layer in self.layers) + sum(item.bytes for item in self.left_out)
