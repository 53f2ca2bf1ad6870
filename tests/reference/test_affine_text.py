"""Convolutions, pooling and einsums written as text give what NumPy gives, run on tiled mappings."""

# ruff: noqa: E501 - a message and what causes it read best on one line
from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.reference.generate import plain_tree, random_trees
from tests.reference.problems import random_chip
from tests.reference.test_counts import assert_agrees

import halley
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs
from halley.ir.mapping import Node
from halley.workloads import build


def mapped(work: halley.Workload, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs, and the outputs of the last of some legal mappings; each of them must give the same, and count as costed."""
    random = Random(seed)
    chip, arrays = random_chip(random), random_inputs(work, seed)
    first = halley.run(work, chip, plain_tree(work, chip), arrays).outputs

    def legal(tree: Node) -> bool:
        try:
            done = halley.run(work, chip, tree, arrays)
        except BadInput:
            return False
        assert_agrees(work, chip, tree, done)
        for name in work.outputs:
            np.testing.assert_allclose(done.outputs[name], first[name], rtol=1e-9, atol=1e-12)
        return True

    assert sum(1 for _ in random_trees(random, work, chip, legal, 12)) > 1
    return arrays, first


def correlate(image: np.ndarray, kernels: np.ndarray, stride: int = 1, padding: int = 0, dilation: int = 1) -> np.ndarray:
    """[c, h, w] with [f, c, r, s]: zeros around the image, then one shifted and strided copy of it for each tap."""
    wide = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    _, _, taps, across = kernels.shape
    rows, columns = (
        (most - dilation * (count - 1) - 1) // stride + 1 for most, count in zip(wide.shape[1:], (taps, across), strict=True)
    )
    result = np.zeros((len(kernels), rows, columns))
    for r in range(taps):
        for s in range(across):
            part = wide[:, r * dilation :: stride, s * dilation :: stride][:, :rows, :columns]
            result += np.tensordot(kernels[:, :, r, s], part, 1)
    return result


@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding", "dilation"),
    [(6, 3, 1, 0, 1), (6, 3, 1, 1, 1), (7, 3, 2, 1, 1), (8, 2, 2, 0, 1), (7, 3, 1, 2, 2), (5, 1, 2, 0, 1), (9, 2, 3, 1, 1)],
)
def test_convolutions(size: int, taps: int, stride: int, padding: int, dilation: int) -> None:
    out = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    row, column = (f"{stride}{p}+{dilation}{r}-{padding}" for p, r in ("pr", "qs"))
    work = halley.graph(
        f"I[c,h,w]\nO[f,p,q] = I[c,{row},{column}] * W[f,c,r,s]",
        {"f": 2, "p": out, "q": out, "c": 2, "r": taps, "s": taps, "h": size, "w": size},
    )
    assert work.op("O").kind is halley.OpKind.CONTRACT
    assert build("graph", work.parameters) == work
    arrays, found = mapped(work, size)
    np.testing.assert_allclose(found["O"], correlate(arrays["I"], arrays["W"], stride, padding, dilation), rtol=1e-9)


def test_depthwise_and_grouped_convolutions() -> None:
    work = halley.graph(
        "I[c,h]\nD[c,p] = I[c,2p+r-1] * V[c,r]\nX[g,c,h]\nG[g,f,p] = X[g,c,2p+r-1] * W[g,f,c,r]",
        {"c": 2, "h": 7, "p": 4, "r": 3, "g": 2, "f": 2},
    )
    arrays, found = mapped(work, 5)
    padded = np.pad(arrays["I"], ((0, 0), (1, 1)))
    depthwise = sum(arrays["V"][:, r, None] * padded[:, r::2][:, :4] for r in range(3))
    np.testing.assert_allclose(found["D"], depthwise, rtol=1e-9)
    wide = np.pad(arrays["X"], ((0, 0), (0, 0), (1, 1)))
    grouped = sum(np.einsum("gfc,gcp->gfp", arrays["W"][..., r], wide[:, :, r::2][:, :, :4]) for r in range(3))
    np.testing.assert_allclose(found["G"], grouped, rtol=1e-9)


@pytest.mark.parametrize(("taps", "stride"), [(2, 2), (4, 2), (3, 3), (4, 1)])
def test_transposed_convolutions(taps: int, stride: int) -> None:
    """Position h = stride a + b of the result takes the taps k with kernel index stride k + b, from a - k of the input."""
    size, parts = 3, taps // stride
    work = halley.graph(
        "I[c,x]\nO[f,a,b] = I[c,a-k] * W[c,f,k,b]",
        {"f": 2, "c": 2, "x": size, "a": size + parts - 1, "b": stride, "k": parts},
    )
    arrays, found = mapped(work, taps)
    kernel = arrays["W"].reshape(2, 2, parts * stride)
    spread = np.zeros((2, stride * (size - 1) + taps))
    for place in range(size):
        spread[:, stride * place : stride * place + taps] += np.einsum("c,cfr->fr", arrays["I"][:, place], kernel)
    np.testing.assert_allclose(found["O"].reshape(2, -1)[:, : spread.shape[1]], spread, rtol=1e-9)


@pytest.mark.parametrize("kind", ["max", "sum", "mean"])
def test_pooling(kind: str) -> None:
    work = halley.graph(f"I[c,h]\nO[c,p] = {kind}(I[c,2p+r-1])", {"c": 2, "h": 7, "p": 4, "r": 3})
    arrays, found = mapped(work, 3)
    neutral = -np.inf if kind == "max" else 0.0
    wide = np.pad(arrays["I"], ((0, 0), (1, 1)), constant_values=neutral)
    windows = np.lib.stride_tricks.sliding_window_view(wide, 3, axis=1)[:, ::2]
    np.testing.assert_allclose(found["O"], getattr(windows, kind)(axis=-1), rtol=1e-9)


def test_diagonals_bands_and_batches() -> None:
    work = halley.graph(
        "t[i,k] = A[i,i,j] * B[j,k]\nO[b,i,k] = D[b,i,j] * E[b,j,k]\nC[k,i] = x[k+j] * y[j,i]\nd[i] = F[i,i]",
        {"i": 3, "j": 4, "k": 2, "b": 2},
    )
    arrays, found = mapped(work, 1)
    np.testing.assert_allclose(found["t"], np.einsum("iij,jk->ik", arrays["A"], arrays["B"]), rtol=1e-9)
    np.testing.assert_allclose(found["O"], np.einsum("bij,bjk->bik", arrays["D"], arrays["E"]), rtol=1e-9)
    rows = np.stack([arrays["x"][k : k + 4] for k in range(2)])
    np.testing.assert_allclose(found["C"], rows @ arrays["y"], rtol=1e-9)
    np.testing.assert_allclose(found["d"], np.diag(arrays["F"]))


@pytest.mark.parametrize(
    ("line", "sums", "kinds"),
    [
        ("T[i,b] = P[i,j] * Q[j,k] * R[k,b]", "ij,jk,kb->ib", ["contract", "contract"]),
        ("T[i] = P[i,j] * Q[j] * R[j]", "ij,j,j->i", ["map", "contract"]),
        ("T[i] = P[i,j] * Q[k] * R[k,i] * S[i]", "ij,k,ki,i->i", ["reduce", "contract", "map"]),
    ],
)
def test_products_of_many_factors(line: str, sums: str, kinds: list[str]) -> None:
    extents = {dim: extent for dim, extent in {"i": 3, "j": 4, "k": 2, "b": 2}.items() if dim in sums}
    work = halley.graph(line, extents)
    assert [op.kind.value for op in work.ops] == kinds
    arrays, found = mapped(work, 2)
    np.testing.assert_allclose(found["T"], np.einsum(sums, *(arrays[name] for name in "PQRS" if name in arrays)), rtol=1e-9)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("I[h]\nO[p] = max(I[p+r-1])\nU[p] = sum(I[2p+r])", "expected one index over these dims everywhere"),
        ("O[p] = max(I[p+r])\nU[p] = sum(I[2p+r])", "line 2, column 12: expected places of I that line 1 has, or a line that says its dims"),
        ("O[p] = max(I[p+r])\nI[h]", "line 2, column 1: expected the dims of I before it is used; got line 1"),
        ("I[h]\nm[p], z[p] = softmax(I[p+r-1])", "expected positions inside the tensor, for softmax has no value for padding"),
        ("A[h,w]\nO[h] = A[h,h+r-1] * W[r]", "expected no padding where h selects several dims of A"),
    ],
)  # fmt: skip
def test_what_affine_indices_cannot_say(lines: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        halley.graph(lines, {dim: 4 for dim in "prhw" if dim in lines})
    assert told in str(caught.value)
