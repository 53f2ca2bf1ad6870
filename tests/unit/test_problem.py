"""A problem says at once all that is wrong with it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from halley import BadInput, Objective, Problem, build, load_chip

GEMM = {"m": 8, "n": 8, "k": 8}


def test_the_word_of_an_objective_is_enough() -> None:
    problem = Problem(build("gemm", GEMM), load_chip("edge"), cast(Any, "edp"))
    assert problem.objective is Objective.EDP


def test_all_faults_are_told() -> None:
    with pytest.raises(BadInput) as caught:
        Problem(cast(Any, "gemm"), cast(Any, "edge"), cast(Any, "tme"), gap=-1, time_limit=float("nan"))
    assert [fault.where for fault in caught.value.faults] == [
        f"problem, {field}" for field in ("workload", "chip", "objective", "gap", "time_limit")
    ]
    assert "did you mean 'time'?" in str(caught.value)
