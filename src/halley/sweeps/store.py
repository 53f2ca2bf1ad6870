"""Where a sweep keeps what it found: one SQLite file, keyed by content.

An answer's key is a fingerprint of workload, chip and objective, and of the model's source: equal problems of several studies are
searched once, and answers of another version of the model are not used. Each answer is one transaction in a write-ahead log, so
that a killed sweep loses only the searches under way, and several sweeps may use one file at a time. `SweepStore.close` moves the
log into the file: a copy of the file has all answers then.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from halley.errors import BadInput, Fault
from halley.io.cache import model_key
from halley.sweeps.answered import Answered, LowerBound

FORMAT = "halley.sweep/1"
"""Version of the tables below."""

LOCK_TIMEOUT = 60.0
"""How long a sweep waits for another one that writes [s]."""

MEMORY = ":memory:"
"""In place of a path: the answers are kept in memory, and lost at the end."""

TABLES = (
    "create table if not exists meta (name text primary key, value text) without rowid",
    "create table if not exists bounds (key text, model text, value real, reason text, primary key (key, model)) without rowid",
    "create table if not exists answers (key text, model text, inputs text, time_limit real, value real, bound real, time real,"
    " energy real, seconds real, ended text, mapping text, variant text, groups text, reason text, primary key (key, model))"
    " without rowid",
)
COLUMNS = ("value", "bound", "time", "energy", "seconds", "ended", "mapping", "variant", "groups", "reason")
"""The fields of `Answered`, as the table has them."""

CHUNK = 500
"""Keys of one query."""


class StoredAnswer(NamedTuple):
    """An answer of the store, and the limit that its search had [s]; None: no limit."""

    answer: Answered
    time_limit: float | None

    def serves(self, gap: float | None, time_limit: float | None) -> bool:
        """Whether a search to this gap, with this limit, need not be made. None: the search ends with a gap of its own."""
        if self.answer.gap <= (gap or 0.0) + 1e-8:
            return True
        if self.answer.ended in ("optimal", "within"):  # to a larger gap
            return gap is None
        return self.time_limit is None or (time_limit is not None and time_limit <= self.time_limit)


class SweepStore:
    """The file of a sweep, open.

    >>> store = SweepStore(MEMORY)
    >>> store.add("k", {"chip": "edge"}, None, Answered(2.0, 2.0, 2.0, 0.1, 0.5, "optimal"))
    >>> store.answers(["k", "l"])["k"].answer.value
    2.0

    Raises BadInput: the file cannot be opened, is none of a sweep, or one of another version; and, where it is written to, the
    disk is full.
    """

    def __init__(self, path: str | Path, write: bool = True) -> None:
        self.path, self.write = str(path), write
        self._connection: sqlite3.Connection | None = None
        with self._words():
            self._connection = self._opened()

    @property
    def _base(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        """A connection to the file, which has the tables of a sweep."""
        if self.path == MEMORY:
            base = sqlite3.connect(MEMORY)
        else:
            where = Path(self.path)
            if where.exists() and not where.is_file():
                raise BadInput(Fault(self.path, "a path to a file", "a folder or a device"))
            if self.write and not where.resolve().parent.is_dir():
                raise BadInput(Fault(self.path, "a folder that exists", f"no folder {where.parent}", "create it"))
            address = f"{where.resolve().as_uri()}?mode={'rwc' if self.write else 'rw'}"
            base = sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT)
        try:
            self._prepare(base)
        except BaseException:
            base.close()
            raise
        return base

    def _prepare(self, base: sqlite3.Connection) -> None:
        tables = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
        if tables and "meta" not in tables:
            remedy = "name another file"
            raise BadInput(Fault(self.path, "a store of a sweep", "a database of something else", remedy))
        if not tables and not self.write:
            raise BadInput(Fault(self.path, "a store of a sweep", "an empty file", "run the sweep first"))
        if self.write:
            base.execute("pragma journal_mode = wal")
            with base:
                for table in TABLES:
                    base.execute(table)
                base.execute("insert or ignore into meta values ('format', ?)", (FORMAT,))
        found = base.execute("select value from meta where name = 'format'").fetchone()
        if found != (FORMAT,):
            got = f"format {found[0]}" if found else "no format"
            raise BadInput(Fault(self.path, f"a store of format {FORMAT}", got, "name another file: this one stays as it is"))

    def close(self) -> None:
        """Closes the file, which has all answers then; the next use opens it again. What is in memory stays there."""
        if self._connection is not None and self.path != MEMORY:
            self._connection.close()
            self._connection = None

    def answers(self, keys: Iterable[str]) -> dict[str, StoredAnswer]:
        """What is known of these keys under this version of the model."""
        found: dict[str, StoredAnswer] = {}
        asked = f"select key, time_limit, {', '.join(COLUMNS)} from answers where model = ? and key in "
        for key, limit, *values in self._rows(asked, keys):
            found[str(key)] = StoredAnswer(Answered(*values), limit)  # type: ignore[arg-type]
        return found

    def bounds(self, keys: Iterable[str]) -> dict[str, LowerBound]:
        """The lower bounds that are known of these keys."""
        asked = "select key, value, reason from bounds where model = ? and key in "
        return {str(key): LowerBound(float(str(value)), str(reason)) for key, value, reason in self._rows(asked, keys)}

    def add(self, key: str, inputs: Mapping[str, object], time_limit: float | None, answer: Answered) -> None:
        """Keeps an answer; of two of one key, the one with the smaller gap."""
        row = (key, model_key(), json.dumps(inputs), time_limit, *(getattr(answer, name) for name in COLUMNS))
        with self._words(), self._base:
            self._base.execute("begin immediate")
            known = self._base.execute("select value, bound from answers where key = ? and model = ?", row[:2]).fetchone()
            if known is None or _looser(known, answer):
                marks = ", ".join("?" * len(row))
                self._base.execute(f"insert or replace into answers values ({marks})", row)

    def add_bounds(self, found: Mapping[str, LowerBound]) -> None:
        """Keeps lower bounds."""
        rows = [(key, model_key(), bound.value, bound.reason) for key, bound in found.items()]
        with self._words(), self._base:
            self._base.executemany("insert or replace into bounds values (?, ?, ?, ?)", rows)

    def counts(self) -> tuple[int, int]:
        """Answers of this version of the model, and of others, which are not used."""
        with self._words():
            asked = "select count(*) filter (where model = ?), count(*) filter (where model != ?) from answers"
            own, others = self._base.execute(asked, (model_key(),) * 2).fetchone()
        return int(own), int(others)

    def _rows(self, asked: str, keys: Iterable[str]) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        every = list(dict.fromkeys(keys))
        with self._words():
            for start in range(0, len(every), CHUNK):
                some = every[start : start + CHUNK]
                rows += self._base.execute(f"{asked} ({', '.join('?' * len(some))})", (model_key(), *some)).fetchall()
        return rows

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Errors of the file in the words of all faults."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            remedy = "free some space and run the sweep again" if "full" in str(error) else "name another file"
            raise BadInput(Fault(self.path, "a store of a sweep", str(error), remedy)) from None


def _looser(known: tuple[float, float], answer: Answered) -> bool:
    value, bound = known
    before = value / bound if bound > 0 and value < float("inf") else float("inf")
    return not answer.bound > 0 or answer.value / answer.bound <= before
