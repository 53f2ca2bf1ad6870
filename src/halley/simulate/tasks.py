"""Tasks with what they ask of servers and what they wait for; and the clock that runs them (docs/simulation.md).

A *server* is one instance of a resource: a memory's read or write port, a level's port, an axis, an engine. It serves one request
at a time, first come, first served. A task arrives at its servers once all that it waits for is done and its latency has
passed; it puts one request to each, and is done when the last of them has been served.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from halley.errors import BadInput, Fault

Path = tuple[int, ...]

Resource = tuple[str, ...]
"""("engine", name) | ("read", memory) | ("write", memory) | ("bus", memory) | ("port", level, "down" or "up") |
("axis", level, axis)."""


class Server(NamedTuple):
    """The instance of a resource that the critical member uses. ``place`` is empty for the first instance; in the shares of
    `Parallel` and `Pipeline` it says where the share begins, as "cluster.x 2"."""

    resource: Resource
    place: str = ""


Requests = tuple[tuple[Server, float], ...]
"""What a task asks of servers [s]; each server once."""


class Interval(NamedTuple):
    """A server at work: from ``start`` to ``stop`` [s], for the task ``name`` of the node at ``path``."""

    name: str
    server: Server
    start: float
    stop: float
    path: Path


@dataclass(slots=True)
class Tasks:
    """Tasks in program order: each waits for earlier ones only. ``limit`` bounds how many there may be."""

    where: str
    limit: int
    names: list[str] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    requests: list[Requests] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, name: str, path: Path, after: Iterable[int], requests: Requests = (), latency: float = 0.0) -> int:
        """The number of a new task. Raises BadInput: more tasks than the limit."""
        number = len(self.names)
        if number >= self.limit:
            expected = f"at most {self.limit} tasks"
            got = f"more, at {name} of node {'.'.join(map(str, path)) or '.'}"
            remedy = "raise the limit, or simulate the first iterations alone (--limit, --iterations)"
            raise BadInput(Fault(self.where, expected, got, remedy))
        self.names.append(name)
        self.paths.append(path)
        self.requests.append(requests)
        self.latencies.append(latency)
        self.waits.append(tuple(dict.fromkeys(after)))
        return number

    def join(self, tasks: Sequence[int], path: Path) -> int:
        """A task that is done when all of these are."""
        distinct = tuple(dict.fromkeys(tasks))
        return distinct[0] if len(distinct) == 1 else self.add("", path, distinct)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When everything happens. ``time`` [s] until the last task is done; ``busy`` [s] by server; ``intervals`` in the order in
    which they were granted."""

    time: float
    busy: Mapping[Server, float]
    intervals: tuple[Interval, ...]


def run(tasks: Tasks) -> Schedule:
    """Let the clock run until all tasks are done.

    Whoever arrives first is served first; of two that arrive at once, the earlier in program order.
    """
    count = len(tasks.names)
    missing = [len(waits) for waits in tasks.waits]
    ready = [0.0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, waits in enumerate(tasks.waits):
        for other in waits:
            followers[other].append(number)
    arrivals = [(tasks.latencies[number], number) for number in range(count) if not missing[number]]
    heapq.heapify(arrivals)
    free: dict[Server, float] = {}
    busy: dict[Server, float] = {}
    intervals: list[Interval] = []
    last = 0.0
    while arrivals:
        arrival, number = heapq.heappop(arrivals)
        done = arrival
        for server, duration in tasks.requests[number]:
            start = max(arrival, free.get(server, 0.0))
            stop = start + duration
            free[server] = stop
            busy[server] = busy.get(server, 0.0) + duration
            if duration:
                intervals.append(Interval(tasks.names[number], server, start, stop, tasks.paths[number]))
            done = max(done, stop)
        last = max(last, done)
        for follower in followers[number]:
            ready[follower] = max(ready[follower], done)
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(arrivals, (ready[follower] + tasks.latencies[follower], follower))
    return Schedule(last, busy, tuple(intervals))
