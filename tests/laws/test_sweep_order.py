"""The order of chips that sweeps rely on: on a chip that is no worse, no mapping and no optimum is worse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.generate import all_grown
from tests.unit.sweep_studies import CHIP

from halley import Chip, Problem, build, evaluate, optimise
from halley.io.chips.chip import read_chip
from halley.io.chips.load import load_chip
from halley.io.files.text import Document, read_yaml
from halley.ir.hardware import Exchange, Level, Link
from halley.mapping.problem import Objective
from halley.sweeps.order import Order, ranked

SEEDS = st.integers(0, 2**32 - 1)
Change = Callable[[Chip, Random], Chip]


def with_level(chip: Chip, index: int, level: Level) -> Chip:
    return replace(chip, levels=(*chip.levels[:index], level, *chip.levels[index + 1 :]))


def memory_better(chip: Chip, random: Random) -> Chip:
    index = random.choice([place for place, level in enumerate(chip.levels) if level.memories])
    level, more = chip.levels[index], 1 + 3 * random.random()
    name = random.choice(["capacity", "read_bandwidth", "write_bandwidth", "latency", "read_energy", "write_energy"])
    factor = more if name in ("capacity", "read_bandwidth", "write_bandwidth") else 1 / more
    which = random.randrange(len(level.memories))
    memories = [replace(m, **{name: factor * getattr(m, name)}) if i == which else m for i, m in enumerate(level.memories)]
    return with_level(chip, index, replace(level, memories=tuple(memories)))


def network_better(chip: Chip, random: Random) -> Chip:
    able = [place for place, level in enumerate(chip.levels) if level.network]
    if not able:
        return memory_better(chip, random)
    index = random.choice(able)
    level = chip.levels[index]
    assert level.network is not None
    more, network = 1 + 3 * random.random(), level.network

    def better(link: Link) -> Link:
        return replace(link, bandwidth=link.bandwidth * more, latency=link.latency / more, energy=link.energy / more)

    if network.port and random.random() < 0.4:
        return with_level(chip, index, replace(level, network=replace(network, port=better(network.port))))
    if random.random() < 0.5:
        axes = tuple(replace(axis, link=better(axis.link)) for axis in network.axes)
    else:
        axes = tuple(
            replace(
                axis,
                exchange=Exchange(
                    axis.exchange.startup / more,
                    axis.exchange.barrier / more,
                    axis.exchange.adder / more,
                    axis.exchange.add_bandwidth * more,
                ),
            )
            for axis in network.axes
        )
    return with_level(chip, index, replace(level, network=replace(network, axes=axes)))


def engine_better(chip: Chip, random: Random) -> Chip:
    less = 1 / (1 + 3 * random.random())
    if chip.vector and random.random() < 0.6:
        energy = {name: value * less for name, value in chip.vector.energy.items()}
        lanes = chip.vector.lanes + random.randint(0, 3)
        return replace(chip, vector=replace(chip.vector, lanes=lanes, latency=chip.vector.latency * less, energy=energy))
    if chip.matrix:
        energy = {name: value * less for name, value in chip.matrix.energy.items()}
        return replace(chip, matrix=replace(chip.matrix, latency=chip.matrix.latency * less, energy=energy))
    return replace(chip, static_power=chip.static_power * less)


def better(chip: Chip, random: Random) -> Chip:
    """The chip with some figures better, by the order's own account: a drawn one of those that sweeps may set."""
    changed = chip
    for _ in range(random.randint(1, 3)):
        changed = random.choice((memory_better, network_better, engine_better))(changed, random)
    return changed


def check_costs(seed: int) -> None:
    random, workload, chip, trees = all_grown(seed, 12)
    for tree in trees:
        more = better(chip, random)
        order = Order([chip, more], Objective.ENERGY)
        assert order.no_worse(0).tolist() == [0, 1]
        before, after = evaluate(workload, chip, tree), evaluate(workload, more, tree)
        assert after.time <= before.time * (1 + 1e-12)
        assert after.energy <= before.energy * (1 + 1e-12)
        assert after.footprint == before.footprint


@given(SEEDS)
@settings(max_examples=8, deadline=None, database=None)
def test_a_mapping_costs_no_more_on_a_chip_that_is_no_worse(seed: int) -> None:
    check_costs(seed)


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=1000, deadline=None, database=None)
def test_many_mappings_cost_no_more_on_a_chip_that_is_no_worse(seed: int) -> None:
    check_costs(seed)


def mini() -> Chip:
    data = read_yaml(CHIP, "mini").data
    assert isinstance(data, dict)
    chip, _ = read_chip(Document("mini", data["chip"], {(): 1}))
    assert chip is not None
    return chip


def best(chip: Chip, objective: Objective, random: Random) -> float:
    work = build("gemm", {"m": random.randint(1, 6), "n": random.randint(1, 8), "k": random.randint(1, 8)})
    return float(optimise(Problem(work, chip, objective, baselines=False)).best.certificate.value)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", Objective)
def test_an_optimum_is_no_worse_on_a_chip_that_is_no_worse(seed: int, objective: Objective) -> None:
    random = Random(seed)
    chip = mini()
    small = replace(chip.levels[1].memories[0], capacity=64.0 * 2 ** random.randint(0, 3))
    chip = with_level(chip, 1, replace(chip.levels[1], memories=(small,)))
    more = better(chip, random)
    state = random.getstate()
    before = best(chip, objective, random)
    random.setstate(state)
    assert best(more, objective, random) <= before * (1 + 1e-9)


def test_structure_is_not_compared() -> None:
    edge = load_chip("edge")
    assert edge.matrix is not None
    for other in (
        replace(edge, matrix=replace(edge.matrix, rows=64)),
        replace(edge, matrix=replace(edge.matrix, clock=2e9)),
        replace(edge, levels=(*edge.levels[:2], replace(edge.levels[2], name="core"))),
        with_level(edge, 0, replace(edge.levels[0], memories=(replace(edge.memory("dram"), shared_bus=False),))),
    ):
        assert ranked(edge, Objective.TIME)[1] != ranked(other, Objective.TIME)[1]


def test_energies_matter_for_energy_alone() -> None:
    edge = load_chip("edge")
    warm = replace(edge, static_power=2 * edge.static_power)
    assert Order([edge, warm], Objective.TIME).no_worse(0).tolist() == [0, 1]
    assert Order([edge, warm], Objective.TIME).no_worse(1).tolist() == [0, 1]
    assert Order([edge, warm], Objective.ENERGY).no_worse(0).tolist() == [0]
    assert math.isclose(ranked(warm, Objective.EDP)[0][-1], -2 * edge.static_power)
