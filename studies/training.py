"""Training plans of well-known models on systems that ship: what is reached, how near to proven, what the search takes."""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from xml.etree.ElementTree import Element

from benchmarks.measure import machine

from halley import Infeasible
from halley.importers.training import training_problem
from halley.report.draw import FAINT, PAPER, WIDTH, box, canvas, ink_on, words
from halley.report.markup import svg_file
from halley.report.plans.words import plan_words
from halley.training.search.search import best_training_plan
from halley.units import format_time
from studies.store import DOCS, behind, filled, replace_text
from studies.systems80_figure import shade, shown
from studies.tables import table

NAME, TITLE = "training", "Eight models on four systems"
SCHEMA = "halley.study.training/1"

MODELS = ("gpt2-xl", "megatron-22b", "llama3-8b", "llama3-70b", "gpt3-175b", "llama3-405b", "mixtral-8x7b", "deepseek-v3")
SYSTEMS = {
    "64 x h100, nvlink 8, ib": "64 H100",
    "dgx-a100-pod": "DGX A100 pod",
    "gb200-nvl72-pod": "GB200 NVL72 pod",
    "tpu-v4-cube": "TPU v4 cube",
}
"""By the words that `halley plan --system` takes, what the figure calls them."""

BATCH, LIMIT = 1152, 60.0
"""Sequences of an iteration, which all numbers of chips here divide; after so long [s] the best plan so far is taken."""

