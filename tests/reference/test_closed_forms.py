"""Time as a function of the payload, for every pair of algorithm and topology, against the step simulator.

Bytes agree to the bit, times to 1e-12. The simulator moves real arrays and shares no code with what it judges but the routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.circuits import Circuits
from halley.network.algorithms.hierarchical import SERVED, Hierarchy, phase_kind
from halley.network.algorithms.tables import KINDS, Kind, Pattern, verify
from halley.network.graph.groups import Group
from halley.network.time.choice import chosen
from halley.network.time.collective import Collective, price, team_of
from halley.network.time.curve import summed
from halley.network.time.dimension_forms import dimension_form
from halley.network.time.schedules import Schedule, is_line, laid_out, schedules
from halley.network.time.simulate import Run, deal, simulate

K, T = CollectiveKind, Topology
ONE, FAR = Link(3.0, 0.25, overhead=0.5), Link(0.7, 1.5, overhead=0.125)
ABLE = {"multicast": True, "reduction": True}


def alike(axes: tuple[Axis, ...]) -> bool:
    """Whether all links have one bandwidth, so that bytes are whole numbers."""
    links = [link for axis in axes for link in (axis.link, axis.upper, axis.top) if link]
    return len({link.bandwidth for link in links}) == 1 and not any(axis.multipath or axis.topology is T.DGX_1 for axis in axes)


@cache
def table(team: Group, kind: Kind, schedule: Schedule) -> tuple[tuple[object, ...], int]:
    ranks = team.graph.ranks
    return schedule.steps(kind, ranks, is_line(team)), schedule.chunks(kind, ranks)


def run_of(team: Group, kind: Kind, schedule: Schedule, size: int, startup: float) -> Run:
    steps, chunks = table(team, kind, schedule)
    held = deal(kind, [np.zeros(size, dtype=np.int8)] * team.graph.ranks, chunks)
    return simulate(team.graph, steps, held, startup=startup)  # type: ignore[arg-type]


def check(axes: tuple[Axis, ...], kind: Kind, schedule: Schedule, size: int, startup: float) -> None:
    team = team_of(axes)
    of, run = price(kind, team, schedule, startup), run_of(team, kind, schedule, size, startup)
    assert of(size) == pytest.approx(run.time, rel=1e-12)
    assert of(np.array([size, 1.0]))[0] == pytest.approx(run.time, rel=1e-12)
    if alike(axes):
        assert of.bytes(size) == run.busiest
        assert of.bytes(np.array([size, 1.0]))[0] == run.busiest


sizes = st.integers(1, 40) | st.integers(1, 500)
startups = st.sampled_from([0.0, 0.6])


# --- every pair that a network offers ---

NETWORKS: dict[str, tuple[Axis, ...]] = {
    "line": (Axis("x", 5, T.LINE, ONE),),
    "ring": (Axis("x", 6, T.RING, ONE),),
    "one-way ring": (Axis("x", 5, T.RING, ONE, one_way=True),),
    "full": (Axis("x", 6, T.FULL, ONE),),
    "switch": (Axis("x", 5, T.SWITCH, ONE, **ABLE),),
    "switch on request": (Axis("x", 4, T.SWITCH, ONE, **ABLE, on_request=True),),
    "mesh": (Axis("x", 6, T.MESH, ONE, shape=(2, 3)),),
    "torus": (Axis("x", 12, T.TORUS, ONE, shape=(3, 4)),),
    "3-D torus": (Axis("x", 12, T.TORUS, ONE, shape=(2, 2, 3)),),
    "multipath torus": (Axis("x", 8, T.TORUS, ONE, shape=(2, 4), multipath=True),),
    "hypercube": (Axis("x", 8, T.HYPERCUBE, ONE),),
    "pair": (Axis("x", 2, T.HYPERCUBE, ONE),),
    "one row": (Axis("x", 5, T.MESH, ONE, shape=(1, 5)),),
    "dragonfly": (Axis("x", 12, T.DRAGONFLY, ONE, shape=(2, 2, 1), upper=FAR, top=ONE),),
    "equal dragonfly": (Axis("x", 6, T.DRAGONFLY, ONE, shape=(2, 1, 1)),),
    "fat-tree": (Axis("x", 8, T.FAT_TREE, ONE, shape=(4, 2), upper=FAR, **ABLE),),
    "3-level fat-tree": (Axis("x", 8, T.FAT_TREE, ONE, shape=(2, 2, 2, 2)),),
    "DGX-1": (Axis("x", 8, T.DGX_1, ONE),),
    "pods": (Axis("node", 3, T.SWITCH, FAR), Axis("gpu", 4, T.SWITCH, ONE, **ABLE)),
    "equal pods": (Axis("node", 2, T.SWITCH, ONE, **ABLE), Axis("gpu", 3, T.SWITCH, ONE, **ABLE)),
    "pods of rings": (Axis("pod", 3, T.FULL, FAR), Axis("x", 4, T.RING, ONE)),
    "product": (Axis("x", 2, T.LINE, ONE), Axis("y", 3, T.RING, ONE), Axis("z", 2, T.FULL, ONE)),
    "cubes": (Axis("rail", 2, T.SWITCH, ONE), Axis("cube", 4, T.HYPERCUBE, ONE)),
}


@cache
def offered(name: str) -> list[tuple[Kind, Schedule]]:
    team = team_of(NETWORKS[name])
    every = [(kind, schedule) for kind in KINDS if kind is not Pattern.BARRIER for schedule in schedules(kind, team, 240, 0.1)]
    return [(kind, schedule) for kind, schedule in every if len(table(team, kind, schedule)[0]) < 80]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_every_pair_equals_the_simulator(data: st.DataObject) -> None:
    check_pair(data)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None)
@given(st.data())
def test_every_pair_equals_the_simulator_thousands_of_times(data: st.DataObject) -> None:
    check_pair(data)


def check_pair(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(NETWORKS)))
    kind, schedule = data.draw(st.sampled_from(offered(name)))
    check(NETWORKS[name], kind, schedule, data.draw(sizes), data.draw(startups))


def test_most_pairs_of_every_kind_of_network_are_in_reach() -> None:
    """What the draws leave out for the simulator's sake: only long pipelines."""
    for name, axes in NETWORKS.items():
        team = team_of(axes)
        kinds = [kind for kind in KINDS if kind is not Pattern.BARRIER]
        every = {(kind, item.algorithm) for kind in kinds for item in schedules(kind, team, 240, 0.1) if item.pieces == 1}
        assert {pair for pair in every if isinstance(pair[1], str)} <= {(kind, item.algorithm) for kind, item in offered(name)}


