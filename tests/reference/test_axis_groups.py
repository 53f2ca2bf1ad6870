"""Groups along an axis, and fills that a broadcast completes: interpreter, formulas, simulation and static check."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.test_counts import assert_agrees

from halley.cost.evaluate import evaluate
from halley.cost.events import LinkTraffic
from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.io.chips.load import load_chip
from halley.ir.axis_groups import with_axis_groups
from halley.ir.hardware import Axis, Chip, Exchange, Link, Network, Topology
from halley.ir.mapping import Node, walk
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.rewrite.legality import check, faults
from halley.simulate.simulation import simulate
from halley.workloads.gemm import gemm

LINE = Link(32e9, 2e-9, 1e-12)
EXCHANGE = Exchange(30e-9, 36e-9, 6e-9, 28e9)


def chip(x: int, y: int, multicast: bool = False) -> Chip:
    """Edge with x times y clusters, whose networks copy and add in collectives."""
    edge = load_chip("edge")
    axes = tuple(
        Axis(name, size, Topology.LINE, LINE, multicast=True, reduction=True, exchange=EXCHANGE)
        for name, size in (("x", x), ("y", y))
    )
    inner = edge.levels[2]
    assert inner.network is not None
    assert edge.matrix is not None
    clusters = replace(inner, network=Network(axes, inner.network.port, multicast, False))
    return replace(edge, levels=(*edge.levels[:2], clusters), matrix=replace(edge.matrix, reads={}))


def assert_right(workload: Workload, machine: Chip, tree: Node, seed: int = 0) -> None:
    """Legal, the product of A and B, and counted by the formulas as executed."""
    check(tree, workload, machine)
    arrays = random_inputs(workload, seed)
    done = run(workload, machine, tree, arrays)
    np.testing.assert_allclose(done.outputs["C"], np.einsum("mk,kn->mn", arrays["A"], arrays["B"]))
    assert_agrees(workload, machine, tree, done)


WHOLE = """
hold dram: A B C
  spread m by 2 over cluster.x
    hold obuf: C
      hold ibuf: A B
        compute gemm
"""

GROUPS = """
hold dram: A B C
  spread m by 8 over cluster.x/4
    spread m by 2 over cluster.x%4
      hold obuf: C
        hold ibuf: A B
          compute gemm
"""


@pytest.mark.parametrize("multicast", [False, True])
@pytest.mark.parametrize("rows", [16, 13, 5])
def test_a_split_over_groups_and_inside_them_is_a_split_over_the_axis(rows: int, multicast: bool) -> None:
    workload, machine = gemm(rows, 6, 4), chip(8, 2, multicast)
    whole, both = (evaluate(workload, machine, parse(text)) for text in (WHOLE, GROUPS))
    assert_right(workload, machine, parse(GROUPS))
    assert both.reads() == whole.reads()
    assert both.writes() == whole.writes()
    assert (both.time, both.energy) == pytest.approx((whole.time, whole.energy), rel=1e-12)
    times = [simulate(workload, machine, parse(text)).time for text in (WHOLE, GROUPS)]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_groups_and_members_have_splits_and_collectives_of_their_own() -> None:
    """Groups of 2 have rows of their own; the sum is split inside a group."""
    text = """
hold dram: A B C
  spread m by 4 over cluster.x/2
    hold obuf: C
      sequence
        spread k by 3 over cluster.x%2
          hold ibuf: A B
            compute gemm
        all-reduce C over cluster.x%2 with in-network
"""
    tree = parse(text)
    assert parse(to_text(tree)) == tree
    assert_right(gemm(16, 5, 6), chip(8, 1), tree)


def test_a_collective_between_groups_shares_the_links_with_those_of_the_other_members() -> None:
    """In each step of a chain over 4 groups of 2, a payload crosses two links, each with the payloads of two chains."""
    text = """
hold dram: A B C
  spread n by 5 over cluster.x%2
    hold obuf: C
      sequence
        spread k by 2 over cluster.x/2
          hold ibuf: A B
            compute gemm
        reduce C over cluster.x/2 with chain
