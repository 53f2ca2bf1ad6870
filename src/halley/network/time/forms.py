"""Closed forms: hops and bytes on the busiest links for the collectives that have them, by kind, algorithm and topology.

All links of the topology are equal. Every entry equals the step simulator to the byte (tests/reference/test_step_simulator.py).
Whatever has no entry is counted once on the graph. `halley.network.time.lines` turns both into times of equal chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from halley.formulas import busiest
from halley.formulas.busiest import doublings
from halley.formulas.collectives import collective_time
from halley.formulas.numbers import Number, floor_div
from halley.ir.hardware import Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern

_K, _P, _T = CollectiveKind, Pattern, Topology

Steps: TypeAlias = Callable[[Number, Number], Number]
"""(ranks, chunks) -> steps."""
Bytes: TypeAlias = Callable[[Number, Number, Number], Number]
"""(ranks, chunks, payload) -> bytes on the busiest link of each step, summed."""


@dataclass(frozen=True, slots=True)
class Form:
    """``hops``: links that the longest messages cross, ``messages``: those of the rank that posts most, both summed over the
    steps."""

    steps: Steps
    bytes: Bytes
    hops: Steps
    messages: Steps

    def time(self, ranks: Number, chunks: Number, payload: Number, link: Link, startup: float = 0.0) -> Number:
        """Time [s]; ``payload`` [B] and all else may be arrays. ``startup`` [s] of every step.

        >>> FORMS[CollectiveKind.ALL_REDUCE, "ring", Topology.RING].time(4, 4, 242, Link(2.0, 5.0))
        213.0
        """
        links = collective_time(self.hops(ranks, chunks), link.latency, 1, self.bytes(ranks, chunks, payload), link.bandwidth)
        posting = self.messages(ranks, chunks) * link.overhead if link.overhead else 0.0
        return self.steps(ranks, chunks) * startup + posting + links


def _plain(form: Callable[[Number, Number], Number], times: int = 1) -> Bytes:
    return lambda n, _, payload: times * form(n, payload)


def _all(times: Steps = lambda n, k: 1) -> Bytes:
    """The whole payload, so many times."""
    return lambda n, k, payload: times(n, k) * payload


def _steps(count: int) -> Steps:
    return lambda n, k: count


def _halvings(n: Number, _: Number) -> Number:
    return doublings(n)


def _folded(per_doubling: int, folds: int) -> Steps:
    """Steps that double among the largest power of two, and those that fold the rest in and out."""

    def steps(n: Number, _: Number) -> Number:
        inner = doublings(n + 1) - 1
        return per_doubling * inner + folds * (doublings(n) - inner)

    return steps


def _twice(steps: Steps) -> Steps:
    return lambda n, k: 2 * steps(n, k)


def _neighbours(n: Number, _: Number) -> Number:
    return n - 1


def _half_round(n: Number, _: Number) -> Number:
    return floor_div(n, 2)


_RING, _BOTH, _DOUBLED = _plain(busiest.ring_bytes), _plain(busiest.both_ways_bytes), _plain(busiest.doubled_bytes)
_SCATTERED = _plain(busiest.all_but_first_bytes)
_GATHERS = (_K.ALL_GATHER, _K.REDUCE_SCATTER)
_SPREADS = (_K.BROADCAST, _K.REDUCE)
_ENDS = (_K.SCATTER, _K.GATHER)

_Row: TypeAlias = tuple[tuple[Kind, ...], str, Steps, Bytes]

ONE_AT_A_TIME: tuple[_Row, ...] = (
    (_GATHERS, "ring", _neighbours, _RING),
    ((_K.ALL_REDUCE,), "ring", _twice(_neighbours), _plain(busiest.ring_bytes, 2)),
    ((*_GATHERS, _K.ALL_TO_ALL), "pairwise", _neighbours, _RING),
    ((_K.ALL_REDUCE,), "pairwise", _twice(_neighbours), _plain(busiest.ring_bytes, 2)),
    ((_K.ALL_TO_ALL,), "store-and-forward", _neighbours, _plain(busiest.forwarded_bytes)),
    (_GATHERS, "bruck", _halvings, _DOUBLED),
    ((_K.ALL_REDUCE,), "bruck", _twice(_halvings), _plain(busiest.doubled_bytes, 2)),
    ((_K.ALL_GATHER,), "doubling", _halvings, _DOUBLED),
    ((_K.REDUCE_SCATTER,), "halving", _halvings, _DOUBLED),
    ((_K.ALL_REDUCE,), "doubling", _halvings, _all(_halvings)),
    ((_K.ALL_REDUCE,), "halving", _twice(_halvings), _plain(busiest.doubled_bytes, 2)),
    ((_K.ALL_REDUCE,), "near-halving", _twice(_halvings), _plain(busiest.doubled_bytes, 2)),
    ((_K.ALL_REDUCE,), "folded-doubling", _folded(1, 2), _all(_folded(1, 2))),
    ((_K.ALL_REDUCE,), "folded-halving", _folded(2, 2), _plain(busiest.folded_bytes)),
    ((_K.REDUCE_SCATTER,), "folded-halving", _folded(1, 2), _plain(busiest.folded_scatter_bytes)),
    (_SPREADS, "binomial", _halvings, _all(_halvings)),
    ((_K.ALL_REDUCE,), "binomial", _twice(_halvings), _all(_twice(_halvings))),
    (_ENDS, "binomial", _halvings, _SCATTERED),
    (_SPREADS, "linear", _neighbours, _all(_neighbours)),
    (_ENDS, "linear", _neighbours, _SCATTERED),
    (_SPREADS, "chain", _neighbours, _all(_neighbours)),
    ((_K.ALL_REDUCE,), "chain", _twice(_neighbours), _all(_twice(_neighbours))),
    (_SPREADS, "pipelined", lambda n, k: n - 2 + k, busiest.chain_bytes),
    ((_P.POINT_TO_POINT,), "direct", _steps(1), _all()),
    ((_P.BARRIER,), "all-tell-all", _steps(1), _all(_steps(0))),
    ((_P.BARRIER,), "dissemination", _halvings, _all(_steps(0))),
    ((_P.BARRIER,), "tree-barrier", _twice(_halvings), _all(_steps(0))),
    ((_P.BARRIER,), "ring-barrier", _twice(_neighbours), _all(_steps(0))),
)
"""Where a rank sends and receives one message at a time, it does not matter whether it has one port or a link to every other."""

FULL: tuple[_Row, ...] = (
    ((*_GATHERS, _K.ALL_TO_ALL), "direct", _steps(1), _plain(busiest.chunk_bytes)),
    ((_K.ALL_REDUCE,), "direct", _steps(2), _plain(busiest.chunk_bytes, 2)),
    (_ENDS, "direct", _steps(1), _plain(busiest.second_chunk_bytes)),
    (_SPREADS, "direct", _steps(1), _all()),
    ((_K.ALL_REDUCE,), "one-shot", _steps(1), _all()),
    (_GATHERS, "bidirectional", _half_round, _BOTH),
    ((_K.ALL_REDUCE,), "bidirectional", _twice(_half_round), _plain(busiest.both_ways_bytes, 2)),
    ((_K.ALL_REDUCE,), "centre", _neighbours, _all(_neighbours)),
    ((_K.SHIFT,), "neighbour", _steps(1), _plain(busiest.chunk_bytes)),
)

SWITCH: tuple[_Row, ...] = (
    ((_K.SHIFT,), "neighbour", _steps(1), _plain(busiest.chunk_bytes)),
    ((*_GATHERS, _K.ALL_TO_ALL), "direct", _steps(1), _RING),
    ((_K.ALL_REDUCE,), "direct", _steps(2), _plain(busiest.ring_bytes, 2)),
    (_ENDS, "direct", _steps(1), _SCATTERED),
    (_SPREADS, "direct", _steps(1), _all(_neighbours)),
    ((_K.ALL_REDUCE,), "one-shot", _steps(1), _all(_neighbours)),
    (_SPREADS, "multicast", _steps(1), _all()),
    (_GATHERS, "multicast", _steps(1), _plain(busiest.most_of_others_bytes)),
    ((_K.ALL_REDUCE,), "in-network", _steps(1), _all()),
    ((_K.ALL_REDUCE,), "pulled", lambda n, k: floor_div(k, n) + 1, busiest.switch_all_reduce_bytes),
)

RING: tuple[_Row, ...] = (
    *(row for row in ONE_AT_A_TIME if row[1] in ("ring", "chain", "pipelined", "store-and-forward")),
    *(row for row in FULL if row[1] in ("bidirectional", "centre")),
    (_GATHERS, "bidirectional-halved", _half_round, _plain(busiest.halved_bytes)),
    ((_K.ALL_REDUCE,), "bidirectional-halved", _twice(_half_round), _plain(busiest.halved_bytes, 2)),
)

_BY_BIT = ("doubling", "halving", "near-halving", "folded-doubling", "folded-halving", "binomial")
ADJACENT: tuple[_Row, ...] = tuple(row for row in ONE_AT_A_TIME if row[1] in _BY_BIT)
"""Partners whose numbers differ in one bit: neighbours on a hypercube."""

LINE: tuple[_Row, ...] = (
    *(row for row in ONE_AT_A_TIME if row[1] in ("chain", "pipelined")),
    (_GATHERS, "bidirectional", _neighbours, _RING),
    ((_K.ALL_REDUCE,), "bidirectional", _twice(_neighbours), _plain(busiest.ring_bytes, 2)),
    ((_K.ALL_REDUCE,), "centre", _neighbours, _all(_neighbours)),
)


def _spread_on_line(n: Number, _: Number) -> Number:
    """One message a step, and a second one while some rank passes on blocks of either side."""
    return n - 1 + floor_div(n + 1, 2) - floor_div(2, n)


def _collected_on_line(n: Number, _: Number) -> Number:
    """The same backwards: a second one while some rank still hears of either side."""
    return n - 1 + floor_div(n - 1, 2)


POSTED: dict[tuple[Kind, str] | tuple[Kind, str, Topology], Steps] = {
    **{(kind, "direct"): _neighbours for kind in (*_GATHERS, _K.ALL_TO_ALL, _K.SCATTER, _K.BROADCAST)},
    (_K.ALL_REDUCE, "direct"): _twice(_neighbours),
    (_K.ALL_REDUCE, "one-shot"): _neighbours,
    (_P.BARRIER, "all-tell-all"): _neighbours,
    (_K.ALL_REDUCE, "pulled"): lambda n, k: 2 * floor_div(k, n),
    **{(kind, "bidirectional", where): _neighbours for kind in _GATHERS for where in (_T.RING, _T.FULL)},
    **{(_K.ALL_REDUCE, "bidirectional", where): _twice(_neighbours) for where in (_T.RING, _T.FULL)},
    **{(kind, "bidirectional-halved", _T.RING): lambda n, k: n for kind in _GATHERS},
    (_K.ALL_REDUCE, "bidirectional-halved", _T.RING): lambda n, k: 2 * n,
    (_K.ALL_GATHER, "bidirectional", _T.LINE): _spread_on_line,
    (_K.REDUCE_SCATTER, "bidirectional", _T.LINE): _collected_on_line,
    (_K.ALL_REDUCE, "bidirectional", _T.LINE): lambda n, k: _spread_on_line(n, k) + _collected_on_line(n, k),
    (_K.ALL_REDUCE, "centre"): lambda n, k: n - 1 + n - 2 * floor_div(n, 2),  # a rank in the centre serves both sides
}
"""Messages of the rank that posts most, where they are more than one a step."""


def _entries() -> Iterator[tuple[tuple[Kind, str, Topology], Form]]:
    for topology, rows, links in (
        (_T.FULL, (*ONE_AT_A_TIME, *FULL), 1),
        (_T.SWITCH, (*ONE_AT_A_TIME, *SWITCH), 2),  # to the switch and from it
        (_T.RING, RING, 1),
        (_T.LINE, LINE, 1),
        (_T.HYPERCUBE, ADJACENT, 1),
    ):
        for kinds, name, steps, volume in rows:
            for kind in kinds:
                messages = POSTED.get((kind, name, topology), POSTED.get((kind, name), steps))
                yield (kind, name, topology), Form(steps, volume, _hops(steps, links), messages)
    across = _plain(busiest.across_line_bytes)
    for kind in (*_GATHERS, _K.ALL_TO_ALL):
        yield (kind, "direct", _T.LINE), Form(_steps(1), across, _neighbours, _neighbours)
    twice = _plain(busiest.across_line_bytes, 2)
    yield (_K.ALL_REDUCE, "direct", _T.LINE), Form(_steps(2), twice, _twice(_neighbours), _twice(_neighbours))
    for kind in _GATHERS:  # the closing message of every step goes back over the whole line
        yield (kind, "ring", _T.LINE), Form(_neighbours, _RING, lambda n, k: (n - 1) * (n - 1), _neighbours)
    both = _plain(busiest.ring_bytes, 2)
    steps = _twice(_neighbours)
    yield (_K.ALL_REDUCE, "ring", _T.LINE), Form(steps, both, lambda n, k: 2 * (n - 1) * (n - 1), steps)


def _hops(steps: Steps, links: int) -> Steps:
    return lambda n, k: links * steps(n, k)


FORMS: dict[tuple[Kind, str, Topology], Form] = dict(_entries())
"""(kind, algorithm, topology) -> its closed form."""
