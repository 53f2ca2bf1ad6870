"""Layers with their backward pass, written out by hand: a transformer layer, experts, embedding and head.

Tokens m, keys n, model k, heads h, head dims d and e, hidden f, experts x with slots c, vocabulary v. Constants of derivatives
are left out where they change neither bytes nor work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from halley.ir.workload import Op, OpKind, Tensor, Workload
from halley.workloads.user import graph

FORWARD = """
q1[m]:fp32 = sum(square(X[m,k]))
r1[m]:fp32 = rsqrt_mean(q1[m], count=64, epsilon=0.001)
A[m,k] = X[m,k] * r1[m]
Q[h,m,d] = A[m,k] * Wq[k,h,d]
An[n,k] = A[m,k]
K[h,n,d] = An[n,k] * Wk[k,h,d]
V[h,n,e] = An[n,k] * Wv[k,h,e]
S[h,m,n] = Q[h,m,d] * K[h,n,d]
mx[h,m]:fp32, z[h,m]:fp32 = softmax(S[h,m,n])
P[h,m,n] = softmax_from_stats(S[h,m,n], mx[h,m], z[h,m])
O[h,m,e] = P[h,m,n] * V[h,n,e]
Z[m,k] = O[h,m,e] * Wo[h,e,k]
X2[m,k] = X[m,k] + Z[m,k]
q2[m]:fp32 = sum(square(X2[m,k]))
r2[m]:fp32 = rsqrt_mean(q2[m], count=64, epsilon=0.001)
B[m,k] = X2[m,k] * r2[m]
F[m,f] = B[m,k] * Wu[k,f]
H[m,f] = relu(F[m,f])
D[m,k] = H[m,f] * Wd[f,k]
Y[m,k] = X2[m,k] + D[m,k]
"""

BACKWARD = """
dH[m,f] = dY[m,k] * Wd[f,k]
dWd[f,k] = H[m,f] * dY[m,k]
dF[m,f] = dH[m,f] * F[m,f]
dWu[k,f] = B[m,k] * dF[m,f]
dB[m,k] = dF[m,f] * Wu[k,f]
b1[m,k] = dB[m,k] * r2[m]
b2[m]:fp32 = sum(mul(dB[m,k], X2[m,k]))
b3[m]:fp32 = b2[m] * r2[m]
b4[m,k] = X2[m,k] * b3[m]
b5[m,k] = b1[m,k] - b4[m,k]
dX2[m,k] = dY[m,k] + b5[m,k]
dWo[h,e,k] = O[h,m,e] * dX2[m,k]
dO[h,m,e] = dX2[m,k] * Wo[h,e,k]
dP[h,m,n] = dO[h,m,e] * V[h,n,e]
dV[h,n,e] = P[h,m,n] * dO[h,m,e]
s1[h,m]:fp32 = sum(mul(P[h,m,n], dP[h,m,n]))
s2[h,m,n] = dP[h,m,n] - s1[h,m]
dS[h,m,n] = P[h,m,n] * s2[h,m,n]
dQ[h,m,d] = dS[h,m,n] * K[h,n,d]
dK[h,n,d] = dS[h,m,n] * Q[h,m,d]
dWq[k,h,d] = A[m,k] * dQ[h,m,d]
dWk[k,h,d] = An[n,k] * dK[h,n,d]
dWv[k,h,e] = An[n,k] * dV[h,n,e]
dA1[m,k] = dQ[h,m,d] * Wq[k,h,d]
dAn1[n,k] = dK[h,n,d] * Wk[k,h,d]
dAn2[n,k] = dV[h,n,e] * Wv[k,h,e]
dAn[n,k] = dAn1[n,k] + dAn2[n,k]
dA2[m,k] = dAn[n,k]
dA[m,k] = dA1[m,k] + dA2[m,k]
a1[m,k] = dA[m,k] * r1[m]
a2[m]:fp32 = sum(mul(dA[m,k], X[m,k]))
a3[m]:fp32 = a2[m] * r1[m]
a4[m,k] = X[m,k] * a3[m]
a5[m,k] = a1[m,k] - a4[m,k]
dX[m,k] = dX2[m,k] + a5[m,k]
"""

WEIGHTS = ("Wq", "Wk", "Wv", "Wo", "Wu", "Wd")
GRADIENTS = tuple((name, f"d{name}") for name in WEIGHTS)
TIED = (
    ("Q", "dWq", "dA1"),
    ("K", "dWk", "dAn1"),
    ("V", "dWv", "dAn2"),
    ("S", "dQ", "dK"),
    ("O", "dP", "dV"),
    ("Z", "dWo", "dO"),
    ("F", "dWu", "dB"),
    ("D", "dWd", "dH"),
)
"""Products of the forward pass with those of the backward pass over the same dims."""

TOKENWISE = (
    "q1",
    "r1",
    "A",
    "An",
    "X2",
    "q2",
    "r2",
    "B",
    "Y",
    "b1",
    "b2",
    "b3",
    "b4",
    "b5",
    "dX2",
    "dAn",
    "dA2",
    "dA",
    "a1",
    "a2",
    "a3",
    "a4",
    "a5",
    "dX",
)
"""Ops on the residual stream: sums and norms, outside attention and feed-forward block."""


def layer_dims(tokens: int, model: int, heads: int, hidden: int, batch: int = 1) -> dict[str, int]:
    dims = {"m": tokens, "n": tokens, "k": model, "h": heads, "d": model // heads, "e": model // heads, "f": hidden}
    return {"b": batch, **dims} if batch > 1 else dims


def forward_layer(dims: Mapping[str, int]) -> Workload:
    return graph(_lines(FORWARD, dims), dims)


def training_layer(dims: Mapping[str, int]) -> Workload:
    return graph(_lines(FORWARD + BACKWARD, dims), dims, outputs=("Y", "dX", *(gradient for _, gradient in GRADIENTS)))


def _lines(lines: str, dims: Mapping[str, int]) -> str:
    """With the batch in front of all that has tokens."""
    return re.sub(r"\[(?=(h,)?[mn][,\]])", "[b,", lines) if "b" in dims else lines


def expert_block(tokens: int, model: int, hidden: int, experts: int, top_k: int) -> Workload:
    """Tokens to the slots of their experts, two matrices per expert, back to the tokens and added up."""
    slots = tokens * top_k // experts
    dims = {"m": tokens, "k": model, "x": experts, "c": slots, "f": hidden, "j": model}
    work = graph(
        "U[x,c,f] = G[x,c,k] * Wu[x,k,f]\nH[x,c,f] = relu(U[x,c,f])\nE[x,c,j] = H[x,c,f] * Wd[x,f,j]",
        {dim: extent for dim, extent in dims.items() if dim != "m"},
    )
    extra = {name: Tensor(name, tuple(each), "bf16") for name, each in {"X": "mk", "Y": "mj"}.items()}
    extra["index"] = Tensor("index", ("x", "c"), "int32")
    ops = (
        Op("G", OpKind.GATHER, ("X", "index"), ("G",), ("x", "c", "k"), along="m"),
        *work.ops,
        Op("Y", OpKind.SCATTER, ("E", "index"), ("Y",), ("x", "c", "j"), along="m"),
    )
    return replace(work, dims=dims, tensors={**work.tensors, **extra}, ops=ops, outputs=("Y",), kernels=())


def embedding_and_head(tokens: int, model: int, vocabulary: int) -> Workload:
    """Rows of a table, and at the other end the logits, their statistics and that of the label."""
    dims = {"m": tokens, "k": model, "v": vocabulary}
    head = "L[m,v] = T[m,k] * Wh[k,v]\nmx[m]:fp32, z[m]:fp32 = softmax(L[m,v])"
    work = graph(head, dims)
    extra = {
        "table": Tensor("table", ("v", "k"), "bf16"),
        "tokens": Tensor("tokens", ("m",), "int32"),
        "labels": Tensor("labels", ("m",), "int32"),
        "X": Tensor("X", ("m", "k"), "bf16"),
        "picked": Tensor("picked", ("m",), "bf16"),
        "loss": Tensor("loss", ("m",), "fp32"),
    }
    ops = (
        Op("X", OpKind.GATHER, ("table", "tokens"), ("X",), ("m", "k"), along="v"),
        Op("T", OpKind.MAP, ("X",), ("T",), ("m", "k"), "relu"),
        *work.ops,
        Op("picked", OpKind.GATHER, ("L", "labels"), ("picked",), ("m",), along="v"),
        Op("loss", OpKind.MAP, ("picked", "mx", "z"), ("loss",), ("m",), "softmax_from_stats"),
    )
    return replace(work, tensors={**work.tensors, **extra}, ops=ops, outputs=("loss",), kernels=())
