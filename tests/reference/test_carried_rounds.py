"""Rounds that carry a running maximum on (fused attention): how many copies of it are needed, by running the children at once;
then the model's rule, results, counts, footprint and times of such trees."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.certificates.exhaustive import FUNCTIONS
from tests.reference.test_counts import assert_agrees
from tests.reference.trees import chip, each, execute, nest, online_attention, plain_attention

from halley.cost.estimate import Estimate, Resource
from halley.cost.evaluate import evaluate
from halley.errors import IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.formulas.timing import contended_time, waiting_time
from halley.ir.hardware import Chip, VectorEngine
from halley.ir.mapping import Collective, CollectiveKind, Compute, Hold, Node, Overlap, Sequence, Temporal, walk
from halley.ir.workload import OpKind, Workload
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate

Cut = tuple[tuple[int, ...], ...]
CUTS: tuple[Cut, ...] = (((0,), (1, 2)), ((0, 1), (2,)), ((0,), (1,), (2,)))
TURN: Cut = ((0, 1, 2),)
INNER = [memory.name for memory in chip().levels[-1].memories]


# ---- children at once, on copies: an executor that knows nothing of trees ---------------------------


class Slots:
    """Copies of a tensor: a round writes its own, in the place of the oldest."""

    def __init__(self, count: int, first: np.ndarray) -> None:
        self.values = [first.copy() for _ in range(count)]

    def __getitem__(self, turn: int) -> np.ndarray:
        return self.values[turn % len(self.values)]

    def __setitem__(self, turn: int, value: np.ndarray) -> None:
        self.values[turn % len(self.values)] = value


class Kernel:
    """Attention over tiles of keys, whose stages work on copies: ``maxima`` of the running maximum, ``tiles`` of the scores."""

    def __init__(self, arrays: dict[str, np.ndarray], tile: int, maxima: int, tiles: int) -> None:
        self.q, self.k, self.v = (arrays[name] for name in "QKV")
        self.tile, self.turns = tile, len(self.k) // tile
        rows = len(self.q)
        self.mx, self.z = Slots(maxima, np.full(rows, -np.inf)), np.zeros(rows)
        self.scores = Slots(tiles, np.zeros((rows, tile)))
        self.u = np.zeros((rows, self.v.shape[1]))

    def keys(self, turn: int) -> slice:
        return slice(turn * self.tile, (turn + 1) * self.tile)

    def stage(self, number: int, turn: int) -> None:
        match number:
            case 0:
                self.scores[turn] = self.q @ self.k[self.keys(turn)].T
            case 1:
                before, scores = self.mx[turn - 1], self.scores[turn]
                now = np.maximum(before, scores.max(axis=1))
                self.scores[turn] = np.exp(scores - now[:, None])
                self.z = self.z * np.exp(before - now) + self.scores[turn].sum(axis=1)
                self.mx[turn] = now
            case _:  # what it has made is relative to the maximum of the round before
                factor = np.exp(self.mx[turn - 1] - self.mx[turn])
                self.u = self.u * factor[:, None] + self.scores[turn] @ self.v[self.keys(turn)]

    def run(self, cut: Cut) -> np.ndarray:
        """Child c is c rounds behind the first; of children at once, the first in the row writes first: the worst order for those
        behind it that still read."""
        for step in range(self.turns + len(cut) - 1):
            for child, stages in enumerate(cut):
                for number in stages:
                    if 0 <= step - child < self.turns:
                        self.stage(number, step - child)
        return np.asarray(self.u / self.z[:, None])


def rising(item: Workload) -> dict[str, np.ndarray]:
    """Inputs whose maximum grows with every tile of keys, so that each rescaling matters."""
    arrays = random_inputs(item, seed=5)
    arrays["Q"] = np.abs(arrays["Q"])
    arrays["K"] = np.abs(arrays["K"]) * np.arange(1, len(arrays["K"]) + 1)[:, None] / 4
    return arrays


def copies(cut: Cut) -> tuple[int, int]:
    """Of the maximum and of the scores, by the model."""
    return (1 if (1, 2) in cut or cut == TURN else 3), len(cut)


@pytest.mark.parametrize("cut", CUTS)
def test_children_at_once_need_as_many_copies_as_the_model_says(cut: Cut) -> None:
    """With one fewer of either, results are wrong. In one child, the old maximum is at hand when the new one is made."""
    item = online_attention(4, 12, 3, 2)
    arrays = rising(item)
    expected = plain_attention(arrays)
    maxima, tiles = copies(cut)
    maxima = max(maxima, 2)
    np.testing.assert_allclose(Kernel(arrays, 2, maxima, tiles).run(cut), expected, rtol=1e-9)
    assert not np.allclose(Kernel(arrays, 2, maxima, tiles - 1).run(cut), expected)
    assert not np.allclose(Kernel(arrays, 2, maxima - 1, tiles).run(cut), expected)


# ---- trees ------------------------------------------------------------------------------------------


def machine() -> Chip:
    vector = VectorEngine("simd", 4, 1e9, dict.fromkeys(FUNCTIONS, 0.5), dict.fromkeys(FUNCTIONS, 1e-12))
    return replace(chip(2, 1), vector=vector)


def tree(cut: Cut, maxima: int, tiles: int, *, tile: int = 3, split: int | None = None, combine: tuple[Node, ...] = ()) -> Node:
    """Scores, statistics with exponentials, values: by a cut; K and V run ahead."""
    scores, *statistics, values = each("S", "mx", "E", "U")
    stages = (scores, Sequence(tuple(statistics)), values)
    children = tuple(stages[run[0]] if len(run) == 1 else Sequence(tuple(stages[at] for at in run)) for run in cut)
    rounds = Hold("obuf", (("S", "E"),), Overlap(children) if len(children) > 1 else children[0], tiles)
    staged = Hold("glb", (("K",), ("V",)), Hold("ibuf", (("Q",), ("K",), ("V",)), rounds, 2), 2)
    body: Node = Hold("obuf", (("mx",),), Sequence((Temporal("n", tile, staged), *combine, *each("O"))), maxima)
    around = [("n", split, "x")] if split else []
    return nest(("dram", "Q K V O"), *around, ("m", 2), ("glb", "Q"), ("obuf", "z U"), body)


@pytest.mark.parametrize("cut", [TURN, *CUTS])
def test_results_and_counts_are_those_of_sequential_stages(cut: Cut) -> None:
    item = online_attention(4, 12, 3, 2)
    done, arrays = execute(item, tree(cut, *copies(cut)), machine())
    turn, _ = execute(item, tree(TURN, 1, 1), machine())
    np.testing.assert_allclose(done.outputs["O"], plain_attention(arrays))
    np.testing.assert_array_equal(done.outputs["O"], turn.outputs["O"])
    assert done.counters.reads == turn.counters.reads
    assert done.counters.writes == turn.counters.writes
    assert done.counters.work == turn.counters.work
    assert_agrees(item, machine(), tree(cut, *copies(cut)), done)


def test_states_of_split_keys_are_joined_behind_the_rounds() -> None:
    """The maximum that is joined is the last copy."""
    item, cut = online_attention(4, 12, 3, 2), CUTS[-1]
    join = partial(Collective, CollectiveKind.ALL_REDUCE, level="cluster", axis="x", algorithm="ring")
    made = tree(cut, *copies(cut), tile=2, split=6, combine=(join(("mx", "z")), join(("U",))))
    assert not faults(made, item, machine())
    done, arrays = execute(item, made, machine())
    np.testing.assert_allclose(done.outputs["O"], plain_attention(arrays))
    assert_agrees(item, machine(), made, done)


def test_each_copy_takes_room() -> None:
    """Two rows of fp32 in every copy of the maximum, 2 x 3 scores in bf16 in every copy of these."""
    item = online_attention(4, 12, 3, 2)
    used = {cut: evaluate(item, machine(), tree(cut, *copies(cut))).footprint["obuf"] for cut in (TURN, *CUTS)}
    assert [used[cut] - used[TURN] for cut in CUTS] == [12, 12 + 2 * 8, 2 * 12 + 2 * 8]


@pytest.mark.parametrize("cut", CUTS[1:])
def test_too_few_copies_of_the_maximum_are_refused(cut: Cut) -> None:
    item = online_attention(4, 12, 3, 2)
    arrays = random_inputs(item, seed=1)
    for maxima in (1, 2):
        for tiles in (1, len(cut)):  # also where each round waits for the last: a copy stands for a round
            (fault,) = faults(tree(cut, maxima, tiles), item, machine())
            assert "3 buffers of mx in obuf, for the rounds under way at once, as it is carried from round to round" in str(fault)
            with pytest.raises(IllegalMapping, match="at least 3 buffers of mx"):
                run(item, machine(), tree(cut, maxima, tiles), arrays)


def test_what_a_child_further_on_changes_is_not_carried_on() -> None:
    """A sum that is joined by the second child in each round would have to come back to the first, which is a round ahead."""
    item = online_attention(4, 12, 3, 2)
    join = Collective(CollectiveKind.ALL_REDUCE, ("mx", "z"), "cluster", "x", "ring")
    scores, mx, exponentials, values = each("S", "mx", "E", "U")
    rounds = Hold("obuf", (("S", "E"),), Overlap((Sequence((scores, mx)), Sequence((join, exponentials, values)))), 2)
    made = nest(
        ("dram", "Q K V O"), ("n", 6, "x"), ("ibuf", "Q K V"), ("obuf", "z U O"),
        Hold("obuf", (("mx",), ("z",)), Sequence((Temporal("n", 3, rounds), *each("O"))), 3),
    )  # fmt: skip
    assert any("expected mx to be recomputed in each round of n" in str(fault) for fault in faults(made, item, machine()))
    with pytest.raises(IllegalMapping, match="mx recomputed in each round"):
        run(item, machine(), made, random_inputs(item, seed=1))


# ---- time -------------------------------------------------------------------------------------------


def rounds_of(estimate: Estimate, path: tuple[int, ...]) -> list[float]:
    """Times of the children of the rounds at a path."""
    return [float(cost.time) for where, cost in sorted(estimate.nodes.items()) if where[:-1] == path]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("tile", [1, 2, 4])
def test_the_busiest_of_children_engines_and_transfers_sets_the_time(cut: Cut, tile: int) -> None:
    item, on = online_attention(4, 12, 3, 2), machine()
    made = tree(cut, *copies(cut), tile=tile)
    estimate = evaluate(item, on, made)
    inside = next(path for path, node in walk(made) if isinstance(node, Overlap))
    phase = estimate.nodes[next(path for path, node in walk(made) if isinstance(node, Temporal) and node.dim == "n")]
    times = rounds_of(estimate, inside)
    assert on.matrix is not None
    assert on.vector is not None
    engines = {True: on.matrix.name, False: on.vector.name}
    users = [{engines[item.op(op).kind is OpKind.CONTRACT] for op in child} for child in ops_of(made, inside)]
    each_uses = {engine: [at for at, own in enumerate(users) if engine in own] for engine in engines.values()}
    shared = [engine for engine, own in each_uses.items() if any(at + 1 in own for at in own)]  # of neighbours
    work = {engine: float(estimate.nodes[inside].busy["engine", engine]) for engine in shared}
    waits = [contended_time([times[at] for at in each_uses[e]], work[e]) for e in shared]
    busy = [estimate.nodes[(*inside, at)].busy for at in range(len(times))]
    known = [
        {name: float(own[name]) for name in own if name[1] in {*INNER, *engines}}
        for engines, own in zip(users, busy, strict=True)
    ]
    waits += delayed(times, known, 12 // tile)
    busiest = max(*times, *waits, *map(float, phase.busy.values()))
    blocks = 2
    waiting = blocks * waiting_time(sum(times), busiest, blocks * 12 / tile)
    assert float(phase.time) == pytest.approx(busiest + waiting + blocks * float(phase.filling), rel=1e-9)


def delayed(times: list[float], uses: list[dict[Resource, float]], rounds: int) -> list[float]:
    """Times of children that wait while a resource serves another one, each a round behind the child before it."""
    result = []
    for at, time in enumerate(times):
        waits = 0.0
        for other, used in enumerate(uses):
            products = [own * used.get(name, 0.0) for name, own in uses[at].items()]
            late = abs(other - at) - 1
            waits += max(0.0, 1 - late / max(rounds - 1, 1)) * max(products) / time if late >= 0 else 0.0
        result.append(time + min(waits, time))
    return result


def ops_of(made: Node, inside: tuple[int, ...]) -> list[list[str]]:
    """The ops of each child of the rounds at a path."""
    found: dict[int, list[str]] = {}
    for path, node in walk(made):
        if isinstance(node, Compute) and path[: len(inside)] == inside:
            found.setdefault(path[len(inside)], []).append(node.op)
    return [found[at] for at in sorted(found)]


def slow_memory(on: Chip, factor: float) -> Chip:
    """The chip with an outer memory that many times as slow."""
    outer, *inner = on.levels
    memories = tuple(replace(memory, read_bandwidth=memory.read_bandwidth / factor) for memory in outer.memories)
    return replace(on, levels=(replace(outer, memories=memories), *inner))


@pytest.mark.parametrize("factor", [0.1, 1.0, 3.0, 10.0, 100.0])
def test_no_overlap_is_slower_than_stages_in_turn_and_one_round_hides_nothing(factor: float) -> None:
    """What comes in for the rounds hides their ends as any busiest resource does. In a single round stages follow each other; in
    turn, buffers are in use until the last of them is done."""
    item, on = online_attention(4, 12, 3, 2), slow_memory(machine(), factor)

    def time(cut: Cut, tile: int) -> float:
        return float(evaluate(item, on, tree(cut, *copies(cut), tile=tile)).time)

    for cut in CUTS:
        assert time(cut, 2) <= time(TURN, 2) * (1 + 1e-12)
        assert time(cut, 12) <= time(TURN, 12) * (1 + 1e-12)
        assert time(cut, 12) == pytest.approx(simulate(item, on, tree(cut, *copies(cut), tile=12)).time, rel=0.15)


@pytest.mark.parametrize("cut", [TURN, *CUTS])
@pytest.mark.parametrize("tile", [1, 2, 3])
def test_the_queues_agree(cut: Cut, tile: int) -> None:
    item, on = online_attention(8, 24, 3, 2), machine()
    made = tree(cut, *copies(cut), tile=tile)
    deviation = float(evaluate(item, on, made).time) / simulate(item, on, made).time - 1
    assert -0.5 <= deviation <= 0.35  # as demanded of all plans (docs/simulation.md)
