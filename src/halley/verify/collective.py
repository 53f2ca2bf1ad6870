"""Verification of collectives: the table of steps runs on arrays and does what the collective is defined to do, and a simulation
takes the time that the schedule is said to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, HalleyError
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.graph.graph import Graph
from halley.network.graph.groups import Group
from halley.network.time.collective import CollectiveCost, ScheduledCollective, slot_times
from halley.network.time.contention import ConcurrentRun, Stage, collective_execution, concurrent
from halley.network.time.schedules import Schedule, is_line
from halley.network.time.simulate import Held, SimulatedRun, initial_chunks, simulate
from halley.network.time.traffic import lines_of
from halley.units import format_time
from halley.verify.findings import Finding, close

MOST_TRANSFERS = 200_000
"""Transfers of a table that is run; one with more takes minutes."""

Array = NDArray[Any]

_K = CollectiveKind

_ALL_RANKS = (_K.ALL_REDUCE, _K.ALL_GATHER, _K.BROADCAST, _K.REDUCE, _K.REDUCE_SCATTER)
"""Kinds in which each chunk goes to all other ranks, or comes from them."""


def collective_findings(cost: CollectiveCost, team: Group, startup: float = 0.0) -> Iterator[Finding]:
    """The schedule of a cost, run on arrays: the outcome of the collective's definition, and the time and the bytes on each link
    of the cost model, both at a size of a few bytes for each chunk. ``startup`` [s] comes before every step.

    A schedule over several dimensions whose pieces or orders overlap has no table that shows its time: there a fluid simulation
    of each slot on all links tests that its phases end in time (`slot_finding`).
    """
    name, kind, graph = cost.algorithm, cost.kind, team.graph
    yield Finding(name, "bound", cost.time >= cost.bound.value * (1 - 1e-9), f"{format_time(cost.time)}, {cost.bound.why}")
    ranks, plan = graph.ranks, cost.schedule.algorithm
    if ranks < 2:
        yield Finding(name, "execution", True, "one rank: nothing moves")
        return
    run = _executed(cost, team, startup)
    if isinstance(run, Finding):
        yield run
    else:
        wrong = [rank for rank, right in enumerate(outcomes(kind, run.given, run.simulated.held, run.chunks)) if not right]
        right = f"{ranks} ranks end with what NumPy gives, {run.chunks} chunks"
        yield Finding(name, "execution", not wrong, f"ranks {wrong[:3]} end with other values" if wrong else right)
    if kind is Pattern.BARRIER:
        return
    if isinstance(plan, Phased) and (plan.pieces > 1 or len(plan.parts) > 1):
        yield slot_finding(cost, plan, team, startup)
    elif not isinstance(run, Finding):
        # sizes of a cost count what `halley.network.time.collective.CONVENTIONS` says; a vector of a rank is all of them here
        size = len(run.given[0])
        costed = ScheduledCollective(kind, cost.schedule, team, size, startup).cost()
        loads = [float(load) for load in run.simulated.link_bytes]
        same = close(costed.time, run.simulated.time) and np.allclose(costed.link_bytes, loads, rtol=1e-12)
        detail = f"{format_time(run.simulated.time)} simulated, {format_time(costed.time)} by the cost model, at {size} B"
        yield Finding(name, "step simulation", same, detail)


class _Executed(NamedTuple):
    """A run of a table: one vector a rank, and into how many chunks each was cut."""

    given: list[Array]
    chunks: int
    simulated: SimulatedRun


def _executed(cost: CollectiveCost, team: Group, startup: float) -> _Executed | Finding:
    """The table on arrays; the finding that says why not."""
    name, kind, what = cost.algorithm, cost.kind, "execution"
    ranks, chunks = team.graph.ranks, cost.schedule.chunks(kind, team.graph.ranks)
    least = chunks * (ranks - 1 if kind in _ALL_RANKS else 1)
    if least > MOST_TRANSFERS:  # known before the table is made, which takes minutes
        return Finding(name, what, None, f"at least {least:,} transfers; at most {MOST_TRANSFERS:,} are run")
    try:
        table = cost.schedule.steps(kind, ranks, is_line(team))
    except BadInput as error:
        return Finding(name, what, None, f"no table of steps: {error.faults[0]}")
    transfers = sum(len(step) for step in table)
    if transfers > MOST_TRANSFERS:
        return Finding(name, what, None, f"{transfers:,} transfers; at most {MOST_TRANSFERS:,} are run")
    size = 2 * chunks // ranks if kind is _K.ALL_TO_ALL else 2 * chunks
    given: list[Array] = [np.random.default_rng(rank).integers(0, 1000, size) for rank in range(ranks)]
    try:
        return _Executed(given, chunks, simulate(team.graph, table, initial_chunks(kind, given, chunks), startup=startup))
    except HalleyError as error:
        return Finding(name, what, False, str(error.faults[0]))


def slot_finding(cost: CollectiveCost, plan: Phased, team: Group, startup: float = 0.0) -> Finding:
    """Each slot simulated as a fluid on all links: its phases end within the time of the slot, and all slots together put the
    bytes of the cost on every link. ``startup`` [s] comes before every step."""
    what, graph, size = "slot simulation", team.graph, cost.size
    given = slot_times(team, cost.schedule, size, startup)
    late, loads = list[str](), np.zeros(len(graph.edges))
    slots = Counter(tuple(phase for _, phase in slot) for slot in plan.slots)
    spans = dict(zip((tuple(phase for _, phase in slot) for slot in plan.slots), given, strict=True))
    pieces = phase_executions(plan, graph, size, startup)
    for slot, times in slots.items():
        running = slot_executions(plan, graph, slot, pieces)
        loads += times * np.sum([item.loads(graph) for item in running], axis=0)
        end = concurrent(running, graph).end
        if end > spans[slot] * (1 + 1e-9):
            late.append(f"phases {slot} take {format_time(end)} instead of {format_time(spans[slot])}")
    if late:
        return Finding(cost.algorithm, what, False, late[0])
    if not close(sum(given), cost.time):
        detail = f"slots take {format_time(sum(given))}, the collective {format_time(cost.time)}"
        return Finding(cost.algorithm, what, False, detail)
    if not np.allclose(loads, cost.link_bytes, rtol=1e-9, atol=1e-9 * size):
        return Finding(cost.algorithm, what, False, "other bytes on the links than the cost model has")
    detail = f"{len(given)} slots, {len(slots)} of them different, end within {format_time(cost.time)}"
    return Finding(cost.algorithm, what, True, detail)


def phase_executions(plan: Phased, graph: Graph, size: float, startup: float = 0.0) -> dict[tuple[int, int], ConcurrentRun]:
    """By (phase, part): one piece of it, on all lines at once. ``size`` [B] of the whole collective; ``startup`` [s] comes before
    every step."""
    found = {}
    for (number, part), phase in product(enumerate(plan.parts), range(len(plan.parts[0].runs))):
        run = part.runs[phase]
        payload = size * float(part.share) / (run.phase.divisor(plan.shape) * plan.pieces)
        lines, schedule = list(lines_of(plan.shape, run.phase)), Schedule(run.algorithm, run.pieces)
        name, line = f"phase {phase} of part {number}", run.phase.dimension in plan.lines
        made = collective_execution(name, graph, run.phase.kind, lines, schedule, payload, startup=startup, line=line)
        found[phase, number] = made
    return found


def slot_executions(
    plan: Phased, graph: Graph, phases: Iterable[int], pieces: Mapping[tuple[int, int], ConcurrentRun]
) -> list[ConcurrentRun]:
    """The phases of a slot, of all parts; those of one step on one dimension as one step. ``pieces``: those of
    `phase_executions`."""
    found: list[ConcurrentRun] = []
    steps: dict[int, list[Stage]] = {}
    for phase, (number, part) in product(phases, enumerate(plan.parts)):
        made = pieces[phase, number]
        if len(made.stages) == 1:
            steps.setdefault(part.runs[phase].phase.dimension, []).append(made.stages[0])
        else:
            found.append(made)
    for dimension, together in steps.items():
        edges = np.concatenate([stage.edges for stage in together])
        loads = np.zeros(len(graph.edges))
        np.add.at(loads, edges, np.concatenate([stage.loads for stage in together]))
        used = np.flatnonzero(loads)
        delay = max(stage.delay for stage in together)
        found.append(ConcurrentRun(f"dimension {dimension}", (Stage(delay, used, loads[used]),)))
    return found


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