# --- closed forms over dimensions: any algorithm along each, in any order ---


links = st.builds(Link, st.sampled_from([2.0, 2.0, 0.3, 5.0]), st.floats(0, 3), overhead=st.floats(0, 3))


@st.composite
def shapes(draw: st.DrawFn, topology: Topology) -> tuple[tuple[int, ...], int]:
    """The shape of an axis, and its size."""
    few, some = st.integers(1, 2), st.integers(2, 3)
    match topology:
        case T.MESH | T.TORUS:
            shape = (draw(some), draw(some))
            return shape, shape[0] * shape[1]
        case T.HYPERCUBE:
            return (), draw(st.sampled_from([2, 4, 8]))
        case T.FAT_TREE:
            leaf, leaves, spines = draw(some), draw(some), draw(st.integers(1, 3))
            if draw(st.booleans()):
                return (leaf, spines), leaf * leaves
            return (leaf, leaves, spines, spines * draw(few)), leaf * leaves * draw(few)
        case T.DRAGONFLY:
            routers, hosts, outlets = draw(st.integers(1, 3)), draw(few), draw(few)
            return (routers, hosts, outlets), routers * hosts * (routers * outlets + 1)
        case _:
            return (), draw(st.integers(2, 7))


@st.composite
def products(draw: st.DrawFn) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for name in "xyz"[: draw(st.integers(1, 3))]:
        topology = draw(st.sampled_from([item for item in T if item is not T.DGX_1]))
        shape, size = draw(shapes(topology))
        link, upper, top = (draw(links) for _ in range(3))
        tiers = {"upper": upper, "top": top} if topology in (T.FAT_TREE, T.DRAGONFLY) else {}
        able = topology is T.SWITCH and draw(st.booleans())
        request = able and draw(st.booleans())
        axes.append(Axis(name, size, topology, link, shape, multicast=able, reduction=able, on_request=request, **tiers))
    return tuple(axes)


