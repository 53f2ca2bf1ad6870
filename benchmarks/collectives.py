"""How fast collectives are costed: one look-up, a batch of sizes, one evaluation of a table, all candidates of a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Measurement, per_second
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.collective import best_time, candidates, price, team_of
from halley.network.evaluate import evaluate
from halley.network.forms import FORMS
from halley.network.groups import Group
from halley.network.schedules import Schedule, laid_out

LOOKUP_TARGET = 2e-6
BATCH_TARGET = 20e-9
EVALUATION_TARGET = 1e-3
BATCH = 10_000
SIZE = 10_000_000

_K = CollectiveKind
_LINK = Link(50e9, 5e-7, 1e-11)


def measurements() -> Iterator[Measurement]:
    ring = team_of((Axis("x", 64, Topology.RING, _LINK),))
    torus = team_of((Axis("x", 8, Topology.RING, _LINK), Axis("y", 8, Topology.RING, _LINK)))
    best_time(_K.ALL_REDUCE, ring, SIZE)
    looked_up = seconds(lambda: [best_time(_K.ALL_REDUCE, ring, SIZE) for _ in range(1000)], 1000)
    yield Measurement("collectives: look-up of a best time", looked_up, "s", LOOKUP_TARGET)
    yield Measurement("collectives: all closed forms, the slowest per size in a batch", slowest_form(), "s", BATCH_TARGET)
    for name, team, kind, algorithm in (
        ("ring all-reduce, 64-ring", ring, _K.ALL_REDUCE, "ring"),
        ("ring all-reduce, 8 x 8 torus", torus, _K.ALL_REDUCE, "ring"),
        ("direct all-to-all, 8 x 8 torus", torus, _K.ALL_TO_ALL, "direct"),
        ("Bruck all-to-all, 8 x 8 torus", torus, _K.ALL_TO_ALL, "bruck"),
        ("halving all-reduce, 8 x 8 torus", torus, _K.ALL_REDUCE, "halving"),
    ):
        yield from of_table(name, team, kind, algorithm)
    begin = time.perf_counter()
    count = len(candidates(_K.ALL_REDUCE, (Axis("a", 8, Topology.RING, _LINK), Axis("b", 8, Topology.RING, _LINK)), SIZE))
    yield Measurement(f"collectives: {count} candidates of an all-reduce, 8 x 8 torus, anew", time.perf_counter() - begin, "s")


def slowest_form() -> float:
    """Seconds per size of the closed form that takes longest, in a batch of sizes on 64 ranks."""
    sizes = np.random.default_rng(1).integers(1, SIZE, BATCH).astype(np.float64)
    return max(seconds(partial(form.time, 64, 64, sizes, _LINK, 1e-6), BATCH, 0.03) for form in FORMS.values())


def of_table(name: str, team: Group, kind: CollectiveKind, algorithm: str) -> Iterator[Measurement]:
    schedule = Schedule(algorithm)
    laid = laid_out(team, kind, schedule)
    chunks = laid.sizes(SIZE)
    yield Measurement(f"collectives: evaluation, {name}", seconds(lambda: evaluate(laid, chunks), 1), "s", EVALUATION_TARGET)
    sizes = np.random.default_rng(1).integers(1, SIZE, BATCH).astype(np.float64)
    of = price(kind, team, schedule)
    yield Measurement(f"collectives: per size in a batch, {name}", seconds(lambda: of(sizes), BATCH), "s")


def seconds(work: Callable[[], Any], items: int, spell: float = 0.3) -> float:
    """Seconds per item of repeated calls."""
    return 1 / per_second(work, items, spell)
