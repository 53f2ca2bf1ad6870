"""The pipeline schedule of a plan of training as a picture: the passes of every stage, from the event simulation of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, PAPER, WIDTH, box, canvas, ink_on, legend, line, shortened, ticks, words
from halley.simulate.training import SimulatedIteration
from halley.training.plan import TrainingResult
from halley.units import format_time
from halley.verify.iteration import simulated_iteration

MOST_PASSES = 3000
"""Passes in a picture; of plans with more, it shows fewer microbatches."""
MOST_STAGES = 32
"""Stages in a picture."""
COLOURS = (("#0072b2", "#9ad2f2"), ("#006b50", "#7cc7ad"))
"""Forward and backward passes; chunks of a stage take turns."""
LEFT, ROW, BAR = 76.0, 22.0, 18.0


@dataclass(slots=True)
class _Pass:
    """A pass of a stage [s], from the start of its first block to the end of its last one."""

    backward: int
    chunk: int
    start: float
    stop: float
    name: str


def schedule_figure(result: TrainingResult) -> Element:
    """What each stage does at each time, in an iteration of a few microbatches."""
    pipeline = result.plan.pipeline
    count = _microbatches(pipeline.stages, pipeline.chunks, pipeline.microbatches)
    found = simulated_iteration(result, count)
    stages = min(pipeline.stages, MOST_STAGES)
    entries = [(name, COLOURS[way][0]) for way, name in enumerate(("forward pass", "backward pass, recomputation included"))]
    content, top = legend(entries, LEFT, 4, WIDTH - LEFT)
    top += 8
    bottom, unit = top + ROW * stages, (WIDTH - LEFT - 24) / found.time
    for value in ticks(found.time):
        x = LEFT + value * unit
        content += [line(x, top, x, bottom + 4), words(x, bottom + 18, format_time(value), "middle", FAINT, 12)]
    content += [words(LEFT - 8, top + ROW * stage + 15, f"stage {stage + 1}", "end") for stage in range(stages)]
    for own in _passes(found):
        turn, stage = divmod(own.chunk, pipeline.stages)
        if stage >= stages:
            continue
        fill = COLOURS[own.backward][turn % 2]
        x, y, width = LEFT + own.start * unit, top + ROW * stage + 2, (own.stop - own.start) * unit
        tip = f"{own.name}: {format_time(own.start)} to {format_time(own.stop)}"
        content.append(box(x, y, width, BAR, fill, tip, stroke=PAPER, stroke_width=0.5))
        number = own.name.partition("microbatch ")[2].split()[0]
        if text := shortened(number, width - 2, 11) if len(number) > 1 else number if width > 9 else "":
            content.append(words(x + width / 2, y + 13, text, "middle", ink_on(fill), 11, pointer_events="none"))
    shown = "" if count == pipeline.microbatches else f" with {count} of its {pipeline.microbatches} microbatches"
    return canvas(bottom + 26, f"Schedule of an iteration{shown}", content)


def _microbatches(stages: int, chunks: int, microbatches: int) -> int:
    """How many a picture has: all, or enough to fill the pipeline twice, whole groups of one for each stage.

    >>> _microbatches(4, 1, 100), _microbatches(4, 1, 3), _microbatches(64, 8, 512)
    (8, 3, 64)
    """
    most = max(stages, min(2 * stages if stages > 1 else 4, MOST_PASSES // (2 * stages * chunks)))
    return microbatches if microbatches <= most else most // stages * stages


def _passes(found: SimulatedIteration) -> Iterator[_Pass]:
    known: dict[str, _Pass] = {}
    for interval in found.schedule.intervals:
        if interval.server.resource[0] != "engine" or not interval.path:
            continue
        backward, chunk, _ = interval.path
        own = known.setdefault(interval.name, _Pass(backward, chunk, interval.start, interval.stop, interval.name))
        own.start, own.stop = min(own.start, interval.start), max(own.stop, interval.stop)
    yield from known.values()
