"""The step simulator against NumPy; the evaluator, its lines and the closed forms against the simulator, to the byte.

The simulator moves real arrays, message by message. It shares no code with the evaluator and the closed forms but the routes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.reference.phased_draws import drawn_plan

from halley.errors import BadInput, InternalError
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, ChunkRule, Setting
from halley.network.algorithms.hierarchical import SERVED, Part, Phased, Run, other_phases, phases
from halley.network.algorithms.tables import KINDS, WHOLE, Kind, Pattern, Steps, Transfer
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.products import product
from halley.network.graph.topologies import build
from halley.network.time.evaluate import Evaluation, evaluate, layout
from halley.network.time.forms import FORMS
from halley.network.time.lines import line_of
from halley.network.time.schedules import Schedule
from halley.network.time.simulate import Held, SimulatedRun, initial_chunks, simulate

K, T = CollectiveKind, Topology
Vector = NDArray[Any]


def axis(topology: Topology, size: int, link: Link, **more: Any) -> Axis:
    return Axis("x", size, topology, link, **more)


def able(topology: Topology, size: int, link: Link) -> Axis:
    """With switches that add and multicast, where there are any."""
    switched = topology in (T.SWITCH, T.FAT_TREE)
    more = {"shape": (2, 2), "upper": replace(link, bandwidth=2 * link.bandwidth)} if topology is T.FAT_TREE else {}
    return axis(topology, size, link, multicast=switched, reduction=switched, **more)


def vectors(draw: random.Random, ranks: int, size: int) -> list[Vector]:
    return [np.array([draw.randrange(-1000, 1000) for _ in range(size)]) for _ in range(ranks)]


def joined(held: dict[int, Vector], chunks: range) -> list[int]:
    return [value for chunk in chunks for value in held[chunk].tolist()]


def check_values(kind: Kind, given: list[Vector], held: Held, chunks: int, combine: np.ufunc = np.add) -> None:
    """What every rank ends with, from the definition of the collective in NumPy."""
    ranks, size, every = len(given), len(given[0]), range(chunks)
    own = chunks // ranks
    width = -(-size // chunks)
    total = combine.reduce(given)
    share = [slice(i * own * width, (i + 1) * own * width) for i in range(ranks)]
    gathered = np.concatenate([given[i][share[i]] for i in range(ranks)]).tolist() if kind not in WHOLE else []
    match kind:
        case K.ALL_REDUCE:
            assert all(joined(mine, every) == total.tolist() for mine in held)
        case K.REDUCE:
            assert joined(held[0], every) == total.tolist()
        case K.BROADCAST:
            assert all(joined(mine, every) == given[0].tolist() for mine in held)
        case K.REDUCE_SCATTER:
            assert all(joined(held[i], every[i * own : (i + 1) * own]) == total[share[i]].tolist() for i in range(ranks))
        case K.ALL_GATHER:
            assert all(joined(mine, every) == gathered for mine in held)
        case K.GATHER:
            assert joined(held[0], every) == gathered
        case K.SCATTER:
            assert all(joined(held[i], every[i * own : (i + 1) * own]) == given[0][share[i]].tolist() for i in range(ranks))
        case K.SHIFT:
            assert all(joined(held[i + 1], range(i, i + 1)) == given[i][share[i]].tolist() for i in range(ranks - 1))
        case K.ALL_TO_ALL:
            each = own // ranks
            block = -(-size // own) * each
            for i in range(ranks):
                for j in range(ranks):
                    came = joined(held[j], range((i * ranks + j) * each, (i * ranks + j + 1) * each))
                    assert came == given[i][j * block : (j + 1) * block].tolist()
        case Pattern.POINT_TO_POINT:
            assert joined(held[-1], every) == given[0].tolist()
        case Pattern.BARRIER:
            assert all(len(mine[0]) == 0 for mine in held)


def agree(run: SimulatedRun, found: Evaluation) -> None:
    assert found.time == pytest.approx(run.time, rel=1e-12)
    assert found.link_bytes.tolist() == list(run.link_bytes)
    assert found.busiest == run.busiest
    assert found.byte_hops == sum(run.link_bytes)


def tables(draw: random.Random, ranks: int) -> Iterator[tuple[Kind, str, Setting]]:
    for name, item in ALGORITHMS.items():
        for kind in item.kinds:
            if item.unfit(kind, ranks) is None:
                yield kind, name, Setting(ranks, item.chunks(kind, ranks, draw.randint(1, 5)), draw.random() < 0.5)


# --- the simulator against NumPy, the evaluator and its lines against the simulator ---

NETWORKS = (T.LINE, T.RING, T.FULL, T.SWITCH, T.FAT_TREE)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 8, 9])
def test_every_algorithm_on_every_network(ranks: int) -> None:
    draw, seen = random.Random(ranks), 0
    for topology in NETWORKS:
        if topology is T.FAT_TREE and ranks % 2:
            continue
        graph = build(able(topology, ranks, Link(draw.uniform(1, 9), draw.uniform(0, 3), 2.0, overhead=draw.choice([0.0, 0.4]))))
        for kind, name, setting in tables(draw, ranks):
            table = ALGORITHMS[name].make[kind](setting) if ranks > 1 else ()
            try:
                laid = layout(graph, kind, table, setting.chunks)
            except BadInput:
                assert ALGORITHMS[name].network  # no switches there, or ranks between that cannot add
                continue
            for size in {1, ranks, ranks + 1, draw.randint(1, 120)}:
                given, startup = vectors(draw, ranks, size), draw.choice([0.0, 0.7])
                run = simulate(graph, table, initial_chunks(kind, given, setting.chunks), np.add, startup)
                check_values(kind, given, run.held, setting.chunks)
                found = evaluate(laid, laid.sizes(size), startup)
                agree(run, found)
                if kind is Pattern.BARRIER or size % laid.cut == 0:
                    line = line_of(laid, Schedule(name), startup)
                    assert line.time(size) == pytest.approx(run.time, rel=1e-12)
                assert found.energy == pytest.approx(2.0 * float(sum(run.link_bytes)))
                seen += 1
    assert seen > 250


def test_a_maximum_combines_like_a_sum() -> None:
    draw = random.Random(3)
    for ranks in (4, 7):
        graph = build(able(T.SWITCH, ranks, Link(2.0)))
        for kind, name, setting in tables(draw, ranks):
            if kind in (K.ALL_REDUCE, K.REDUCE, K.REDUCE_SCATTER):
                given = vectors(draw, ranks, 50)
                run = simulate(
                    graph, ALGORITHMS[name].make[kind](setting), initial_chunks(kind, given, setting.chunks), np.maximum
                )
                check_values(kind, given, run.held, setting.chunks, np.maximum)


def random_graph(draw: random.Random, ranks: int) -> Graph:
    """A connected graph of unequal links, with a switch or two on the way."""
    vertices = ranks + draw.randint(0, 2)
    order = draw.sample(range(vertices), vertices)
    ways = {(order[i], order[draw.randrange(i)]) for i in range(1, vertices)}
    ways |= {(draw.randrange(vertices), draw.randrange(vertices)) for _ in range(vertices)}
    pairs = sorted({pair for a, b in ways if a != b for pair in ((a, b), (b, a))})
    speeds, delays, busy = [1.0, 2.5, 4.0], [0.0, 0.5, 1.25], [0.0, 0.25]
    links = [Link(draw.choice(speeds), draw.choice(delays), 1.0, overhead=draw.choice(busy)) for _ in pairs]
    edges = tuple(Edge(a, b, link) for (a, b), link in zip(pairs, links, strict=True))
    return Graph("random", ranks, edges, tuple(Switch(f"s{i}") for i in range(vertices - ranks)))


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_with_unequal_links(seed: int) -> None:
    draw = random.Random(seed)
    ranks = draw.randint(2, 7)
    graph = random_graph(draw, ranks)
    for kind, name, setting in tables(draw, ranks):
        if ALGORITHMS[name].network:
            continue
        table = ALGORITHMS[name].make[kind](setting)
        laid, size = layout(graph, kind, table, setting.chunks), draw.randint(1, 90)
        given = vectors(draw, ranks, size)
        run = simulate(graph, table, initial_chunks(kind, given, setting.chunks))
        check_values(kind, given, run.held, setting.chunks)
        agree(run, evaluate(laid, laid.sizes(size)))
        if kind is not Pattern.BARRIER:
            whole = laid.cut * draw.randint(1, 9)
            assert line_of(laid, Schedule(name)).time(whole) == pytest.approx(evaluate(laid, laid.sizes(whole)).time, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_several_dimensions(seed: int) -> None:
    draw = random.Random(seed)
    links = [Link(draw.uniform(1, 5), draw.uniform(0, 1), overhead=draw.uniform(0, 1)) for _ in range(3)]
    kinds = draw.sample([T.LINE, T.RING, T.FULL, T.SWITCH], 3)
    axes = tuple(Axis(f"d{d}", draw.randint(2, 3), kinds[d], links[d]) for d in range(draw.randint(2, 3)))
    graph, shape = product(axes), tuple(item.size for item in axes)
    for kind in SERVED:
        plan = drawn_plan(draw, kind, shape, draw.randint(1, 2), draw.randint(1, 2))
        chunks, size = plan.chunks(kind), draw.randint(1, 150)
        given = vectors(draw, plan.ranks, size)
        run = simulate(graph, plan.steps(kind), initial_chunks(kind, given, chunks))
        check_values(kind, given, run.held, chunks)
        laid = layout(graph, kind, plan.steps(kind), chunks)
        agree(run, evaluate(laid, laid.sizes(size)))


@pytest.mark.parametrize("kind", [K.ALL_REDUCE, K.ALL_GATHER, K.REDUCE_SCATTER])
def test_switches_add_in_each_of_several_dimensions(kind: CollectiveKind) -> None:
    """Multicast along both dimensions in one piece and in several; the last one's all-reduce fetched from its switch."""
    draw = random.Random(str(kind))
    axes = tuple(
        Axis(name, size, T.SWITCH, Link(2.0, 0.5, overhead=0.25), multicast=True, reduction=True, on_request=True)
        for name, size in (("node", 2), ("gpu", 3))
    )
    graph = product(axes)
    ways = [phases(kind, (1, 0)), *other_phases(kind, (1, 0))]
    for way, pieces in itertools.product(ways, (1, 3)):
        runs = tuple(Run(phase, "pulled" if phase.kind is K.ALL_REDUCE else "multicast") for phase in way)
        plan = Phased((2, 3), (Part(Fraction(1), runs),), pieces)
        chunks = plan.chunks(kind)
        for size in (1, 17, 360):
            given = vectors(draw, plan.ranks, size)
            run = simulate(graph, plan.steps(kind), initial_chunks(kind, given, chunks))
            check_values(kind, given, run.held, chunks)
            laid = layout(graph, kind, plan.steps(kind), chunks)
            agree(run, evaluate(laid, laid.sizes(size)))


