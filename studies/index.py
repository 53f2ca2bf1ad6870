"""The studies by name, and the page that lists them."""

from __future__ import annotations

import math

from studies import (
    comet,
    comet_baselines,
    flatattention_page,
    joint_page,
    memory,
    neighbours,
    networks,
    onnx_networks,
    sequence,
    serving,
    serving_page,
    sn40l,
    ssm,
    stacked,
    systems80,
    systems80_page,
    training,
)
from studies.store import load
from studies.study import Study

STUDIES: dict[str, Study] = {study.name: study for study in (comet.STUDY, sn40l.STUDY, ssm.STUDY)}
"""In the order of the contents."""

KEPT = (comet_baselines, memory, stacked, networks, sequence, flatattention_page, neighbours, onnx_networks, joint_page)
"""Studies whose rows are kept case by case (`studies.kept`)."""

NAMES = (*STUDIES, systems80.NAME, training.NAME, serving.NAME, *(study.NAME for study in KEPT))
"""All of them: those behind `STUDIES` are of whole systems, and have cases and pages of their own."""


def contents() -> str:
    """docs/studies/README.md: each study that was run, with its result in a line."""
    lines = [
        "# Studies of published claims",
        "",
        "Each page states a claim with its source, tests it on the chips and shapes that it names or on the nearest",
        "available ones, and reports what agrees, what does not, and why. `make studies` writes these pages; it searches",
        "again only what has changed in the source. `python -m studies NAME` runs one of them; `--help` lists the options. A run",
        "may be stopped at any moment, by kill -9 too: the next one goes on with the case that it was at. Every plan is proven",
        "optimal or reported with its gap. Times are those of [the model](../model.md); the last column is how long",
        "a whole run takes on one core.",
        "",
        "| study | result | time |",
        "|---|---|---:|",
    ]
    for study in STUDIES.values():
        rows, _ = load(study.name)
        if rows:
            lines.append(_line(study.title, study.name, study.account(rows).headline, sum(row.seconds for row in rows)))
    systems, _ = systems80.load()
    if systems:
        headline, seconds = systems80_page.headline(systems), sum(row.seconds for row in systems)
        lines.append(_line(systems80_page.TITLE, systems80.NAME, headline, seconds))
    plans, _ = training.load()
    if plans:
        lines.append(_line(training.TITLE, training.NAME, training.headline(plans), sum(row.seconds for row in plans)))
    if known := serving.load():
        lines.append(_line(serving.TITLE, serving.NAME, serving_page.headline(known), None))
    for each in KEPT:
        if known := each.STUDY.load():
            lines.append(_line(each.TITLE, each.NAME, each.headline(known), each.STUDY.seconds))
    return "\n".join(lines) + "\n"


def _line(title: str, name: str, headline: str, seconds: float | None) -> str:
    """A line of the table; the time is that of all searches, rounded up to minutes."""
    taken = "not measured" if seconds is None else f"{math.ceil(seconds / 60):,} min"
    return f"| [{title}]({name}.md) | {headline} | {taken} |"
