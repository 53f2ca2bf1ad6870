"""A projection to heads and what follows it may be one kernel, whether heads or tokens are named first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.certificates.exhaustive import draw_projected
from tests.certificates.test_search import compare
from tests.reference.test_counts import Checker

from halley import Infeasible, Problem, load_chip, optimise
from halley.ir.workload import Workload
from halley.mapping.problem import Objective
from halley.workloads import graph

SIZES = {"m": 3, "h": 2, "c": 2, "d": 2, "n": 2}


def scores(query: str) -> Workload:
    """The projection of queries and their scores, as one kernel."""
    tokens = query.replace("d", "n")
    work = graph([f"Q[{query}] = X[m,c] * W[c,h,d]", f"S[{tokens}] = Q[{query}] * K[h,n,d]"], SIZES)
    return replace(work, kernels=(("Q", "S"),))


@pytest.mark.medium
@pytest.mark.parametrize("objective", [Objective.TIME, pytest.param(Objective.ENERGY, marks=pytest.mark.slow)])
def test_the_order_of_heads_and_tokens_changes_nothing(objective: Objective) -> None:
    chip = load_chip("edge")
    first, second = (optimise(Problem(scores(query), chip, objective, baselines=False)).best for query in ("h,m,d", "m,h,d"))
    assert first.certificate.gap == second.certificate.gap == 0
    assert first.certificate.value == pytest.approx(second.certificate.value, rel=1e-12)
    assert Checker(scores("h,m,d"), chip, seed=1)(first.plan)


@pytest.mark.medium
def test_one_kernel_is_faster_than_two() -> None:
    chip, one = load_chip("edge"), scores("h,m,d")
    two = replace(one, kernels=(("Q",), ("S",)))
    together, apart = (optimise(Problem(work, chip, baselines=False)).best for work in (one, two))
    assert apart.certificate.value <= together.certificate.value, "plans of two kernels may fuse them"
    alone = sum(optimise(Problem(part, chip, baselines=False)).best.certificate.value for part in parts())
    assert together.certificate.value < alone


def parts() -> tuple[Workload, Workload]:
    """The two kernels by themselves."""
    return (
        graph(["Q[h,m,d] = X[m,c] * W[c,h,d]"], {key: SIZES[key] for key in "mhcd"}),
        graph(["S[h,m,n] = Q[h,m,d] * K[h,n,d]"], {key: SIZES[key] for key in "mhdn"}),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
def test_search_equals_the_exhaustive_walk(seed: int) -> None:
    assert compare(seed, 30_000, draw_projected) == "equal"


def test_ops_that_are_never_fused_are_named() -> None:
    """Not as a memory that is too small."""
    work = graph(["Q[m,d] = X[m,c] * W[c,d]", "K[m,e] = X[m,c] * U[c,e]"], {"m": 4, "c": 4, "d": 4, "e": 4})
    message = r"Q, K is one kernel; got an op that reads nothing that another makes; divide the kernel"
    with pytest.raises(Infeasible, match=message):
        optimise(Problem(replace(work, kernels=(("Q", "K"),)), load_chip("edge"), baselines=False))
    work = graph(["Q[m,d] = X[m,c] * W[c,d]", "S[d,n] = Q[m,d] * K[m,n]"], {"m": 4, "c": 4, "d": 4, "n": 4})
    with pytest.raises(Infeasible, match="Q, S is one kernel; got ops without a dim that all can walk as rows"):
        optimise(Problem(replace(work, kernels=(("Q", "S"),)), load_chip("edge"), baselines=False))
