"""Programs of ``torch.export`` as networks of layers: from a ``.pt2`` file, for which PyTorch is not needed, or from a module."""

from __future__ import annotations

import importlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halley.errors import BadInput, Fault, did_you_mean
from halley.importers.assembly import Assembly, mask_remark, printable
from halley.importers.lowering.node import LoweredNode, NotLowered
from halley.importers.network import ImportedNetwork
from halley.importers.torch.aten import CREATED, GROUPED, IGNORED, VIEWS, AtenNode, lower_aten
from halley.importers.torch.norms import tensors, with_activations, with_norms
from halley.importers.torch.program import read_program
from halley.importers.torch.pt2 import ANOTHER_FORM, another_form, read_pt2
from halley.importers.torch.traced import BOOLEAN, CALLS_LIMIT, Traced
from halley.ir.workload import DTYPE_BYTES

REAL = frozenset({"fp16", "fp32", "fp64", "bf16", "fp8"})
"""Element types of layers."""


def import_pt2(path: str, dtype: str | None = None) -> ImportedNetwork:
    """The network in a file of ``torch.export.save``. Only the program is read, not the weights. ``dtype``: element type of all
    tensors, by default that of the first real input or parameter.

    Raises BadInput: no such file; a part of the program that cannot be read.
    """
    _check_dtype(dtype)
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(Fault(path, "a file", "a folder or a device"))
        with Path(path).open("rb") as file:
            traced = read_pt2(file, path)
    except FileNotFoundError:
        raise BadInput(Fault(path, "a file", "no such file", "check the path")) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise BadInput(Fault(path, "a file that can be read", getattr(error, "strerror", None) or str(error))) from None
    try:
        return _Layers(traced, path, dtype).network()
    except ANOTHER_FORM:
        raise another_form(path, traced.schema) from None


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
    _check_dtype(dtype)
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
    return _Layers(read_program(program, named), named, dtype).network()


def _check_dtype(dtype: str | None) -> None:
    if dtype is not None and dtype not in DTYPE_BYTES:
        raise BadInput(Fault("--dtype", "an element type", repr(dtype), did_you_mean(dtype, DTYPE_BYTES)))


@dataclass(slots=True)
class _Layers:
    """Turns the calls of a program into layers."""

    traced: Traced
    where: str
    wanted: str | None
    folded: int = 0
    whole: dict[str, str] = field(default_factory=dict)  # by view, the value whose elements it has
    masks: int = 0
    grouped: int = 0

    def network(self) -> ImportedNetwork:
        traced = self.traced
        found = Assembly(self.where, self.wanted or self._dtype(), traced.shapes, traced.held)
        if len(traced.calls) > CALLS_LIMIT:
            raise BadInput(Fault(self.where, f"at most {CALLS_LIMIT:,} calls", "more"))
        for call in with_activations(with_norms(traced.calls, traced.results), traced.results):
            self._add(found, call)
        if not found.nodes:
            raise BadInput(Fault(self.where, "a program with layers", "constants alone"))
        return found.network(0, traced.results, list(self._remarks()))

    def _remarks(self) -> Iterator[str]:
        for symbol, extent in sorted(self.traced.symbols.items()):
            yield f"the dim {printable(symbol)} has the extent of the example: {extent}"
        if self.folded:
            yield f"{self.folded} calls compute constants, such as positions and masks; they are not among the layers"
        if self.masks:
            yield f"{mask_remark(self.masks)}. Where it is causal, pass is_causal=True and no mask"
        if self.grouped:
            yield f"{self.grouped} products of groups of rows: as groups of equal sizes, which the router decides in fact"

    def _dtype(self) -> str:
        words = (self.traced.types.get(name, "") for name in self.traced.inputs)
        return next((word for word in words if word in REAL), "fp32")

    def _add(self, found: Assembly, call: AtenNode) -> None:
        """Add a call, unless it computes a constant."""
        if call.operator in IGNORED or not call.outputs:
            return
        inputs = list(tensors(call))
        alone = all(name in self.traced.held for name in inputs)
        if call.operator in VIEWS and inputs:
            self.whole.update(dict.fromkeys(call.outputs, self._whole(inputs[0])))
        if call.in_place and inputs and not alone:  # its elements are no constants any more
            changed = self._whole(inputs[0])
            self.traced.held -= {name for name in (changed, *self.whole) if self._whole(name) == changed}
        trained = any(name in self.traced.parameters for name in inputs)
        if call.operator in CREATED or (inputs and alone and not trained):
            self.traced.held.update(call.outputs)
            self.folded += call.operator not in VIEWS
        elif call.operator in VIEWS and alone:
            self.traced.held.update(call.outputs)
            self.traced.parameters.update(call.outputs)
        else:
            made = None if call.operator in VIEWS else self._lowered(call)
            found.add(call.name, call.operator, (*inputs, *call.outputs), made)

    def _whole(self, name: str) -> str:
        return self.whole.get(name, name)

    def _lowered(self, call: AtenNode) -> LoweredNode | Exception:
        if self.traced.types.get(call.outputs[0], "") not in REAL:
            return NotLowered("integers or truths")
        booleans = [name for name in tensors(call) if self.traced.types.get(name) == BOOLEAN]
        try:
            if call.operator == "scaled_dot_product_attention" and call.has("attn_mask"):
                self.masks += 1
            self.grouped += call.operator in GROUPED
            own = {**call.arguments, "booleans": booleans}
            return lower_aten(AtenNode(call.name, call.operator, own, call.outputs, call.shapes))
        except (NotLowered, ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError) as error:
            return error