def along(kind: Kind, axis: Axis) -> list[str]:
    """Algorithms that serve a phase on an axis."""
    phase = phase_kind(kind)
    fit = (item for item in ALGORITHMS.values() if item.unfit(phase, axis.size) is None and (not item.network or axis.reduction))
    return [item.name for item in fit]


@st.composite
def plans(draw: st.DrawFn, kind: Kind, axes: tuple[Axis, ...]) -> Schedule:
    names = tuple(draw(st.sampled_from(along(kind, axis))) for axis in axes)
    order = tuple(draw(st.permutations(range(len(axes)))))
    last = axes[order[-1]]
    turning = ["", "pulled" if last.on_request else "in-network"] if kind is K.ALL_REDUCE and last.reduction else [""]
    lines = frozenset(place for place, axis in enumerate(axes) if axis.topology is T.LINE)
    shape = tuple(axis.size for axis in axes)
    return Schedule(Hierarchy(shape, names, (order,), turning=draw(st.sampled_from(turning)), lines=lines))


ALONE = ("direct", "neighbour", "linear", "binomial", "pairwise", "doubling", "halving", "near-halving", "one-shot")
"""Algorithms with forms on one line or ring."""


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_closed_forms_over_dimensions_equal_the_simulator(data: st.DataObject) -> None:
    check_form(data)


@pytest.mark.slow
@settings(max_examples=2500, deadline=None)
@given(st.data())
def test_closed_forms_over_dimensions_equal_the_simulator_thousands_of_times(data: st.DataObject) -> None:
    check_form(data)


def check_form(data: st.DataObject) -> None:
    drawn = data.draw(products())
    assume(prod(axis.size for axis in drawn) <= 20)
    team = team_of(drawn)
    axes = team.axes or ()
    kind = data.draw(st.sampled_from(SERVED if len(axes) > 1 else (*SERVED, K.SHIFT, Pattern.POINT_TO_POINT)))
    single = st.sampled_from(ALONE).map(Schedule) if len(axes) == 1 else st.just(Schedule("direct"))
    schedule = data.draw(single | plans(kind, axes))
    assume(isinstance(schedule.algorithm, Hierarchy) or ALGORITHMS[schedule.algorithm].unfit(kind, team.graph.ranks) is None)
    assume(dimension_form(kind, axes, schedule) is not None)
    check(axes, kind, schedule, data.draw(sizes), data.draw(startups))


def counted(axes: tuple[Axis, ...]) -> Iterator[tuple[Kind, Schedule]]:
    team = team_of(axes)
    for kind in SERVED:
        yield from ((kind, item) for item in schedules(kind, team, 4096) if not Collective(kind, item, team, 4096).cost().closed)


def test_what_is_closed() -> None:
    """On a torus all hierarchies in one piece and direct exchanges; not hierarchies in pieces and rings that cross it."""
    names = {(kind, item.name) for kind, item in counted((Axis("x", 12, T.TORUS, ONE, shape=(3, 4)),))}
    hierarchies = {name for _, name in names if " on " in name}
    assert hierarchies
    assert all("pieces" in name for name in hierarchies)
    assert (K.ALL_REDUCE, "ring") in names
    assert not {(kind, "direct") for kind in (K.ALL_GATHER, K.REDUCE_SCATTER, K.ALL_TO_ALL, K.ALL_REDUCE)} & names


