"""Norms that an ONNX graph computes step by step, as exports for operators before version 17 do: as one node each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from halley.importers.lowering.node import NodeView
from halley.importers.reads import GraphNode, NodeGraph

CASTS = frozenset({"Cast", "Identity"})
"""Operators between the steps that change the element type alone."""
ROOTS = (("Sqrt", "Div"), ("Sqrt", "Reciprocal", "Mul"), ("Sqrt", "Div", "Mul"))
"""From the mean square to the quotient."""


def with_norms(nodes: Sequence[NodeView], results: Sequence[str]) -> list[NodeView | None]:
    """The nodes, with one norm in place of the last of its steps, and None in place of the others. ``results``: values that the
    graph returns.

    The steps of an RMS norm: square, mean of the last dim, sum with epsilon, root, quotient, product with a gain. A layer norm
    has the difference to the mean before, and the sum with a bias behind. Steps stay as they are where another node reads a
    value between them.
    """
    graph = [GraphNode(node.operator, [name for name in node.inputs if name], node.outputs) for node in nodes]
    found = NodeGraph(graph, results, CASTS)
    made: list[NodeView | None] = list(nodes)
    for place in range(len(nodes)):
        norm = _norm(nodes, found, place)
        if norm is not None:
            steps, node = norm
            for step in steps:
                made[step] = None
            made[max(steps)] = node
    return made


def _norm(nodes: Sequence[NodeView], found: NodeGraph, start: int) -> tuple[list[int], NodeView] | None:
    """The places of the steps of a norm whose square is this node, and the norm."""
    source = _squared(nodes[start])
    shape = nodes[start].shapes.get(source, ())
    if len(shape) < 2:
        return None
    quotients = (_quotient(nodes, found, source, found.chain(start, ("ReduceMean", "Add", *root))) for root in ROOTS)
    steps, epsilon = next((each for each in quotients if each is not None), ([], 0.0))
    gain = found.chain(steps[-1], ("Mul",)) if steps else []
    scale = _per_element(nodes, found, gain, shape[-1])
    if not scale:
        return None
    steps = steps + gain[1:]
    difference, bias = _difference(nodes, found, source, steps), found.chain(steps[-1], ("Add",))
    shift = _per_element(nodes, found, bias, shape[-1])
    if difference and shift:
        steps = [*difference, *steps, *bias[1:]]
        inputs: tuple[str, ...] = (nodes[difference[1]].inputs[0], scale, shift)
        operator = "LayerNormalization"
    else:
        inputs, operator = (source, scale), "RMSNormalization"
    return steps, replace(nodes[steps[-1]], operator=operator, inputs=inputs, attributes={"axis": -1, "epsilon": epsilon})


def _quotient(nodes: Sequence[NodeView], found: NodeGraph, source: str, steps: list[int]) -> tuple[list[int], float] | None:
    """The steps from the square to the quotient and the epsilon, if they divide the tensor by the root of its mean square."""
    if not steps:
        return None
    places = {nodes[place].operator: place for place in steps}
    epsilon = _number(nodes[places["Add"]], found.others(steps, places["Add"]))
    if epsilon is None or not _of_last_dim(nodes[places["ReduceMean"]], len(nodes[steps[0]].shapes[source])):
        return None
    division = nodes[places["Div"]] if "Div" in places else None
    inverse = division is not None and places["Div"] != steps[-1]
    if found.others(steps, steps[-1]) != [source]:
        return None
    if division is not None and (scalar(division, division.inputs[0]) != 1 if inverse else division.inputs[0] != source):
        return None
    return steps, epsilon


def _squared(node: NodeView) -> str:
    """The value that a node squares; "" if it squares none."""
    if node.operator == "Mul" and len(node.inputs) == 2 and node.inputs[0] == node.inputs[1]:
        return node.inputs[0]
    if node.operator == "Pow" and len(node.inputs) == 2 and scalar(node, node.inputs[1]) == 2:
        return node.inputs[0]
    return ""


def scalar(node: NodeView, name: str) -> float | None:
    """The number that a value is known to be; None if it is none."""
    value = np.asarray(node.known.get(name, ()))
    return float(value.reshape(-1)[0]) if value.size == 1 and value.dtype.kind in "fiu" else None


def _number(node: NodeView, names: Sequence[str]) -> float | None:
    """The only one of these values, if it is a known number that is not negative."""
    number = scalar(node, names[0]) if len(names) == 1 else None
    return number if number is not None and number >= 0 else None


def _of_last_dim(node: NodeView, rank: int) -> bool:
    axes = node.get("axes", None)
    if axes is None and node.has(1):
        axes = node.known.get(node.inputs[1])
    return axes is not None and list(np.asarray(axes).reshape(-1)) in ([-1], [rank - 1]) and bool(node.get("keepdims", 1))


def _per_element(nodes: Sequence[NodeView], found: NodeGraph, chain: Sequence[int], count: int) -> str:
    """What the last node of a chain takes besides the result before it, if that has a number for each element of the last dim."""
    others = found.others(chain[:-1], chain[-1]) if chain else []
    return others[0] if len(others) == 1 and nodes[chain[-1]].shapes.get(others[0]) == (count,) else ""


def _difference(nodes: Sequence[NodeView], found: NodeGraph, source: str, steps: Sequence[int]) -> list[int]:
    """The places of the mean of the last dim and of the difference to it, if the source is that and only these steps read it."""
    place = found.maker.get(source, -1)
    if place < 0 or nodes[place].operator != "Sub" or len(nodes[place].inputs) != 2:
        return []
    own = sum(nodes[step].inputs.count(source) for step in steps)
    whole, middle = nodes[place].inputs
    mean = found.maker.get(middle, -1)
    if mean < 0 or nodes[mean].operator != "ReduceMean" or nodes[mean].inputs[:1] != (whole,):
        return []
    if found.count[source] != own or found.count[middle] != 1:
        return []
    return [mean, place] if _of_last_dim(nodes[mean], len(nodes[mean].shapes.get(whole, ()))) else []
