"""Tasks with their requests to servers and their dependencies, and the clock that runs them (docs/simulation.md).

A *server* is one instance of a resource: a memory's read or write port, a level's port, an axis, an engine. An engine or axis
serves one request at a time, first come, first served. A port interleaves its requests in bursts, as memory controllers and
networks do, so that a short transfer does not wait for the end of a long one. After each burst, the port serves the request that
an engine or axis needs first in program order; children of an overlap are interleaved by their progress. So urgent transfers
precede prefetches, and reads precede writes that no task waits for. A task arrives at its servers when its dependencies are done
and its latency has passed; it sends one request to each server, and is done when the last request has been served.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from halley.errors import BadInput, Fault

Path = tuple[int, ...]

Resource = tuple[str, ...]
"""("engine", name) | ("read", memory) | ("write", memory) | ("bus", memory) | ("port", level, "down" or "up") |
("axis", level, axis) | ("dma", memory)."""


class Server(NamedTuple):
    """The instance of a resource that the critical member uses. ``place`` is empty for the first instance; in a share of
    `Parallel` or `Pipeline` it names the first member of the share, such as "cluster.x 2"."""

    resource: Resource
    place: str = ""


Requests = tuple[tuple[Server, float], ...]
"""Service times [s] that a task requests; each server occurs once."""


class BusyInterval(NamedTuple):
    """A busy interval of a server: from ``start`` to ``stop`` [s], for the task ``name`` of the node at ``path``."""

    name: str
    server: Server
    start: float
    stop: float
    path: Path


@dataclass(slots=True)
class Tasks:
    """Tasks in program order: each depends on earlier ones only. ``limit``: largest number of tasks. ``priorities``: smaller is
    served first at ports; program order, with concurrent children interleaved."""

    where: str
    limit: int
    names: list[str] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    requests: list[Requests] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    priorities: list[float] = field(default_factory=list)

    def add(self, name: str, path: Path, after: Iterable[int], requests: Requests = (), latency: float = 0.0) -> int:
        """Add a task that depends on the tasks ``after``; its number. Raises BadInput: more tasks than the limit."""
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
        self.priorities.append(number)
        return number

    def interleave(self, own: range, others: range, later: int = 0) -> None:
        """Set the priorities of tasks so that they interleave with ``others`` in proportion to their progress, shifted by
        ``later`` times the number of others."""
        start, scale = others.start + later * len(others), len(others) / max(len(own), 1)
        for number in own:
            self.priorities[number] = start + (self.priorities[number] - own.start) * scale

    def join(self, tasks: Sequence[int], path: Path) -> int:
        """The number of a task that is done when all of these are."""
        distinct = tuple(dict.fromkeys(tasks))
        return distinct[0] if len(distinct) == 1 else self.add("", path, distinct)


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """Result of a simulation. ``time`` [s] until the last task is done; ``busy`` [s] by server; ``intervals`` in the order of the
    grants."""

    time: float
    busy: Mapping[Server, float]
    intervals: tuple[BusyInterval, ...]


BURSTS_PER_LONGEST_REQUEST = 256
"""Least number of bursts of a port's longest request; shorter requests have proportionally fewer, but one at least."""

PORTS = ("read", "write", "bus", "port")
"""Resources that interleave their requests."""


def _bursts(tasks: Tasks) -> dict[Server, float]:
    """Duration [s] of a burst of each port: no longer than its shortest request, as formulas divide bandwidth without limit."""
    durations: dict[Server, set[float]] = {}
    for requests in dict.fromkeys(tasks.requests):
        for server, duration in requests:
            if server.resource[0] in PORTS and duration:
                durations.setdefault(server, set()).add(duration)
    return {server: min(max(each) / BURSTS_PER_LONGEST_REQUEST, min(each)) for server, each in durations.items()}


def _needed(tasks: Tasks) -> list[tuple[float, float]]:
    """Priority of each task: (priority of the first task on an engine or axis that depends on it, directly or indirectly; the
    negative time [s] of the tasks between them without waiting)."""
    at_work = [any(server.resource[0] not in PORTS for server, _ in requests) for requests in tasks.requests]
    result = [(float(len(tasks.names)), 0.0)] * len(tasks.names)
    for number in range(len(tasks.names) - 1, -1, -1):
        first, lead = (tasks.priorities[number], 0.0) if at_work[number] else result[number]
        lead -= tasks.latencies[number] if at_work[number] else tasks.latencies[number] + _longest(tasks.requests[number])
        for other in tasks.waits[number]:
            result[other] = min(result[other], (first, lead))
    return result


def _longest(requests: Requests) -> float:
    return max((duration for _, duration in requests), default=0.0)


DONE, ARRIVAL, FREE = range(3)
"""Kinds of events, in the order in which events of one moment are processed."""

BURST_ROUNDING = 1e-9
"""Relative tolerance: a smaller fraction of a burst counts as zero."""


