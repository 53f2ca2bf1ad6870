"""Small chips, workloads and mapping trees for whoever tests the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halley.execute.interpreter import Execution, random_inputs, run
from halley.ir.hardware import Axis, Chip, Dataflow, Level, Link, MatrixEngine, Memory, Network, Topology, VectorEngine
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Sequence,
    Spatial,
    Temporal,
)
from halley.ir.workload import Op, OpKind, Tensor, Workload

LINK = Link(1e9)


def memory(name: str) -> Memory:
    return Memory(name, 1e6, 1e9, 1e9)


def chip(x: int = 2, y: int = 2, *, rows: int = 4, cols: int = 4, flow: Dataflow = Dataflow.WEIGHT, **network: object) -> Chip:
    """DRAM, a buffer, x by y clusters (a line and a ring) with three local buffers each."""
    axes = (Axis("x", x, Topology.LINE, LINK), Axis("y", y, Topology.RING, LINK))
    net = replace(Network(axes, port=LINK), **network)  # type: ignore[arg-type]
    levels = (
        Level("dram", (memory("dram"),)),
        Level("glb", (memory("glb"),)),
        Level("cluster", (memory("ibuf"), memory("wbuf"), memory("obuf")), net),
    )
    return Chip("test", levels, MatrixEngine("mxu", rows, cols, 1e9, flow), VectorEngine("simd", 4, 1e9, {"add": 1.0}))


def pe_chip(reduction: bool = True) -> Chip:
    """A buffer over a row of 3 PEs with a register file each; the wires add on the way up."""
    net = Network((Axis("x", 3, Topology.LINE, LINK),), port=LINK, reduction=reduction)
    levels = (Level("dram", (memory("dram"),)), Level("buffer", (memory("buf"),)), Level("pe", (memory("rf"),), net))
    return Chip("pes", levels, MatrixEngine("mac", 1, 1, 1e9, Dataflow.NONE), None)


def hold(where: str, tensors: str, body: Node) -> Hold:
    return Hold(where, tuple(tuple(group.split("|")) for group in tensors.split()), body)


def nest(*parts: object) -> Node:
    """``nest(("m", 4), ("n", 2, "x"), ("glb", "A B"), body)``: loops, spreads over cluster axes and holds around a body."""
    *outer, node = parts
    for part in reversed(outer):
        match part:
            case (str(dim), int(tile)):
                node = Temporal(dim, tile, node)  # type: ignore[arg-type]
            case (str(dim), int(tile), str(axis)):
                node = Spatial(dim, tile, "pe" if axis == "pe" else "cluster", "x" if axis == "pe" else axis, node)  # type: ignore[arg-type]
            case (str(where), str(tensors)):
                node = hold(where, tensors, node)  # type: ignore[arg-type]
    return node  # type: ignore[return-value]


def collect(kind: str, tensors: str, axis: str = "x", algorithm: str = "ring", dim: str = "") -> Collective:
    return Collective(CollectiveKind(kind), tuple(tensors.split()), "cluster", axis, algorithm, dim)


def workload(dims: dict[str, int], tensors: str, ops: tuple[Op, ...], outputs: str, fp32: str = "") -> Workload:
    """``tensors``: like "A:mk B:kn", one letter per dim; 2 bytes per element, 4 for those in ``fp32``."""
    table = {}
    for item in tensors.split():
        name, _, letters = item.partition(":")
        table[name] = Tensor(name, tuple(letters), "fp32" if name in fp32.split() else "bf16")
    return Workload("test", dims, table, ops, tuple(outputs.split()))


def op(name: str, kind: OpKind, inputs: str, outputs: str, dims: str, **more: object) -> Op:
    return Op(name, kind, tuple(inputs.split()), tuple(outputs.split()), tuple(dims), **more)  # type: ignore[arg-type]


def gemm(m: int, n: int, k: int) -> Workload:
    return workload({"m": m, "n": n, "k": k}, "A:mk B:kn C:mn", (op("C", OpKind.CONTRACT, "A B", "C", "mnk"),), "C")


S_OP = op("S", OpKind.CONTRACT, "A B", "S", "mnk")
MX_OP = op("mx", OpKind.REDUCE, "S", "mx", "mn", monoid="max")
E_OP = op("E", OpKind.MAP, "S mx", "E", "mn", function="exp_difference")
Z_OP = op("z", OpKind.REDUCE, "E", "z", "mn", monoid="sum")
P_OP = op("P", OpKind.MAP, "E z", "P", "mn", function="divide")


def gemm_softmax(m: int, n: int, k: int) -> Workload:
    tensors = "A:mk B:kn S:mn mx:m E:mn z:m P:mn"
    return workload({"m": m, "n": n, "k": k}, tensors, (S_OP, MX_OP, E_OP, Z_OP, P_OP), "P", fp32="mx z")


def online_attention(m: int, n: int, d: int, e: int) -> Workload:
    ops = (
        op("S", OpKind.CONTRACT, "Q K", "S", "mnd"),
        op("mx", OpKind.REDUCE, "S", "mx z", "mn", monoid="softmax"),
        op("E", OpKind.MAP, "S mx", "E", "mn", function="exp_difference", running=("mx",)),
        op("U", OpKind.CONTRACT, "E V", "U", "men", scaled_by="mx"),
        op("O", OpKind.MAP, "U z", "O", "me", function="divide"),
    )
    tensors = "Q:md K:nd V:ne S:mn mx:m z:m E:mn U:me O:me"
    return workload({"m": m, "n": n, "d": d, "e": e}, tensors, ops, "O", fp32="mx z U")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def execute(item: Workload, tree: Node, on: Chip | None = None) -> tuple[Execution, dict[str, np.ndarray]]:
    arrays = random_inputs(item, seed=3)
    return run(item, on or chip(), tree, arrays), arrays


def traffic(table: dict[tuple[str, str, str], int], cause: str) -> dict[tuple[str, str], int]:
    return {(where, tensor): count for (where, tensor, why), count in table.items() if why == cause}


OUTER = ("dram", "A B C"), ("glb", "A B C")


def each(*names: str) -> tuple[Node, ...]:
    return tuple(Compute(name) for name in names)


def split_k(collective: Collective | None) -> Node:
    leaf: Node = nest(("k", 2), ("ibuf", "A"), ("wbuf", "B"), Compute("C"))
    body = Sequence((leaf, collective)) if collective else leaf
    return nest(*OUTER, ("k", 3, "x"), ("obuf", "C"), body)


def softmax_private(first: Collective | None = None, second: Collective | None = None) -> Node:
    body = Sequence(
        (
            nest(("k", 2), ("ibuf", "A"), ("wbuf", "B"), Compute("S")),
            Compute("mx"),
            *((first,) if first else ()),
            Compute("E"),
            Compute("z"),
            *((second,) if second else ()),
            Compute("P"),
        )
    )
    return nest(("dram", "A B P"), ("glb", "A B P"), ("m", 2), ("n", 3, "x"), ("obuf", "S|E|P mx z"), body)


PIECES = each("S", "mx", "E", "U")


def attention_tree(tile: int, split: int | None, *combine: Node) -> Node:
    loop = nest(("n", tile), ("ibuf", "Q K V"), ("obuf", "S|E"), Sequence(PIECES))
    around = [("n", split, "x")] if split else []
    return nest(
        ("dram", "Q K V O"), ("glb", "Q K V O"), ("m", 3), *around, ("obuf", "mx z U O"), Sequence((loop, *combine, Compute("O")))
    )


def plain_attention(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(softmax(arrays["Q"] @ arrays["K"].T) @ arrays["V"])
