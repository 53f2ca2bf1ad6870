"""Fronts of sweeps against brute force: every design of a study searched on its own, and all pairs of points compared."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.sweep_studies import CHIP, SMALL, TWO

from halley import BadInput, Chip, Infeasible, Problem, build, optimise
from halley.sweeps.explore import Standing
from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep, SweepResult
from halley.sweeps.study import Study
from halley.sweeps.work import lower_bound

Points = set[tuple[float, ...]]


def value(study: Study, chip: Chip) -> float:
    """The weighted sum of the optima of the workloads on a chip, each searched as a user would."""
    total = 0.0
    for part in study.workloads:
        work = build(str(part.given["kind"]), {key: each for key, each in part.given.items() if key != "kind"})
        try:
            best = optimise(Problem(work, chip, study.objective, baselines=False)).best
        except Infeasible:
            return float("inf")
        total += part.weight * float(best.certificate.value)
    return total


def brute_force(study: Study) -> tuple[list[float], Points]:
    """All values, and the points that no other one dominates."""
    designs = study.designs()
    values = [value(study, design.chip) for design in designs]
    points = {
        (v, *(d.figures[name] for name in study.minimised)) for v, d in zip(values, designs, strict=True) if v < float("inf")
    }

    def beaten(point: tuple[float, ...]) -> bool:
        others = ((other, [a <= b * (1 + 1e-7) for a, b in zip(other, point, strict=True)]) for other in points if other != point)
        return any(
            all(no_worse) and any(a < b * (1 - 1e-7) for a, b in zip(other, point, strict=True)) for other, no_worse in others
        )

    return values, {point for point in points if not beaten(point)}


def rounded(points: Points) -> Points:
    return {tuple(float(f"{number:.6g}") for number in point) for point in points}


def front_of(result: SweepResult) -> Points:
    names = result.study.minimised
    return {(o.value, *(o.design.figures[name] for name in names)) for o in (result.outcomes[i] for i in result.front)}


def check(study: Study, result: SweepResult) -> None:
    """The front is that of brute force, and every bound and value encloses the optimum."""
    values, front = brute_force(study)
    assert rounded(front_of(result)) == rounded(front)
    assert (result.gap, result.done) == (0.0, True)
    for outcome, optimum in zip(result.outcomes, values, strict=True):
        assert outcome.bound <= optimum * (1 + 1e-8)
        assert optimum <= outcome.value * (1 + 1e-8) or outcome.standing is Standing.INFEASIBLE
        assert (outcome.standing is Standing.INFEASIBLE) == (optimum == float("inf"))
        if outcome.standing in (Standing.SEARCHED, Standing.INFERRED):
            assert outcome.value == pytest.approx(optimum, rel=1e-8)


@pytest.mark.medium
@pytest.mark.parametrize("objective", ["time", "energy", "edp"])
def test_small_fronts_equal_brute_force(objective: str) -> None:
    study = parse_study(SMALL.replace("minimise: [time", f"minimise: [{objective}"))
    check(study, DesignSweep(study, workers=0).run())


@pytest.mark.medium
def test_two_workloads_and_three_axes_equal_brute_force() -> None:
    study = parse_study(TWO)
    result = DesignSweep(study, workers=0).run()
    check(study, result)
    assert result.searches < len(result.outcomes) * 2


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "figures"), [("time", "macs, buf.capacity, dram"), ("energy", "macs"), ("time", "area")])
def test_large_fronts_equal_brute_force(objective: str, figures: str) -> None:
    text = f"""{CHIP}
workloads:
  g: {{kind: gemm, m: 12, n: 16, k: 16}}
  h: {{kind: gemm, m: 3, n: 16, k: 8}}
axes:
  engines.matrix.rows: 2, 4, 8
  engines.matrix.cols: 2, 4
  buf.capacity: 96, 192, 384, 768, 1536 B
  buf.read_bandwidth: 8, 32 GB/s
  dram:
    set: [dram.read_bandwidth, dram.write_bandwidth]
    values: 2, 4, 8 GB/s
figures: {{area: 0.01 * macs + 0.001 * buf.capacity / 1 B + 0.1 * dram / 1 GB/s}}
minimise: [{objective}, {figures}]
"""
    study = parse_study(text)
    check(study, DesignSweep(study, workers=2).run())


@pytest.mark.medium
def test_a_gap_is_kept() -> None:
    """The front to 20 per cent: every design has a point of it with no larger figures that is at most so much slower."""
    study = parse_study(TWO + "gap: 0.2\n")
    result = DesignSweep(study, workers=0).run()
    values, _ = brute_force(parse_study(TWO))
    assert result.gap <= 0.2 + 1e-8
    front = front_of(result)
    for design, optimum in zip(study.designs(), values, strict=True):
        figures = [design.figures[name] for name in study.minimised]
        assert any(point[0] <= 1.2 * optimum * (1 + 1e-8) and all(map(float.__le__, point[1:], figures)) for point in front)


@pytest.mark.medium
def test_a_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """Searches of an earlier run are not made again, also not by another study with some of its designs."""
    one = DesignSweep(parse_study(SMALL), tmp_path / "s.db", workers=0)
    first = next(iter(one))
    one.store.close()
    rest = list(DesignSweep(parse_study(SMALL), tmp_path / "s.db", workers=0))
    assert (rest[0].stored, rest[0].answer) == (True, first.answer)
    assert [item.stored for item in rest[1:]] == [False] * len(rest[1:])
    again = DesignSweep(parse_study(SMALL), tmp_path / "s.db", workers=0)
    assert all(item.stored for item in again)
    assert again.result().done
    shown = DesignSweep(parse_study(SMALL), tmp_path / "s.db", workers=0, read_only=True).result()
    assert [(o.standing, o.value) for o in shown.outcomes] == [(o.standing, o.value) for o in again.result().outcomes]


@pytest.mark.medium
def test_any_executor_of_the_protocol_may_search() -> None:
    with ThreadPoolExecutor(1) as pool:
        result = DesignSweep(parse_study(SMALL), executor=pool).run()
    assert result.done


@pytest.mark.medium
def test_everything_searches_every_design() -> None:
    result = DesignSweep(parse_study(SMALL), workers=0, everything=True).run()
    assert result.count(Standing.SEARCHED) == len(result.outcomes) == result.searches == 4


def test_a_design_without_a_mapping_is_infeasible_with_its_reason() -> None:
    study = parse_study(SMALL.replace("128, 512 B", "2, 512 B").replace("2, 4\n", "[4]\n"))
    result = DesignSweep(study, workers=0).run()
    assert [outcome.standing for outcome in result.outcomes] == [Standing.INFEASIBLE, Standing.SEARCHED]
    assert "buf" in result.outcomes[0].reason
    assert result.front == (1,)


def test_faults_of_a_design_come_before_any_search() -> None:
    """The chip has no vector engine."""
    study = parse_study(SMALL.replace("kind: gemm, m: 4", "kind: gemm-softmax, m: 4"))
    with pytest.raises(BadInput, match="vector"):
        next(iter(DesignSweep(study, workers=0)))


@pytest.mark.parametrize("kind", ["time", "energy", "edp"])
def test_the_first_bound_is_below_the_optimum(kind: str) -> None:
    study = parse_study(SMALL.replace("minimise: [time", f"minimise: [{kind}"))
    for design in itertools.islice(study.designs(), 1):
        problem = study.problem(design, 0)
        assert 0 < lower_bound(problem).value <= optimise(problem).best.certificate.value
