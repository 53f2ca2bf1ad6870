"""Backward graphs against central differences: every shipped workload, function, reduction and scan, and drawn graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from tests.reference.affine_draws import drawn_affine
from tests.reference.differences import check, run
from tests.reference.generate import plain_tree
from tests.reference.graphs import evaluate
from tests.reference.oracles import inputs
from tests.reference.problems import random_chip
from tests.reference.test_counts import SEEDS, many
from tests.reference.test_workloads import EXAMPLES, examples, label
from tests.reference.user_graphs import drawn

import halley
from halley.errors import BadInput
from halley.ir.affine import AffineIndex
from halley.ir.workload import FUNCTIONS, Op, OpKind, Tensor, Workload
from halley.rewrite.backward import Differentiated, backward
from halley.rewrite.derivatives import DERIVATIVES
from halley.rewrite.recompute import Recompute, recompute
from halley.workloads import attention, build, transformer_layer, variants
from halley.workloads.construction.graph import elementwise, reduction, tensors

ROWS = ("scale_mask", "scale_visible", "scale_window", "scale_in_window", "decay_mask")
ONE_WAY = {
    "negative_product", "scaled_quotient", "quotient_gradient", "cube_product", "scaled_difference", "difference_product",
    "mul_exp", "product_exp", "mul_exp_difference", "select_equal", "select_above", "select_not_below", "relu_gradient",
    "sigmoid_gradient", "tanh_gradient", "softplus_bias_gradient", "silu_gradient", "silu_bias_gradient",
    "silu_mul_gradient", "gelu_gradient", "gelu_erf_gradient",
}  # fmt: skip
"""Functions that occur in derivatives only."""


def real(work: Workload) -> Workload:
    return build(work.name, {**work.parameters, "dtype": "bf16"}) if "dtype" in work.parameters else work


def positive(work: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    """Away from kinks, roots of what is negative and divisions by zero."""
    random = np.random.default_rng(seed)
    return {name: random.uniform(0.3, 2.0, [work.dims[dim] for dim in work.tensors[name].dims]) for name in work.inputs}


# ---------------------------------------------------------------- whole workloads


@pytest.mark.parametrize("work", examples(), ids=label)
def test_shipped_workloads(work: Workload) -> None:
    work = real(work)
    check(work, backward(work), inputs(work, 3, 0.7))


def tied(found: Differentiated, arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether several points are a maximum: each of them then gets all of its gradient."""
    named = found.workload.tensors
    seeds = {name: np.ones([found.workload.dims[dim] for dim in named[name].dims]) for name in found.seeds.values()}
    known = evaluate(found.workload, {**arrays, **seeds})
    for op in found.workload.ops:
        if op.function == "select_equal":
            points, most = (named[name].dims for name in op.inputs[1:])
            ordered = known[op.inputs[2]].transpose([most.index(dim) for dim in points if dim in most])
            wide = ordered.reshape([found.workload.dims[dim] if dim in most else 1 for dim in points])
            if int((known[op.inputs[1]] == wide).sum()) > wide.size:
                return True
    return False


@given(SEEDS)
@many(60)
def test_drawn_graphs(seed: int) -> None:
    work = build("graph", drawn(Random(seed)))
    found, arrays = backward(work), inputs(work, seed % 1000, 0.5)
    assume(not tied(found, arrays))
    check(work, found, arrays, 1e-5)


def test_drawn_maxima_that_are_tied_are_seen() -> None:
    """Two zeros of a rectifier, of the largest distance from a sum; nothing is tied in most graphs."""
    works = {seed: build("graph", drawn(Random(seed))) for seed in (*range(20), 1857)}
    found = {seed: tied(backward(work), inputs(work, seed % 1000, 0.5)) for seed, work in works.items()}
    assert found[1857]
    assert sum(found.values()) < 5


