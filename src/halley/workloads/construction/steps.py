"""Sequences of elementary operations that several compound operations use: softmax with its weighted sum, and norms."""

from __future__ import annotations

from dataclasses import dataclass

from halley.ir.workload import Op
from halley.workloads.construction.graph import EPSILON, contract, elementwise, reduction


@dataclass(frozen=True, slots=True)
class OpSequence:
    """``ops`` in order; dims of their result tensors, statistics (fp32) separately; ``kernels``."""

    ops: tuple[Op, ...]
    made: dict[str, str]
    statistics: dict[str, str]
    kernels: tuple[tuple[str, ...], ...]


def softmax_and_values(
    variant: str, scale: Op, rows: str, key: str, value: str, values: str = "V", result: str = "O"
) -> OpSequence:
    """The op ``scale``, with result S2 [rows, key]; softmax of S2 along ``key``; its product with ``values`` [key, value].

    - plain: ``mx; E = exp(S2 - mx); z; P = E / z; result = P V``.
    - deferred: ``U = E V; result = U / z``.
    - online: mx is the maximum so far; z and U, relative to it, are scaled when it grows. One exponential for each score, as in
      FlashAttention-2 (arXiv 2307.08691).
    """
    matrix, made = f"{rows} {key}", f"{rows} {value}"
    product = f"{rows} {key} {value}"
    two_passes = (
        scale,
        reduction("max", "max", "S2", "mx", matrix),
        elementwise("exp", "exp_difference", "S2 mx", "E", matrix),
        reduction("sum", "sum", "E", "z", matrix),
    )
    late_division = elementwise("divide", "divide", "U z", result, made)
    tensors = {"S2": matrix, "E": matrix, "U": made, result: made}
    match variant:
        case "plain":
            first: tuple[Op, ...] = (*two_passes, elementwise("divide", "divide", "E z", "P", matrix))
            last: tuple[Op, ...] = (contract("values", f"P {values}", result, product),)
            tensors = {"S2": matrix, "E": matrix, "P": matrix, result: made}
        case "deferred":
            first, last = two_passes, (contract("values", f"E {values}", "U", product), late_division)
        case _:
            first = (
                scale,
                reduction("running_max", "max", "S2", "mx", matrix),
                elementwise("exp", "exp_difference", "S2 mx", "E", matrix, running="mx"),
                reduction("running_sum", "sum", "E", "z", matrix, scaled_by="mx"),
            )
            last = (contract("values", f"E {values}", "U", product, scaled_by="mx"), late_division)
    kernels = (tuple(op.name for op in first), *((op.name,) for op in last))
    return OpSequence((*first, *last), tensors, {"mx": rows, "z": rows}, kernels)


def scale_scores(scores: str, dims: str, scale: float, causal: bool, queries: int, keys: int, window: int | None = None) -> Op:
    """``S2 = scale x scores``. Under a causal mask query i (row modulo ``queries``) sees the keys up to ``i + keys - queries``;
    with a ``window`` only the last ``window`` of them."""
    constants = {"scale": scale}
    if causal and window is not None:
        constants |= {"queries": float(queries), "offset": float(keys - queries), "window": float(window)}
        return elementwise("scale", "scale_window", scores, "S2", dims, constants=constants)
    if causal:
        constants |= {"queries": float(queries), "offset": float(keys - queries), "causal": 1.0}
    return elementwise("scale", "scale_mask" if causal else "scale", scores, "S2", dims, constants=constants)


def layernorm(
    source: str, result: str, row: str, along: str, count: int, variant: str, mark: str = "", weights: str = "gain bias"
) -> OpSequence:
    """``result = (source - mu) / sqrt(v / count + epsilon) * gain + bias`` along a dim (Ba et al., arXiv 1607.06450).

    ``mark`` is a suffix of the names of ops and statistics, for graphs with several norms; ``weights`` names gain and bias.
    """
    matrix, mu, v, r = f"{row} {along}", f"mu{mark}", f"v{mark}", f"r{mark}"
    if variant == "two-pass":
        statistics: tuple[Op, ...] = (
            reduction(f"mean{mark}", "mean", source, mu, matrix, constants={"count": count}),
            reduction(f"variance{mark}", "sum", f"{source} {mu}", v, matrix, function="square_difference"),
        )
    else:
        statistics = (reduction(f"statistics{mark}", "welford", source, f"{mu} {v}", matrix),)
    ops = (
        *statistics,
        elementwise(f"rstd{mark}", "rsqrt_mean", v, r, row, constants={"count": count, "epsilon": EPSILON}),
        elementwise(f"normalise{mark}", "normalise_affine", f"{source} {mu} {r} {weights}", result, matrix),
    )
    return OpSequence(ops, {result: matrix}, {mu: row, v: row, r: row}, (tuple(op.name for op in ops),))


def rmsnorm(source: str, result: str, row: str, along: str, count: int, mark: str = "", gain: str = "gain") -> OpSequence:
    """``result = source / sqrt(mean source^2 + epsilon) * gain`` along a dim (Zhang and Sennrich, arXiv 1910.07467)."""
    matrix, q, r = f"{row} {along}", f"q{mark}", f"r{mark}"
    ops = (
        reduction(f"sum_squares{mark}", "sum", source, q, matrix, function="square"),
        elementwise(f"rrms{mark}", "rsqrt_mean", q, r, row, constants={"count": count, "epsilon": EPSILON}),
        elementwise(f"normalise{mark}", "normalise_gain", f"{source} {r} {gain}", result, matrix),
    )
    return OpSequence(ops, {result: matrix}, {q: row, r: row}, (tuple(op.name for op in ops),))
