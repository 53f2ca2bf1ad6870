"""Laws of step tables on any number of ranks, in any number of pieces, over any dimensions: every one keeps its promise."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.phased_draws import drawn_plan

from halley.errors import BadInput, InternalError
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, ChunkRule, Setting
from halley.network.algorithms.hierarchical import SERVED, Part, Phased, Run, balanced_orders, phases
from halley.network.algorithms.tables import KINDS, WHOLE, Kind, Pattern, Steps, chunk_count, verify
from halley.network.time.schedules import placed, snake

K = CollectiveKind


def settings_of(name: str, kind: Kind, ranks: int) -> Iterator[Setting]:
    """The algorithm's own cut, and several where it leaves that open."""
    item = ALGORITHMS[name]
    open_cut = kind in WHOLE and item.cut(kind) in (ChunkRule.PIECES, ChunkRule.SHARED_PIECES)
    for pieces in (1, 2, 3, 8) if open_cut else (1,):
        for line in (False, True):
            yield Setting(ranks, item.chunks(kind, ranks, pieces), line)


def cases(sizes: range) -> Iterator[tuple[Kind, str, int]]:
    for name, item in ALGORITHMS.items():
        yield from ((kind, name, n) for kind in item.kinds for n in sizes if item.unfit(kind, n) is None)


def table(kind: Kind, name: str, setting: Setting) -> Steps:
    return ALGORITHMS[name].make[kind](setting)


@pytest.mark.parametrize("ranks", range(1, 20))
def test_every_table_keeps_its_promise(ranks: int) -> None:
    for kind, name, n in cases(range(ranks, ranks + 1)):
        for setting in settings_of(name, kind, n):
            verify(kind, table(kind, name, setting), n, setting.chunks)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_an_algorithm_for_any_number_of_ranks(kind: Kind) -> None:
    for ranks in (*range(1, 40), 100, 1000):
        assert any(item.unfit(kind, ranks) is None and not item.network for item in ALGORITHMS.values())


def test_no_transfer_can_be_left_out() -> None:
    for kind, name, n in cases(range(2, 6)):
        if kind is Pattern.BARRIER:
            continue  # news may come twice
        for setting in settings_of(name, kind, n):
            steps = table(kind, name, setting)
            for at, step in enumerate(steps):
                for gone in (t for t in step if t.source != t.target):  # a rank's own copy changes nothing on its way round
                    rest = tuple(t for t in step if t is not gone)
                    with pytest.raises(InternalError):
                        verify(kind, (*steps[:at], rest, *steps[at + 1 :]), n, setting.chunks)


@pytest.mark.parametrize("name", ["ring", "pairwise", "bruck", "doubling", "halving", "binomial", "tree", "pipelined", "linear"])
def test_one_port_is_enough(name: str) -> None:
    """In no step does a rank send to two, or receive from two: these run as fast over one port as over many."""
    for kind in ALGORITHMS[name].kinds:
        if kind is K.ALL_REDUCE and name == "tree":
            continue  # chunks go up while others come down
        for n in range(2, 18):
            if ALGORITHMS[name].unfit(kind, n) is None:
                for setting in settings_of(name, kind, n):
                    for step in table(kind, name, setting):
                        pairs = {(t.source, t.target) for t in step}
                        assert len(pairs) == len({s for s, _ in pairs}) == len({t for _, t in pairs})


@pytest.mark.parametrize("ranks", range(2, 40))
def test_double_trees_keep_every_rank_busy_and_none_overloaded(ranks: int) -> None:
    """No rank sends more than twice the payload, nor two chunks in a step on the way up, nor on the way down."""
    pieces = 12
    steps = table(K.ALL_REDUCE, "double-tree", Setting(ranks, pieces))
    sent = Counter(t.source for step in steps for t in step)
    assert max(sent.values()) <= 2 * pieces
    for step, up in itertools.product(steps, (True, False)):
        ways = [(t.source, t.target) for t in step if t.combine == up]
        assert len(ways) == len({s for s, _ in ways}) == len({t for _, t in ways})
    assert len(steps) <= 2 * pieces + 8 * ranks.bit_length()


@pytest.mark.parametrize("ranks", [2, 3, 8, 13, 16])
def test_steps_are_as_many_as_the_literature_says(ranks: int) -> None:
    halvings, power = (ranks - 1).bit_length(), 1 << (ranks.bit_length() - 1)
    folds = 0 if ranks == power else 2
    for kind, name, expected in (
        (K.BROADCAST, "binomial", halvings),
        (K.ALL_GATHER, "bruck", halvings),
        (K.ALL_TO_ALL, "bruck", halvings),
        (K.ALL_TO_ALL, "pairwise", ranks - 1),
        (K.ALL_REDUCE, "ring", 2 * (ranks - 1)),
        (K.ALL_REDUCE, "folded-doubling", power.bit_length() - 1 + folds),
        (K.ALL_REDUCE, "folded-halving", 2 * (power.bit_length() - 1) + folds),
        (Pattern.BARRIER, "dissemination", halvings),
    ):
        setting = next(settings_of(name, kind, ranks))
        assert len(table(kind, name, setting)) == expected, name
    pieces = 7
    assert len(table(K.BROADCAST, "pipelined", Setting(ranks, pieces))) == ranks - 2 + pieces


def test_bruck_with_a_larger_base_takes_fewer_steps_and_less_traffic() -> None:
    for ranks in (16, 17, 64):
        tables = [table(K.ALL_TO_ALL, name, Setting(ranks, ranks * ranks)) for name in ("bruck", "bruck-4", "bruck-8", "direct")]
        counts = [sum(map(len, steps)) for steps in tables]
        assert counts == sorted(counts, reverse=True)
        assert [len(steps) for steps in tables] == sorted((len(steps) for steps in tables), reverse=True)


