"""Deep learning recommendation model (Naumov et al., arXiv 1906.00091): embeddings of features, dense layers, interaction.

Dims: samples b, dense features i, tables t (as the second of a pair: u), rows of a table v, look-ups per table p, width of
embeddings d, hidden dims f1, f2, .. of the dense layers, g1, g2, .. of the layers after the interaction, output o.

Tables are large and layers small: tables are sharded by t or by v, layers by samples b, with an all-to-all in between.
"""

from __future__ import annotations

from itertools import pairwise

from halley.errors import Fault
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import contract, elementwise, reduction, tensors
from halley.workloads.construction.parameters import Rule, WorkloadKind, check, element_type, size

LAYERS_LIMIT = 64
"""Largest number of layers of a stack; each layer is one op or two."""


def dlrm(
    batch: int,
    tables: int,
    rows: int,
    width: int,
    lookups: int,
    dense: int,
    bottom_layers: int,
    bottom_hidden: int,
    top_layers: int,
    top_hidden: int,
    dtype: str = "bf16",
) -> Workload:
    """``Y = sigmoid(top(x, x . e_t, e_t . e_u for t > u))`` with x the dense features after their layers and e_t the sum of
    ``lookups`` rows of table t.

    The activation of the layers is relu, of the last one a sigmoid. The first layer after the interaction multiplies each of its
    three inputs by a matrix of its own, which equals the product with their concatenation. All pairs of tables are multiplied;
    ``pairs`` [t, u] is 1 for the pairs with t > u and 0 for the others. Tables have equal rows and widths, one index per look-up.
    Left out: biases.

    >>> layers = {"bottom_layers": 2, "bottom_hidden": 7, "top_layers": 2, "top_hidden": 8}
    >>> work = dlrm(4, tables=3, rows=9, width=2, lookups=5, dense=6, **layers)
    >>> [op.name for op in work.ops if op.kind.value == "contract"]
    ['bottom_1', 'bottom_2', 'dense_pairs', 'pair', 'top_dense', 'top_dense_pairs', 'top_pairs', 'top_2']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "batch": batch,
        "tables": tables,
        "rows": rows,
        "width": width,
        "lookups": lookups,
        "dense": dense,
        "bottom_layers": bottom_layers,
        "bottom_hidden": bottom_hidden,
        "top_layers": top_layers,
        "top_hidden": top_hidden,
        "dtype": dtype,
    }
    check(DLRM, given)
    hidden = [f"f{number}" for number in range(1, bottom_layers)]
    after = [f"g{number}" for number in range(1, top_layers)]
    bottom, bottom_dims = _stack("bottom", "X", "x", ["i", *hidden, "d"], 1, "relu")
    interaction = (
        contract("dense_pairs", "x E", "C", "b d t"),
        Op("second", OpKind.PERMUTE, ("E",), ("Eu",), ("b", "u", "d")),
        contract("pair", "E Eu", "S", "b t d u"),
        elementwise("select", "mul", "S pairs", "P", "b t u"),
    )
    first = after[0] if after else "o"
    joined = (
        contract("top_dense", "x Wx", "T1", f"b d {first}"),
        contract("top_dense_pairs", "C Wc", "T2", f"b t {first}"),
        contract("top_pairs", "P Wp", "T3", f"b t u {first}"),
        elementwise("join", "add", "T1 T2", "T4", f"b {first}"),
        elementwise("join_pairs", "add", "T4 T3", "T5", f"b {first}"),
    )
    last = "sigmoid" if not after else "relu"
    activated = (elementwise("top_activate_1", last, "T5", "H1" if after else "Y", f"b {first}"),)
    top, top_dims = _stack("top", "H1", "Y", [*after, "o"], 2, "relu", "sigmoid") if after else ((), {})
    looked_up = (
        Op("look_up", OpKind.GATHER, ("table", "index"), ("R",), ("b", "t", "p", "d"), along="v"),
        reduction("pool", "sum", "R", "E", "b t p d"),
    )
    dims = {"X": "b i", "x": "b d", "table": "t v d", "R": "b t p d", "E": "b t d", "Eu": "b u d", "C": "b t", "pairs": "t u"}
    dims |= dict.fromkeys(("S", "P"), "b t u") | dict.fromkeys(("T1", "T2", "T3", "T4", "T5"), f"b {first}")
    dims |= {"Wx": f"d {first}", "Wc": f"t {first}", "Wp": f"t u {first}", "Y": "b o"} | ({"H1": f"b {first}"} if after else {})
    ops = (*looked_up, *bottom, *interaction, *joined, *activated, *top)
    extents = {"b": batch, "i": dense, "t": tables, "u": tables, "v": rows, "p": lookups, "d": width}
    extents |= dict.fromkeys(hidden, bottom_hidden) | dict.fromkeys(after, top_hidden) | {"o": 1}
    return Workload(
        DLRM.name,
        extents,
        tensors(dtype, dims | bottom_dims | top_dims) | tensors("int32", {"index": "b t p"}),
        ops,
        ("Y",),
        kernels=(("look_up", "pool"), *_kernels(ops[2:])),
        parameters=given,
    )


def _stack(
    name: str, source: str, result: str, dims: list[str], start: int, function: str, last: str = ""
) -> tuple[tuple[Op, ...], dict[str, str]]:
    """Layers between successive ``dims``, numbered from ``start``: (ops, dims of their weights and results)."""
    ops: list[Op] = []
    made: dict[str, str] = {}
    now = source
    for number, (before, after) in enumerate(pairwise(dims), start):
        end = number - start == len(dims) - 2
        mark = f"{name[0]}{number}"
        following = result if end else f"A{mark}"
        ops += [
            contract(f"{name}_{number}", f"{now} W{mark}", f"Z{mark}", f"b {before} {after}"),
            elementwise(f"{name}_activate_{number}", last if end and last else function, f"Z{mark}", following, f"b {after}"),
        ]
        made |= {f"W{mark}": f"{before} {after}", f"Z{mark}": f"b {after}", following: f"b {after}"}
        now = following
    return tuple(ops), made


def _kernels(ops: tuple[Op, ...]) -> tuple[tuple[str, ...], ...]:
    """Kernels: each contraction or copy alone, consecutive elementwise ops together."""
    groups: list[list[Op]] = []
    for op in ops:
        if op.kind is OpKind.MAP and groups and groups[-1][-1].kind is OpKind.MAP:
            groups[-1].append(op)
        else:
            groups.append([op])
    return tuple(tuple(op.name for op in group) for group in groups)


def _layer_limit(name: str) -> Rule:
    def check(layers: int) -> Fault | None:
        if layers <= LAYERS_LIMIT:
            return None
        return Fault(f"workload dlrm, parameter {name}", f"at most {LAYERS_LIMIT}", str(layers))

    return Rule((name,), check)


DLRM = WorkloadKind(
    "dlrm",
    "recommendation: embeddings, dense layers, their interaction, layers",
    dlrm,
    (
        size("batch", "samples"),
        size("tables", "embedding tables"),
        size("rows", "rows of a table"),
        size("width", "columns of a table"),
        size("lookups", "rows that a sample takes from each table"),
        size("dense", "dense features"),
        size("bottom_layers", "layers of the dense features"),
        size("bottom_hidden", "hidden dim of these layers"),
        size("top_layers", "layers after the interaction"),
        size("top_hidden", "hidden dim of these layers"),
        element_type(),
    ),
    (_layer_limit("bottom_layers"), _layer_limit("top_layers")),
)
