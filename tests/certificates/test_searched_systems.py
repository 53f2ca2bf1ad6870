"""Studies of systems whose plans take searched kernels: chip, plan and mappings at once, against every plan of every design.

Times of kernels are drawn in place of searches of mappings, so that all of them can be known beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.certificates import training_enumeration as oracle
from tests.certificates.test_joint_groups import MODELS, Fastest, Known, draw

from halley import codesign, plan
from halley.errors import BadInput
from halley.io.cache import FOLDER_VARIABLE
from halley.io.transformers import ModelDescription, model_text
from halley.kernels import search
from halley.kernels.machine import PEAK
from halley.sweeps.explore import Standing
from halley.sweeps.load import load_study
from halley.sweeps.plans import PlanQuestion
from halley.sweeps.run import DesignSweep
from halley.sweeps.study import Study, problem_key
from halley.training.plan import TrainingProblem
from halley.training.search.search import best_training_plan
from halley.training.sharded_model import ShardedModel
from halley.workloads.transformer import Transformer

SMALL = Transformer("small", layers=1, model=16, heads=1, kv_heads=1, head_dim=16, hidden=32, vocabulary=16, sequence=8)

STUDY = """
plans:
  one: {model: ./gated.yaml, batch: 4, fix: "recompute=none,attention=fused", kernels: searched}
  other: {model: ./wide.yaml, batch: 2, fix: "recompute=none,attention=fused", kernels: searched}
weights: {other: WEIGHT}
system:
  name: pair
  chip: edge
  axes: [{name: x, size: 2, topology: switch, link: {bandwidth: 20 GB/s, latency: 0.1 us, energy: 0 pJ/bit}}]
axes:
  chip.cluster.x.size: [1]
  chip.cluster.y.size: [1]
AXES
minimise: [time, die_area]
"""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept: drawn times must not reach the user's file."""
    monkeypatch.setenv(FOLDER_VARIABLE, "")


def drawn(seed: int, folder: Path) -> Study:
    """A study of up to eight designs, with other numbers of units, bandwidths and links."""
    dice = Random(seed)

    def some(*values: object) -> str:
        kept = sorted(dice.sample(range(len(values)), dice.randint(1, 2)))
        return ", ".join(str(values[place]) for place in kept)

    axes = [
        f"  chip.engines.matrix.rows: {some(8, 16, 32)}",
        f"  dram:\n    set: [chip.dram.read_bandwidth, chip.dram.write_bandwidth]\n    values: {some(3, 6, 26)} GB/s",
        f"  x.link.bandwidth: {some(1, 20, 400)} GB/s",
    ]
    text = STUDY.replace("WEIGHT", str(dice.choice([1, 5]))).replace("AXES", "\n".join(axes))
    return written(text, folder)


def written(text: str, folder: Path) -> Study:
    for name, shape in {**MODELS, "small": SMALL}.items():
        model = ModelDescription(replace(shape, source="a test", published=1e5))
        (folder / f"{name}.yaml").write_text(model_text(model), encoding="utf-8")
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    return load_study(folder / "study.yaml")


def draw_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "searched_kernel", lambda chip, shape, limit=None: draw(seed, chip, shape))
    monkeypatch.setattr(search, "dynamic_energy", lambda chip, shape, mapping: 0.0)  # there is no mapping


def questions(study: Study) -> Iterator[tuple[int, PlanQuestion, float]]:
    """All problems, with their designs and weights."""
    for place, design in enumerate(study.designs()):
        for part, workload in enumerate(study.workloads):
            question = study.problem(design, part)
            assert isinstance(question, PlanQuestion)
            assert question.searched
            yield place, question, workload.weight


def known(problem: TrainingProblem, seed: int) -> TrainingProblem:
    """The problem with the times of all kernels known."""
    each = replace(problem, home=problem.homes[-1], efficiency=PEAK)
    kernels = Known(each.chip)
    kernels.seed = seed
    return replace(each, searched=kernels)


def enumerated(problem: TrainingProblem) -> float:
    """The time of the best of all plans, each with the shardings whose kernels are the fastest."""
    best, _ = oracle.least(oracle.enumerate_plans(problem, Fastest(ShardedModel(problem))), problem.capacity)
    return math.inf if best is None else best.time


