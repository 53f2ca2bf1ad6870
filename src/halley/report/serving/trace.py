"""The page of simulated requests: the state over time, the cache, and where the times to first and next token go."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from halley.report.answers.page import account_bars
from halley.report.draw import FAINT, PALETTE, canvas, legend, line, ticks, words
from halley.report.markup import el
from halley.report.plans.plan import account_table
from halley.report.table import Table
from halley.serving.deployment import Deployment
from halley.serving.simulate import Simulated
from halley.serving.step import PARTS
from halley.serving.tables import Array
from halley.serving.timeline import FRONT, OTHERS, QUEUE, first_token_parts, next_token_parts, timeline

NAMES = PARTS | {
    FRONT: "front end: HTTP, tokens to text and back",
    QUEUE: "queue until the prompt is scheduled",
    OTHERS: "steps that are longer for prompts of others",
}
"""Parts of the times of a request."""
ORDER: tuple[str, ...] = (FRONT, QUEUE, "matrices", "attention", "recurrence", "experts", "collectives", "host", OTHERS)
ORDER += ("elementwise", "head", "draft")
"""In the bars; those that are long have colours of their own."""
WIDTH, HEIGHT = 1120.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 20.0, 44.0, 40.0
"""Size and margins of a figure [px]."""
GIB = 2.0**30
"""Bytes of a GiB."""


def trace_pictures(deployment: Deployment, found: Simulated) -> list[Element]:
    """Requests over time, the cache of a chip over time, and bars of where TTFT and TPOT go."""
    assert found.rows is not None  # the simulation kept them
    made, memory = timeline(found.rows), deployment.memory
    requests = {"decode": made.decoding, "prompt under way": made.prompts, "wait, or are in the front end": made.waiting}
    sharing = deployment.replicas * deployment.layout.dp
    cache = made.tokens / sharing * memory.grows * memory.page / memory.page_tokens / GIB
    cache = cache + (made.prompts + made.decoding) / sharing * memory.state / GIB
    bars = {"TTFT": first_token_parts(deployment, found), "TPOT": next_token_parts(deployment, found)}
    used = {name for parts in bars.values() for name in parts}
    names = [name for name in ORDER if name in used]  # a part has one colour in both bars
    pictures = [
        over_time("Requests by what they do, of all engines", made.times, requests, ""),
        over_time("Cache on a chip", made.times, {"cache in use": cache}, "GiB", memory.cache / GIB),
    ]
    for what, parts in bars.items():
        if parts:
            shown = {name: parts.get(name, 0.0) for name in names}
            pictures.append(account_bars(f"Where the mean {what} goes", {what: shown}, NAMES))
    return pictures


def trace_tables(deployment: Deployment, found: Simulated) -> list[Table]:
    """The bars as tables."""
    parts = first_token_parts(deployment, found), next_token_parts(deployment, found)
    titles = "Where the mean time to first token goes", "Where the mean time per output token goes"
    return [
        account_table(title, each, sum(each.values()), NAMES, what)
        for title, each, what in zip(titles, parts, ("TTFT", "TPOT"), strict=True)
        if each
    ]


def over_time(title: str, times: Array, series: Mapping[str, Array], unit: str, limit: float = 0.0) -> Element:
    """Lines of values at times [s], which are shown from the first; ``limit``: what they may reach at most, drawn dashed."""
    span, start = max(float(times[-1] - times[0]), 1e-12), float(times[0])
    most = max(limit, *(float(values.max()) for values in series.values()), 1e-12) * 1.05
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(time: float) -> float:
        return LEFT + (time - start) / span * inner

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / most * tall

    drawn = [words(LEFT, 16, title, font_weight="bold")]
    for value in ticks(most):
        drawn += [line(LEFT, y(value), WIDTH - RIGHT, y(value)), words(LEFT - 8, y(value) + 4, f"{value:g} {unit}", anchor="end")]
    for value in ticks(span):
        drawn.append(words(x(start + value), HEIGHT - BOTTOM + 18, f"{value:g} s", anchor="middle"))
    entries = list(zip(series, PALETTE, strict=False))
    for name, colour in entries:
        shape = "".join(
            f"{'L' if place else 'M'}{x(float(time)):.1f} {y(float(value)):.1f}"
            for place, (time, value) in enumerate(zip(times, series[name], strict=True))
        )
        drawn.append(el("path", d=shape, fill="none", stroke=colour, stroke_width=1.8))
    if limit:
        drawn.append(line(LEFT, y(limit), WIDTH - RIGHT, y(limit), stroke=FAINT, stroke_dasharray="6 4"))
        drawn.append(words(WIDTH - RIGHT, y(limit) - 5, f"capacity: {limit:,.3g} {unit}", anchor="end"))
    squares, _ = legend(entries, LEFT, 24, inner)
    return canvas(HEIGHT, title, [*drawn, *squares], WIDTH)
