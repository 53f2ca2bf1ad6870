"""A random search over the mapping language around one mapping, by simulated annealing with restarts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from validation.space_loss.edits import Edits

from halley.cost.evaluate import evaluate
from halley.errors import HalleyError
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.rewrite import legality
from halley.rewrite.canonical import canonical

WARMTH = 0.1
"""Relative loss that is accepted with a probability of 1/e where a climb starts; it falls to `COLD` of that."""

COLD = 1e-3

RUN = 4000
"""Proposals of a climb, after which the next one starts from the best mapping or, half of the time, from the first."""


@dataclass(frozen=True, slots=True)
class Climbed:
    """The best mapping found and its ``value``; how many mappings were ``proposed``, and how many of these were ``legal`` and
    fitted."""

    tree: Node
    value: float
    proposed: int
    legal: int


def climb(
    workload: Workload,
    chip: Chip,
    start: Node,
    objective: str,
    seed: int,
    seconds: float = math.inf,
    proposals: int | None = None,
    on_gain: Callable[[float, Node], None] | None = None,
) -> Climbed:
    """The best of the mappings that random edits of ``start`` lead to, for the ``objective`` ``time`` [s] or ``energy`` [J].
    ``on_gain`` is called with each new best one."""
    draw, end = random.Random(seed), time.monotonic() + seconds
    edits = Edits(workload, chip, draw)
    first = best = canonical(start, workload.dims)
    known: dict[Node, float | None] = {first: value(workload, chip, first, objective)}
    lowest = known[first]
    assert lowest is not None, "a climb starts from a legal mapping"
    proposed, at, now = 0, first, lowest
    while time.monotonic() < end and (proposals is None or proposed < proposals):
        if not proposed % RUN:
            at = best if draw.random() < 0.5 else first
            now = known[at]
        proposed += 1
        warmth = WARMTH * COLD ** (proposed % RUN / RUN)
        made = edits.edited(at, min(4, 1 + int(draw.expovariate(1.0))))
        if made is None or made == at:
            continue
        if made not in known:
            known[made] = value(workload, chip, made, objective)
        cost = known[made]
        if cost is None or (cost > now and draw.random() >= math.exp((1 - cost / now) / warmth)):
            continue
        at, now = made, cost
        if cost < lowest * (1 - 1e-12):
            best, lowest = made, cost
            if on_gain is not None:
                on_gain(cost, made)
    return Climbed(best, lowest, proposed, sum(cost is not None for cost in known.values()))


def value(workload: Workload, chip: Chip, tree: Node, objective: str) -> float | None:
    """What a mapping costs; None where it is illegal or does not fit."""
    try:
        if legality.faults(tree, workload, chip):
            return None
        found = evaluate(workload, chip, tree)
    except HalleyError:
        return None
    if any(float(used) > chip.memory(name).capacity for name, used in found.footprint.items()):
        return None
    return float(getattr(found, objective))