def compare(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch, enumerate_plans: bool) -> None:
    """The best designs under budgets, and the front, are those of designs that are searched one by one with all times known;
    every bound is below these. Searches of plans end with a gap of their own, so that either may find the better plan: no value
    is below the other's bound."""
    draw_all(seed, monkeypatch)
    study = drawn(seed, folder)
    values, least = [0.0] * len(study.designs()), [0.0] * len(study.designs())
    for place, question, weight in questions(study):
        every = known(question.problem, seed)
        answer = best_training_plan(every, others=0)
        best = answer.cost.time
        assert not enumerate_plans or best <= enumerated(every) * (1 + 1e-6)
        assert 0 < question.lower_bound().value <= best * (1 + 1e-9)
        values[place] += weight * best
        least[place] += weight * answer.certificate.bound
    result = DesignSweep(study, folder / "kept.db", workers=0).run()
    assert all(found.stored for found in DesignSweep(study, folder / "kept.db", workers=0)), "nothing is searched twice"
    areas = [design.figures["die_area"] for design in study.designs()]
    assert result.gap < 0.01
    points, slack = list(zip(values, areas, strict=True)), 1 + result.gap + 1e-6
    for outcome, value, low in zip(result.outcomes, values, least, strict=True):
        assert outcome.bound <= value * (1 + 1e-9)
        assert outcome.value >= low * (1 - 1e-9)
        if outcome.standing is Standing.SEARCHED:
            assert outcome.value <= value * slack
    front = [(result.outcomes[place].value, areas[place]) for place in result.front]
    for value, area in points:
        assert any(v <= value * slack and a <= area for v, a in front)
    for value, area in front:
        assert not any(v * slack < value and a <= area for v, a in points)
    most = sorted(areas)[len(areas) // 2]
    found = codesign(replace(study, minimised=()), {"die_area": most}, folder / "kept.db", workers=0)
    assert found.best is not None
    slack = max(slack, 1 + found.sweep.gap + 1e-6)

    def between(value: float, budget: float) -> bool:
        fit = [place for place, area in enumerate(areas) if area <= budget]
        return min(least[at] for at in fit) * (1 - 1e-9) <= value <= min(values[at] for at in fit) * slack

    assert between(found.best.value, most)
    assert all(between(each.value, most * each.factor) for each in found.relaxed)


@pytest.mark.slow
def test_the_plan_of_a_design_is_that_of_halley_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real mappings of the kernels, which the second search finds in the user's file."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    text = STUDY[: STUDY.index("  other:")] + STUDY[STUDY.index("system:") :].replace("AXES", "")
    study = written(
        text.replace("gated", "small").replace("batch: 4", "batch: 2").replace("recompute", "tp=2,recompute"), tmp_path
    )
    (outcome,) = DesignSweep(study, workers=0).run().outcomes
    fix = "tp=2,recompute=none,attention=fused"
    alone = plan(tmp_path / "small.yaml", outcome.design.subject, 2, fix=fix, kernels="searched")
    assert alone.certificate.effort["kernels"] == 0
    assert outcome.value == alone.cost.time
    assert outcome.bound <= alone.cost.time
    assert "with searched mappings" in outcome.answers["one"].mapping
    by_formula = plan(tmp_path / "small.yaml", outcome.design.subject, 2, fix=fix)
    assert outcome.value != pytest.approx(by_formula.cost.time, rel=1e-3)


def test_kernels_belong_to_the_key(tmp_path: Path) -> None:
    one = written(STUDY.replace("WEIGHT", "1").replace("AXES", ""), tmp_path)
    (searched,) = (one.problem(design, 0) for design in one.designs())
    other = written(STUDY.replace("WEIGHT", "1").replace("AXES", "").replace(", kernels: searched", ""), tmp_path)
    (library,) = (other.problem(design, 0) for design in other.designs())
    assert problem_key(searched) != problem_key(library)
    assert problem_key(searched) == problem_key(next(one.problem(design, 0) for design in one.designs()))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("kernels: searched}", "kernels: found}", "plans.one: kernels: expected library or searched; got 'found'"),
        ("kernels: searched}", "kernels: searched, efficiency: h100}", "plans.one: efficiency: expected library kernels"),
        ("chip: edge", "chip: sn40l", "plans.one: --kernels searched: expected a chip that runs one kernel at a time; got sn40l"),
    ],
)
def test_faults(before: str, after: str, told: str, tmp_path: Path) -> None:
    axes = "  x.link.bandwidth: 1, 20 GB/s" if after == "chip: sn40l" else "  chip.cluster.x.size: [1]"
    text = STUDY.replace("WEIGHT", "1").replace("AXES", "").replace(before, after, 1)
    text = text.replace("  chip.cluster.x.size: [1]\n  chip.cluster.y.size: [1]", axes).replace(", die_area]", "]")
    study = written(text, tmp_path)
    with pytest.raises(BadInput) as error:
        study.problem(study.designs()[0], 0)
    assert told in str(error.value)


@pytest.mark.medium
def test_a_drawn_study_is_that_of_single_designs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(9, tmp_path, monkeypatch, enumerate_plans=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 6, 11])
def test_more_drawn_studies(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(seed, tmp_path, monkeypatch, enumerate_plans=seed in (3, 6))
