"""Graphs that users write: they mean what NumPy says, run on mappings, count as costed; faults name line and column."""

# ruff: noqa: E501 - a message and what causes it read best on one line

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.generate import plain_tree, random_trees
from tests.reference.graphs import evaluate
from tests.reference.oracles import inputs, oracle
from tests.reference.problems import random_chip
from tests.reference.test_counts import SEEDS, Checker, many
from tests.reference.user_graphs import POINTWISE, drawn

import halley
from halley.errors import BadInput
from halley.execute.functions import DEFINITIONS, FunctionSite
from halley.io.chips.load import parse_problem
from halley.ir.workload import FUNCTIONS, MONOIDS, OpKind
from halley.workloads import build
from halley.workloads.construction.notation import read

DIMS = {"m": 4, "n": 5, "k": 6, "p": 5}


def faults(lines: str, dims: dict[str, int] | None = None, **more: object) -> list[str]:
    with pytest.raises(BadInput) as caught:
        halley.graph(lines, dims or DIMS, **more)  # type: ignore[arg-type]
    return [str(fault) for fault in caught.value.faults]


# ---------------------------------------------------------------- meaning


@given(SEEDS)
@many(150)
def test_drawn_graphs_mean_what_numpy_says(seed: int) -> None:
    work = build("graph", drawn(Random(seed)))
    assert build("graph", work.parameters) == work
    arrays = inputs_of(work, seed)
    wanted = oracle(work, arrays)
    assert set(wanted) == set(work.outputs)
    tree = plain_tree(work, random_chip(Random(seed)))
    done = halley.run(work, random_chip(Random(seed)), tree, arrays)
    for name, value in wanted.items():
        np.testing.assert_allclose(done.outputs[name], value, rtol=1e-7, atol=1e-7 * np.abs(value).max())


def inputs_of(work: halley.Workload, seed: int) -> dict[str, np.ndarray]:
    return inputs(work, seed % 1000, 0.5)


@given(SEEDS)
@many(40)
def test_drawn_graphs_count_as_costed(seed: int) -> None:
    """On the plain tree and on edits of it: loops, splits, holds, collectives."""
    random = Random(seed)
    work, chip = build("graph", drawn(random)), random_chip(random)
    checker = Checker(work, chip, seed % 1000)
    checker.arrays = inputs_of(work, seed)
    checker.expected = oracle(work, checker.arrays)
    assert sum(1 for _ in random_trees(random, work, chip, checker, 10)) >= 1


def test_a_line_becomes_an_op_of_its_kind() -> None:
    work = halley.graph(
        """
        S[m,n] = A[m,k] * B[k,n]            # a GEMM
        mx[m]:fp32, z[m]:fp32 = softmax(S[m,n])
        P[m,n] = softmax_from_stats(S[m,n], mx[m], z[m])
        q[m] = mean(square(P[m,n]))
        X[m,n] = P[m,n] - q[m]
        T[n,m] = X[m,n]
        Tp[p,m] = T[n,m]
        w[m] = sum(mul(P[m,n], X[m,n]))
        """,
        DIMS,
        dtype="fp16",
    )
    kinds = {op.name: op.kind.value for op in work.ops}
    assert kinds == {
        "S": "contract", "mx": "reduce", "P": "map", "q": "reduce", "X": "map", "T": "permute", "Tp": "permute", "w": "reduce"
    }  # fmt: skip
    assert work.op("S").dims == ("m", "k", "n")
    assert work.op("mx").outputs == ("mx", "z")
    assert dict(work.op("q").constants) == {"count": 5.0}
    assert (work.op("w").function, work.op("w").monoid) == ("mul", "sum")
    assert {name: work.tensors[name].dtype for name in ("S", "mx", "z", "q")} == {
        "S": "fp16",
        "mx": "fp32",
        "z": "fp32",
        "q": "fp16",
    }
    assert (work.inputs, work.outputs) == (("A", "B"), ("Tp", "w"))
    assert [name for kernel in work.kernels for name in kernel] == [op.name for op in work.ops]


