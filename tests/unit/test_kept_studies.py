"""Studies that keep their rows case by case: kill -9 loses the case under way and nothing else."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studies import kept, store
from studies.index import KEPT
from studies.kept import KeptStudy, StudyCase

ROOT = Path(__file__).parents[2]
COUNT = 40

PROGRAM = """
import sys, time
from pathlib import Path
from studies import kept, store
from studies.kept import KeptStudy, StudyCase

folder = Path(sys.argv[1])
store.DOCS = kept.DOCS = folder
kept.UNFINISHED = folder / "unfinished"

def solve(number):
    with (folder / "solved").open("a") as file:
        file.write(f"{number}\\n")
    time.sleep(0.02)
    return [{"number": number}]

def cases():
    return [StudyCase("rows", str(number), lambda number=number: solve(number)) for number in range(int(sys.argv[2]))]

KeptStudy("slow", kept.__file__, cases, lambda known: {"slow.md": f"{len(known['rows'])} rows"}).run(False, lambda text: None)
"""


def test_killed_runs_go_on_where_they_were(tmp_path: Path) -> None:
    """Runs that are killed at random times keep every case that had ended, and search at most one case again each."""
    dice, kills = random.Random(23), 0
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(COUNT)]
    ended = False
    while not ended and kills < 6:
        process = subprocess.Popen(command, cwd=ROOT)
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob("solved")) and time.monotonic() < deadline:
            time.sleep(0.01)
        before = len((tmp_path / "solved").read_text().splitlines())
        wanted = min(before + dice.randint(1, 6), COUNT + kills - 1)
        while len((tmp_path / "solved").read_text().splitlines()) < wanted and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        ended = process.wait() == 0
        kills += not ended
    assert kills >= 5
    assert not (tmp_path / "slow.md").exists()
    subprocess.run(command, cwd=ROOT, check=True)
    solved = (tmp_path / "solved").read_text().splitlines()
    assert len(solved) <= COUNT + kills
    assert sorted(set(map(int, solved))) == list(range(COUNT))
    rows = json.loads((tmp_path / "slow.json").read_text())["rows"]
    assert [row["number"] for row in rows] == list(range(COUNT))
    assert (tmp_path / "slow.md").read_text() == f"{COUNT} rows"
    assert not list((tmp_path / "unfinished").iterdir())


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[KeptStudy, list[int]]:
    """A study of three cases in two tables, and the cases that were solved."""
    solved: list[int] = []

    def solve(number: int) -> list[dict[str, object]]:
        solved.append(number)
        return [{"number": number}]

    def cases() -> list[StudyCase]:
        return [StudyCase("ab"[number % 2], str(number), lambda number=number: solve(number)) for number in range(3)]  # type: ignore[misc]

    for module in (store, kept):
        monkeypatch.setattr(module, "DOCS", tmp_path)
    monkeypatch.setattr(kept, "UNFINISHED", tmp_path / "unfinished")
    return KeptStudy("small", __file__, cases, lambda known: {"small.md": "page"}), solved


def test_rows_of_another_source_and_torn_lines_are_dropped(study: tuple[KeptStudy, list[int]]) -> None:
    made, solved = study
    lines = [
        json.dumps([made.source(), "a", "0", [{"number": 0}], 7.5]),
        json.dumps(["another", "b", "1", [{"number": 7}], 1.0]),
        json.dumps([made.source(), "b", "1", [{"number": 7}]]),
        '["torn',
    ]
    made.unfinished.parent.mkdir()
    made.unfinished.write_text("\n".join(lines))
    made.run(False, lambda text: None)
    assert solved == [1, 2]
    assert made.load()["a"] == [{"number": 0}, {"number": 2}]
    assert made.load()["b"] == [{"number": 1}]
    assert made.seconds is not None
    assert 7.5 <= made.seconds < 60
    made.run(False, lambda text: None)
    assert solved == [1, 2]
    made.run(True, lambda text: None)
    assert solved == [1, 2, 0, 1, 2]


@pytest.mark.parametrize("module", KEPT, ids=lambda module: module.NAME)
def test_cases_of_a_study_have_keys_of_their_own(module: object) -> None:
    """And the tables of the cases are those that are kept."""
    made: KeptStudy = module.STUDY  # type: ignore[attr-defined]
    cases = list(made.cases())
    assert len({(table, key) for table, key, _ in cases}) == len(cases)
    assert {table for table, _, _ in cases} == made.load().keys() - {"schema", "source", "machine", "seconds"}
