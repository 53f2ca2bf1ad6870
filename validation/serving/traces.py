"""Requests with time stamps, replayed by the event simulation.

The traces are of vLLM 0.19 on one card with Llama-3.1-8B: at most 2,048 tokens a step, ShareGPT prompts at ten requests a second
(LLMServingSim). Prompts of a conversation share prefixes, which vLLM caches; the table does not say which, so that prompts are
computed whole here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from validation.outcome import read_figures
from validation.serving.predict import efficiency

from halley.io.chips.kernel_fits import serving_fits
from halley.io.chips.load import load_chip
from halley.io.software import load_software
from halley.io.transformers import load_model
from halley.ir.system import System
from halley.library import CHIPS
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.simulate import Requests, Simulated, simulate

TABLE = "serving/requests.csv"
CARDS = {"RTX PRO 6000": "rtx-pro-6000", "RTX 4090": "rtx-4090"}
"""Chips of the traces, by their names in the table, where Halley describes them."""
BUDGET, USERS = 2048, 128
"""Tokens and sequences of a step at most in these measurements: no more than 128 requests run at any time of the traces."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A measured trace and its simulation: ``ttft``, ``tpot``, ``latency`` [s] of each request, measured (column 0) and simulated
    (column 1)."""

    name: str
    ttft: np.ndarray
    tpot: np.ndarray
    latency: np.ndarray
    simulated: Simulated


def traces(folder: Path) -> Iterator[Trace]:
    """Every trace whose chip Halley describes."""
    rows = read_figures(folder / TABLE, ("trace", "gpu", "arrival_s", "isl", "osl"))
    for name in sorted({row["trace"] for row in rows}):
        mine = sorted((row for row in rows if row["trace"] == name), key=lambda row: float(row["arrival_s"]))
        chip = CARDS.get(mine[0]["gpu"], "")
        if chip in CHIPS.names():
            yield replayed(name, mine, chip)


def replayed(name: str, rows: list[dict[str, str]], chip: str) -> Trace:
    """One trace on one chip."""
    table = np.array([[float(row[key]) for key in ("arrival_s", "isl", "osl", "first_token_s", "last_token_s")] for row in rows])
    software = replace(load_software("vllm"), budget=BUDGET, users=USERS)
    made = Deployment(
        ServedModel(load_model("llama3-8b")),
        System(name, load_chip(chip)),
        ReplicaLayout(),
        software,
        efficiency(),
        fits=serving_fits(chip),
    )
    block = Requests(table[:, 0], table[:, 1].astype(np.int64), np.maximum(table[:, 2], 1).astype(np.int64))
    found = simulate(made.step, made.engine_memory, [block], keep=True)
    assert found.rows is not None  # all were asked for
    more = np.maximum(table[:, 2] - 1, 1)
    pairs = []
    for start, first, last in ((table[:, 0], table[:, 3], table[:, 4]), (found.rows[:, 0], found.rows[:, 1], found.rows[:, 2])):
        pairs.append((first - start, (last - first) / more, last - start))
    ttft, tpot, latency = (np.column_stack([one, other]) for one, other in zip(*pairs, strict=True))
    return Trace(name, ttft, tpot, latency, found)


SHARES = (50, 90, 99)
"""Percentiles that are compared."""


def median(pairs: np.ndarray) -> float:
    """Median absolute relative error of requests."""
    return float(np.median(np.abs(pairs[:, 1] / pairs[:, 0] - 1)))


def percentiles(pairs: np.ndarray) -> list[tuple[float, float]]:
    """(simulated, measured) percentiles `SHARES` of all requests."""
    return [(float(np.percentile(pairs[:, 1], share)), float(np.percentile(pairs[:, 0], share))) for share in SHARES]