def test_outputs_may_be_named() -> None:
    lines = "S[m,n] = A[m,k] * B[k,n]\nR[m,n] = relu(S[m,n])"
    work = halley.graph(lines, {"m": 4, "n": 5, "k": 6}, outputs=["S", "R"])
    assert work.outputs == ("S", "R")


def test_a_written_attention_is_the_shipped_one() -> None:
    """Ops, dims and counts of `attention`, spelt out."""
    shipped = build("attention", {"batch": 1, "heads": 2, "kv_heads": 2, "queries": 3, "keys": 5, "head_dim": 4})
    written = halley.graph(
        [
            "S[h,m,n] = Q[h,m,d] * K[h,n,d]",
            "S2[h,m,n] = scale(S[h,m,n], scale=0.5)",
            "mx[h,m]:fp32 = max(S2[h,m,n])",
            "E[h,m,n] = exp_difference(S2[h,m,n], mx[h,m])",
            "z[h,m]:fp32 = sum(E[h,m,n])",
            "P[h,m,n] = E[h,m,n] / z[h,m]",
            "O[h,m,e] = P[h,m,n] * V[h,n,e]",
        ],
        dict(shipped.dims),
    )
    assert dict(written.tensors) == dict(shipped.tensors)
    for mine, theirs in zip(written.ops, shipped.ops, strict=True):
        assert (mine.kind, mine.inputs, mine.outputs, mine.dims, mine.function, mine.constants) == (
            theirs.kind, theirs.inputs, theirs.outputs, theirs.dims, theirs.function, theirs.constants
        )  # fmt: skip


# ---------------------------------------------------------------- the functions


