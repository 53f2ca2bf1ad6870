"""A study: its cases, its page, and how both are brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from benchmarks.measure import machine

from halley.report.draw import colours
from halley.report.markup import svg_file
from halley.units import format_time
from studies import tables
from studies.cases import Case, Row, solve
from studies.figure import ratio_plot
from studies.store import DOCS, fingerprint, load, replace_text, save, source

WIDTH = 120
"""Characters in a line of a page."""

Claims = Mapping[str, tuple[tuple[float, ...], str]]
"""Published values by group of cases, and the claim in words."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence of the page, and whether the rows bear it out; a test asks, so that no sentence outlives its numbers."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Account:
    """What a page says, from its rows: the result in a line, text before the figures, what agrees with the claim and what does
    not, text after them."""

    headline: str
    before: str
    agrees: tuple[Finding, ...]
    differs: tuple[Finding, ...]
    after: str


@dataclass(frozen=True, slots=True)
class Study:
    """``cases`` makes all of them, ``quick`` says which a test runs, ``account`` words the rows.

    ``plots``: for each figure by name its caption and the groups that it shows.
    """

    name: str
    title: str
    cases: Callable[[], list[Case]]
    quick: Callable[[Case], bool]
    account: Callable[[Sequence[Row]], Account]
    plots: Mapping[str, tuple[str, tuple[str, ...]]]
    claims: Claims

    def run(self, limit: float, again: bool, say: Callable[[str], None]) -> None:
        """Search what is not known for the present source, a case at a time, each search for at most ``limit`` seconds; then
        write figures and page. It may be stopped at any time: rows are kept as they are found."""
        code = source()
        wanted = {(case.key, fingerprint(case, code)): case for case in self.cases()}
        known = {} if again else {(row.key, row.source): row for row in load(self.name)[0]}
        for position, (mark, case) in enumerate(wanted.items(), 1):
            if mark not in known:
                known[mark] = solve(case, limit, mark[1])
                save(self.name, [known[other] for other in wanted if other in known], machine())
            say(f"{self.name} {position:3d}/{len(wanted)} {told(known[mark])}")
        save(self.name, [known[mark] for mark in wanted], machine())
        self.write()

    def write(self) -> None:
        """Figures and page from the rows that are kept."""
        rows, searched_on = load(self.name)
        for name, svg in self.figures(rows).items():
            replace_text(DOCS / f"{name}.svg", svg)
        replace_text(DOCS / f"{self.name}.md", self.page(rows, searched_on))

    def figures(self, rows: Sequence[Row]) -> dict[str, str]:
        """The text of every SVG by the name of its file."""
        fills = colours(row.series for row in rows)
        made = {}
        for name, (caption, groups) in self.plots.items():
            shown = tables.blocks([row for row in rows if row.group in groups], self.claims)
            made[name] = svg_file(ratio_plot(caption, tables.PANELS, shown, fills))
        return made

    def page(self, rows: Sequence[Row], searched_on: str) -> str:
        """The whole page."""
        said = self.account(rows)
        lines = [f"# {self.title}", "", f"Written by `python -m studies {self.name}`; do not edit.", ""]
        lines += [said.before, ""]
        for name, (caption, _) in self.plots.items():
            lines += [f"![{caption}]({name}.svg)", "", f"*{caption}*", ""]
        for title, findings in (("What agrees", said.agrees), ("What does not, and why", said.differs)):
            lines += [f"## {title}", "", *(bullet(finding.text) for finding in findings), ""]
        lines += [said.after, "", *_everything(self.name, rows, searched_on)]
        return "\n".join(lines).rstrip() + "\n"


def bullet(text: str) -> str:
    """A list item, wrapped; a number stays on the line of its unit."""
    together = text.replace(" x", "\N{NO-BREAK SPACE}x")
    lines = fill(together, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def _everything(name: str, rows: Sequence[Row], searched_on: str) -> list[str]:
    """All numbers, group by group."""
    proven = sum(row.gap == 0 for row in rows)
    seconds = sum(row.seconds for row in rows)
    lines = [
        "## All numbers",
        "",
        "The first table of each operation gives the time of each strategy relative to the best plan. *None*: no such mapping of",
        "the search space fits.",
        "",
        f"{len(rows)} cases; in {proven} of them every search is proven optimal (gap 0). Times come from the model, not from",
        f"hardware. The searches took {seconds:,.0f} s, one after the other, on: {searched_on}. In full precision:",
        f"[CSV]({name}.csv), [JSON]({name}.json).",
        "",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        here = [row for row in rows if row.group == group]
        lines += [f"### {group}", "", *tables.times(here), "", *tables.costs(here), ""]
        lines += [line for row in here if row.reason for line in (f"{row.name} on {row.series}: {row.reason}.", "")]
    return lines


def told(row: Row) -> str:
    """A row in one line, as progress."""
    name = ", ".join(row.key)
    if row.best is None:
        return f"{name:60s} none found"
    ratio = tables.times_as(row.ratio("unfused"))
    return f"{name:60s} {format_time(row.best.time):>10s}  unfused {ratio:>9s}  gap {row.gap:.2%}  {row.seconds:.1f} s"
