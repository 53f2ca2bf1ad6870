"""Times of kernels on a chip by the search of mappings: exact where a kernel was searched, elsewhere a lower bound.

A planner asks for the times of far more kernels than its best plan contains. So it takes lower bounds first, and only the
kernels of plans that may be the best are searched (`halley.training.search.joint`). Products, attention forward, and groups of
products with the ops behind them are searched; other kernels take their times from formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from halley.formulas.numbers import Number
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.kernels.bounds import RELATIVE_ROUNDING, attention_bound, fastest_memory, kernel_bound, product_bound
from halley.kernels.groups import GroupKernel, GroupShape, group_bound, group_demand, pattern_text
from halley.kernels.machine import PEAK, Machine, machine
from halley.kernels.times import Array, Attention, Gemm, Kernel, demand, kernel_time
from halley.workloads.attention import attention
from halley.workloads.gemm import gemm


class Product(NamedTuple):
    """A product of given extents: ``batch`` times [rows, depth] by [depth, columns], and its types."""

    rows: int
    columns: int
    depth: int
    batch: int
    dtype: str
    result: str

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.batch * self.rows * self.columns * self.depth

    @property
    def workload(self) -> Workload:
        """What is searched."""
        work = gemm(self.rows, self.columns, self.depth, self.batch, self.dtype)
        return replace(work, tensors={**work.tensors, "C": replace(work.tensors["C"], dtype=self.result)})

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.rows} x {self.columns} x {self.depth} {self.dtype}"


class AttentionShape(NamedTuple):
    """Attention of given extents, forward: ``heads`` query heads over ``kv_heads`` heads of keys and values, of all sequences."""

    queries: int
    keys: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    causal: bool
    dtype: str

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without the scores that the mask hides."""
        hidden = self.queries * (self.queries - 1) // 2 if self.causal else 0
        return self.heads * (self.queries * self.keys - hidden) * (self.head_dim + self.value_dim)

    @property
    def workload(self) -> Workload:
        """What is searched, in the first of its variants."""
        heads = (self.heads, self.kv_heads)
        extents = (self.queries, self.keys, self.head_dim, self.value_dim)
        return attention(1, *heads, *extents, causal=bool(self.causal), dtype=self.dtype)

    def __str__(self) -> str:
        shared = f" on {self.kv_heads}" if self.kv_heads < self.heads else ""
        width = f"{self.head_dim}" if self.head_dim == self.value_dim else f"{self.head_dim}, {self.value_dim}"
        return f"{self.heads}{shared} x {self.queries} x {self.keys} x {width}{' causal' * self.causal} {self.dtype}"


KernelShape: TypeAlias = Product | AttentionShape | GroupShape
"""A kernel of given extents that is searched."""

AnyKernel: TypeAlias = Kernel | GroupKernel
"""A kernel of a plan."""


def shape_of(kernel: AnyKernel) -> KernelShape | None:
    """What is searched for a kernel of given extents; None for kernels that take their times from formulas: streams, groups of
    uneven sizes, attention in the backward pass, or with values that are a part of the keys or of another type."""
    match kernel:
        case GroupKernel():
            return kernel.shape
        case Gemm() if not kernel.spread:
            rows, columns, depth, batch = map(_count, (kernel.rows, kernel.columns, kernel.depth, kernel.batch))
            return Product(rows, columns, depth, batch, kernel.dtype, kernel.result)
        case Attention() if _forward(kernel):
            heads, kv_heads = _count(kernel.batch * kernel.heads), _count(kernel.batch * kernel.kv_heads)
            dim, value = _count(kernel.head_dim), _count(kernel.value_dim)
            queries, keys = _count(kernel.queries), _count(kernel.keys)
            return AttentionShape(queries, keys, heads, kv_heads, dim, value or dim, kernel.causal, kernel.dtype)
        case _:
            return None


def kernel_demand(kernel: AnyKernel) -> tuple[Number, Number]:
    """Multiply-accumulates and bytes in the outermost memory of a kernel; of a group, as one kernel."""
    if not isinstance(kernel, GroupKernel):
        return demand(kernel)
    macs, read, written = group_demand(kernel)
    return macs, read + written


