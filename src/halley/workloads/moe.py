"""The mixture-of-experts feed-forward block: router, top-k gate, dispatch, one gated MLP per expert, weighted return.

Dims: tokens m, model k (contracted) and n (made), experts x, slots of an expert c, hidden f.
"""

from __future__ import annotations

from halley.errors import Fault
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import STATISTIC, contract, elementwise, reduction, tensors
from halley.workloads.construction.parameters import Rule, WorkloadKind, check, element_type, size


def moe(
    tokens: int, model: int, hidden: int, experts: int, top_k: int, capacity: int | None = None, dtype: str = "bf16"
) -> Workload:
    """``Y[t] = sum over x of W[t, x] MLP_x(X[t])``, W the softmax over the ``top_k`` largest of ``X Wr`` and 0 elsewhere.

    The router is Mixtral's (arXiv 2401.04088, section 2.1), the slots GShard's (arXiv 2006.16668): expert x processes the tokens
    ``index[x, c]`` in its ``capacity`` slots c, ``ceil(top_k x tokens / experts)`` unless given. The index is an input, as the
    routing depends on values and not on shapes. An empty slot may name any token that did not choose the expert: its weight is 0.
    A token without a slot is dropped.

    The k-th largest logit is found in ``top_k`` rounds: the maximum, then the maximum of the smaller logits. Equal logits of a
    token count as one.

    >>> work = moe(tokens=6, model=4, hidden=8, experts=3, top_k=2)
    >>> work.dims["c"], [op.name for op in work.ops][:5]
    (4, ['router', 'top1', 'below1', 'top2', 'weigh'])

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "tokens": tokens,
        "model": model,
        "hidden": hidden,
        "experts": experts,
        "top_k": top_k,
        "capacity": capacity,
        "dtype": dtype,
    }
    check(MOE, given)
    slots = -(-top_k * tokens // experts) if capacity is None else capacity
    routed, logits, tops = gate(top_k, "m")
    experts_ops = (
        Op("dispatch", OpKind.GATHER, ("X", "index"), ("D",), ("x", "c", "k"), along="m"),
        contract("gate", "D Wg", "G", "x c k f"),
        contract("up", "D Wu", "U", "x c k f"),
        elementwise("activate", "silu_mul", "G U", "H", "x c f"),
        contract("down", "H Wd", "O", "x c f n"),
        Op("slot_weights", OpKind.GATHER, ("W", "index"), ("Ws",), ("x", "c"), along="m"),
        elementwise("apply", "mul", "O Ws", "P", "x c n"),
        Op("combine", OpKind.SCATTER, ("P", "index"), ("Y",), ("x", "c", "n"), along="m"),
    )
    return Workload(
        MOE.name,
        {"m": tokens, "k": model, "n": model, "x": experts, "c": slots, "f": hidden},
        tensors(
            dtype,
            {"X": "m k", "Wr": "k x", "Wg": "x k f", "Wu": "x k f", "Wd": "x f n", "D": "x c k", "G": "x c f", "U": "x c f"}
            | {"H": "x c f", "O": "x c n", "P": "x c n", "Y": "m n"},
        )
        | tensors(STATISTIC, dict.fromkeys((*logits, "E", "W"), "m x") | dict.fromkeys((*tops, "z"), "m") | {"Ws": "x c"})
        | tensors("int32", {"index": "x c"}),
        (contract("router", "X Wr", logits[0], "m k x"), *routed, *experts_ops),
        ("Y",),
        kernels=(
            ("router",),
            tuple(op.name for op in routed),
            *((op.name,) for op in experts_ops[:5]),
            ("slot_weights",),
            ("apply", "combine"),
        ),
        parameters=given | {"capacity": slots},
    )


def gate(top_k: int, row: str, mark: str = "") -> tuple[tuple[Op, ...], tuple[str, ...], tuple[str, ...]]:
    """Softmax over the k largest logits [row, x] of a row: (ops, the logits of each round, the maxima).

    ``mark`` is a suffix of the names of the exponentials, of their sum, and of the ops that sum and divide, to keep names unique.
    """
    ops: list[Op] = []
    logits = tuple(f"L{round}" for round in range(1, top_k + 1))
    tops = tuple(f"t{round}" for round in range(1, top_k + 1))
    matrix = f"{row} x"
    for number, (left, top) in enumerate(zip(logits, tops, strict=True), 1):
        ops.append(reduction(f"top{number}", "max", left, top, matrix))
        if number < top_k:
            ops.append(elementwise(f"below{number}", "below", f"{left} {top}", logits[number], matrix))
    ops += [
        elementwise("weigh", "exp_selected", f"{logits[0]} {tops[0]} {tops[-1]}", f"E{mark}", matrix),
        reduction(f"sum{mark}", "sum", f"E{mark}", f"z{mark}", matrix),
        elementwise(f"divide{mark}", "divide", f"E{mark} z{mark}", "W", matrix),
    ]
    return tuple(ops), logits, tops


def _top_k_fault(experts: int, top_k: int) -> Fault | None:
    if top_k <= experts:
        return None
    return Fault("workload moe, parameter top_k", f"at most experts ({experts})", str(top_k))


def _round_limit_fault(top_k: int) -> Fault | None:
    if top_k <= 64:
        return None
    return Fault("workload moe, parameter top_k", "at most 64 (one round of the gate each)", str(top_k))


def _capacity_fault(tokens: int, capacity: int | None) -> Fault | None:
    if capacity is None or capacity <= tokens:
        return None
    remedy = "a token is sent to an expert once"
    return Fault("workload moe, parameter capacity", f"at most tokens ({tokens})", str(capacity), remedy)


MOE = WorkloadKind(
    "moe",
    "router, top-k gate, a gated MLP per expert, weighted sum",
    moe,
    (
        size("tokens", "tokens"),
        size("model", "model dim"),
        size("hidden", "hidden dim of an expert"),
        size("experts", "experts"),
        size("top_k", "experts per token"),
        size("capacity", "slots per expert; top_k x tokens / experts, rounded up, unless given", None),
        element_type(),
    ),
    (
        Rule(("experts", "top_k"), _top_k_fault),
        Rule(("top_k",), _round_limit_fault),
        Rule(("tokens", "capacity"), _capacity_fault),
    ),
)
