"""Dynamic sequence parallelism: the sharding search switches the split between spatial and temporal attention by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from halley.errors import BadInput
from halley.formulas.software import sent_bytes
from halley.graphs.plan import GraphPlan, GraphProblem, plan_graph
from halley.io.chips.fits import fit_of_chip
from halley.io.systems.system import load_system
from halley.ir.workload import Workload
from halley.network.time.collective import PASSES
from halley.report.draw import PALETTE, BarPart, ChartBar, stacked
from halley.report.markup import svg_file
from halley.sharding.layouts import CollectiveStep, Mesh
from halley.units import format_bytes, format_time
from halley.workloads.user import graph
from studies.kept import KeptStudy, Rows, StudyCase
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "sequence", "Dynamic sequence parallelism, found by the sharding search"
SYSTEMS = ("8 x h100, nvlink", "16 x h100, nvlink 8, ib", "64 x h100, nvlink 8, ib")
FRAMES, PATCHES, HEADS, HEAD = 64, 1024, 16, 72
"""Of a video: frames, patches of a frame; heads and their dim, those of a transformer of width 1,152 (DiT-XL)."""
FREE, HEADS_SPLIT, MATRICES = "free", "heads", "matrices"
FILLS = {"kernels": PALETTE[0], "collectives": PALETTE[1]}


def attention(source: str, result: str, mark: str, copied: str, read: str) -> list[str]:
    """Attention along one dim of the video, from a tensor to the next one with its residual. ``copied``: the dim of the keys,
    which is another name of the dim ``read`` of the queries."""
    dims = {"t": "t", "s": "s"} | {read: copied}
    keys = ",".join((dims["t"], dims["s"], "h", "e"))
    scores = f"t,s,h,{copied}"
    return [
        *(f"{name}{mark}[t,s,h,e] = {source}[t,s,c] * W{name}{mark}[c,h,e]" for name in "QKV"),
        *(f"{name}{mark}2[{keys}] = {name}{mark}[t,s,h,e]" for name in "KV"),
        f"A{mark}[{scores}] = Q{mark}[t,s,h,e] * K{mark}2[{keys}]",
        f"M{mark}[t,s,h] = max(A{mark}[{scores}])",
        f"E{mark}[{scores}] = exp_difference(A{mark}[{scores}], M{mark}[t,s,h])",
        f"Z{mark}[t,s,h] = sum(E{mark}[{scores}])",
        f"P{mark}[{scores}] = E{mark}[{scores}] / Z{mark}[t,s,h]",
        f"O{mark}[t,s,h,e] = P{mark}[{scores}] * V{mark}2[{keys}]",
        f"Y{mark}[t,s,c] = O{mark}[t,s,h,e] * WO{mark}[h,e,c]",
        f"{result}[t,s,c] = {source}[t,s,c] + Y{mark}[t,s,c]",
    ]


def block() -> Workload:
    """A block of a transformer for videos: attention over the patches of each frame, then over the frames of each patch."""
    lines = [*attention("X", "Xs", "s", "p", "s"), *attention("Xs", "Xt", "t", "u", "t")]
    sizes = {"t": FRAMES, "s": PATCHES, "c": HEADS * HEAD, "h": HEADS, "e": HEAD, "p": PATCHES, "u": FRAMES}
    return graph(lines, sizes, "bf16")


def ways(axes: Sequence[str]) -> dict[str, dict[str, dict[str, str]]]:
    """The splits that each way fixes."""

    def on(dim: str, *ops: str) -> dict[str, dict[str, str]]:
        return {op: dict.fromkeys(axes, dim) for op in ops}

    projections = ("Qs", "Ks", "Vs", "Ys", "Xs", "Qt", "Kt", "Vt", "Yt", "Xt")
    return {
        FREE: {},
        HEADS_SPLIT: on("s", *projections) | on("h", "As"),
        MATRICES: on("h", "Qs", "Ks", "Vs", "Ys", "Qt", "Kt", "Vt", "Yt"),
    }


def planned(system: str, fixed: Mapping[str, Mapping[str, str]]) -> GraphPlan:
    """The best sharding of a block that is one of many: its output lies as its input does."""
    found = load_system(system)
    efficiency = fit_of_chip(found.chip.name)[0].efficiency
    return plan_graph(GraphProblem(block(), found, same_layout=(("Xt", "X"),), splits=fixed, efficiency=efficiency))


def cases() -> Iterator[StudyCase]:
    """Every system, every way."""
    for system in SYSTEMS:
        axes = [axis.name for axis in load_system(system).axes]
        for way, fixed in ways(axes).items():
            yield StudyCase("rows", f"{system}; {way}", partial(solve, system, way, fixed))


def solve(system: str, way: str, fixed: Mapping[str, Mapping[str, str]]) -> Rows:
    """The best plan with these splits."""
    row: dict[str, Any] = {"system": system, "way": way}
    try:
        plan = planned(system, fixed)
    except BadInput as error:
        return [row | {"reason": f"{error.faults[0].expected}: {error.faults[0].got}"}]
    steps = plan.sharding.steps
    return [
        row
        | {
            "time": plan.time,
            "bound": plan.certificate.bound,
            "collectives": plan.sharding.collective_time,
            "sent": sum(sent(step, plan.sharding.problem.mesh) for _, step in steps),
            "what": ", ".join(f"{step.kind} of {move.tensor}" for move, step in steps),
            "dims": {item.op: "".join(dict.fromkeys(part.split for part in item.strategy)) for item in plan.sharding.ops},
        }
    ]


def sent(step: CollectiveStep, mesh: Mesh) -> float:
    """Bytes that a chip sends in a collective, at least."""
    ranks = prod(axis.ranks for axis in mesh if axis.name in step.axes)
    return float(sent_bytes(PASSES[step.kind], ranks, step.bytes)) if step.kind is not None else 0.0


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    by = {(row["system"], row["way"]): row for row in known["rows"]}
    free, heads, matrices = (by[SYSTEMS[0], way] for way in (FREE, HEADS_SPLIT, MATRICES))
    return (
        f"left free, the search switches the split from frames to patches by an all-to-all: {free['sent'] / heads['sent']:.0%} "
        f"of the bytes of splitting heads in attention, {free['sent'] / matrices['sent']:.0%} of those of splitting matrices"
    )


def findings(found: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The claims of the paper, and whether the rows bear them out."""
    by = {(row["system"], row["way"]): row for row in found}
    free, heads, matrices = (by[SYSTEMS[0], way] for way in (FREE, HEADS_SPLIT, MATRICES))
    dims = free["dims"]
    yield Finding(
        "**The search finds it**: nothing is fixed, and the optimum splits the frames in spatial attention and the patches in "
        f"temporal attention, on all three systems. Its collectives on 8 chips: {free['what']}.",
        all(
            {by[system, FREE]["dims"][f"{op}s"] for op in "QAOY"} == {"t"}
            and {by[system, FREE]["dims"][f"{op}t"] for op in "QAOY"} == {"s"}
            for system in SYSTEMS
        )
        and dims["As"] == "t",
    )
    yield Finding(
        f"**Less communication**: {format_bytes(free['sent'])} that a chip sends for a block, {format_bytes(heads['sent'])} "
        f"with heads split in attention, {format_bytes(matrices['sent'])} with matrices split (paper: less than 25 % of others).",
        free["sent"] < 0.51 * heads["sent"] and free["sent"] < 0.25 * matrices["sent"],
    )
    many = SYSTEMS[-1]
    yield Finding(
        f"**Few constraints**: on 64 chips, {HEADS} heads cannot be split evenly, while frames and patches can.",
        "time" in by[many, FREE] and not any("time" in by[many, way] for way in (HEADS_SPLIT, MATRICES)),
    )


