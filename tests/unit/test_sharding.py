"""Shardings: bad input, text, linearity of what partial sums pass through, layers in a row, the backward as a rewrite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.drawn_graphs import Costs, drawn_mesh
from tests.reference.training_graphs import WEIGHTS, forward_layer, layer_dims

from halley.errors import BadInput, Infeasible, InternalError
from halley.execute.functions import DEFINITIONS, FunctionSite
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Partial, Replicate, Shard
from halley.ir.workload import FUNCTIONS, Op
from halley.optim.elimination import CostTable, eliminate
from halley.rewrite.backward import backward
from halley.rewrite.recompute import Recompute, recompute
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem
from halley.sharding.strategies import LINEAR
from halley.sharding.text import parallelisms
from halley.training.sharding import training_problem
from halley.workloads.user import graph

MESH = (MeshAxis("x", 4),)
GEMM = graph("C[m,n] = A[m,k] * B[k,n]", {"m": 8, "k": 16, "n": 6})


def kernel(op: Op, local: Mapping[str, int]) -> float:
    return math.prod(local.values()) * 1e-9


def wire(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
    return 1e-6 * (2 if kind is CollectiveKind.ALL_REDUCE else 1) * len(axes) + size * 1e-9


def problem(**more: object) -> ShardingProblem:
    given: dict = {"workload": GEMM, "mesh": MESH, "kernel_time": kernel, "collective_time": wire} | more
    return ShardingProblem(**given)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mesh": (MeshAxis("x", 2), MeshAxis("x", 2))}, "each with a name of its own; got x, x"),
        ({"mesh": (MESH[0], MESH[0])}, "each with a name of its own; got x, x"),
        ({"tied": (("C", "c"),)}, r"names of ops; got 'c'; use one of: C|did you mean 'C'"),
        ({"splits": {"D": {"x": "m"}}}, "names of ops; got 'D'"),
        ({"backward": "D"}, "names of ops; got 'D'"),
        ({"layouts": {"Z": (Replicate(),)}}, "inputs that an op reads; got 'Z'"),
        ({"same_layout": (("A", "B"),)}, r"equal extents of A, B, which lie together; got \[\(8, 16\), \(16, 6\)\]"),
        ({"same_layout": ((),)}, "at least one name; got an empty one"),
        ({"weights": {"C": 2.0}}, "weights that are inputs which an op reads; got 'C'"),
        ({"runs_per_change": {"A": 2}}, "outputs that no op reads; got 'A'"),
        ({"runs_per_change": {"C": 0}}, "at least 1 run of which C changes once; got 0"),
        ({"splits": {"C": {"y": "m"}}}, "known axes; got 'y'"),
        ({"splits": {"C": {"x": "q"}}}, r"a dim of the op \(m, k, n\); got 'q'"),
        ({"splits": {"C": {"x": "n"}}}, "n=6 in 4 equal parts; got 2 left over; split another dim"),
    ],
)
def test_bad_problems(more: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        problem(**more)


def test_all_faults_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        problem(weights={"C": 2.0}, backward="D", splits={"C": {"x": "n"}})
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize("ranks", [1, 0, -2, True, 2.0])
def test_axes_have_ranks(ranks: object) -> None:
    with pytest.raises(BadInput, match="at least 2 ranks"):
        MeshAxis("x", ranks)  # type: ignore[arg-type]


def test_layouts_that_a_tensor_cannot_have() -> None:
    with pytest.raises(BadInput, match="layout of A: expected one that the tensor can have; got n/x"):
        shard(problem(layouts={"A": (Shard("n"),)}))
    with pytest.raises(BadInput, match="a placement for each of 1 axes; got 2"):
        shard(problem(layouts={"A": (Shard("m"), Replicate())}))
    with pytest.raises(BadInput, match="complete values at the ends of the graph"):
        shard(problem(layouts={"C": (Partial("sum"),)}))


def test_ties_that_leave_no_way() -> None:
    lines = "S[m,n] = A[m,k] * B[k,n]\nT[m,n] = relu(S[m,n])"
    pair = graph(lines, {"m": 4, "n": 4, "k": 4})
    with pytest.raises(BadInput, match="sharding of S, T: expected a sharding that all of these ops allow; got none"):
        shard(problem(workload=pair, tied=(("S", "T"),), splits={"S": {"x": "k"}}))


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_impossible_times_are_found(wrong: float) -> None:
    with pytest.raises(InternalError, match=r"time of all-gather of \d+ B over x: expected at least 0 s"):
        shard(problem(collective_time=lambda kind, axes, size: wrong if kind is CollectiveKind.ALL_GATHER else 1.0))
    with pytest.raises(InternalError, match=r"time of op C at .* expected at least 0 s"):
        shard(problem(kernel_time=lambda op, local: wrong))


def test_memory_that_is_not_there() -> None:
    with pytest.raises(Infeasible, match=r"at most 1 B per rank; got at least 96 B \(weights 96 B, between the passes 0 B\)"):
        shard(problem(weights={"B": 4.0}), capacity=1.0)


def test_ends_that_rule_each_other_out() -> None:
    fixed = {"A": (Shard("m"),), "C": (Shard("n"),)}
    square = graph("C[m,n] = A[m,k] * B[k,n]", {"m": 8, "k": 8, "n": 8})
    with pytest.raises(BadInput, match="a choice that is allowed; got none"):
        shard(problem(workload=square, same_layout=(("A", "C"),), layouts=fixed))


def test_tables_that_grow_too_large_say_so() -> None:
    names = tuple(f"y{n}" for n in range(6))
    with pytest.raises(BadInput, match="tables of at most"):
        eliminate([CostTable(("x", name), np.zeros((64, 64))) for name in names], names)


def test_large_tables_are_joined_in_slabs() -> None:
    """Sums over all of them at once are the same."""
    random = np.random.default_rng(3)
    star = [CostTable(("x", name), random.random((30, 30))) for name in "abc"] + [CostTable(("c", "b"), random.random((30, 30)))]
    done = eliminate(star, ("a", "b", "c"))
    first, second, third, last = (item.values for item in star)
    whole = (first[:, :, None, None] + second[:, None, :, None] + third[:, None, None, :]).min(axis=0) + last.T[None]
    np.testing.assert_allclose(done.rest.values, whole, rtol=1e-15)
    for a, b, c in random.integers(0, 30, (50, 3)).tolist():
        assert done.complete({"a": a, "b": b, "c": c})["x"] == (first[:, a] + second[:, b] + third[:, c]).argmin()


@pytest.mark.parametrize("name", LINEAR)
def test_partial_sums_pass_through_linear_functions(name: str) -> None:
    """f of a sum is the sum of f, while the arguments outside the group are held; constants as the function wants them."""
    random = np.random.default_rng(7)
    site = FunctionSite(name, dict.fromkeys(FUNCTIONS[name].constants, 2.0), (0, 0))
    for group in LINEAR[name]:
        first, second = (random.uniform(0.5, 1.5, (FUNCTIONS[name].arity, 4, 4)) for _ in range(2))
        held = [place for place in range(len(first)) if place not in group]
        second[held] = first[held]
        joined = first + second
        joined[held] = first[held]
        whole = DEFINITIONS[name](site, *joined)
        np.testing.assert_allclose(whole, DEFINITIONS[name](site, *first) + DEFINITIONS[name](site, *second), rtol=1e-12)


def test_a_sum_that_is_reduced_once_has_its_share_in_each_run() -> None:
    """Partial sums of a result that no rank has the capacity to split: an all-reduce, of which each run pays a part."""
    fixed: dict = {"splits": {"C": {"x": "k"}}, "layouts": {"C": (Replicate(),)}}
    each, once = shard(problem(**fixed)), shard(problem(**fixed, runs_per_change={"C": 10}))
    assert each.collective_time == pytest.approx(10 * once.collective_time)
    assert [move.runs for move, _ in once.steps] == [10]
    scattered = {**fixed, "layouts": {"C": (Shard("m"),)}}
    assert shard(problem(**scattered, runs_per_change={"C": 10})).time == shard(problem(**scattered)).time


def test_a_sum_of_a_split_product_is_tensor_parallelism() -> None:
    big = graph("C[m,n] = A[m,k] * B[k,n]\nR[m,n] = relu(C[m,n])", {"m": 4, "k": 1 << 16, "n": 4})
    plan = shard(problem(workload=big, layouts={"A": (Shard("k"),), "R": (Replicate(),)}, weights={"B": 2.0}))
    assert parallelisms(plan) == {"x": ("TP",)}
    assert plan.strategy("C")[0].split == "k"
    assert [(str(step.kind), move.tensor, step.axes) for move, step in plan.steps] == [("all-reduce", "C", ("x",))]
    assert [str(place) for _, step in plan.steps for place in (*step.before, *step.after)] == ["Partial(sum)", "Replicate"]
    assert plan.ends["R"] == (Replicate(),)


@pytest.mark.parametrize("choice", [Recompute.NONE, Recompute.FULL])
def test_a_layer_with_its_backward(choice: Recompute) -> None:
    """The rewrite of graphs gives what the layer written out by hand does: reduce-scatters of sums, all-gathers of what blocks
    read."""
    found = recompute(backward(forward_layer(layer_dims(2048, 4096, 32, 16384))), choice)
    given = training_problem(found, (MeshAxis("x", 8),), _seconds, _ring, dict.fromkeys(WEIGHTS, 16.0), {"Y": "X"})
    plan = shard(given)
    reduced = {move.tensor for move, step in plan.steps if step.kind is CollectiveKind.REDUCE_SCATTER}
    assert {"Z", "D", "d_B", "d_A"} <= reduced
    assert parallelisms(plan) == {"x": ("SP", "TP")}
    assert ("Q", "Q_d_A", "Q_d_Wq") in [tuple(name for name in group if not name.startswith("again")) for group in given.tied]
    if choice is Recompute.FULL:
        assert set(plan.saved) == {"X", *WEIGHTS}


def test_bad_passes() -> None:
    found = backward(forward_layer(layer_dims(8, 8, 2, 8)))
    with pytest.raises(BadInput, match="an output with a gradient; got 'X2'") as caught:
        training_problem(found, MESH, kernel, wire, {}, {"X2": "Wo2"})
    assert len(caught.value.faults) == 2


def _seconds(op: Op, local: Mapping[str, int]) -> float:
    points = math.prod(local[dim] for dim in op.dims)
    return 2 * points / 300e12 if op.kind.value == "contract" else 6 * points / 2e12


def _ring(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
    """Bidirectional rings of eight."""
    passes = {CollectiveKind.ALL_REDUCE: 2.0, CollectiveKind.ALL_TO_ALL: 1.0}.get(kind, 1.0)
    return passes * (4e-6 + size / 8 * 4 / 100e9)


@pytest.mark.parametrize("seed", range(20))
def test_ties_are_the_best_of_equal_choices(seed: int) -> None:
    """Tied products: the best over the dims that both split; ends that lie together: the best over layouts of both."""
    random = Random(7000 + seed)
    mesh = drawn_mesh(random, 1)
    costs = Costs(random, mesh)
    lines = "F[m,f] = X[m,k] * W[k,f]\nH[m,f] = tanh(F[m,f])\ndW[k,f] = X[m,k] * H[m,f]"
    free = ShardingProblem(graph(lines, {"m": 4, "k": 6, "f": 9}), mesh, costs.kernel, costs.wire)
    tied = replace(free, tied=(("F", "dW"),))
    same = [{name: {"x": dim} for name in ("F", "dW")} for dim in ("m", "k", "f", "")]
    even = [each for each in same if not each["F"]["x"] or free.workload.dims[each["F"]["x"]] % mesh[0].ranks == 0]
    found = shard(tied)
    assert found.strategy("F")[0].split == found.strategy("dW")[0].split
    assert found.time <= min(shard(replace(free, splits=each)).time for each in even) * (1 + 1e-8)
    again = {name: {"x": found.strategy(name)[0].split} for name in ("F", "dW")}
    if again in even:
        assert found.time == pytest.approx(min(shard(replace(free, splits=each)).time for each in even), rel=1e-8)
    alike = shard(replace(free, same_layout=(("W", "dW"),)))
    layouts = [(Replicate(),), (Shard("k"),), (Shard("f"),)]
    each_alone = [shard(replace(free, layouts={"W": item, "dW": item})).time for item in layouts]
    assert alike.time == pytest.approx(min(each_alone), rel=1e-8)
    assert alike.ends["W"] == alike.ends["dW"]
