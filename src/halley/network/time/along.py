"""Closed forms along one axis for shares of any sizes: what each share counts on the links that may be the busiest.

Shares are no larger than those before them, but otherwise as they come: the chunks of a payload, or what a phase of a collective
over several dimensions makes of them. Where one link is the busiest whatever the sizes, differences of the closed form of
`halley.network.time.forms` give the weights. Lines and rings have more: ``d`` is a distance below, n - d that of the other way
round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.time.forms import FORMS
from halley.network.time.tier_forms import direct_latency, direct_loads

_K, _P, _T = CollectiveKind, Pattern, Topology
_GATHERS = (_K.ALL_GATHER, _K.REDUCE_SCATTER)
_SPREADS = (_K.BROADCAST, _K.REDUCE)
_ENDS = (_K.SCATTER, _K.GATHER)
_HALVED = ("direct", "pairwise", "halving", "near-halving")

CROSSED = (_T.LINE, _T.RING, _T.FAT_TREE, _T.DRAGONFLY)
"""Topologies that have forms here beyond those of `halley.network.time.forms`."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Along:
    """A collective on one axis. ``hops``: links that the longest messages cross, ``messages``: those of the rank that posts most,
    both summed over the ``steps``; ``loads``, to be added: of some steps together, how often their links carry each share,
    [links, shares]; ``beyond`` [s]: latency of links of other tiers."""

    steps: int
    hops: int
    messages: int
    loads: tuple[Floats, ...]
    beyond: float = 0.0

    @classmethod
    def certain(cls, steps: int, hops: int, messages: int, weights: Floats) -> Along:
        """One link is the busiest whatever the sizes; all steps together."""
        return cls(steps, hops, messages, (np.asarray(weights, dtype=np.float64)[None],))

    def __add__(self, other: Along) -> Along:
        steps, hops, messages = self.steps + other.steps, self.hops + other.hops, self.messages + other.messages
        return Along(steps, hops, messages, self.loads + other.loads, self.beyond + other.beyond)


def along(kind: Kind, name: str, axis: Axis) -> Along | None:
    """The collective on one axis of at least two members; None where it is counted instead.

    >>> from halley.ir.hardware import Link
    >>> found = along(CollectiveKind.ALL_GATHER, "direct", Axis("x", 4, Topology.LINE, Link(1.0)))
    >>> found.hops, found.loads[0].tolist()
    (3, [[3.0, 0.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    """
    n, ring = axis.size, axis.topology is _T.RING
    if axis.topology in CROSSED and kind is _K.ALL_REDUCE and name in _HALVED:
        halves = [along(half, name, axis) for half in (_K.REDUCE_SCATTER, _K.ALL_GATHER)]
        return halves[0] + halves[1] if halves[0] and halves[1] else None
    if ring or axis.topology is _T.LINE:
        for kinds, names, make in _WAYS:
            if kind in kinds and name in names:
                return make(kind, n, ring)
    elif axis.topology in CROSSED and name == "direct" and kind in (*_GATHERS, _K.ALL_TO_ALL):
        return Along(1, 2, n - 1, (direct_loads(axis, kind is _K.ALL_GATHER),), direct_latency(axis))
    form = FORMS.get((kind, name, axis.topology))
    if form is None:
        return None
    whole = form.bytes(n, n, np.arange(1.0, n + 1))
    return Along.certain(form.steps(n, n), form.hops(n, n), form.messages(n, n), np.diff(whole, prepend=0.0))


def _longest(n: int, ring: bool) -> int:
    return n // 2 if ring else n - 1


def _first(n: int, count: int) -> Floats:
    """The first shares."""
    return (np.arange(n) < count).astype(np.float64)


def _doublings(n: int) -> Iterator[int]:
    return (1 << bit for bit in range((n - 1).bit_length()))


def _direct(kind: Kind, n: int, ring: bool) -> Along:
    load = _across_ring(n, kind is _K.ALL_GATHER) if ring else _across_line(n)
    return Along(1, _longest(n, ring), n - 1, (load,))


def _across_line(n: int) -> Floats:
    """Between the first m members and the others: the chunks of these m, to or from each of the others."""
    first = np.arange(1, n)[:, None]
    return np.where(np.arange(n) < first, n - first, 0).astype(np.float64)


