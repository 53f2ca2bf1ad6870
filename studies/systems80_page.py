"""The study of the 80 systems: runs its cases side by side, and writes its page beside the paper's observations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import machine

from halley.report.markup import svg_file
from studies.store import DOCS, replace_text
from studies.systems80 import NAME, TITLES, WORKLOADS, Case, Row, cases, load, save, solve, source
from studies.systems80_figure import breakdown, heat_map
from studies.tables import table

TITLE = "DFModel's 80 systems"
SIMPLE = ("torus-2d", "torus-3d", "dgx-1", "dgx-2")
QUICK = ("h100/dgx-1/hbm3/nvlink-4", "tpu-v4/torus-3d/ddr4/pcie-4")

Which = Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class Observation:
    """A ratio of means over systems: those of ``above`` over those of ``below``. ``paper``: by measure, as published."""

    workload: str
    text: str
    above: Which
    below: Which
    paper: Mapping[str, float]

    def ratio(self, rows: Sequence[Row], measure: str) -> float:
        here = [row for row in rows if row.workload == self.workload]
        above, below = ([getattr(row, measure) for row in here if which(row)] for which in (self.above, self.below))
        return sum(above) / len(above) / (sum(below) / len(below))


def _is(place: int, *names: str) -> Which:
    return lambda row: row.words[place] in names


def _both(first: Which, second: Which) -> Which:
    return lambda row: first(row) and second(row)


_chip, _topology, _memory, _link = (lambda *names, place=place: _is(place, *names) for place in range(4))
_GPUS, _OTHERS = ("h100", "tpu-v4"), ("h100", "tpu-v4", "sn30")


def _measures(utilisation: float, price: float | None = None, energy: float | None = None) -> dict[str, float]:
    given = {"utilisation": utilisation, "per_price": price, "per_energy": energy}
    return {name: value for name, value in given.items() if value is not None}


def _exchanges(workload: str, fast: Mapping[str, float], dragonfly: Mapping[str, float]) -> tuple[Observation, ...]:
    return (
        Observation(workload, "NVLink over PCIe", _link("nvlink-4"), _link("pcie-4"), fast),
        Observation(workload, "dragonfly over simple topologies", _topology("dragonfly"), _topology(*SIMPLE), dragonfly),
    )


OBSERVATIONS = (
    Observation("llm", "RDUs over GPUs and TPUs", _chip("sn30"), _chip(*_GPUS), _measures(1.52, 1.59, 1.6)),
    Observation(
        "llm", "RDUs: HBM over DDR", _both(_chip("sn30"), _memory("hbm3")), _both(_chip("sn30"), _memory("ddr4")), _measures(1.0)
    ),
    Observation(
        "llm",
        "GPUs and TPUs: HBM over DDR",
        _both(_chip(*_GPUS), _memory("hbm3")),
        _both(_chip(*_GPUS), _memory("ddr4")),
        _measures(1.66),
    ),
    Observation(
        "llm",
        "NVLink: dragonfly over simple topologies",
        _both(_link("nvlink-4"), _topology("dragonfly")),
        _both(_link("nvlink-4"), _topology(*SIMPLE)),
        _measures(1.0),
    ),
    Observation(
        "llm",
        "PCIe: dragonfly over simple topologies",
        _both(_link("pcie-4"), _topology("dragonfly")),
        _both(_link("pcie-4"), _topology(*SIMPLE)),
        _measures(1.21, 0.51, 0.91),
    ),
    Observation(
        "llm",
        "WSEs: HBM over DDR",
        _both(_chip("wse-2"), _memory("hbm3")),
        _both(_chip("wse-2"), _memory("ddr4")),
        _measures(1.0),
    ),
    Observation(
        "llm",
        "WSEs: NVLink over PCIe",
        _both(_chip("wse-2"), _link("nvlink-4")),
        _both(_chip("wse-2"), _link("pcie-4")),
        _measures(5.15),
    ),
    Observation("llm", "WSEs over the others", _chip("wse-2"), _chip(*_OTHERS), {"per_price": 0.06, "per_energy": 0.2}),
    *_exchanges("dlrm", _measures(6.3, 4.31, 6.04), _measures(2.51, 1.66, 2.13)),
    Observation("dlrm", "TPUs over the others", _chip("tpu-v4"), _chip("h100", "sn30", "wse-2"), _measures(4.43, 9.45, 5.24)),
    Observation("dlrm", "WSEs over the others", _chip("wse-2"), _chip(*_OTHERS), _measures(0.1, 0.01, 0.04)),
    Observation("hpl", "WSEs over the others", _chip("wse-2"), _chip(*_OTHERS), {"per_price": 0.09, "per_energy": 0.33}),
    *_exchanges("fft", _measures(7.02, 4.81, 6.73), _measures(3.22, 2.13, 2.74)),
    Observation("fft", "TPUs over the others", _chip("tpu-v4"), _chip("h100", "sn30", "wse-2"), _measures(5.11, 10.92, 6.06)),
    Observation("fft", "WSEs over the others", _chip("wse-2"), _chip(*_OTHERS), _measures(0.09, 0.01, 0.03)),
)
"""DFModel, arXiv 2412.16432, sections VI-C 1 to 4."""


def run(again: bool, say: Callable[[str], None]) -> None:
    """Plan what is not known for the present source, two at a time; then write figures and page. It may be stopped at any time:
    rows are kept as they are found."""
    mark, wanted = source(), cases()
    known = {} if again else {row.key: row for row in load()[0] if row.source == mark}
    open_ = [case for case in wanted if case.key not in known]
    if open_:
        with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
            waiting = [pool.submit(solve, case, mark) for case in open_]
            try:
                for done in as_completed(waiting):
                    row = done.result()
                    known[row.key] = row
                    say(f"{NAME} {len(known):3d}/{len(wanted)} {told(row)}")
                    save([known[case.key] for case in wanted if case.key in known], machine())
            finally:
                pool.shutdown(cancel_futures=True)
    say(f"{NAME}: {len(wanted)} cases, {len(wanted) - len(open_)} of them known before")
    write()


def write() -> None:
    """Figures and page from the rows that are kept."""
    rows, planned_on = load()
    for name, svg in figures(rows).items():
        replace_text(DOCS / f"{name}.svg", svg)
    replace_text(DOCS / f"{NAME}.md", page(rows, planned_on))


def quick() -> list[Row]:
    """A few cases, planned now."""
    mark = source()
    return [solve(Case(system, workload), mark) for system in QUICK for workload in WORKLOADS]


def figures(rows: Sequence[Row]) -> dict[str, str]:
    """The text of every SVG by the name of its file."""
    made = {}
    for workload, title in TITLES.items():
        here = [row for row in rows if row.workload == workload]
        made[f"{NAME}-{workload}"] = svg_file(heat_map(f"{title} on 80 systems of 1024 chips", here))
        made[f"{NAME}-{workload}-time"] = svg_file(breakdown(f"Where the time of {title} goes", here))
    return made


def headline(rows: Sequence[Row]) -> str:
    """The result in a line."""
    near, every = ratios_within(rows, 1.25)
    half, _ = ratios_within(rows, 2.0)
    best = max((row for row in rows if row.workload == "llm"), key=lambda row: row.utilisation)
    return (
        f"{near} of the paper's {every} ratios within 1.25 x and {half} within 2 x; GPT3-1T reaches at most "
        f"{best.utilisation:.0%} of the peak ({best.system.replace('/', ', ')})"
    )


def told(row: Row) -> str:
    """A row in one line, as progress."""
    name = f"{row.workload} on {row.system}"
    return f"{name:42s} {row.reason}" if row.reason else f"{name:42s} {row.utilisation:6.1%} {row.time:.3g} s  {row.plan}"


def observations(rows: Sequence[Row], workload: str) -> list[str]:
    """A table of the paper's ratios and ours."""
    names = {"utilisation": "utilisation", "per_price": "cost efficiency", "per_energy": "power efficiency"}
    lines = []
    for each in (each for each in OBSERVATIONS if each.workload == workload):
        for measure, paper in each.paper.items():
            ours = each.ratio(rows, measure)
            lines.append((each.text, names[measure], f"{paper:g}", f"{ours:.2g}", f"{ours / paper:.2f} x"))
    return table(("ratio of means", "of", "paper", "ours", "ours over paper's"), lines, 2)