def test_multi_path_shares_bytes_evenly() -> None:
    graph = build(axis(T.TORUS, 16, Link(2.0, 1.0), shape=(4, 4), multipath=True))
    for name in ("direct", "bruck"):
        table = ALGORITHMS[name].make[K.ALL_TO_ALL](Setting(16, 256))
        run = simulate(graph, table, initial_chunks(K.ALL_TO_ALL, vectors(random.Random(1), 16, 37), 256))
        laid = layout(graph, K.ALL_TO_ALL, table, 256)
        found = evaluate(laid, laid.sizes(37))
        assert found.time == pytest.approx(run.time, rel=1e-12)
        assert found.link_bytes == pytest.approx([float(b) for b in run.link_bytes], rel=1e-12)


def test_uneven_all_to_all() -> None:
    """Blocks of any sizes, as tokens of experts are."""
    draw = random.Random(5)
    graph, ranks = build(axis(T.RING, 5, Link(2.0, 1.0))), 5
    counts = np.array([[draw.randrange(9) for _ in range(ranks)] for _ in range(ranks)])
    for name in ("direct", "pairwise", "bruck", "bruck-4", "store-and-forward"):
        table = ALGORITHMS[name].make[K.ALL_TO_ALL](Setting(ranks, ranks * ranks))
        held: Held = [{i * ranks + j: np.full(counts[i, j], 10 * i + j) for j in range(ranks)} for i in range(ranks)]
        run = simulate(graph, table, held)
        for i in range(ranks):
            for j in range(ranks):
                assert run.held[j][i * ranks + j].tolist() == [10 * i + j] * counts[i, j]
        agree(run, evaluate(layout(graph, K.ALL_TO_ALL, table, ranks * ranks), counts.ravel()))


