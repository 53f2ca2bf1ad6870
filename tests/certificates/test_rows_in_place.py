"""Rows behind a product in the memory of results: an op may write its result in the place of what it reads, once all others have
read it."""

from __future__ import annotations

import pytest

from halley.io.chips.load import load_chip
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.verify.mapping import execution_findings
from halley.workloads import graph

LINES = ("T0[m,n] = A[m,k] * B[k,n]", "T1[m,n] = T0[m,n] + Y[m,n]", "T2[m,n] = relu(T0[m,n])", "T3[m,n] = X[m,n] + T2[m,n]")
"""T1 leaves, T2 stays for T3 and may take the place of T0."""


@pytest.mark.parametrize(("chip", "m", "n", "k"), [("edge", 2, 1, 2), ("cloud", 2, 1, 2), ("cloud", 8, 8, 8)])
def test_what_leaves_is_made_before_its_input_is_overwritten(chip: str, m: int, n: int, k: int) -> None:
    """Results that leave were made last, after T2 had overwritten T0: these searches ended with an illegal plan."""
    work = graph(LINES, {"m": m, "n": n, "k": k}, "bf16")
    found = optimise(Problem(work, load_chip(chip), baselines=False)).best
    assert all(finding.passed for finding in execution_findings("best", work, load_chip(chip), found.plan))