def test_prices_refuse_what_costs_refuse() -> None:
    for name in ("ring", "line", "torus", "switch", "fat-tree"):
        team = team_of(NETWORKS[name])
        with pytest.raises(BadInput, match="a known algorithm; got 'rign'"):
            price(K.ALL_REDUCE, team, Schedule("rign"))
    with pytest.raises(BadInput, match="a power of two; got 6"):
        price(K.ALL_REDUCE, team_of(NETWORKS["ring"]), Schedule("halving"))
    with pytest.raises(BadInput, match="sends one arrival on to several"):
        price(K.BROADCAST, team_of((Axis("x", 4, T.SWITCH, ONE),)), Schedule("multicast"))


def test_networks_beyond_tables() -> None:
    """An all-to-all on a torus of 16 x 16 x 16: the links that cross half a ring carry n k / 8 blocks; 3 x 8 hops."""
    torus, block = (Axis("x", 4096, T.TORUS, Link(2.0, 0.5), shape=(16, 16, 16)),), 3
    form = dimension_form(K.ALL_TO_ALL, torus, Schedule("direct"))
    assert form is not None
    # ways of 8 hops all go up, so that upward links carry 1 + 2 + ... + 8 in place of k^2 / 8 = 32
    assert form.links()(4096 * block) == block * 36 * 256 / 2.0
    assert form.fixed(1.0) == 1 + 24 * 0.5


# --- the curve itself ---


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[np.ndarray], int]:
    cut = draw(st.integers(1, 7))
    row = st.lists(st.integers(0, 5), min_size=cut, max_size=cut)
    steps = draw(st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=5))
    return [np.array(rows, dtype=np.float64) for rows in steps], cut


@settings(max_examples=400, deadline=None)
@given(loads(), st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_a_curve_is_the_sum_of_the_busiest_links(drawn: tuple[list[np.ndarray], int], payloads: list[int]) -> None:
    steps, cut = drawn
    of = summed(steps, 10.0)
    expected = []
    for size in payloads:
        width = -(-size // cut)
        chunks = np.array([min(max(size - place * width, 0), width) for place in range(cut)])
        expected.append(sum(int((rows @ chunks).max()) for rows in steps))
    assert of.bytes(np.array(payloads, dtype=np.float64)).tolist() == expected
    assert [of.bytes(size) for size in payloads] == expected


# --- DGX-1 ---


@pytest.mark.parametrize("kind", [K.ALL_REDUCE, K.ALL_GATHER, K.REDUCE_SCATTER])
def test_circuits_use_every_link_of_a_dgx_1(kind: CollectiveKind) -> None:
    """Three rings both ways take up all links: nothing is left between the time and its bound but latency."""
    team = team_of((Axis("x", 8, T.DGX_1, Link(25e9)),))
    (schedule,) = (item for item in schedules(kind, team, 48 * 10**6) if not isinstance(item.algorithm, str))
    assert Collective(kind, schedule, team, 48 * 10**6).cost().gap == pytest.approx(0.0, abs=1e-12)
    assert len(set(laid_out(team, kind, schedule).row_edges.tolist())) == len(team.graph.edges)
    assert chosen(kind, team, 5000, schedule.name).schedule == schedule


def test_circuits_visit_every_rank() -> None:
    for kind in (K.ALL_REDUCE, K.ALL_GATHER, K.REDUCE_SCATTER):
        plan = Circuits(((0, 3, 1, 2), (2, 1, 3, 0), (2, 1, 3, 0)))
        verify(kind, plan.steps(kind), 4, plan.chunks(kind))
    for wrong in ((), ((0, 1, 1),), ((0, 1), (0, 1, 2))):
        with pytest.raises(BadInput, match="circuits of the ranks"):
            Circuits(wrong)
    with pytest.raises(BadInput, match="broadcast by 1 circuits: expected one of all-gather"):
        Circuits(((0, 1),)).steps(K.BROADCAST)