# --- closed forms against the simulator ---

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)


def drawn_size(draw: random.Random, ranks: int) -> int:
    """Often where chunks are unequal or empty."""
    return max(1, draw.choice([1, ranks - 1, ranks, ranks + 1, draw.randint(1, 40), draw.randint(1, 400)]))


@pytest.mark.parametrize("topology", [T.FULL, T.SWITCH, T.RING, T.LINE, T.HYPERCUBE])
def test_closed_forms_equal_the_simulator(topology: Topology) -> None:
    """Thousands of draws of (kind, algorithm, ranks, chunks, size): bytes to the bit, times to rounding."""
    draw, seen = random.Random(str(topology)), 0
    forms = [(kind, name, form) for (kind, name, where), form in FORMS.items() if where is topology]
    while seen < 600:
        kind, name, form = draw.choice(forms)
        ranks, item = draw.choice(SIZES), ALGORITHMS[name]
        if item.unfit(kind, ranks) or (topology is T.HYPERCUBE and ranks & (ranks - 1)):
            continue
        link = Link(draw.uniform(0.5, 9), draw.uniform(0, 3), overhead=draw.choice([0.0, draw.uniform(0, 1)]))
        startup = draw.choice([0.0, draw.uniform(0, 2)])
        graph = build(able(topology, ranks, link))
        chunks, size = item.chunks(kind, ranks, draw.randint(1, 9)), drawn_size(draw, ranks)
        table = item.make[kind](Setting(ranks, chunks, topology is T.LINE))
        held = initial_chunks(kind, [np.zeros(size, dtype=np.int8)] * ranks, chunks)
        run = simulate(graph, table, held, startup=startup)
        where = (kind, name, ranks, chunks, size)
        assert form.bytes(ranks, chunks, size) == run.busiest, where
        assert form.time(ranks, chunks, size, link, startup) == pytest.approx(run.time, rel=1e-12), where
        seen += 1