@pytest.mark.parametrize(
    "lines",
    [
        "X[h,c]\nS[p,f] = X[2p+r-1,c] * W[r,c,f]\nY[p,f] = relu(S[p,f])",
        "X[h,c]\nA[h,c] = exp(X[h,c])\nS[p,c] = A[2p-r+2,c] * W[r,c]",
        "X[h,c]\nU[p,r,c] = X[2p+r-1,c]\nS[p,c] = max(U[p,r,c])\nT[c,f] = S[p,c] * V[p,f]",
        "S[p] = X[p,p,r] * W[r]",
        "X[h,c]\nM[p,c] = max(X[2p+r-1,c])\nS[p,f] = M[p,c] * V[c,f]",
        "X[h,c]\nA[h,c] = tanh(X[h,c])\nM[p,c] = max(A[2p+r,c])\nS[p,f] = M[p,c] * V[c,f]",
        "X[h,c]\nM[p,c] = sum(X[2p+r-1,c])\nY[p,c] = square(M[p,c])",
        "X[h,c]\nM[p,c] = mean(X[p+2r,c])\nY[p,c] = square(M[p,c])",
        "X[h,c]\nM[c] = mean(X[2p+r,c])\nY[c] = square(M[c])",
        "X[h]\nY[p,r] = exp(X[2p+r])\nZ[p] = sum(Y[p,r])",
        "X[h]\nY[p,r] = X[2p+r] - B[r]\nZ[p,r] = square(Y[p,r])",
        "X[h]\nW[r]\nD[p,c] = X[2p+r-1] * W[r] * V[c]\nZ[p,c] = square(D[p,c])",
    ],
)
def test_gradients_of_tensors_read_at_sums(lines: str) -> None:
    work = halley.graph(lines, {dim: extent for dim, extent in {"h": 7, "c": 2, "p": 3, "r": 3, "f": 2}.items() if dim in lines})
    check(work, backward(work), inputs(work, 3, 0.5))


def test_reductions_at_sums_of_kinds_that_text_does_not_say() -> None:
    """A reduction of a product, and of squares, with padding."""
    index = AffineIndex("h", (("p", 2), ("r", 1)), -1)
    for function, inputs_, constants in (("mul", ("X", "W"), ()), ("square", ("X",), ()), ("square_difference", ("X", "W"), ())):
        for monoid in ("sum", "mean", "max"):
            numbers = (*constants, ("count", 3.0)) if monoid == "mean" else constants
            op = Op("reduce", OpKind.REDUCE, inputs_, ("Y",), ("p", "r"), function, monoid, constants=numbers, indices=(index,))
            named = tensors("fp64", {"X": "h", "W": "r", "Y": "p"})
            work = Workload("pool", {"h": 8, "p": 3, "r": 3}, named, (op,), ("Y",))
            if function == "square_difference" and index.padded(work.dims):
                work = replace(work, ops=(replace(op, indices=(replace(index, constant=1),)),))
            check(work, backward(work), positive(work, 4), 1e-5)


@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions_and_pooling(seed: int) -> None:
    work = drawn_affine(Random(seed))
    arrays = positive(work, seed)
    if not all(np.isfinite(value).all() for value in evaluate(work, arrays).values()):
        pytest.skip("the maximum of padding alone")
    check(work, backward(work), arrays, 1e-5)


def test_gradients_by_tensors_inside_the_graph() -> None:
    """The gradient of a tensor that an op makes is that of a graph which begins with it."""
    work = attention(1, 2, 2, 3, 5, 4, causal=True)
    inner = ("P", "E", "S2", "mx", "z")
    found = backward(work, wrt=(*inner, "Q"))
    rest = Workload("rest", work.dims, {name: work.tensors[name] for name in ("P", "V", "O")}, work.ops[-1:], ("O",))
    arrays = inputs(work, 5)
    seed = np.random.default_rng(1).normal(size=(2, 3, 4))
    known = evaluate(found.workload, arrays | {"d_O": seed})
    np.testing.assert_allclose(known[found.gradients["P"]], seed @ arrays["V"].transpose(0, 2, 1))
    np.testing.assert_allclose(known[found.gradients["E"]] * known["E"], known[found.gradients["S2"]], atol=1e-12)
    check(rest, backward(rest), {"P": known["P"], "V": arrays["V"]})


# ---------------------------------------------------------------- every function, reduction and scan


def test_every_function_has_a_derivative_or_is_one() -> None:
    assert set(FUNCTIONS) - set(DERIVATIVES) == ONE_WAY
    assert all(len(rules) == FUNCTIONS[name].arity for name, rules in DERIVATIVES.items())
    made = {rule.function for rules in DERIVATIVES.values() for rule in rules if rule is not None}
    assert made <= set(FUNCTIONS)


