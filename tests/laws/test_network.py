"""Laws of collectives on networks: every table keeps its promise, every count is conserved, no table beats a lower bound."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from halley.errors import BadInput, InternalError
from halley.ir.hardware import CHIP_TOPOLOGIES, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import Steps, Transfer, chunk_count, chunk_sizes, verify
from halley.network.time.axis import Profile, algorithms, profile, route, steps

Kind = CollectiveKind
SIZES = range(1, 18)
WHOLE = (Kind.ALL_REDUCE, Kind.REDUCE, Kind.BROADCAST)


def cases(sizes: range) -> Iterator[tuple[Kind, str, Topology, int]]:
    """Every table that fits, by (kind, algorithm, topology, size)."""
    for kind, topology, size in itertools.product(Kind, CHIP_TOPOLOGIES, sizes):
        for name in algorithms(kind, topology, size):
            yield kind, name, topology, size


some_case = st.sampled_from(list(cases(range(2, 10))))


def neighbours(topology: Topology, size: int) -> set[tuple[int, int]]:
    """Directed links, from the definition of the topology."""
    match topology:
        case Topology.FULL:
            one_way = {(i, j) for i in range(size) for j in range(size) if i < j}
        case Topology.LINE:
            one_way = {(i, i + 1) for i in range(size - 1)}
        case Topology.RING:
            one_way = {(i, (i + 1) % size) for i in range(size)} if size > 1 else set()
    return one_way | {(j, i) for i, j in one_way}


def distances(topology: Topology, size: int, source: int) -> dict[int, int]:
    """Hops to every member, by breadth-first search."""
    links, found, queue = neighbours(topology, size), {source: 0}, deque([source])
    while queue:
        here = queue.popleft()
        for i, j in links:
            if i == here and j not in found:
                found[j] = found[here] + 1
                queue.append(j)
    return found


# --- the tables keep their promise ---


@pytest.mark.parametrize("size", SIZES)
def test_every_table_keeps_its_promise(size: int) -> None:
    for kind, name, topology, _ in cases(range(size, size + 1)):
        verify(kind, steps(kind, name, topology, size), size)


def test_every_algorithm_serves_each_of_its_kinds_and_topologies() -> None:
    seen = {(kind, name, topology) for kind, name, topology, _ in cases(range(2, 18))}
    promised = {
        (kind, item.name, topology)
        for item in ALGORITHMS.values()
        for kind in item.kinds
        for topology in item.topologies
        if isinstance(kind, Kind) and not item.network
    }
    assert seen == promised


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
def test_every_kind_has_an_algorithm_on_every_axis(kind: Kind, topology: Topology) -> None:
    assert all(algorithms(kind, topology, size) for size in SIZES)


def test_one_member_has_nothing_to_do() -> None:
    for kind, name, topology, size in cases(range(1, 2)):
        assert steps(kind, name, topology, size) == ()
        assert profile(kind, name, topology, size) == Profile(0, 0, (), (), (0,), (0,), (0,), ())


@pytest.mark.parametrize("size", range(2, 7))
def test_no_transfer_can_be_left_out(size: int) -> None:
    """The tables are lean, and `verify` sees what is missing."""
    for kind, name, topology, _ in cases(range(size, size + 1)):
        table = steps(kind, name, topology, size)
        for at, step in enumerate(table):
            for gone in step:
                rest = tuple(t for t in step if t != gone)
                with pytest.raises(InternalError):
                    verify(kind, (*table[:at], rest, *table[at + 1 :]), size)


@given(some_case, st.data())
def test_verify_sees_a_wrong_way_to_arrive(case: tuple[Kind, str, Topology, int], data: st.DataObject) -> None:
    table = list(steps(*case))
    at = data.draw(st.integers(0, len(table) - 1))
    chosen = data.draw(st.sampled_from(table[at]))
    flipped = chosen._replace(combine=not chosen.combine)
    # a member that has already given its part away may as well be overwritten
    gave = any(t.source == chosen.target and t.chunk == chosen.chunk for step in table[:at] for t in step)
    assume(not gave)
    table[at] = tuple(flipped if t == chosen else t for t in table[at])
    with pytest.raises(InternalError):
        verify(case[0], tuple(table), case[3])


@given(some_case, st.data())
def test_verify_sees_a_contribution_that_counts_twice(case: tuple[Kind, str, Topology, int], data: st.DataObject) -> None:
    table = steps(*case)
    combining = [at for at, step in enumerate(table) if any(t.combine for t in step)]
    assume(combining)
    at = data.draw(st.sampled_from(combining))
    with pytest.raises(InternalError):
        verify(case[0], (*table[: at + 1], table[at], *table[at + 1 :]), case[3])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (((Transfer(0, 0, 0, True),),), "another member"),
        (((Transfer(0, 3, 0, True),),), "another member"),
        (((Transfer(5, 0, 0, True),),), "holds the chunk"),
        (((Transfer(0, 1, 7, True),),), "holds the chunk"),
        (((Transfer(0, 1, 0, False), Transfer(2, 1, 0, False)),), "one arrival"),
        (((Transfer(0, 1, 0, False), Transfer(2, 1, 0, True)),), "one arrival"),
        (((Transfer(0, 1, 0, True), Transfer(2, 1, 0, False)),), "one arrival"),
    ],
)
def test_verify_refuses_transfers_without_meaning(table: Steps, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(Kind.ALL_REDUCE, table, 3)


def test_verify_refuses_to_combine_with_nothing() -> None:
    with pytest.raises(InternalError, match="combine with"):
        verify(Kind.ALL_GATHER, ((Transfer(0, 1, 0, True),),), 2)


# --- routes ---


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
@pytest.mark.parametrize("size", range(1, 10))
def test_routes_are_shortest_paths_over_links_that_exist(topology: Topology, size: int) -> None:
    links = neighbours(topology, size)
    for source in range(size):
        for target, distance in distances(topology, size, source).items():
            path = route(topology, size, source, target)
            assert len(path) == distance
            assert set(path) <= links
            assert [i for i, _ in path] + [target] == [source] + [j for _, j in path]


def test_ring_ties_go_up() -> None:
    assert route(Topology.RING, 4, 3, 1) == ((3, 0), (0, 1))
    assert route(Topology.RING, 4, 1, 3) == ((1, 2), (2, 3))


def test_a_route_needs_members() -> None:
    with pytest.raises(BadInput, match="members 0 to 3; got 4"):
        route(Topology.LINE, 4, 0, 4)
    with pytest.raises(BadInput, match="got -1"):
        route(Topology.FULL, 4, -1, 0)


# --- profiles count what the tables say ---


def test_profiles_conserve_transfers_and_hops() -> None:
    for case in cases(range(1, 11)):
        kind, _, topology, size = case
        shape, table = profile(*case), steps(*case)
        away = [distances(topology, size, source) for source in range(size)]
        for chunk in range(chunk_count(kind, size)):
            moved = [t for step in table for t in step if t.chunk == chunk]
            assert shape.sends[chunk] == shape.receives[chunk] == len(moved)
            assert shape.combines[chunk] == sum(t.combine for t in moved)
            assert sum(row[chunk] for row in shape.crossings) == sum(away[t.source][t.target] for t in moved)
        assert shape.hops == sum(max(away[t.source][t.target] for t in step) for step in table)
        assert set(shape.links) <= neighbours(topology, size)
        assert all(any(row) for row in shape.crossings)


@given(some_case, st.data())
def test_bytes_on_the_busiest_links_equal_a_replay(case: tuple[Kind, str, Topology, int], data: st.DataObject) -> None:
    kind, _, topology, size = case
    count = chunk_count(kind, size)
    sizes = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    if kind is not Kind.ALL_TO_ALL:
        sizes.sort(reverse=True)  # chunks are cut off a payload one after the other
    expected = 0
    for step in steps(*case):
        load: dict[tuple[int, int], int] = defaultdict(int)
        for t in step:
            for link in route(topology, size, t.source, t.target):
                load[link] += sizes[t.chunk]
        expected += max(load.values())
    shape = profile(*case)
    assert shape.busiest_bytes(sizes.__getitem__) == expected
    assert expected <= shape.load * max(sizes)
    arrays = [np.array([s, 2 * s], np.float64) for s in sizes]
    assert (shape.busiest_bytes(arrays.__getitem__) == np.array([expected, 2 * expected])).all()


def test_load_is_the_bytes_on_the_busiest_links_for_equal_chunks() -> None:
    for case in cases(range(2, 11)):
        shape = profile(*case)
        assert shape.busiest_bytes(lambda _: 3) == 3 * shape.load


def test_all_gather_and_reduce_scatter_are_each_other_backwards() -> None:
    for topology, size in itertools.product(CHIP_TOPOLOGIES, SIZES):
        for name in ("ring", "bidirectional", "direct"):
            if name in algorithms(Kind.ALL_GATHER, topology, size):
                gather, scatter = (profile(kind, name, topology, size) for kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER))
                both = profile(Kind.ALL_REDUCE, name, topology, size)
                assert (gather.sends, gather.hops) == (scatter.sends, scatter.hops)
                assert both.hops == gather.hops + scatter.hops
                assert both.load == gather.load + scatter.load


# --- nothing beats physics ---


def leaving(kind: Kind, inside: set[int], size: int) -> int:
    """Chunks of which at least one copy has to leave a set of members."""
    outside = size - len(inside)
    match kind:
        case Kind.ALL_GATHER:
            return len(inside)
        case Kind.REDUCE_SCATTER:
            return outside
        case Kind.ALL_REDUCE:
            return size
        case Kind.ALL_TO_ALL:
            return len(inside) * outside
        case Kind.BROADCAST:
            return size if 0 in inside else 0
        case Kind.REDUCE:
            return size if 0 not in inside else 0
        case Kind.SCATTER:
            return outside if 0 in inside else 0
        case Kind.GATHER:
            return len(inside) if 0 not in inside else 0
        case Kind.SHIFT:
            return sum(1 for i in inside if i + 1 < size and i + 1 not in inside)


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
@pytest.mark.parametrize("size", range(2, 8))
def test_no_table_beats_a_cut_or_the_diameter(topology: Topology, size: int) -> None:
    links = neighbours(topology, size)
    cuts = [set(cut) for count in range(1, size) for cut in itertools.combinations(range(size), count)]
    diameter = max(max(distances(topology, size, i).values()) for i in range(size))
    for kind in Kind:
        # load x links out of the cut >= chunks that have to leave it
        needed = [(leaving(kind, cut, size), sum(1 for i, j in links if i in cut and j not in cut)) for cut in cuts]
        for name in algorithms(kind, topology, size):
            shape = profile(kind, name, topology, size)
            assert all(shape.load * width >= chunks for chunks, width in needed)
            if kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
                assert shape.hops >= diameter
            if kind is Kind.ALL_REDUCE:
                assert all(sends >= 2 * (size - 1) for sends in shape.sends)
                assert shape.load * len(links) >= 2 * (size - 1) * size


# --- chunks ---


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_chunks_cover_the_payload_and_never_grow(elements: int, size: int) -> None:
    sizes = chunk_sizes(elements, size)
    assert len(sizes) == size
    assert sum(sizes) == elements
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == -(-elements // size)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=5), st.integers(1, 20))
def test_chunks_of_an_array_are_the_chunks_of_its_entries(elements: list[int], size: int) -> None:
    batch = chunk_sizes(np.array(elements, np.float64), size)
    assert np.array(batch).T.tolist() == [chunk_sizes(item, size) for item in elements]


# --- wrong input ---


@pytest.mark.parametrize(
    ("kind", "name", "topology", "size", "message"),
    [
        (Kind.ALL_REDUCE, "rng", Topology.LINE, 4, "did you mean 'ring'"),
        (Kind.ALL_REDUCE, "doubling", Topology.LINE, 6, "expected a power of two; got 6; use one of: .*ring"),
        (Kind.SHIFT, "ring", Topology.LINE, 6, "got shift; use one of: neighbour"),
        (Kind.ALL_REDUCE, "ring", Topology.FULL, 6, "a topology among line, ring; got full"),
        (Kind.ALL_REDUCE, "one-shot", Topology.FULL, 65, "at most 64"),
        (Kind.ALL_REDUCE, "ring", Topology.LINE, 0, "at least 1; got 0"),
        (Kind.ALL_REDUCE, "ring", Topology.LINE, 2.5, "whole number of members"),
    ],
)
def test_what_does_not_fit_is_refused(kind: Kind, name: str, topology: Topology, size: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        steps(kind, name, topology, size)
    if isinstance(size, int) and size > 0:
        assert name not in algorithms(kind, topology, size)


def test_every_algorithm_tells_what_it_does() -> None:
    for name, item in ALGORITHMS.items():
        assert name == item.name
        sentence, _, source = item.description.partition(" (")
        assert not sentence.endswith(".")
        assert len(sentence) > 20
        assert len(source) > 10
        assert source.endswith(").")
