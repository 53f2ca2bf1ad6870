"""The rows, in docs/space-loss.csv, and their page, docs/space-loss.md."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import mean

from validation.table import markdown

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "space-loss.csv"
PAGE = ROOT / "docs" / "space-loss.md"

RELATIVE_GAP_CLOSED = 1e-9
"""Up to this gap a winner counts as proven optimal."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem: the ``value`` of the search's mapping ([s] or [J], by the ``objective``) with the ``gap`` of its certificate,
    and the value of the best one ``climbed`` to. ``proposed``: number of edited mappings, ``legal``: of those that differ, how
    many are legal and fit; ``minutes`` of climbing. ``reason``: why there is nothing."""

    chip: str
    problem: str
    objective: str
    value: float = 0.0
    gap: float = 0.0
    climbed: float = 0.0
    proposed: int = 0
    legal: int = 0
    minutes: float = 0.0
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.chip, self.problem, self.objective

    @property
    def proven(self) -> bool:
        """Whether nothing in the declared space is better than the search's mapping."""
        return not self.reason and self.gap <= RELATIVE_GAP_CLOSED

    @property
    def loss(self) -> float:
        """By how much the search's mapping is worse than the climb's best."""
        return self.value / self.climbed - 1


def load(path: Path = FILE) -> list[Row]:
    """The rows; none where there is no file."""
    if not path.exists():
        return []
    kinds = {"str": str, "float": float, "int": int}
    types = {each.name: kinds[str(each.type)] for each in fields(Row)}
    with path.open(encoding="utf-8", newline="") as file:
        return [Row(**{name: types[name](text) for name, text in row.items()}) for row in csv.DictReader(file)]


def save(rows: Iterable[Row], path: Path = FILE) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def write(rows: Sequence[Row], path: Path = PAGE) -> None:
    """The page."""
    found = [row for row in rows if not row.reason]
    losses = [row.loss for row in found if row.proven]
    minutes = sorted({row.minutes for row in found})
    lines = [
        (
            row.chip,
            row.problem,
            row.objective,
            f"{row.value:.4g} {'s' if row.objective == 'time' else 'J'}",
            f"{row.gap:.0%}",
            f"{row.loss:.2%}",
        )
        for row in sorted(found, key=lambda row: -row.loss)
    ]
    table = markdown(("chip", "problem", "objective", "search", "gap", "loss"), lines)
    spent = " to ".join(f"{each:.2g}" for each in dict.fromkeys((minutes[0], minutes[-1]))) if minutes else "0"
    summary = (
        f"{len(found)} problems, {spent} minutes of climbing each, {sum(row.proposed for row in found):,} edited mappings.\n"
        f"Of the {len(losses)} whose winner is proven optimal in its space, {sum(loss <= 0.01 for loss in losses)} lose at most "
        f"1 %; the mean is {mean(losses or [0.0]):.2%}.\nWhere the gap is not 0, the search ran out of time, which loses, too."
    )
    path.write_text(TEXT.format(summary=summary, table=table), encoding="utf-8")


TEXT = """# Loss of the space

The search proves that no mapping of its declared space is better than its answer. The mapping language says more than that space:
the certificate lists what is left out. This page measures what that costs. Each winner of the search is edited at random, in the
whole language: loops, splits, Holds, buffers, collectives and compositions are added, dropped, moved and resized. Legal mappings
that fit are costed by the formulas, and simulated annealing with restarts looks for a better one. The *loss* is the winner's
value over the best one found, less one. It is a lower bound: a longer climb may find more.

{summary}

{table}

`python -m validation.space_loss --minutes 60` measures the list again. With `--only WORD` it prints the mappings.
"""
