"""Measured collectives from files: the tables that nccl-tests (and rccl-tests) print, and plain CSV.

A log may hold several runs, and lines of launchers and debug output between those of a table. A run says which collective it is
(``# Collective test starting: all_reduce_perf``, or the command line if the log has it) and lists its devices (``# Rank``). The
head of its table names the columns; each row has out-of-place figures first and in-place ones second. Sizes are in bytes, times
in microseconds. The convention of sizes is Halley's own: the whole vector of an all-reduce, all that an all-gather gathers, all
that one rank sends. Source: README.md and doc/PERFORMANCE.md of github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.mapping import CollectiveKind
from halley.network.fit.calibrate import Measurement

LOG_LIMIT = 16 * 2**20
"""Largest log [B]; debug output makes them long."""
ROW_LIMIT = 10_000
"""Most rows of a log."""
SIZE_LIMIT = 2**50
"""Largest message [B]."""
COLUMNS = ("collective", "n_ranks", "size_bytes", "time_us")
"""Columns that a CSV has at least, in any order."""

KINDS: Mapping[str, CollectiveKind] = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "reduce": CollectiveKind.REDUCE,
    "gather": CollectiveKind.GATHER,
    "scatter": CollectiveKind.SCATTER,
    "sendrecv": CollectiveKind.SHIFT,
}
"""Collectives as nccl-tests calls them. Its sendrecv is a shift: every rank sends to the next."""

_SPELLED = {re.sub("[_-]", "", name): kind for name, kind in KINDS.items()}
_STARTS = re.compile(r"# Collective test starting: (\w+)")
_COMMAND = re.compile(r"\b(\w+)_perf\b")
_RANK = re.compile(r"#\s*Rank\s+([0-9]{1,7})\b")
_WHOLE = re.compile(r"[0-9]{1,16}")


def collective(text: str, where: str) -> CollectiveKind:
    """The collective of that name, however it is joined.

    >>> collective("AllReduce", "line 1"), collective("all-to-all", "line 1")
    (<CollectiveKind.ALL_REDUCE: 'all-reduce'>, <CollectiveKind.ALL_TO_ALL: 'all-to-all'>)

    Raises BadInput: no collective of that name.
    """
    known = _kind(text)
    if known is None:
        raise BadInput(Fault(where, "a collective", repr(text[:40]), did_you_mean(text[:40], KINDS)))
    return known


def read_measurements(
    text: str, name: str, ranks: int | None = None, kind: CollectiveKind | None = None, in_place: bool = False
) -> tuple[Measurement, ...]:
    """The rows of a log of nccl-tests or of a CSV; ``name`` is the file's name for messages.

    ``ranks`` and ``kind`` stand in where a log does not say them; ``in_place`` takes the second figures of each row.

    >>> read_measurements("collective,n_ranks,size_bytes,time_us\\nall_reduce,4,1024,12.5\\n", "mine.csv")[0].size
    1024

    Raises BadInput: every row that cannot be read, with its line; no rows, or too many.
    """
    first = next((line for line in text.splitlines() if line.strip()), "")
    if "," in first and "collective" in first:
        found, faults = _read_csv(text, name)
    else:
        log = _Log(name, ranks, kind, in_place)
        for number, line in enumerate(text.splitlines(), start=1):
            log.read(number, line.strip())
        found, faults = log.found, log.faults
    if len(found) > ROW_LIMIT:
        faults.append(Fault(name, f"at most {ROW_LIMIT} rows", str(len(found))))
    if not found and not faults:
        remedy = f"a CSV's head is {','.join(COLUMNS)}"
        faults.append(Fault(name, "a table of nccl-tests, or a CSV with a head", "neither", remedy))
    if faults:
        raise BadInput(faults)
    return tuple(found)


@dataclass(slots=True)
class _Log:
    """What the lines of a log have said so far."""

    name: str
    ranks: int | None
    kind: CollectiveKind | None
    in_place: bool
    said: CollectiveKind | None = None
    devices: set[int] = field(default_factory=set)
    columns: tuple[str, ...] = ()
    complained: bool = False
    found: list[Measurement] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        if start := _STARTS.search(line):
            self.said = _kind(start[1])
        elif rank := _RANK.match(line):
            self.devices.add(int(rank[1]))
        elif line.startswith("# nThread"):
            self.devices, self.columns, self.complained = set(), (), False
        elif line.startswith("#") and {"size", "time"} <= set(words := line.lstrip("# ").split()):
            self.columns = tuple(words)
        elif self.columns and _WHOLE.fullmatch(line.partition(" ")[0]):
            self.row(f"{self.name}:{number}", line.split())
        elif not line.startswith("#") and (command := _COMMAND.search(line)) and _kind(command[1]):
            self.said = _kind(command[1])

    def row(self, where: str, cells: list[str]) -> None:
        if len(cells) != len(self.columns):
            expected = f"{len(self.columns)} columns ({' '.join(self.columns)})"
            self.faults.append(Fault(where, expected, f"{len(cells)}"))
            return
        places = [index for index, column in enumerate(self.columns) if column == "time"]
        if self.in_place and len(places) < 2:
            self.faults.append(Fault(where, "in-place figures", "a table without them", "leave out --in-place"))
            return
        place = places[int(self.in_place)]
        wrong = next((cells[at] for at in range(place, len(cells)) if self.columns[at] == "#wrong"), "0")
        if wrong not in ("0", "N/A"):
            self.faults.append(Fault(where, "0 wrong values in the results", repr(wrong[:20]), "leave the row out, and see why"))
        size = int(cells[self.columns.index("size")])
        time = _microseconds(cells[place])
        if time is None or size > SIZE_LIMIT:
            got = f"{size} and {cells[place][:20]!r}"
            self.faults.append(Fault(where, f"a size of at most {SIZE_LIMIT} and a time above 0 us", got))
        elif size and self.named(where):
            kind, ranks = self.said or self.kind, len(self.devices) or self.ranks
            if kind is not None and ranks is not None:
                self.found.append(Measurement(kind, ranks, size, time))

    def named(self, where: str) -> bool:
        """Whether collective and ranks of the run are known; complains of them once."""
        faults = []
        if self.said is None and self.kind is None:
            remedy = "add --collective, or the line '# Collective test starting: all_reduce_perf'"
            faults.append(Fault(where, "a run that says its collective", "none before this row", remedy))
        if (len(self.devices) or self.ranks or 0) < 2:
            got = f"{len(self.devices)} lines '# Rank' with different numbers"
            faults.append(Fault(where, "a run that lists at least 2 ranks", got, "add --ranks to a log without them"))
        if not self.complained:
            self.faults += faults
            self.complained = bool(faults)
        return not faults


def _read_csv(text: str, name: str) -> tuple[list[Measurement], list[Fault]]:
    found: list[Measurement] = []
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        head = [column.strip() for column in reader.fieldnames or ()]
        faults = [Fault(f"{name}:1", f"the column {column}", ", ".join(head)[:80]) for column in COLUMNS if column not in head]
        reader.fieldnames = head
        for row in reader if not faults else ():
            cells = {column: (row[column] or "").strip() for column in COLUMNS}
            measured = _measurement(cells, f"{name}:{reader.line_num}")
            if isinstance(measured, Measurement):
                found.append(measured)
            else:
                faults += measured
    except csv.Error as error:
        faults = [Fault(f"{name}:{reader.line_num}", "a line of CSV", str(error))]
    return found, faults


def _measurement(cells: Mapping[str, str], where: str) -> Measurement | list[Fault]:
    """The measurement in the cells of a row, or all that is wrong with them."""
    kind, time = _kind(cells["collective"]), _microseconds(cells["time_us"])
    ranks, size = _count(cells["n_ranks"]), _count(cells["size_bytes"])
    expected = {
        "collective": "" if kind else "a collective",
        "n_ranks": "" if ranks >= 2 else "a whole number of at least 2",
        "size_bytes": "" if 1 <= size <= SIZE_LIMIT else f"a whole number from 1 to {SIZE_LIMIT}",
        "time_us": "" if time else "a number above 0",
    }
    if kind and time and not any(expected.values()):
        return Measurement(kind, ranks, size, time)
    hints = {"collective": did_you_mean(cells["collective"][:40], KINDS)}
    return [
        Fault(f"{where}: {column}", said, repr(cells[column][:40]), hints.get(column, ""))
        for column, said in expected.items()
        if said
    ]


def _kind(text: str) -> CollectiveKind | None:
    return _SPELLED.get(re.sub("[_ -]|perf$", "", text.strip().lower()))


def _count(text: str) -> int:
    """A whole number; -1 where it is none."""
    return int(text) if _WHOLE.fullmatch(text) else -1


def _microseconds(text: str) -> float | None:
    """A time in us as seconds; None where it is no number above 0."""
    try:
        value = float(text) / 1e6
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
