"""Dataflow against kernel by kernel on nine memory systems: DFModel's figure 19."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from halley.dfmodel.plan import DFModelProblem, best_training
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Chip, Level
from halley.ir.system import System
from halley.kernels.machine import machine
from halley.report.draw import FAINT, PALETTE, WIDTH, box, canvas, ink_on, legend, line, words
from halley.report.markup import svg_file
from halley.sharding.axes import assignment_text
from studies.kept import KeptStudy, Rows, StudyCase
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "memory", "Dataflow against kernel by kernel on nine memory systems"
MODEL, SEQUENCE, BATCH = "gpt3-175b", 2048, 64
PEAK = 300e12
"""Operations per second of a chip (arXiv 2412.16432, section VII-E)."""
SRAM, DRAM = (150e6, 300e6, 500e6), (100e9, 300e9, 600e9)
"""Bytes of SRAM of a chip, bytes per second of its DRAM."""
PUBLISHED = 1.63
"""Dataflow over kernel by kernel; the paper does not say over what it is taken."""


def system(sram: float, dram: float) -> System:
    """The paper's eight chips in a torus of 4 x 2, with these memories."""
    base = load_system("sn10-torus")
    chip = base.chip
    assert chip.matrix is not None  # it is an SN10
    assert chip.vector is not None
    speed = PEAK / (2 * machine(chip).mac_rate("bf16"))
    levels, instances = [], 1
    for level in chip.levels:
        instances *= level.count
        levels.append(_level(level, chip, sram / 2 / instances, dram))
    engines = replace(chip.matrix, clock=chip.matrix.clock * speed), replace(chip.vector, clock=chip.vector.clock * speed)
    made = replace(chip, levels=tuple(levels), matrix=engines[0], vector=engines[1])
    return replace(base, name=f"{sram / 1e6:.0f} MB, {dram / 1e9:.0f} GB/s", chip=made)


def _level(level: Level, chip: Chip, sram: float, dram: float) -> Level:
    """Half of the SRAM is one pool, the other half belongs to the units, as in the chip file."""
    return replace(
        level,
        memories=tuple(
            replace(memory, capacity=sram)
            if memory.name in chip.streams
            else replace(memory, read_bandwidth=dram, write_bandwidth=dram)
            for memory in level.memories
        ),
    )


def cases() -> Iterator[StudyCase]:
    """Every memory system."""
    for sram in SRAM:
        for dram in DRAM:
            yield StudyCase("rows", f"{sram / 1e6:g} MB, {dram / 1e9:g} GB/s", partial(solve, sram, dram))


def solve(sram: float, dram: float) -> Rows:
    """A memory system, both ways."""
    shape, made = load_model(MODEL), system(sram, dram)
    one, fused = (best_training(DFModelProblem(shape, made, BATCH, SEQUENCE, way)) for way in (False, True))
    return [
        {
            "sram": sram,
            "dram": dram,
            "kernels": one.utilisation,
            "kernels_plan": assignment_text(one.choice.assignment),
            "dataflow": fused.utilisation,
            "dataflow_plan": assignment_text(fused.choice.assignment),
            "fused": fused.problem.fused,
            "partitions": len(fused.layer.partitions),
        }
    ]


def mean_ratio(found: Sequence[Mapping[str, Any]]) -> float:
    """Geometric mean of dataflow over kernel by kernel."""
    return float(prod(row["dataflow"] / row["kernels"] for row in found) ** (1 / len(found)))


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    found = known["rows"]
    most = max(row["dataflow"] / row["kernels"] for row in found)
    return (
        f"dataflow is never slower, {mean_ratio(found):.2f} x faster in the geometric mean of nine memory systems (DFModel "
        f"{PUBLISHED} x) and up to {most:.1f} x; with 150 MB of SRAM nothing can be fused"
    )


