"""Groups of products with the elementwise ops and reductions behind them, and of both matrices of an MLP with the ops between, as
kernels: their patterns, workloads and lower bounds.

A group may run as one kernel (its intermediates stay on the chip) or as several; the search of mappings chooses. So its best
mapping takes at most as long as the best ones of its kernels one after the other.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time
from halley.ir.hardware import Chip
from halley.ir.workload import DTYPE_BYTES, FUNCTIONS, PLACED, Op, OpKind, Tensor, Workload, roles, work_per_point
from halley.kernels.bounds import longest_time, memory_time
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.times import Array


@dataclass(frozen=True, slots=True)
class GroupPattern:
    """A group of ops without extents: ``products`` contractions first, then the ops behind them, contractions among them."""

    dims: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    products: int

    @property
    def dtype(self) -> str:
        """Type of the first operand."""
        first = self.ops[0].inputs[0]
        return next(tensor.dtype for tensor in self.tensors if tensor.name == first)

    def workload(self, extents: Sequence[int]) -> Workload:
        """The group at these extents. A search may fuse its kernels: each product, and the ops between products together."""
        kernels = list[tuple[str, ...]]()
        for product, ops in itertools.groupby(self.ops, lambda op: op.kind is OpKind.CONTRACT):
            names = tuple(op.name for op in ops)
            kernels += [(name,) for name in names] if product else [names]
        tensors = {tensor.name: tensor for tensor in self.tensors}
        return Workload("group", dict(zip(self.dims, extents, strict=True)), tensors, self.ops, self.outputs, tuple(kernels))

    @property
    def contractions(self) -> tuple[Op, ...]:
        """All products, also those behind other ops."""
        return tuple(op for op in self.ops if op.kind is OpKind.CONTRACT)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that no op writes."""
        made = {name for op in self.ops for name in op.outputs}
        return tuple(tensor.name for tensor in self.tensors if tensor.name not in made)


class GroupShape(NamedTuple):
    """A group of given extents: its ``pattern`` as text (`pattern_text`), and its ``extents``, separated by spaces."""

    pattern: str
    extents: str

    @property
    def group(self) -> GroupPattern:
        """The pattern."""
        return read_pattern(self.pattern)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The extents, in the order of the pattern's dims."""
        return tuple(map(int, self.extents.split()))

    @property
    def workload(self) -> Workload:
        """What is searched."""
        return self.group.workload(self.sizes)

    @property
    def dtype(self) -> str:
        """Type of the first operand."""
        return self.group.dtype

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.workload.macs()

    def __str__(self) -> str:
        work = self.workload
        first, *others = work.ops[: self.group.products]
        role, tensors = roles(work, first), work.tensors
        rows, depth = (math.prod(work.dims[dim] for dim in dims) for dims in (role.rows, role.reduced))
        columns = [math.prod(work.dims[dim] for dim in roles(work, op).columns) for op in (first, *others)]
        batch = math.prod(work.dims[dim] for dim in role.batch)
        behind = ", ".join(_behind_name(work, op) for op in work.ops[self.group.products :])
        many = f"{batch} x " if batch > 1 else ""
        return f"{many}{rows} x {' + '.join(map(str, columns))} x {depth} {tensors[first.inputs[0]].dtype} with {behind}"


def _behind_name(work: Workload, op: Op) -> str:
    """An op behind the first products; a product with its columns."""
    columns = math.prod(work.dims[dim] for dim in roles(work, op).columns) if op.kind is OpKind.CONTRACT else 0
    return f"{op.name} of {columns} columns" if columns else op.name


@dataclass(frozen=True, slots=True)
class GroupKernel:
    """A group at ``extents``, numbers or arrays that broadcast, in the order of its dims."""

    pattern: GroupPattern
    extents: tuple[Number, ...]

    @property
    def local(self) -> dict[str, Number]:
        """Extents by dim."""
        return dict(zip(self.pattern.dims, self.extents, strict=True))

    @property
    def shape(self) -> GroupShape:
        """What is searched, of extents that are numbers."""
        return GroupShape(pattern_text(self.pattern), " ".join(str(int(float(extent))) for extent in self.extents))


class PatternDims(NamedTuple):
    """A pattern with the dims of the workload that each of its dims stands for."""

    pattern: GroupPattern
    dims: tuple[tuple[str, ...], ...]


