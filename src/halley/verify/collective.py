"""Verification of collectives: the table of steps runs on arrays and does what the collective is defined to do, and the step
simulation takes the time that the schedule is said to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.errors import HalleyError
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.graph.groups import Group
from halley.network.time.collective import Collective, CollectiveCost
from halley.network.time.schedules import is_line
from halley.network.time.simulate import Held, deal, simulate
from halley.units import format_time
from halley.verify.findings import Finding, close

MOST_TRANSFERS = 200_000
"""Transfers of a table that is run; one with more takes minutes."""

Array = NDArray[Any]

_K = CollectiveKind


def collective_findings(cost: CollectiveCost, team: Group, startup: float = 0.0) -> Iterator[Finding]:
    """The schedule of a cost, run on arrays: the outcome of the collective's definition, and the time and the bytes on each link
    of the cost model, both at a size of a few bytes for each chunk. ``startup`` [s] comes before every step."""
    name, kind, graph = cost.algorithm, cost.kind, team.graph
    yield Finding(name, "bound", cost.time >= cost.bound.value * (1 - 1e-9), f"{format_time(cost.time)}, {cost.bound.why}")
    ranks, table = graph.ranks, cost.schedule.steps(kind, graph.ranks, is_line(team))
    if ranks < 2:
        yield Finding(name, "execution", True, "one rank: nothing moves")
        return
    transfers = sum(len(step) for step in table)
    if transfers > MOST_TRANSFERS:
        yield Finding(name, "execution", None, f"{transfers:,} transfers; at most {MOST_TRANSFERS:,} are run")
        return
    chunks = cost.schedule.chunks(kind, ranks)
    size = 2 * chunks // ranks if kind is _K.ALL_TO_ALL else 2 * chunks
    given = [np.random.default_rng(rank).integers(0, 1000, size) for rank in range(ranks)]
    try:
        run = simulate(graph, table, deal(kind, given, chunks), startup=startup)
    except HalleyError as error:
        yield Finding(name, "execution", False, str(error.faults[0]))
        return
    wrong = [rank for rank, right in enumerate(outcomes(kind, given, run.held, chunks)) if not right]
    detail = f"ranks {wrong[:3]} end with other values" if wrong else f"{ranks} ranks end with what NumPy gives, {chunks} chunks"
    yield Finding(name, "execution", not wrong, detail)
    if kind is Pattern.BARRIER:
        return
    # sizes of a cost count what `halley.network.time.collective.CONVENTIONS` says; a vector of a rank is all of them here
    costed = Collective(kind, cost.schedule, team, size, startup).cost()
    same = close(costed.time, run.time) and np.allclose(costed.link_bytes, [float(load) for load in run.link_bytes], rtol=1e-12)
    detail = f"{format_time(run.time)} simulated, {format_time(costed.time)} by the cost model, at {size} B"
    yield Finding(name, "step simulation", same, detail)


def outcomes(kind: Kind, given: Sequence[Array], held: Held, chunks: int) -> list[bool]:
    """Of each rank, whether it ends with what the definition of the collective gives it (in NumPy, from one vector a rank)."""
    ranks, size, every, own = len(given), len(given[0]), range(chunks), chunks // len(given)
    width = -(-size // chunks)
    share = [slice(rank * own * width, (rank + 1) * own * width) for rank in range(ranks)]
    mine = [range(rank * own, (rank + 1) * own) for rank in range(ranks)]

    def has(rank: int, numbers: Sequence[int], wanted: Array) -> bool:
        parts = [held[rank].get(number) for number in numbers]
        known = [part for part in parts if part is not None]
        return len(known) == len(parts) and np.array_equal(np.concatenate(known) if known else wanted[:0], wanted)

    total, first, everyone = np.add.reduce(list(given)), given[0], range(ranks)
    match kind:
        case _K.ALL_REDUCE:
            return [has(rank, every, total) for rank in everyone]
        case _K.REDUCE:
            return [has(0, every, total)]
        case _K.BROADCAST:
            return [has(rank, every, first) for rank in everyone]
        case _K.REDUCE_SCATTER:
            return [has(rank, mine[rank], total[share[rank]]) for rank in everyone]
        case _K.ALL_GATHER | _K.GATHER:
            gathered = np.concatenate([given[rank][share[rank]] for rank in everyone])
            return [has(rank, every, gathered) for rank in (everyone if kind is _K.ALL_GATHER else (0,))]
        case _K.SCATTER:
            return [has(rank, mine[rank], first[share[rank]]) for rank in everyone]
        case _K.SHIFT:
            return [has(rank + 1, range(rank, rank + 1), given[rank][share[rank]]) for rank in range(ranks - 1)]
        case _K.ALL_TO_ALL:
            each = own // ranks
            block = -(-size // own) * each
            return [
                all(
                    has(
                        target,
                        range((source * ranks + target) * each, (source * ranks + target + 1) * each),
                        given[source][target * block : (target + 1) * block],
                    )
                    for source in everyone
                )
                for target in everyone
            ]
        case Pattern.POINT_TO_POINT:
            return [has(ranks - 1, every, first)]
        case Pattern.BARRIER:
            return [0 in held[rank] and len(held[rank][0]) == 0 for rank in everyone]
    return []