def findings(found: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The paper's observations, and whether the rows bear them out."""
    by = {(row["sram"], row["dram"]): row for row in found}
    small, large = by[SRAM[0], DRAM[0]], by[SRAM[-1], DRAM[0]]
    yield Finding(
        f"**Dataflow needs SRAM**: with 100 GB/s it reaches {small['dataflow']:.0%} of the peak with 150 MB and "
        f"{large['dataflow']:.0%} with 500 MB, at each bandwidth more with more.",
        all(by[one, dram]["dataflow"] <= by[more, dram]["dataflow"] for one, more in pairwise(SRAM) for dram in DRAM)
        and large["dataflow"] > 2 * small["dataflow"],
    )
    slow, fast = by[SRAM[-1], DRAM[0]], by[SRAM[-1], DRAM[-1]]
    yield Finding(
        f"**Kernel by kernel needs DRAM bandwidth**: from 100 to 600 GB/s it goes from {slow['kernels']:.0%} to "
        f"{fast['kernels']:.0%} of the peak; dataflow with 500 MB from {slow['dataflow']:.0%} to {fast['dataflow']:.0%}.",
        fast["kernels"] > 2 * slow["kernels"] and fast["dataflow"] < 1.1 * slow["dataflow"],
    )
    yield Finding(
        f"**Dataflow is never slower**, as a dataflow chip may also run kernel by kernel: {mean_ratio(found):.2f} x in the "
        f"geometric mean of the nine systems (paper: {PUBLISHED} x, without saying over what).",
        all(row["dataflow"] >= row["kernels"] * (1 - 1e-9) for row in found) and abs(mean_ratio(found) / PUBLISHED - 1) < 0.1,
    )


def page(known: Mapping[str, Any]) -> str:
    """The whole page."""
    found = known["rows"]
    head = ("SRAM", "DRAM", "kernel by kernel", "its axes", "dataflow", "its axes", "partitions of a layer", "ratio")
    lines = [
        (
            f"{row['sram'] / 1e6:.0f} MB",
            f"{row['dram'] / 1e9:.0f} GB/s",
            f"{row['kernels']:.1%}",
            row["kernels_plan"],
            f"{row['dataflow']:.1%}",
            row["dataflow_plan"],
            str(row["partitions"]) if row["fused"] else "one by one",
            f"{row['dataflow'] / row['kernels']:.2f}",
        )
        for row in found
    ]
    parts = {
        "headline": headline(known),
        "table": "\n".join(table(head, lines, 2)),
        "agrees": "\n".join(bullet(item.text) for item in findings(found)),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_suffix(".md"), parts)


def figure(found: Sequence[Mapping[str, Any]]) -> Element:
    """A pair of bars for each memory system: share of the peak."""
    left, bottom, high = 60.0, 290.0, 230.0
    fills = {"kernel by kernel": PALETTE[1], "dataflow": PALETTE[0]}
    content, _ = legend(fills.items(), left, 4, WIDTH - left)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - high * share
        content += [line(left, y, WIDTH - 10, y), words(left - 6, y + 4, f"{share:.0%}", "end", FAINT, 12)]
    wide = (WIDTH - left - 10) / len(found)
    for place, row in enumerate(found):
        x = left + wide * place
        for number, (key, name) in enumerate((("kernels", "kernel by kernel"), ("dataflow", "dataflow"))):
            tall = high * row[key]
            tip = f"{name}, {row['sram'] / 1e6:.0f} MB, {row['dram'] / 1e9:.0f} GB/s: {row[key]:.1%} of the peak"
            at = x + wide * (0.14 + 0.36 * number)
            content.append(box(at, bottom - tall, wide * 0.34, tall, fills[name], tip))
            content.append(words(at + wide * 0.17, bottom - 8, f"{row[key]:.0%}", "middle", ink_on(fills[name]), 12))
        content.append(words(x + wide / 2, bottom + 18, f"{row['dram'] / 1e9:.0f} GB/s", "middle", FAINT, 12))
        if not place % len(DRAM):
            middle = x + wide * len(DRAM) / 2
            content.append(words(middle, bottom + 38, f"{row['sram'] / 1e6:.0f} MB of SRAM", "middle", font_weight="bold"))
    return canvas(bottom + 48, "Share of the peak by memory system", content)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {f"{NAME}.svg": svg_file(figure(known["rows"])), f"{NAME}.md": page(known)}


STUDY = KeptStudy(NAME, __file__, cases, _files)
