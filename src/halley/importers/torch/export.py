"""Programs of ``torch.export`` as networks of layers: from a ``.pt2`` file, for which PyTorch is not needed, or from a module."""

from __future__ import annotations

import importlib
import io
import json
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

from halley.errors import BadInput, Fault, did_you_mean
from halley.importers.assembly import Assembly, mask_remark, printable
from halley.importers.lowering import NotLowered, Shape
from halley.importers.network import ImportedNetwork, LoweredNode
from halley.importers.torch.aten import CREATED, GROUPED, IGNORED, VIEWS, AtenNode, TensorRef, lower_aten
from halley.importers.torch.norms import tensors, with_activations, with_norms
from halley.ir.workload import DTYPE_BYTES

BYTES_LIMIT = 2**29
"""Largest program, without its weights, that is read [B]."""
NODES_LIMIT = 1_000_000
"""Most calls of a program, those of its submodules included."""
EXTENT_LIMIT = 2**31
"""Largest extent of a dim."""
DEPTH_LIMIT = 20
"""Most graphs within graphs."""
PROGRAM = re.compile(r"([^/]+/)?(models/[^/]+\.json|serialized_exported_program\.json)")
"""The part of a file that holds the program."""
DTYPES = {1: "int8", 2: "int8", 4: "int32", 6: "fp16", 7: "fp32", 8: "fp64", 13: "bf16"} | dict.fromkeys(range(29, 34), "fp8")
"""Element types of PyTorch by their numbers."""
REAL = frozenset({"fp16", "fp32", "fp64", "bf16", "fp8"})
BOOLEAN = 12
"""Number of the element type BOOL (`torch._export.serde.schema.ScalarType`)."""
TARGET = re.compile(r"(?:torch\.)?(?:ops\.)?([\w.]+?)\.([A-Za-z_]\w*)\.\w+")
"""The name of an operator: namespace, operator, overload."""


def import_pt2(path: str, dtype: str | None = None) -> ImportedNetwork:
    """The network in a file of ``torch.export.save``. Only the program is read, not the weights. ``dtype``: element type of all
    tensors, by default that of the first real input or parameter.

    Raises BadInput: no such file; a part of the program that cannot be read.
    """
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(Fault(path, "a file", "a folder or a device"))
        with Path(path).open("rb") as file:
            return _read(file, path, dtype)
    except FileNotFoundError:
        raise BadInput(Fault(path, "a file", "no such file", "check the path")) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise BadInput(Fault(path, "a file that can be read", getattr(error, "strerror", None) or str(error))) from None


def from_torch(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    dtype: str | None = None,
    strict: bool = False,
    backward: bool = False,
) -> ImportedNetwork:
    """The network of a ``torch.nn.Module`` called with these example inputs. Parameters and inputs on the device ``meta`` need no
    memory. ``name``: of the network, by default that of the class; ``strict``: as for ``torch.export.export``. ``backward``: the
    module returns a loss (a scalar, first of its results), and the network has the gradients of all parameters, too.

    Raises BadInput: PyTorch is missing (the extra ``torch``); the module cannot be exported, or has no scalar to differentiate.
    """
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.export")
    except ImportError:
        raise BadInput(Fault("torch", "the package torch", "none", "run: pip install 'halley[torch]'")) from None
    named = name or type(module).__name__
    try:
        program = torch.export.export(module, tuple(args), dict(kwargs or {}), strict=strict)
        if backward:  # in core ATen, as PyTorch gives it
            program = importlib.import_module("torch.export.experimental")._export_forward_backward(program)
    except Exception as error:  # of PyTorch and of the module itself
        message = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        remedy = f"export a part of it, or with other inputs{', and return a scalar loss first' if backward else ''}"
        raise BadInput(Fault(named, "a module that torch.export takes", message, remedy)) from None
    buffer = io.BytesIO()
    torch.export.save(_without_weights(torch, program), buffer)
    buffer.seek(0)
    return _read(buffer, named, dtype)


def _without_weights(torch: Any, program: Any) -> Any:
    """The program with parameters and constants that hold no elements."""
    for values in (program.state_dict, program.constants):
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                empty = torch.empty(0, dtype=value.dtype)
                trained = isinstance(value, torch.nn.Parameter)
                values[key] = torch.nn.Parameter(empty, value.requires_grad) if trained else empty
    return program