def pattern_of(work: Workload, products: Sequence[str], behind: Sequence[str]) -> PatternDims | None:
    """The pattern of ``products`` and the ops ``behind`` them, with names of its own; dims that always occur together are one.

    None: an op depends on the position of an element, or is no product, elementwise op or reduction.

    >>> from halley.workloads.mlp import gemm_gelu_gemm
    >>> found = pattern_of(gemm_gelu_gemm(4, 5, 6), ["expand"], ["activate"])
    >>> [op.name for op in found.pattern.ops], found.pattern.dims, found.dims
    (['gemm', 'gelu'], ('m', 'k', 'n'), (('m',), ('k',), ('f',)))
    """
    ops = [work.op(name) for name in (*products, *behind)]
    kinds = [OpKind.CONTRACT] * len(products)
    if [op.kind for op in ops[: len(products)]] != kinds or any(_strange(op) for op in ops):
        return None
    names = {name: work.tensors[name] for op in ops for name in (*op.inputs, *op.outputs)}
    dims = dict.fromkeys(dim for op in ops for dim in op.dims)
    if any(dim not in dims for tensor in names.values() for dim in tensor.dims):
        return None
    where = {
        dim: (tuple(name for name in names if dim in names[name].dims), tuple(op.name for op in ops if dim in op.dims))
        for dim in dims
    }
    together: dict[object, list[str]] = {}
    for dim, place in where.items():
        together.setdefault(place, []).append(dim)
    called = _dim_names(work, ops[0], list(together.values()))
    new = {dim: name for name, each in called.items() for dim in each}
    tensors = _tensor_names(work, ops)
    used = Counter[str]()
    renamed = [_renamed(op, new, tensors, used) for op in ops]
    found = {
        tensors[name]: Tensor(tensors[name], _joined(tensor.dims, new), tensor.dtype) for name, tensor in sorted(names.items())
    }
    inside = {op.name for op in ops}
    outputs = tuple(tensors[name] for op in ops for name in op.outputs if work.leaves(name, inside))
    order = tuple(found[name] for name in dict.fromkeys(name for op in renamed for name in (*op.inputs, *op.outputs)))
    return PatternDims(
        GroupPattern(tuple(called), order, tuple(renamed), outputs, len(products)), tuple(tuple(each) for each in called.values())
    )


def _strange(op: Op) -> bool:
    """Whether a group may not contain an op."""
    if op.kind not in (OpKind.CONTRACT, OpKind.MAP, OpKind.REDUCE) or op.indices or op.along or op.scaled_by or op.running:
        return True
    return PLACED in FUNCTIONS[op.function].constants


def _dim_names(work: Workload, product: Op, groups: list[list[str]]) -> dict[str, list[str]]:
    """Names of dims by their role in the first product, numbered where a role has several."""
    role, found = roles(work, product), dict[str, list[str]]()
    for each in groups:
        parts = {"m": role.rows, "n": role.columns, "k": role.reduced, "b": role.batch}
        base = next((name for name, dims in parts.items() if each[0] in dims), "d")
        number = sum(name[0] == base for name in found)
        found[base if not number else f"{base}{number + 1}"] = each
    return found


def _tensor_names(work: Workload, ops: Sequence[Op]) -> dict[str, str]:
    """A and B of products, their results C; other inputs X, other results Y."""
    found, made = dict[str, str](), {name for op in ops for name in op.outputs}
    used = Counter[str]()
    for op in ops:
        first = op.kind is OpKind.CONTRACT
        for place, name in enumerate(op.inputs):
            if name not in found and name not in made:
                _number(found, used, name, ("A", "B")[place] if first else "X")
        for name in op.outputs:
            _number(found, used, name, "C" if first else "Y")
    return found


def _number(found: dict[str, str], used: Counter[str], name: str, base: str) -> None:
    used[base] += 1
    found[name] = base if used[base] == 1 else f"{base}{used[base]}"


def _renamed(op: Op, dims: Mapping[str, str], tensors: Mapping[str, str], used: Counter[str]) -> Op:
    base = "gemm" if op.kind is OpKind.CONTRACT else op.function if op.function != "identity" else op.monoid or op.function
    used[base] += 1
    name = base if used[base] == 1 else f"{base}{used[base]}"
    inputs, outputs = (tuple(tensors[each] for each in names) for names in (op.inputs, op.outputs))
    return Op(name, op.kind, inputs, outputs, _joined(op.dims, dims), op.function, op.monoid, constants=op.constants)


