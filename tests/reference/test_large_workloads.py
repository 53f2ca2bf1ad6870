"""Recommendation, LINPACK and a long Fourier transform: the whole computation against NumPy, published work, and on mappings."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.reference.generate import plain_tree
from tests.reference.graphs import evaluate
from tests.reference.oracles import inputs, oracle
from tests.reference.problems import random_chip
from tests.reference.test_workloads import EXAMPLES

import halley
from halley.errors import BadInput
from halley.ir.workload import Workload
from halley.workloads import build, dlrm, fft, hpl, hpl_orders


def work_of(workload: Workload, *names: str) -> float:
    """Elementary functions of these ops, all counted alike."""
    ops = [workload.op(name) for name in names]
    return sum(sum(workload.work(op).values()) * np.prod([float(workload.dims[dim]) for dim in op.dims]) for op in ops)


# ---------------------------------------------------------------- Fourier transform


@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (8, 1), (4, 8), (16, 4)])
def test_two_rounds_are_one_long_transform(rows: int, columns: int) -> None:
    work = fft(rows, columns)
    random = np.random.default_rng(1)
    points = random.normal(size=rows * columns) + 1j * random.normal(size=rows * columns)
    matrix = points.reshape(rows, columns)
    factors = np.exp(-2j * np.pi * np.outer(np.arange(rows), np.arange(columns)) / (rows * columns))
    arrays = {"Xr": matrix.real, "Xi": matrix.imag, "Wr": factors.real, "Wi": factors.imag}
    known = evaluate(work, arrays)
    np.testing.assert_allclose((known["Yr"] + 1j * known["Yi"]).ravel(), np.fft.fft(points), atol=1e-12)


def test_work_of_a_transform_is_five_n_log_n() -> None:
    """The count by which transforms are rated (5 N log2 N); the twiddle factors between the rounds come on top, 6 N."""
    work = fft(2**20, 2**20)
    points = 2.0**40
    assert work_of(work, "columns", "rows") == 5 * points * 40
    assert work_of(work, "twiddle_real", "twiddle_imaginary") == 6 * points


# ---------------------------------------------------------------- LINPACK


@pytest.mark.parametrize(("order", "block"), [(12, 4), (13, 4), (9, 2), (5, 4)])
def test_the_steps_factor_a_matrix(order: int, block: int) -> None:
    """Blocks on the diagonal are factored here, without pivots: the matrix is dominated by its diagonal."""
    random = np.random.default_rng(order)
    matrix = random.normal(size=(order, order)) + 3 * order * np.eye(order)
    lower, upper, left = np.zeros_like(matrix), np.zeros_like(matrix), matrix.copy()
    done = 0
    for size in hpl_orders(order, block):
        assert size == order - done
        here, rest = slice(done, done + block), slice(done + block, order)
        lower[here, here], upper[here, here] = factors(left[:block, :block])
        arrays = {
            "A21": left[block:, :block],
            "A12": left[:block, block:],
            "A22": left[block:, block:],
            "Ui": np.linalg.inv(upper[here, here]),
            "Li": np.linalg.inv(lower[here, here]),
        }
        known = evaluate(hpl(size, block), arrays)
        lower[rest, here], upper[here, rest], left = known["L21"], known["U12"], known["Anew"]
        done += block
    lower[done:, done:], upper[done:, done:] = factors(left)
    assert np.array_equal(lower, np.tril(lower))
    assert np.array_equal(upper, np.triu(upper))
    np.testing.assert_allclose(lower @ upper, matrix, atol=1e-10)


def factors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U, column by column."""
    lower, upper = np.eye(len(matrix)), matrix.copy()
    for k in range(len(matrix)):
        lower[k + 1 :, k] = upper[k + 1 :, k] / upper[k, k]
        upper[k + 1 :] -= np.outer(lower[k + 1 :, k], upper[k])
    return lower, np.triu(upper)


def test_a_run_takes_two_thirds_of_the_cube() -> None:
    """By which LINPACK is rated (2/3 n^3 + 3/2 n^2); blocks make the solves dearer, by the ratio of block to order."""
    order, block = 5_000_000, 5_000
    total = sum(2 * hpl(size, block).macs() for size in hpl_orders(order, block))
    assert total == pytest.approx(2 / 3 * order**3, rel=2 * block / order)
    assert total >= 2 / 3 * (order - block) ** 3


# ---------------------------------------------------------------- recommendation


def test_pairs_below_the_diagonal_are_the_published_interaction() -> None:
    """Concatenated: the dense vector, and a product per unordered pair of it and the tables (Naumov et al. 2019, section 2.1)."""
    work = build("dlrm", EXAMPLES["dlrm"])
    arrays = inputs(work, 3) | {"pairs": np.tril(np.ones((4, 4)), -1)}
    known = evaluate(work, arrays)
    pooled = np.stack([arrays["table"][t][arrays["index"][:, t]].sum(axis=1) for t in range(4)], axis=1)
    x = known["x"]
    features = np.concatenate([x[:, None], pooled], axis=1)
    products = features @ features.transpose(0, 2, 1)
    rows, columns = np.tril_indices(5, -1)
    joined = np.concatenate([x, products[:, rows, columns]], axis=1)
    weights = [arrays["Wx"]]
    weights += [(arrays["Wc"][r - 1] if c == 0 else arrays["Wp"][r - 1, c - 1])[None] for r, c in zip(rows, columns, strict=True)]
    np.testing.assert_allclose(known["T5"], joined @ np.concatenate(weights), atol=1e-12)


@pytest.mark.parametrize(("bottom", "top"), [(1, 1), (1, 2), (2, 1), (4, 4)])
def test_stacks_of_any_depth(bottom: int, top: int) -> None:
    work = build("dlrm", {**EXAMPLES["dlrm"], "bottom_layers": bottom, "top_layers": top})
    arrays = inputs(work, 5)
    np.testing.assert_allclose(evaluate(work, arrays)["Y"], oracle(work, arrays)["Y"], rtol=1e-9)
    assert set(work.dims) == {dim for tensor in work.tensors.values() for dim in tensor.dims}


def test_a_model_of_793_billion_parameters_is_tables() -> None:
    work = dlrm(2048, 1000, 8_260_000, 96, 15, 1000, 4, 1024, 4, 4096)
    table = work.bytes("table") // 2
    assert table == pytest.approx(793e9, rel=1e-3)
    everything = sum(work.bytes(name) // 2 for name in work.inputs if name.startswith(("W", "table")))
    assert table > 0.99 * everything


# ---------------------------------------------------------------- on a chip


@pytest.mark.parametrize("kind", ["dlrm", "hpl", "fft"])
def test_on_a_mapping(kind: str) -> None:
    work = build(kind, {**EXAMPLES[kind], "dtype": "bf16"})
    arrays, chip = inputs(work, 2), random_chip(Random(4))
    wanted = oracle(work, arrays)
    done = halley.run(work, chip, plain_tree(work, chip), arrays)
    for name, value in wanted.items():
        np.testing.assert_allclose(done.outputs[name], value, rtol=1e-7, atol=1e-9)


def test_what_is_wrong() -> None:
    with pytest.raises(BadInput, match=r"rows: expected a power of two.*pad to 16"):
        fft(12, 8)
    with pytest.raises(BadInput, match="rows x columns of at most"):
        fft(2**30, 2**30)
    with pytest.raises(BadInput, match="block: expected less than order"):
        hpl(4, 4)
    with pytest.raises(BadInput, match="bottom_layers: expected at most 64"):
        dlrm(1, 1, 1, 1, 1, 1, 65, 1, 1, 1)
