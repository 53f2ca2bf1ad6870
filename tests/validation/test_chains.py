"""Chains of two GEMMs against RTL: the tree, the table, and a small pipeline that is run step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.validation.test_outcomes import synchronous
from validation.rtl import chains
from validation.rtl import compare as rtl

from halley.cost.estimate import BarrierTimes, Estimate
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import run
from halley.ir.mapping import Hold, Node, Overlap, Sequence, children, walk
from halley.rewrite.legality import faults
from halley.rewrite.paths import replace_at
from halley.simulate.simulation import simulate


def in_turn(tree: Node) -> Node:
    """The tree with phases that end before the next begins."""
    path = next(path for path, node in walk(tree) if isinstance(node, Sequence))
    return replace_at(tree, path, lambda node: replace(node, prefetch=False))


def stepped(chain: chains.Chain, latency: float, start: float) -> float:
    """One port that loads, an array, one port that stores. A load waits for one of the two buffers of its GEMM; of the loads that
    could start next, the earliest goes first."""
    steps: list[tuple[int, float, float, float]] = []  # GEMM, load, work, store
    for _ in range(chain.M // chain.m):
        for _ in range(chain.K // chain.k):
            work = chain.m // 16 * chain.k // 16 * chain.N + start
            steps.append((0, 2 * latency + (chain.m * chain.k + chain.k * chain.N) / 4, work, 0.0))
        for index in range(chain.N // chain.n2):
            store = latency + chain.m * chain.F / 4 if index == chain.N // chain.n2 - 1 else 0.0
            steps.append((1, latency + chain.n2 * chain.F / 4, chain.m // 16 * chain.n2 // 16 * chain.F + start, store))
    queues = [[i for i, step in enumerate(steps) if step[0] == gemm] for gemm in (0, 1)]
    taken, loaded, done = [0, 0], dict[int, float](), list[float]()
    port = array = storing = 0.0
    while len(loaded) < len(steps):
        able = []
        for gemm, queue in enumerate(queues):
            if taken[gemm] < len(queue) and (taken[gemm] < 2 or queue[taken[gemm] - 2] < len(done)):
                free = done[queue[taken[gemm] - 2]] if taken[gemm] >= 2 else 0.0
                able.append((max(port, free), queue[taken[gemm]], gemm))
        begin, index, gemm = min(able)
        port = loaded[index] = begin + steps[index][1]
        taken[gemm] += 1
        while len(done) in loaded:
            _, _, work, store = steps[len(done)]
            array = max(array, loaded[len(done)]) + work
            done.append(array)
            storing = max(storing, array) + store if store else storing
    return max(array, storing)


def barriers(chain: chains.Chain, latency: float, start: float) -> tuple[float, float]:
    """Each GEMM of one tile of rows by itself, tile by tile between barriers."""
    start += 8  # the first operand's way into the registers
    work = chain.m // 16 * chain.k // 16 * chain.N + start
    first = synchronous(2 * latency + (chain.m + chain.N) * chain.k / 4, work, 0, chain.K // chain.k, chain.K // chain.k)
    work, store = chain.m // 16 * chain.n2 // 16 * chain.F + start, latency + chain.m * chain.F / 4
    tiles = chain.N // chain.n2
    return first, synchronous(latency + chain.n2 * chain.F / 4, work, store, tiles, tiles)


@pytest.mark.parametrize("seed", range(12))
def test_lockstep_in_phases(seed: int) -> None:
    """A sequence takes both GEMMs for each tile of rows."""
    chain, machine = drawn(Random(seed)), rtl.chip()
    work, tree, rows = chains.workload(chain), in_turn(chains.tree(chain)), chain.M // chain.m
    first, second = barriers(chain, 6, 48)
    found = evaluate(work, machine, tree)
    assert float(found.time) * rtl.CLOCK == pytest.approx(rows * (first + second), rel=0.04)


def test_lockstep_in_rounds() -> None:
    """An overlap takes at least the longer GEMM, and the other once, or what memory takes. Both use one array, so they also wait
    for each other there, as they do in the simulation."""
    machine, errors = rtl.chip(), []
    for seed in range(12):
        chain = drawn(Random(seed))
        work, tree, rows = chains.workload(chain), in_turn(chains.tree(chain)), chain.M // chain.m
        path = next(path for path, node in walk(tree) if isinstance(node, Sequence))
        rounds = replace_at(tree, path, lambda node: Overlap(children(node)))
        assert faults(rounds, work, machine) == []
        found = evaluate(work, machine, rounds)
        first, second = barriers(chain, 6, 48)
        least = ((rows - 1) * max(first, second) + first + second) / rtl.CLOCK
        assert float(found.time) >= max(0.97 * least, *(float(busy) for busy in found.busy.values()))
        errors.append(abs(float(found.time) / float(simulate(work, machine, rounds).time) - 1))
    assert max(errors) < 0.1
    assert np.mean(errors) < 0.06


def test_steps_of_a_sequence_are_those_of_its_children() -> None:
    """A long fill around both GEMMs runs beside one tile of one of them, not beside all of them."""
    chain, machine = chains.Chain(64, 64, 64, 64, 16, 64, 16, 64, 16, 1.0), rtl.chip()
    work = chains.workload(chain)
    tree = in_turn(chains.tree(chain))
    path = next(path for path, node in walk(tree) if isinstance(node, Sequence))
    assert between(evaluate(work, machine, tree), path).steps == 4 * (4 + 4)  # tiles of k, tiles of n
    around = replace_at(tree, path, lambda node: Hold("buffer", (("V",),), node, 2))  # V comes whole, for each tile of rows
    found = evaluate(work, machine, around)
    inside, fill = float(between(found, (*path, 0)).work) * rtl.CLOCK, 6 + 64 * 64 / 4
    assert inside / 32 < fill < inside / 4
    assert float(between(found, path).work) * rtl.CLOCK == pytest.approx(inside + 4 * (fill - inside / 32))


def between(found: Estimate, path: tuple[int, ...]) -> BarrierTimes:
    barriers = found.nodes[path].barriers
    assert barriers is not None
    return barriers


def drawn(random: Random) -> chains.Chain:
    m, k, n2 = (16 * random.choice([1, 2, 4]) for _ in range(3))
    f = 16 * random.randint(1, 5)
    n = n2 * random.randint(1, 8)
    return chains.Chain(m * random.randint(2, 8), n, k * random.randint(1, 4), f, m, n, k, f, n2, 1.0)


def test_formula_against_a_pipeline_that_runs_ahead() -> None:
    """Loads that run on across phases, stepped one by one; far closer than phases one after the other."""
    random, machine = Random(3), rtl.chip()
    on, off = [], []
    for _ in range(30):
        chain = drawn(random)
        expected = stepped(chain, 6, 48)
        on.append(abs(chains.predicted(chain, machine, rtl.CLOCK) / expected - 1))
        work, tree = chains.workload(chain), in_turn(chains.tree(chain))
        off.append(abs(float(evaluate(work, machine, tree).time) * rtl.CLOCK / expected - 1))
    assert np.mean(on) < 0.05
    assert max(on) < 0.25
    assert np.mean(off) > 3 * np.mean(on)


def test_chains_are_legal_fit_and_compute() -> None:
    chain = chains.Chain(32, 32, 32, 16, 16, 32, 16, 16, 16, 1.0)
    work, tree = chains.workload(chain), chains.tree(chain)
    assert faults(tree, work, rtl.chip()) == []
    estimate = evaluate(work, rtl.chip(), tree)
    assert all(estimate.footprint[memory.name] <= memory.capacity for memory in rtl.chip().memories)
    arrays = {name: np.random.default_rng(1).standard_normal([work.dims[d] for d in work.tensors[name].dims]) for name in "QKV"}
    done = run(work, rtl.chip(), tree, arrays)
    np.testing.assert_allclose(done.outputs["O"], arrays["Q"] @ arrays["K"] @ arrays["V"])
    assert done.counters.footprint == estimate.footprint


def table(folder: Path, **changes: str) -> Path:
    chain = chains.Chain(64, 32, 32, 16, 32, 32, 16, 16, 16, 1.0)
    row = dict(zip(("M1", "N1", "K1", "micro_M1", "micro_N1", "micro_K1"), map(str, (64, 32, 32, 32, 32, 16)), strict=True))
    row |= dict(zip(("M2", "N2", "K2", "micro_M2", "micro_N2", "micro_K2"), map(str, (64, 16, 32, 32, 16, 16)), strict=True))
    row |= {"rtl_cycles": f"{stepped(chain, 6, 48):.0f}"} | changes
    (folder / chains.TABLE).parent.mkdir(exist_ok=True)
    (folder / chains.TABLE).write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    return folder


def test_chains_are_compared_where_there_is_a_table(tmp_path: Path) -> None:
    found = rtl.compare(table(tmp_path))
    assert [line.quantity for line in found.lines] == ["cycles, chains"]
    case = found.lines[0].worst_case
    assert case.name == "64 x 32 x 32 by 32 x 32 x 16, 16 x 32 by 16 x 16"
    assert 0 < abs(case.error) < 0.2
    assert not rtl.compare(table(tmp_path, rtl_cycles="1")).holds


@pytest.mark.parametrize(("column", "value", "message"), [("K2", "48", "N1 equal to K2"), ("N2", "0", "at least 1")])
def test_a_chain_that_is_none_is_refused(tmp_path: Path, column: str, value: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        rtl.compare(table(tmp_path, **{column: value}))