# --- several dimensions ---

SHAPES = ((2, 3), (4, 2), (3, 3), (2, 2, 3), (5,), (2, 2, 2))


@pytest.mark.parametrize("seed", range(60))
def test_every_phased_schedule_keeps_its_promise(seed: int) -> None:
    draw = random.Random(seed)
    for kind in SERVED:
        plan = drawn_plan(draw, kind, draw.choice(SHAPES), draw.randint(1, 3), draw.randint(1, 2))
        verify(kind, plan.steps(kind), plan.ranks, plan.chunks(kind))
        assert sum(plan.sizes(kind, 840.0)) == pytest.approx(840.0 * (plan.ranks if kind is K.ALL_TO_ALL else 1))
        assert len(plan.sizes(kind, 840.0)) == plan.chunks(kind)


def single(kind: CollectiveKind, shape: tuple[int, ...], order: tuple[int, ...], name: str) -> Phased:
    return Phased(shape, (Part(Fraction(1), tuple(Run(phase, name) for phase in phases(kind, order))),))


def test_a_phased_schedule_of_one_dimension_is_its_algorithm() -> None:
    for kind in (K.ALL_GATHER, K.REDUCE_SCATTER, K.ALL_REDUCE, K.ALL_TO_ALL):
        flat = table(kind, "direct", Setting(6, chunk_count(kind, 6)))
        assert [set(step) for step in single(kind, (6,), (0,), "direct").steps(kind)] == [set(step) for step in flat]


@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (2, 3, 4)])
def test_dimensions_carry_what_the_published_sum_says(shape: tuple[int, ...]) -> None:
    """Chunks sent along the k-th dimension: (n_k - 1) / n_k of what those before left; 2 (n - 1) in all (BlueConnect)."""
    ranks = 1
    for extent in shape:
        ranks *= extent
    for order in itertools.permutations(range(len(shape))):
        plan = single(K.ALL_REDUCE, shape, order, "ring")
        moved: Counter[int] = Counter()
        for step in plan.steps(K.ALL_REDUCE):
            for t in step:
                a, b = t.source, t.target
                for d in reversed(range(len(shape))):
                    if a % shape[d] != b % shape[d]:
                        moved[d] += 1
                    a, b = a // shape[d], b // shape[d]
        before = 1
        for d in order:
            assert moved[d] == 2 * ranks * (shape[d] - 1) * ranks // (shape[d] * before)
            before *= shape[d]
        assert sum(moved.values()) == 2 * ranks * (ranks - 1)


def test_balanced_orders_start_with_the_widest_and_keep_all_dimensions_busy() -> None:
    assert balanced_orders((4, 4), (9.0, 1.0), 1) == ((0, 1),)
    for shape, bandwidths in (((4, 4, 4), (1.0, 1.0, 1.0)), ((2, 4, 8), (1.0, 1.0, 1.0)), ((4, 8), (2.0, 1.0))):
        busy = [0.0] * len(shape)
        for order in balanced_orders(shape, bandwidths, 24):
            before = 1
            for d in order:
                busy[d] += (shape[d] - 1) / shape[d] / before / bandwidths[d]
                before *= shape[d]
        assert max(busy) < 1.1 * sum(busy) / len(busy)


PAIR = tuple(Run(phase, "ring") for phase in phases(K.ALL_GATHER, (0, 1)))
WHOLE_PART = Part(Fraction(1), PAIR)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda: Phased((2, 3), (WHOLE_PART,), axes=("x",)), "a name for each of 2 dimensions, or none; got 1"),
        (lambda: Phased((2, 3), ()), "shares add up to 1"),
        (lambda: Phased((2, 3), (WHOLE_PART,), 0), "at least 1 piece; got 0"),
        (lambda: Phased((2, 3), (Part(Fraction(1, 2), PAIR), Part(Fraction(1, 2), PAIR[:1]))), "as many phases in every part"),
        (lambda: Phased((2, 3), (Part(Fraction(1), (PAIR[0]._replace(algorithm="rng"),)),)), "did you mean 'ring'"),
        (lambda: Phased((2, 3), (Part(Fraction(1), (PAIR[0]._replace(algorithm="doubling"),)),)), "a power of two; got 3"),
        (lambda: Phased((64, 64), (Part(Fraction(1), PAIR),), 64).steps(K.ALL_GATHER), "at most 16384 chunks"),
        (lambda: phases(K.SHIFT, (0, 1)), "collective over several axes: expected one of all-reduce"),
    ],
)
def test_phased_schedules_without_meaning_are_refused(plan: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan()


# --- placing ---


@given(st.integers(2, 9), st.data())
def test_a_table_may_be_played_by_ranks_in_any_order(ranks: int, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(ranks))))
    for kind, name in ((K.ALL_GATHER, "ring"), (K.REDUCE_SCATTER, "bruck"), (K.ALL_REDUCE, "ring"), (K.ALL_TO_ALL, "bruck")):
        moved = placed(table(kind, name, Setting(ranks, chunk_count(kind, ranks))), kind, order)
        verify(kind, moved, ranks)


@pytest.mark.parametrize("shape", [(2, 2), (4, 5), (3, 4, 5), (6,)])
def test_a_snake_visits_all_and_jumps_nowhere(shape: tuple[int, ...]) -> None:
    order = snake(shape)
    assert sorted(order) == list(range(len(order)))

    def point(rank: int) -> list[int]:
        found = []
        for extent in reversed(shape):
            found.append(rank % extent)
            rank //= extent
        return found

    for a, b in itertools.pairwise(order):
        assert sum(abs(x - y) for x, y in zip(point(a), point(b), strict=True)) == 1
