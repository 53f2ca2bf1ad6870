"""Latency anatomy: the parts add up exactly, in every phase, for every node kind; small cases by hand."""

from __future__ import annotations

from random import Random

import pytest
from tests.reference.generate import random_chip, random_trees, random_workload
from tests.reference.trees import chip, collect, gemm, nest

from halley.cost.anatomy import Anatomy, TimeBreakdown, anatomy
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.ir.workload import Workload
from halley.rewrite import legality

KINDS = ("computing", "ramps", "serial", "stages", "latency", "stalling", "exposed")


def taken_apart(workload: Workload, machine: Chip, tree: Node) -> tuple[float, Anatomy]:
    estimate = evaluate(workload, machine, tree)
    return float(estimate.time), anatomy(tree, estimate)


def test_parts_of_random_trees_add_up() -> None:
    """To 1e-12, in total and in each phase; none is negative; every kind of node and of time is met."""
    met: set[type] = set()
    times: set[str] = set()
    for seed in range(200):
        random = Random(seed)
        workload, machine = random_workload(random), random_chip(random)

        def legal(tree: Node, workload: Workload = workload, machine: Chip = machine) -> bool:
            return not legality.faults(tree, workload, machine)

        *_, tree = random_trees(random, workload, machine, legal, 20)
        estimate = evaluate(workload, machine, tree)
        found = anatomy(tree, estimate)
        assert found.total.time == pytest.approx(float(estimate.time), rel=1e-12)
        assert sum(found.energy.values()) == pytest.approx(float(estimate.energy), rel=1e-12)
        for path, parts in found.phases.items():
            assert parts.time == pytest.approx(float(estimate.nodes[path].time), rel=1e-12)
            assert all(getattr(parts, kind) >= 0 for kind in KINDS)
        met |= {type(node) for _, node in walk(tree)}
        times |= {kind for kind in KINDS if getattr(found.total, kind) > 0}
    assert met == {Temporal, Spatial, Hold, Collective, Compute, Sequence, Overlap, Parallel, Pipeline}
    assert times == set(KINDS)


def tiles(buffers: int) -> tuple[Workload, Chip, Node]:
    """Four tiles: 32 bytes of B each, 14 cycles, 64 bytes of results, written once and drained, at 1 B/ns; A is 64 bytes."""
    inner = Hold("obuf", (("C",),), Hold("wbuf", (("B",),), Compute("C"), buffers), buffers)
    return gemm(8, 16, 4), chip(1, 1), nest(("dram", "A B C"), ("ibuf", "A"), ("n", 4), inner)


def test_a_stall_is_what_the_busiest_resource_takes_beyond_the_work() -> None:
    time, found = taken_apart(*tiles(2))
    parts = found.total
    assert parts.compute == pytest.approx({("engine", "mxu"): 4 * 14e-9})
    assert parts.serial == pytest.approx(64e-9)  # A
    assert parts.ramps == pytest.approx((32 + 64) * 1e-9)  # the first B, the last C
    assert sum(parts.bandwidth.values()) == pytest.approx(4 * (64 - 14) * 1e-9)
    assert parts.time == pytest.approx(time)


def test_single_buffers_are_serial() -> None:
    """Nothing but the engine and the results' port inside; fills and drains stand in line."""
    _, found = taken_apart(*tiles(1))
    assert found.total.serial == pytest.approx((64 + 4 * (32 + 64)) * 1e-9)
    assert found.total.ramps == 0
    assert found.total.stalling == pytest.approx(4 * (64 - 14) * 1e-9)


def test_compute_hides_a_collective_beside_it() -> None:
    """Only what lasts longer than all compute is exposed."""
    parts = TimeBreakdown(
        compute={("engine", "mxu"): 3.0},
        ramps=1.0,
        bandwidth={("read", "dram"): 2.0, ("port", "cluster", "down"): 2.0},
        collective={("axis", "cluster", "x"): 2.0},
    )
    assert parts.less(1.5).exposed == pytest.approx(0.5)
    assert parts.less(3.0).exposed == 0
    assert parts.less(3.0).bandwidth == pytest.approx({("read", "dram"): 1.5, ("port", "cluster", "down"): 1.5})
    assert parts.less(6.5).ramps == pytest.approx(0.5)
    assert parts.less(6.5).time == pytest.approx(parts.time - 6.5)


def test_a_collective_in_sequence_is_exposed() -> None:
    """Four steps of 3 elements of 2 bytes at 1 B/ns, beside which a member reads six chunks, one of them short."""
    series = Sequence((Compute("C"), collect("all-reduce", "C")))
    tree = nest(("dram", "A B C"), ("ibuf", "A B"), ("obuf", "C"), ("k", 2, "x"), series)
    _, found = taken_apart(gemm(2, 4, 6), chip(3, 1), tree)
    assert found.total.collective == pytest.approx({("axis", "cluster", "x"): 34e-9})
