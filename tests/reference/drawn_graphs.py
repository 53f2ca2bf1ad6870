"""Small graphs, meshes and costs at random, for tests of sharding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from halley.ir.mapping import CollectiveKind
from halley.ir.workload import Op, OpKind, Tensor, Workload
from halley.sharding.layouts import Mesh, MeshAxis

UNARY = ("tanh", "identity", "scale")
BINARY = ("add", "subtract", "mul")


def drawn_graph(random: Random, ops: int, extents: tuple[int, ...], rows: bool = True) -> Workload:
    """A graph of so many ops over four dims, two of which have equal extents; ``rows``: gathers and scatters too."""
    dims = {dim: random.choice(extents) for dim in "abc"}
    dims["d"] = dims["a"]
    build = _Builder(random, dims)
    build.tensor(random.sample("abcd", 2))
    for _ in range(ops):
        made = (build.map, build.combine, build.reduce, build.contract, build.copy, build.state, *((build.rows,) * rows))
        while not random.choice(made)():
            pass
    read = {name for op in build.ops for name in op.inputs}
    also = random.choice(build.ops).outputs[0]
    outputs = tuple(name for op in build.ops for name in op.outputs if name not in read or name == also)
    used = {dim for name in build.tensors for dim in build.tensors[name].dims} | {dim for op in build.ops for dim in op.dims}
    return Workload("drawn", {dim: e for dim, e in dims.items() if dim in used}, build.tensors, tuple(build.ops), outputs)


class _Builder:
    """Adds one op at a time; a method that finds nothing to work on gives False."""

    def __init__(self, random: Random, dims: Mapping[str, int]) -> None:
        self.random, self.dims = random, dims
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.relative: set[str] = set()

    def tensor(self, dims: Any, dtype: str = "fp64") -> str:
        name = f"T{len(self.tensors)}"
        self.tensors[name] = Tensor(name, tuple(dims), dtype)
        return name

    def any(self) -> str:
        return self.random.choice([name for name, tensor in self.tensors.items() if tensor.dtype == "fp64"])

    def put(self, kind: OpKind, inputs: list[str], dims: Any, out: Any, **more: Any) -> bool:
        made = tuple(self.tensor(each) for each in out)
        self.ops.append(Op(f"op{len(self.ops)}", kind, tuple(inputs), made, tuple(dims), **more))
        return True

    def map(self) -> bool:
        source = self.any()
        dims, function = self.tensors[source].dims, self.random.choice(UNARY)
        numbers = (("scale", 0.5),) if function == "scale" else ()
        return self.put(OpKind.MAP, [source], dims, [dims], function=function, constants=numbers)

    def combine(self) -> bool:
        first = self.any()
        dims = self.tensors[first].dims
        fits = [name for name, each in self.tensors.items() if set(each.dims) <= set(dims) and each.dtype == "fp64"]
        second = self.random.choice(fits)
        return self.put(OpKind.MAP, [first, second], dims, [dims], function=self.random.choice(BINARY))

    def reduce(self) -> bool:
        source = self.any()
        dims = self.tensors[source].dims
        if len(dims) < 2:
            return False
        gone = self.random.choice(dims)
        kept, monoid = tuple(dim for dim in dims if dim != gone), self.random.choice(("sum", "max", "mean"))
        numbers = (("count", float(self.dims[gone])),) if monoid == "mean" else ()
        function = self.random.choice(("identity", "square"))
        return self.put(OpKind.REDUCE, [source], (*kept, gone), [kept], function=function, monoid=monoid, constants=numbers)

    def state(self) -> bool:
        source = self.any()
        dims = self.tensors[source].dims
        if len(dims) < 2:
            return False
        kept = dims[:-1]
        return self.put(OpKind.REDUCE, [source], dims, [kept, kept], monoid=self.random.choice(("softmax", "welford")))

    def contract(self) -> bool:
        source = self.any()
        dims = self.tensors[source].dims
        gone = self.random.choice(dims)
        new = self.random.choice([dim for dim in self.dims if dim not in dims] or [""])
        if not new:
            return False
        shared = [dim for dim in dims if dim != gone and self.random.random() < 0.3]
        weight = self.tensor((*shared, gone, new))
        out = (*(dim for dim in dims if dim != gone), new)
        return self.put(OpKind.CONTRACT, [source, weight], (*out[:-1], gone, new), [out])

    def copy(self) -> bool:
        source = self.any()
        dims = self.tensors[source].dims
        if "a" in dims and "d" not in dims:
            out = tuple("d" if dim == "a" else dim for dim in reversed(dims))
            return self.put(OpKind.PERMUTE, [source], out, [out])
        if len(dims) < 2:
            return False
        return self.put(OpKind.PERMUTE, [source], dims[::-1], [dims[::-1]])

    def rows(self) -> bool:
        """out[c.., n] = table[index[c..], n], or its transpose."""
        source = self.any()
        dims = self.tensors[source].dims
        row, *free = self.random.sample(list(self.dims), len(self.dims))
        if self.random.random() < 0.5:
            if row not in dims:
                return False
            rest = tuple(dim for dim in dims if dim != row)
            picks = tuple(dim for dim in free if dim not in rest)[:1]
            if not picks:
                return False
            index = self.tensor(picks, "int32")
            return self.put(OpKind.GATHER, [source, index], (*picks, *rest), [(*picks, *rest)], along=row)
        if row in dims or len(dims) < 2:
            return False
        picks, rest = dims[:1], dims[1:]
        index = self.tensor(picks, "int32")
        return self.put(OpKind.SCATTER, [source, index], dims, [(row, *rest)], along=row)


def drawn_inputs(random: Random, work: Workload) -> dict[str, np.ndarray]:
    """Values for the inputs; indices point at rows that exist."""
    numbers = np.random.default_rng(random.randrange(1 << 30))
    found = {}
    for name in work.inputs:
        shape = tuple(work.dims[dim] for dim in work.tensors[name].dims)
        readers = work.consumers(name)
        if work.tensors[name].dtype == "int32":
            found[name] = numbers.integers(0, work.dims[readers[0].along], shape).astype(float)
        else:
            found[name] = numbers.normal(size=shape) / 2
    return found


def drawn_mesh(random: Random, axes: int) -> Mesh:
    return tuple(MeshAxis(name, random.choice((2, 3))) for name in "xyz"[:axes])


class Costs:
    """Random but fixed prices: of an op by its points, of a collective by its bytes, kind and axes."""

    def __init__(self, random: Random, mesh: Mesh) -> None:
        self.seed = random.randrange(1 << 30)
        self.mesh = mesh
        self.work = random.choice((1.0, 1.0, 0.02))

    def _factor(self, *what: object) -> float:
        return Random(f"{self.seed} {what}").choice((0.5, 1.0, 2.0, 5.0))

    def kernel(self, op: Op, local: Mapping[str, int]) -> float:
        return self.work * self._factor("op", op.name) * (1.0 + math.prod(local.values()))

    def wire(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        return self._factor(kind, axes) * (0.5 + size / 16)


def power_set(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [each for count in range(1, len(names) + 1) for each in itertools.combinations(names, count)]
