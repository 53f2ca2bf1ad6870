"""What simulated requests did over time: how many wait, are processed and decode, the cache they hold, and where their times go.

Everything follows from the times of each request (`halley.serving.simulate.Simulated.rows`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halley.serving.deployment import Deployment
from halley.serving.simulate import Simulated
from halley.serving.step import StepBatch
from halley.serving.tables import Array

POINTS = 400
"""Moments at which the state is shown."""
FRONT, QUEUE, OTHERS = "front end", "queue", "prompts of others"
"""Parts of the times of a request that are no parts of a step."""


@dataclass(frozen=True, eq=False, slots=True)
class RequestTimeline:
    """The state of all engines at some ``times`` [s], arrays of one length: requests that wait (``waiting``), whose prompts are
    processed (``prompts``) and that decode (``decoding``), and ``tokens`` in the cache."""

    times: Array
    waiting: Array
    prompts: Array
    decoding: Array
    tokens: Array


def timeline(rows: Array, points: int = POINTS) -> RequestTimeline:
    """The state at evenly spaced moments, of requests as `Simulated.rows` has them. A prompt is cached evenly while it is
    processed, an answer while it is decoded.

    >>> rows = np.array([[0.0, 2.0, 4.0, 10, 4, 0, 1.0]])  # waits for 1 s, is processed for 1 s, decodes for 2 s
    >>> made = timeline(rows, 9)
    >>> made.waiting.tolist(), made.tokens.tolist()
    ([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0, 10.0, 11.0, 12.0, 13.0, 0.0])
    """
    arrival, first, last, inputs, outputs, _, scheduled = rows.T
    times = np.linspace(float(arrival.min()), float(last.max()), points)

    def until(moments: Array, weights: Array | None = None) -> Array:
        """Of the moments up to each time: how many, or their weights added up."""
        order = np.argsort(moments, kind="stable")
        added = np.arange(len(moments) + 1.0) if weights is None else np.concatenate([[0.0], np.cumsum(weights[order])])
        return np.asarray(added[np.searchsorted(moments[order], times, "right")])

    came, begun, answered, ended = (until(moments) for moments in (arrival, scheduled, first, last))
    filling, growing = inputs / np.maximum(first - scheduled, 1e-12), outputs / np.maximum(last - first, 1e-12)
    growing = np.where(last > first, growing, 0.0)
    tokens = -until(last, inputs + np.where(last > first, outputs, 0.0))
    for start, end, slope in ((scheduled, first, filling), (first, last, growing)):
        tokens += times * (until(start, slope) - until(end, slope)) - until(start, slope * start) + until(end, slope * end)
    return RequestTimeline(times, came - begun, begun - answered, answered - ended, np.maximum(np.round(tokens, 6), 0.0))


def first_token_parts(deployment: Deployment, found: Simulated) -> dict[str, float]:
    """Where the mean time to first token goes [s]: the front end, the queue until the prompt is scheduled, and the steps of the
    prompt in the parts of a step with a mean prompt."""
    rows = _rows(found)
    arrival, first, _, inputs, _, _, scheduled = rows.T
    front = min(found.front, float((scheduled - arrival).mean()))
    queue, prompt = float((scheduled - arrival).mean()) - front, float((first - scheduled).mean())
    chunk = min(float(inputs.mean()), deployment.software.budget)
    users, context = _mean_batch(deployment, rows)
    parts = _parts(deployment, StepBatch(users, context, chunk, float(inputs.mean())))
    whole = sum(parts.values())
    return {FRONT: front, QUEUE: queue} | {name: value / whole * prompt for name, value in parts.items()}


def next_token_parts(deployment: Deployment, found: Simulated) -> dict[str, float]:
    """Where the mean time per output token goes [s]: a step of the mean batch by its parts, and what steps take longer for the
    prompts of others."""
    rows = _rows(found)
    long = rows[rows[:, 4] > 1]
    if not len(long):
        return {}
    mean = float(((long[:, 2] - long[:, 1]) / (long[:, 4] - 1)).mean())
    steps = _parts(deployment, StepBatch(*_mean_batch(deployment, rows)))
    parts = {name: value / deployment.tokens_of_step for name, value in steps.items()}
    whole = sum(parts.values())
    scale = min(mean / whole, 1.0)
    return {name: value * scale for name, value in parts.items()} | {OTHERS: max(mean - whole, 0.0)}


def _rows(found: Simulated) -> Array:
    assert found.rows is not None  # the simulation kept them
    return found.rows


def _parts(deployment: Deployment, batch: StepBatch) -> dict[str, float]:
    return {name: float(value) for name, value in deployment.step.parts(batch).items() if value > 0}


def _mean_batch(deployment: Deployment, rows: Array) -> tuple[float, float]:
    """Sequences of an engine that a token is decoded with, and their mean context."""
    made = timeline(rows)
    total = float(made.decoding.sum())
    if not total:
        return 0.0, 0.0
    context = float((rows[:, 3] + rows[:, 4] / 2).mean())
    return max(float((made.decoding**2).sum()) / total / deployment.engines, 1.0), context
