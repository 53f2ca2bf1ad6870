"""A study of whole systems whose rows are kept as JSON beside its page, and are made again when the source changes.

Rows are kept one case at a time: a run that is stopped at any moment, by kill -9 too, goes on with the case that it was at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks.measure import machine as measured_on

from studies.store import DOCS, ROOT, behind, load_tables, replace_text, save_tables

Rows: TypeAlias = list[dict[str, Any]]

UNFINISHED = ROOT / "build" / "studies"
"""The rows of runs that have not ended: one file for each study, one line for each case."""

ENTRY = 5
"""Numbers of values of a line: source, table, key, rows and processor time."""


class Kept(NamedTuple):
    """The ``rows`` of a case, and the processor time [s] that they took."""

    rows: Rows
    seconds: float


class StudyCase(NamedTuple):
    """What is searched at once: a ``key`` that no other case of the ``table`` has, and what makes its rows."""

    table: str
    key: str
    solve: Callable[[], Rows]


@dataclass(frozen=True, slots=True)
class KeptStudy:
    """``file`` is that of the study; its content counts as source, as that of ``others`` does. ``cases``: what is searched, in
    the order of the rows; ``files``: the text of each file of docs/studies, from what is kept."""

    name: str
    file: str
    cases: Callable[[], Iterable[StudyCase]]
    files: Callable[[Mapping[str, Any]], Mapping[str, str]]
    others: tuple[Path, ...] = ()

    @property
    def schema(self) -> str:
        return f"halley.study.{self.name}/1"

    @property
    def unfinished(self) -> Path:
        """The rows of a run that has not ended."""
        return UNFINISHED / f"{self.name}.jsonl"

    def source(self) -> str:
        """A fingerprint of what the rows depend on."""
        return behind(Path(self.file), *self.others)

    def run(self, again: bool, say: Callable[[str], None]) -> None:
        """Make what is not known for the present source; then write figures and page. ``again``: also what is known."""
        mark = self.source()
        if again:
            self.unfinished.unlink(missing_ok=True)
        if again or self.load().get("source") != mark:
            tables, seconds = self._tables(mark, say)
            about = {"schema": self.schema, "source": mark, "machine": measured_on(), "seconds": round(seconds, 1)}
            save_tables(self.name, {**about, **tables})
            self.unfinished.unlink(missing_ok=True)
            say(f"{self.name}: " + ", ".join(f"{len(rows)} {table}" for table, rows in tables.items()))
        self.write()

    @property
    def seconds(self) -> float | None:
        """Processor time of what is kept [s]; None where it was not measured."""
        found = self.load().get("seconds")
        return None if found is None else float(found)

    def _tables(self, mark: str, say: Callable[[str], None]) -> tuple[dict[str, Rows], float]:
        """All rows by table, and their processor time [s]: those of cases that are known are read, those of the others made and
        kept at once."""
        known, cases = self._known(mark), list(self.cases())
        tables: dict[str, Rows] = {}
        self.unfinished.parent.mkdir(parents=True, exist_ok=True)
        with self.unfinished.open("a", encoding="utf-8") as file:
            for number, (table, key, solve) in enumerate(cases, 1):
                if (table, key) not in known:
                    begun = _spent()
                    rows = solve()
                    text = json.dumps([mark, table, key, rows, _spent() - begun])
                    known[table, key] = Kept(*json.loads(text)[3:])  # as a later run reads them
                    file.write(text + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                    say(f"{self.name} {number:3d}/{len(cases)} {table}: {key}")
                tables.setdefault(table, []).extend(known[table, key].rows)
        return tables, sum(known[table, key].seconds for table, key, _ in cases)

    def _known(self, mark: str) -> dict[tuple[str, str], Kept]:
        """The rows of an earlier run with this source by table and key. What else is in the file is dropped: rows of another
        source, and the line that a killed run was writing."""
        kept: list[tuple[str, str, str, Rows, float]] = []
        if self.unfinished.exists():
            for text in self.unfinished.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(text)
                except ValueError:
                    continue
                if entry[0] == mark and len(entry) == ENTRY:
                    kept.append(entry)
            replace_text(self.unfinished, "".join(json.dumps(entry) + "\n" for entry in kept))
        return {(table, key): Kept(rows, seconds) for _, table, key, rows, seconds in kept}

    def load(self) -> dict[str, Any]:
        """What is kept; empty where the study was never run to its end."""
        return load_tables(self.name, self.schema)

    def write(self) -> None:
        """Figures and page from what is kept."""
        for name, text in self.files(self.load()).items():
            replace_text(DOCS / name, text)


def _spent() -> float:
    """Processor time of this process and of those that it has started and that have ended [s]."""
    return sum(os.times()[:4])
