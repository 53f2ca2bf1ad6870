"""Progress from Python: one bar in a notebook, one line in a terminal, the last state elsewhere."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import halley
from halley.report import progress
from halley.report.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook:
    """Stands for IPython in a notebook: what is displayed, and how often each display is updated."""

    def __init__(self, kernel: bool) -> None:
        self.shown: list[dict[str, str]] = []
        self.updates = 0
        shell = SimpleNamespace(kernel=object()) if kernel else SimpleNamespace()
        self.modules: dict[str, Any] = {"IPython": ModuleType("IPython"), "IPython.display": ModuleType("IPython.display")}
        self.modules["IPython"].get_ipython = lambda: shell
        self.modules["IPython.display"].display = self.display

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw
        assert display_id
        self.shown.append(data)

        def update(data: dict[str, str], raw: bool) -> None:
            self.updates += 1
            self.shown[-1] = data

        return SimpleNamespace(update=update)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


def notebook(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> Notebook:
    made = Notebook(kernel)
    for name, module in made.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_a_notebook_shows_one_bar(monkeypatch: pytest.MonkeyPatch, always: None, capsys: pytest.CaptureFixture[str]) -> None:
    made = notebook(monkeypatch, kernel=True)
    with ProgressBar() as bar:
        for share in (0.1, 0.5, 1.7):
            bar("best <3 s>", share)
    assert len(made.shown) == 1
    assert made.updates == 3  # two further states, and the last at the end
    assert '<progress value="1.000"' in made.shown[0]["text/html"]
    assert "best &lt;3 s&gt;" in made.shown[0]["text/html"]
    assert capsys.readouterr().out == ""


def test_each_search_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch, always: None) -> None:
    made, bar = notebook(monkeypatch, kernel=True), ProgressBar()
    for _ in range(2):
        bar("searches", 0.5)
        bar.close()
    bar.close()
    assert len(made.shown) == 2


def test_the_ipython_of_a_terminal_is_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = notebook(monkeypatch, kernel=False)
    with ProgressBar() as bar:
        bar("best 3 s", 0.5)
    assert not made.shown
    assert capsys.readouterr().out == "50 %  best 3 s\n"


def test_a_terminal_has_one_line(always: None) -> None:
    stream = Terminal()
    with ProgressBar(stream) as bar:
        bar("a long line of words", 0.25)
        bar("short", 1.0)
    lines = stream.getvalue().split("\r")[1:]
    assert stream.getvalue().count("\n") == 1
    assert [line.count("█") for line in lines] == [6, 24, 24]
    assert len(lines[1]) == len(lines[0])  # nothing of the longer line stays


def test_states_are_shown_now_and_then() -> None:
    stream = Terminal()
    with ProgressBar(stream) as bar:
        for step in range(1000):
            bar("searches", step / 1000)
    assert stream.getvalue().count("\r") < 20


def test_a_search_calls_it() -> None:
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        halley.optimise(halley.Problem(halley.build("gemm", {"m": 16, "n": 16, "k": 16}), halley.load_chip("edge")), bar)
    assert stream.getvalue().count("\n") <= 1
