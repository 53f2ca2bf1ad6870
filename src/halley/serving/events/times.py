"""The time of a step of the loop, from tables."""

from __future__ import annotations

from typing import Any

from halley.serving.events import state as at
from halley.serving.events.state import EngineState, StepTerms


def prompt_time(engine: EngineState, terms: StepTerms, tokens: int, keys: int) -> None:
    """Adds the attention of ``tokens`` of a prompt, which see so many ``keys``, to that of the step."""
    floats, target, draft = engine.floats, terms.target, terms.draft
    floats[at.PREFILL_TIME] += surface(target.chunks, target.keys, target.prefill, float(tokens), float(keys))
    if engine.settings[at.WIDTH] > 1:
        floats[at.DRAFT_PREFILL_TIME] += surface(draft.chunks, draft.keys, draft.prefill, float(tokens), float(keys))


def step_time(engine: EngineState, terms: StepTerms, mean: float) -> float:
    """Time of the present step [s]: its prompts, and the sequences that decode at a ``mean`` context."""
    integers, settings, host = engine.integers, engine.settings, terms.host
    users, prompts, prompt_tokens = integers[at.DECODING], integers[at.PROMPTS], integers[at.PROMPT_TOKENS]
    width, target = settings[at.WIDTH], terms.target
    tokens = users * width + prompt_tokens
    time = target.by_tokens[tokens] + target.by_rows[users * width + prompts] + host[1] * (users + prompts)
    time += engine.floats[at.PREFILL_TIME]
    if users > 0:
        time += line(target.contexts, target.decode, users, mean)
    if tokens > settings[at.GRAPHS]:
        time = max(time, target.launches)
    time += host[0]
    for moved in (integers[at.PAGES_OUT], integers[at.PAGES_IN]):
        if moved > 0:
            time += host[3] + moved * host[2]
    if width > 1:
        time += draft_time(engine, terms, prompts, prompt_tokens, mean, engine.floats[at.DRAFT_PREFILL_TIME])
        if users > 0:
            time += (width - 2) * draft_time(engine, terms, 0, 0, mean, 0.0)
    return float(time)


def draft_time(engine: EngineState, terms: StepTerms, prompts: int, prompt_tokens: int, mean: float, prefill: float) -> float:
    """Time of a step of the draft [s]: a token of each sequence that decodes, at a ``mean`` context, and ``prompts`` whose
    attention takes ``prefill`` [s]."""
    users, draft, host = engine.integers[at.DECODING], terms.draft, terms.host
    tokens = users + prompt_tokens
    time = draft.by_tokens[tokens] + draft.by_rows[users + prompts] + prefill
    if users > 0:
        time += line(draft.contexts, draft.decode, users, mean)
    if tokens > engine.settings[at.GRAPHS]:
        time = max(time, draft.launches)
    return float(time + host[0] + host[1] * (users + prompts))


def line(points: Any, table: Any, row: int, x: float) -> float:
    """Linear interpolation in one row of a table at ``points``."""
    low = interval(points, x)
    part = max((x - points[low]) / (points[low + 1] - points[low]), 0.0)
    return float(table[row, low] * (1 - part) + table[row, low + 1] * part)


def surface(rows: Any, columns: Any, table: Any, x: float, y: float) -> float:
    """Bilinear interpolation."""
    row = interval(rows, x)
    part = max((x - rows[row]) / (rows[row + 1] - rows[row]), 0.0)
    return float(line(columns, table, row, y) * (1 - part) + line(columns, table, row + 1, y) * part)


def interval(points: Any, x: float) -> int:
    """The number of the last point that is at most x, except the very last; 0 below all of them."""
    low, high = 0, len(points) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if points[middle] <= x:
            low = middle
        else:
            high = middle
    return low
