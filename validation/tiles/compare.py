"""Times of mappings by the formulas beside those of Triton kernels that do the same on an H200; energy beside the card's."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from validation.kernels.compare import rank_correlation
from validation.outcome import Case as Compared
from validation.outcome import Line, Outcome
from validation.tiles.cases import (
    ATTENTION,
    CAUSAL,
    COLUMNS,
    DECODE,
    FLAT,
    GEMM,
    ROWS,
    SOFTMAX,
    SPLIT,
    Case,
)
from validation.tiles.mappings import texts, workload

from halley.cost.own import capacity_faults, own_mapping
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.text import parse

TABLE = Path(__file__).parent / "tiles-h200.json"
CHIP = "h200"
SEVERAL_LOADS, ONE_LOAD = (3, 4), (2,)
"""Stages with several loads under way, and with one at a time: a single buffer, whose fills the formulas take one after the
other."""
ALLOWED = {
    GEMM: (0.11, 0.35),
    FLAT: (0.09, 0.25),
    SPLIT: (0.25, 0.5),
    SOFTMAX: (0.25, 0.45),
    ATTENTION: (0.08, 0.35),
    CAUSAL: (0.08, 0.35),
    DECODE: (0.17, 0.45),
}
"""Allowed mean and worst error, by kind."""
SINGLE = (0.8, 1.4)
"""Allowed with a single load under way."""
ENERGY = (0.2, 0.3)
"""Allowed of the energy of kernels in a loop."""
FREE = float("inf")
"""Allowed of lines that stand beside for comparison: anything."""


@cache
def measured() -> Mapping[str, Any]:
    """What `kernels` wrote."""
    found: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def case_of(row: Mapping[str, Any]) -> Case:
    return Case(row["kind"], tuple(row["sizes"]), tuple(row["tile"]), row["buffers"])


def rows(kind: str, stages: Sequence[int]) -> list[tuple[Case, float]]:
    """Mappings of a kind and what they took [s] without the launch, in a fixed order."""
    launch = measured()["launch"]["nothing"]
    found = [
        (case_of(row), row["time"] - launch) for row in measured()["rows"] if row["kind"] == kind and row["buffers"] in stages
    ]
    return sorted(found, key=lambda item: (item[0].sizes, item[0].tile, item[0].buffers))


@cache
def machine() -> Chip:
    return load_chip(CHIP)


@cache
def predicted(case: Case) -> tuple[float, float] | None:
    """Time [s] and energy [J] of the fastest of the case's texts; None if none fits."""
    work, chip = workload(case), machine()
    found = [own_mapping(work, chip, parse(text)).estimate for text in texts(case)]
    fitting = [estimate for estimate in found if not capacity_faults(chip, estimate, "mapping")]
    return min(((float(each.time), float(each.energy)) for each in fitting), default=None)


def roofline(case: Case) -> float:
    """The longer [s] of all products at the matrix rate and each input and result once over the memory's bus."""
    work, chip = workload(case), machine()
    engine = chip.matrix
    assert engine is not None
    macs = work.macs() / (2 if case.kind == CAUSAL else 1)
    array = macs / (ROWS * COLUMNS * engine.rows * engine.cols * engine.rate["bf16"] * engine.clock)
    moved = sum(2 * np.prod([work.dims[dim] for dim in work.tensors[name].dims]) for name in (*work.inputs, *work.outputs))
    return float(max(array, moved / chip.memory("dram").read_bandwidth))


def compared(items: Iterable[tuple[Case, float]]) -> Iterator[Compared]:
    for case, time in items:
        if found := predicted(case):
            yield Compared(str(case), found[0], time)


def ranks(items: Sequence[tuple[Case, float]]) -> str:
    """How well the formulas order the mappings of each problem of a kind: the median, and how much the first is behind."""
    problems: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case, time in items:
        if found := predicted(case):
            problems[case.problem].append((found[0], time))
    orders = [rank_correlation(*np.array(pairs).T) for pairs in problems.values()]
    behind = [min(pairs)[1] / min(time for _, time in pairs) - 1 for pairs in problems.values()]
    first = f"{100 * np.median(behind):.1f} % behind the fastest (at most {100 * max(behind):.0f} %)"
    return f"rank correlation {np.median(orders):.2f}, the first by formula {first}"


def energies() -> Iterator[Compared]:
    """Kernels that were repeated without a pause: power times time, beside actions and static power over the measured time."""
    for row in measured()["loaded"]:
        for item in measured()["rows"]:
            case = case_of(item)
            if row["name"] == str(case) and (found := predicted(case)):
                static = machine().static_power
                yield Compared(str(case), found[1] + static * (row["time"] - found[0]), row["power"] * row["time"])


def compare() -> Outcome:
    """All of them; the rows are part of the repository."""
    lines, notes = list[Line](), list[str]()
    every = {kind: rows(kind, SEVERAL_LOADS) for kind in ALLOWED}
    for kind, items in every.items():
        held = items[1::2] if kind == GEMM else items
        lines.append(Line(f"{kind}{', held out' if kind == GEMM else ''}", tuple(compared(held)), *ALLOWED[kind]))
        bounds = tuple(Compared(str(case), roofline(case), time) for case, time in held)
        lines.append(Line(f"{kind}, roofline", bounds, FREE, FREE))
        notes.append(f"{kind}: {ranks(items)}")
    single = [item for kind in (GEMM, FLAT, ATTENTION, CAUSAL) for item in rows(kind, ONE_LOAD)]
    lines.append(Line("one load under way", tuple(compared(single)), *SINGLE))
    lines.append(Line("energy [J]", tuple(energies()), *ENERGY))
    return Outcome("tiles", tuple(lines), tuple(notes))