def test_every_closed_form_is_reached() -> None:
    """None of them is out of the draws' reach."""
    for kind, name, _ in FORMS:
        assert any(ALGORITHMS[name].unfit(kind, ranks) is None for ranks in SIZES)


# --- published totals ---


def cost(graph: Graph, kind: Kind, name: str, size: int, pieces: int = 1) -> Evaluation:
    chunks = ALGORITHMS[name].chunks(kind, graph.ranks, pieces)
    laid = layout(graph, kind, ALGORITHMS[name].make[kind](Setting(graph.ranks, chunks)), chunks)
    return evaluate(laid, laid.sizes(size))


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_byte_hops_of_rings(ranks: int) -> None:
    """2 (n - 1) S for an all-reduce on a ring, half of it for its halves."""
    ring, size = build(axis(T.RING, ranks, Link(1.0))), 16 * ranks
    assert cost(ring, K.ALL_REDUCE, "ring", size).byte_hops == 2 * (ranks - 1) * size
    assert cost(ring, K.ALL_GATHER, "ring", size).byte_hops == (ranks - 1) * size


@pytest.mark.parametrize("side", [4, 8])
def test_byte_hops_of_a_direct_exchange_on_a_mesh(side: int) -> None:
    """n S 2 (k^2 - 1) / (3 k): the mean distance on a k x k mesh, for an all-to-all; twice that for a direct all-reduce."""
    ranks = side * side
    mesh, size = build(axis(T.MESH, ranks, Link(1.0), shape=(side, side))), 3 * ranks
    expected = Fraction(2 * ranks * size * (side * side - 1), 3 * side)
    assert cost(mesh, K.ALL_TO_ALL, "direct", size).byte_hops == expected
    assert cost(mesh, K.ALL_REDUCE, "direct", size).byte_hops == 2 * expected


def test_byte_hops_of_halving_on_a_mesh() -> None:
    """n S lg k (1 + 1/k) on k x k where near ranks get the large halves; n S lg n on a line. The other way round costs more."""
    for side, times in ((4, 40), (8, 216)):
        mesh = build(axis(T.MESH, side * side, Link(1.0), shape=(side, side)))
        size = 10 * side * side
        assert cost(mesh, K.ALL_REDUCE, "near-halving", size).byte_hops == times * size
        assert cost(mesh, K.ALL_REDUCE, "halving", size).byte_hops > times * size
    line = build(axis(T.LINE, 16, Link(1.0)))
    assert cost(line, K.ALL_REDUCE, "near-halving", 160).byte_hops == 16 * 4 * 160


@pytest.mark.parametrize("ranks", [7, 8, 16, 17])
def test_bandwidth_of_pipelined_trees(ranks: int) -> None:
    """With many pieces a double tree tends to 2 S on one port, a single tree to 2 S for a broadcast and 4 S for an all-reduce."""
    switch, size = build(able(T.SWITCH, ranks, Link(1.0))), 10**6
    for name, kind, limit in (("double-tree", K.ALL_REDUCE, 2), ("tree", K.BROADCAST, 2), ("tree", K.ALL_REDUCE, 4)):
        few, many = (cost(switch, kind, name, size, pieces).time / size for pieces in (32, 256))
        assert limit <= many < few
        assert many == pytest.approx(limit, rel=0.04)


