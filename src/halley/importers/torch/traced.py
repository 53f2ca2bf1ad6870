"""A program of PyTorch after tracing: its calls of ATen in order, and what is known of its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from halley.importers.assembly import printable
from halley.importers.lowering.node import Shape
from halley.importers.torch.aten import AtenNode

CALLS_LIMIT = 1_000_000
"""Most calls of a program, those of its submodules included."""
EXTENT_LIMIT = 2**31
"""Largest extent of a dim."""
DEPTH_LIMIT = 20
"""Most graphs within graphs."""
BOOLEAN = "bool"
"""Element type of truths, in ``Traced.types``."""
WRAPPER = "wrap_with"
"""Part of the names of calls that run a graph once, with other settings, such as `wrap_with_set_grad_enabled`."""
TARGET = re.compile(r"(?:torch\.)?(?:ops\.)?([\w.]+?)\.([A-Za-z_]\w*)\.\w+")
"""The name of an operator: namespace, operator, overload."""


@dataclass(slots=True)
class Traced:
    """``inputs``: tensors of the user first, then the others. Those are ``held``: parameters, buffers and other constants.
    ``results``: tensors that the program returns. ``types``: by value, Halley's name of the element type, "bool", or "" for all
    others. ``symbols``: by dim that may change, its extent in the example. ``schema``: version of the form of a file."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    symbols: dict[str, int] = field(default_factory=dict)
    calls: Sequence[AtenNode] = ()
    results: Sequence[str] = ()
    schema: str = ""

    def note_inputs(self, found: Iterable[tuple[str, str]]) -> None:
        """Note the tensors that are given: name and kind (``user_input``, ``parameter``, ...) of each, in order."""
        kinds = dict(found)
        held = [name for name, kind in kinds.items() if kind != "user_input"]
        self.inputs = [*(name for name, kind in kinds.items() if kind == "user_input"), *held]
        self.held.update(held)
        self.parameters.update(name for name in held if kinds[name] == "parameter")

    def value(self, name: str, shape: Shape, dtype: str) -> None:
        """Note a tensor."""
        if all(0 <= extent <= EXTENT_LIMIT for extent in shape):
            self.shapes[name] = shape
        self.types[name] = dtype

    def symbol(self, expression: str, extent: int) -> int:
        """The extent of a dim, which is noted if the expression is a single symbol."""
        if expression.isidentifier():
            self.symbols[expression] = extent
        return extent

    def call(self, name: str, target: str, arguments: dict[str, object], outputs: tuple[str, ...]) -> AtenNode:
        """The call of an operator with its full name."""
        matched = TARGET.fullmatch(target)
        space, operator = matched.groups() if matched else ("", target)
        in_place = operator.endswith("_") and not operator.startswith("__")
        operator = operator.rstrip("_") if in_place else operator
        if space.rpartition(".")[2] != "aten":
            operator = f"{space.rpartition('.')[2]}.{operator}" if space else operator
        return AtenNode(printable(name), printable(operator), arguments, outputs, self.shapes, in_place)


def name_outside(names: Mapping[str, str], prefix: str, name: str) -> str:
    """The name by which all calls know a value of an inner graph. ``names``: of those that the outer graph gives or takes;
    ``prefix``: of all others."""
    return names.get(name, prefix + name)
