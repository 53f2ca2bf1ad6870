"""An imported network: its nodes in order, beside its distinct layers as workloads."""

from __future__ import annotations

from dataclasses import dataclass

from halley.importers.lowering.node import LoweredNode
from halley.ir.neural_network import NeuralNetwork


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
