"""Ctrl-C at moments where the exception that Python makes of it is lost: each is chosen, none is left to timing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import halley

from halley.cli import solve
from halley.cli.plans import plan
from halley.mapping.optimise import optimise
from halley.training.search.joint import best_joint_plan


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Signals have their default effects, also where the tests run under nohup, which ignores one of them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


DROPPED = """
import atexit, signal, sys

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python cannot raise what comes of it here: it prints and forgets it

class AtImport:
    def find_spec(self, name, *_):
        if name == "{module}":
            Dropped()

{setup}
sys.meta_path.insert(0, AtImport())
from halley.cli.start import main
main()
"""

AT_WORK = "from halley.cli import options; show = options.output; options.output = lambda: Dropped() and show()"


def command(module: str, setup: str) -> subprocess.CompletedProcess[str]:
    """`halley chips` with Ctrl-C where a module is about to be loaded, or as in the set-up."""
    script = DROPPED.format(module=module, setup=setup)
    return subprocess.run([sys.executable, "-c", script, "chips"], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("module", "setup"),
    [
        pytest.param("typer", "", id="the command line is loaded"),
        pytest.param("halley.cli.mappings.chips", "", id="the command is loaded"),
        pytest.param("typer", "signal.signal(signal.SIGINT, signal.SIG_IGN)", id="the parent had Ctrl-C ignored"),
        pytest.param("", AT_WORK, id="the command is at work"),
    ],
)
def test_ctrl_c_ends_the_command_in_words(module: str, setup: str) -> None:
    outcome = command(module, setup)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (130, "", "halley: interrupted\n")


def test_ctrl_c_after_the_answer_changes_nothing() -> None:
    outcome = command("", "atexit.register(signal.raise_signal, signal.SIGINT)")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "edge" in outcome.stdout


def interrupt_and_lose_it() -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_search_asks_at_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(problem: Any, progress: solve.SearchProgressBar) -> Any:
        interrupt_and_lose_it()
        return optimise(problem, progress)

    monkeypatch.setattr(solve, "optimise", search)
    outcome = halley("optimise", "gemm", "--m", "64", "--n", "64", "--k", "64", "--chip", "edge", "--no-save")
    assert outcome.code == 130
    assert "Ctrl-C before the first one" in outcome.err


def test_ctrl_c_ends_searches_that_would_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def search(problem: Any, progress: solve.SearchProgressBar) -> Any:
        result = optimise(problem, progress)
        searched.append(problem.chip.name)
        interrupt_and_lose_it()
        return result

    monkeypatch.setattr(solve, "optimise", search)
    words = ["compare", "embedding", "--tokens", "9", "--vocabulary", "4", "--width", "3", "--chip", "edge", "--chip", "cloud"]
    outcome = halley(*words, "--json")
    assert (outcome.code, searched, len(outcome.json["answers"])) == (3, ["edge"], 1)
    assert "halley: interrupted; 1 of 2 searches finished" in outcome.err


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_search_with_the_best_so_far(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(problem: Any, progress: solve.SearchProgressBar) -> Any:
        def after_a_mapping(text: str, share: float) -> None:
            if share > 0:
                signal.raise_signal(getattr(signal, name))
            progress(text, share)

        return optimise(problem, after_a_mapping)

    monkeypatch.setattr(solve, "optimise", search)
    path = tmp_path / "best.json"
    words = ["optimise", "gemm-softmax", "--m", "64", "--n", "64", "--k", "64"]
    outcome = halley(*words, "--chip", "edge", "--no-baselines", "-o", str(path))
    assert outcome.code == 3, outcome.err
    assert "stopped early: interrupted" in outcome.out
    certificate = json.loads(path.read_text())["certificate"]
    assert (certificate["status"], certificate["bound"] <= certificate["value"]) == ("limit", True)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_before_kernels_are_searched_gives_a_plan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first search of a kernel: the plan that is best by bounds, with times from formulas, is written and in order."""

    def search(problem: Any, progress: solve.SearchProgressBar, limit: float | None, store: Any, workers: int) -> Any:
        def at_the_first_kernel(text: str, share: float) -> None:
            if text.startswith("searches"):
                signal.raise_signal(getattr(signal, name))
            progress(text, share)

        return best_joint_plan(problem, at_the_first_kernel, limit, None, workers)

    monkeypatch.setattr(plan, "best_joint_plan", search)
    path = tmp_path / "plan.json"
    words = ["plan", "llama-68m", "--system", "2 x edge, nvlink-5 2", "--batch", "4", "--sequence", "64", "--kernels", "searched"]
    outcome = halley(*words, "-o", str(path))
    assert outcome.code == 3, outcome.err
    assert "stopped early: the best so far, with a true bound" in outcome.out
    assert "kernels searched on edge, 100.0 % of their time by formula" in " ".join(outcome.out.split())
    saved = json.loads(path.read_text())
    assert saved["answer"]["by_formula"] is True
    assert 0 < saved["certificate"]["bound"] <= saved["certificate"]["value"]
    assert halley("check", str(path), "--no-search").code == 0
    assert "its time comes from a formula" in " ".join(halley("show", str(path), "--op", "down").out.split())


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_before_any_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        signal.raise_signal(getattr(signal, name))

    monkeypatch.setattr(solve, "optimise", interrupted)
    outcome = halley("optimise", "gemm", "--m", "64", "--n", "64", "--k", "64", "--chip", "edge", "--no-save")
    assert (outcome.code, outcome.err) == (130, "halley: interrupted\n")


def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom halley.cli import interrupts\n"
    script += "interrupts.set_handlers(interrupts.leave)\nsignal.raise_signal(signal.SIGHUP)\nprint('goes on')"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (outcome.returncode, outcome.stdout) == (0, "goes on\n")