def _joined(dims: Sequence[str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Dims under their new names, each at the place of its last one: the last runs along the lanes."""
    return tuple(reversed(dict.fromkeys(new[dim] for dim in reversed(dims))))


@lru_cache(maxsize=1 << 10)
def pattern_text(pattern: GroupPattern) -> str:
    """A pattern as text, equal for equal ones."""
    return json.dumps(asdict(pattern), separators=(",", ":"))


@lru_cache(maxsize=1 << 10)
def read_pattern(text: str) -> GroupPattern:
    """The pattern of a text that `pattern_text` wrote."""
    data: dict[str, Any] = json.loads(text)
    tensors = (Tensor(item["name"], tuple(item["dims"]), item["dtype"]) for item in data["tensors"])
    return GroupPattern(
        tuple(data["dims"]), tuple(tensors), tuple(map(_read_op, data["ops"])), tuple(data["outputs"]), data["products"]
    )


def _read_op(item: Mapping[str, Any]) -> Op:
    inputs, outputs, dims = (tuple(item[name]) for name in ("inputs", "outputs", "dims"))
    constants = tuple((name, value) for name, value in item["constants"])
    return Op(item["name"], OpKind(item["kind"]), inputs, outputs, dims, item["function"], item["monoid"], constants=constants)


# --- what a group needs -------------------------------------------------------------------------------------------------


def group_demand(kernel: GroupKernel) -> tuple[Number, Number, Number]:
    """Multiply-accumulates, and bytes read from and written to memory, with all intermediates on the chip."""
    local, words = kernel.local, {tensor.name: _bytes(tensor, kernel.local) for tensor in kernel.pattern.tensors}
    macs = sum(_points(op, local) for op in kernel.pattern.contractions)
    read, written = (sum(words[name] for name in names) for names in (kernel.pattern.inputs, kernel.pattern.outputs))
    return macs, read, written


def group_bound(kernel: GroupKernel, chip: Chip, rates: Machine) -> Array:
    """Lower bound of the time [s] of a group under any mapping, of the shape that the extents broadcast to.

    At least the time of its products on the arrays, of its elementary functions on the lanes, and of its inputs and outputs in
    the outermost memory, each once: the arrays work on one product at a time, the lanes on one op.

    Raises BadInput: the chip lacks a dtype or a function.
    """
    pattern, local = kernel.pattern, kernel.local
    types = {tensor.name: tensor.dtype for tensor in pattern.tensors}
    arrays = sum(
        busy_time(np.asarray(_points(op, local), np.float64), rates.most_products(types[op.inputs[0]], types[op.outputs[0]]))
        for op in pattern.contractions
    )
    _, read, written = group_demand(kernel)
    moved = memory_time(chip, np.asarray(read, np.float64), np.asarray(written, np.float64))
    return longest_time(arrays, busy_time(np.asarray(_lane_cycles(kernel, rates), np.float64), rates.lanes), moved)


def group_rate_time(kernel: GroupKernel, ranks: Number, chip: Machine, efficiency: Efficiency) -> Number:
    """1/ranks of a group at the rates of the chip, without launch and latency [s]."""
    macs, read, written = group_demand(kernel)
    products = busy_time(macs / ranks, chip.product_rate(kernel.pattern.dtype, efficiency))
    lanes = busy_time(_lane_cycles(kernel, chip) / ranks, efficiency.vector * chip.lanes)
    return longest_time(products, lanes, busy_time((read + written) / ranks, efficiency.memory * chip.memory))


def _points(op: Op, local: Mapping[str, Number]) -> Number:
    return math.prod(local[dim] for dim in op.dims)


def _bytes(tensor: Tensor, local: Mapping[str, Number]) -> Number:
    return math.prod(local[dim] for dim in tensor.dims) * DTYPE_BYTES[tensor.dtype]


def _lane_cycles(kernel: GroupKernel, chip: Machine) -> Number:
    """Cycles of one lane for all elementary functions."""
    behind = (op for op in kernel.pattern.ops if op.kind is not OpKind.CONTRACT)
    return sum(_points(op, kernel.local) * chip.lane_cycles(work_per_point(op, {})) for op in behind)