LABELS, CELL, HEAD, GAP = 120.0, 26.0, 46.0, 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for a model on a system: ``time`` [s] of an iteration, ``utilisation`` by the model's own work, ``tokens``
    [1/s] on each chip, ``memory``: its share that is used, the plan in words, its ``gap``; ``seconds`` of CPU time and ``room``
    [MiB] that it took to find. With a ``reason`` there is no plan."""

    model: str
    system: str
    time: float
    utilisation: float
    tokens: float
    memory: float
    plan: str
    gap: float
    seconds: float
    room: float
    source: str
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.model, self.system


def cases() -> list[tuple[str, str]]:
    """Models and systems."""
    return [(model, system) for system, model in product(SYSTEMS, MODELS)]


def source() -> str:
    """A fingerprint of the code behind every figure."""
    return behind(Path(__file__))


def solve(model: str, system: str, mark: str) -> Row:
    """Plan one case."""
    start = time.process_time()
    problem = training_problem(model, system, BATCH)
    try:
        result = best_training_plan(problem, limit=LIMIT, others=0)
    except Infeasible as fault:
        return Row(model, system, math.inf, 0.0, 0.0, 0.0, "", math.inf, time.process_time() - start, _room(), mark, str(fault))
    cost = result.cost
    return Row(
        model,
        system,
        cost.time,
        cost.utilisation,
        cost.tokens_per_second / problem.system.chips,
        sum(cost.memory[cost.fullest].values()) / cost.capacity,
        plan_words(result.plan, cost),
        result.certificate.gap,
        time.process_time() - start,
        _room(),
        mark,
    )


def _room() -> float:
    """The most memory that this process had [MiB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(again: bool, say: Callable[[str], None]) -> None:
    """Plan what is not known for the present source, each case in a process of its own; then write figure and page. It may be
    stopped at any time: rows are kept as they are found."""
    mark, wanted = source(), cases()
    known = {} if again else {row.key: row for row in load()[0] if row.source == mark}
    open_ = [case for case in wanted if case not in known]
    if open_:
        # a new process for each case, so that what it takes is its own
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
            waiting = [pool.submit(solve, *case, mark) for case in open_]
            try:
                for done in as_completed(waiting):
                    row = done.result()
                    known[row.key] = row
                    say(f"{NAME} {len(known):2d}/{len(wanted)} {told(row)}")
                    save([known[case] for case in wanted if case in known], machine())
            finally:
                pool.shutdown(cancel_futures=True)
    say(f"{NAME}: {len(wanted)} cases, {len(wanted) - len(open_)} of them known before")
    write()


def write() -> None:
    """Figure and page from the rows that are kept."""
    rows, planned_on = load()
    replace_text(DOCS / f"{NAME}.svg", svg_file(figure(rows)))
    replace_text(DOCS / f"{NAME}.md", page(rows, planned_on))


def told(row: Row) -> str:
    """A row in one line, for whoever waits."""
    name = f"{row.model} on {row.system}"
    return f"{name:40s} {row.reason or f'{row.utilisation:6.1%} gap {percent(row.gap)}  {row.plan}'}"


def load() -> tuple[list[Row], str]:
    """The rows that are kept and the machine that made them."""
    path = DOCS / f"{NAME}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if kept.get("schema") != SCHEMA:
        return [], ""
    rows = [Row(**{name: math.inf if value is None else value for name, value in row.items()}) for row in kept["rows"]]
    return rows, kept["machine"]


def save(rows: Iterable[Row], planned_on: str) -> None:
    """Write the rows as JSON, a row a line; what is infinite is null."""
    entries = [{name: None if value == math.inf else value for name, value in asdict(row).items()} for row in rows]
    head = f'{{"schema": {json.dumps(SCHEMA)}, "machine": {json.dumps(planned_on)}, "rows": [\n'
    replace_text(DOCS / f"{NAME}.json", head + ",\n".join(map(json.dumps, entries)) + "\n]}\n")


def headline(rows: Sequence[Row]) -> str:
    """The result in a line."""
    planned = [row for row in rows if not row.reason]
    near, middle = sum(row.gap <= 0.01 for row in planned), percent(median(row.gap for row in planned))
    seconds = median(row.seconds for row in planned)
    return (
        f"{near} of {len(planned)} plans are proven to within 1 % of the optimum, half of all to within {middle}; "
        f"the median search takes {seconds:.0f} CPU s"
    )


def page(rows: Sequence[Row], planned_on: str) -> str:
    """The whole page."""
    shown_rows = []
    for system, name in SYSTEMS.items():
        here = [row for row in rows if row.system == system]
        shown_rows += ["", f"## {name}", "", f"`{system}`", ""]
        head = ("model", "best plan", "iteration", "tokens/s, chip", "MFU", "memory", "gap", "CPU time", "memory of the search")
        shown_rows += table(head, [_line(row) for row in here if not row.reason], 2)
        shown_rows += ["", *(f"{row.reason}." for row in here if row.reason)]
    parts = {"headline": headline(rows), "tables": "\n".join(shown_rows).strip(), "machine": planned_on}
    return filled(Path(__file__).with_suffix(".md"), parts)


def _line(row: Row) -> tuple[str, ...]:
    return (
        row.model,
        row.plan,
        format_time(row.time),
        f"{row.tokens:,.0f}" if row.tokens >= 10 else shown(row.tokens),
        f"{row.utilisation:.1%}",
        f"{row.memory:.0%}",
        percent(row.gap),
        f"{row.seconds:.0f} s",
        f"{row.room:.0f} MiB",
    )


def percent(share: float) -> str:
    """Of a gap; below what rounding leaves, it is nothing.

    >>> percent(0.0123), percent(2e-5), percent(1e-7), percent(math.inf)
    ('1.2 %', '0.002 %', '0', 'all')
    """
    if share < 1e-6:
        return "0"
    return "all" if math.isinf(share) else f"{shown(100 * share)} %"


def figure(rows: Sequence[Row]) -> Element:
    """Models downwards, systems to the right: what of the peak is reached, and how far from proven the plans are."""
    found = {row.key: row for row in rows}
    panels: tuple[tuple[str, Callable[[Row], float]], ...] = (
        ("utilisation (MFU) [%]", lambda row: row.utilisation),
        ("gap to the bound [%]", lambda row: row.gap),
    )
    width = (WIDTH - LABELS - GAP) / len(panels) / len(SYSTEMS)
    content = [words(LABELS - 8, HEAD + CELL * place + 17, model, "end", size=12) for place, model in enumerate(MODELS)]
    for number, (label, measure) in enumerate(panels):
        left = LABELS + number * (width * len(SYSTEMS) + GAP)
        content.append(words(left, 14, label, font_weight="bold"))
        for column, (system, name) in enumerate(SYSTEMS.items()):
            x = left + width * column
            content.append(words(x + width / 2, HEAD - 16 + 11 * (column % 2), name, "middle", FAINT, 10))
            for place, model in enumerate(MODELS):
                row = found[model, system]
                value = measure(row)
                fill = PAPER if row.reason else shade(min(1.0, value) ** 0.5)
                tip = f"{model} on {system}\n{row.reason or f'{label}: {shown(100 * value)}'}\n{row.plan}"
                y = HEAD + CELL * place
                content.append(box(x, y, width, CELL, fill, tip, stroke=PAPER, stroke_width=1))
                text = "-" if row.reason else "0" if value < 1e-6 else shown(100 * value)
                content.append(words(x + width / 2, y + 17, text, "middle", ink_on(fill), 11, pointer_events="none"))
    return canvas(HEAD + CELL * len(MODELS) + 8, TITLE, content)
