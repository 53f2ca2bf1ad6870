"""``python -m validation.simulation``: times of random mappings by formula and by simulation, and a figure of the deviations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from validation.simulation.draw import Drawn, drawn
from validation.table import markdown

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "simulation.svg"
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 720, 300, 56, 28, 48, 24
LOW, HIGH, STEP = -60, 60, 4  # per cent; what lies beyond counts in the last bar


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1000, help="mappings to draw (1000)")
    count = parser.parse_args().count
    found = list(drawn(count))
    print(table(found))
    worst = sorted(found, key=lambda one: -abs(one.deviation))[:5]
    for one in worst:
        print(f"{100 * one.deviation:+.1f} %  {one.source}")
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure([one.deviation for one in found]), encoding="utf-8")


def table(found: Sequence[Drawn]) -> str:
    """Deviations of the formula's time from the simulated one as Markdown."""
    groups = {"all": list(found)} | {chip: [one for one in found if one.chip.name == chip] for chip in ("edge", "cloud")}
    groups |= {kind: [one for one in found if one.source.endswith(kind)] for kind in ("best", "unfused")}
    head = ("mappings", "count", "mean", "median", "mean of size", "lowest", "highest", "within 5 %", "within 25 %")
    rows = [(name, *statistics([one.deviation for one in group])) for name, group in groups.items() if group]
    return markdown(head, rows)


def statistics(deviations: Sequence[float]) -> tuple[str, ...]:
    sizes = [abs(each) for each in deviations]

    def share(limit: float) -> str:
        return f"{100 * sum(size <= limit for size in sizes) / len(sizes):.0f} %"

    figures = (fmean(deviations), median(deviations), fmean(sizes), min(deviations), max(deviations))
    return (str(len(sizes)), *(f"{100 * each:+.1f} %" for each in figures), share(0.05), share(0.25))


def figure(deviations: Sequence[float]) -> str:
    """A histogram as SVG."""
    bars = [0] * ((HIGH - LOW) // STEP)
    for each in deviations:
        bars[min(max(int((100 * each - LOW) // STEP), 0), len(bars) - 1)] += 1
    across, up = (WIDTH - LEFT - RIGHT) / len(bars), (HEIGHT - TOP - BOTTOM) / max(bars)
    base = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    parts.append(f'<text x="{LEFT}" y="14" text-anchor="middle" fill="#444">mappings</text>')
    spacing = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if max(bars) <= 5 * step or step == 1000)
    for tick in range(spacing, max(bars) + 1, spacing):
        y = base - tick * up
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#444">{tick}</text>')
    for index, count in enumerate(bars):
        if count:
            x, y = LEFT + index * across + 1, base - count * up
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{across - 2:.1f}" height="{base - y:.1f}" fill="#3b6ea5"/>')
    parts.append(f'<path d="M{LEFT} {base}H{WIDTH - RIGHT}" stroke="#444"/>')
    for percent in range(LOW, HIGH + 1, 20):
        x = LEFT + (percent - LOW) / STEP * across
        parts.append(f'<path d="M{x:.1f} {base}v5" stroke="#444"/>')
        label = f"{percent:+d} %" if percent else "0"
        parts.append(f'<text x="{x:.1f}" y="{base + 18}" text-anchor="middle" fill="#444">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = f"time by formula over time by simulation, less one; {len(deviations)} mappings, each bar {STEP} % wide"
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#222">{title}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
