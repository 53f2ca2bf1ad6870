"""Bounds and routings of large networks: the optimum of an all-gather, a certified all-to-all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.measure import Measurement
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.bounds.collectives import lower_bound
from halley.network.bounds.demands import all_to_all
from halley.network.bounds.flow import concurrent_flow
from halley.network.graph.graph import Graph
from halley.network.graph.topologies import build

CABLE = Link(50e9, 1e-6)
NETWORKS = {
    "torus 16 x 16": Axis("torus", 256, Topology.TORUS, CABLE, shape=(16, 16)),
    "fat-tree of 256, 2:1": Axis("tree", 256, Topology.FAT_TREE, CABLE, shape=(16, 8)),
    "dragonfly of 272": Axis("dragonfly", 272, Topology.DRAGONFLY, CABLE, shape=(4, 4, 4)),
}
BLOCK = 2.0**22
"""Bytes for each rank."""

GAP = 0.03


def measurements() -> Iterator[Measurement]:
    for name, axis in NETWORKS.items():
        graph = build(axis)
        seconds = _timed(lambda graph=graph: lower_bound(CollectiveKind.ALL_GATHER, graph, graph.ranks * BLOCK))
        yield Measurement(f"optimum of an all-gather, {name}", seconds, "s", 0.3)
    for name, axis in NETWORKS.items():
        yield from _routed(name, build(axis), BLOCK)
    yield from _routed("mesh 16 x 16", build(Axis("mesh", 256, Topology.MESH, CABLE, shape=(16, 16))), BLOCK)
    yield from _routed("dragonfly of 272, one block shorter: no symmetry", build(NETWORKS["dragonfly of 272"]), BLOCK - 0.5)


def _routed(name: str, graph: Graph, block: float) -> Iterator[Measurement]:
    demands = all_to_all(graph, graph.ranks * block)
    start = time.perf_counter()
    flow = concurrent_flow(graph, demands, method="approximate", tolerance=GAP, time_limit=30.0)
    seconds = time.perf_counter() - start
    flow.check()
    yield Measurement(f"certified all-to-all, {name}", seconds, "s", 10.0)
    yield Measurement(f"  its gap, {name}", flow.gap, "", GAP)


def _timed(call: Callable[[], object], repeats: int = 3) -> float:
    """The least of some."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)
