"""A plain simulation of one engine: a list of sequences, a loop over them in every step. The oracle of the fast one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.serving.step import StepModel


@dataclass
class Sequence:
    """One request: ``done`` of ``goal`` prompt tokens are computed, ``made`` of ``output`` tokens."""

    number: int
    arrival: float
    input: int
    output: int
    goal: int = 0
    done: int = 0
    made: int = 0
    first: float = math.nan
    last: float = math.nan
    preempted: bool = False
    away: bool = False

    @property
    def cached(self) -> int:
        """Tokens in the cache: all computed ones, and those that were made since and read again."""
        return self.done + (self.made - (self.goal - self.input) - 1 if self.done == self.goal and self.goal else 0)


def plain_simulation(
    step: StepModel,
    pages: int,
    arrivals: list[float],
    inputs: list[int],
    outputs: list[int],
    users: int = 0,
    swap: tuple[int, float, float] = (0, 0.0, 0.0),
    state: int = 0,
    grows: bool = True,
) -> list[Sequence]:
    """Every request with the times of its first and last token; ``users``: of a closed loop, 0: arrivals hold. ``swap``: pages of
    the host's memory, time of one [s], and before several [s]. ``state``: pages of a sequence as soon as it has a token, beside
    those of its tokens, if it ``grows``. With speculation all proposed tokens are accepted."""
    software, width = step.software, step.width
    page, budget = software.page, software.budget
    every = [Sequence(n, *row, goal=row[1]) for n, row in enumerate(zip(arrivals, inputs, outputs, strict=True))]
    coming, running, stack, now = list(every), list[Sequence](), list[Sequence](), 0.0
    ended: list[Sequence] = []
    released = users or len(every)
    unheard, heard, waited = 0, 0.0, 0

    def of(tokens: int) -> int:
        return (state if tokens else 0) + (math.ceil(tokens / page) if grows else 0)

    def held(item: Sequence) -> int:
        return of(item.cached)

    def for_step(item: Sequence) -> int:
        return of(item.cached + min(width, item.output - item.made))

    while len(ended) < len(every):
        if users:
            for item in coming:
                if item.number < released and math.isnan(item.last) and item.number >= 0 and item.arrival < 0:
                    item.arrival = now
        if unheard % software.receive == 0 or not (running or stack):
            heard = now
        waiting = [item for item in coming if (item.number < released if users else item.arrival <= heard)]
        if not running and not stack and not waiting:
            now = coming[0].arrival
            continue
        decoding = [item for item in running if item.done == item.goal]
        prefilling = [item for item in running if item.done < item.goal]
        free = pages - sum(map(held, running))

        def wanted(items: list[Sequence]) -> int:
            return sum(for_step(item) - held(item) for item in items)

        moved = [0, 0]
        while wanted(decoding) > free and decoding:
            victim = [item for item in running if item in decoding][-1]
            free += held(victim)
            running.remove(victim)
            decoding.remove(victim)
            if sum(map(held, (item for item in stack if item.away))) + held(victim) <= swap[0]:
                victim.away = True
                moved[0] += held(victim)
            else:
                victim.goal, victim.done = victim.cached + 1, 0
            victim.preempted = True
            stack.append(victim)
        free -= wanted(decoding)
        spare, batch, blocked = budget - width * len(decoding), list[tuple[Sequence, int]](), False
        for item in prefilling:
            take = min(item.goal - item.done, spare)
            if take <= 0:
                continue
            extra = of(item.done + take) - held(item)
            if extra > free:
                blocked = True
                continue
            free -= extra
            batch.append((item, take))
            spare -= take
        if software.wait_steps and decoding and not stack:
            asked = width * len(decoding) + sum(take for _, take in batch) + sum(item.input for item in waiting)
            if waiting and asked < math.ceil(software.wait_share * budget) and waited < software.wait_steps:
                waited, blocked = waited + 1, True
            else:
                waited = 0
        while spare > 0 and not blocked and len(running) < software.users and (stack or waiting):
            item = stack[-1] if stack else waiting[0]
            if item.away:
                if for_step(item) > free:
                    break
                free -= for_step(item)
                moved[1] += held(stack.pop())
                item.away = False
                running.append(item)
                decoding.append(item)
                spare -= width
                continue
            take = min(item.goal - item.done, spare)
            extra = of(item.done + take)
            if extra > free:
                break
            if stack:
                stack.pop()
            else:
                waiting.pop(0)
                coming.remove(item)
            free -= extra
            running.append(item)
            batch.append((item, take))
            spare -= take
        now += model_time(step, width, decoding, batch)
        if step.draft is not None:
            now += model_time(step.draft, 1, decoding, batch)
            now += (width - 2) * model_time(step.draft, 1, decoding, []) if decoding else 0.0
        now += sum(swap[2] + number * swap[1] for number in moved if number)
        unheard = 0 if batch else unheard + 1
        finished = []
        for item in decoding:
            item.made += min(width, item.output - item.made)
            finished += [item] if item.made == item.output else []
        for item, take in batch:
            item.done += take
            if item.done == item.goal:
                item.made += 1
                item.first = now if math.isnan(item.first) else item.first
                finished += [item] if item.made == item.output else []
        for item in finished:
            item.last = now
            running.remove(item)
            ended.append(item)
        if users:
            released += len(finished)
    return every


def model_time(step: StepModel, width: int, decoding: list[Sequence], batch: list[tuple[Sequence, int]]) -> float:
    """Time of a step of one model [s]: ``width`` tokens of each sequence that decodes, and pieces of prompts."""
    software, tokens = step.software, sum(take for _, take in batch)
    time = sum(float(line(width * len(decoding) + tokens)) for line in step.lines.values())
    time += float(step.head(width * len(decoding) + len(batch)))
    if decoding:
        mean = sum(item.cached + 1 for item in decoding) / len(decoding)
        time += float(step.decode(len(decoding), mean))
    for item, take in batch:
        time += float(step.prefill(take, item.done + take))
    if step.model.hybrid is not None:
        time += float(step.update((1 + width) * len(decoding))) + sum(float(step.scan(take)) for _, take in batch)
    if width * len(decoding) + tokens > software.graphs:
        time = max(time, step.launches)
    return time + software.step + software.user * (len(decoding) + len(batch))


__all__ = ["Sequence", "model_time", "plain_simulation"]
