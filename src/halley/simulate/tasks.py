"""Tasks with what they ask of servers and what they wait for; and the clock that runs them (docs/simulation.md).

A *server* is one instance of a resource: a memory's read or write port, a level's port, an axis, an engine. An engine or an axis
serves one request at a time, first come, first served; a port serves a request of each stream at once, with even shares of its
bandwidth, as memory controllers and networks take turns with the bursts of their users. A task arrives at its servers once all
that it waits for is done and its latency has passed; it puts one request to each, and is done when the last of them has been
served.
"""

from __future__ import annotations

import heapq
from collections import deque
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


SHARED = ("read", "write", "bus", "port")
"""Resources that serve several streams at once. Engines and axes do one thing after the other."""


@dataclass(slots=True)
class _Queue:
    """One server. Streams share it evenly; requests of one stream are served one after the other, first come, first served.

    ``served`` [s]: what each stream that is being served has got since the begin; ``at`` [s]: until when that is counted;
    ``heads``: of each of these streams, when its present request is done, by ``served``, and the request: (task, duration,
    start). ``waiting``: further requests by stream. ``version`` says which of the departures that were announced still holds."""

    at: float = 0.0
    served: float = 0.0
    heads: list[tuple[float, int, object, float]] = field(default_factory=list)
    waiting: dict[object, deque[tuple[int, float]]] = field(default_factory=dict)
    version: int = 0

    def advance(self, now: float) -> None:
        """Count what was served until now."""
        if self.heads:
            self.served += (now - self.at) / len(self.heads)
        self.at = now

    def arrive(self, stream: object, task: int, duration: float, now: float) -> None:
        """One more request."""
        self.advance(now)
        if stream in self.waiting:
            self.waiting[stream].append((task, duration))
        else:
            self.waiting[stream] = deque()
            heapq.heappush(self.heads, (self.served + duration, task, stream, now))

    def departure(self) -> float:
        """When the next request is done, if nothing arrives before."""
        self.version += 1
        return self.at + max(self.heads[0][0] - self.served, 0.0) * len(self.heads)

    def depart(self, now: float) -> tuple[int, float]:
        """The request that is done now: its task, and when it was begun. The next one of its stream is begun."""
        self.at, (self.served, task, stream, start) = now, heapq.heappop(self.heads)
        if further := self.waiting[stream]:
            other, duration = further.popleft()
            heapq.heappush(self.heads, (self.served + duration, other, stream, now))
        else:
            del self.waiting[stream]
        return task, start


def run(tasks: Tasks) -> Schedule:
    """Let the clock run until all tasks are done.

    Of requests of one stream (the tasks of one name at one node) whoever arrives first is served first; of two that arrive at
    once, the earlier in program order. A resource that is not in `SHARED` has one stream.
    """
    count = len(tasks.names)
    missing = [len(waits) for waits in tasks.waits]
    ready = [0.0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, waits in enumerate(tasks.waits):
        for other in waits:
            followers[other].append(number)
    queues: dict[Server, _Queue] = {}
    busy: dict[Server, float] = {}
    open_requests = [len(requests) for requests in tasks.requests]
    intervals: list[Interval] = []
    last = 0.0
    # (time, task that arrives) or (time, count, version, server) of a departure: these first, so that a server is free again
    events: list[tuple[float, int, int, Server | None]] = [
        (tasks.latencies[number], count + number, 0, None) for number in range(count) if not missing[number]
    ]
    heapq.heapify(events)

    def done(number: int, now: float) -> None:
        nonlocal last
        last = max(last, now)
        for follower in followers[number]:
            ready[follower] = max(ready[follower], now)
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(events, (ready[follower] + tasks.latencies[follower], count + follower, 0, None))

    order = {server: index for index, server in enumerate(dict.fromkeys(s for each in tasks.requests for s, _ in each))}
    while events:
        now, what, version, server = heapq.heappop(events)
        if server is not None:
            queue = queues[server]
            if version != queue.version:
                continue
            number, start = queue.depart(now)
            if now > start:
                intervals.append(Interval(tasks.names[number], server, start, now, tasks.paths[number]))
            if queue.heads:
                heapq.heappush(events, (queue.departure(), order[server] - len(order), queue.version, server))
            open_requests[number] -= 1
            if not open_requests[number]:
                done(number, now)
            continue
        number = what - count
        if not tasks.requests[number]:
            done(number, now)
        for server, duration in tasks.requests[number]:
            busy[server] = busy.get(server, 0.0) + duration
            queue = queues.setdefault(server, _Queue())
            stream = (tasks.paths[number], tasks.names[number]) if server.resource[0] in SHARED else None
            queue.arrive(stream, number, duration, now)
            heapq.heappush(events, (queue.departure(), order[server] - len(order), queue.version, server))
    return Schedule(last, busy, tuple(intervals))
