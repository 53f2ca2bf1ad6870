"""The tables of a study's page, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from halley.units import format_bytes, format_energy, format_time
from studies.cases import Figures, Row
from studies.figure import Block, Dot, Line, Panel
from studies.store import WAYS

WORDS = {
    "op_by_op": "op by op",
    "unfused": "unfused",
    "local": "fused, local",
    "silent": "no collectives",
    "best": "best",
}
"""The mapping strategies, as the pages call them."""

MEANING = """\
- **op by op**: each elementary op is a kernel of its own, and each result is written to outer memory. The other strategies divide
  a kernel only if its workload allows it. With other workloads, op by op can be faster than the best;
- **unfused**: each kernel (a GEMM, a whole softmax, a whole norm) runs separately, with its result in outer memory. Collectives
  inside a kernel are allowed;
- **fused, local**: all kernels are fused, and no reduction is split over clusters, so no collective is needed;
- **no collectives**: any partition into fused groups and any split, but no collective (the chip's links are too slow for any);
- **best**: any partition into fused groups, any split, and the collectives that it needs.
"""

PANELS = (
    Panel("unfused, over best", "op by op, over best"),
    Panel("best without collectives, over best", "all fused without split reductions, over best"),
)
KINDS = (("unfused", "op_by_op"), ("silent", "local"))
"""The strategies that the panels of the figure show: as filled dots, as hollow ones."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """A table whose first ``left`` columns are words."""
    made = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "---:|" * (len(head) - left)]
    return made + ["| " + " | ".join(row) + " |" for row in rows]


def times(rows: Iterable[Row]) -> list[str]:
    """Time of the best plan, and the times of the other strategies relative to it."""
    head = ("case", "extents", "chip", "groups of the best", "best", *(WORDS[way] for way in WAYS[:-1]))
    lines = [
        (
            *(row.name, row.extents, row.series, row.partition if row.best else "none found", _shown(row.best, "time")),
            *(times_as(row.ratio(way)) for way in WAYS[:-1]),
        )
        for row in rows
    ]
    return table(head, lines, 4)


def costs(rows: Iterable[Row]) -> list[str]:
    """Energy and outer traffic of the fastest mappings of three kinds."""
    kinds = ("op_by_op", "unfused", "best")
    head = ("case", "chip", *(f"energy: {WORDS[k]}" for k in kinds), *(f"traffic: {WORDS[k]}" for k in kinds))
    lines = [
        (row.name, row.series, *(_shown(getattr(row, k), unit) for unit in ("energy", "traffic") for k in kinds)) for row in rows
    ]
    return table(head, lines, 2)


def chosen(rows: Iterable[Row]) -> list[str]:
    """The collectives of the best plans, and the relative time of the best plan without any."""
    head = ("case", "chip", "collectives of the best plan", "enclosing loops", "without any")
    lines = []
    for row in rows:
        if row.exchanges:
            shown = "<br>".join(map(str, row.exchanges))
            depths = sorted({exchange.loops for exchange in row.exchanges})
            lines.append((row.name, row.series, shown, ", ".join(map(str, depths)), times_as(row.ratio("silent"))))
    return table(head, lines, 3) if lines else ["No best plan has a collective."]


def ratios(rows: Iterable[Row], way: str, *groups: str, series: str = "") -> list[float]:
    """Time of a strategy over that of the best, of the rows that have both; of all groups and chips unless some are named."""
    chosen = (row for row in rows if (not groups or row.group in groups) and (not series or row.series == series))
    return [ratio for row in chosen if (ratio := row.ratio(way))]


def spread(values: Sequence[float]) -> str:
    """From the least to the largest.

    >>> spread([1.5, 1.04]), spread([1.041, 1.042]), spread([])
    ('1.04 x to 1.50 x', '1.04 x', '')
    """
    return " to ".join(dict.fromkeys(times_as(limit(values)) for limit in (min, max))) if values else ""


def times_as(ratio: float | None) -> str:
    """A ratio in words.

    >>> times_as(1.4159), times_as(29.03), times_as(None)
    ('1.42 x', '29.0 x', 'none')
    """
    if ratio is None:
        return "none"
    return f"{ratio:.2f} x" if ratio < 10 else f"{ratio:.1f} x"


def _shown(item: Figures | None, name: str) -> str:
    shown: dict[str, Callable[[float], str]] = {"time": format_time, "energy": format_energy, "traffic": format_bytes}
    return shown[name](getattr(item, name)) if item else "none"


def blocks(rows: Sequence[Row], claims: Mapping[str, tuple[tuple[float, ...], str]]) -> list[Block]:
    """The rows as the figure has them: a block per group, a line per name."""
    made = []
    for group in dict.fromkeys(row.group for row in rows):
        here = [row for row in rows if row.group == group]
        names = dict.fromkeys(row.name for row in here)
        lines = tuple(Line(name, _panels([row for row in here if row.name == name])) for name in names)
        made.append(Block(group, lines, *claims.get(group, ())))
    return made


def _panels(rows: Sequence[Row]) -> tuple[tuple[Dot, ...], ...]:
    return tuple(
        tuple(
            Dot(row.series, ratio, hollow, f"{row.name} on {row.series}\n{WORDS[way]}: {times_as(ratio)} of best")
            for row in rows
            for way, hollow in ((kinds[0], False), (kinds[1], True))
            if (ratio := row.ratio(way))
        )
        for kinds in KINDS
    )
