"""The verification of collectives confirms candidates of networks, and finds times and bytes that are not its own."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.time.collective import CollectiveCost, candidates, team_of
from halley.verify.collective import collective_findings

K, T = CollectiveKind, Topology
NETWORKS = {
    "ring": (Axis("x", 6, T.RING, Link(3.0, 7.0)),),
    "line": (Axis("x", 5, T.LINE, Link(3.0, 7.0, overhead=0.5)),),
    "switches": (Axis("node", 2, T.SWITCH, Link(2.0, 1.0, overhead=0.5)), Axis("gpu", 4, T.SWITCH, Link(9.0, 2.0))),
    "torus": (Axis("x", 3, T.RING, Link(3.0, 7.0)), Axis("y", 4, T.RING, Link(5.0, 2.0))),
    "line of rings": (Axis("x", 2, T.LINE, Link(9.0)), Axis("y", 2, T.FULL, Link(3.0, 2.0)), Axis("z", 3, T.RING, Link(1.0))),
}
KINDS: tuple[Kind, ...] = (*K, Pattern.POINT_TO_POINT, Pattern.BARRIER)


def costs(name: str, kind: Kind) -> tuple[CollectiveCost, ...]:
    return candidates(kind, team_of(NETWORKS[name]), 0 if kind is Pattern.BARRIER else 30_000, 0.25)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_candidates_are_confirmed(name: str, kind: Kind) -> None:
    found = costs(name, kind)
    drawn = Random(f"{name} {kind}").sample(found[1:], min(5, len(found) - 1))
    for cost in (found[0], *drawn):
        findings = list(collective_findings(cost, team_of(NETWORKS[name]), 0.25))
        assert [item for item in findings if item.passed is False] == []
        wanted = {"bound", "execution"} | ({"slot simulation"} if overlaps(cost) else set())
        assert wanted <= {item.what for item in findings}


def overlaps(cost: CollectiveCost) -> bool:
    """Whether pieces or orders of a schedule overlap, so that no table shows its time."""
    plan = cost.schedule.algorithm
    return isinstance(plan, Phased) and (plan.pieces > 1 or len(plan.parts) > 1)


@pytest.mark.parametrize("name", ["switches", "torus"])
def test_other_times_and_bytes_are_found(name: str) -> None:
    team = team_of(NETWORKS[name])
    found = [cost for cost in costs(name, K.ALL_REDUCE) if overlaps(cost)]
    assert found
    for cost in found[:4]:
        for wrong in (
            replace(cost, time=cost.time * 1.01),
            replace(cost, time=cost.time * 0.99),
            replace(cost, link_bytes=np.asarray(cost.link_bytes * 1.01)),
        ):
            findings = list(collective_findings(wrong, team, 0.25))
            assert [item.what for item in findings if item.passed is False][-1] == "slot simulation"
