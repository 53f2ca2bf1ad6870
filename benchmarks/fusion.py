"""Partitions of a spatial chip, to the proven optimum: GPT3-175B's layer on SN10, forward and with its backward pass."""

from __future__ import annotations

import time
from collections.abc import Iterator

from validation.dfmodel.case import problem

from benchmarks.measure import Measurement
from halley.optim.downsets import lattice
from halley.spatial import solve as partitioning
from halley.spatial.chip import HALLEY, SpatialProblem
from halley.spatial.solve import best_plan

RING, TORUS = (8, 1), (4, 2)
TILE = 32


def cases() -> Iterator[tuple[str, SpatialProblem, list[int] | None, float | None]]:
    """Name, problem, sequence tiles, target [ms] of the compiled search."""
    yield "18 kernels, ring", problem(*RING), [TILE], 2.0
    yield "18 kernels, torus", problem(*TORUS), [TILE], 2.0
    yield "18 kernels, ring, 12 sequence tiles", problem(*RING), None, None
    yield "41 kernels, joined, ring", problem(*RING, name="training", joined=True), [TILE], 50.0
    yield "41 kernels, joined, torus", problem(*TORUS, name="training", joined=True), [TILE], 50.0
    yield "41 kernels, ring", problem(*RING, name="training"), [TILE], 50.0
    yield "41 kernels, torus", problem(*TORUS, name="training"), [TILE], 50.0
    yield "18 kernels, ring, ramps and streamed weights", problem(*RING, HALLEY), [TILE], None


def measurements() -> Iterator[Measurement]:
    before = partitioning.SWITCH.mode
    try:
        for mode, name in (("on", "compiled"), ("off", "uncompiled")):
            partitioning.SWITCH.mode = mode
            for case, asked, tiles, target in cases():
                milliseconds = _least(asked, tiles, 5 if mode == "on" else 2)
                yield Measurement(f"partitions, {case}, {name}", milliseconds, "ms", target if mode == "on" else None)
    finally:
        partitioning.SWITCH.mode = before
    lattice.cache_clear()
    start = time.perf_counter()
    lattice(problem(*RING, name="training").graph.needs)
    yield Measurement("downsets of 41 kernels, once per graph", 1e3 * (time.perf_counter() - start), "ms")


def _least(asked: SpatialProblem, tiles: list[int] | None, repeats: int) -> float:
    """Of warm runs [ms]; a plan that is not proven would not count."""
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        assert best_plan(asked, tiles).proven
        found.append(1e3 * (time.perf_counter() - start))
    return min(found[1:])
