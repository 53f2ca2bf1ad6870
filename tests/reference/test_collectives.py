"""Step tables against the textbook: times equal closed forms, bytes equal published totals, nothing is below a bound."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.textbook import (
    bidirectional_ring_all_gather_time,
    broadcast_bound,
    chain_broadcast_time,
    direct_all_gather_time,
    direct_all_reduce_time,
    direct_all_to_all_line_time,
    doubling_all_gather_time,
    doubling_all_reduce_time,
    halved_ring_all_gather_time,
    halving_all_reduce_time,
    latency_bound,
    pipelined_broadcast_time,
    ring_all_gather_time,
    ring_all_reduce_time,
)

from halley.formulas import collectives
from halley.formulas.collectives import (
    all_reduce_bound,
    collective_time,
    cut_bound,
    gather_bound,
    lower_bound,
)
from halley.ir.hardware import CHIP_TOPOLOGIES, Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.time.axis import algorithms, profile
from halley.network.time.collective import ScheduledCollective, best
from halley.units import Quantity

Kind = CollectiveKind
LINE, RING, FULL = Topology.LINE, Topology.RING, Topology.FULL
Form = Callable[[Any, Any, Any, Any], Any]
POWERS = (2, 4, 8, 16)
ANY = tuple(range(2, 18))


def twice(form: Form) -> Form:
    return lambda n, payload, latency, bandwidth: 2 * form(n, payload, latency, bandwidth)


def in_n_chunks(n: Any, payload: Any, latency: Any, bandwidth: Any) -> Any:
    return pipelined_broadcast_time(n, n, payload, latency, bandwidth)


TEXTBOOK: list[tuple[Kind, str, Topology, Form, tuple[int, ...]]] = [
    (Kind.ALL_GATHER, "ring", RING, ring_all_gather_time, ANY),
    (Kind.REDUCE_SCATTER, "ring", RING, ring_all_gather_time, ANY),
    (Kind.ALL_REDUCE, "ring", RING, ring_all_reduce_time, ANY),
    (Kind.ALL_GATHER, "bidirectional", RING, bidirectional_ring_all_gather_time, ANY),
    (Kind.ALL_REDUCE, "bidirectional", RING, twice(bidirectional_ring_all_gather_time), ANY),
    (Kind.ALL_GATHER, "bidirectional", LINE, ring_all_gather_time, ANY),
    (Kind.ALL_REDUCE, "bidirectional", LINE, ring_all_reduce_time, ANY),
    (Kind.ALL_GATHER, "direct", FULL, direct_all_gather_time, ANY),
    (Kind.REDUCE_SCATTER, "direct", FULL, direct_all_gather_time, ANY),
    (Kind.GATHER, "direct", FULL, direct_all_gather_time, ANY),
    (Kind.SCATTER, "direct", FULL, direct_all_gather_time, ANY),
    (Kind.ALL_TO_ALL, "direct", FULL, direct_all_gather_time, ANY),
    (Kind.ALL_REDUCE, "direct", FULL, direct_all_reduce_time, ANY),
    (Kind.BROADCAST, "two-shot", FULL, direct_all_reduce_time, ANY),
    (Kind.REDUCE, "two-shot", FULL, direct_all_reduce_time, ANY),
    (Kind.ALL_TO_ALL, "direct", LINE, direct_all_to_all_line_time, ANY),
    (Kind.BROADCAST, "chain", LINE, chain_broadcast_time, ANY),
    (Kind.REDUCE, "chain", LINE, chain_broadcast_time, ANY),
    (Kind.ALL_REDUCE, "chain", LINE, twice(chain_broadcast_time), ANY),
    (Kind.ALL_REDUCE, "centre", LINE, chain_broadcast_time, ANY),
    (Kind.BROADCAST, "pipelined", LINE, in_n_chunks, ANY),
    (Kind.REDUCE, "pipelined", RING, in_n_chunks, ANY),
    (Kind.ALL_REDUCE, "doubling", FULL, doubling_all_reduce_time, POWERS),
    (Kind.ALL_GATHER, "doubling", FULL, doubling_all_gather_time, POWERS),
    (Kind.REDUCE_SCATTER, "halving", FULL, doubling_all_gather_time, POWERS),
    (Kind.ALL_REDUCE, "halving", FULL, halving_all_reduce_time, POWERS),
]


@pytest.mark.parametrize(("kind", "name", "topology", "form", "sizes"), TEXTBOOK)
def test_time_equals_the_closed_form(kind: Kind, name: str, topology: Topology, form: Form, sizes: tuple[int, ...]) -> None:
    for n in sizes:
        shape = profile(kind, name, topology, n)
        payload, latency, bandwidth = Fraction(7 * n, 3), Fraction(5, 11), Fraction(13, 2)
        got = collective_time(shape.hops, latency, shape.load, payload / n, bandwidth)
        assert got == pytest.approx(form(n, payload, latency, bandwidth), rel=1e-14)


@pytest.mark.parametrize("n", range(4, 40, 2))
def test_halved_ring_equals_its_closed_form_and_the_bound_of_bytes(n: int) -> None:
    """Both directions of an even ring carry the same: as few steps as bidirectional, and the least bytes on a link."""
    axis = Axis("x", n, RING, Link(6.5, 0.25))
    for kind, times in ((Kind.ALL_GATHER, 1), (Kind.REDUCE_SCATTER, 1), (Kind.ALL_REDUCE, 2)):
        cost = ScheduledCollective(kind, "bidirectional-halved", (axis,), 80 * n).cost()
        assert cost.time == pytest.approx(times * halved_ring_all_gather_time(n, 80 * n, 0.25, 6.5), rel=1e-12)
        assert best(kind, (axis,), 10**9).gap < 1e-6


@pytest.mark.parametrize("n", range(2, 17))
def test_ring_on_a_line_pays_the_way_back_in_every_step(n: int) -> None:
    """One message in every step returns over all n - 1 links; it meets no other, for it runs against the rest."""
    shape = profile(Kind.ALL_REDUCE, "ring", LINE, n)
    assert (shape.hops, shape.load) == (2 * (n - 1) * (n - 1), 2 * (n - 1))


def total_sent(kind: Kind, name: str, topology: Topology, n: int) -> Fraction:
    """Payloads sent by all members together, for a payload cut into n equal chunks."""
    return Fraction(sum(profile(kind, name, topology, n).sends), n)


@pytest.mark.parametrize("n", range(2, 17))
def test_bytes_sent_equal_the_published_totals(n: int) -> None:
    """2 (n - 1) / n payloads per member for a bandwidth-optimal all-reduce, half of it for its halves (Patarasuk and Yuan)."""
    for topology in CHIP_TOPOLOGIES:
        for name in ("ring", "bidirectional", "direct", "halving"):
            for kind, factor in ((Kind.ALL_REDUCE, 2), (Kind.ALL_GATHER, 1), (Kind.REDUCE_SCATTER, 1)):
                if name in algorithms(kind, topology, n):
                    assert total_sent(kind, name, topology, n) == factor * (n - 1)
    for name in ("direct", "chain", "pipelined"):
        assert total_sent(Kind.BROADCAST, name, LINE, n) == total_sent(Kind.REDUCE, name, LINE, n) == n - 1
    assert total_sent(Kind.ALL_REDUCE, "centre", LINE, n) == 2 * (n - 1)
    assert total_sent(Kind.ALL_REDUCE, "one-shot", FULL, n) == n * (n - 1)
    if n in POWERS:
        assert total_sent(Kind.ALL_REDUCE, "doubling", FULL, n) == n * (n.bit_length() - 1)


@pytest.mark.parametrize("n", range(2, 17))
def test_each_member_of_a_ring_sends_its_equal_part(n: int) -> None:
    """Ring all-reduce: 2 (n - 1) / n payloads leave each member, n - 1 chunks down the ring and n - 1 up."""
    shape = profile(Kind.ALL_REDUCE, "ring", RING, n)
    out = [sum(sum(row) for link, row in zip(shape.links, shape.crossings, strict=True) if link[0] == i) for i in range(n)]
    assert out == [2 * (n - 1)] * n


@pytest.mark.parametrize("side", [2, 4, 8])
def test_all_to_all_on_an_even_ring_loads_the_links_upwards_most(side: int) -> None:
    """Balanced routing would load every link n^2 / 8; ties that go up shift n / 4 from the links down to the links up."""
    shape = profile(Kind.ALL_TO_ALL, "direct", RING, side)
    up = {link: sum(row) for link, row in zip(shape.links, shape.crossings, strict=True)}
    half = side // 2
    assert shape.load == up[0, 1] == half * (half + 1) // 2  # distances 1 to n/2
    if side > 2:
        assert up[1, 0] == half * (half - 1) // 2  # distances 1 to n/2 - 1
        assert up[0, 1] + up[1, 0] == side * side // 4


LINKS: dict[Topology, Callable[[int], tuple[int, int, int]]] = {
    # directed links, links out of the worst member, diameter
    LINE: lambda n: (2 * (n - 1), 1, n - 1),
    RING: lambda n: (2 * n if n > 2 else 2, 2 if n > 2 else 1, n // 2),
    FULL: lambda n: (n * (n - 1), n - 1, 1),
}


@given(
    st.integers(2, 16),
    st.integers(1, 10**9),
    st.floats(0, 1e-3),
    st.floats(1e3, 1e12),
)
def test_no_estimate_is_below_a_lower_bound(n: int, payload: int, latency: float, bandwidth: float) -> None:
    for topology in CHIP_TOPOLOGIES:
        links, out, diameter = LINKS[topology](n)
        ends = latency_bound(diameter, latency)
        bounds = {
            Kind.ALL_GATHER: lower_bound(ends, gather_bound(n, payload, out * bandwidth)),
            Kind.REDUCE_SCATTER: lower_bound(ends, gather_bound(n, payload, out * bandwidth)),
            Kind.ALL_TO_ALL: lower_bound(ends, gather_bound(n, payload, out * bandwidth)),
            Kind.GATHER: gather_bound(n, payload, out * bandwidth),
            Kind.SCATTER: gather_bound(n, payload, out * bandwidth),
            Kind.BROADCAST: broadcast_bound(payload, out * bandwidth),
            Kind.REDUCE: broadcast_bound(payload, out * bandwidth),
            Kind.ALL_REDUCE: lower_bound(
                ends, broadcast_bound(payload, out * bandwidth), all_reduce_bound(n, payload, links * bandwidth)
            ),
        }
        if topology is LINE:
            middle = (n // 2) * (n - n // 2) * payload / n
            bounds[Kind.ALL_TO_ALL] = lower_bound(bounds[Kind.ALL_TO_ALL], cut_bound(middle, bandwidth))
        for kind, bound in bounds.items():
            for name in algorithms(kind, topology, n):
                shape = profile(kind, name, topology, n)
                time = collective_time(shape.hops, latency, shape.load, payload / n, bandwidth)
                assert time >= bound * (1 - 1e-12), (kind, name, topology)


@pytest.mark.parametrize("n", ANY)
def test_the_bounds_are_reached(n: int) -> None:
    """Bounds that no algorithm ever meets would be idle: with latency 0 these meet theirs, with bandwidth without limit those."""
    payload, bandwidth = 3 * n, 2.0
    for kind, name, topology, bound in (
        (Kind.ALL_GATHER, "bidirectional", LINE, gather_bound(n, payload, bandwidth)),
        (Kind.REDUCE_SCATTER, "direct", FULL, gather_bound(n, payload, (n - 1) * bandwidth)),
        (Kind.GATHER, "direct", LINE, gather_bound(n, payload, bandwidth)),
        (Kind.ALL_TO_ALL, "direct", LINE, cut_bound((n // 2) * (n - n // 2) * payload / n, bandwidth)),
        (Kind.ALL_REDUCE, "direct", FULL, all_reduce_bound(n, payload, n * (n - 1) * bandwidth)),
    ):
        shape = profile(kind, name, topology, n)
        assert collective_time(shape.hops, 0, shape.load, payload / n, bandwidth) == pytest.approx(bound)
    for kind, name, topology in (
        (Kind.ALL_REDUCE, "centre", LINE),
        (Kind.ALL_GATHER, "bidirectional", RING),
        (Kind.ALL_TO_ALL, "direct", LINE),
    ):
        assert profile(kind, name, topology, n).hops == latency_bound(LINKS[topology](n)[2], 1)


# --- the equations themselves ---

FORMULAS = [
    f
    for name, f in vars(collectives).items()
    if inspect.isfunction(f) and f.__module__ == collectives.__name__ and name[0] != "_"
]
UNITS: dict[str, dict[str, int]] = {
    "payload": {"B": 1},
    "crossing": {"B": 1},
    "chunk_bytes": {"B": 1},
    "bandwidth": {"B": 1, "s": -1},
    "injection": {"B": 1, "s": -1},
    "capacity": {"B": 1, "s": -1},
    "latency": {"s": 1},
    "bounds": {"s": 1},
    "startup": {"s": 1},
    "barrier": {"s": 1},
    "adder": {"s": 1},
    "streams": {"s": 1},
    "memory": {"s": 1},
}
COUNTS = {"steps": 8, "additions": 2, "members": 4, "before": 5, "chunks": 6, "hops": 7, "load": 9, "diameter": 3}


@pytest.mark.parametrize("formula", FORMULAS)
def test_units_balance(formula: Callable[..., Any]) -> None:
    values = [
        COUNTS[p] if p in COUNTS else Quantity.of(index + 2.0, **UNITS[p])
        for index, p in enumerate(inspect.signature(formula).parameters)
    ]
    assert formula(*values).unit == "s"


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_batch_is_its_entries(formula: Callable[..., Any]) -> None:
    names = list(inspect.signature(formula).parameters)
    rows = [
        [
            float([2, 4, 8, 16][(index + shift) % 4]) if p == "members" else 3.0 * index + 1.7 * shift + 2
            for index, p in enumerate(names)
        ]
        for shift in range(5)
    ]
    batch = formula(*(np.array(column) for column in zip(*rows, strict=True)))
    assert batch.tolist() == [formula(*row) for row in rows]


@pytest.mark.parametrize("formula", FORMULAS)
def test_each_formula_states_equation_symbols_source_and_limits(formula: Callable[..., Any]) -> None:
    text = inspect.getdoc(formula) or ""
    assert ".. math::" in text
    assert "Symbols: " in text
    assert re.search(r"Source:\s", text)
    assert "Does not\nmodel" in text or "Does not model" in text or formula is lower_bound
    (example,) = doctest.DocTestParser().get_examples(text)
    arguments = re.search(r"\((.*)\)", example.source)
    assert arguments is not None
    values = arguments[1].split(", ")
    assert len(set(values)) == len(values) >= len(inspect.signature(formula).parameters)