def constants(name: str) -> dict[str, float]:
    given = {"scale": 0.7, "count": 3.0, "epsilon": 0.1, "causal": 1.0, "queries": 2.0, "offset": 1.0, "window": 2.0}
    return {word: given[word] for word in FUNCTIONS[name].constants}


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_functions(name: str, summed: bool, narrow: bool) -> None:
    """Of whole tensors and of one that lacks a dim; as a map and inside a reduction."""
    arity = FUNCTIONS[name].arity
    if name in ("scale_mask", "scale_window", "below") and summed:
        pytest.skip("what it hides is minus infinity, and so is the sum")
    dims = {f"x{i}": "b m n" for i in range(arity)} | {"Y": "b m" if summed else "b m n"}
    if narrow and arity > 1:
        dims[f"x{arity - 1}"] = "b m" if name == "decay_mask" else "n"
    names = " ".join(f"x{i}" for i in range(arity))
    if summed:
        op = reduction("y", "sum", names, "Y", "b m n", name, constants(name))
    else:
        op = elementwise("y", name, names, "Y", "b m n", constants=constants(name))
    work = Workload("one", {"b": 2, "m": 4, "n": 3}, tensors("fp64", dims), (op,), ("Y",))
    found = backward(work)
    hidden = name in ("scale_mask", "scale_window", "below")
    check(hide(work) if hidden else work, backward(hide(work)) if hidden else found, positive(work))


def hide(work: Workload) -> Workload:
    """Minus infinity taken away again by an exponential, so that differences exist."""
    extra = elementwise("seen", "exp", "Y", "Z", "b m n")
    return Workload(work.name, work.dims, {**work.tensors, "Z": Tensor("Z", ("b", "m", "n"), "fp64")}, (*work.ops, extra), ("Z",))


@pytest.mark.parametrize("monoid", ["sum", "mean", "max", "softmax", "welford"])
@pytest.mark.parametrize("function", ["identity", "square", "tanh", "mul"])
def test_reductions(monoid: str, function: str) -> None:
    """Over two dims, both outputs of a state used, the maximum for itself."""
    over = "b m n" if monoid in ("softmax", "welford") else "b m n p"
    left = "u w" if monoid in ("softmax", "welford") else "u"
    names = "X g" if function == "mul" else "X"
    dims = {"X": over, "u": "b m", "w": "b m"} | ({"g": "n"} if function == "mul" else {})
    used = {name: words for name, words in dims.items() if name in (*names.split(), *left.split())}
    numbers = {"count": 6.0} if monoid == "mean" else {}
    op = reduction("r", monoid, names, left, over, function, numbers)
    work = Workload("one", {"b": 2, "m": 2, "n": 3, "p": 2}, tensors("fp64", used), (op,), tuple(left.split()))
    check(work, backward(work), inputs(work, 4))


@pytest.mark.parametrize("monoid", ["sum", "linear", "linear_before"])
@pytest.mark.parametrize("along", ["t", "c t"])
@pytest.mark.parametrize("narrow", [False, True])
def test_scans(monoid: str, along: str, narrow: bool) -> None:
    dims = {"a": "c t" if narrow else "c t n", "x": "c t n", "H": "c t n"}
    names = ("a", "x") if monoid != "sum" else ("x",)
    op = Op("scan", OpKind.SCAN, names, ("H",), ("c", "t", "n"), monoid=monoid, along=along)
    kept = {name: words for name, words in dims.items() if name in (*names, "H")}
    work = Workload("one", {"c": 2, "t": 4, "n": 3}, tensors("fp64", kept), (op,), ("H",))
    check(work, backward(work), inputs(work, 6))


def test_gathers_and_scatters_whose_table_shares_a_dim_with_the_index() -> None:
    gather = Op("g", OpKind.GATHER, ("T", "index"), ("G",), ("x", "c", "k"), along="v")
    back = Op("s", OpKind.SCATTER, ("G", "index"), ("Y",), ("x", "c", "k"), along="v")
    dims = tensors("fp64", {"T": "v x k", "G": "x c k", "Y": "x v k"}) | tensors("int32", {"index": "x c"})
    work = Workload("both", {"v": 5, "x": 2, "c": 4, "k": 3}, dims, (gather, back), ("Y",))
    arrays = inputs(work, 2)
    check(work, backward(work), arrays)
    np.testing.assert_allclose(run(work, arrays)["Y"], evaluate(work, arrays)["Y"])