class Clock:
    """Event loop. An engine or axis serves tasks in order of arrival, tasks with equal arrival in program order."""

    def __init__(self, tasks: Tasks) -> None:
        count = len(tasks.names)
        self.tasks, self.burst = tasks, _bursts(tasks)
        self.missing, self.ready, self.done = [len(waits) for waits in tasks.waits], [0.0] * count, [0.0] * count
        self.left = [len(requests) for requests in tasks.requests]  # requests that are not served yet
        self.followers: list[list[int]] = [[] for _ in range(count)]
        for number, waits in enumerate(tasks.waits):
            for other in waits:
                self.followers[other].append(number)
        self.needed = _needed(tasks)
        self.free: dict[Server, float] = {}
        self.busy: dict[Server, float] = {}
        self.intervals: list[BusyInterval] = []
        self.latest: dict[Server, tuple[int, int]] = {}  # the last task of each server, and its interval
        self.queues: dict[Server, list[tuple[tuple[float, float], int, float]]] = {server: [] for server in self.burst}
        self.serving: dict[Server, tuple[int, float, float]] = {}  # of each port: the task, since when, until when
        # (moment, kind, task or port)
        self.events: list[tuple[float, int, int]] = []
        self.ports = list(self.burst)
        self.places = {server: place for place, server in enumerate(self.ports)}
        for number in range(count):
            if not self.missing[number]:
                heapq.heappush(self.events, (tasks.latencies[number], ARRIVAL, number))

    def run(self) -> TaskSchedule:
        """Process events until all tasks are done."""
        while self.events:
            moment, kind, number = heapq.heappop(self.events)
            if kind == ARRIVAL:
                self.arrive(moment, number)
            elif kind == FREE:
                self.give(moment, self.ports[number])
            else:
                self.end(moment, self.ports[number])
        return TaskSchedule(max(self.done, default=0.0), self.busy, tuple(self.intervals))

    def arrive(self, moment: float, number: int) -> None:
        """A task sends its requests."""
        self.done[number] = moment
        if not self.tasks.requests[number]:
            self.finish(number)
        for server, duration in self.tasks.requests[number]:
            self.busy[server] = self.busy.get(server, 0.0) + duration
            if server in self.burst and duration:
                heapq.heappush(self.queues[server], (self.needed[number], number, duration))
                if self.free.get(server, 0.0) <= moment:
                    heapq.heappush(self.events, (moment, FREE, self.places[server]))
                else:
                    self.interrupt(moment, server)
                continue
            start = max(moment, self.free.get(server, 0.0))
            self.free[server] = start + duration
            self.note(number, server, start, start + duration)
            self.served(number, start + duration)

    def give(self, moment: float, server: Server) -> None:
        """A free port serves the request with the highest priority."""
        queue = self.queues[server]
        if not queue or self.free.get(server, 0.0) > moment:
            return
        _, number, rest = heapq.heappop(queue)
        stop = moment + rest
        self.serving[server], self.free[server] = (number, moment, stop), stop
        heapq.heappush(self.events, (stop, DONE, self.places[server]))

    def interrupt(self, moment: float, server: Server) -> None:
        """Preempt a port's current request at the end of its burst, if the first request in the queue has a higher priority."""
        if server not in self.serving:
            return  # it is being preempted already
        number, start, stop = self.serving[server]
        if (self.needed[number], number) < self.queues[server][0][:2]:
            return
        burst = self.burst[server]
        end = start + burst * math.ceil((moment - start) / burst - BURST_ROUNDING)
        if stop - end <= burst * BURST_ROUNDING:
            return
        self.note(number, server, start, end)
        heapq.heappush(self.queues[server], (self.needed[number], number, stop - end))
        del self.serving[server]
        self.free[server] = end
        heapq.heappush(self.events, (end, FREE, self.places[server]))

    def end(self, moment: float, server: Server) -> None:
        """A port finishes a request, unless it was preempted."""
        if server not in self.serving or self.serving[server][2] != moment:
            return
        number, start, stop = self.serving.pop(server)
        self.note(number, server, start, stop)
        self.served(number, stop)
        heapq.heappush(self.events, (moment, FREE, self.places[server]))

    def note(self, number: int, server: Server, start: float, stop: float) -> None:
        """Record a busy interval; consecutive bursts of the same task are merged."""
        before, place = self.latest.get(server, (-1, -1))
        if before == number and self.intervals[place].stop == start:
            self.intervals[place] = self.intervals[place]._replace(stop=stop)
        elif stop > start:
            self.latest[server] = (number, len(self.intervals))
            self.intervals.append(BusyInterval(self.tasks.names[number], server, start, stop, self.tasks.paths[number]))

    def served(self, number: int, stop: float) -> None:
        """One request of a task has been served."""
        self.done[number] = max(self.done[number], stop)
        self.left[number] -= 1
        if not self.left[number]:
            self.finish(number)

    def finish(self, number: int) -> None:
        """A task is done: tasks whose dependencies are now all done arrive after their latency."""
        for follower in self.followers[number]:
            self.ready[follower] = max(self.ready[follower], self.done[number])
            self.missing[follower] -= 1
            if not self.missing[follower]:
                heapq.heappush(self.events, (self.ready[follower] + self.tasks.latencies[follower], ARRIVAL, follower))


def run(tasks: Tasks) -> TaskSchedule:
    """Simulate all tasks."""
    return Clock(tasks).run()
