"""Times of collectives that are kept between batches of plans: those of the network, few of them, no longer than needed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.sharding.axes import Role, SubAxis
from halley.sharding.communication import Communication, Interconnect
from halley.training import cost as training_cost


def communications() -> list[Communication]:
    """Two assignments whose data-parallel ranks have equal networks, and one that differs."""
    axes = Axis("node", 4, Topology.SWITCH, Link(50e9, 1e-6)), Axis("gpu", 8, Topology.SWITCH, Link(450e9, 5e-7))
    interconnect = Interconnect(System("pod", Chip("c", ()), axes))
    data = SubAxis("gpu", Role.DATA, 2, 4)
    assignments = (
        (SubAxis("node", Role.PIPELINE, 4, 1), data, SubAxis("gpu", Role.MODEL, 4, 1)),
        (SubAxis("node", Role.MODEL, 4, 1), data, SubAxis("gpu", Role.PIPELINE, 4, 1)),
        (SubAxis("node", Role.DATA, 4, 1), SubAxis("gpu", Role.PIPELINE, 8, 1)),
    )
    return [Communication(interconnect, each) for each in assignments]


def test_kept_times_are_the_networks_own_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_cost, "MAX_CACHED_PAYLOADS", 8)
    found = communications()
    facts = [training_cost._facts(each) for each in found]
    assert facts[0].collectives is facts[1].collectives is not facts[2].collectives
    draw, at = np.random.default_rng(3), np.array([0, 1, 2, 0, 2])
    networks = training_cost._Networks(found, facts, at)
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
        for _ in range(20):
            sizes = draw.integers(1, 30, len(at)) * 1e6
            alone = [float(found[place].data(kind, float(size))) for place, size in zip(at, sizes, strict=True)]
            assert networks.time(kind, sizes).tolist() == alone
            assert all(len(each.collectives[kind]) <= 8 for each in facts)


def test_nothing_keeps_a_communication_alive() -> None:
    found = communications()
    for each in found:
        training_cost._facts(each)
    watched = [weakref.ref(each) for each in found]
    del found, each
    gc.collect()
    assert all(each() is None for each in watched)
