"""The static check and the interpreter give one verdict where loops make overlapping parts, and where sequences must be whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.test_verdicts import verdict
from tests.unit.mappings import op, workload

from halley.ir.affine import AffineIndex
from halley.ir.workload import OpKind, Workload

SUM = (AffineIndex("h", (("p", 1), ("r", 1))),)
CONVOLUTION = workload(
    {"h": 6, "p": 4, "r": 3, "c": 2, "f": 3},
    "X:hc Y:hc U:prc W:rcf S:pf",
    "S",
    op("Y", OpKind.MAP, "X", "Y", "hc", function="relu"),
    op("U", OpKind.MAP, "Y", "U", "prc", indices=SUM),
    op("S", OpKind.CONTRACT, "U W", "S", "prcf"),
)
"""Written and read in different cuts."""
TWICE = workload(
    {"h": 5, "p": 4, "r": 2, "c": 3},
    "X:hc U:prc V:crp",
    "U V",
    op("U", OpKind.MAP, "X", "U", "prc", indices=SUM),
    op("V", OpKind.MAP, "X", "V", "crp", indices=SUM),
)
"""An input that two ops read."""
CAUSAL = workload(
    {"t": 4, "u": 4, "r": 2, "c": 4},
    "X:tc Y:tc U:trc Z:uc",
    "U Z",
    op("Y", OpKind.MAP, "X", "Y", "tc", function="relu"),
    op("U", OpKind.WINDOW, "Y", "U", "trc", along="t"),
    op("Z", OpKind.PERMUTE, "Y", "Z", "uc"),
)
"""Whole sequences, and one that is copied under another name."""


@given(st.integers(0, 2**32), st.sampled_from([CONVOLUTION, TWICE, CAUSAL]), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_static_and_dynamic_verdicts_agree(seed: int, item: Workload, reduction: bool, mend: bool) -> None:
    verdict(seed, item, reduction, mend)


def test_in_place_of_a_tensor_that_idle_members_lack() -> None:
    """X is not filled into members without work, but a collective may give them a part of Y, which is held in its place."""
    verdict(28672, CAUSAL, False, False)


@pytest.mark.slow
@pytest.mark.parametrize("item", [CONVOLUTION, TWICE, CAUSAL])
def test_many_verdicts_agree(item: Workload) -> None:
    assert sum(verdict(seed, item, seed % 2 == 0, seed % 3 > 0) for seed in range(6000)) > 100
