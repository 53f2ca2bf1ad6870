"""A small chip, small workloads and a short notation for mapping texts, for whoever tests legality or rewrites."""

from __future__ import annotations

from halley.ir.hardware import Axis, Chip, Level, Link, MatrixEngine, Memory, Network, Topology, VectorEngine
from halley.ir.workload import Op, OpKind, Tensor, Workload

LINK = Link(1e9)


def memory(name: str) -> Memory:
    return Memory(name, 1e6, 1e9, 1e9)


def chip(x: int = 2, y: int = 2, reduction: bool = False) -> Chip:
    """DRAM, a global buffer, x by y clusters with an input, a weight and an output buffer each and both engines."""
    network = Network((Axis("x", x, Topology.LINE, LINK), Axis("y", y, Topology.LINE, LINK)), LINK, reduction=reduction)
    buffers = (memory("ibuf"), memory("wbuf"), memory("obuf"))
    levels = (Level("dram", (memory("dram"),)), Level("glb", (memory("glb"),)), Level("cluster", buffers, network))
    return Chip("small", levels, MatrixEngine("mxu", 4, 4, 1e9), VectorEngine("simd", 4, 1e9, {"add": 1.0}))


def op(name: str, kind: OpKind, inputs: str, outputs: str, dims: str, **more: object) -> Op:
    return Op(name, kind, tuple(inputs.split()), tuple(outputs.split()), tuple(dims), **more)  # type: ignore[arg-type]


def workload(dims: dict[str, int], tensors: str, outputs: str, *ops: Op) -> Workload:
    table = {name: Tensor(name, tuple(letters)) for name, _, letters in (item.partition(":") for item in tensors.split())}
    return Workload("test", dims, table, ops, tuple(outputs.split()))


GEMM = workload({"m": 4, "n": 6, "k": 8}, "A:mk B:kn C:mn", "C", op("C", OpKind.CONTRACT, "A B", "C", "mnk"))
SOFTMAX = workload(
    {"m": 4, "n": 6, "k": 3},
    "A:mk B:kn S:mn mx:m E:mn z:m P:mn",
    "P",
    op("S", OpKind.CONTRACT, "A B", "S", "mnk"),
    op("mx", OpKind.REDUCE, "S", "mx", "mn", monoid="max"),
    op("E", OpKind.MAP, "S mx", "E", "mn", function="exp_difference"),
    op("z", OpKind.REDUCE, "E", "z", "mn", monoid="sum"),
    op("P", OpKind.MAP, "E z", "P", "mn", function="divide"),
)
ONLINE = workload(
    {"m": 4, "n": 8, "d": 3, "e": 2},
    "Q:md K:nd V:ne S:mn mx:m z:m E:mn U:me O:me",
    "O",
    op("S", OpKind.CONTRACT, "Q K", "S", "mnd"),
    op("mx", OpKind.REDUCE, "S", "mx z", "mn", monoid="softmax"),
    op("E", OpKind.MAP, "S mx", "E", "mn", function="exp_difference", running=("mx",)),
    op("U", OpKind.CONTRACT, "E V", "U", "men", scaled_by="mx"),
    op("O", OpKind.MAP, "U z", "O", "me", function="divide"),
)
SCAN = workload({"t": 6, "c": 4}, "a:tc x:tc h:tc", "h", op("h", OpKind.SCAN, "a x", "h", "tc", monoid="linear", along="t"))
GATHER = workload({"i": 6, "v": 4, "c": 2}, "j:i w:vc o:ic", "o", op("o", OpKind.GATHER, "j w", "o", "ic"))
LATE = workload(
    {"m": 4, "n": 6, "k": 3},
    "A:mk B:kn S:mn mx:m E:mn T:mn",
    "T",
    *SOFTMAX.ops[:3],
    op("T", OpKind.MAP, "S E", "T", "mn", function="add"),
)
PAIR = workload(
    {"m": 4, "n": 5, "k": 3},
    "A:mk B:kn F:kn C:mn D:mn",
    "C D",
    op("C", OpKind.CONTRACT, "A B", "C", "mnk"),
    op("D", OpKind.CONTRACT, "A F", "D", "mnk"),
)


def nest(*blocks: str) -> str:
    """Each block one level inside the one before."""
    *outer, text = blocks
    for header in reversed(outer):
        text = header + "\n" + _indented(text)
    return text


def node(header: str, *blocks: str) -> str:
    """The blocks one after the other inside a node."""
    return "\n".join((header, *map(_indented, blocks)))


def seq(*blocks: str) -> str:
    return node("sequence", *blocks)


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" for line in block.split("\n"))


def each(names: str) -> tuple[str, ...]:
    return tuple(f"compute {name}" for name in names.split())


ABC, ABP, QKVO = "hold dram: A B C", "hold dram: A B P", "hold dram: Q K V O"
SOFT = "hold obuf: S E P mx z"
X, RING = "over cluster.x", "over cluster.x with ring"
REST = each("mx E z P")
PIECES = seq(*each("S mx E U"))
S_BY_COLUMNS = nest(f"spread n by 3 {X}", "compute S")
SPLIT_K = (ABC, f"spread k by 4 {X}", "hold obuf: C")
