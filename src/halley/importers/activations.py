"""Activations that a program computes step by step, found by their formula: GELU by the error function or by tanh, and SiLU.

Sums and products are compared with their terms and factors in any order and grouping, and numbers to three digits: exports write
``x/2 (1 + erf(x/sqrt(2)))`` in several ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from halley.importers.reads import NodeGraph

NODES_LIMIT = 12
"""Most steps of an activation."""


class Formula(NamedTuple):
    """A step: its ``function`` of ``operands``, which are values by name, or numbers."""

    function: str
    operands: tuple[str | float, ...]


class Activation(NamedTuple):
    """The ``places`` of the steps, the last of them last; the ``name`` of the activation; its argument, the value ``source``."""

    places: list[int]
    name: str
    source: str


Expression = tuple[Any, ...]
"""A number's text, a value's name, or a function with its arguments; sums and products with a number and sorted others."""


def _number(value: float) -> str:
    return f"{value:.3g}"


def _times(number: float, *factors: Expression) -> Expression:
    """A product as its number and its factors, those of products among them included."""
    flat: list[Expression] = []
    for factor in factors:
        if factor[0] == "*":
            number *= factor[1]
            flat += factor[2:]
        else:
            flat.append(factor)
    return flat[0] if number == 1 and len(flat) == 1 else ("*", number, *flat)


def _plus(number: float, *terms: Expression) -> Expression:
    flat: list[Expression] = []
    for term in terms:
        if term[0] == "+":
            number += term[1]
            flat += term[2:]
        else:
            flat.append(term)
    return flat[0] if number == 0 and len(flat) == 1 else ("+", number, *flat)


def _key(expression: Expression) -> str:
    """The expression as text, with terms and factors sorted.

    >>> x = ("value", "x")
    >>> _key(_times(1, x, _plus(1, ("erf", _times(0.70711, x))))) == _key(_times(1, _plus(1, ("erf", _times(0.7071, x))), x))
    True
    """
    head, *rest = expression
    if head in "*+":
        return f"({_number(rest[0])}{head}{head.join(sorted(_key(item) for item in rest[1:]))})"
    return f"{head}({','.join(item if isinstance(item, str) else _key(item) for item in rest)})"


_X: Expression = ("value", "x")
_ROOT = math.sqrt(2 / math.pi)
_CUBIC = _times(0.044715, _X, _X, _X)
KNOWN = {
    _key(_times(0.5, _X, _plus(1, ("erf", _times(math.sqrt(0.5), _X))))): "gelu",
    _key(_times(0.5, _X, _plus(1, ("tanh", _times(_ROOT, _plus(0, _X, _CUBIC)))))): "gelu_tanh",
    _key(_times(0.5, _X, _plus(1, ("tanh", _times(_ROOT, _X, _plus(1, _times(0.044715, _X, _X))))))): "gelu_tanh",
    _key(_times(1, _X, ("sigmoid", _X))): "silu",
}
"""Activations by their formula in x."""
ANCHORS = ("erf", "tanh", "sigmoid")
"""The function that each formula has."""


def activations(formulas: Sequence[Formula | None], graph: NodeGraph) -> Iterator[Activation]:
    """The activations among the nodes of a graph, of which ``formulas`` has the steps. Steps that another node reads, too, are
    none of an activation."""
    taken: set[int] = set()
    for place, formula in enumerate(formulas):
        if formula is not None and formula.function in ANCHORS and place not in taken:
            found = _activation_at(formulas, graph, place)
            if found is not None and not taken & set(found.places):
                taken.update(found.places)
                yield found


def _activation_at(formulas: Sequence[Formula | None], graph: NodeGraph, anchor: int) -> Activation | None:
    """The activation whose error function, tanh or sigmoid is at this place."""
    sources = list(_behind(formulas, graph, anchor))
    roots: list[int] = []
    place = anchor
    while len(roots) < NODES_LIMIT and (path := graph.path(place)) and formulas[path[-1]] is not None:
        place = path[-1]
        roots.append(place)
    for root in reversed(roots):
        for source in sources:
            steps: set[int] = set()
            expression = _expanded(formulas, graph, graph.steps[root].makes[0], source, steps, root + 1)
            name = KNOWN.get(_key(expression)) if expression is not None and anchor in steps else None
            if name is not None and _closed(graph, steps, root):
                return Activation([*sorted(steps - {root}), root], name, source)
    return None


def _behind(formulas: Sequence[Formula | None], graph: NodeGraph, anchor: int) -> Iterator[str]:
    """The values from which the argument of a step is computed, the nearest first."""
    seen: dict[str, None] = {}
    now = list(graph.steps[anchor].reads)
    for _ in range(NODES_LIMIT):
        before: list[str] = []
        for name in now:
            if name in seen:
                continue
            seen[name] = None
            yield name
            place = graph.maker.get(name)
            if place is not None and (formulas[place] is not None or graph.steps[place].operator in graph.casts):
                before += graph.steps[place].reads
        now = before
        if len(seen) > 2 * NODES_LIMIT:
            return


def _expanded(
    formulas: Sequence[Formula | None], graph: NodeGraph, name: str, source: str, steps: set[int], before: int
) -> Expression | None:
    """The expression of a value in the source; None if it is too long, or made by a node that is not ``before`` this place.
    ``steps``: gets the places of its nodes."""
    if name == source:
        return _X
    place = graph.maker.get(name)
    if place is None or place >= before or len(steps) > NODES_LIMIT:
        return None
    formula = formulas[place]
    if formula is None:
        if graph.steps[place].operator not in graph.casts or not graph.steps[place].reads:
            return None
        steps.add(place)
        return _expanded(formulas, graph, graph.steps[place].reads[0], source, steps, place)
    steps.add(place)
    numbers = [item for item in formula.operands if not isinstance(item, str)]
    values = []
    for item in formula.operands:
        if isinstance(item, str):
            made = _expanded(formulas, graph, item, source, steps, place)
            if made is None or len(made) > NODES_LIMIT:
                return None
            values.append(made)
    return _applied(formula, numbers, values)


def _applied(formula: Formula, numbers: Sequence[float], values: Sequence[Expression]) -> Expression | None:
    """The function of a step on expressions; None for what no activation has."""
    first = formula.operands[0]
    match formula.function, len(values):
        case "mul", 1 | 2:
            return _times(math.prod(numbers), *values)
        case "div", 1 if isinstance(first, str) and numbers[0]:
            return _times(1 / numbers[0], *values)
        case "add", 1 | 2:
            return _plus(sum(numbers), *values)
        case "pow", 1 if isinstance(first, str) and numbers[0] in (2, 3):
            return _times(1, *[values[0]] * int(numbers[0]))
        case ("erf" | "tanh" | "sigmoid") as name, 1:
            return name, values[0]
        case _:
            return None


def _closed(graph: NodeGraph, steps: set[int], root: int) -> bool:
    """Whether only these steps read what they make, but for the last result."""
    inside: dict[str, int] = {}
    for place in steps:
        for name in graph.steps[place].reads:
            inside[name] = inside.get(name, 0) + 1
    return all(graph.count[name] == inside.get(name, 0) for place in steps - {root} for name in graph.steps[place].makes)
