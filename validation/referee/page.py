"""docs/referee.md and its figure, from the rows that are kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from validation.referee.problems import CHIPS, PROBLEMS
from validation.referee.store import ROOT, Row
from validation.table import markdown

PAGE = ROOT / "docs" / "referee.md"
FIGURE = ROOT / "docs" / "figures" / "referee.svg"

MEDIAN, WORST, LOST = 0.05, 0.15, 0.03
"""What the law allows: the median and the largest deviation on each chip, and by how much the fastest of ten plans may
beat a winner."""

CAUSES = {
    (
        "b200",
        "gemm-4096",
    ): "the formula averages over tiles, of which the last is smaller; one by one, it gives 132.8 us for them",
    ("h100", "gemm-layernorm"): "the faster plan leaves SMs idle in a group of several stages, which the search leaves out",
    ("b200", "gemm-512"): "the loop has eight iterations and four buffers, and the fills of the first ones wait for each other",
    ("a100", "prefill-1024"): "not known",
}
"""Why the fastest of ten plans beats a winner by more than `LOST`, for all winners that it does."""

WIDTH, LEFT, RIGHT, TOP, LINE = 720, 110, 20, 26, 20
LOW, HIGH = 0.7, 1.5
"""The axis of the figure; marks beyond are drawn at its ends."""


def deviation(row: Row) -> float:
    """How far the two times are apart, in both directions alike: the longer over the shorter, less one."""
    return max(row.ratio, 1 / row.ratio) - 1


def table(rows: Sequence[Row], groups: Iterable[tuple[str, Sequence[Row]]], head: str) -> str:
    """Per group: how many, the median deviation, the extremes of the ratio, and by how much others beat winners."""
    lines = []
    for name, group in (("all", rows), *groups):
        found = [row for row in group if row.told]
        if not found:
            continue
        ratios, apart = [row.ratio for row in found], [deviation(row) for row in found]
        raced = [row.lost for row in found if row.plans]
        lines.append(
            (
                name,
                str(len(found)),
                f"{100 * median(apart):.1f} %",
                f"{min(ratios):.2f}",
                f"{max(ratios):.2f}",
                f"{sum(each <= WORST for each in apart)}",
                f"{sum(each <= LOST for each in raced)} of {len(raced)}",
                f"{100 * max(raced, default=0):.1f} %",
            )
        )
    columns = (head, "problems", "median deviation", "lowest ratio", "highest ratio", "within 15 %")
    return markdown((*columns, "winner within 3 % of the fastest of ten plans", "largest excess"), lines)


def slower(rows: Iterable[Row]) -> list[Row]:
    """The winners that the fastest of ten plans beats by more than `LOST`, the worst first."""
    return sorted((row for row in rows if row.told and row.lost > LOST), key=lambda row: row.lost, reverse=True)


def by_chip(rows: Sequence[Row]) -> list[tuple[str, Sequence[Row]]]:
    return [(chip, [row for row in rows if row.chip == chip]) for chip in CHIPS]


def by_group(rows: Sequence[Row]) -> list[tuple[str, Sequence[Row]]]:
    return [(group, [row for row in rows if row.group == group]) for group in dict.fromkeys(p.group for p in PROBLEMS)]


def page(rows: Sequence[Row]) -> str:
    """The whole page."""
    told = sorted((row for row in rows if row.told), key=deviation, reverse=True)
    absent = [row for row in rows if not row.told]
    cut = sum(1 for row in told if row.iterations)
    worst = [
        (row.chip, row.problem, f"{row.part_us:.2f}", f"{row.simulated_us:.2f}", f"{row.ratio:.2f}", f"{row.tasks:,}")
        for row in told[:15]
    ]
    behind = [(*row.key, f"{100 * row.lost:.1f} %", CAUSES.get(row.key, "not known")) for row in slower(told)]
    without = [(row.chip, row.problem, row.reason) for row in absent]
    text = TEXT.read_text(encoding="utf-8")
    made = {
        "judged": f"{len(rows):,} of {len(PROBLEMS) * len(CHIPS):,}",
        "problems": str(len(PROBLEMS)),
        "chips": str(len(CHIPS)),
        "winners": str(len(told)),
        "cut": str(cut),
        "by chip": table(told, by_chip(told), "chip"),
        "by group": table(told, by_group(told), "problems of"),
        "worst": markdown(("chip", "problem", "formula [us]", "simulated [us]", "ratio", "tasks"), worst),
        "slower": markdown(("chip", "problem", "excess", "cause"), behind) if behind else "None.",
        "absent": markdown(("chip", "problem", "reason"), without) if without else "None.",
    }
    for name, value in made.items():
        text = text.replace(f"[[{name}]]", value)
    return text


TEXT = Path(__file__).with_name("page.md")


def write(rows: Sequence[Row]) -> None:
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(rows), encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")


def figure(rows: Sequence[Row]) -> str:
    """A line per chip, a mark per problem, on a logarithmic axis of simulated over formula."""
    lines = [(chip, told) for chip, own in by_chip(rows) if (told := [row for row in own if row.told])]
    height = TOP + LINE * len(lines) + 44

    def across(ratio: float) -> float:
        share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    base = TOP + LINE * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<rect x="{across(1 / (1 + WORST)):.1f}" y="{TOP - 8}" width="{across(1 + WORST) - across(1 / (1 + WORST)):.1f}" '
        f'height="{base - TOP + 8}" fill="#e8e8e8"/>',
    ]
    for tick in (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5):
        parts.append(f'<path d="M{across(tick):.1f} {base}v5" stroke="#444"/>')
        parts.append(f'<text x="{across(tick):.1f}" y="{base + 18}" text-anchor="middle" fill="#444">{tick:g}</text>')
    for number, (chip, own) in enumerate(lines):
        y = TOP + LINE * number + 4
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end" fill="#222">{chip}</text>')
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts += [f'<circle cx="{across(row.ratio):.1f}" cy="{y}" r="3.5" fill="#3b6ea5" fill-opacity="0.6"/>' for row in own]
    title = f"simulated time over time by formula, {sum(len(own) for _, own in lines)} winners; shaded: within {WORST:.0%}"
    parts.append(f'<path d="M{LEFT} {base}H{WIDTH - RIGHT}" stroke="#444"/>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{height - 8}" text-anchor="middle" fill="#222">{title}</text>')
    return "\n".join([*parts, "</svg>", ""])


def broken(rows: Sequence[Row]) -> list[str]:
    """Where the law does not hold."""
    found = []
    for chip, own in by_chip([row for row in rows if row.told]):
        if not own:
            found.append(f"{chip}: expected winners; got none")
            continue
        apart = [deviation(row) for row in own]
        if median(apart) > MEDIAN:
            found.append(f"{chip}: expected a median deviation of at most {MEDIAN:.0%}; got {median(apart):.1%}")
        found += [
            f"{chip}, {row.problem}: expected a deviation of at most {WORST:.0%}; got a ratio of {row.ratio:.2f}"
            for row in own
            if deviation(row) > WORST
        ]
        found += [
            f"{chip}, {row.problem}: expected the winner within {LOST:.0%} of the fastest of ten plans; got {row.lost:.1%}"
            for row in slower(own)
        ]
    return found
