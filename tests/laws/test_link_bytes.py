"""Bytes on links, counted fibre by fibre and pair by pair, are those of one table of all ranks on the whole network."""

import numpy as np
import pytest

from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.hierarchical import Phased
from halley.network.graph.groups import group
from halley.network.graph.routes import routing_matrix
from halley.network.time.collective import candidates, team_of
from halley.network.time.evaluate import layout
from halley.network.time.schedules import Schedule, is_line, side_by_side
from halley.network.time.traffic import all_pairs_loads, lines_of, link_bytes

SIZE = 1 << 20

SWITCH = {"multicast": True, "reduction": True}
NETWORKS = {
    "pod": (Axis("node", 3, Topology.SWITCH, Link(50e9), **SWITCH), Axis("gpu", 4, Topology.SWITCH, Link(450e9), **SWITCH)),
    "torus": tuple(Axis(name, size, Topology.RING, Link(1e9)) for name, size in (("x", 4), ("y", 3), ("z", 2))),
    "grid": (Axis("grid", 12, Topology.MESH, Link(1e9), shape=(3, 4)), Axis("pair", 2, Topology.FULL, Link(1e9))),
    "tree": (Axis("pod", 3, Topology.LINE, Link(1e9)), Axis("leaf", 4, Topology.HYPERCUBE, Link(1e9))),
}
KINDS = [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL, CollectiveKind.BROADCAST]


def counted_at_once(team, kind, schedule):
    """[edges] bytes by tables of all ranks: of every phase, all its lines in one table."""
    graph, plan = team.graph, schedule.algorithm
    if not isinstance(plan, Phased):
        chunks = schedule.chunks(kind, graph.ranks)
        return _counted(
            graph, kind, schedule.steps(kind, graph.ranks, is_line(team)), chunks, SIZE / schedule.cut(kind, graph.ranks)
        )
    found = np.zeros(len(graph.edges))
    for part in plan.parts:
        for run in part.runs:
            each, kind_of = Schedule(run.algorithm, run.pieces), run.phase.kind
            extent, lines = plan.shape[run.phase.dimension], list(lines_of(plan.shape, run.phase))
            chunks = each.chunks(kind_of, extent)
            table = side_by_side(each.steps(kind_of, extent, run.phase.dimension in plan.lines), lines, chunks)
            payload = SIZE * float(part.share / run.phase.divisor(plan.shape))
            found += _counted(graph, kind_of, table, chunks * len(lines), payload / each.cut(kind_of, extent))
    return found


def _counted(graph, kind, table, chunks, size):
    laid, found = layout(graph, kind, table, chunks), np.zeros(len(graph.edges))
    np.add.at(found, laid.row_edges, np.add.reduceat(laid.counts, laid.row_starts) * size)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bytes_on_links_are_those_of_one_table(name, kind):
    team = team_of(NETWORKS[name])
    costs = candidates(kind, NETWORKS[name], SIZE)
    assert len(costs) > 4
    for cost in costs[::3]:
        expected = counted_at_once(team, kind, cost.schedule)
        np.testing.assert_allclose(cost.link_bytes, expected, rtol=1e-12, err_msg=cost.algorithm)


@pytest.mark.parametrize("algorithm", ["direct", "one-shot"])
def test_all_pairs_of_an_all_reduce(algorithm):
    for axes in NETWORKS.values():
        team = team_of(axes)
        found = link_bytes(team, CollectiveKind.ALL_REDUCE, Schedule(algorithm), SIZE)
        expected = counted_at_once(team, CollectiveKind.ALL_REDUCE, Schedule(algorithm))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_messages_of_all_pairs_by_fibre(name):
    graph = team_of(NETWORKS[name]).graph
    pairs = [(a, b) for a in range(graph.ranks) for b in range(graph.ranks) if a != b]
    np.testing.assert_array_equal(all_pairs_loads(graph), routing_matrix(graph, pairs).loads(1.0))


def test_a_part_of_a_network_without_axes():
    team = group(NETWORKS["torus"], [0, 1, 5, 7, 11, 14])
    found = link_bytes(team, CollectiveKind.ALL_GATHER, Schedule("direct"), SIZE)
    np.testing.assert_allclose(found, counted_at_once(team, CollectiveKind.ALL_GATHER, Schedule("direct")), rtol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("topology", "algorithm"), [(Topology.RING, "ring"), (Topology.SWITCH, "ring"), (Topology.SWITCH, "pairwise")]
)
def test_large_tables_have_the_bytes_of_the_textbook(topology, algorithm):
    """An all-reduce sends n - 1 of n shares twice: a ring sends sums down and results up, a switch both on each link."""
    ranks = 450
    team = team_of((Axis("x", ranks, topology, Link(1e9)),))
    found = link_bytes(team, CollectiveKind.ALL_REDUCE, Schedule(algorithm), SIZE)
    times = 1 if topology is Topology.RING else 2
    np.testing.assert_allclose(found, np.full(2 * ranks, times * (ranks - 1) / ranks * SIZE), rtol=1e-12)