@pytest.mark.parametrize("name", POINTWISE)
def test_functions_are_what_they_are_called(name: str) -> None:
    arrays = [np.random.default_rng(number).uniform(0.1, 2.0, (3, 4)) for number in range(FUNCTIONS[name].arity)]
    constants = dict.fromkeys(FUNCTIONS[name].constants, 0.25)
    wanted = POINTWISE[name](*arrays, **constants)
    np.testing.assert_allclose(DEFINITIONS[name](FunctionSite("op", constants, (0, 0)), *arrays), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_ask_for_the_constants_that_they_need(name: str) -> None:
    """With those, a function runs; without any one of them it does not."""
    function = FUNCTIONS[name]
    arrays = [np.ones((3, 4))] * function.arity
    constants = dict.fromkeys(function.constants, 1.0)
    assert np.shape(DEFINITIONS[name](FunctionSite("op", constants, (0, 0)), *arrays)) == (3, 4)
    for missing in function.constants:
        rest = {key: value for key, value in constants.items() if key != missing}
        with pytest.raises(BadInput, match=missing):
            DEFINITIONS[name](FunctionSite("op", rest, (0, 0)), *arrays)


def test_every_reduction_can_be_written() -> None:
    for name, monoid in MONOIDS.items():
        left = "a[m], b[m]" if name in ("softmax", "welford") else "a[m]"
        if monoid.arity == 1:
            assert halley.graph(f"{left} = {name}(X[m,n])", {"m": 2, "n": 3}).ops[0].kind is OpKind.REDUCE
        else:  # a recurrence, which is a scan
            assert "a function or a reduction that exists" in faults(f"{left} = {name}(X[m,n], Y[m,n])", {"m": 2, "n": 3})[0]


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("S[m,n] = A[m,j] * B[k,n]", "column 10: expected known dims in A; got 'j'"),
        ("S[m,n] = relUU(A[m,n])", "column 10: expected a function or a reduction that exists; got 'relUU'; did you mean 'relu'?"),
        ("S[m,n] = relu(A[m,n], A[m,n])", "column 10: expected 1 argument of relu (max(x, 0)); got 2"),
        ("S[m,n] = scale(A[m,n])", "column 10: expected the constant scale of scale (x * scale); got nothing; add for example scale=1"),
        ("S[m,n] = scale(A[m,n], scal=1)", "expected known constants of scale; got 'scal'; did you mean 'scale'?"),
        ("S[m,n] = relu(A[m,n], x=1)", "expected known constants of relu; got 'x'; remove it"),
        ("S[m,n] = scale(A[m,n], scale=1, scale=2)", "column 33: expected each constant once; got 'scale' again"),
        ("S[m,n] = scale(A[m,n], scale=1e999)", "column 30: expected a finite number; got one that is too large"),
        ("S[m,n]:fp33 = relu(A[m,n])", "column 1: expected a known element type; got 'fp33'; did you mean 'fp32'?"),
        ("S[m,n] = relu(A[m,n]", "column 21: expected ',' or ')'; got the end of the line"),
        ("S[m,n] relu(A[m,n])", "column 8: expected '='; got 'relu'"),
        ("S = relu(A[m,n])", "column 3: expected '[' and the dims of the tensor; got '='"),
        ("S[] = relu(A[m,n])", "column 3: expected the name of a dim; got ']'"),
        ("S[m,n] = A[m,n] $ B[m,n]", "column 17: expected names, numbers and [ ] ( ) , = : + - * /; got '$'"),
        ("S[m,n] = A[m,n] * B[m,n] + C[m,n]", "column 26: expected the end of the line; got '+'; one operation a line"),
        ("S[m,n] = relu(sigmoid(A[m,n]))", "column 15: expected a tensor; got the function sigmoid; one function a line"),
        ("S[m] = sum(relu(sigmoid(A[m,n])))", "column 17: expected a tensor; got the function sigmoid"),
        ("S[m,m] = relu(A[m,n])", "column 1: expected a dim of its own at each place of S, which this line makes; got [m,m]"),
            ("S[m,2p] = relu(A[m,p])", "column 1: expected a dim of its own at each place of S, which this line makes; got [m,2p]"),
            ("S[m] = sum(A[m+p-1])", "column 12: expected a line that says the dims of A; got m+p-1 from -1; add for example the line A[h]"),
            ("S[m] = relu(A[2])", "column 15: expected a sum with a dim; got a number alone"),
            ("S[m] = relu(A[2.5m])", "column 15: expected the name of a dim, or a whole number; got '2.5'"),
            ("A[m+1]", "column 1: expected a dim of its own at each place of A; got [m+1]; a line without '=' names dims"),
        ("S[m] = A[m,n] + B[m,n]", "column 1: expected all dims of the right side in S; got none of n; reduce it, as in sum(add(...))"),
        ("S[m] = A[m,n] * b[m]", "column 15: expected n, which the left side lacks, in both factors; got one that has it"),
        ("S[m,n] = sum(A[m,n])", "column 10: expected a dim that S lacks, for sum to run over; got none"),
        ("S[m,k] = relu(A[m,n])", "column 1: expected dims on the left that the right side has (m, n); got 'k'"),
        ("S[m,k] = A[m,n]", "column 1: expected a copy with the extents of A[m,n]; got n=5, k=6"),
        ("S[m], T[m] = max(A[m,n])", "column 7: expected one tensor on the left; got 2"),
        ("S[m] = softmax(A[m,n])", "column 1: expected two tensors on the left: the maximum and the sum of exponentials; got 1"),
        ("S[m] = 3", "column 8: expected a tensor such as A[m,k], or a function; got '3'"),
        ("S[m,n] = a(b(c(d(e(f(A[m,n]))))))", "expected at most 4 functions in each other"),
        ("S[m,n] = A[m,n] * A[n,m]", "column 19: expected A[m,n], as on line 1; got [n,m]; to read it otherwise, copy it first: A2[n,m] = A[m,n]"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_reported_with_its_column(line: str, told: str) -> None:
    found = faults(line)
    assert found[0].startswith("graph, line 1, ")
    assert told in found[0]


def test_names_are_made_once_and_before_they_are_read() -> None:
    twice = faults("S[m,n] = relu(A[m,n])\nS[m,n] = tanh(A[m,n])")
    assert twice == [
        "graph, line 2, column 1: expected each tensor made once; got S, which line 1 makes; use another name, or another order of lines"
    ]
    late = faults("S[m,n] = relu(A[m,n])\nA[m,n] = tanh(B[m,n])")
    assert "line 2, column 1: expected a tensor made before it is read; got A, which line 1 reads" in late[0]


def test_cycles_are_reported_as_such() -> None:
    loop = faults("B[m,n] = relu(A[m,n])\nC[m,n] = tanh(B[m,n])\nA[m,n] = add(B[m,n], C[m,n])")
    assert loop[0].startswith("graph, line 3, column 1: expected a graph without cycles; got the cycle A -> B -> ")
    assert faults("A[m,n] = relu(A[m,n])") == [
        "graph, line 1, column 1: expected a graph without cycles; got the cycle A -> A; use another name for the new value"
    ]
    late = faults("B[m,n] = relu(A[m,n])\nA[m,n] = tanh(D[m,n])\nD[m,n] = tanh(B[m,n])")
    assert "line 2, column 1: expected a tensor made before it is read; got A" in late[0]
    assert "line 3, column 1: expected a graph without cycles; got the cycle D -> A -> B -> D" in late[1]


def test_faults_of_all_lines_come_together_and_in_order() -> None:
    found = faults("S[m,n] = rlu(A[m,n])\n\nT[m,n] = S[m,n\nU[m,j] = tanh(S[m,n])")
    assert [fault.split(":")[0] for fault in found] == [
        "graph, line 1, column 10", "graph, line 3, column 15", "graph, line 4, column 1"
    ]  # fmt: skip


def test_the_page_lists_functions_and_reductions() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/write-your-own-graph.md").read_text(encoding="utf-8")
    functions, reductions = page.split("## Functions")[1].split("## Reductions")
    told = {
        name: [cell.strip() for cell in rest.split("|")]
        for name, rest in re.findall(r"^\| `(\w+)` \| (.*) \|$", functions + reductions.split("##")[0], re.MULTILINE)
    }
    work = {
        name: ", ".join(f"{key} {count:g}" for key, count in f.work.items()) or "none"
        for name, f in (FUNCTIONS | MONOIDS).items()
    }
    for name, function in FUNCTIONS.items():
        equation = function.equation.replace("|s|", "abs(s)")
        assert told.pop(name) == [str(function.arity), equation, ", ".join(function.constants), work[name]]
    assert told == {name: [monoid.equation, work[name]] for name, monoid in MONOIDS.items() if monoid.arity == 1}


def test_a_graph_as_a_whole() -> None:
    assert faults("# nothing") == ["graph: expected at least one line such as C[m,n] = A[m,k] * B[k,n]; got none"]
    unused = faults("S[m,n] = relu(A[m,n])", {"m": 2, "n": 3, "q": 4})
    assert unused == ["graph: expected dims that a tensor has; got 'q'; remove it"]
    outputs = faults("Sum1[m,n] = relu(A[m,n])", {"m": 2, "n": 3}, outputs=["Sum2"])
    assert outputs == ["graph: expected outputs that a line makes; got 'Sum2'; did you mean 'Sum1'?"]
    assert "at most 1000 lines" in faults("#\n" * 1001, {"m": 2})[0]
    assert "at most 1000 characters a line" in faults("S[m] = relu(A[m])" + " " * 1000, {"m": 2})[0]


@pytest.mark.parametrize("dims", ["m", "m=0", "m=-1", "m=4 m=5", "m=1e3", f"m={2**40 + 1}", "1m=3", "m=4; n=5"])
def test_bad_extents(dims: str) -> None:
    with pytest.raises(BadInput, match="graph, dims: expected"):
        build("graph", {"lines": "S[m] = relu(A[m])", "dims": dims})


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="SAm,n[]()=*+-/:.e1# relu\t\n\x00é", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    statements, misfits = read(text.splitlines())
    assert all(1 <= item.column <= 61 for item in misfits)
    with contextlib.suppress(BadInput):
        halley.graph(text, {"m": 2, "n": 3})
        assert statements
        assert not misfits


# ---------------------------------------------------------------- files

PROBLEM = """\
workload:
  graph:
    dims: {m: 64, n: 128, k: 32}
    lines:
      - S[m,n] = A[m,k] * B[k,n]
      - R[m,n] = relu(S[m,n])
chip: edge
"""


def test_a_problem_file_may_hold_a_graph() -> None:
    file = parse_problem(PROBLEM)
    work = build(file.workload, file.parameters)
    assert work == halley.graph(["S[m,n] = A[m,k] * B[k,n]", "R[m,n] = relu(S[m,n])"], {"m": 64, "n": 128, "k": 32})
    more = PROBLEM.replace("    lines", "    dtype: fp16\n    outputs: [S, R]\n    lines")
    again = parse_problem(more)
    assert build(again.workload, again.parameters).outputs == ("S", "R")
    assert build(again.workload, again.parameters).tensors["A"].dtype == "fp16"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("k: 32", "k: 0", "p.yaml:3: workload.graph.dims.k: expected a whole number from 1 to 1099511627776; got 0"),
        ("k: 32", "k: 32, q: 1", "p.yaml:2: workload.graph: expected dims that a tensor has; got 'q'; remove it"),
        ("dims:", "dism:", "p.yaml:3: workload.graph.dism: expected a known key; got 'dism'; did you mean 'dims'?"),
        ("relu", "rlu", "p.yaml:6: workload.graph.lines.1.column 10: expected a function or a reduction that exists; got 'rlu'; did you mean 'relu'?"),
        ("relu(S[m,n])", "relu(S[m,n)", "p.yaml:6: workload.graph.lines.1.column 20: expected ',' or ']'; got ')'"),
        ("    lines:", "    dtype: bf17\n    lines:", "p.yaml:4: workload.graph.dtype: expected one of int8, fp8, fp16, bf16, fp32, int32, fp64; got 'bf17'; did you mean 'bf16'?"),
        ("  graph:", "  kind: gemm\n  graph:", "p.yaml:3: workload.graph: expected a whole number, a word, true or false; got a map"),
    ],
)  # fmt: skip
def test_a_wrong_graph_in_a_file_is_reported_with_line_and_column(old: str, new: str, message: str) -> None:
    assert PROBLEM.count(old) == 1
    with pytest.raises(BadInput) as caught:
        parse_problem(PROBLEM.replace(old, new), "p.yaml")
    assert message in str(caught.value)


def test_a_written_graph_is_optimised_saved_and_loaded(tmp_path: Path) -> None:
    file = parse_problem(PROBLEM)
    problem = halley.Problem(build(file.workload, file.parameters), file.chip, baselines=False)
    result = halley.optimise(problem)
    assert {op for group in result.best.groups for op in group} == {"S", "R"}
    halley.save_result(result, tmp_path / "result.json")
    again = halley.load_result(tmp_path / "result.json")
    assert again.problem.workload == problem.workload
    assert again.best.estimate.time == result.best.estimate.time


def test_whole_arrays_and_oracle_agree_on_the_example() -> None:
    work = halley.graph("S[m,n] = A[m,k] * B[k,n]\nz[m] = sum(square(S[m,n]))", {"m": 3, "n": 5, "k": 7})
    arrays = inputs(work, 1)
    np.testing.assert_allclose(evaluate(work, arrays)["z"], ((arrays["A"] @ arrays["B"]) ** 2).sum(axis=1))
