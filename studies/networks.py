"""The size of the NVLink domain, and the split of chips between tensor, pipeline and data parallelism: the sweeps of DFModel's
figures 7 and 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from halley.errors import Infeasible
from halley.importers.training import training_problem
from halley.io.systems.system import load_system
from halley.network.graph.bill import bill
from halley.report.draw import PALETTE, BarPart, ChartBar, stacked
from halley.report.markup import svg_file
from halley.sharding.axes import Role, assignment_text
from halley.training.plan import TrainingResult
from halley.training.search.search import best_training_plan
from halley.units import format_time
from studies.kept import KeptStudy, Rows, StudyCase
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "networks", "The size of the NVLink domain, and how to split the chips"
MODEL, BATCH, CHIPS = "gpt3-1t", 1024, 1024
DOMAINS = (8, 16, 32, 64, 128, 256, 512, 1024)
"""GPUs of an NVLink domain."""
SPLITS = ((1, 8), (1, 64), (2, 64), (4, 64), (8, 16), (8, 32), (8, 64), (8, 128), (16, 32), (32, 32), (64, 16), (64, 2))
"""Ranks of tensor parallelism and pipeline stages; the rest is data parallelism."""
NODE = 8
"""GPUs of the NVLink domain of the A100."""
SPLIT_SYSTEM = f"{CHIPS} x a100, nvlink {NODE}, ib"
COMMUNICATION = {Role.MODEL: "tensor parallelism", Role.PIPELINE: "transfers", Role.DATA: "data parallelism"}
PARTS = ("forward and backward", "recompute", "bubble", *COMMUNICATION.values(), "rest")
FILLS = dict(zip(PARTS, (PALETTE[0], PALETTE[4], PALETTE[3], PALETTE[1], PALETTE[5], PALETTE[2], PALETTE[6]), strict=True))


def cases() -> Iterator[StudyCase]:
    """Each size of the domain, each split, and the plan whose split is free."""
    yield from (StudyCase("domains", str(size), partial(domain, size)) for size in DOMAINS)
    yield from (StudyCase("splits", f"TP {tensor}, PP {stages}", partial(split, tensor, stages)) for tensor, stages in SPLITS)
    yield StudyCase("splits", "free", free_split)


def domain(size: int) -> Rows:
    """The best plan for a size of the domain."""
    system = load_system(f"{CHIPS} x h100, nvlink {size}" + (", ib" if size < CHIPS else ""))
    row = _row(best_training_plan(training_problem(MODEL, system, BATCH), others=0))
    links = [item for item in bill(system).items if item.part.startswith("links")]
    return [{"domain": size, **row, "links": sum(item.price or 0.0 for item in links)}]


def split(tensor: int, stages: int) -> Rows:
    """The best plan for a split, if one fits."""
    problem = training_problem(MODEL, SPLIT_SYSTEM, BATCH, fix=f"tp={tensor},pp={stages}")
    row: dict[str, Any] = {"tensor": tensor, "stages": stages, "data": CHIPS // tensor // stages}
    try:
        return [row | _row(best_training_plan(problem, others=0))]
    except Infeasible:
        return [row | {"time": None}]


def free_split() -> Rows:
    """The best plan of all splits."""
    best = best_training_plan(training_problem(MODEL, SPLIT_SYSTEM, BATCH), others=0)
    plan = best.plan
    return [{"tensor": plan.model, "stages": plan.pipeline.stages, "data": plan.data, "best": True, **_row(best)}]


def _row(result: TrainingResult) -> dict[str, Any]:
    """What is kept of a plan: its time and the parts of it, the bytes that a chip sends on each axis."""
    cost = result.cost
    exposed = {name: sum(item.time for item in cost.exposed if item.role is role) for role, name in COMMUNICATION.items()}
    account = dict(cost.account)
    parts = {"recompute": account.pop("recompute"), "bubble": account.pop("bubble"), **exposed}
    passes = account["forward"] + account["backward"]
    sent: dict[str, float] = {}
    for item in cost.traffic:
        for axis, size in item.sent.items():
            sent[axis] = sent.get(axis, 0.0) + item.count * size
    return {
        "time": cost.time,
        "bound": result.certificate.bound,
        "utilisation": cost.utilisation,
        "parts": {"forward and backward": passes, **parts},
        "sent": sent,
        "plan": assignment_text(result.plan.assignment),
        "recomputed": str(result.plan.recompute),
        "microbatch": result.plan.microbatch,
        "zero": int(result.plan.sharded),
    }


def shares(row: Mapping[str, Any]) -> dict[str, float]:
    """The time of a plan by part: collectives that work waits for are parts of their own. Their sum is the time."""
    parts = dict(row["parts"])
    inside = sum(parts[name] for name in COMMUNICATION.values())
    rest = row["time"] - parts["recompute"] - parts["bubble"]
    work = min(parts["forward and backward"], rest)
    # what is exposed is inside the passes, or behind them in the rest
    parts["forward and backward"] = max(work - inside, 0.0)
    parts["rest"] = max(row["time"] - sum(parts.values()), 0.0)
    return parts


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    by = {row["domain"]: row for row in known["domains"]}
    gain = by[8]["time"] / by[256]["time"] - 1
    fitting = [row for row in known["splits"] if row["time"] and not row.get("best")]
    times = [row["time"] for row in fitting]
    return (
        f"GPT3-1T on 1,024 H100: NVLink domains of 256 gain {gain:.0%} over 8, and all 1,024 in one domain nothing more; on A100 "
        f"the splits of tensor, pipeline and data parallelism differ by up to {max(times) / min(times):.1f} x"
    )


def findings(known: Mapping[str, Any]) -> Iterator[Finding]:
    """What the sweeps show."""
    rows = known["domains"]
    by = {row["domain"]: row for row in rows}
    small, middle, large = by[8], by[256], by[CHIPS]
    yield Finding(
        f"**A larger domain helps, and soon buys nothing more** (figure 7): {format_time(small['time'])} with domains of 8, "
        f"{format_time(middle['time'])} with 256, {format_time(large['time'])} with all 1,024 in one.",
        # rings over 1,024 ranks of one domain have more steps than rings over two levels: 0.2 % with ZeRO 3
        all(other["time"] <= one["time"] * 1.003 for one, other in pairwise(rows))
        and middle["time"] < 0.95 * small["time"]
        and middle["time"] < 1.03 * large["time"],
    )
    outside = sum(size for axis, size in middle["sent"].items() if axis != "nvlink") / sum(middle["sent"].values())
    yield Finding(
        f"**Little traffic leaves a domain** (the premise of rail-only networks, arXiv 2307.12169): with domains of 256, "
        f"{outside:.1%} of the bytes that a chip sends.",
        outside < 0.05,
    )
    every = [row for row in known["splits"] if row["time"]]
    fixed, best = [row for row in every if not row.get("best")], next(row for row in every if row.get("best"))
    inside = min(row["time"] for row in fixed if row["tensor"] <= NODE)
    beyond = min(row["time"] for row in fixed if row["tensor"] > NODE)
    yield Finding(
        f"**Tensor parallelism stays in the domain** (figure 8): the best split with at most 8 ranks takes "
        f"{format_time(inside)}, the best with more {format_time(beyond)}.",
        inside < 0.9 * beyond,
    )
    eight = [row for row in fixed if row["tensor"] == NODE]
    bubbles = [row["parts"]["bubble"] for row in eight]
    yield Finding(
        f"**More stages, larger bubbles**: with 8 ranks of tensor parallelism, from {format_time(bubbles[0])} with "
        f"{eight[0]['stages']} stages to {format_time(bubbles[-1])} with {eight[-1]['stages']}.",
        all(one <= other for one, other in pairwise(bubbles)) and bubbles[-1] > bubbles[0],
    )
    yield Finding(
        f"**The search finds the best of them**: left free, it takes {best['tensor']} ranks of tensor parallelism, "
        f"{best['stages']} stages and {best['data']} data-parallel copies, {format_time(best['time'])}.",
        best["time"] <= min(row["time"] for row in fixed) * (1 + 1e-9),
    )


def page(known: Mapping[str, Any]) -> str:
    """The whole page."""
    head = ("domain", "time", "gap", "of the peak", "axes", "recompute", "ZeRO", "bytes a chip sends outside", "links, M USD")
    rows = [
        (
            f"{row['domain']:,}",
            format_time(row["time"]),
            f"{row['time'] / row['bound'] - 1:.2%}",
            f"{row['utilisation']:.1%}",
            row["plan"],
            row["recomputed"],
            str(row["zero"]),
            f"{_outside(row):.1%}",
            f"{row['links'] / 1e6:.1f}",
        )
        for row in known["domains"]
    ]
    other = (
        "tensor",
        "stages",
        "data",
        "time",
        "of the peak",
        "bubble",
        "tensor parallelism",
        "data parallelism",
        "recompute",
        "ZeRO",
    )
    lines = [(f"{row['tensor']}", f"{row['stages']}", f"{row['data']}", *_split_words(row)) for row in known["splits"]]
    parts = {
        "headline": headline(known),
        "domains": "\n".join(table(head, rows)),
        "splits": "\n".join(table(other, lines, 0)),
        "agrees": "\n".join(bullet(item.text) for item in findings(known)),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_suffix(".md"), parts)


def _outside(row: Mapping[str, Any]) -> float:
    """Share of what a chip sends that leaves its domain."""
    return float(sum(size for axis, size in row["sent"].items() if axis != "nvlink") / sum(row["sent"].values()))


def _split_words(row: Mapping[str, Any]) -> tuple[str, ...]:
    if not row["time"]:
        return ("does not fit", *[""] * 6)
    parts = row["parts"]
    return (
        format_time(row["time"]) + (" (free)" if row.get("best") else ""),
        f"{row['utilisation']:.1%}",
        *(format_time(parts[name]) for name in ("bubble", "tensor parallelism", "data parallelism")),
        row["recomputed"],
        str(row["zero"]),
    )


def domains_figure(rows: Sequence[Mapping[str, Any]]) -> Element:
    """The time of an iteration by size of the domain."""
    bars = [_bar(f"{row['domain']:,} GPUs", row) for row in rows]
    return stacked("Time of an iteration by size of the NVLink domain", bars, FILLS, format_time)


def splits_figure(rows: Sequence[Mapping[str, Any]]) -> Element:
    """The time of an iteration by split of the chips."""
    bars = [_bar(_split_name(row), row, bool(row.get("best"))) for row in rows if row["time"]]
    return stacked("Time of an iteration by split of the chips", bars, FILLS, format_time)


def _split_name(row: Mapping[str, Any]) -> str:
    return f"TP {row['tensor']}, PP {row['stages']}, DP {row['data']}" + (", free" if row.get("best") else "")


def _bar(name: str, row: Mapping[str, Any], strong: bool = False) -> ChartBar:
    parts = [BarPart(key, value, f"{name}: {key} {format_time(value)}") for key, value in shares(row).items()]
    return ChartBar(name, tuple(parts), format_time(row["time"]), strong)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{NAME}-domains.svg": svg_file(domains_figure(known["domains"])),
        f"{NAME}-splits.svg": svg_file(splits_figure(known["splits"])),
        f"{NAME}.md": page(known),
    }


STUDY = KeptStudy(NAME, __file__, cases, _files)
