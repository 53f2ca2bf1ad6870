"""What a simulated time consists of: the chain of tasks that ends last, back to the start.

Each moment of the chain goes to the server that works for it then, to the latency that passes, or to the queue: the server works
for another task.
"""

from __future__ import annotations

from collections import defaultdict

from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.simulate.tasks import Clock, Server, Tasks
from halley.simulate.walk import Walk


def chain(workload: Workload, chip: Chip, tree: Node, limit: int) -> list[tuple[str, float]]:
    """(what, share of the time) of the chain that ends last, the largest first."""
    tasks = Walk(workload, chip, tree, limit).tasks
    clock = _Told(tasks)
    clock.run()
    number = max(range(len(clock.done)), key=clock.done.__getitem__)
    moment = total = clock.done[number]
    parts: dict[str, float] = defaultdict(float)
    while moment > 0:
        name, arrival = tasks.names[number], clock.arrivals[number]
        if number in clock.last:
            server = clock.last[number]
            work = min(dict(tasks.requests[number])[server], moment - arrival)
            parts[f"{name} on {' '.join(server.resource)}"] += work
            parts[f"queue: {name} for {' '.join(server.resource)}"] += moment - arrival - work
        latency = min(tasks.latencies[number], arrival)
        parts[f"{name}, latency"] += latency
        moment = arrival - latency
        before = [other for other in tasks.waits[number] if clock.done[other] >= moment * (1 - 1e-12)]
        if not before:
            break
        number = before[-1]
    return sorted(((what, seconds / total) for what, seconds in parts.items()), key=lambda item: -item[1])


class _Told(Clock):
    """A clock that notes when each task arrives, and which server is the last to serve it."""

    def __init__(self, tasks: Tasks) -> None:
        super().__init__(tasks)
        self.arrivals: dict[int, float] = {}
        self.last: dict[int, Server] = {}

    def arrive(self, moment: float, number: int) -> None:
        self.arrivals[number] = moment
        super().arrive(moment, number)

    def note(self, number: int, server: Server, start: float, stop: float) -> None:
        if stop > self.done[number]:
            self.last[number] = server
        super().note(number, server, start, stop)
