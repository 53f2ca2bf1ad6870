"""ONNX models as networks of layers, with the package ``onnx`` (the extra ``onnx``)."""

from __future__ import annotations

import importlib
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from halley.errors import BadInput, Fault, did_you_mean
from halley.importers.assembly import Assembly, mask_remark, printable
from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered, Shape
from halley.importers.lowering.operators import VIEWS, lower
from halley.importers.network import ImportedNetwork
from halley.importers.onnx.patterns import with_patterns
from halley.ir.workload import DTYPE_BYTES

BYTES_LIMIT = 2**29
"""Largest file that is read [B]. Weights, which make files larger, are not needed."""
NODES_LIMIT = 100_000
"""Most nodes of a graph."""
ARRAY_LIMIT = 2**26
"""Most elements of a mask that is read."""
KNOWN_LIMIT = 4096
"""Most elements of a value that is computed while reading, such as the shape of a reshape."""
EXTENT_LIMIT = 2**31
"""Largest extent of a dim."""
DTYPES = {
    1: "fp32",
    10: "fp16",
    11: "fp64",
    16: "bf16",
    17: "fp8",
    18: "fp8",
    19: "fp8",
    20: "fp8",
    2: "int8",
    3: "int8",
    6: "int32",
}
"""Element types of ONNX by their numbers."""
WHOLE_NUMBERS = frozenset({6, 7, 9, 12, 13})
"""Element types of indices, counts and truths."""
BOOLEAN = 9
"""Number of the element type BOOL (`TensorProto.DataType`)."""
FOLDED = frozenset(
    {
        "Add",
        "And",
        "Cast",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Cos",
        "Div",
        "Equal",
        "Exp",
        "Expand",
        "Gather",
        "Greater",
        "Identity",
        "Less",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceProd",
        "Reshape",
        "Shape",
        "Size",
        "Sin",
        "Slice",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
    }
)
"""Operators whose value is computed while reading, where all inputs are known and small: they compute shapes and
scales."""


def import_onnx(path: str, dims: Mapping[str, int] | None = None, dtype: str | None = None) -> ImportedNetwork:
    """The network in a file. ``dims``: extents of dims that the file only names; ``dtype``: element type of all tensors, by
    default that of the first input.

    Raises BadInput: the package is missing; no ONNX file; dims without an extent.
    """
    onnx = _package()
    where = str(path)
    model = _read(onnx, path, where)
    if len(model.graph.node) > NODES_LIMIT:
        raise BadInput(Fault(where, f"at most {NODES_LIMIT:,} nodes", f"{len(model.graph.node):,}"))
    if dtype is not None and dtype not in DTYPE_BYTES:
        raise BadInput(Fault("--dtype", "an element type", repr(dtype), did_you_mean(dtype, DTYPE_BYTES)))
    try:
        if model.functions:
            model = importlib.import_module("onnx.inliner").inline_local_functions(model)
        constants = {item.name for item in model.graph.initializer}
        _set_dims(model, dims or {}, constants, where)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except BadInput:
        raise
    except Exception as error:  # the checks of the package are of many kinds
        raise BadInput(Fault(where, "a graph whose shapes can be inferred", _first_line(error))) from None
    return _Network(onnx, model, where, dtype).made()


def _package() -> Any:
    """The package ``onnx``. Raises BadInput: it is not installed."""
    try:
        onnx = importlib.import_module("onnx")
        importlib.import_module("onnx.shape_inference")
    except ImportError:
        raise BadInput(Fault("onnx", "the package onnx", "none", "run: pip install 'halley[onnx]'")) from None
    return onnx


def _read(onnx: Any, path: str, where: str) -> Any:
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(Fault(where, "a file", "a folder or a device"))
        if status.st_size > BYTES_LIMIT:
            remedy = "export with the weights in a file of their own, which is not read"
            raise BadInput(Fault(where, f"a file of at most {BYTES_LIMIT:,} bytes", f"{status.st_size:,} bytes", remedy))
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise BadInput(Fault(where, "a file", "no such file", "check the path")) from None
    except (OSError, ValueError) as error:
        raise BadInput(Fault(where, "a file that can be read", getattr(error, "strerror", None) or str(error))) from None
    try:
        model = onnx.load_model_from_string(content)
    except Exception:  # of the library that parses it, which differs between versions
        raise BadInput(Fault(where, "an ONNX model", "another file, or a part of one")) from None
    if not model.graph.node:
        raise BadInput(Fault(where, "an ONNX model with nodes", "none"))
    return model


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


