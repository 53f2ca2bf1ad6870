"""Programs of ``torch.export`` in memory. Their graphs are read as they are: saving takes a third of the time, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from halley.errors import BadInput, Fault
from halley.importers.torch.aten import AtenNode, TensorRef
from halley.importers.torch.traced import BOOLEAN, CALLS_LIMIT, DEPTH_LIMIT, WRAPPER, Traced, name_outside

DTYPES = {
    "uint8": "int8", "int8": "int8", "int32": "int32", "float16": "fp16", "float32": "fp32", "float64": "fp64", "bool": BOOLEAN,
    "bfloat16": "bf16",
}  # fmt: skip
"""Element types by their names in PyTorch."""
SELECTS = "getitem"
"""Function that selects a result of a call with several."""


def read_program(program: Any, where: str) -> Traced:
    """The calls of a ``torch.export.ExportedProgram``. Raises BadInput: a size that the example does not set."""
    return _Reader(where).read(program)


@dataclass(slots=True)
class _Reader:
    where: str
    found: Traced = field(default_factory=Traced)

    def read(self, program: Any) -> Traced:
        specs = program.graph_signature.input_specs
        tensors = (spec for spec in specs if type(spec.arg).__name__ == "TensorArgument")
        self.found.note_inputs((spec.arg.name, spec.kind.name.lower()) for spec in tensors)
        self._placeholders(program.graph, "")
        self.found.calls = list(islice(self._calls(program.graph_module, "", {}, 0), CALLS_LIMIT + 1))
        self.found.results = [name for name, _ in _returned(program.graph)]
        return self.found

    # --- values -------------------------------------------------------------------------------------------------------------

    def _placeholders(self, graph: Any, prefix: str) -> None:
        for node in graph.nodes:
            if node.op == "placeholder" and _is_tensor(node.meta.get("val")):
                self._value(prefix + node.name, node.meta["val"])

    def _value(self, name: str, tensor: Any) -> None:
        word = str(tensor.dtype).removeprefix("torch.")
        dtype = "fp8" if word.startswith("float8") else DTYPES.get(word, "")
        self.found.value(name, tuple(self._extent(size) for size in tensor.shape), dtype)

    def _extent(self, size: Any) -> int:
        """A number; of an expression of symbols the value in the example."""
        if isinstance(size, int):
            return size
        if size.node.hint is None:
            raise BadInput(Fault(self.where, "sizes that the example sets", f"{str(size)[:60]!r}"))
        return self.found.symbol(str(size.node.expr), int(size.node.hint))

    # --- calls --------------------------------------------------------------------------------------------------------------

    def _calls(self, module: Any, prefix: str, outer: Mapping[str, str], depth: int) -> Iterator[AtenNode]:
        """The calls of a graph in order, those of the graphs that it wraps in their place. ``outer``: by value of the graph, the
        value that stands for it outside."""
        names = dict(outer)
        functions = (node for node in module.graph.nodes if node.op == "call_function" and _word(node.target) != SELECTS)
        for place, node in enumerate(functions):
            target = str(node.target)
            inner = [number for number, argument in enumerate(node.args) if getattr(argument, "op", "") == "get_attr"]
            if inner and WRAPPER in target and depth < DEPTH_LIMIT:
                seen = partial(name_outside, names, prefix)
                yield from self._wrapped(module, node, inner[0], f"{prefix}{place}.", seen, depth)
                continue
            outputs = []
            for name, tensor in _outputs(node):
                outputs.append(name_outside(names, prefix, name))
                self._value(outputs[-1], tensor)
            arguments = {name: self._decoded(argument, names, prefix) for name, argument in _arguments(node)}
            yield self.found.call(prefix + node.name, target, arguments, tuple(outputs))

    def _wrapped(
        self, module: Any, node: Any, number: int, prefix: str, seen: Callable[[str], str], depth: int
    ) -> Iterator[AtenNode]:
        """The graph, argument ``number`` of a call that runs it once, with other settings. The next arguments are its inputs.
        ``seen``: the name of a value outside."""
        inner = getattr(module, node.args[number].target)
        self._placeholders(inner.graph, prefix)
        parameters = [each.name for each in inner.graph.nodes if each.op == "placeholder"]
        given = [each.name if _is_node(each) else "" for each in node.args[number + 1 :]]
        inside = {own: seen(outside) for own, outside in zip(parameters, given, strict=False) if outside}
        for (own, tensor), (outside, _) in zip(_returned(inner.graph), _outputs(node), strict=False):
            self._value(seen(outside), tensor)
            inside.setdefault(own, seen(outside))
        yield from self._calls(inner, prefix, inside, depth + 1)

    def _decoded(self, argument: Any, names: Mapping[str, str], prefix: str) -> Any:
        if isinstance(argument, (list, tuple)):
            return [self._decoded(item, names, prefix) for item in argument]
        if not _is_node(argument):
            return argument
        value = argument.meta.get("val")
        if _is_tensor(value):
            return TensorRef(name_outside(names, prefix, argument.name))
        return self._extent(value) if type(value).__name__ in ("SymInt", "int") else value


def _is_node(value: Any) -> bool:
    return hasattr(value, "op") and hasattr(value, "meta")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _word(target: Any) -> str:
    return str(getattr(target, "__name__", ""))


def _arguments(node: Any) -> Iterator[tuple[str, Any]]:
    """Arguments of a call by the names of its schema, or by their numbers where it has none."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    for number, argument in enumerate(node.args):
        yield names[number] if number < len(names) else str(number), argument
    yield from node.kwargs.items()


def _outputs(node: Any) -> Iterator[tuple[str, Any]]:
    """Tensors that a call returns, each by the name of the node that selects it."""
    yield from _selected(node, node.name, node.meta.get("val"))


def _selected(node: Any, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if _is_tensor(value):
        yield name, value
    elif isinstance(value, (list, tuple)):
        users = {user.args[1]: user for user in node.users if _word(user.target) == SELECTS} if node is not None else {}
        for number, item in enumerate(value):
            user = users.get(number)
            yield from _selected(user, user.name if user is not None else f"{name}_unused_{number}", item)


def _returned(graph: Any) -> list[tuple[str, Any]]:
    """Tensors that a graph returns: names and values."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    found: list[tuple[str, Any]] = []
    _collect(output.args, found)
    return found


def _collect(value: Any, found: list[tuple[str, Any]]) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)
    elif _is_node(value) and _is_tensor(value.meta.get("val")):
        found.append((value.name, value.meta["val"]))
