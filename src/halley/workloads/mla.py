"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

Keys and values of all heads are computed from one latent vector per key, so that the cache holds c + r numbers per key. Positions
are separate: r dims of queries and keys encode them (rotary); those of the keys are shared by all heads.

Dims: b sequences, h heads, m queries, n keys, c latent, d head dim of the content part, r of the rotary part, e value head dim,
k model. b is present only if it is above 1.
"""

from __future__ import annotations

import math

from halley.errors import Fault
from halley.ir.workload import Op, Workload
from halley.workloads.construction.graph import STATISTIC, batch, contract, elementwise, tensors
from halley.workloads.construction.parameters import Rule, WorkloadKind, algorithm, check, element_type, flag, size
from halley.workloads.construction.steps import OpSequence, scale_scores, softmax_and_values


def mla(
    heads: int,
    queries: int,
    keys: int,
    latent: int,
    head_dim: int,
    rope_dim: int,
    value_dim: int | None = None,
    model: int | None = None,
    sequences: int = 1,
    causal: bool = False,
    variant: str = "plain",
    dtype: str = "bf16",
) -> Workload:
    """``O = softmax(scale (Qc Kc^T + Qr R^T) + mask) V`` with ``Kc = C Wk``, ``V = C Wv``, ``scale = 1 / sqrt(d + r)``.

    Inputs: Qc and Qr, the content and rotary parts of the queries; C, the latents of the keys; R, the keys' rotary part; Wk, Wv,
    the matrices from latents to heads. Qr and R are already rotated. With ``model`` the latents are first computed from the keys'
    activations, ``C = X Wc``.

    - plain: keys and values of every head are computed from the latents; suits prefill.
    - absorbed: ``Qt = Qc Wk^T``, ``S = Qt C^T``, ``L = P C``, ``O = L Wv``: all heads use C as keys and values, which are not
      computed per head. More multiply-accumulates with many queries, far fewer with one; suits decode.
    - plain-online, absorbed-online: the same with online softmax.

    >>> work = mla(heads=16, queries=1, keys=100, latent=32, head_dim=8, rope_dim=4, variant="absorbed")
    >>> [op.name for op in work.ops][:4], mla(16, 1, 100, 32, 8, 4).macs() / work.macs() > 5
    (['absorb', 'scores', 'rotary', 'add'], True)

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "latent": latent,
        "head_dim": head_dim,
        "rope_dim": rope_dim,
        "value_dim": head_dim if value_dim is None else value_dim,
        "model": model,
        "sequences": sequences,
        "causal": causal,
        "variant": variant,
        "dtype": dtype,
    }
    check(MLA, given)
    b, extents = batch(sequences)
    extents |= {"h": heads, "m": queries, "n": keys, "c": latent, "d": head_dim, "r": rope_dim}
    extents["e"] = head_dim if value_dim is None else value_dim
    given_tensors = {"Qc": f"{b}h m d", "Qr": f"{b}h m r", "R": f"{b}n r", "Wk": "h c d", "Wv": "h c e", "C": f"{b}n c"}
    compress: tuple[Op, ...] = ()
    if model is not None:
        extents["k"] = model
        given_tensors |= {"X": f"{b}n k", "Wc": "k c"}
        compress = (contract("compress", "X Wc", "C", f"{b}n k c"),)
    scale = scale_scores("A", f"{b}h m n", 1.0 / math.sqrt(head_dim + rope_dim), causal, queries, keys)
    make = _absorbed if variant.startswith("absorbed") else _plain
    before, rest, after, made = make(b, "online" if variant.endswith("online") else "plain", scale)
    scores = (
        *before,
        contract("rotary", "Qr R", "T", f"{b}h m r n"),
        elementwise("add", "add", "S T", "A", f"{b}h m n"),
    )
    return Workload(
        MLA.name,
        extents,
        tensors(dtype, given_tensors | made | dict.fromkeys(("S", "T", "A"), f"{b}h m n") | rest.made)
        | tensors(STATISTIC, rest.statistics),
        (*compress, *scores, *rest.ops, *after),
        ("O",),
        kernels=(
            *((op.name,) for op in (*compress, *scores[:-1])),
            ("add", *rest.kernels[0]),
            *rest.kernels[1:],
            *((op.name,) for op in after),
        ),
        variant=variant,
        parameters=given,
    )


Parts = tuple[tuple[Op, ...], OpSequence, tuple[Op, ...], dict[str, str]]
"""Ops up to the content scores S; softmax and weighted sum; ops after it; the result tensors of the first and the last."""


def _plain(b: str, softmax: str, scale: Op) -> Parts:
    """Keys and values of every head, then standard attention."""
    before = (
        contract("make_keys", "C Wk", "Kc", f"{b}h n c d"),
        contract("make_values", "C Wv", "V", f"{b}h n c e"),
        contract("scores", "Qc Kc", "S", f"{b}h m d n"),
    )
    return before, softmax_and_values(softmax, scale, f"{b}h m", "n", "e"), (), {"Kc": f"{b}h n d", "V": f"{b}h n e"}


def _absorbed(b: str, softmax: str, scale: Op) -> Parts:
    """Queries projected to the latent space, attention over the latents, results projected back."""
    before = (
        contract("absorb", "Qc Wk", "Qt", f"{b}h m d c"),
        contract("scores", "Qt C", "S", f"{b}h m c n"),
    )
    rest = softmax_and_values(softmax, scale, f"{b}h m", "n", "c", values="C", result="L")
    after = (contract("make_output", "L Wv", "O", f"{b}h m c e"),)
    return before, rest, after, {"Qt": f"{b}h m c", "O": f"{b}h m e"}


def _visible(causal: bool, queries: int, keys: int) -> Fault | None:
    if not causal or queries <= keys:
        return None
    remedy = "count the new tokens in keys as well; the first rows would see no key"
    return Fault("workload mla, parameter queries", f"at most keys ({keys}) under a causal mask", str(queries), remedy)


MLA = WorkloadKind(
    "mla",
    "multi-head latent attention: keys and values from one latent per key",
    mla,
    (
        size("heads", "heads"),
        size("queries", "query tokens per sequence; 1 in decode"),
        size("keys", "keys per sequence, the cache included"),
        size("latent", "dim of the latent that keys and values come from"),
        size("head_dim", "head dim of the content part"),
        size("rope_dim", "dim of the rotary part"),
        size("value_dim", "head dim of values; head_dim unless given", None),
        size("model", "model dim, if the latents are to be made; else they are the cache", None),
        size("sequences", "sequences", 1),
        flag("causal", "mask the keys behind each query", False),
        algorithm("plain", "absorbed", "plain-online", "absorbed-online"),
        element_type(),
    ),
    (Rule(("causal", "queries", "keys"), _visible),),
)
