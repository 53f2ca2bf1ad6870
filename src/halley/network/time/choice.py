"""The schedule of a collective, the fastest or a named one, and the breakdown of its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halley.errors import BadInput, Fault, did_you_mean
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import Kind
from halley.network.graph.groups import Group
from halley.network.time.collective import CollectiveCost, ScheduledCollective, best, candidates, check_size, fastest_of
from halley.network.time.schedules import Schedule, best_pieces, is_pieced


def chosen(kind: Kind, team: Group, size: int, algorithm: str | None = None, startup: float = 0.0) -> CollectiveCost:
    """The fastest schedule; or, of the algorithm or candidate of that name, the fastest.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.ir.mapping import CollectiveKind
    >>> from halley.network.time.collective import team_of
    >>> team = team_of((Axis("x", 8, Topology.RING, Link(1e9, 1e-6)),))
    >>> [chosen(CollectiveKind.ALL_REDUCE, team, 2**30, name).algorithm for name in (None, "ring")]
    ['bidirectional-halved', 'ring']

    Raises BadInput: as `halley.network.time.collective.candidates`; no such schedule.
    """
    if algorithm is None:
        return best(kind, team, size, startup)
    check_size(kind, size)
    if algorithm not in ALGORITHMS:
        return _named(algorithm, kind, team, size, startup)
    schedule = fastest_of(kind, team, algorithm, size, startup)
    if schedule is None:
        fits = ALGORITHMS[algorithm].unfit(kind, team.graph.ranks) is None
        pieces = best_pieces(kind, algorithm, team, size, startup) if fits and is_pieced(kind, algorithm) else 1
        schedule = Schedule(algorithm, pieces)
    return ScheduledCollective(kind, schedule, team, size, startup).cost()


def _named(name: str, kind: Kind, team: Group, size: int, startup: float) -> CollectiveCost:
    """The candidate of a name that is not an algorithm's alone, but says dimensions or circuits."""
    found = {item.algorithm: item for item in candidates(kind, team, size, startup)}
    if name not in found:
        where = f"{kind} among {team.graph.ranks} ranks of {team.graph.name}"
        raise BadInput(Fault(where, "a known algorithm", repr(name), did_you_mean(name, found)))
    return found[name]


def busiest_time(cost: CollectiveCost, team: Group) -> float:
    """How long the link that has most to do transfers, all steps together [s]."""
    return float(np.max(cost.link_bytes / team.graph.bandwidths, initial=0.0))


def bytes_sent(cost: CollectiveCost, team: Group) -> float:
    """Bytes that leave the rank that sends most, what it passes on among them."""
    sent = np.zeros(team.graph.vertices)
    np.add.at(sent, [edge.source for edge in team.graph.edges], cost.link_bytes)
    return float(sent[: team.graph.ranks].max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a schedule takes longer than another: seconds more [s] that it waits (start-ups, latencies), that its busiest link
    transfers, and that this link stands idle while others work. They add up to the difference of the times."""

    waiting: float
    bytes: float
    idling: float


def loss(cost: CollectiveCost, better: CollectiveCost, team: Group) -> Loss:
    """The parts of the difference between two costs of one collective."""
    delay = cost.waiting - better.waiting
    busy = busiest_time(cost, team) - busiest_time(better, team)
    return Loss(delay, busy, cost.time - better.time - delay - busy)