def _read(file: IO[bytes], where: str, dtype: str | None) -> ImportedNetwork:
    if dtype is not None and dtype not in DTYPE_BYTES:
        raise BadInput(Fault("--dtype", "an element type", repr(dtype), did_you_mean(dtype, DTYPE_BYTES)))
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
    try:
        return _Program(program, where, dtype).network()
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        version = program.get("schema_version") if isinstance(program, dict) else None
        got = f"a part in another form (schema {json.dumps(version)[:40]})"
        raise BadInput(Fault(where, expected, got, "save it again with a newer PyTorch")) from None


@dataclass(slots=True)
class _Program:
    """Reads the calls of a program in order."""

    program: Mapping[str, Any]
    where: str
    wanted: str | None
    shapes: dict[str, Shape] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)  # constants and parameters, and views of them
    parameters: set[str] = field(default_factory=set)
    symbols: dict[str, int] = field(default_factory=dict)
    folded: int = 0
    whole: dict[str, str] = field(default_factory=dict)  # by view, the value whose elements it has
    masks: int = 0
    grouped: int = 0

    def network(self) -> ImportedNetwork:
        module = self.program["graph_module"]
        self._values(module["graph"], "")
        order = list(self._inputs(module["signature"]["input_specs"]))
        found = Assembly(self.where, self.wanted or self._dtype(order), self.shapes, self.held)
        calls = list(islice(self._calls(module["graph"], "", {}, 0), NODES_LIMIT + 1))
        if len(calls) > NODES_LIMIT:
            raise BadInput(Fault(self.where, f"at most {NODES_LIMIT:,} calls", "more"))
        results = [name for item in module["graph"]["outputs"] for name in self._tensors(item)]
        for call in with_activations(with_norms(calls, results), results):
            self._add(found, call)
        if not found.nodes:
            raise BadInput(Fault(self.where, "a program with layers", "constants alone"))
        return found.network(0, results, list(self._remarks()))

    def _remarks(self) -> Iterator[str]:
        for symbol, extent in sorted(self.symbols.items()):
            yield f"the dim {printable(symbol)} has the extent of the example: {extent}"
        if self.folded:
            yield f"{self.folded} calls compute constants, such as positions and masks; they are not among the layers"
        if self.masks:
            yield f"{mask_remark(self.masks)}. Where it is causal, pass is_causal=True and no mask"
        if self.grouped:
            yield f"{self.grouped} products of groups of rows: as groups of equal sizes, which the router decides in fact"

    # --- values -------------------------------------------------------------------------------------------------------------

    def _values(self, graph: Mapping[str, Any], prefix: str) -> None:
        for name, value in graph["tensor_values"].items():
            shape = tuple(self._extent(size) for size in value["sizes"])
            if all(0 <= extent <= EXTENT_LIMIT for extent in shape):
                self.shapes[prefix + name] = shape
            self.types[prefix + name] = int(value["dtype"])
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
        if text.isidentifier():
            self.symbols[text] = int(hint)
        return int(hint)

    def _inputs(self, specs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """The values that are given, those of the user first; all others are noted as constants."""
        given, held = [], []
        for spec in specs:
            ((kind, value),) = spec.items()
            name = self._name(value.get("arg"))
            if not name:
                continue
            if kind == "user_input":
                given.append(name)
            else:
                held.append(name)
                self.held.add(name)
                if kind == "parameter":
                    self.parameters.add(name)
        yield from given
        yield from held

    @staticmethod
    def _name(argument: Any) -> str:
        if not isinstance(argument, dict):
            return ""
        value = argument.get("as_tensor", argument)
        return str(value.get("name", "")) if isinstance(value, dict) else ""

    def _dtype(self, order: Sequence[str]) -> str:
        words = (DTYPES.get(self.types.get(name, 0), "") for name in order)
        return next((word for word in words if word in REAL), "fp32")

    # --- calls --------------------------------------------------------------------------------------------------------------

    def _calls(self, graph: Mapping[str, Any], prefix: str, outer: Mapping[str, str], depth: int) -> Iterator[AtenNode]:
        """The calls of a graph in order, those of the graphs that it wraps in their place. ``outer``: by value of the graph, the
        value that stands for it outside."""
        names = dict(outer)
        for place, node in enumerate(graph["nodes"]):
            target = str(node["target"])
            arguments = {str(item["name"]): item["arg"] for item in node["inputs"]}
            inner = [argument["as_graph"] for argument in arguments.values() if "as_graph" in argument]
            if inner and "wrap_with" in target and depth < DEPTH_LIMIT:
                yield from self._wrapped(node, inner[0]["graph"], f"{prefix}{place}.", names, depth)
                continue
            decoded = {name: self._decoded(argument, names, prefix) for name, argument in arguments.items()}
            outputs = tuple(self._outputs(node["outputs"], names, prefix))
            matched = TARGET.fullmatch(target)
            space, operator = matched.groups() if matched else ("", target)
            in_place = operator.endswith("_") and not operator.startswith("__")
            operator = operator.rstrip("_") if in_place else operator
            if space.rpartition(".")[2] != "aten":
                operator = f"{space.rpartition('.')[2]}.{operator}" if space else operator
            name = str(node.get("name") or next(iter(outputs), "") or f"{prefix}call-{place}")
            yield AtenNode(printable(prefix + name), printable(operator), decoded, outputs, self.shapes, in_place)

    def _wrapped(
        self, node: Mapping[str, Any], graph: Mapping[str, Any], prefix: str, names: Mapping[str, str], depth: int
    ) -> Iterator[AtenNode]:
        """A graph that a call runs once, with other settings."""
        self._values(graph, prefix)
        given = [self._name(item["arg"]) for item in node["inputs"] if "as_tensor" in item["arg"]]
        parameters = [self._name(item) for item in graph["inputs"]]
        inside = {own: names.get(outside, outside) for own, outside in zip(parameters, given, strict=False) if own}
        results = [name for item in node["outputs"] for name in self._tensors(item)]
        made = [name for item in graph["outputs"] for name in self._tensors(item)]
        inside |= {own: names.get(outside, outside) for own, outside in zip(made, results, strict=False) if own not in inside}
        yield from self._calls(graph, prefix, inside, depth + 1)

    @staticmethod
    def _tensors(argument: Mapping[str, Any]) -> list[str]:
        if "as_tensor" in argument:
            return [str(argument["as_tensor"]["name"])]
        return [str(item["name"]) for item in argument.get("as_tensors", ())]

    def _outputs(self, outputs: Sequence[Mapping[str, Any]], names: Mapping[str, str], prefix: str) -> Iterator[str]:
        for item in outputs:
            for name in self._tensors(item):
                yield names.get(name, prefix + name)

    def _decoded(self, argument: Mapping[str, Any], names: Mapping[str, str], prefix: str) -> Any:
        ((kind, value),) = argument.items()
        if kind == "as_none":
            return None
        if kind in ("as_tensor", "as_optional_tensor"):
            name = self._name(value.get("as_tensor", value))
            return TensorRef(names.get(name, prefix + name)) if name else None
        if kind in ("as_tensors", "as_optional_tensors"):
            return [self._decoded({"as_optional_tensor": item}, names, prefix) for item in value]
        if kind == "as_sym_int":
            return int(value["as_int"]) if "as_int" in value else self.numbers[prefix + value["as_name"]]
        if kind == "as_sym_ints":
            return [self._decoded({"as_sym_int": item}, names, prefix) for item in value]
        return value

    # --- layers -------------------------------------------------------------------------------------------------------------

    def _add(self, found: Assembly, call: AtenNode) -> None:
        """Add a call, unless it computes a constant."""
        if call.operator in IGNORED or not call.outputs:
            return
        inputs = list(tensors(call))
        alone = all(name in self.held for name in inputs)
        if call.operator in VIEWS and inputs:
            self.whole.update(dict.fromkeys(call.outputs, self._whole(inputs[0])))
        if call.in_place and inputs and not alone:  # its elements are no constants any more
            changed = self._whole(inputs[0])
            self.held -= {name for name in (changed, *self.whole) if self._whole(name) == changed}
        trained = any(name in self.parameters for name in inputs)
        if call.operator in CREATED or (inputs and alone and not trained):
            self.held.update(call.outputs)
            self.folded += call.operator not in VIEWS
        elif call.operator in VIEWS and alone:
            self.held.update(call.outputs)
            self.parameters.update(call.outputs)
        else:
            made = None if call.operator in VIEWS else self._lowered(call)
            found.add(call.name, call.operator, (*inputs, *call.outputs), made)

    def _whole(self, name: str) -> str:
        return self.whole.get(name, name)

    def _lowered(self, call: AtenNode) -> LoweredNode | Exception:
        if DTYPES.get(self.types.get(call.outputs[0], 0), "") not in REAL:
            return NotLowered("integers or truths")
        booleans = [name for name in tensors(call) if self.types.get(name) == BOOLEAN]
        try:
            if call.operator == "scaled_dot_product_attention" and call.has("attn_mask"):
                self.masks += 1
            self.grouped += call.operator in GROUPED
            own = {**call.arguments, "booleans": booleans}
            return lower_aten(AtenNode(call.name, call.operator, own, call.outputs, call.shapes))
        except (NotLowered, ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError) as error:
            return error
