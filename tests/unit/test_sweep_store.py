"""The store of sweeps: several writers, other versions, other files, full disks."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from halley.errors import BadInput
from halley.sweeps import store as module
from halley.sweeps.store import StoredAnswer, SweepStore
from halley.sweeps.work import Answered, LowerBound


def answer(value: float, bound: float | None = None, ended: str = "optimal") -> Answered:
    return Answered(value, value if bound is None else bound, value, 1.0, 0.1, ended, "for m by 4\n  compute C")


def test_answers_and_bounds_come_back(tmp_path: Path) -> None:
    store = SweepStore(tmp_path / "s.db")
    store.add("a", {"chip": "edge"}, 3.0, answer(2.0, 1.9, "limit"))
    store.add("b", {}, None, Answered(math.inf, math.inf, math.inf, math.inf, 0.0, "infeasible", reason="too small"))
    store.add_bounds({"a": LowerBound(1.5), "b": LowerBound(math.inf, "too small")})
    store.close()
    again = SweepStore(tmp_path / "s.db", write=False)
    found = again.answers(["a", "b", "c"])
    assert found["a"] == StoredAnswer(answer(2.0, 1.9, "limit"), 3.0)
    assert (found["b"].answer.value, found["b"].answer.reason, len(found)) == (math.inf, "too small", 2)
    assert again.bounds(["a", "b"]) == {"a": LowerBound(1.5), "b": LowerBound(math.inf, "too small")}


def test_of_two_answers_the_tighter_one_is_kept() -> None:
    store = SweepStore(module.MEMORY)
    for given in (answer(2.0, 1.0, "limit"), answer(1.5, 1.4, "limit"), answer(1.6, 1.0, "limit")):
        store.add("a", {}, 1.0, given)
    assert store.answers(["a"])["a"].answer.value == 1.5


@pytest.mark.parametrize(
    ("kept", "limit", "gap", "asked", "serves"),
    [
        (answer(1.0), None, 0.0, None, True),
        (answer(1.0), 5.0, 0.0, None, True),
        (answer(1.01, 1.0), None, 0.0, None, False),
        (answer(1.01, 1.0), None, 0.01, None, True),
        (answer(1.01, 1.0, "within"), None, 0.0, None, False),
        (answer(1.01, 1.0, "within"), None, 0.01, None, True),
        (answer(1.01, 1.0, "within"), None, None, None, True),
        (answer(2.0, 1.0, "limit"), 5.0, None, 9.0, False),
        (answer(2.0, 1.0, "limit"), 5.0, 0.0, 5.0, True),
        (answer(2.0, 1.0, "limit"), 5.0, 0.0, 9.0, False),
        (answer(2.0, 1.0, "limit"), 5.0, 0.0, None, False),
        (answer(math.inf, 0.0, "stopped"), 5.0, 0.0, 5.0, True),
        (answer(math.inf, math.inf, "infeasible"), None, 0.0, 1.0, True),
    ],
)
def test_what_an_answer_serves(kept: Answered, limit: float | None, gap: float | None, asked: float | None, serves: bool) -> None:
    assert StoredAnswer(kept, limit).serves(gap, asked) is serves


def test_another_version_of_the_model_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SweepStore(tmp_path / "s.db")
    store.add("a", {}, None, answer(1.0))
    monkeypatch.setattr(module, "model_key", lambda: "another")
    assert store.answers(["a"]) == {}
    store.add("a", {}, None, answer(2.0))
    assert store.counts() == (1, 1)


def add_many(path: str, start: int) -> None:
    store = SweepStore(path)
    for number in range(start, start + 40):
        store.add(f"k{number % 60}", {}, None, answer(1.0 + number % 60))


def test_several_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    context, path = multiprocessing.get_context("fork"), str(tmp_path / "s.db")
    writers = [context.Process(target=add_many, args=(path, 40 * number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    found = SweepStore(path, write=False).answers(f"k{number}" for number in range(60))
    assert {key: kept.answer.value for key, kept in found.items()} == {f"k{number}": 1.0 + number for number in range(60)}
    assert sqlite3.connect(path).execute("select count(*) from answers").fetchone() == (60,)


def refusal(path: Path | str, write: bool = True) -> str:
    with pytest.raises(BadInput) as error:
        SweepStore(path, write)
    return str(error.value)


def test_other_files_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    text, other, newer, empty = (tmp_path / name for name in ("a.db", "b.db", "c.db", "d.db"))
    text.write_text("no database, but long enough to be read as one" * 30)
    with sqlite3.connect(other) as base:
        base.execute("create table t (x)")
    SweepStore(newer).close()
    with sqlite3.connect(newer) as base:
        base.execute("update meta set value = 'halley.sweep/9'")
    empty.touch()
    before = [path.read_bytes() for path in (text, other)]
    assert "not a database" in refusal(text)
    assert "a database of something else" in refusal(other)
    assert "expected a store of format halley.sweep/1; got format halley.sweep/9" in refusal(newer)
    assert "an empty file" in refusal(empty, write=False)
    assert "a folder or a device" in refusal(tmp_path)
    assert "no folder" in refusal(tmp_path / "none" / "s.db")
    assert before == [path.read_bytes() for path in (text, other)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_device_is_refused() -> None:
    assert "a folder or a device" in refusal("/dev/full")


def fill(store: SweepStore, count: int) -> None:
    for number in range(count):
        store.add(f"k{number}", {"text": "x" * 500}, None, answer(1.0))


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """SQLite's own limit stands for the disk's: the message is the same."""
    store = SweepStore(tmp_path / "s.db")
    store._base.execute("pragma max_page_count = 12")
    with pytest.raises(BadInput, match=r"s\.db: expected a store of a sweep; got database or disk is full; free some space"):
        fill(store, 2000)
    assert len(store.answers(f"k{number}" for number in range(2000))) > 0
