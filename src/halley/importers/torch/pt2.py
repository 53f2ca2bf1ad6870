"""Files of ``torch.export.save``. PyTorch is not needed, and the weights are not read."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import IO, Any

from halley.errors import BadInput, Fault
from halley.importers.torch.aten import AtenNode, TensorRef
from halley.importers.torch.traced import BOOLEAN, CALLS_LIMIT, DEPTH_LIMIT, WRAPPER, Traced, name_outside

BYTES_LIMIT = 2**29
"""Largest program, without its weights, that is read [B]."""
PROGRAM = re.compile(r"([^/]+/)?(models/[^/]+\.json|serialized_exported_program\.json)")
"""The part of a file that holds the program."""
DTYPES = {1: "int8", 2: "int8", 4: "int32", 6: "fp16", 7: "fp32", 8: "fp64", 12: BOOLEAN, 13: "bf16"} | dict.fromkeys(
    range(29, 34), "fp8"
)
"""Element types by their numbers in a file (`torch._export.serde.schema.ScalarType`)."""

SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)$")
"""A dim that may change, as newer versions of PyTorch write it."""

ANOTHER_FORM = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError)
"""What is raised where a part of a program is not what it is in other files."""


def read_pt2(file: IO[bytes], where: str) -> Traced:
    """The program of a file. Raises BadInput: there is none, or a part of it cannot be read."""
    expected = "a program of torch.export"
    try:
        with zipfile.ZipFile(file) as archive:
            parts = [item for item in archive.infolist() if PROGRAM.fullmatch(item.filename)]
            if not parts:
                remedy = "save it by torch.export.save(torch.export.export(module, inputs), file)"
                raise BadInput(Fault(where, expected, "an archive without one", remedy))
            if parts[0].file_size > BYTES_LIMIT:
                raise BadInput(Fault(where, f"a program of at most {BYTES_LIMIT:,} bytes", f"{parts[0].file_size:,} bytes"))
            with archive.open(parts[0]) as part:
                text = part.read(BYTES_LIMIT + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError):
        raise BadInput(Fault(where, expected, "another file, or a part of one")) from None
    try:
        program = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(Fault(where, expected, "text that is no JSON")) from None
    schema = json.dumps(program.get("schema_version") if isinstance(program, dict) else None)[:40]
    try:
        return _Reader(where, Traced(schema=schema)).read(program)
    except ANOTHER_FORM:
        raise another_form(where, schema) from None


def another_form(where: str, schema: str) -> BadInput:
    """The fault of a program whose parts are not what they are in other files."""
    got = f"a part in another form (schema {schema})"
    return BadInput(Fault(where, "a program of torch.export", got, "save it again with a newer PyTorch"))


@dataclass(slots=True)
class _Reader:
    """Reads the calls of a program in order."""

    where: str
    found: Traced = field(default_factory=Traced)
    numbers: dict[str, int] = field(default_factory=dict)

    def read(self, program: Mapping[str, Any]) -> Traced:
        module = program["graph_module"]
        self._values(module["graph"], "")
        specs = (item for spec in module["signature"]["input_specs"] for item in spec.items())
        named = ((_name(value.get("arg")), kind) for kind, value in specs)
        self.found.note_inputs((name, kind) for name, kind in named if name)
        self.found.calls = list(islice(self._calls(module["graph"], "", {}, 0), CALLS_LIMIT + 1))
        self.found.results = [name for item in module["graph"]["outputs"] for name in _tensors(item)]
        return self.found

    # --- values -------------------------------------------------------------------------------------------------------------

    def _values(self, graph: Mapping[str, Any], prefix: str) -> None:
        for name, value in graph["tensor_values"].items():
            shape = tuple(self._extent(size) for size in value["sizes"])
            self.found.value(prefix + name, shape, DTYPES.get(int(value["dtype"]), ""))
        for name, value in graph.get("sym_int_values", {}).items():
            self.numbers[prefix + name] = self._extent(value)

    def _extent(self, size: Mapping[str, Any]) -> int:
        """A number; of an expression of symbols the value in the example."""
        if "as_int" in size:
            return int(size["as_int"])
        expression = size["as_expr"]
        hint = (expression.get("hint") or {}).get("as_int")
        if hint is None:
            raise BadInput(Fault(self.where, "sizes that the example sets", f"{str(expression.get('expr_str'))[:60]!r}"))
        text = str(expression.get("expr_str", "?"))
        named = SYMBOL.match(text)
        return self.found.symbol(named[1] if named else text, int(hint))

    # --- calls --------------------------------------------------------------------------------------------------------------

    def _calls(self, graph: Mapping[str, Any], prefix: str, outer: Mapping[str, str], depth: int) -> Iterator[AtenNode]:
        """The calls of a graph in order, those of the graphs that it wraps in their place. ``outer``: by value of the graph, the
        value that stands for it outside."""
        names = dict(outer)
        for place, node in enumerate(graph["nodes"]):
            target = str(node["target"])
            arguments = {str(item["name"] or number): item["arg"] for number, item in enumerate(node["inputs"])}
            inner = [number for number, argument in enumerate(arguments.values()) if "as_graph" in argument]
            if inner and WRAPPER in target and depth < DEPTH_LIMIT:
                seen = partial(name_outside, names, prefix)
                yield from self._wrapped(node, inner[0], f"{prefix}{place}.", seen, depth)
                continue
            decoded = {name: self._decoded(argument, names, prefix) for name, argument in arguments.items()}
            outputs = tuple(name_outside(names, prefix, name) for item in node["outputs"] for name in _tensors(item))
            name = str(node.get("name") or next(iter(outputs), "") or f"{prefix}call-{place}")
            yield self.found.call(prefix + name, target, decoded, outputs)

    def _wrapped(
        self, node: Mapping[str, Any], number: int, prefix: str, seen: Callable[[str], str], depth: int
    ) -> Iterator[AtenNode]:
        """The graph, argument ``number`` of a call that runs it once, with other settings. The next arguments are its inputs.
        ``seen``: the name of a value outside."""
        graph = node["inputs"][number]["arg"]["as_graph"]["graph"]
        self._values(graph, prefix)
        given = [_name(item["arg"]) for item in node["inputs"][number + 1 :]]
        parameters = [_name(item) for item in graph["inputs"]]
        inside = {own: seen(outside) for own, outside in zip(parameters, given, strict=False) if own and outside}
        results = [name for item in node["outputs"] for name in _tensors(item)]
        made = [name for item in graph["outputs"] for name in _tensors(item)]
        inside = {own: seen(outside) for own, outside in zip(made, results, strict=False)} | inside
        yield from self._calls(graph, prefix, inside, depth + 1)

    def _decoded(self, argument: Mapping[str, Any], names: Mapping[str, str], prefix: str) -> Any:
        ((kind, value),) = argument.items()
        if kind == "as_none":
            return None
        if kind in ("as_tensor", "as_optional_tensor"):
            name = _name(value.get("as_tensor", value))
            return TensorRef(name_outside(names, prefix, name)) if name else None
        if kind in ("as_tensors", "as_optional_tensors"):
            return [self._decoded({"as_optional_tensor": item}, names, prefix) for item in value]
        if kind == "as_sym_int":
            return int(value["as_int"]) if "as_int" in value else self.numbers[prefix + value["as_name"]]
        if kind == "as_sym_ints":
            return [self._decoded({"as_sym_int": item}, names, prefix) for item in value]
        return value


def _name(argument: Any) -> str:
    """The name of a tensor; of other arguments none."""
    if not isinstance(argument, dict):
        return ""
    value = argument.get("as_tensor", argument)
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def _tensors(argument: Mapping[str, Any]) -> list[str]:
    if "as_tensor" in argument:
        return [str(argument["as_tensor"]["name"])]
    return [str(item["name"]) for item in argument.get("as_tensors", ())]
