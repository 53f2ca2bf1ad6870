"""RMS norms that a program computes step by step, as models of transformers do: as one call each, so that they are one layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from halley.importers.aten import AtenNode, TensorRef

CASTS = frozenset({"to", "_to_copy", "type_as"})
"""Operators between the steps that change the element type alone."""


def with_norms(calls: Sequence[AtenNode], results: Sequence[str]) -> list[AtenNode]:
    """The calls, with one ``rms_norm`` in place of the steps of each norm: square, mean of the last dim, sum with epsilon,
    reciprocal root, product with the tensor and, where it follows, with a gain per element of the last dim. ``results``: values
    that the program returns.

    Steps stay as they are where another call reads a value between them, or where a call changes one in place.
    """
    found = _Reads(calls, results)
    made: dict[int, AtenNode] = {}
    gone: set[int] = set()
    for place in range(len(calls)):
        steps = _steps(found, place)
        if steps and not any(call.in_place for call in calls[place : steps[-1] + 1]):
            made[steps[-1]] = _norm(found, steps)
            gone.update(steps)
    return [made.get(place, call) for place, call in enumerate(calls) if place in made or place not in gone]


class _Reads:
    """The calls of a program, and which of them reads a value."""

    def __init__(self, calls: Sequence[AtenNode], results: Sequence[str]) -> None:
        self.calls = calls
        self.reads = Counter(results)
        self.reader: dict[str, int] = {}
        for place, call in enumerate(calls):
            for name in tensors(call) if call.outputs else ():  # calls without results are checks
                self.reads[name] += 1
                self.reader[name] = place

    def path(self, place: int) -> list[int]:
        """Casts of the result of a call, each read by the next alone, and the call behind them; empty if there is none."""
        passed: list[int] = []
        while True:
            outputs = self.calls[place].outputs
            if len(outputs) != 1 or self.reads[outputs[0]] != 1 or outputs[0] not in self.reader:
                return []
            place = self.reader[outputs[0]]
            passed.append(place)
            if self.calls[place].operator not in CASTS:
                return passed


def tensors(call: AtenNode) -> Iterator[str]:
    """The values that a call reads."""
    for argument in call.arguments.values():
        for item in argument if isinstance(argument, list) else (argument,):
            if isinstance(item, TensorRef):
                yield item.name


def _steps(found: _Reads, start: int) -> list[int]:
    """The places of the steps of a norm that begins at a call, casts included; empty if none does."""
    square = found.calls[start]
    source = square.get("self")
    if square.operator != "pow" or square.get("exponent") != 2 or not isinstance(source, TensorRef):
        return []
    places = [start]
    for operator in ("mean", "add", "rsqrt", "mul"):
        path = found.path(places[-1])
        if not path or found.calls[path[-1]].operator != operator:
            return []
        places += path
    mean, add, root, product = (place for place in places[1:] if found.calls[place].operator not in CASTS)
    shape = square.shapes.get(source.name, ())
    if not shape or not _of_last_dim(found.calls[mean], len(shape)) or not _epsilon(found.calls[add]):
        return []
    factors = list(tensors(found.calls[product]))
    if sorted(factors) != sorted([source.name, _result(found, root, product)]):
        return []
    gain = found.path(places[-1])
    if gain and found.calls[gain[-1]].operator == "mul" and _gain(found, gain, shape):
        places += gain
    return places


def _result(found: _Reads, first: int, last: int) -> str:
    """The value by which the result of a call reaches another one, behind casts."""
    path = found.path(first)
    return found.calls[path[-2] if len(path) > 1 else first].outputs[0] if path[-1:] == [last] else ""


def _of_last_dim(mean: AtenNode, rank: int) -> bool:
    return mean.get("dim") in ([-1], [rank - 1]) and bool(mean.get("keepdim", False))


def _epsilon(add: AtenNode) -> bool:
    number = add.get("other")
    return isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 and add.get("alpha", 1) == 1


def _gain(found: _Reads, path: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether the last call multiplies by a number for each element of the last dim."""
    call = found.calls[path[-1]]
    names = list(tensors(call))
    return len(names) == 2 and any(call.shapes.get(name) == (shape[-1],) for name in names) and len(shape) > 1


def _norm(found: _Reads, steps: Sequence[int]) -> AtenNode:
    """The steps as one call, named as the last of them."""
    calls = [found.calls[place] for place in steps]
    square, last = calls[0], calls[-1]
    source = square.tensor("self")
    count = square.shapes[source][-1]
    add = next(call for call in calls if call.operator == "add")
    arguments = {"input": TensorRef(source), "normalized_shape": [count], "eps": float(add.get("other"))}
    if sum(call.operator == "mul" for call in calls) == 2:
        gain = next(name for name in tensors(last) if last.shapes.get(name) == (count,))
        arguments["weight"] = TensorRef(gain)
    return AtenNode(last.name, "rms_norm", arguments, last.outputs, last.shapes)
