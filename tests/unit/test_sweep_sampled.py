"""Samples of a study: how many, which, and that their answers are those of the whole study."""

from __future__ import annotations

import pytest
from tests.unit.sweep_studies import CHIP, SMALL, TWO

from halley.errors import BadInput
from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep
from halley.sweeps.sampled import OPTUNA, OptunaSampler, RandomSampler, sample
from halley.sweeps.store import MEMORY, SweepStore

HUGE = (
    CHIP
    + """
workloads:
  g: {kind: gemm, m: 4, n: 8, k: 8}
axes:
  buf.capacity: range(128..100000, 1) B
  dram.read_bandwidth: range(1..50000, 1) MB/s
minimise: [time, buf.capacity]
"""
)


def test_a_huge_study_is_refused_with_its_size_but_may_be_sampled() -> None:
    with pytest.raises(BadInput, match=r"got 4,993,650,000 \(99,873 x 50,000\).*--sample"):
        parse_study(HUGE)
    found = sample(parse_study(HUGE, sampled=True), 2, workers=0)
    assert (len(found.outcomes), found.sampled) == (2, 4_993_650_000)
    assert len({tuple(outcome.design.setting.values()) for outcome in found.outcomes}) == 2


@pytest.mark.medium
def test_a_sample_of_all_has_the_front_of_the_study() -> None:
    study = parse_study(SMALL)
    whole, found = DesignSweep(study, workers=0).run(), sample(study, 100, workers=0)
    assert len(found.outcomes) == len(whole.outcomes)
    points = [{tuple(sorted(result.outcomes[i].design.setting.items())) for i in result.front} for result in (whole, found)]
    assert points[0] == points[1]


@pytest.mark.medium
def test_constraints_hold_in_a_sample() -> None:
    found = sample(parse_study(TWO), 6, workers=0)
    assert len(found.outcomes) == 6
    for outcome in found.outcomes:
        figures = outcome.design.figures
        assert figures["macs"] <= 16 or figures["buf.capacity"] >= 512


@pytest.mark.medium
def test_equal_seeds_choose_equal_designs_and_the_store_is_shared() -> None:
    study, store = parse_study(HUGE, sampled=True), SweepStore(MEMORY)
    one, again, other = (sample(study, 4, seed=seed, store=store, workers=0) for seed in (1, 1, 2))
    settings = [[outcome.design.setting for outcome in result.outcomes] for result in (one, again, other)]
    assert settings[0] == settings[1] != settings[2]
    assert store.counts()[0] == 8


def test_no_design_keeps_the_constraints() -> None:
    text = TWO.replace("macs <= 16 or buf.capacity >= 512 B", "macs <= 1")
    with pytest.raises(BadInput, match="none of"):
        sample(parse_study(text), 3, workers=0)


def test_another_method() -> None:
    with pytest.raises(BadInput, match="random or optuna"):
        sample(parse_study(SMALL), 3, "grid", workers=0)


def test_random_choices_are_uniform() -> None:
    sampler = RandomSampler((2, 3), 5)
    counts = dict.fromkeys(((a, b) for a in range(2) for b in range(3)), 0)
    for _ in range(6000):
        counts[sampler.ask()] += 1  # type: ignore[index]
    assert all(850 < count < 1150 for count in counts.values())


@pytest.mark.medium
def test_optuna_finds_more_of_the_front_than_chance() -> None:
    """On a bowl of 10,000 points: the mean of the best values of ten seeds after 60 choices."""
    pytest.importorskip("optuna")

    def best(sampler: RandomSampler | OptunaSampler) -> float:
        found = []
        for _ in range(60):
            choice = sampler.ask()
            found.append(float((choice[0] - 70) ** 2 + (choice[1] - 20) ** 2))
            sampler.tell(choice, [found[-1]])
        return min(found)

    steps = (100, 100)
    guided = sum(best(OptunaSampler(steps, seed, 1)) for seed in range(10))
    chance = sum(best(RandomSampler(steps, seed)) for seed in range(10))
    assert guided < chance / 2


@pytest.mark.medium
def test_a_sample_by_optuna() -> None:
    pytest.importorskip("optuna")
    found = sample(parse_study(HUGE, sampled=True), 8, OPTUNA, workers=0)
    again = sample(parse_study(HUGE, sampled=True), 8, OPTUNA, workers=0)
    assert [o.design.setting for o in found.outcomes] == [o.design.setting for o in again.outcomes]
    assert len(found.outcomes) == 8