# ---------------------------------------------------------------- form of the graphs


@pytest.mark.parametrize("work", examples(), ids=label)
@pytest.mark.parametrize("choice", list(Recompute))
def test_recomputation_changes_no_gradient(work: Workload, choice: Recompute) -> None:
    work = real(work)
    plain = backward(work)
    again = recompute(plain, choice)
    form(plain)
    form(again)
    arrays = inputs(work, 3, 0.7)
    seeds = {name: np.ones([work.dims[dim] for dim in work.tensors[out].dims]) for out, name in plain.seeds.items()}
    first, second = evaluate(plain.workload, arrays | seeds), evaluate(again.workload, arrays | seeds)
    for name, gradient in plain.gradients.items():
        assert np.array_equal(first[gradient], second[again.gradients[name]]), name
    assert set(again.saved) <= set(plain.saved) | set(work.inputs) | {name for op in work.ops for name in op.inputs}
    if choice is Recompute.FULL:
        assert set(again.saved) <= set(work.inputs)


def form(found: Differentiated) -> None:
    """Kernels are the ops in order, each contraction alone in the backward; no op works for nobody."""
    work = found.workload
    assert [name for kernel in work.kernels for name in kernel] == [op.name for op in work.ops]
    backwards = {op.name for op in work.ops[len(found.forward) + len(found.repeated) :]}
    contractions = {op.name for op in work.ops if op.kind is OpKind.CONTRACT}
    for kernel in work.kernels:
        if backwards.intersection(kernel) and contractions.intersection(kernel):
            assert len(kernel) == 1
    read = {name for op in work.ops for name in op.inputs} | set(work.outputs)
    assert {name for op in found.backward for name in op.outputs if name not in read} <= other_halves(found)
    for op in found.backward:
        if op.kind in (OpKind.MAP, OpKind.REDUCE):
            assert len(op.inputs) == FUNCTIONS[op.function].arity
        if op.kind is OpKind.CONTRACT:
            (left, right), (out,) = (work.points(op, n) for n in op.inputs), (work.tensors[n].dims for n in op.outputs)
            assert set(work.reduced(op)) <= set(left) & set(right)
            assert op.dims[-1] == out[-1]


def other_halves(found: Differentiated) -> set[str]:
    """One of two planes, or of a state of two tensors, may be made in vain."""
    return {name for op in found.backward if len(op.outputs) > 1 for name in op.outputs}


def test_backward_takes_twice_the_work_of_contractions() -> None:
    work = transformer_layer(tokens=4, model=6, heads=4, kv_heads=2, head_dim=3, hidden=5)
    found = backward(work)
    assert found.workload.macs() == 3 * work.macs()
    assert recompute(found, Recompute.FULL).workload.macs() == 4 * work.macs() - 4 * 5 * 6  # the last one is read by nobody
    assert found.gradients["X"] != found.gradients["Xn"]


def test_a_softmax_needs_its_result_alone() -> None:
    """The maximum takes no part: the result is the same whatever is taken off."""
    found = backward(attention(1, 2, 2, 3, 5, 4))
    assert found.saved == ("Q", "K", "V", "P")
    assert not any(op.function == "select_equal" for op in found.backward)
    lone = halley.graph("m[a]:fp32 = max(X[a,n])\nY[a,n] = X[a,n] * m[a]", {"a": 3, "n": 4})
    assert any(op.function == "select_equal" for op in backward(lone).backward)


def test_what_adds_up_makes_no_copy() -> None:
    work = halley.graph("T[m,n] = A[m,n] + B[m,n]\nY[m,n] = T[m,n] * C[m,n]", {"m": 3, "n": 4})
    found = backward(work)
    assert found.gradients["A"] == found.gradients["B"] == "d_T"
    alone = backward(halley.graph("Y[m,n] = A[m,n] + B[m,n]", {"m": 3, "n": 4}))
    assert [op.name for op in alone.backward] == ["copy_d_A", "copy_d_B"]