def _count(extent: Number) -> int:
    return int(float(extent))


def _forward(kernel: Attention) -> bool:
    return not (kernel.backward or kernel.latent or kernel.cached != kernel.dtype)


def _of_fewer_heads(shape: AttentionShape, time: float, given: Sequence[Array]) -> Array:
    """Lower bounds [s] of attention of the ``given`` extents (in the order of `AttentionShape`) from the best ``time`` [s] with
    more heads; 0 where it bounds nothing. c times as many heads take at most c times as long: with a loop over the heads around
    the mapping of the fewer."""
    queries, keys, heads, kv_heads, dim, value = given
    times = shape.kv_heads // np.maximum(kv_heads, 1.0)
    same = (queries == shape.queries) & (keys == shape.keys) & (dim == shape.head_dim) & (value == shape.value_dim)
    divides = (times * kv_heads == shape.kv_heads) & (times * heads == shape.heads)
    return np.where(same & divides, time / np.maximum(times, 1.0), 0.0) * (1 - RELATIVE_ROUNDING)


class KernelCost(NamedTuple):
    """The best mapping of a kernel on a chip, as text, and its ``time`` [s]. A group of which no mapping fits takes infinitely
    long, with an empty text."""

    time: float
    mapping: str


def search_kernel(chip: Chip, shape: KernelShape, limit: float | None = None) -> KernelCost:
    """`halley.kernels.search.searched_kernel`, loaded when it is needed: planning with a library's times does not load the search
    of mappings."""
    found: KernelCost = import_module("halley.kernels.search").searched_kernel(chip, shape, limit)
    return found


class KernelStore(Protocol):
    """Where costs of kernels are kept from one run to the next."""

    def costs(self, chip: Chip) -> Mapping[KernelShape, KernelCost]:
        """All that is known of a chip."""

    def add(self, chip: Chip, shape: KernelShape, cost: KernelCost) -> None:
        """Keeps the cost of a kernel."""


