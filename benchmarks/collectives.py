"""How fast collectives are costed: one look-up, batches of sizes, one evaluation of a table, all candidates of a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Measurement, per_second
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.graph.groups import Group
from halley.network.time.collective import best_time, candidates, team_of
from halley.network.time.evaluate import evaluate
from halley.network.time.forms import FORMS
from halley.network.time.phased import collective_time, dimensions_of
from halley.network.time.schedules import Schedule, laid_out

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
    yield Measurement("collectives: fastest of all schedules, the slowest network per size in a batch", max(fastest_times()), "s")
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
    return max(processor_seconds(partial(form.time, 64, 64, sizes, _LINK, 1e-6)) for form in FORMS.values()) / BATCH


def networks() -> dict[str, tuple[Axis, ...]]:
    """One of every topology, and products of them."""
    slow, able = Link(12.5e9, 2e-6, 1e-11, overhead=2e-7), {"multicast": True, "reduction": True, "on_request": True}
    t = Topology
    return {
        "line": (Axis("x", 16, t.LINE, _LINK),),
        "ring": (Axis("x", 17, t.RING, _LINK),),
        "full": (Axis("x", 16, t.FULL, _LINK),),
        "switch": (Axis("x", 24, t.SWITCH, _LINK, **able),),
        "mesh": (Axis("x", 30, t.MESH, _LINK, shape=(5, 6)),),
        "torus": (Axis("x", 64, t.TORUS, _LINK, shape=(8, 8)),),
        "3-D torus": (Axis("x", 36, t.TORUS, _LINK, shape=(4, 3, 3)),),
        "multipath torus": (Axis("x", 16, t.TORUS, _LINK, shape=(4, 4), multipath=True),),
        "hypercube": (Axis("x", 32, t.HYPERCUBE, _LINK),),
        "dragonfly": (Axis("x", 36, t.DRAGONFLY, _LINK, (2, 2, 4), upper=_LINK, top=slow),),
        "fat-tree": (Axis("x", 32, t.FAT_TREE, _LINK, (8, 2), upper=_LINK),),
        "3-level fat-tree": (Axis("x", 32, t.FAT_TREE, _LINK, (4, 2, 2, 4), upper=slow),),
        "DGX-1": (Axis("x", 8, t.DGX_1, _LINK),),
        "pods": (Axis("node", 4, t.SWITCH, slow), Axis("gpu", 8, t.SWITCH, _LINK, **able)),
        "product": (Axis("x", 2, t.LINE, _LINK), Axis("y", 3, t.RING, slow), Axis("z", 4, t.FULL, _LINK)),
    }


def fastest_times() -> list[float]:
    """Seconds per size, in a batch, of the fastest schedule of every network and kind, as plans ask for it."""
    sizes = np.random.default_rng(1).integers(1, SIZE, BATCH).astype(np.float64)
    kinds = (_K.ALL_REDUCE, _K.ALL_GATHER, _K.REDUCE_SCATTER, _K.ALL_TO_ALL)
    asked = [collective_time(kind, dimensions_of(axes), 1e-6) for axes in networks().values() for kind in kinds]
    return [processor_seconds(partial(time, sizes)) / BATCH for time in asked]


def processor_seconds(work: Callable[[], Any]) -> float:
    """The least of a few calls, each too short for a spell."""
    work()
    spent = []
    for _ in range(7):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return min(spent)


def of_table(name: str, team: Group, kind: CollectiveKind, algorithm: str) -> Iterator[Measurement]:
    schedule = Schedule(algorithm)
    laid = laid_out(team, kind, schedule)
    chunks = laid.sizes(SIZE)
    yield Measurement(f"collectives: evaluation, {name}", seconds(lambda: evaluate(laid, chunks), 1), "s", EVALUATION_TARGET)


def seconds(work: Callable[[], Any], items: int) -> float:
    """Seconds per item of repeated calls."""
    return 1 / per_second(work, items, 0.3)
