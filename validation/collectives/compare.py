"""Measured collectives of 22 machines and libraries: each is fitted on every second size, and judged on the sizes between.

The measurements are public, but not part of this repository: ``measured_collectives.csv`` of the folder of data. A machine is all
rows of one GPU, one library version and one wiring; what was timed with loop-back copies (send and receive) is left out. Two
questions are asked: sizes that the fit has not seen, and the largest number of ranks from a fit to the smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from validation.collectives.baselines import Judgement, Prediction, judge, unseen_ranks
from validation.outcome import Case, Line, Outcome, positive, read_figures, whole

from halley.ir.mapping import CollectiveKind
from halley.network.fit.calibrate import Key, Measurement
from halley.network.fit.overlay import FAMILIES, Family

TABLE = "measured_collectives.csv"
KINDS = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
COLUMNS = ("gpu", "impl", "interconnect", "peak_unidir_GBps_per_gpu", "n_ranks", "collective", "size_bytes", "time_us")
SWITCHED = "NVLink"
"""Wirings whose name starts so connect any number of GPUs alike; on the others more GPUs lie behind other links."""

MEANS = {Family.RING: 0.08, Family.EXCHANGE: 0.12}
WORST = {Family.RING: 0.45, Family.EXCHANGE: 0.65}
"""Allowed of sizes that were held out, by family; the worst are single rows that took longer than larger messages."""
UNSEEN_MEANS = {Family.RING: 0.08, Family.EXCHANGE: 0.2}
UNSEEN_WORST = {Family.RING: 0.7, Family.EXCHANGE: 0.7}
"""Allowed of unseen ranks."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU with one library; ``peak`` of a GPU, one direction [B/s], None where it is not known."""

    gpu: str
    software: str
    wiring: str
    peak: float | None

    @property
    def name(self) -> str:
        return f"{self.gpu}, {self.software}"


def machines(path: Path) -> dict[Machine, tuple[Measurement, ...]]:
    """The rows of the table by machine. Raises BadInput: a row that is none."""
    found: dict[Machine, list[Measurement]] = {}
    for number, row in enumerate(read_figures(path, COLUMNS), start=1):
        where = f"{path}, row {number}"
        if row["collective"] in KINDS:
            peak = whole(row, "peak_unidir_GBps_per_gpu", where) * 1e9
            machine = Machine(row["gpu"], row["impl"], row["interconnect"], peak or None)
            size, time = whole(row, "size_bytes", where), positive(row, "time_us", where) / 1e6
            measured = Measurement(KINDS[row["collective"]], whole(row, "n_ranks", where), size, time)
            found.setdefault(machine, []).append(measured)
    return {machine: tuple(rows) for machine, rows in found.items()}


@cache
def judged(path: Path) -> tuple[tuple[Machine, Judgement], ...]:
    """Every series on the sizes that were held out."""
    return tuple((machine, item) for machine, rows in machines(path).items() for item in judge(rows, machine.peak))


@cache
def extrapolated(path: Path) -> tuple[tuple[Machine, Key, tuple[Prediction, ...]], ...]:
    """Every machine's largest number of ranks from a fit to the smaller ones."""
    every = machines(path)
    return tuple((machine, key, rows) for machine, given in every.items() for key, rows in unseen_ranks(given).items())


def compare(data: Path | None) -> Outcome:
    """Held-out sizes of each collective, and unseen ranks of each family where the wiring is the same for all."""
    if data is None or not (data / TABLE).is_file():
        return Outcome("collectives", skipped=f"no data: {TABLE}")
    path = data / TABLE
    lines = []
    for kind in KINDS.values():
        cases = _cases((machine, item.key, item.rows) for machine, item in judged(path) if item.key[0] is kind)
        lines.append(Line(f"{kind}, held-out sizes", cases, MEANS[FAMILIES[kind]], WORST[FAMILIES[kind]]))
    switched = [item for item in extrapolated(path) if item[0].wiring.startswith(SWITCHED)]
    for family in Family:
        cases = _cases(item for item in switched if FAMILIES[item[1][0]] is family)
        lines.append(Line(f"{family}, unseen ranks", cases, UNSEEN_MEANS[family], UNSEEN_WORST[family]))
    return Outcome("collectives", tuple(lines))


def _cases(found: Iterable[tuple[Machine, Key, tuple[Prediction, ...]]]) -> tuple[Case, ...]:
    def cases() -> Iterator[Case]:
        for machine, (kind, ranks), rows in found:
            for row in rows:
                yield Case(f"{machine.name}: {kind} on {ranks}, {row.size} B", row.predicted, row.measured)

    return tuple(cases())
