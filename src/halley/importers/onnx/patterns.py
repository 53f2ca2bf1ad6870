"""Operators that an ONNX export writes as several nodes, as one node each: activations, attention, the sum with a bias, norms of
groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from halley.importers.activations import Formula, activations
from halley.importers.lowering.node import NodeView, Shape
from halley.importers.onnx.norms import CASTS, scalar, with_norms
from halley.importers.reads import GraphNode, NodeGraph

FUNCTIONS = {"Mul": "mul", "Div": "div", "Add": "add", "Pow": "pow", "Erf": "erf", "Tanh": "tanh", "Sigmoid": "sigmoid"}
"""Operators that activations consist of."""
NAMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "silu": ("Swish", {}),
}
"""By activation, its operator and attributes."""
MASK_THRESHOLD = -1e4
"""Numbers below this in a mask leave out a key."""

Nodes = list[NodeView | None]
Arrays = Callable[[str], Any]
"""The value of a constant by its name; None if the file does not hold it."""


def with_patterns(nodes: Sequence[NodeView], results: Sequence[str], arrays: Arrays) -> Nodes:
    """The nodes, with one in place of the last of those that are one operator, and None in place of the others. ``results``:
    values that the graph returns. Nodes stay as they are where another one reads a value between them."""
    made: Nodes = list(nodes)
    for step in (with_norms, _with_activations, lambda own, given: _with_attention(own, given, arrays), _with_others):
        places = [place for place, node in enumerate(made) if node is not None]
        own = [node for node in made if node is not None]
        try:
            found: Nodes = step(own, results)
        except (IndexError, ValueError, TypeError, OverflowError, ZeroDivisionError):  # inputs that an operator does not have
            found = list(own)
        for place, node in zip(places, found, strict=True):
            made[place] = node
    return made


def _graph(nodes: Sequence[NodeView], results: Sequence[str]) -> NodeGraph:
    found = [GraphNode(node.operator, [name for name in node.inputs if name], node.outputs) for node in nodes]
    return NodeGraph(found, results, CASTS)


def _with_activations(nodes: Sequence[NodeView], results: Sequence[str]) -> Nodes:
    made: Nodes = list(nodes)
    for places, name, source in activations([_formula(node) for node in nodes], _graph(nodes, results)):
        operator, attributes = NAMES[name]
        for place in places:
            made[place] = None
        made[places[-1]] = replace(nodes[places[-1]], operator=operator, inputs=(source,), attributes=attributes)
    return made


def _formula(node: NodeView) -> Formula | None:
    """A node as a step of an activation; None if it is none."""
    if node.operator not in FUNCTIONS:
        return None
    numbers = [scalar(node, name) for name in node.inputs]
    operands = (name if number is None else number for name, number in zip(node.inputs, numbers, strict=True))
    return Formula(FUNCTIONS[node.operator], tuple(operands))


# --- attention ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scores:
    """What an attention consists of: its ``places`` so far, the values that it reads, the ``scale`` of its scores."""

    nodes: Sequence[NodeView]
    graph: NodeGraph
    places: set[int] = field(default_factory=set)
    scale: float = 1.0

    def shape(self, name: str) -> Shape:
        return self.nodes[0].shapes.get(name, ())

    def alone(self, name: str) -> NodeView | None:
        """The node that makes a value, if nothing but the attention reads it; it becomes a part of that."""
        place = self.graph.maker.get(name)
        if place is None or place in self.places or self.graph.count[name] != 1 or len(self.nodes[place].outputs) != 1:
            return None
        return self.nodes[place]

    def take(self, node: NodeView) -> None:
        self.places.add(self.graph.maker[node.outputs[0]])

    def unscaled(self, name: str) -> str:
        """The value before products with numbers, and casts."""
        while (node := self.alone(name)) is not None:
            if node.operator in CASTS:
                self.take(node)
                name = node.inputs[0]
                continue
            numbers = [scalar(node, item) for item in node.inputs]
            if node.operator not in ("Mul", "Div") or sum(number is None for number in numbers) != 1:
                break
            if node.operator == "Div" and not numbers[1]:
                break
            place = numbers.index(None)
            number = numbers[1 - place] or 0.0
            self.scale = self.scale * number if node.operator == "Mul" else self.scale / number
            self.take(node)
            name = node.inputs[place]
        return name


def _with_attention(nodes: Sequence[NodeView], results: Sequence[str], arrays: Arrays) -> Nodes:
    """``softmax(scale Q K^T + mask) V`` as one node."""
    made: Nodes = list(nodes)
    graph = _graph(nodes, results)
    for place, node in enumerate(nodes):
        found = _attention(nodes, graph, place, arrays) if node.operator == "Softmax" else None
        if found is not None:
            places, attention = found
            for step in places:
                made[step] = None
            made[max(places)] = attention
    return made


def _attention(nodes: Sequence[NodeView], graph: NodeGraph, softmax: int, arrays: Arrays) -> tuple[set[int], NodeView] | None:
    """The attention around a softmax: its places and the node; None if there is none."""
    own = _Scores(nodes, graph, {softmax})
    node = nodes[softmax]
    rank = len(own.shape(node.inputs[0]))
    if rank not in (3, 4) or int(node.get("axis", -1 if node.opset >= 13 else 1)) % rank != rank - 1:
        return None
    last = _product_behind(own, softmax)
    if last is None:
        return None
    values = nodes[last].inputs[1]
    mask, boolean, scores = "", False, own.unscaled(node.inputs[0])
    added = own.alone(scores)
    if added is not None and added.operator == "Add":
        products = [item for item in added.inputs if _is_product(own, item)]
        if len(products) != 1:
            return None
        own.take(added)
        mask = added.inputs[1 - added.inputs.index(products[0])]
        if own.scale != 1.0:
            return None  # the mask would be scaled, too
        mask, boolean = _condition(own, mask)
        scores = own.unscaled(products[0])
    product = own.alone(scores)
    if product is None or product.operator != "MatMul":
        return None
    own.take(product)
    queries = own.unscaled(product.inputs[0])
    keys, turned = _keys(own, product.inputs[1])
    if rank == 4:
        keys, values = _unrepeated(own, keys, turned, values)
    shapes = _heads(own, rank, queries, keys, values, turned)
    if shapes is None:
        return None
    attributes: dict[str, Any] = {"scale": own.scale, "turned": int(turned)}
    inputs: tuple[str, ...] = (queries, keys, values)
    if mask:
        rows, columns = own.shape(scores)[-2:]
        if not boolean and _causal(arrays(mask), rows, columns):
            attributes["is_causal"] = 1
        else:
            inputs, attributes["boolean"] = (*inputs, mask), int(boolean)
    own.places.add(last)
    made = replace(nodes[last], operator="Attention", inputs=inputs, attributes=attributes, shapes={**node.shapes, **shapes})
    return own.places, made


def _product_behind(own: _Scores, softmax: int) -> int | None:
    """The place of the product with the values, with rows without a key set to zero before it; None if there is none."""
    (result,) = own.nodes[softmax].outputs[:1]
    readers = [place for place, node in enumerate(own.nodes[softmax + 1 : softmax + 12], softmax + 1) if result in node.inputs]
    if [own.nodes[place].operator for place in readers] == ["IsNaN", "Where"] and own.graph.count[result] == 2:
        own.places.update(readers)
        softmax = readers[-1]
    path = own.graph.path(softmax)
    if not path or own.nodes[path[-1]].operator != "MatMul":
        return None
    before = own.nodes[path[-2] if len(path) > 1 else softmax].outputs[0]
    own.places.update(path[:-1])
    return path[-1] if own.nodes[path[-1]].inputs[0] == before else None


def _is_product(own: _Scores, name: str) -> bool:
    """Whether a value is a product of matrices, alone or times a number."""
    place = own.graph.maker.get(name)
    for _ in range(4):
        if place is None:
            return False
        node = own.nodes[place]
        if node.operator == "MatMul":
            return True
        if node.operator not in ("Mul", "Div", *CASTS):
            return False
        place = next((own.graph.maker[item] for item in node.inputs if item in own.graph.maker), None)
    return False


def _condition(own: _Scores, mask: str) -> tuple[str, bool]:
    """The truths behind a mask of zeros and infinities that the attention alone reads, and whether it is one."""
    node = own.alone(mask)
    if node is None or node.operator != "Where" or len(node.inputs) != 3:
        return mask, False
    seen, other = (scalar(node, name) for name in node.inputs[1:])
    if seen != 0 or other is None or other > MASK_THRESHOLD:
        return mask, False
    own.take(node)
    return node.inputs[0], True


def _keys(own: _Scores, name: str) -> tuple[str, bool]:
    """The keys, and whether their axis of channels is before that of the keys: transpositions of the two axes are taken in."""
    turned = True
    name = own.unscaled(name)
    while (node := own.alone(name)) is not None:
        if node.operator == "Transpose" and _swaps(node):
            own.take(node)
            name, turned = node.inputs[0], not turned
        elif (inner := _reshaped_transpose(own, node)) is not None:
            for each in inner:
                own.take(each)
            name, turned = inner[-1].inputs[0], not turned
        else:
            break
        name = own.unscaled(name)
    return name, turned


def _swaps(node: NodeView) -> bool:
    rank = len(node.shapes.get(node.inputs[0], ()))
    return list(node.get("perm", ())) == [*range(rank - 2), rank - 1, rank - 2]


def _reshaped_transpose(own: _Scores, node: NodeView) -> list[NodeView] | None:
    """A reshape of the transposition of a reshape that swaps the last two axes of all heads: nodes from the last to the first."""
    turn = own.alone(node.inputs[0]) if node.operator == "Reshape" else None
    first = own.alone(turn.inputs[0]) if turn is not None and turn.operator == "Transpose" and _swaps(turn) else None
    if turn is None or first is None or first.operator != "Reshape":
        return None
    before, after = own.shape(first.inputs[0]), own.shape(node.outputs[0])
    same = len(before) in (len(after), 5) and len(after) > 2 and math.prod(before[:-2]) == math.prod(after[:-2])
    same = same and before[: len(after) - 3] == after[:-3] and before[-2:] == after[:-3:-1]
    return [node, turn, first] if same else None


def _unrepeated(own: _Scores, keys: str, turned: bool, values: str) -> tuple[str, str]:
    """Keys and values of four axes before each head is repeated for a group of queries, if both are."""
    found = [_repeated(own, keys), _repeated(own, values)]
    if turned or found[0] is None or found[1] is None:
        return keys, values
    for node in (*found[0], *found[1]):
        own.take(node)
    return found[0][-1].inputs[0], found[1][-1].inputs[0]


def _repeated(own: _Scores, name: str) -> list[NodeView] | None:
    """The nodes that repeat each head: a new axis behind that of heads, its expansion, and a reshape; from the last to the first.
    The reshape may be another one, so that the value has the new axis."""
    chain = []
    shape = own.shape(name)
    for operator in ("Reshape", "Expand", "Unsqueeze") if len(shape) == 4 else ("Expand", "Unsqueeze"):
        node = own.alone(name)
        if node is None or node.operator != operator:
            return None
        chain.append(node)
        name = node.inputs[0]
    source, single, repeated = own.shape(name), own.shape(chain[-1].outputs[0]), own.shape(chain[-2].outputs[0])
    if len(source) != 4 or single != (*source[:2], 1, *source[2:]) or len(repeated) != 5 or repeated[:2] != source[:2]:
        return None
    return chain if len(shape) == 5 or shape == (source[0], source[1] * repeated[2], *source[2:]) else None


def _heads(own: _Scores, rank: int, queries: str, keys: str, values: str, turned: bool) -> dict[str, Shape] | None:
    """Shapes with four axes of queries, keys and values; None if they are no heads of an attention."""
    shapes = {name: (1,) * (4 - rank) + tuple(own.shape(name)) for name in (queries, keys, values)}
    if any(len(shape) != 4 for shape in shapes.values()):
        return None
    q, v = shapes[queries], shapes[values]
    k = shapes[keys] if not turned else (*shapes[keys][:2], shapes[keys][3], shapes[keys][2])
    fit = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3] and k[1] > 0 and q[1] % k[1] == 0
    same = rank == 4 or (q[1] == k[1])
    return shapes if fit and same and math.prod(q) > 0 else None


def _causal(mask: Any, rows: int, columns: int) -> bool:
    """Whether a mask of numbers leaves out exactly the keys behind each query."""
    if mask is None or rows != columns or np.size(mask) != rows * columns or rows < 2:
        return False
    array = np.asarray(mask, float).reshape(rows, columns)
    behind = np.triu(np.ones((rows, columns), bool), 1)
    return bool((array[behind] < MASK_THRESHOLD).all() and (array[~behind] == 0).all())


# --- others -------------------------------------------------------------------------------------------------------------------


def _with_others(nodes: Sequence[NodeView], results: Sequence[str]) -> Nodes:
    """Products with a bias, norms of groups, and the softplus of frameworks, which is the identity for large values."""
    made: Nodes = list(nodes)
    graph = _graph(nodes, results)
    for place, node in enumerate(nodes):
        found = {"MatMul": _biased, "InstanceNormalization": _group_norm, "Softplus": _softplus}.get(node.operator)
        joined = found(nodes, graph, place) if found is not None else None
        if joined is not None:
            places, whole = joined
            for step in places:
                made[step] = None
            made[max(places)] = whole
    return made


def _biased(nodes: Sequence[NodeView], graph: NodeGraph, place: int) -> tuple[list[int], NodeView] | None:
    """``X W + b``, with a number of the bias for each column."""
    path = graph.path(place)
    if len(path) != 1 or nodes[path[0]].operator != "Add" or len(nodes[place].shapes.get(nodes[place].inputs[1], ())) != 2:
        return None
    bias = graph.others([place], path[0])
    columns = nodes[place].shapes[nodes[place].inputs[1]][1]
    if len(bias) != 1 or bias[0] in graph.maker or nodes[place].shapes.get(bias[0]) != (columns,) or columns == 1:
        return None
    return [place, path[0]], replace(nodes[path[0]], operator="MatMul", inputs=(*nodes[place].inputs, bias[0]))


def _group_norm(nodes: Sequence[NodeView], graph: NodeGraph, place: int) -> tuple[list[int], NodeView] | None:
    """The norm of each instance of groups of channels, seen as its channels, with a gain and a bias for each true channel."""
    before = graph.maker.get(nodes[place].inputs[0], -1)
    if before < 0 or nodes[before].operator != "Reshape" or graph.count[nodes[place].inputs[0]] != 1:
        return None
    plain = [np.asarray(nodes[place].known.get(name, ())) for name in nodes[place].inputs[1:]]
    if not plain[0].size or (plain[0] != 1).any() or (plain[1] != 0).any():
        return None
    steps = graph.chain(place, ("Reshape", "Mul", "Add"))
    source = nodes[before].inputs[0]
    shape, groups = nodes[place].shapes.get(source, ()), len(plain[0])
    if not steps or len(shape) < 3 or nodes[place].shapes.get(nodes[steps[1]].outputs[0]) != shape:
        return None
    own = [graph.others(steps[:-1], step) for step in steps[-2:]]
    single = (shape[1], *(1,) * (len(shape) - 2))
    names = [names[0] for names in own if len(names) == 1 and nodes[place].shapes.get(names[0]) == single]
    if len(names) != 2 or len(steps) != 4:
        return None
    attributes = {"num_groups": groups, "epsilon": nodes[place].get("epsilon", 1e-5)}
    whole = replace(nodes[steps[-1]], operator="GroupNormalization", inputs=(source, *names), attributes=attributes)
    return [before, *steps], whole


def _softplus(nodes: Sequence[NodeView], graph: NodeGraph, place: int) -> tuple[list[int], NodeView] | None:
    """``where(x > limit, x, softplus(x))``."""
    path = graph.path(place)
    source = nodes[place].inputs[0]
    if len(path) != 1 or nodes[path[0]].operator != "Where" or nodes[path[0]].inputs[1:] != (source, nodes[place].outputs[0]):
        return None
    above = graph.maker.get(nodes[path[0]].inputs[0], -1)
    if above < 0 or nodes[above].operator != "Greater" or nodes[above].inputs[0] != source:
        return None
    limit = scalar(nodes[above], nodes[above].inputs[1])
    if limit is None or limit < 15 or graph.count[nodes[above].outputs[0]] != 1:
        return None
    return [place, above, path[0]], replace(nodes[path[0]], operator="Softplus", inputs=(source,), attributes={})
