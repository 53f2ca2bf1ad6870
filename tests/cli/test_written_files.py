"""Files of answers: bad places are refused before the search, and no answer is lost after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import Outcome, halley

from halley.cli import solve
from halley.cli.plans import plan as plans
from halley.io.files import save
from halley.mapping.optimise import optimise

GEMM = ("optimise", "gemm", "--m", "4", "--n", "4", "--k", "4", "--chip", "edge", "--no-baselines")
PLAN = ("plan", "gpt2-xl", "--system", "8 x h100, nvlink 8", "--batch", "8")


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> Any:
        raise AssertionError("the search ran")

    monkeypatch.setattr(solve, "optimise", search)
    monkeypatch.setattr(plans, "best_training_plan", search)


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("words", [GEMM, PLAN], ids=["optimise", "plan"])
@pytest.mark.parametrize(
    ("target", "got"),
    [
        ("nowhere/x.json", "no folder"),
        ("folder", "a folder or a device"),
        ("/dev/full", "a folder or a device"),
        ("full", "a folder or a device"),
        ("x" * 300 + ".json", "File name too long"),
        ("/proc/x.json", ""),
    ],
)
def test_a_bad_place_is_refused_before_the_search(words: tuple[str, ...], target: str, got: str, empty_folder: Path) -> None:
    (empty_folder / "folder").mkdir()
    (empty_folder / "full").symlink_to("/dev/full")
    refused = halley(*words, "-o", target, "--force")
    assert refused.code == 1
    assert f"{target}: expected" in refused.err
    assert got in refused.err
    assert sorted(path.name for path in empty_folder.iterdir()) == ["folder", "full"]


@pytest.mark.usefixtures("no_search")
def test_a_folder_without_permission_is_refused_before_the_search(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)  # chmod does not stop tests that run as root
    assert "x.json: expected a file that can be written; got Permission denied" in halley(*GEMM, "-o", "x.json").err
    assert "gemm-edge.json: expected a file that can be written" in halley(*GEMM).err


def solved_after(monkeypatch: pytest.MonkeyPatch, meanwhile: Any, *words: str) -> Outcome:
    """The command, where something happens while it searches."""

    def search(problem: Any, progress: Any) -> Any:
        meanwhile()
        return optimise(problem, progress)

    monkeypatch.setattr(solve, "optimise", search)
    return halley(*GEMM, *words)


def test_a_name_that_another_writer_took_meanwhile(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = solved_after(monkeypatch, lambda: Path("a.json").write_text("other"), "-o", "a.json")
    assert second.code == 1
    assert "a.json: expected a new file; got a file that exists; it is in a-2.json instead" in second.err
    assert Path("a.json").read_text() == "other"
    assert json.loads(Path("a-2.json").read_text())["kind"] == "mapping"
    own = solved_after(monkeypatch, lambda: Path("gemm-edge.json").write_text("other"))
    assert (own.code, "written to gemm-edge-2.json" in own.err) == (0, True)


def test_a_folder_that_vanished_meanwhile(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_folder / "out").mkdir()
    lost = solved_after(monkeypatch, (empty_folder / "out").rmdir, "-o", "out/a.json")
    assert (lost.code, "it is in a.json instead" in lost.err) == (1, True)
    assert json.loads(Path("a.json").read_text())["kind"] == "mapping"


def test_an_answer_that_can_be_written_nowhere_is_still_shown(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    shown = solved_after(monkeypatch, lambda: monkeypatch.setattr(save, "_write", full), "-o", "a.json", "--json")
    assert (shown.code, "a.json: expected a file that can be written; got No space left" in shown.err) == (1, True)
    assert shown.json["kind"] == "mapping"


def test_several_writers_of_one_name_have_a_file_each(tmp_path: Path) -> None:
    path, written = tmp_path / "a.json", []
    start = threading.Barrier(8)

    def write(number: int) -> None:
        start.wait()
        written.append((save.write_numbered(path, str(number)), number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(target.name for target, _ in written) == ["a-2.json", *(f"a-{n}.json" for n in range(3, 9)), "a.json"]
    assert all(target.read_text() == str(number) for target, number in written)


def test_two_commands_at_once_lose_nothing(empty_folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "halley", *GEMM]
    runs = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    ends = [(run.communicate(timeout=300), run.returncode)[1] for run in runs]
    assert ends == [0, 0, 0]
    assert sorted(path.name for path in empty_folder.iterdir()) == ["gemm-edge-2.json", "gemm-edge-3.json", "gemm-edge.json"]


def test_a_writer_that_is_killed_leaves_the_old_file(empty_folder: Path) -> None:
    path = empty_folder / "a.json"
    path.write_text("old")
    script = "import os, signal; os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
    script += f"from halley.io.files.save import write_atomic; write_atomic({str(path)!r}, 'new', force=True)"
    assert subprocess.run([sys.executable, "-c", script], timeout=300).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert halley(*GEMM, "-o", "a.json", "--force").code == 0
    assert json.loads(path.read_text())["kind"] == "mapping"