def _across_ring(n: int, gathering: bool) -> Floats:
    """On every link, the chunks of those whose ways cross it: the nearest in h ways, the next in h - 1, ... where ways have up
    to h hops. Chunks go up to n / 2 hops one way, (n - 1) / 2 the other; they belong to the sources, or to the targets."""
    rows = []
    for sign, most in ((-1, n // 2), (1, (n - 1) // 2)):
        away = (sign if gathering else -sign) * (np.arange(n) - np.arange(n)[:, None]) % n
        rows.append(np.maximum(most - away, 0))
    return np.concatenate(rows).astype(np.float64)


def _direct_from_root(kind: Kind, n: int, ring: bool) -> Along:
    """On a line one link at the root carries all; on a ring two, up to the farthest either way."""
    up, down = (n // 2, (n - 1) // 2) if ring else (n - 1, 0)
    near, far = (down, up) if ring and kind is _K.GATHER else (up, down)
    share = np.arange(n)
    load = np.stack([(share > 0) & (share <= near), share >= n - far]).astype(np.float64)
    return Along(1, _longest(n, ring), n - 1 if kind is _K.SCATTER else 1, (load,))


def _direct_spread(kind: Kind, n: int, ring: bool) -> Along:
    messages = n - 1 if kind is _K.BROADCAST else 1
    return Along.certain(1, _longest(n, ring), messages, np.full(n, _longest(n, ring)))


def _linear(kind: Kind, n: int, ring: bool) -> Along:
    """One rank after the other, so that one message is on the way at a time."""
    hops = sum(min(d, n - d) if ring else d for d in range(1, n))
    return Along.certain(n - 1, hops, n - 1, np.full(n, n - 1) if kind in _SPREADS else 1 - _first(n, 1))


def _binomial(kind: Kind, n: int, ring: bool) -> Along:
    """Ways of one step have no link in common."""
    ways = [min(d, n - d) if ring else d for d in _doublings(n)]
    return Along.certain(len(ways), sum(ways), len(ways), np.full(n, len(ways)) if kind in _SPREADS else 1 - _first(n, 1))


def _binomial_all_reduce(kind: Kind, n: int, ring: bool) -> Along:
    return _binomial(_K.REDUCE, n, ring) + _binomial(_K.BROADCAST, n, ring)


def _pairwise(kind: Kind, n: int, ring: bool) -> Along:
    """At distance d, d messages cross a link, or n - d if they are fewer: of successive members, on some link of the first."""
    hops = sum(min(d, n - d) if ring else max(d, n - d) for d in range(1, n))
    return Along.certain(n - 1, hops, n - 1, sum((_first(n, min(d, n - d)) for d in range(1, n)), np.zeros(n)))


def _doubled(kind: Kind, n: int, ring: bool) -> Along:
    """In the middle of 2 d members, d send to the other d all d shares of their half."""
    steps = list(_doublings(n))
    return Along.certain(len(steps), sum(steps), len(steps), sum((d * _first(n, d) for d in steps), np.zeros(n)))


def _doubled_whole(kind: Kind, n: int, ring: bool) -> Along:
    steps = list(_doublings(n))
    return Along.certain(len(steps), sum(steps), len(steps), np.full(n, sum(steps)))


def _near_halved(kind: Kind, n: int, ring: bool) -> Along:
    """Partners at distance n / 2 d exchange shares whose numbers differ in the bit of d."""
    steps = list(_doublings(n))
    weights = sum(((np.arange(n) & d == 0).astype(np.float64) for d in steps), np.zeros(n))
    return Along.certain(len(steps), sum(steps), len(steps), weights)


def _all_tell_all(kind: Kind, n: int, ring: bool) -> Along:
    """The ways that cross the middle of a line, or any link of a ring."""
    half = n // 2
    return Along.certain(1, _longest(n, ring), n - 1, np.full(n, half * (half + 1) // 2 if ring else half * (n - half)))


def _neighbour(kind: Kind, n: int, ring: bool) -> Along:
    return Along.certain(1, 1, 1, _first(n, 1))


def _point_to_point(kind: Kind, n: int, ring: bool) -> Along:
    return Along.certain(1, 1 if ring else n - 1, 1, np.ones(n))


_WAYS: tuple[tuple[tuple[Kind, ...], tuple[str, ...], Callable[[Kind, int, bool], Along]], ...] = (
    ((*_GATHERS, _K.ALL_TO_ALL), ("direct",), _direct),
    (_ENDS, ("direct",), _direct_from_root),
    (_SPREADS, ("direct",), _direct_spread),
    ((*_SPREADS, *_ENDS), ("linear",), _linear),
    ((*_SPREADS, *_ENDS), ("binomial",), _binomial),
    ((_K.ALL_REDUCE,), ("binomial",), _binomial_all_reduce),
    ((*_GATHERS, _K.ALL_TO_ALL), ("pairwise",), _pairwise),
    (_GATHERS, ("doubling", "halving"), _doubled),
    ((_K.ALL_REDUCE,), ("doubling",), _doubled_whole),
    (_GATHERS, ("near-halving",), _near_halved),
    ((_K.ALL_REDUCE,), ("one-shot",), _all_tell_all),
    ((_K.SHIFT,), ("neighbour",), _neighbour),
    ((_P.POINT_TO_POINT,), ("direct",), _point_to_point),
)
"""(kinds, algorithms, what they do on a line or ring)."""