def page(known: Mapping[str, Any]) -> str:
    """The whole page."""
    head = ("system", "split", "time", "collectives", "a chip sends", "which")
    lines = [
        (
            row["system"],
            row["way"],
            *(
                (format_time(row["time"]), format_time(row["collectives"]), format_bytes(row["sent"]), row["what"])
                if "time" in row
                else ("none", "", "", row["reason"])
            ),
        )
        for row in known["rows"]
    ]
    parts = {
        "headline": headline(known),
        "table": "\n".join(table(head, lines, 2)),
        "agrees": "\n".join(bullet(item.text) for item in findings(known["rows"])),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_suffix(".md"), parts)


def figure(found: Sequence[Mapping[str, Any]]) -> Element:
    """The time of a block by system and way."""
    bars = []
    for row in found:
        if "time" in row:
            name = f"{row['system'].partition(',')[0]}, {row['way']}"
            work = row["time"] - row["collectives"]
            parts = (("kernels", work), ("collectives", row["collectives"]))
            tips = tuple(BarPart(key, value, f"{name}: {key} {format_time(value)}") for key, value in parts)
            bars.append(ChartBar(name, tips, format_time(row["time"]), row["way"] == FREE))
    return stacked("Time of a block by system and split", bars, FILLS, format_time, 1e-3)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {f"{NAME}.svg": svg_file(figure(known["rows"])), f"{NAME}.md": page(known)}


STUDY = KeptStudy(NAME, __file__, cases, _files)
