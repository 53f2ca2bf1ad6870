"""An imported network: its nodes in order, beside its distinct layers as workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halley.ir.neural_network import NeuralNetwork


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
class ImportedNetwork(NeuralNetwork):
    """A network with its ``nodes``, all of them in order, but those that compute constants; ``results``: values that the network
    returns; ``constant``: values that its inputs do not change."""

    nodes: tuple[NetworkNode, ...] = ()
    results: tuple[str, ...] = ()
    constant: frozenset[str] = frozenset()
