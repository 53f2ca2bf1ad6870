"""Compute units against memory units of a chip under 2-D, 2.5-D and 3-D memory: DFModel's figure 22."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from halley import load_chip
from halley.dfmodel.chip import UnfusedCosts, unfused_costs
from halley.dfmodel.plan import AxisChoice, DFModelProblem
from halley.formulas.numbers import ceil_div
from halley.formulas.timing import busy_time
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Chip, Level
from halley.ir.system import System
from halley.report.draw import FAINT, PALETTE, WIDTH, box, canvas, legend, line, words
from halley.report.markup import svg_file
from halley.sharding.axes import Role, assignment_text, assignments, degree
from halley.spatial.chip import Engine, Kernel, SpatialProblem, TiledDim
from halley.workloads.transformer import Transformer
from studies.kept import KeptStudy, Rows, StudyCase
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "stacked", "Compute or memory units under 2-D, 2.5-D and 3-D memory"
UNITS, ROW, UNIT_BYTES = 2080, 26, 512 * 1024
"""Units of equal area on a chip, those of a row of compute units, bytes of a memory unit (SN40L)."""
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Of the units that compute."""
MEMORIES = {1e11: "2-D DDR", 1e12: "2.5-D HBM", 1e14: "3-D"}
"""The paper's: bytes per second, and what they stand for."""
BANDWIDTHS = (1e11, 1.5e11, 2e11, 5e11, 1e12, 1e14)
PUBLISHED = {
    1e11: "more memory units than compute units",
    1e12: "as many of both",
    1e14: "more compute units",
}
"""What the paper finds best (arXiv 2412.16432, section VIII-C)."""
LAYERS, MODEL, HEADS, HEAD_DIM, SEQUENCE, BATCH = 448, 134_144, 262, 512, 2048, 8192
"""The model nearest to 100e12 parameters of the paper's published inputs, and its batch."""
DRAM, LINK = 3 * 2**40, 50e9
"""Bytes of DRAM of a chip, bytes per second of a link: those of the same inputs."""
GRID = "dfmodel:sn30/torus-3d/ddr4/nvlink-4"
"""The axes of 1,024 chips."""
ACCUMULATOR, ELEMENT = 4, 2
"""Bytes of a partial sum on the chip, and of an element."""
PANELS = 64
"""Most panels of columns that a product is divided into."""


@cache
def model() -> Transformer:
    """A GPT of 97e12 parameters."""
    return replace(
        load_model("gpt3-1t"),
        name="gpt-100t",
        layers=LAYERS,
        model=MODEL,
        heads=HEADS,
        kv_heads=HEADS,
        head_dim=HEAD_DIM,
        hidden=4 * MODEL,
    )


def compute_units(share: float) -> int:
    """Whole rows of them."""
    return round(share * UNITS / ROW) * ROW


