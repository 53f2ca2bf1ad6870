"""Plans and chip mappings chosen together or in two stages: the page and its figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import relative_gap
from halley.report.draw import FAINT, PALETTE, WIDTH, box, canvas, legend, line, ticks, words
from halley.report.markup import svg_file
from halley.units import format_time
from studies import joint
from studies.joint import Cell
from studies.kept import KeptStudy, StudyCase
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "joint", "Sharding and chip mappings chosen together, or one after the other"
CELLS = (
    Cell("gpt3-175b", "cloud", 64),
    Cell("gpt3-175b", "tpu-v4i-like", 64),
    Cell("gpt3-175b", "sn40l", 64),
    Cell("llama3-70b", "sn40l", 64),
    Cell("mixtral-8x7b", "sn40l", 64),
    Cell("mamba2-2.7b", "sn40l", 64),
)
ALIKE = 1e-3
"""Relative difference of times below which this page calls them equal; most gaps are smaller."""

Entry = Mapping[str, Any]


def cases() -> Iterator[StudyCase]:
    """Every cell."""
    return (StudyCase("rows", cell.key, partial(joint.solve, cell)) for cell in CELLS)


def cells(rows: Sequence[Entry]) -> list[list[Entry]]:
    """The rows of each cell."""
    found: dict[tuple[Any, ...], list[Entry]] = {}
    for row in rows:
        found.setdefault((row["model"], row["chip"], row["chips"]), []).append(row)
    return list(found.values())


def at(cell: Sequence[Entry], fused: bool, first: str = "") -> Entry:
    """The plan of a cell with compound kernels or without; ``first``: what the first of two stages knew, "" of the joint plan."""
    return next(row for row in cell if (row["fused"], row["first"]) == (fused, first))


def loss(cell: Sequence[Entry], fused: bool, first: str = "formulas") -> float:
    """By how much two stages are slower than the joint plan [share]; 0 where the joint plan is slower, by less than its gap."""
    staged, whole = at(cell, fused, first)["time"], at(cell, fused)["time"]
    return float(max(staged / whole - 1, 0.0))


def proven(cell: Sequence[Entry], fused: bool, first: str = "formulas") -> float:
    """By how much two stages are slower under any mappings of their second stage [share]: by its bound."""
    return float(max(at(cell, fused, first)["bound"] / at(cell, fused)["time"] - 1, 0.0))


def gain(cell: Sequence[Entry]) -> float:
    """Speed-up by compound kernels, both plans chosen jointly."""
    return float(at(cell, False)["time"] / at(cell, True)["time"])


def decisions(row: Entry) -> str:
    """The decisions of the first stage, in words."""
    chunks = f" x {row['chunks']} chunks" if row["chunks"] > 1 else ""
    return f"TP {row['model_ranks']}, PP {row['stages']}{chunks}, DP {row['data']}, microbatch {row['microbatch']}"


def gap(row: Entry) -> float:
    """Of the certificate [share]."""
    return relative_gap(row["time"], row["bound"])


def same(one: Entry, other: Entry) -> bool:
    """Whether two plans have the same decisions of the first stage."""
    return all(one[name] == other[name] for name in ("axes", "microbatch", "chunks"))


def percent(share: float) -> str:
    """A loss in words."""
    return "equal" if share < ALIKE else f"{share:.1%}"


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    found = cells(known["rows"])
    worst = max(found, key=lambda cell: loss(cell, True))
    exact = max(found, key=lambda cell: loss(cell, True, "exact"))
    other = sum(not same(at(cell, False), at(cell, True)) for cell in found)
    return (
        f"compound kernels speed up training by {min(map(gain, found)):.2f} to {max(map(gain, found)):.2f} x; choosing the "
        f"sharding before the mappings costs up to {loss(worst, True):.1%} ({_name(worst)}), and up to "
        f"{loss(exact, True, 'exact'):.1%} if the first stage knows the exact times of kernels one by one; compound kernels "
        f"change the best sharding, pipeline or microbatch in {other} of {len(found)} cells"
    )


def findings(found: Sequence[Sequence[Entry]]) -> Iterator[Finding]:
    """What the rows say."""
    best, least = max(found, key=gain), min(found, key=gain)
    yield Finding(
        f"**Compound kernels are never a loss.** They gain {gain(least):.2f} x ({_name(least)}) to {gain(best):.2f} x "
        f"({_name(best)}) when both plans are chosen jointly: the plan may run every op in a kernel of its own.",
        all(gain(cell) > 1 - max(gap(at(cell, True)), ALIKE) for cell in found),
    )
    wrong = [cell for cell in found if loss(cell, True) >= ALIKE]
    worst = max(found, key=lambda cell: loss(cell, True))
    yield Finding(
        f"**Two stages are wrong in {len(wrong)} of {len(found)} cells with compound kernels**, by up to {loss(worst, True):.1%} "
        f"({_name(worst)}; {proven(worst, True):.1%} are proven, for any mappings of the second stage): formulas choose "
        f"{decisions(at(worst, True, 'formulas'))}; the best is {decisions(at(worst, True))}.",
        not wrong or proven(worst, True) > 0,
    )
    exact = max(found, key=lambda cell: loss(cell, True, "exact"))
    count = sum(loss(cell, True, "exact") >= ALIKE for cell in found)
    yield Finding(
        f"**Exact times in the first stage do not repair it everywhere.** With the exact times of kernels one by one, two "
        f"stages are still wrong in {count} of {len(found)} cells, by up to {loss(exact, True, 'exact'):.1%} ({_name(exact)}). "
        "On the SN40L, whose kernels are not searched, both first stages are the same."
        if count
        else "**Exact times in the first stage repair it in these cells.** A first stage that knows the exact times of kernels "
        "one by one chooses a plan that is as fast as the joint one after fusion.",
        True,
    )
    moved = [cell for cell in found if not same(at(cell, False), at(cell, True))]
    yield Finding(
        "**Compound kernels change the best sharding** in "
        + "; ".join(f"{_name(cell)} (from {decisions(at(cell, False))} to {decisions(at(cell, True))})" for cell in moved)
        + "."
        if moved
        else "**Compound kernels change the best sharding in no cell**: roles of axes, pipeline and microbatch stay.",
        True,
    )


def _name(cell: Sequence[Entry]) -> str:
    return f"{cell[0]['model']} on {cell[0]['chip']}"


def _times(found: Sequence[Sequence[Entry]]) -> list[str]:
    head = ("model", "chips", "kernels", "two stages", "exact first stage", "jointly", "two stages lose", "exact loses", "gaps")
    lines = []
    for cell in found:
        for fused in (False, True):
            joined, staged, exact = at(cell, fused), at(cell, fused, "formulas"), at(cell, fused, "exact")
            lines.append(
                (
                    cell[0]["model"],
                    f"{cell[0]['chips']} x {cell[0]['chip']}",
                    "compound" if fused else "one by one",
                    format_time(staged["time"]),
                    format_time(exact["time"]),
                    format_time(joined["time"]),
                    percent(loss(cell, fused)),
                    percent(loss(cell, fused, "exact")),
                    f"{gap(staged):.2%}, {gap(exact):.2%}, {gap(joined):.2%}",
                )
            )
    return table(head, lines, 3)


def _plans(found: Sequence[Sequence[Entry]]) -> list[str]:
    head = ("model", "chip", "plan", "decisions of the first stage", "recomputation", "ZeRO", "compound kernels in the plan")
    lines = []
    for cell in found:
        named = (
            ("formulas choose", at(cell, True, "formulas")),
            ("best, one by one", at(cell, False)),
            ("best, compound", at(cell, True)),
        )
        for name, row in named:
            count = f"{row['compound']} of {row['in_plan']}" if row["in_plan"] else "partitions" if row["fused"] else "none"
            lines.append((cell[0]["model"], cell[0]["chip"], name, decisions(row), row["recompute"], str(row["zero"]), count))
    return table(head, lines, 5)


def page(known: Mapping[str, Any]) -> str:
    """The whole page."""
    found = cells(known["rows"])
    parts = {
        "headline": headline(known),
        "times": "\n".join(_times(found)),
        "plans": "\n".join(_plans(found)),
        "findings": "\n".join(bullet(item.text) for item in findings(found)),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_name("joint.md"), parts)


BARS = (
    (False, "formulas", "one by one, two stages", "#b3b3b3"),
    (False, "", "one by one, jointly", PALETTE[5]),
    (True, "formulas", "compound kernels, two stages", PALETTE[1]),
    (True, "", "compound kernels, jointly", PALETTE[0]),
)


def figure(rows: Sequence[Entry]) -> Element:
    """For each cell the speed of the four plans, relative to the plan of two stages without compound kernels."""
    found = cells(rows)
    left, top, high, gap_between = 190.0, 40.0, 17.0, 16.0
    bottom = top + len(found) * (4 * high + gap_between)
    speeds = [
        [at(cell, False, "formulas")["time"] / at(cell, fused, first)["time"] for fused, first, *_ in BARS] for cell in found
    ]
    largest = max(map(max, speeds))
    unit = (WIDTH - left - 330) / largest
    content, _ = legend(((name, fill) for *_, name, fill in BARS), left, 4, WIDTH - left)
    for value in ticks(largest):
        content += [line(left + unit * value, top - 6, left + unit * value, bottom)]
        content.append(words(left + unit * value, bottom + 16, f"{value:g} x", "middle", FAINT, 12))
    for place, (cell, each) in enumerate(zip(found, speeds, strict=True)):
        y = top + place * (4 * high + gap_between)
        content.append(words(left - 10, y + 2 * high, cell[0]["model"], "end", font_weight="bold"))
        content.append(words(left - 10, y + 3 * high, f"{cell[0]['chips']} x {cell[0]['chip']}", "end", FAINT))
        for number, ((fused, first, name, fill), speed) in enumerate(zip(BARS, each, strict=True)):
            row, at_y = at(cell, fused, first), y + number * high
            content.append(box(left, at_y, unit * speed, high - 2, fill, f"{name}: {format_time(row['time'])}, {decisions(row)}"))
            note = f"{speed:.2f} x, {decisions(row)}"
            content.append(words(left + unit * speed + 6, at_y + high - 5, note, fill=FAINT, size=11))
    title = "Speed of training, relative to two stages without compound kernels"
    content.append(words(left, bottom + 36, title, fill=FAINT, size=12))
    return canvas(bottom + 46, title, content)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {f"{NAME}.svg": svg_file(figure(known["rows"])), f"{NAME}.md": page(known)}


STUDY = KeptStudy(NAME, joint.__file__, cases, _files)