def test_selective_recomputation_is_that_of_attention() -> None:
    work = transformer_layer(tokens=4, model=6, heads=4, kv_heads=2, head_dim=3, hidden=5)
    found = recompute(backward(work), Recompute.SELECTIVE)
    assert found.repeated == ("scores", "scale", "max", "exp", "sum", "divide")
    assert "P" not in found.saved
    assert {"Q", "K", "V"} <= set(found.saved)


# ---------------------------------------------------------------- what is wrong


def test_faults_come_together() -> None:
    work = build("embedding", EXAMPLES["embedding"])
    with pytest.raises(BadInput) as caught:
        backward(work, outputs=["Z"], wrt=["index", "tabel"])
    assert [str(fault) for fault in caught.value.faults] == [
        "backward of embedding: expected known tensors; got 'Z'; use one of: Y, index, table",
        "backward of embedding: expected known tensors; got 'tabel'; did you mean 'table'?",
        "backward of embedding: expected tensors of real numbers; got index of int32",
    ]


def test_what_has_no_derivative_is_said() -> None:
    running = Op("scan", OpKind.SCAN, ("x",), ("y",), ("t",), monoid="max", along="t")
    work = Workload("w", {"t": 3}, tensors("fp32", {"x": "t", "y": "t"}), (running,), ("y",))
    with pytest.raises(BadInput, match="backward of op scan: expected a scan by sum, linear or linear_before; got max"):
        backward(work)
    first = halley.graph("Y[m] = exp(X[m])\nZ[m] = exp(W[m])", {"m": 3})
    with pytest.raises(BadInput, match="expected tensors that an output depends on; got W; leave them out of wrt"):
        backward(first, outputs=["Y"], wrt=["X", "W"])
    assert list(backward(first, outputs=["Y"]).gradients) == ["X"]


def test_recomputation_of_what_is_not_there() -> None:
    found = backward(build("gemm-softmax", EXAMPLES["gemm-softmax"]))
    with pytest.raises(BadInput, match="expected forward ops; got 'gem'; did you mean 'gemm'"):
        recompute(found, ["gem"])
    again = recompute(found, Recompute.FULL)
    with pytest.raises(BadInput, match="expected a graph without repeated ops"):
        recompute(again, Recompute.FULL)


def test_variants_have_the_same_gradients() -> None:
    work = build("attention", EXAMPLES["attention"])
    arrays = inputs(work, 1)
    results = []
    for variant in variants(work):
        found = backward(variant)
        seed = np.random.default_rng(2).normal(size=[work.dims[dim] for dim in work.tensors["O"].dims])
        known = evaluate(found.workload, arrays | {"d_O": seed})
        results.append([known[found.gradients[name]] for name in "QKV"])
    for other in results[1:]:
        for mine, first in zip(other, results[0], strict=True):
            np.testing.assert_allclose(mine, first, rtol=1e-9, atol=1e-12)


def test_what_is_the_same_along_a_dim_is_not_spread_out() -> None:
    """The gradient of a sum is read as it is by what multiplies it; a contraction gets it whole."""
    work = halley.graph("E[m,n] = exp(X[m,n])\nz[m] = sum(E[m,n])", {"m": 3, "n": 4})
    assert [(op.name, op.inputs) for op in backward(work).backward] == [("E_d_X", ("d_z", "E"))]
    work = halley.graph("E[m,n] = A[m,k] * B[k,n]\nz[m] = sum(E[m,n])", {"m": 3, "n": 4, "k": 2})
    assert [op.name for op in backward(work).backward] == ["copy_d_E", "E_d_A", "E_d_B"]


@pytest.mark.parametrize("kind", ["gemm-softmax", "attention", "moe", "embedding", "gated-scan", "conv-chain", "fft"])
def test_on_a_mapping(kind: str) -> None:
    """Forward and backward are mapped like any workload: the interpreter makes the same gradients."""
    work = real(build(kind, EXAMPLES[kind]))
    found, chip = backward(work), random_chip(Random(4))
    seeds = {seed: np.ones([work.dims[dim] for dim in work.tensors[out].dims]) for out, seed in found.seeds.items()}
    arrays = inputs(work, 3, 0.7) | seeds
    wanted = evaluate(found.workload, arrays)
    done = halley.run(found.workload, chip, plain_tree(found.workload, chip), arrays)
    for name in found.workload.outputs:
        np.testing.assert_allclose(done.outputs[name], wanted[name], rtol=1e-7, atol=1e-9)
