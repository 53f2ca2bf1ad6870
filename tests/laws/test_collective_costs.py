"""Laws of collectives' costs: nothing beats its bound, more bandwidth is never slower, a batch is its entries."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.importers.training import training_problem
from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.kernels.software import Software
from halley.network.algorithms.hierarchical import SERVED, Part, Phased, Run, phases
from halley.network.algorithms.tables import KINDS, Kind, Pattern
from halley.network.graph.groups import Group
from halley.network.time.choice import chosen
from halley.network.time.collective import ScheduledCollective, best, best_time, candidates, exchange, team_of
from halley.network.time.schedules import Schedule
from halley.serving.layout import ReplicaNetwork
from halley.sharding.axes import Role, SubAxis
from halley.sharding.communication import Communication, Interconnect
from halley.training.fit.fixed_plan import fixed_plan

K, T = CollectiveKind, Topology
NEAR, FAR = Link(8.0, 0.25, 1.0), Link(2.0, 1.0, 3.0)

NETWORKS: dict[str, tuple[Axis, ...]] = {
    "one": (Axis("x", 1, T.RING, NEAR),),
    "ring": (Axis("x", 5, T.RING, NEAR),),
    "line": (Axis("x", 6, T.LINE, NEAR),),
    "full": (Axis("x", 4, T.FULL, NEAR),),
    "switch": (Axis("x", 6, T.SWITCH, NEAR),),
    "able switch": (Axis("x", 8, T.SWITCH, NEAR, multicast=True, reduction=True),),
    "mesh": (Axis("x", 12, T.MESH, NEAR, shape=(3, 4)),),
    "torus": (Axis("x", 3, T.RING, NEAR), Axis("y", 4, T.RING, FAR)),
    "pod": (Axis("node", 3, T.SWITCH, FAR), Axis("gpu", 4, T.SWITCH, NEAR, multicast=True, reduction=True)),
    "fat tree": (Axis("x", 8, T.FAT_TREE, NEAR, shape=(2, 2), upper=FAR, multicast=True, reduction=True),),
    "dragonfly": (Axis("x", 12, T.DRAGONFLY, NEAR, shape=(2, 2, 1), upper=FAR, top=FAR),),
    "dgx-1": (Axis("x", 8, T.DGX_1, NEAR),),
    "hypercube": (Axis("x", 8, T.HYPERCUBE, NEAR),),
    "cube": (Axis("x", 2, T.RING, NEAR), Axis("y", 2, T.LINE, FAR), Axis("z", 3, T.RING, NEAR)),
}


def sizes_of(kind: Kind) -> tuple[int, ...]:
    return (0,) if kind is Pattern.BARRIER else (1, 13, 10_000)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_schedule_beats_its_bound_and_the_fastest_comes_first(name: str) -> None:
    """`candidates` raises InternalError where a time is below its bound; here every bound also says why."""
    for kind in KINDS:
        for size in sizes_of(kind):
            found = candidates(kind, NETWORKS[name], size, 0.5)
            assert found
            assert [cost.time for cost in found] == sorted(cost.time for cost in found)
            assert best(kind, NETWORKS[name], size, 0.5).time == found[0].time
            for cost in found:
                assert cost.gap >= 0
                assert cost.bound.why
                assert cost.byte_hops == cost.link_bytes.sum()
                assert cost.waiting <= cost.time
                assert (cost.link_bytes / team_of(NETWORKS[name]).graph.bandwidths).max(initial=0.0) <= cost.time * (1 + 1e-9)
                assert ScheduledCollective(kind, cost.schedule, NETWORKS[name], size, 0.5).cost().time == cost.time
                assert cost.limiting is None or cost.limiting in team_of(NETWORKS[name]).graph.between


@pytest.mark.parametrize("seed", range(18))
def test_bounds_hold_whichever_dimension_has_the_latency(seed: int) -> None:
    """Phases on several dimensions at once hide the latency of one behind the transfers of another."""
    draw = Random(seed)
    able = draw.random() < 0.3
    axes = tuple(
        Axis(
            name,
            draw.choice((2, 3, 4)),
            T.SWITCH if able else draw.choice((T.LINE, T.RING, T.FULL, T.SWITCH)),
            Link(draw.choice((1.0, 2.0, 9.0)), draw.choice((0.0, 1.0, 50.0)), overhead=draw.choice((0.0, 0.5))),
            multicast=able,
            reduction=able,
        )
        for name in ("x", "y", "z")[: draw.choice((2, 2, 3))]
    )
    startup = draw.choice((0.0, 0.5))
    for kind in SERVED:
        for size in (1, 10_000):
            assert all(cost.gap >= 0 for cost in candidates(kind, axes, size, startup))


def test_some_schedule_meets_its_bound() -> None:
    """Bounds that nothing reaches would be idle."""
    for kind, name in (
        (K.ALL_REDUCE, "able switch"),
        (K.ALL_GATHER, "full"),
        (K.ALL_TO_ALL, "switch"),
        (K.SCATTER, "switch"),
        (K.BROADCAST, "able switch"),
        (Pattern.POINT_TO_POINT, "line"),
        (Pattern.BARRIER, "full"),
    ):
        for size in sizes_of(kind):
            found = best(kind, NETWORKS[name], size)
            assert found.gap < 0.001


def slower(axes: tuple[Axis, ...], factor: float) -> tuple[Axis, ...]:
    def link(old: Link | None) -> Link | None:
        return None if old is None else replace(old, bandwidth=old.bandwidth / factor)

    return tuple(
        replace(axis, link=replace(axis.link, bandwidth=axis.link.bandwidth / factor), upper=link(axis.upper), top=link(axis.top))
        for axis in axes
    )


@pytest.mark.parametrize("name", ["ring", "mesh", "pod", "dgx-1", "dragonfly"])
def test_less_bandwidth_is_never_faster_and_scales_the_bytes(name: str) -> None:
    for kind in (K.ALL_REDUCE, K.ALL_TO_ALL, K.BROADCAST):
        team, less = team_of(NETWORKS[name]), team_of(slower(NETWORKS[name], 4.0))
        for schedule in (cost.schedule for cost in candidates(kind, team, 5000)):
            fast, slow = (ScheduledCollective(kind, schedule, where, 5000).cost() for where in (team, less))
            still = ScheduledCollective(kind, schedule, team, 20_000)
            assert slow.time > fast.time
            assert (slow.byte_hops, slow.energy) == (fast.byte_hops, fast.energy)
            assert slow.time == pytest.approx(still.cost().time)  # a quarter of the bandwidth is four times the bytes


@cache
def drawn() -> list[tuple[Kind, Group, Schedule]]:
    found = []
    for name in ("ring", "line", "switch", "able switch", "torus", "pod", "dgx-1"):
        team = team_of(NETWORKS[name])
        for kind in KINDS:
            if kind is not Pattern.BARRIER:
                found += [(kind, team, cost.schedule) for cost in candidates(kind, team, 777)]
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_more_bytes_never_take_less_time(data: st.DataObject) -> None:
    kind, team, schedule = data.draw(st.sampled_from(drawn()))
    sizes = sorted(data.draw(st.lists(st.integers(1, 500), min_size=2, max_size=6)))
    times = [ScheduledCollective(kind, schedule, team, size).cost().time for size in sizes]
    assert times == sorted(times)


def test_best_times_are_remembered_by_group() -> None:
    team = team_of(NETWORKS["torus"])
    first = best_time(K.ALL_REDUCE, team, 4096)
    assert first == best(K.ALL_REDUCE, NETWORKS["torus"], 4096).time
    before = best_time.cache_info().hits
    assert best_time(K.ALL_REDUCE, team_of(NETWORKS["torus"]), 4096) == first
    assert best_time.cache_info().hits == before + 1


def test_even_counts_are_an_even_exchange() -> None:
    for name in ("ring", "switch", "mesh", "pod"):
        team = team_of(NETWORKS[name])
        ranks = team.graph.ranks
        for algorithm in ("direct", "pairwise", "bruck"):
            uneven = exchange(np.full((ranks, ranks), 6), algorithm, team)
            even = ScheduledCollective(K.ALL_TO_ALL, algorithm, team, 6 * ranks).cost()
            assert uneven.time == even.time
            assert uneven.link_bytes.tolist() == even.link_bytes.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_uneven_counts_are_bounded_and_grow(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for name in ("ring", "pod", "dragonfly"):
        team = team_of(NETWORKS[name])
        counts = draw.integers(0, 50, (team.graph.ranks,) * 2)
        more = counts.copy()
        more[0, 1] += 10_000
        for algorithm in ("direct", "bruck"):
            assert exchange(counts, algorithm, team).gap >= 0
            assert exchange(more, algorithm, team).time > exchange(counts, algorithm, team).time


def test_pieces_are_chosen_well() -> None:
    """No other number of pieces up to 64 is faster; of trees, whose tables are counted for powers of two, by more than 2 %."""
    team = team_of((Axis("x", 9, T.RING, Link(10.0, 2.0)),))
    for size in (50, 1000, 9000):
        for name, worse in (("pipelined", 1.0), ("tree", 1.02)):
            took = chosen(K.BROADCAST, team, size, name).time
            others = [ScheduledCollective(K.BROADCAST, Schedule(name, k), team, size).cost().time for k in range(1, 65)]
            assert took <= worse * min(others)


def test_dimensions_that_work_at_once_beat_dimensions_in_sequence() -> None:
    team = team_of((Axis("x", 4, T.RING, Link(4.0)), Axis("y", 4, T.RING, Link(4.0))))

    def time(orders: tuple[tuple[int, int], ...], pieces: int) -> float:
        parts = [tuple(Run(phase, "bidirectional") for phase in phases(K.ALL_REDUCE, order)) for order in orders]
        plan = Phased((4, 4), tuple(Part(Fraction(1, len(parts)), runs) for runs in parts), pieces)
        return ScheduledCollective(K.ALL_REDUCE, Schedule(plan), team, 16 * 16 * 100).cost().time

    sequential, pipelined, balanced = time(((0, 1),), 1), time(((0, 1),), 16), time(((0, 1), (1, 0)), 16)
    assert balanced < pipelined < sequential
    assert balanced < 0.6 * sequential  # two dimensions instead of one at a time


# --- one engine ---

ABLE = {"multicast": True, "reduction": True}
OVER, SLOW = Link(8.0, 0.25, 1.0, overhead=0.125), Link(2.0, 1.0, 3.0, overhead=0.5)
ASKED: dict[str, tuple[Axis, ...]] = {
    "line": (Axis("x", 6, T.LINE, NEAR),),
    "ring": (Axis("x", 5, T.RING, OVER),),
    "one-way ring": (Axis("x", 5, T.RING, NEAR, one_way=True),),
    "multipath ring": (Axis("x", 6, T.RING, NEAR, multipath=True),),
    "full": (Axis("x", 7, T.FULL, OVER),),
    "switch": (Axis("x", 6, T.SWITCH, NEAR),),
    "large switch": (Axis("x", 128, T.SWITCH, OVER),),
    "adding switch": (Axis("x", 8, T.SWITCH, OVER, **ABLE),),
    "switch on request": (Axis("x", 8, T.SWITCH, NEAR, **ABLE, on_request=True),),
    "fat tree": (Axis("x", 8, T.FAT_TREE, NEAR, shape=(2, 2), upper=FAR, **ABLE),),
    "dragonfly": (Axis("x", 12, T.DRAGONFLY, NEAR, shape=(2, 2, 1), upper=FAR, top=FAR),),
    "dgx-1": (Axis("x", 8, T.DGX_1, NEAR),),
    "hypercube": (Axis("x", 8, T.HYPERCUBE, NEAR),),
    "torus": (Axis("x", 12, T.TORUS, NEAR, shape=(3, 4)),),
    "multipath torus": (Axis("x", 8, T.TORUS, NEAR, shape=(2, 4), multipath=True),),
    "pods": (Axis("node", 8, T.SWITCH, FAR), Axis("gpu", 8, T.SWITCH, NEAR)),
    "adding pods": (Axis("node", 3, T.SWITCH, SLOW, **ABLE), Axis("gpu", 4, T.SWITCH, OVER, **ABLE, on_request=True)),
    "rings of fat trees": (Axis("x", 3, T.RING, FAR), Axis("y", 8, T.FAT_TREE, NEAR, shape=(2, 2), upper=FAR)),
    "dragonflies of switches": (Axis("x", 6, T.DRAGONFLY, FAR, shape=(2, 1, 1)), Axis("y", 3, T.SWITCH, OVER)),
    "one-way rings": (Axis("x", 3, T.RING, FAR, one_way=True), Axis("y", 4, T.FULL, NEAR)),
    "three": (Axis("x", 2, T.RING, NEAR), Axis("y", 3, T.LINE, SLOW), Axis("z", 4, T.SWITCH, NEAR)),
    "three switches": (Axis("x", 4, T.SWITCH, SLOW), Axis("y", 2, T.SWITCH, FAR), Axis("z", 8, T.SWITCH, OVER)),
    "thousand": (Axis("x", 128, T.SWITCH, FAR), Axis("y", 8, T.SWITCH, NEAR)),
}


@pytest.mark.parametrize("name", ASKED)
def test_plans_and_collectives_have_the_same_times(name: str) -> None:
    """To the last bit, for every kind that both know, sizes that nothing divides, and every group of axes."""
    axes = ASKED[name]
    interconnect = Interconnect(System(name, Chip("c", ()), axes))
    for members in (found for count in range(1, len(axes) + 1) for found in combinations(axes, count)):
        team = team_of(members)
        names = tuple(axis.name for axis in members)
        parts = [SubAxis(axis.name, Role.MODEL if axis in members else Role.DATA, axis.size, 1) for axis in axes]
        communication = Communication(interconnect, tuple(parts))
        data = Communication(interconnect, tuple(SubAxis(axis.name, Role.DATA, axis.size, 1) for axis in members))
        for kind in K:
            if kind is K.SHIFT and len(data.data_key) > 1:
                continue  # plans keep shifts to one axis
            for size in (1, 7, 1000, 123_457, 50_000_000):
                time = best_time(kind, team, size)
                assert communication.model(kind, names, size) == time
                assert float(data.data(kind, np.array([float(size), 3.0]))[0]) == time
                if team.graph.ranks <= 64:
                    assert best(kind, team, size).time == time


@pytest.mark.parametrize("name", ASKED)
def test_servers_and_collectives_have_the_same_times(name: str) -> None:
    """To the last bit, for groups of one axis or of several that lie side by side, without the start-up of a server."""
    axes = ASKED[name]
    network = ReplicaNetwork(System(name, Chip("c", ()), axes))
    for first, last in combinations(range(len(axes) + 1), 2):
        stride = math.prod(axis.size for axis in axes[last:])
        team = team_of(axes[first:last])
        for kind in K:
            if kind is K.SHIFT and len(network.dimensions(team.graph.ranks, stride, False)) > 1:
                continue  # as in plans
            for size in (1, 7, 1000, 123_457, 50_000_000):
                assert float(network.collective(kind, team.graph.ranks, stride, float(size), 0.0)) == best_time(kind, team, size)


def test_calibrated_plans_and_collectives_have_the_same_times() -> None:
    """A plan with fixed choices, as `halley calibrate training` times it under other software."""
    fixed = "nvlink=tp:4,ib=dp:2,microbatch=1,zero=1,recompute=none,offload=no,attention=fused,chunks=1,schedule=1f1b"
    problem = training_problem("llama-68m", "8 x a100, nvlink 4, ib", 8, fix=fixed, software="none")
    found = fixed_plan(replace(problem, usable=math.inf, libraries={}), Software("none"))
    inner, outer = (team_of((axis,)) for name in ("nvlink", "ib") for axis in problem.system.axes if axis.name == name)
    for size in (1, 7, 1000, 123_457, 50_000_000):
        for kind in K:
            assert found.communication.model(kind, ("nvlink",), size) == best_time(kind, inner, size)
            assert float(found.communication.data(kind, np.array([float(size)]))[0]) == best_time(kind, outer, size)
