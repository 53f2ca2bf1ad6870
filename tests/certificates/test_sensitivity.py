"""Sensitivities: each change is what a search on a chip file with the changed number finds, and lies between its bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.cli.running import halley

from halley import Problem, build, load_chip, optimise, plan
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.mapping.result import Result
from halley.products.sensitivity import (
    CLOSE,
    SEARCH_GAP,
    ChangedValue,
    HardwareNumber,
    assumed_numbers,
    chip_parameters,
    sensitivity,
)
from halley.products.sensitivity_table import sensitivity_document, sensitivity_lines
from halley.training.plan import TrainingProblem

WORK = build("gemm-softmax", {"m": 32, "n": 48, "k": 64})

PLACES = {
    "dram bandwidth": [("dram", "dram", "read_bandwidth"), ("dram", "dram", "write_bandwidth")],
    "glb capacity": [("glb", "glb", "capacity")],
    "matrix engine rate": [("engines", "matrix", "clock")],
    "obuf bandwidth": [("cluster", "obuf", "read_bandwidth"), ("cluster", "obuf", "write_bandwidth")],
}


@pytest.fixture(scope="module")
def result() -> Result:
    return optimise(Problem(WORK, load_chip("edge"), baselines=False))


def from_file(folder: Path, name: str, factor: float) -> float:
    """The optimum on a chip file whose number was changed as text."""
    chip = load_chip("edge")
    data = yaml.safe_load((Path(__file__).parents[2] / "src/halley/library/chips/edge.yaml").read_text(encoding="utf-8"))
    for level, part, key in PLACES[name]:
        if level == "engines":
            data["engines"][part][key] = {"value": f"{chip.matrix.clock * factor!r} Hz", "assumed": "a test"}  # type: ignore[union-attr]
            continue
        place = next(item for item in data["levels"] if item["name"] == level)["memories"][part]
        unit = "B" if key == "capacity" else "B/s"
        place[key] = {"value": f"{getattr(chip.memory(part), key) * factor!r} {unit}", "assumed": "a test"}
    (folder / "chip.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    found = optimise(Problem(WORK, load_chip(folder / "chip.yaml"), baselines=False))
    return found.best.certificate.value


@pytest.mark.medium
@pytest.mark.parametrize("name", PLACES)
def test_a_search_on_a_changed_chip_file_finds_the_same(tmp_path: Path, result: Result, name: str) -> None:
    (effect,) = sensitivity(result, 0.25, only=[name]).effects
    assert effect.parameter.name == name
    for change in (effect.better, effect.worse):
        expected = from_file(tmp_path, name, change.factor)
        assert change.best is not None
        assert expected * (1 - 1e-9) <= change.best <= expected * (1 + SEARCH_GAP)
        assert change.bound <= expected * (1 + 1e-9)


@pytest.mark.medium
def test_the_plan_is_the_best_inside_its_range_and_not_beyond() -> None:
    """Judged by searches of their own, on both sides of both ends; no end is farther from the truth than the steps say."""
    work, chip = build("gemm", {"m": 24, "n": 40, "k": 16}), load_chip("edge")
    answer = optimise(Problem(work, chip, baselines=False))
    found = sensitivity(answer, only=["dram bandwidth", "glb capacity"], ranges=True)
    numbers = {name: changed for name, _, _, _, changed in chip_parameters(chip)}
    held = {effect.parameter.name: effect.range for effect in found.effects}
    assert len(held) == 2

    def holds(name: str, factor: float) -> bool:
        other = numbers[name](factor)
        best = optimise(Problem(work, other, baselines=False)).best.certificate.value
        return float(evaluate(work, other, answer.best.plan).time) <= best * (1 + SEARCH_GAP)

    tried = 0
    for name, each in held.items():
        assert each is not None
        assert 0.25 <= each.least <= 1 <= each.most <= 4
        for inside, beyond in ((each.least, each.below), (each.most, each.above)):
            assert holds(name, inside)
            if beyond is not None:
                tried += 1
                assert not holds(name, beyond)
                assert max(inside / beyond, beyond / inside) <= CLOSE
            else:
                assert inside in (0.25, 4.0)
    assert tried >= 1


def test_a_stopped_search_for_a_range_says_nothing(result: Result) -> None:
    found = sensitivity(result, only=["dram bandwidth"], ranges=True, time_limit=1e-9)
    assert found.stopped
    assert [effect.range for effect in found.effects] == [None]


@pytest.mark.medium
@pytest.mark.parametrize("objective", ["time", "energy"])
def test_every_change_lies_between_its_bounds(objective: str) -> None:
    """Better hardware is never slower, nor faster than by the change itself; the best plan is no worse than the given one."""
    work = build("gemm", {"m": 24, "n": 40, "k": 16})
    found = sensitivity(optimise(Problem(work, load_chip("edge"), objective, baselines=False)), 0.1, only=["dram", "engine"])  # type: ignore[arg-type]
    names = {effect.parameter.name for effect in found.effects}
    assert ("dram energy" in names) is (objective == "energy")
    for effect in found.effects:
        better, worse = effect.better, effect.worse
        for change in (better, worse):
            assert change.best is not None
            assert change.kept is not None
            assert change.best <= change.kept * (1 + 1e-9)
            assert change.bound <= change.best * (1 + 1e-9)
        assert found.value / 1.1 * (1 - 1e-9) <= better.best <= found.value * (1 + 1e-9)  # type: ignore[operator]
        assert found.bound * (1 - 1e-9) <= worse.best <= found.value * 1.1 * (1 + SEARCH_GAP)  # type: ignore[operator]
        if worse.proven:
            assert worse.same_plan
            assert worse.best == pytest.approx(found.value)


def test_the_given_plan_alone(result: Result) -> None:
    found = sensitivity(result, 0.5, search=False)
    assert [name for name, *_ in chip_parameters(load_chip("edge"))][:2] == ["dram capacity", "dram bandwidth"]
    assert len(found.effects) == len(list(chip_parameters(load_chip("edge"))))
    assert not found.stopped
    assert all(change.best is None for effect in found.effects for change in (effect.better, effect.worse) if not change.proven)
    assert any(effect.worse.kept == math.inf for effect in found.effects) or all(effect.worse.kept for effect in found.effects)


def test_a_limit_leaves_changes_unsearched(result: Result) -> None:
    found = sensitivity(result, time_limit=0.0, only=["dram"])
    assert found.stopped
    assert all(effect.better.best is None for effect in found.effects)


@pytest.mark.medium
def test_a_plan_of_training() -> None:
    given = plan("gpt2-xl", "16 x a100, nvlink 8, ib", batch=128)
    found = sensitivity(given, 0.5, only=["link bandwidth", "matrix", "dram capacity"])
    effects = {effect.parameter.name: effect for effect in found.effects}
    assert set(effects) == {"matrix engine rate", "nvlink link bandwidth", "ib link bandwidth", "dram capacity"}
    assert effects["matrix engine rate"].better.best < 0.98 * found.value  # type: ignore[operator]
    assert effects["matrix engine rate"].worse.best > 1.15 * found.value  # type: ignore[operator]
    for effect in effects.values():
        for change in (effect.better, effect.worse):
            assert change.best is not None
            assert change.bound <= change.best * (1 + 1e-9)
            assert found.value / 1.5 * (1 - 1e-9) <= change.best <= found.value * 1.5 * (1 + SEARCH_GAP)
    faster = plan("gpt2-xl", given.problem.system, batch=128)
    assert faster.certificate.value == pytest.approx(found.value, rel=1e-6)


def test_a_measured_library_changes_with_its_links() -> None:
    given = plan("gpt2-xl", "8 x h100, nvlink 8", batch=8)
    axis = "nvlink"
    assert axis in given.problem.libraries
    (effect,) = sensitivity(given, 1.0, only=["nvlink link bandwidth"], search=False).effects
    changed = effect.parameter.changed(2.0)
    assert isinstance(changed, TrainingProblem)
    before, after = (problem.libraries[axis].fits[0].protocols[0] for problem in (given.problem, changed))
    assert after.bandwidth == 2 * before.bandwidth
    assert effect.better.kept <= given.certificate.value  # type: ignore[operator]


def test_same_plan() -> None:
    assert ChangedValue(1.1, 1.0, 1.0).same_plan
    assert ChangedValue(1.1, 1.1, 1.0).same_plan is False
    assert ChangedValue(1.1, None, 1.0).same_plan is None
    assert HardwareNumber("x", 1.0, "s", False, lambda factor: factor).name == "x"  # type: ignore[arg-type, return-value]


def test_faults(result: Result) -> None:
    with pytest.raises(BadInput, match="above 0, at most 10"):
        sensitivity(result, 0.0)
    with pytest.raises(BadInput, match=r"words of: dram capacity, .*; got 'drum'"):
        sensitivity(result, only=["drum"])
    with pytest.raises(BadInput, match=r"expected a Result or a TrainingResult; got 'result\.json'"):
        sensitivity("result.json")  # type: ignore[arg-type]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    halley("optimise", "gemm", "--m", "16", "--n", "16", "--k", "16", "--chip", "edge", "-o", "gemm.json")
    told = halley("sensitivity", "gemm.json", "--only", "dram", "--only", "matrix")
    assert told.code == 0
    for word in ("dram bandwidth", "10 % better", "No effect: dram capacity"):
        assert word in " ".join(told.out.split())
    document = halley("sensitivity", "gemm.json", "--quick", "--change", "0.2", "--json").json
    assert (document["schema"], document["change"]) == ("halley.sensitivity/1", 0.2)
    assert "a share above 0" in halley("sensitivity", "gemm.json", "--change", "0%").err
    halley("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-h100", "-o", "other.json")
    assert "expected a mapping or a plan of training" in halley("sensitivity", "other.json").err


def test_large_effects_of_assumed_numbers_say_so() -> None:
    """The file of the H100 cites its DRAM and assumes the bandwidth of L2; an own chip without sources says nothing."""
    found = sensitivity(plan("gpt2-xl", "8 x h100, nvlink 8", batch=8, fix="tp=1,pp=1,recompute=none"), search=False)
    assert found.effects[0].parameter.name == "l2 bandwidth"
    told = [line for line in sensitivity_lines(found) if "is assumed, not published" in line]
    assert told[0] == f"The l2 bandwidth is assumed, not published: {found.assumed['l2 bandwidth']}."
    assert not [line for line in told if line.startswith("The dram bandwidth")]
    assert sensitivity_document(found)["assumed"]["l2 bandwidth"]  # type: ignore[index, call-overload]
    assert assumed_numbers(replace(load_chip("h100"), sources={})) == {}
