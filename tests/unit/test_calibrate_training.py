"""Software fitted to measured iterations: known numbers are found again, and what rows do not determine is stated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from halley.importers.training import training_problem
from halley.io.chips.software import load_software, parse_software, software_document
from halley.kernels.software import Software
from halley.training.fit.calibrate import PARTS, MeasuredIteration, TrainingCalibration, calibrate_software
from halley.training.fit.fixed_plan import FixedPlan, Known, fixed_plan
from halley.training.search.search import best_training_plan

EAGER = load_software("eager")
KNOWN: Known = {}
CHOICES = "recompute=none,offload=no,attention=fused,chunks=1,schedule=1f1b"
SMALL = "llama-68m", "2 x h100, nvlink 2", "tp=1,pp=1,zero=1,microbatch=1"
LARGE = "gpt2-xl", "2 x h100, nvlink 2", "tp=1,pp=1,zero=1,microbatch=8"
OTHER = "llama-68m", "1 x a100", "tp=1,pp=1,zero=0,microbatch=8"
PIPED = "gpt2-xl", "4 x h100, nvlink 4", "tp=1,pp=2,zero=0,microbatch=2"
SPLIT = "llama-68m", "4 x h100, nvlink 4", "tp=4,pp=1,zero=0,microbatch=1"
SPLIT_LARGE = "llama3-8b", "4 x h100, nvlink 4", "tp=4,pp=1,zero=0,microbatch=4"


@cache
def planned(model: str, system: str, fix: str) -> FixedPlan:
    problem = training_problem(model, system, 32, fix=f"{fix},{CHOICES}", software="none")
    return fixed_plan(replace(problem, usable=math.inf), EAGER, None, KNOWN)


def measured(truth: Software, runs: Sequence[tuple[str, str, str]], factors: Sequence[float] = ()) -> list[MeasuredIteration]:
    """Rows as a machine with this software would have measured them, times ``factors``."""
    times = factors or [1.0] * len(runs)
    rows = [(run, planned(*run)) for run in runs]
    return [MeasuredIteration(run[0], plan, by * plan.cost(truth).time) for (run, plan), by in zip(rows, times, strict=True)]


def values(found: TrainingCalibration) -> dict[str, float]:
    return {number.name: number.value for number in found.numbers}


@pytest.mark.medium
@pytest.mark.parametrize("run", [SMALL, OTHER, PIPED, SPLIT])
def test_a_fixed_plan_takes_what_a_search_for_plans_finds(run: tuple[str, str, str]) -> None:
    """Also between the shares of the kernel rates that are costed, and where the host bounds some passes."""
    model, system, fix = run
    for software in (EAGER, replace(EAGER, block=4e-4, kernels=0.77, collective=1e-4)):
        problem = training_problem(model, system, 32, fix=f"{fix},{CHOICES}", software="none")
        asked = replace(problem, software=software, efficiency=software.of(problem.efficiency))
        time = best_training_plan(asked, others=0).cost.time
        # where the host bounds a pass, a sharding with fewer collectives may be slightly faster
        assert time * (1 - 1e-12) <= planned(*run).cost(software).time <= time * 1.001
        assert planned(*run).time(software) == pytest.approx(planned(*run).cost(software).time, rel=1e-4)


@pytest.mark.medium
def test_host_and_derating_are_found_again() -> None:
    truth = replace(EAGER, block=7e-4, kernels=0.83)
    found = calibrate_software(measured(truth, [SMALL, LARGE, OTHER, PIPED, SPLIT, SPLIT_LARGE]), EAGER, "mine", "runs")
    assert values(found) == pytest.approx({"block": 7e-4, "kernels": 0.83}, rel=3e-3)
    assert found.after < 2e-3 < 0.1 < found.before
    assert found.held_out is not None
    assert found.held_out < 5e-3
    assert found.remarks == ()
    software = found.software
    assert (software.name, software.source, software.rows, software.error) == ("mine", "runs", 6, found.held_out)
    assert software.launch == EAGER.launch
    assert software.origin["block"] == "fit to 6 measured iterations"


@pytest.mark.medium
def test_collectives_are_fitted_where_rows_with_and_without_them_determine_their_time() -> None:
    truth = replace(EAGER, block=3e-4, kernels=0.9, collective=6e-4)
    rows = [SMALL, LARGE, OTHER, SPLIT, SPLIT_LARGE, ("gpt2-xl", "4 x h100, nvlink 4", "tp=4,pp=1,zero=0,microbatch=1")]
    found = calibrate_software(measured(truth, rows), EAGER)
    assert values(found) == pytest.approx({"block": 3e-4, "kernels": 0.9, "collective": 6e-4}, rel=2e-2)


@pytest.mark.medium
def test_one_number_where_the_other_explains_nothing() -> None:
    slow = calibrate_software(measured(replace(EAGER, kernels=0.7), [LARGE, OTHER, PIPED]), EAGER)
    assert values(slow) == pytest.approx({"kernels": 0.7}, rel=2e-3)
    host = calibrate_software(measured(replace(EAGER, block=2e-3), [SMALL, LARGE, OTHER]), EAGER)
    assert values(host) == pytest.approx({"block": 2e-3}, rel=2e-3)
    assert [remark.split(":")[0] for remark in (*slow.remarks, *host.remarks)] == [
        "block keeps the value of eager",
        "kernels keeps the value of eager",
    ]


@pytest.mark.medium
def test_one_row_determines_one_number() -> None:
    """The chip bounds the large model, and the host the small one, whose kernels would have to be implausibly slow."""
    large = calibrate_software(measured(replace(EAGER, kernels=0.8), [OTHER]), EAGER)
    assert values(large) == pytest.approx({"kernels": 0.8}, rel=2e-3)
    small = calibrate_software(measured(replace(EAGER, block=2e-3), [SMALL]), EAGER)
    assert values(small) == pytest.approx({"block": 2e-3}, rel=2e-3)
    for found, cause in ((large, "passes that wait for the host take"), (small, "are implausible")):
        assert found.held_out is None
        assert found.software.error is None
        (remark,) = found.remarks
        assert remark.startswith("one row determines one number")
        assert cause in remark
        assert remark.endswith("nothing is held out")
    start = replace(EAGER, block=1e-3)
    assert values(calibrate_software(measured(replace(start, block=2e-3), [SMALL]), start)) == pytest.approx(
        {"block": 2e-3}, rel=2e-3
    )


def test_rows_that_differ_only_in_noise_do_not_distinguish_the_two() -> None:
    found = calibrate_software(measured(replace(EAGER, kernels=0.8), [OTHER, OTHER], [1.02, 0.98]), EAGER)
    assert set(values(found)) == {"kernels"}
    assert found.remarks[0].startswith("the rows do not distinguish a time of the host from a derating of the kernels")
    (block, error), (kernels, other) = (found.alternatives[name] for name in ("block", "kernels"))
    assert block > 0
    assert kernels == pytest.approx(0.8, rel=0.01)
    assert error == pytest.approx(other, abs=1e-3)


def test_a_number_on_its_bound_is_a_warning() -> None:
    fast = calibrate_software(measured(EAGER, [OTHER], [0.7]), EAGER)
    assert fast.numbers[0].bound == "upper"
    assert "kernels is on its upper bound: the kernels are at least as fast as those of the chip's fit" in fast.remarks[-1]


def test_what_remains_is_divided_into_parts() -> None:
    """The parts add up, and a part changed by its factor meets the row."""
    rows = measured(replace(EAGER, kernels=0.8), [OTHER, OTHER], [1.1, 0.9])
    found = calibrate_software(rows, EAGER)
    for row in found.rows:
        assert sum(row.parts.values()) == pytest.approx(row.after)
        for part in PARTS:
            factor = row.needed(part)
            if factor is not None:
                assert row.after + (factor - 1) * row.parts[part] == pytest.approx(row.measured)
    assert found.rows[0].needed("compute") == pytest.approx(1.1, rel=0.03)
    assert found.rows[0].needed("bubble") is None


def test_causes_that_the_numbers_do_not_describe() -> None:
    found = calibrate_software(measured(EAGER, [SMALL, OTHER], [3.0, 0.4]), EAGER)
    assert any("predicted no better than before the fit" in remark for remark in found.remarks)


def test_the_file_of_software_is_read_again() -> None:
    origin = {**EAGER.origin, "block": "fit", "kernels": "fit"}
    names = {"name": "a: b", "source": '"runs"'}
    software = replace(EAGER, **names, block=1.25e-3, kernels=1.0, rows=3, error=0.0123, origin=origin)
    text = software_document(software, "remark")
    assert parse_software(text) == software
    assert 'kernels: {value: 1, source: "fit"}' in text
    graph = Software("graph", graph=1e-4, rows=1, source="runs", origin={"graph": "fit"})
    assert parse_software(software_document(graph, "remark")) == graph