"""
    workload, machine, tree = gemm(3, 10, 8, dtype="fp16"), chip(8, 1), parse(text)
    assert_right(workload, machine, tree)
    (event,) = (each for each in evaluate(workload, machine, tree).events if isinstance(each, LinkTraffic))
    vector = machine.vector
    assert vector is not None
    barrier = EXCHANGE.barrier * 4 / 8
    step = EXCHANGE.startup + 2 * LINE.latency + 2 * (3 * 5 * 2) / LINE.bandwidth + barrier
    assert event.time == pytest.approx(3 * step + vector.latency)
    found = [each for each in simulate(workload, machine, tree).intervals if each.server.resource[0] == "axis"]
    assert sum(each.stop - each.start for each in found) == pytest.approx(event.time)


def test_a_group_of_a_ring_is_a_line_and_the_groups_are_a_ring() -> None:
    outer, inner = Axis("x", 12, Topology.RING, LINE).grouped(3)
    assert (outer.size, outer.topology, inner.size, inner.topology) == (4, Topology.RING, 3, Topology.LINE)
    alone, every = Axis("x", 12, Topology.RING, LINE).grouped(12)
    assert (alone.size, every.topology) == (1, Topology.RING)


def test_a_chip_knows_the_groups_along_its_axes_by_name() -> None:
    machine = chip(8, 2)
    assert [machine.axis("cluster", name).size for name in ("x", "x/4", "x%4", "y%2")] == [8, 2, 4, 2]
    with pytest.raises(BadInput, match="expected the name of an axis; got 'w/4'"):
        machine.axis("cluster", "w/4")


def test_a_mapping_without_groups_leaves_the_chip_as_it_is() -> None:
    machine = chip(8, 2)
    assert with_axis_groups(machine, (node for _, node in walk(parse(WHOLE)))) is machine


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x%4", "x", "expected the whole axis, or groups of one size, throughout the mapping; got groups of 4 and the"),
        ("x%4", "x%2", "got groups of 2 and groups of 4"),
        ("4", "3", "expected a divisor of its size 8; got groups of 3"),
    ],
)
def test_groups_that_do_not_fit_are_refused(old: str, new: str, message: str) -> None:
    tree, workload, machine = parse(GROUPS.replace(old, new)), gemm(16, 6, 4), chip(8, 2)
    assert [message in str(fault) for fault in faults(tree, workload, machine)] == [True]
    with pytest.raises(IllegalMapping, match=message):
        check(tree, workload, machine)
    for judge in (evaluate, simulate):
        with pytest.raises(BadInput, match=message):
            judge(workload, machine, tree)


BROADCAST = """
hold dram: A B C
  spread m by {m} over cluster.y
    spread n by {n} over cluster.x
      hold obuf: C
        for k by {k}
          hold ibuf{buffers}: A
            sequence
              broadcast A over cluster.x with {a}
              hold wbuf: B
                sequence
                  broadcast B over cluster.y with {b}
                  compute gemm
"""


@pytest.mark.parametrize("seed", range(40))
def test_a_fill_that_is_broadcast_reaches_the_first_member_only(seed: int) -> None:
    """The parent is read once for each row of A and each column of B, as with multicast on the way."""
    random = Random(seed)
    x, y, m, n, k = (random.randint(1, 4) for _ in range(5))
    rounds, ways = random.randint(1, 3), ("chain", "multicast", "pipelined", "direct")
    sizes = {"m": m, "n": n, "k": k, "a": random.choice(ways), "b": random.choice(ways)}
    workload = gemm(y * m, x * n, rounds * k)
    tree = parse(BROADCAST.format(buffers=random.choice(("", " x2")), **sizes))
    machine = chip(x, y)
    assert_right(workload, machine, tree, seed)
    reads = evaluate(workload, machine, tree).reads()
    word = workload.tensors["A"].word
    assert reads["dram", "A", "fill"] == y * m * rounds * k * word
    assert reads["dram", "B", "fill"] == x * n * rounds * k * word


def test_the_members_that_wait_for_a_broadcast_do_not_have_the_tensor() -> None:
    """A broadcast after the first reader comes too late, and one over another axis leaves the members of this one without."""
    text = BROADCAST.format(m=2, n=3, k=4, a="chain", b="chain", buffers="")
    workload, machine = gemm(4, 6, 4), chip(2, 2)
    late = text.replace("broadcast B over cluster.y with chain\n                  compute gemm", "compute gemm")
    late += "                  broadcast B over cluster.y with chain\n"
    found = faults(parse(late), workload, machine)
    assert any("expected B Single over cluster.y; got Replicate" in str(fault) for fault in found)
    with pytest.raises(IllegalMapping):
        run(workload, machine, parse(late), random_inputs(workload, 0))
    two = text.replace(
        "broadcast A over cluster.x with chain",
        "broadcast A over cluster.x with chain\n              broadcast A over cluster.y with chain",
    )
    assert faults(parse(two), workload, machine)
    with pytest.raises(IllegalMapping):
        run(workload, machine, parse(two), random_inputs(workload, 0))