def _set_dims(model: Any, dims: Mapping[str, int], constants: set[str], where: str) -> None:
    """Put extents in place of the names of dims. Raises BadInput: a name without an extent, an extent without a name."""
    missing: dict[str, str] = {}
    used: set[str] = set()
    for item in model.graph.input:
        if item.name in constants:
            continue
        for dim in item.type.tensor_type.shape.dim:
            name = dim.dim_param
            if name in dims:
                used.add(name)
                dim.dim_value = dims[name]
            elif name or not dim.HasField("dim_value"):
                missing[name or "?"] = item.name
    faults = [
        Fault(f"{where}, input {name[:60]!r}", f"an extent of the dim {dim[:60]}", "nothing", f"add --dim {dim[:60]}=NUMBER")
        for dim, name in missing.items()
    ]
    faults += [
        Fault("--dim", "dims of the file", repr(name), did_you_mean(name, missing) if missing else "remove it")
        for name in dims
        if name not in used
    ]
    if faults:
        raise BadInput(faults)


class _Network:
    """Reads the nodes of a graph in order."""

    def __init__(self, onnx: Any, model: Any, where: str, dtype: str | None) -> None:
        self.onnx, self.model, self.where = onnx, model, where
        self.opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 1)
        self.shapes: dict[str, Shape] = {}
        self.types: dict[str, int] = {}
        self.known: dict[str, Any] = {}
        self.constant: set[str] = set()
        self._values()
        self.dtype = dtype or self._dtype()

    def _values(self) -> None:
        """Shapes of all values, and the small constants."""
        numpy_helper = importlib.import_module("onnx.numpy_helper")
        shown = self.model.graph
        for item in (*shown.input, *shown.value_info, *shown.output):
            tensor = item.type.tensor_type
            if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
                shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
                if all(0 <= extent <= EXTENT_LIMIT for extent in shape):
                    self.shapes[item.name] = shape
            self.types[item.name] = tensor.elem_type
        for item in shown.initializer:
            self.shapes[item.name] = tuple(int(extent) for extent in item.dims)
            self.types[item.name] = item.data_type
            self.constant.add(item.name)
            if math.prod(item.dims) <= KNOWN_LIMIT and item.data_location != self.onnx.TensorProto.EXTERNAL:
                try:
                    self.known[item.name] = numpy_helper.to_array(item)
                except (ValueError, TypeError):  # data that do not fill the shape
                    continue

    def _dtype(self) -> str:
        """The element type of the first input of real numbers, else of the first constant."""
        for name in (*(item.name for item in self.model.graph.input), *self.constant):
            word = DTYPES.get(self.types.get(name, 0), "")
            if word and not word.startswith("int"):
                return word
        return "fp32"

    def made(self) -> ImportedNetwork:
        found = Assembly(self.where, self.dtype, self.shapes, self.constant)
        kept = [(place, proto) for place, proto in enumerate(self.model.graph.node) if not self._constant(proto)]
        views = [self._view(proto) for _, proto in kept]
        results = [item.name for item in self.model.graph.output]
        for (place, proto), view in zip(kept, with_patterns(views, results, self._array), strict=True):
            if view is not None:
                self._add(found, place, proto, view)
        if not found.nodes:
            raise BadInput(Fault(self.where, "a graph with layers", "constants alone"))
        remarks = []
        if self.opset < 13:
            remarks.append(f"operators of version {self.opset}, older than 13: checked on the networks of the package onnx only")
        masks = sum("M" in node.lowered.inputs for node in found.nodes if node.operator == "Attention" and node.lowered)
        if masks:
            remarks.append(mask_remark(masks))
        return found.network(self.opset, results, remarks)

    def _constant(self, proto: Any) -> bool:
        """Whether the node computes a constant."""
        if self._folded(proto):
            return True
        inputs = [item for item in proto.input if item]
        if proto.domain not in ("", "ai.onnx") or not inputs or not all(item in self.constant for item in inputs):
            return False
        self.constant.update(proto.output)
        return True

    def _add(self, found: Assembly, place: int, proto: Any, view: NodeView) -> None:
        """Add a node, as which ``view`` says."""
        name = printable(proto.name or next(iter(proto.output), "")) or f"node-{place}"
        operator = view.operator or printable(proto.op_type)
        values = [each for each in (*view.inputs, *view.outputs) if each]
        if proto.domain not in ("", "ai.onnx"):
            found.add(name, f"{printable(proto.domain)}.{operator}", values, NotLowered("an operator of another domain"))
        else:
            found.add(name, operator, values, None if self._is_view(view, operator) else self._lowered(view))

    def _is_view(self, view: NodeView, operator: str) -> bool:
        """Whether the node only selects, reorders or repeats elements: also by constant numbers, and the nearest of an image."""
        if operator == "Gather":
            return len(view.inputs) > 1 and view.inputs[1] in self.constant and view.inputs[0] not in self.constant
        if operator in ("Resize", "Upsample"):
            return str(view.get("mode", "nearest")) == "nearest"
        return operator in VIEWS

    def _array(self, name: str) -> Any:
        """The value of a constant; None if the file does not hold it, or if it is large."""
        if name in self.known:
            return self.known[name]
        for item in self.model.graph.initializer:
            if item.name == name and item.data_location != self.onnx.TensorProto.EXTERNAL and math.prod(item.dims) <= ARRAY_LIMIT:
                try:
                    return importlib.import_module("onnx.numpy_helper").to_array(item)
                except (ValueError, TypeError):  # data that do not fill the shape
                    return None
        return None

    def _lowered(self, view: NodeView) -> LoweredNode | Exception:
        if not view.operator:
            return ValueError("attributes that cannot be read")
        if self.types.get(view.outputs[0]) in WHOLE_NUMBERS:
            return NotLowered("integers or truths")
        try:
            return lower(view)
        except (NotLowered, ValueError, TypeError, IndexError, OverflowError) as error:
            return error

    def _view(self, proto: Any) -> NodeView:
        """The node; without an operator if that is of another domain, or if its attributes cannot be read."""
        read = importlib.import_module("onnx.helper").get_attribute_value
        operator = printable(proto.op_type) if proto.domain in ("", "ai.onnx") else ""
        attributes = {}
        for item in proto.attribute if operator not in VIEWS or operator == "Transpose" else ():
            try:
                value = read(item)
            except ValueError:
                operator = ""
                break
            attributes[item.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if operator == "Attention" and len(proto.input) > 3:
            attributes["boolean"] = int(self.types.get(proto.input[3]) == BOOLEAN)
        return NodeView(operator, tuple(proto.input), tuple(proto.output), attributes, self.shapes, self.known, self.opset)

    def _folded(self, proto: Any) -> bool:
        """Whether the node computes a constant; its value is known then if it is small."""
        inputs = [name for name in proto.input if name]
        shape_of = proto.op_type in ("Shape", "Size") and all(name in self.shapes for name in inputs)
        if proto.domain not in ("", "ai.onnx") or proto.op_type not in FOLDED:
            return False
        if not shape_of and not all(name in self.constant for name in inputs):
            return False
        self.constant.update(proto.output)
        if shape_of:
            shape = np.array(self.shapes[inputs[0]], np.int64)
            self.known[proto.output[0]] = shape if proto.op_type == "Shape" and not proto.attribute else np.array(shape.prod())
            if proto.op_type == "Shape" and proto.attribute:
                del self.known[proto.output[0]]
            return True
        size = max((math.prod(self.shapes.get(name, (KNOWN_LIMIT + 1,))) for name in proto.output), default=0)
        if size <= KNOWN_LIMIT and all(name in self.known for name in inputs):
            self._compute(proto, inputs)
        return True

    def _compute(self, proto: Any, inputs: list[str]) -> None:
        """The value of a node whose inputs are known."""
        helper, reference = importlib.import_module("onnx.helper"), importlib.import_module("onnx.reference")
        kinds = {name: helper.make_empty_tensor_value_info(name) for name in (*inputs, *proto.output)}
        shown = helper.make_graph([proto], "node", [kinds[name] for name in inputs], [kinds[name] for name in proto.output])
        try:
            single = helper.make_model(shown, opset_imports=[helper.make_opsetid("", self.opset)])
            found = reference.ReferenceEvaluator(single).run(None, {name: self.known[name] for name in inputs})
        except Exception:  # the value stays unknown: the evaluator raises what its operators do
            return
        for name, value in zip(proto.output, found, strict=True):
            array = np.asarray(value)
            if array.size <= KNOWN_LIMIT:
                self.known[name] = array
                self.shapes.setdefault(name, array.shape)