def chip(share: float, bandwidth: float) -> Chip:
    """An SN40L with this share of compute units and this memory: the other units hold data, and there is no HBM beside."""
    base, count = load_chip("sn40l"), compute_units(share)

    def changed(level: Level) -> Level:
        memory = level.memories[0]
        if level.name == "ddr":
            made = replace(memory, capacity=DRAM, read_bandwidth=bandwidth, write_bandwidth=bandwidth)
            return replace(level, memories=(made,))
        assert level.network is not None  # it is the level of the units
        axes = (replace(axis, size=count // ROW) if axis.name == "x" else axis for axis in level.network.axes)
        made = replace(memory, capacity=(UNITS - count) * UNIT_BYTES / count)
        return replace(level, network=replace(level.network, axes=tuple(axes)), memories=(made,))

    return replace(base, levels=tuple(changed(level) for level in base.levels if level.name != "hbm"))


def system(share: float, bandwidth: float) -> System:
    """1,024 of these chips in a torus of 16 x 8 x 8."""
    grid = load_system(GRID)
    axes = tuple(replace(axis, link=replace(axis.link, bandwidth=LINK)) for axis in grid.axes)
    return replace(grid, name=f"{share:.0%} compute units", chip=chip(share, bandwidth), axes=axes, memories=("ddr",))


def blocked_traffic(rows: int, columns: int, depth: int, sram: float) -> float:
    """Bytes between DRAM and chip of a product [rows, columns] whose partial sums stay on the chip, one block after the other:
    each operand is read once for each block of the other's extent. The best of up to `PANELS` panels of columns.

    >>> blocked_traffic(8, 8, 100, math.inf), blocked_traffic(8, 8, 100, 4 * 32)   # one block; two of 8 x 4
    (3328.0, 4928.0)
    """
    least = math.inf
    for panels in range(1, min(PANELS, columns) + 1):
        high = min(rows, sram // (ACCUMULATOR * ceil_div(columns, panels)))
        if high >= 1:
            read = rows * depth * panels + columns * depth * ceil_div(rows, high)
            least = min(least, ELEMENT * float(read + rows * columns))
    return least


def kernel_traffic(kernel: Kernel, microbatch: int, sram: float, tensors: float) -> float:
    """Bytes of a kernel for a microbatch: products with weights and gradients of weights by blocks, everything else as in
    DFModel, each of its ``tensors`` [B] of a sequence once."""
    if kernel.engine is Engine.MATRIX and kernel.weights:
        return blocked_traffic(kernel.rows, kernel.columns * microbatch, kernel.depth, sram)
    if kernel.engine is Engine.MATRIX and kernel.tiled is TiledDim.DEPTH:
        return blocked_traffic(kernel.rows, kernel.columns, kernel.depth * microbatch, sram)
    return tensors * microbatch


def microbatch_time(stage: SpatialProblem, costs: UnfusedCosts, microbatch: int, sram: float) -> tuple[float, float]:
    """Seconds of a layer for a microbatch, kernel by kernel, and those in which memory limits."""
    moved = [0.0] * len(stage.graph.kernels)
    for tensor in stage.tensors:
        for place in (*tensor.readers, *(() if tensor.writer is None else (tensor.writer,))):
            moved[place] += tensor.bytes
    whole = waits = 0.0
    for place, kernel in enumerate(stage.graph.kernels):
        memory = float(busy_time(kernel_traffic(kernel, microbatch, sram, moved[place]), stage.chip.bandwidth))
        others = microbatch * max(float(costs.compute[place]), float(costs.network[place]))
        whole += max(memory, others)
        waits += memory if memory > others else 0.0
    return whole, waits


def solve(share: float, bandwidth: float) -> Rows:
    """The best assignment of axes and microbatch, kernel by kernel."""
    made, sram = system(share, bandwidth), float((UNITS - compute_units(share)) * UNIT_BYTES)
    problem = DFModelProblem(model(), made, BATCH, SEQUENCE, fused=False)
    best: dict[str, Any] = {"time": math.inf}
    for assignment in assignments(made, {}, whole=True):
        stages, replicas = degree(assignment, Role.PIPELINE), degree(assignment, Role.DATA)
        if stages > LAYERS or replicas > BATCH:
            continue
        samples = problem.samples(assignment)
        first = problem.stage(AxisChoice(assignment, 1))
        costs = unfused_costs(first)
        layers = int(ceil_div(LAYERS, stages))
        for microbatch in (size for size in range(1, samples + 1) if not samples % size):
            if layers * (first.graph.weights + microbatch * costs.kept) > DRAM:
                break
            choice = AxisChoice(assignment, microbatch)
            whole, waits = microbatch_time(first, costs, microbatch, sram)
            layer = max(whole / microbatch, first.transfer)
            time = max(layer * problem.scale(choice, first), problem.reduction(choice, first))
            if time < best["time"]:
                best = {
                    "time": time,
                    "memory": waits / whole,
                    "plan": assignment_text(assignment),
                    "microbatch": microbatch,
                    "rate": problem.work / time,
                    "utilisation": problem.work / time / problem.peak,
                }
    return [{"share": share, "bandwidth": bandwidth, "sram": sram, **best}]


def cases() -> Iterator[StudyCase]:
    """Every memory and share."""
    for bandwidth in BANDWIDTHS:
        for share in SHARES:
            yield StudyCase("rows", f"{bandwidth / 1e9:g} GB/s, {share:.0%}", partial(solve, share, bandwidth))


def best_of(found: Sequence[Mapping[str, Any]], bandwidth: float) -> Mapping[str, Any]:
    """The row with the highest throughput under a memory."""
    return max((row for row in found if row["bandwidth"] == bandwidth), key=lambda row: float(row["rate"]))


def at(found: Sequence[Mapping[str, Any]], bandwidth: float, share: float) -> Mapping[str, Any]:
    """The row of a memory and a share."""
    return next(row for row in found if (row["bandwidth"], row["share"]) == (bandwidth, share))


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    found = known["rows"]
    shares = [f"{best_of(found, bandwidth)['share']:.0%} with {name}" for bandwidth, name in MEMORIES.items()]
    return (
        f"GPT of 100e12 parameters on 1,024 chips of 2,080 units: the best share of compute units is {', '.join(shares)} "
        "(DFModel: less than half, half, more than half)"
    )


def findings(found: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The paper's first and third observation, and the order of all three."""
    slow, fast = best_of(found, 1e11), best_of(found, 1e14)
    most = at(found, 1e11, SHARES[-1])
    yield Finding(
        f"**With 2-D memory more memory units are needed**: at 100 GB/s the best share is {slow['share']:.0%}, "
        f"{slow['rate'] / most['rate']:.2f} x as fast as {SHARES[-1]:.0%}, which has {most['share'] / slow['share']:.0f} x the "
        f"compute units and waits for memory {most['memory']:.0%} of the time.",
        slow["share"] < 0.5 and slow["rate"] > 1.2 * most["rate"],
    )
    few = at(found, 1e14, SHARES[0])
    yield Finding(
        f"**With 3-D memory compute units decide**: at 100 TB/s throughput rises with every step up to {fast['share']:.0%}, "
        f"{fast['rate'] / few['rate']:.2f} x that of {few['share']:.0%}, which has a quarter of the compute units.",
        fast["share"] == SHARES[-1] and fast["rate"] > 3.5 * few["rate"],
    )
    order = [best_of(found, bandwidth)["share"] for bandwidth in BANDWIDTHS]
    yield Finding(
        f"**The faster the memory, the more compute units**: the best shares are {', '.join(f'{share:.0%}' for share in order)} "
        f"at {', '.join(f'{bandwidth / 1e9:g}' for bandwidth in BANDWIDTHS)} GB/s.",
        order == sorted(order),
    )


def differences(found: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The paper's second observation."""
    half, best = at(found, 1e12, 0.5), best_of(found, 1e12)
    even = [bandwidth for bandwidth in BANDWIDTHS if best_of(found, bandwidth)["share"] in (0.4, 0.5, 0.6)]
    yield Finding(
        f"**With 2.5-D memory a balanced chip is not the best here**: at 1 TB/s {best['share']:.0%} of compute units are "
        f"{best['rate'] / half['rate']:.2f} x as fast as {half['share']:.0%}. Blocks of {UNITS - compute_units(SHARES[-1])} "
        f"memory units do {intensity(SHARES[-1]):,.0f} operations for a byte, more than the "
        f"{need(SHARES[-1], 1e12):,.0f} that the chip then does while it reads one. A share of 40 to 60 % is best at "
        f"{' and '.join(f'{bandwidth / 1e9:g}' for bandwidth in even)} GB/s. The paper's mappings hold the whole weights of a "
        "partition on the chip, so that memory units buy it more; here products are divided into blocks.",
        best["share"] > 0.5 and best["rate"] > 1.1 * half["rate"] and intensity(SHARES[-1]) > need(SHARES[-1], 1e12),
    )


def intensity(share: float) -> float:
    """Operations for a byte from DRAM of a product in square blocks that fill the memory units."""
    side = math.sqrt((UNITS - compute_units(share)) * UNIT_BYTES / ACCUMULATOR)
    return 2 * side * side / (2 * side * ELEMENT)


def need(share: float, bandwidth: float) -> float:
    """Operations that the compute units do while the memory moves a byte."""
    return DFModelProblem(model(), system(share, bandwidth), BATCH, SEQUENCE, fused=False).chip.peak / bandwidth


def page(known: Mapping[str, Any]) -> str:
    """The whole page."""
    found = known["rows"]
    head = ("memory", "GB/s", *(f"{share:.0%}" for share in SHARES), "best", "paper: best")
    lines = []
    for bandwidth in BANDWIDTHS:
        best = best_of(found, bandwidth)
        rates = [f"{at(found, bandwidth, share)['rate'] / 1e15:,.0f}" for share in SHARES]
        rates[SHARES.index(best["share"])] = f"**{rates[SHARES.index(best['share'])]}**"
        name, published = MEMORIES.get(bandwidth, ""), PUBLISHED.get(bandwidth, "")
        lines.append((name, f"{bandwidth / 1e9:,.0f}", *rates, f"{best['share']:.0%}", published))
    plans = [
        (
            MEMORIES.get(row["bandwidth"], ""),
            f"{row['bandwidth'] / 1e9:,.0f}",
            f"{row['share']:.0%}",
            row["plan"],
            f"{row['microbatch']}",
            f"{row['utilisation']:.1%}",
            f"{row['memory']:.0%}",
        )
        for row in (best_of(found, bandwidth) for bandwidth in BANDWIDTHS)
    ]
    names = ("memory", "GB/s", "compute units", "axes", "microbatch", "of the peak", "waits for memory")
    parts = {
        "headline": headline(known),
        "table": "\n".join(table(head, lines)),
        "plans": "\n".join(table(names, plans)),
        "agrees": "\n".join(bullet(item.text) for item in findings(found)),
        "differs": "\n".join(bullet(item.text) for item in differences(found)),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_suffix(".md"), parts)


def figure(found: Sequence[Mapping[str, Any]]) -> Element:
    """Throughput by share of compute units, a panel for each memory of the paper."""
    left, bottom, high, gap = 60.0, 290.0, 230.0, 14.0
    fills = {"best share": PALETTE[0], "others": PALETTE[1]}
    content, _ = legend(fills.items(), left, 4, WIDTH - left)
    top = 1e18
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - high * part
        content += [line(left, y, WIDTH - 10, y), words(left - 6, y + 4, f"{part * top / 1e15:,.0f}", "end", FAINT, 12)]
    wide = (WIDTH - left - 10) / len(MEMORIES)
    for place, (bandwidth, name) in enumerate(MEMORIES.items()):
        best, each = best_of(found, bandwidth), (wide - gap) / len(SHARES)
        for number, share in enumerate(SHARES):
            row, x = at(found, bandwidth, share), left + wide * place + gap / 2 + each * number
            tall = high * row["rate"] / top
            tip = f"{name}, {share:.0%} compute units: {row['rate'] / 1e15:,.0f} PFLOP/s, {row['utilisation']:.0%} of the peak"
            content.append(box(x + 2, bottom - tall, each - 4, tall, fills["best share" if row is best else "others"], tip))
            content.append(words(x + each / 2, bottom + 16, f"{share:.0%}", "middle", FAINT, 11))
        middle = left + wide * (place + 0.5)
        content.append(words(middle, bottom + 36, f"{name}, {bandwidth / 1e9:,.0f} GB/s", "middle", font_weight="bold"))
    return canvas(bottom + 48, "Throughput [PFLOP/s] by share of compute units", content)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {f"{NAME}.svg": svg_file(figure(known["rows"])), f"{NAME}.md": page(known)}


STUDY = KeptStudy(NAME, __file__, cases, _files)