@dataclass(slots=True, eq=False)
class SearchedKernels:
    """Times of kernels on a chip, without launches.

    Products, attention (forward) and groups as they were searched, others of these kinds at their lower bound; other kernels
    by the formulas of `halley.kernels.times` at the rates of the data sheet, but no faster than
    `halley.kernels.bounds.kernel_bound`.
    ``by_formula``: kernels that were not searched take their times from formulas too, in the place of bounds, and no group of
    them runs as one. ``grouped``: groups may run as one kernel. ``searched``: number of searches; ``rates``: of the data sheet;
    ``limits``: those that no mapping exceeds, for plan bounds.

    >>> from halley.io.chips.load import load_chip
    >>> kernels, small = SearchedKernels(load_chip("edge")), Gemm(64, 64, 64)
    >>> before = float(kernels.times(small))
    >>> kernels.search(shape_of(small))
    >>> before < float(kernels.times(small)) == kernels.known[shape_of(small)].time
    True
    """

    chip: Chip
    known: dict[KernelShape, KernelCost] = field(default_factory=dict)
    store: KernelStore | None = None
    by_formula: bool = False
    grouped: bool = True
    searched: int = 0
    rates: Machine = field(init=False)
    limits: Machine = field(init=False)
    _asked: dict[tuple[object, ...], list[Array]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rates = machine(self.chip)
        self.limits = fastest_memory(self.chip, self.rates)
        if self.store is not None:
            self.known.update(self.store.costs(self.chip))

    def times(self, kernel: AnyKernel) -> Array:
        """Times [s], or lower bounds of them, of the shape that the extents broadcast to."""
        match kernel:
            case GroupKernel():
                return self._group_times(kernel)
            case Gemm() if not kernel.spread and self._searchable(kernel):
                bound = product_bound(kernel, self.chip, self.rates)
                extents: tuple[Number, ...] = (kernel.rows, kernel.columns, kernel.depth, kernel.batch)
                rest: tuple[object, ...] = (kernel.dtype, kernel.result)
            case Attention() if _forward(kernel) and self._searchable(kernel):
                bound = attention_bound(kernel, self.chip, self.rates)
                value = np.where(np.asarray(kernel.value_dim) > 0, kernel.value_dim, kernel.head_dim)
                heads = (kernel.batch * kernel.heads, kernel.batch * kernel.kv_heads)
                extents = (kernel.queries, kernel.keys, *heads, kernel.head_dim, value)
                rest = (kernel.causal, kernel.dtype)
            case _:
                return np.maximum(kernel_time(kernel, self.rates, PEAK), kernel_bound(kernel, self.chip, self.rates))
        times = np.array(np.maximum(kernel_time(kernel, self.rates, PEAK), bound) if self.by_formula else bound, np.float64)
        given = np.broadcast_arrays(*extents, times)[:-1]
        kind = Product if isinstance(kernel, Gemm) else AttentionShape
        self._asked.setdefault((kind, *rest), []).append(np.stack([extent.ravel() for extent in given], axis=1))
        known = [(shape, cost) for shape, cost in self.known.items() if isinstance(shape, kind) and shape[len(given) :] == rest]
        for shape, cost in known:
            if isinstance(shape, AttentionShape):
                np.maximum(times, _of_fewer_heads(shape, cost.time, given), out=times)
        for shape, cost in known:
            found = [one == other for one, other in zip(given, shape[: len(given)], strict=True)]
            times[np.logical_and.reduce(found)] = cost.time
        return times

    def _searchable(self, kernel: AnyKernel) -> bool:
        """Whether the search of mappings has kernels of this kind: it has no products on the lanes."""
        if isinstance(kernel, GroupKernel):
            types = {tensor.name: tensor.dtype for tensor in kernel.pattern.tensors}
            return not any(self.rates.on_lanes(types[op.inputs[0]]) for op in kernel.pattern.contractions)
        return isinstance(kernel, Gemm | Attention) and not self.rates.on_lanes(kernel.dtype)

    def _group_times(self, kernel: GroupKernel) -> Array:
        if not self._searchable(kernel):  # its kernels run apart
            return np.full(np.broadcast_shapes(*map(np.shape, kernel.extents)), np.inf)
        times, text = np.array(group_bound(kernel, self.chip, self.rates), np.float64), pattern_text(kernel.pattern)
        if self.by_formula:
            times[...] = np.inf
        given = np.broadcast_arrays(*kernel.extents, times)[:-1]
        self._asked.setdefault((GroupShape, text), []).append(np.stack([extent.ravel() for extent in given], axis=1))
        for shape, cost in self.known.items():
            if isinstance(shape, GroupShape) and shape.pattern == text:
                found = [one == other for one, other in zip(given, shape.sizes, strict=True)]
                times[np.logical_and.reduce(found)] = cost.time
        return times

    @property
    def asked(self) -> int:
        """How many kernels that can be searched plans asked for, each once."""
        for kind, rows in self._asked.items():
            self._asked[kind] = [np.unique(np.concatenate(rows), axis=0)]
        return sum(len(rows[0]) for rows in self._asked.values())

    def missing(self, kernels: Iterable[AnyKernel]) -> list[KernelShape]:
        """Those of these kernels that are to be searched and were not, each once."""
        able = filter(self._searchable, kernels)
        found = dict.fromkeys(shape for kernel in able if (shape := shape_of(kernel)) is not None)
        return [shape for shape in found if shape not in self.known]

    def found(self, kernels: Iterable[AnyKernel]) -> dict[KernelShape, KernelCost]:
        """Those of these kernels that were searched, each once, with their best mappings."""
        shapes = dict.fromkeys(map(shape_of, kernels))
        return {shape: self.known[shape] for shape in shapes if shape in self.known}

    def search(self, shape: KernelShape, limit: float | None = None) -> None:
        """Searches for the best mapping of a kernel, with proof.

        Raises SearchStopped: ``limit`` [s], or a signal, ended the search before; Infeasible: no mapping fits.
        """
        self.add(shape, search_kernel(self.chip, shape, limit))

    def add(self, shape: KernelShape, cost: KernelCost) -> None:
        """Keeps what a search has found."""
        self.searched += 1
        self.known[shape] = cost
        if self.store is not None:
            self.store.add(self.chip, shape, cost)
