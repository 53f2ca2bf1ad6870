"""A collective over many sizes: every algorithm's time, the fastest, and the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import Kind
from halley.network.graph.groups import Group
from halley.network.time.choice import chosen
from halley.network.time.collective import CollectiveCost, candidates
from halley.network.time.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Sweep:
    """Times [s] over sizes [B]: by family of schedules (None where it does not run), and the bound; ``best``: the fastest."""

    kind: Kind
    sizes: tuple[int, ...]
    times: Mapping[str, tuple[float | None, ...]]
    bounds: tuple[float, ...]
    best: tuple[CollectiveCost, ...]


def family(schedule: Schedule) -> str:
    """What a schedule is called whatever its pieces: its algorithm, or ``hierarchical`` for one dimension after the other.

    >>> family(Schedule("chain", 17)), family(Schedule("ring", order=(0, 1, 3, 2)))
    ('chain', 'ring along a snake')
    """
    if isinstance(schedule.algorithm, Phased):
        return "hierarchical"
    return replace(schedule, pieces=1).name


def sweep(kind: Kind, team: Group, sizes: Sequence[int], algorithm: str | None = None, startup: float = 0.0) -> Sweep:
    """All candidates at every size, or the one algorithm that is named. Raises BadInput as
    `halley.network.time.choice.chosen`."""
    found = []
    for size in sizes:
        one = algorithm is not None
        found.append((chosen(kind, team, size, algorithm, startup),) if one else candidates(kind, team, size, startup))
    fastest: list[dict[str, float]] = []
    for costs in found:
        times: dict[str, float] = {}
        for cost in costs:
            name = family(cost.schedule)
            times[name] = min(cost.time, times.get(name, cost.time))
        fastest.append(times)
    names = dict.fromkeys(name for times in fastest for name in times)
    by_name = {name: tuple(times.get(name) for times in fastest) for name in names}
    best = tuple(costs[0] for costs in found)
    return Sweep(kind, tuple(sizes), by_name, tuple(cost.bound.value for cost in best), best)
