"""What a simulated time consists of: the chain of tasks that ends last, back to the start.

Each moment of the chain goes to the server that works for it then, to the latency that passes, or to the queue: the chain waits
for a server that works for a task of something else.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.simulate.tasks import Server, Tasks
from halley.simulate.walk import Walk


def chain(workload: Workload, chip: Chip, tree: Node, limit: int) -> list[tuple[str, float]]:
    """(what, share of the time) of the chain that ends last, the largest first."""
    tasks = Walk(workload, chip, tree, limit).tasks
    done, held = _clock(tasks)
    last = max(range(len(done)), key=done.__getitem__)
    parts: dict[str, float] = defaultdict(float)
    number, moment = last, done[last]
    while moment > 0:
        arrival, server, start = held[number]
        if server is not None and moment > arrival:
            begin = max(start, arrival)
            parts[f"{tasks.names[number]} on {' '.join(server.resource)}"] += moment - begin
            if begin > arrival:
                parts[f"queue: {tasks.names[number]} for {' '.join(server.resource)}"] += begin - arrival
        latency = min(tasks.latencies[number], arrival)
        if latency:
            parts[f"{tasks.names[number]}, latency"] += latency
        moment = arrival - latency
        before = [other for other in tasks.waits[number] if done[other] >= moment * (1 - 1e-12)]
        if not before:
            break
        number = before[-1]
    total = done[last]
    return sorted(((what, seconds / total) for what, seconds in parts.items()), key=lambda item: -item[1])


def _clock(tasks: Tasks) -> tuple[list[float], list[tuple[float, Server | None, float]]]:
    """As `halley.simulate.tasks.run`; when each task is done, and its (arrival, last server, start there)."""
    count = len(tasks.names)
    missing, ready = [len(waits) for waits in tasks.waits], [0.0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, waits in enumerate(tasks.waits):
        for other in waits:
            followers[other].append(number)
    arrivals = [(tasks.latencies[number], number) for number in range(count) if not missing[number]]
    heapq.heapify(arrivals)
    free: dict[Server, float] = {}
    done = [0.0] * count
    held: list[tuple[float, Server | None, float]] = [(0.0, None, 0.0)] * count
    while arrivals:
        arrival, number = heapq.heappop(arrivals)
        done[number], held[number] = arrival, (arrival, None, arrival)
        for server, duration in tasks.requests[number]:
            start = max(arrival, free.get(server, 0.0))
            free[server] = start + duration
            if free[server] > done[number]:
                done[number], held[number] = free[server], (arrival, server, start)
        for follower in followers[number]:
            ready[follower] = max(ready[follower], done[number])
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(arrivals, (ready[follower] + tasks.latencies[follower], follower))
    return done, held