@pytest.mark.parametrize("ranks", [4, 8])
def test_in_network_reduction(ranks: int) -> None:
    """Where switches add of themselves, every link carries the vector once; where ranks fetch the sum of their share and
    multicast it, their own copies among all others, S (1 + 1 / n), towards which pieces tend."""
    switch, size = build(able(T.SWITCH, ranks, Link(1.0))), 10**6
    at_once = cost(switch, K.ALL_REDUCE, "in-network", size)
    assert at_once.time == size
    assert set(at_once.link_bytes.tolist()) == {size}
    pulled = [cost(switch, K.ALL_REDUCE, "pulled", size, pieces).time for pieces in (1, 8, 64)]
    assert pulled == sorted(pulled, reverse=True)
    assert pulled[-1] == pytest.approx(size * (1 + 1 / ranks), rel=0.02)
    links = cost(switch, K.ALL_REDUCE, "pulled", size, 8).link_bytes
    assert set(links.tolist()) == {size * (1 + 1 / ranks)}


def test_switches_that_add_on_request_give_a_sum_to_one() -> None:
    """Sums are fetched, shares gathered; a sum is not sent on to all in one go."""
    nvswitch = build(replace(able(T.SWITCH, 4, Link(1.0)), on_request=True))
    assert cost(nvswitch, K.ALL_REDUCE, "pulled", 4000, 4).time == 5750
    assert cost(nvswitch, K.REDUCE_SCATTER, "multicast", 4000).time == 3000
    with pytest.raises(BadInput, match=r"gives a sum to several; got switch, which adds on request; use .* pulled"):
        cost(nvswitch, K.ALL_REDUCE, "in-network", 4000)


# --- what cannot be simulated ---


def test_transfers_without_meaning_are_refused() -> None:
    ring = build(axis(T.RING, 3, Link(1.0)))
    held: Held = [{0: np.zeros(1)}, {}, {}]
    with pytest.raises(InternalError, match="a source that holds the chunk"):
        simulate(ring, ((Transfer(1, 2, 0, False),),), held)
    with pytest.raises(InternalError, match="a copy at the target"):
        simulate(ring, ((Transfer(0, 2, 0, True),),), held)


def shared(*pairs: tuple[int, int], combine: bool = False) -> Steps:
    return (tuple(Transfer(a, b, 0, combine, True) for a, b in pairs),)


@pytest.mark.parametrize(
    ("topology", "more", "table", "message"),
    [
        (T.SWITCH, "", shared((0, 1), (0, 2)), "sends one arrival on to several .multicast.; got switch"),
        (T.SWITCH, "multicast", shared((1, 0), (2, 0), combine=True), "adds what arrives .reduction.; got switch"),
        (T.LINE, "", shared((0, 1), (0, 2)), "multicast.; got rank 1"),
        (T.SWITCH, "multicast and reduction", shared((1, 0), (2, 0)), "one sum on link"),
    ],
)
def test_switches_do_only_what_they_can(topology: Topology, more: str, table: Steps, message: str) -> None:
    item = replace(able(topology, 4, Link(1.0)), multicast="multicast" in more, reduction="reduction" in more)
    with pytest.raises(BadInput, match=message):
        layout(build(item), K.BROADCAST, table, 1)


def test_one_link_carries_one_sum() -> None:
    """Two messages over the link between two switches are not one, however able these are."""
    switches = (Switch("left", True, True), Switch("right", True, True))
    ways = ((0, 4), (1, 4), (4, 5), (5, 2), (5, 3))
    dumbbell = Graph("dumbbell", 4, tuple(Edge(*ends, Link(1.0)) for a, b in ways for ends in ((a, b), (b, a))), switches)
    with pytest.raises(BadInput, match="one sum on link 4"):
        layout(dumbbell, K.BROADCAST, shared((0, 2), (1, 3), combine=True), 1)
    assert layout(dumbbell, K.BROADCAST, shared((0, 2), (1, 2), combine=True), 1).counts.sum() == 4


def test_kinds_have_open_and_fixed_cuts() -> None:
    """The draws above cover each way to cut a payload."""
    cuts = {item.cut(kind) for item in ALGORITHMS.values() for kind in item.kinds if kind in WHOLE}
    assert cuts == set(ChunkRule)
    assert {kind for item in ALGORITHMS.values() for kind in item.kinds} == set(KINDS)
