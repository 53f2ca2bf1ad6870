"""Ways between layouts: against shortest paths one by one, for any prices."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from halley.ir.mapping import CollectiveKind
from halley.ir.workload import Tensor
from halley.sharding.layouts import Layouts, MeshAxis, Router, options_of

MESH = (MeshAxis("x", 2), MeshAxis("y", 3), MeshAxis("z", 2))


def drawn(seed: int, axes: int, monoid: str) -> Layouts:
    """Prices that obey no law, some of them 0, so that detours of several collectives are often shorter."""
    random = np.random.default_rng(seed)

    def price(kind: CollectiveKind, over: tuple[str, ...], size: int) -> float:
        return float(random.choice([0.0, *random.integers(1, 1000, 5)]))

    tensor, extents = Tensor("A", ("m", "n")), {"m": 6, "n": 5}
    return Router(MESH[:axes], price).layouts(tensor, extents, options_of(tensor, extents, monoid, axes))


def dijkstra(found: Layouts, before: int) -> list[float]:
    times = [math.inf] * len(found.options)
    heap = [(0.0, before)]
    while heap:
        time, here = heapq.heappop(heap)
        if time >= times[here]:
            continue
        times[here] = time
        for there in np.flatnonzero(np.isfinite(found.table.direct[here])).tolist():
            heapq.heappush(heap, (time + float(found.table.direct[here, there]), there))
    return times


@pytest.mark.parametrize("monoid", ["", "sum"])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_ways_are_shortest_paths_and_their_steps_add_up(seed: int, axes: int, monoid: str) -> None:
    found = drawn(seed, axes, monoid)
    for before in range(len(found.options)):
        times = dijkstra(found, before)
        assert found.time[before] == pytest.approx(times, rel=1e-12)
        for after in np.flatnonzero(np.isfinite(times)).tolist()[::3]:
            path = found.path(before, after)
            assert math.fsum(step.time for step in path) == pytest.approx(times[after], rel=1e-12)
            ends = [found.options[before], *(step.after for step in path)]
            assert [step.before for step in path] == ends[:-1]
            assert ends[-1] == found.options[after]
            assert len({*ends}) == len(ends)
            for step in path:
                changed = {axis.name for axis, a, b in zip(MESH, step.before, step.after, strict=False) if a != b}
                assert changed == {*step.axes}


def test_what_is_complete_never_becomes_partial() -> None:
    found = drawn(1, 2, "sum")
    rest = [number for number in range(len(found.options)) if number not in found.complete]
    assert np.isinf(found.time[np.ix_(found.complete, rest)]).all()
    assert np.isfinite(found.time[:, found.complete]).all()
