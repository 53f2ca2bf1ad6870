"""Collectives on a chip that take more than their links: what the network adds and copies, start-up, barrier, memories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.reference.test_counts import assert_agrees
from tests.reference.trees import chip, collect, gemm, nest

from halley.cost.evaluate import evaluate
from halley.cost.events import LinkTraffic
from halley.errors import IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Chip, Exchange, Topology
from halley.ir.mapping import CollectiveKind, Compute, Node, Sequence
from halley.network.algorithms import Able
from halley.network.algorithms.tables import verify
from halley.network.time.axis import algorithms, steps
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate

K = CollectiveKind
ABLE = Able(multicast=True, reduction=True)


NONE = Exchange()


def on_axis(machine: Chip, exchange: Exchange = NONE, able: bool = True, **memory: object) -> Chip:
    """The chip with other collectives along x, and other memories in its clusters."""
    outer, shared, inner = machine.levels
    assert inner.network is not None
    x, y = inner.network.axes
    x = replace(x, exchange=exchange, multicast=able, reduction=able)
    stores = tuple(replace(each, **memory) for each in inner.memories)  # type: ignore[arg-type]
    inner = replace(inner, memories=stores, network=replace(inner.network, axes=(x, y)))
    return replace(machine, levels=(outer, shared, inner))


def summed(kind: str, algorithm: str, dim: str = "") -> Node:
    """Four members with a part of the sum each, 3 x 5 results; then a collective."""
    series = Sequence((nest(("k", 2, "x"), Compute("C")), collect(kind, "C", algorithm=algorithm, dim=dim)))
    return nest(("dram", "A B C"), ("ibuf", "A B"), ("obuf", "C"), series)


def exchanged(machine: Chip, tree: Node) -> float:
    """Time of the collective [s]; the simulation's is the same."""
    workload = gemm(3, 5, 8)
    (event,) = (each for each in evaluate(workload, machine, tree).events if isinstance(each, LinkTraffic))
    found = [each for each in simulate(workload, machine, tree).intervals if each.server.resource[0] == "axis"]
    assert sum(each.stop - each.start for each in found) == pytest.approx(float(event.time), rel=1e-12)
    return float(event.time)


IN_NETWORK = [("reduce", "multicast", ""), ("reduce-scatter", "multicast", "n"), ("all-reduce", "in-network", "")]


@pytest.mark.parametrize("size", range(1, 9))
def test_tables_in_the_network_keep_their_promise(size: int) -> None:
    for kind in (K.BROADCAST, K.REDUCE, K.ALL_GATHER, K.REDUCE_SCATTER, K.ALL_REDUCE):
        names = set(algorithms(kind, Topology.LINE, size, ABLE)) - set(algorithms(kind, Topology.LINE, size))
        assert names == {"in-network" if kind is K.ALL_REDUCE else "multicast"}
        for name in names:
            table = steps(kind, name, Topology.LINE, size)
            verify(kind, table, size)
            assert len(table) == (size > 1)


@pytest.mark.parametrize(("kind", "algorithm", "dim"), IN_NETWORK)
def test_the_network_adds_as_the_interpreter_does(kind: str, algorithm: str, dim: str) -> None:
    machine, tree, workload = on_axis(chip(4, 1)), summed(kind, algorithm, dim), gemm(3, 5, 8)
    assert faults(tree, workload, machine) == []
    given = random_inputs(workload, 3)
    done = run(workload, machine, tree, given)
    np.testing.assert_allclose(done.outputs["C"], given["A"] @ given["B"])
    assert_agrees(workload, machine, tree, done)
    assert max(done.counters.links.values()) == 3 * 5 * 2  # each link carries a result once at most


@pytest.mark.parametrize(("kind", "algorithm", "dim"), IN_NETWORK)
def test_a_network_that_does_not_add_is_refused(kind: str, algorithm: str, dim: str) -> None:
    machine, tree, workload = on_axis(chip(4, 1), able=False), summed(kind, algorithm, dim), gemm(3, 5, 8)
    assert any("a network that" in str(fault) for fault in faults(tree, workload, machine))
    with pytest.raises(IllegalMapping, match=r"expected a network that (adds|copies); got one that does not"):
        run(workload, machine, tree, random_inputs(workload, 3))


def test_the_network_takes_one_step() -> None:
    """Start-up, three hops of 2 ns with an adder of 5 ns each, 30 bytes at 0.5 B/ns where they are added, barrier."""
    exchange = Exchange(startup=100e-9, barrier=50e-9, adder=5e-9, add_bandwidth=0.5e9)
    machine = on_axis(chip(4, 1), exchange, read_bandwidth=1e12, write_bandwidth=1e12)
    assert exchanged(machine, summed("reduce", "multicast")) == pytest.approx((100 + 3 * 5 + 30 / 0.5 + 50) * 1e-9)


def test_each_step_is_set_up_and_ends_at_a_barrier() -> None:
    """A ring of four: six steps. Members add, so that the vector engine's pipeline is waited for once."""
    base = chip(4, 1)
    quick = {"read_bandwidth": 1e12, "write_bandwidth": 1e12}
    plain = exchanged(on_axis(base, **quick), summed("all-reduce", "ring"))
    stepped = on_axis(base, Exchange(startup=100e-9, barrier=50e-9, adder=5e-9), **quick)
    assert exchanged(stepped, summed("all-reduce", "ring")) == pytest.approx(plain + 6 * 150e-9)
    assert stepped.vector is not None
    deep = replace(stepped, vector=replace(stepped.vector, latency=7e-9))
    assert exchanged(deep, summed("all-reduce", "ring")) == pytest.approx(plain + 6 * 150e-9 + 7e-9)


@pytest.mark.parametrize("shared_bus", [False, True])
def test_members_memories_can_hold_a_collective_up(shared_bus: bool) -> None:
    """A chain passes all 30 bytes on in three steps of 30 ns: a member within it reads them twice, to add and to send, and writes
    them once."""
    slow = on_axis(chip(4, 1), read_bandwidth=0.5e9, write_bandwidth=2e9, shared_bus=shared_bus)
    assert exchanged(slow, summed("reduce", "chain")) == pytest.approx((120 + (15 if shared_bus else 0)) * 1e-9)
    fast = on_axis(chip(4, 1), read_bandwidth=4e9, write_bandwidth=4e9, shared_bus=shared_bus)
    assert exchanged(fast, summed("reduce", "chain")) == pytest.approx(3 * 30e-9)


def test_memories_that_keep_up_change_nothing() -> None:
    """One and a half times the links' rate is enough for a ring: of two chunks that a member sends it adds to one."""
    quick: dict[str, object] = {"read_bandwidth": 1.5e9, "write_bandwidth": 1.5e9}
    huge: dict[str, object] = {"read_bandwidth": 1e15, "write_bandwidth": 1e15}
    tree = summed("all-reduce", "ring")
    assert exchanged(on_axis(chip(4, 1), **quick), tree) == exchanged(on_axis(chip(4, 1), **huge), tree)
