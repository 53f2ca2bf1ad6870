"""RMS norms and activations that a PyTorch program computes step by step, as models of transformers do: as one call each, so that
they are one layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halley.importers.activations import Formula, activations
from halley.importers.reads import GraphNode, NodeGraph
from halley.importers.torch.aten import AtenNode, TensorRef

CASTS = frozenset({"to", "_to_copy", "type_as"})
"""Operators between the steps that change the element type alone."""


def with_norms(calls: Sequence[AtenNode], results: Sequence[str]) -> list[AtenNode]:
    """The calls, with one ``rms_norm`` in place of the steps of each norm: square, mean of the last dim, sum with epsilon,
    reciprocal root, product with the tensor and, where it follows, with a gain per element of the last dim. ``results``: values
    that the program returns.

    Steps stay as they are where another call reads a value between them, or where a call changes one in place.
    """
    found = NodeGraph([GraphNode(call.operator, list(tensors(call)), call.outputs) for call in calls], results, CASTS)
    made: dict[int, AtenNode] = {}
    gone: set[int] = set()
    for place in range(len(calls)):
        steps = _steps(calls, found, place)
        if steps and not any(call.in_place for call in calls[place : steps[-1] + 1]):
            made[steps[-1]] = _norm([calls[step] for step in steps])
            gone.update(steps)
    return [made.get(place, call) for place, call in enumerate(calls) if place in made or place not in gone]


FUNCTIONS = {"mul", "div", "add", "pow", "erf", "tanh", "sigmoid"}
"""Calls that activations consist of."""
NAMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gelu": ("gelu", {}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
}
"""By activation, its call and arguments."""


def with_activations(calls: Sequence[AtenNode], results: Sequence[str]) -> list[AtenNode]:
    """The calls, with one in place of the steps of each GELU or SiLU. Steps stay as they are where another call reads a value
    between them, or where a call changes one in place."""
    found = NodeGraph([GraphNode(call.operator, list(tensors(call)), call.outputs) for call in calls], results, CASTS)
    made: dict[int, AtenNode] = {}
    gone: set[int] = set()
    for places, name, source in activations([_formula(call) for call in calls], found):
        operator, arguments = NAMES[name]
        last = calls[places[-1]]
        if not any(call.in_place for call in calls[places[0] : places[-1] + 1]):
            made[places[-1]] = AtenNode(last.name, operator, {"self": TensorRef(source), **arguments}, last.outputs, last.shapes)
            gone.update(places)
    return [made.get(place, call) for place, call in enumerate(calls) if place in made or place not in gone]


def _formula(call: AtenNode) -> Formula | None:
    """A call as a step of an activation; None if it is none."""
    if call.operator not in FUNCTIONS or call.in_place or call.get("alpha", 1) != 1 or call.get("rounding_mode") is not None:
        return None
    given = [call.arguments[name] for name in ("self", "other", "exponent") if name in call.arguments]
    operands = [item.name if isinstance(item, TensorRef) else item for item in given]
    if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in operands):
        return None
    return Formula(call.operator, tuple(operands))


def tensors(call: AtenNode) -> Iterator[str]:
    """The values that a call reads."""
    for argument in call.arguments.values():
        for item in argument if isinstance(argument, list) else (argument,):
            if isinstance(item, TensorRef):
                yield item.name


def _steps(calls: Sequence[AtenNode], found: NodeGraph, start: int) -> list[int]:
    """The places of the steps of a norm that begins at a call, casts included; empty if none does."""
    square = calls[start]
    source = square.get("self")
    if square.operator != "pow" or square.get("exponent") != 2 or not isinstance(source, TensorRef):
        return []
    places = found.chain(start, ("mean", "add", "rsqrt", "mul"))
    shape = square.shapes.get(source.name, ())
    if not places or len(shape) < 2:
        return []
    mean, add = (next(calls[place] for place in places if calls[place].operator == name) for name in ("mean", "add"))
    if not _of_last_dim(mean, len(shape)) or not _epsilon(add) or found.others(places, places[-1]) != [source.name]:
        return []
    gain = found.chain(places[-1], ("mul",))
    return places + gain[1:] if gain and _gain(calls[gain[-1]], shape[-1]) else places


def _of_last_dim(mean: AtenNode, rank: int) -> bool:
    return mean.get("dim") in ([-1], [rank - 1]) and bool(mean.get("keepdim", False))


def _epsilon(add: AtenNode) -> bool:
    number = add.get("other")
    return isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 and add.get("alpha", 1) == 1


def _gain(product: AtenNode, count: int) -> str:
    """The factor of a product that has a number for each element of the last dim; "" if there is none."""
    names = list(tensors(product))
    return next((name for name in names if product.shapes.get(name) == (count,)), "") if len(names) == 2 else ""


def _norm(steps: Sequence[AtenNode]) -> AtenNode:
    """The steps as one call, named as the last of them."""
    square, last = steps[0], steps[-1]
    source = square.tensor("self")
    count = square.shapes[source][-1]
    epsilon = next(call for call in steps if call.operator == "add").get("other")
    arguments = {"input": TensorRef(source), "normalized_shape": [count], "eps": float(epsilon)}
    if sum(call.operator == "mul" for call in steps) == 2:
        arguments["weight"] = TensorRef(_gain(last, count))
    return AtenNode(last.name, "rms_norm", arguments, last.outputs, last.shapes)
