"""From the nodes of a file to an imported network: its distinct layers, and what is none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from halley.errors import BadInput
from halley.importers.lowering.node import LoweredNode, NotLowered, Shape
from halley.importers.network import ImportedNetwork, NetworkNode
from halley.ir.neural_network import LeftOut, NetworkLayer
from halley.ir.workload import DTYPE_BYTES
from halley.workloads.user import graph

VIEW = "view"
"""The reason of nodes that only select or reorder elements."""


def printable(text: str) -> str:
    """A name of a file, without control characters, and not too long.

    >>> printable("conv\\x1b[1m")
    'conv[1m'
    """
    return "".join(letter for letter in text if letter.isprintable())[:80]


def mask_remark(count: int) -> str:
    """What is to be known of attentions with a mask tensor."""
    return f"{count} attentions read a mask: none of its tiles is skipped"


class Assembly:
    """Collects the nodes of one network. ``shapes``: of all values; ``constant``: values that are no inputs of the network."""

    def __init__(self, source: str, dtype: str, shapes: Mapping[str, Shape], constant: Collection[str]) -> None:
        self.source, self.dtype, self.shapes, self.constant = source, dtype, shapes, constant
        self.nodes: list[NetworkNode] = []
        self._valid: set[tuple[object, ...]] = set()

    def add(self, name: str, operator: str, values: Sequence[str], made: LoweredNode | Exception | None) -> None:
        """Add a node: as a layer, as a view (None), or with the reason why it is none. ``values``: all it reads and writes."""
        if isinstance(made, LoweredNode):
            made = self._checked(made)
        if made is None:
            self.nodes.append(NetworkNode(name, operator, None, VIEW, tuple(values)))
        elif isinstance(made, LoweredNode):
            self.nodes.append(NetworkNode(name, operator, made, "", tuple(values)))
        else:
            known = isinstance(made, NotLowered)
            reason = str(made) if known else "inputs or attributes that the operator does not have"
            self.nodes.append(NetworkNode(name, operator, None, reason, tuple(values)))

    def _checked(self, made: LoweredNode) -> LoweredNode | NotLowered:
        """The graph, if a workload can have its sizes."""
        key = made.lines, tuple(made.dims.items())
        if key in self._valid:
            return made
        try:
            graph(made.lines, made.dims, self.dtype, tuple(made.outputs))
        except BadInput as error:
            return NotLowered(f"sizes that a workload cannot have ({str(error.faults[0])[:80]})")
        self._valid.add(key)
        return made

    def network(self, opset: int, results: Sequence[str], remarks: Sequence[str]) -> ImportedNetwork:
        """The network of the nodes so far. ``opset``: version of the operators; ``results``: values that it returns."""
        nodes = tuple(self.nodes)
        layers, views = distinct_layers(nodes, self.dtype), Counter(node.operator for node in nodes if node.reason == VIEW)
        return ImportedNetwork(
            Path(self.source).stem,
            self.source,
            opset,
            self.dtype,
            self._weights(),
            layers,
            views,
            self._left_out(),
            tuple(remarks),
            nodes,
            tuple(results),
            frozenset(self.constant),
        )

    def _weights(self) -> int:
        """The elements of the constants that layers read."""
        read = {name for node in self.nodes if node.lowered for name in node.lowered.inputs.values()}
        return sum(math.prod(self.shapes[name]) for name in read if name in self.constant)

    def _left_out(self) -> tuple[LeftOut, ...]:
        """Nodes without a layer, by operator and reason, with their bytes."""
        word = DTYPE_BYTES[self.dtype]
        found: dict[tuple[str, str], list[int]] = {}
        for node in self.nodes:
            if node.lowered is None and node.reason != VIEW:
                size = word * sum(math.prod(self.shapes.get(name, (0,))) for name in node.values)
                found.setdefault((node.operator, node.reason), []).append(size)
        return tuple(LeftOut(operator, reason, len(sizes), sum(sizes)) for (operator, reason), sizes in found.items())


def distinct_layers(nodes: Sequence[NetworkNode], dtype: str) -> tuple[NetworkLayer, ...]:
    """The distinct layers, in the order of their first nodes."""
    found: dict[tuple[object, ...], list[NetworkNode]] = {}
    for node in nodes:
        made = node.lowered
        if made is not None:
            found.setdefault((node.operator, made.lines, tuple(made.dims.items())), []).append(node)
    numbers: Counter[str] = Counter()
    layers = []
    for same in found.values():
        first = same[0]
        assert first.lowered is not None
        numbers[first.operator] += 1
        name = f"{first.operator.lower().replace('+', '-')}-{numbers[first.operator]}"
        workload = graph(first.lowered.lines, first.lowered.dims, dtype, tuple(first.lowered.outputs))
        layers.append(NetworkLayer(name, first.operator, workload, tuple(node.name for node in same)))
    return tuple(layers)