def ratios_within(rows: Sequence[Row], factor: float) -> tuple[int, int]:
    """How many of the paper's ratios ours are within this factor of, and how many there are."""
    every = [each.ratio(rows, measure) / paper for each in OBSERVATIONS for measure, paper in each.paper.items()]
    return sum(1 / factor <= each <= factor for each in every), len(every)


def page(rows: Sequence[Row], planned_on: str) -> str:
    """The whole page."""
    text = Path(__file__).with_name("systems80.md").read_text(encoding="utf-8")
    for workload, title in TITLES.items():
        here = [row for row in rows if row.workload == workload]
        shown = [
            f"![{title}: utilisation, cost and power efficiency]({NAME}-{workload}.svg)",
            "",
            f"![{title}: where the time goes]({NAME}-{workload}-time.svg)",
            "",
            *observations(rows, workload),
        ]
        text = text.replace(f"<!-- {workload} -->", "\n".join(shown)).replace(f"<!-- {workload} best -->", _best(here))
    text = text.replace("<!-- gaps -->", _gaps(rows))
    (near, every), (half, _) = ratios_within(rows, 1.25), ratios_within(rows, 2.0)
    text = text.replace("<!-- factors -->", f"{near} of {every} are within 1.25 x, {half} within 2 x")
    seconds = sum(row.seconds for row in rows)
    note = f"{len(rows)} cases took {seconds:,.0f} s of CPU time on: {planned_on}."
    return text.replace("<!-- note -->", f"{note} In full precision: [CSV]({NAME}.csv), [JSON]({NAME}.json).")


def _gaps(rows: Sequence[Row]) -> str:
    """How far plans may be from the best, by workload."""
    lines = []
    for workload, title in TITLES.items():
        here = sorted((row for row in rows if row.workload == workload and not row.reason), key=lambda row: row.gap)
        low, middle, high = (here[len(here) * tenth // 10 - 1].gap for tenth in (1, 5, 9))
        worst = here[-1]
        where = ", ".join(worst.words) if worst.gap > 0 else ""
        lines.append((title, *(f"{gap:.1%}" for gap in (low, middle, high, worst.gap)), where))
    return "\n".join(table(("gap", "1 in 10 below", "half below", "9 in 10 below", "worst", "on"), lines, 1))


def _best(rows: Sequence[Row]) -> str:
    """The best plan of each chip."""
    lines = []
    for chip in dict.fromkeys(row.words[0] for row in rows):
        best = max((row for row in rows if row.words[0] == chip), key=lambda row: row.utilisation)
        lines.append((chip, ", ".join(best.words[1:]), best.plan, f"{best.utilisation:.1%}", f"{best.time:.3g} s"))
    return "\n".join(table(("chip", "best system", "plan", "utilisation", "time"), lines, 3))
