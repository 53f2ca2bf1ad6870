"""A problem says at once all that is wrong with it."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

from halley import BadInput, Objective, Problem, build, load_chip, optimise
from halley.answer import Certificate, Status
from halley.answers.load import as_answer
from halley.io.results.result import load_result, save_result
from halley.report.mapping.facts import verdict

GEMM = {"m": 8, "n": 8, "k": 8}


def test_the_word_of_an_objective_is_enough() -> None:
    problem = Problem(build("gemm", GEMM), load_chip("edge"), cast(Any, "edp"))
    assert problem.objective is Objective.EDP


def test_all_faults_are_reported() -> None:
    with pytest.raises(BadInput) as caught:
        Problem(cast(Any, "gemm"), cast(Any, "edge"), cast(Any, "tme"), gap=-1, time_limit=float("nan"))
    assert [fault.where for fault in caught.value.faults] == [
        f"problem, {field}" for field in ("workload", "chip", "objective", "gap", "time_limit")
    ]
    assert "did you mean 'time'?" in str(caught.value)


def test_the_certificate_of_a_mapping_is_one_of_all_answers() -> None:
    """It has the fields of every certificate once, and only what is particular to mappings beside them."""
    result = optimise(Problem(build("gemm", GEMM), load_chip("edge"), Objective.EDP, baselines=False))
    proof = result.best.certificate
    assert isinstance(proof, Certificate)
    assert (proof.unit, proof.status, result.best.status) == ("J s", Status.OPTIMAL, Status.OPTIMAL)
    assert dict(proof.effort) == {"costed": proof.costed, "bounded": proof.bounds}
    own = {field.name for field in fields(proof)} - {field.name for field in fields(Certificate)}
    assert own == {"declaration", "objective", "method"}
    assert list(proof.left_out) == [f"{clause.what}: {clause.how}" for clause in proof.left_out]
    again = copy.deepcopy(proof)
    assert again == proof
    assert [clause.how for clause in again.left_out] == [clause.how for clause in proof.left_out]


def test_a_space_that_was_not_counted_is_saved_as_such(tmp_path: Path) -> None:
    result = optimise(Problem(build("gemm", GEMM), load_chip("edge"), baselines=False))
    best = replace(result.best, certificate=replace(result.best.certificate, size=None))
    save_result(replace(result, best=best), tmp_path / "result.json")
    found = load_result(tmp_path / "result.json")
    assert found.best.certificate.size is None
    assert as_answer(found).certificate.size is None
    assert "no mapping of the space" in verdict(found.best.certificate)
