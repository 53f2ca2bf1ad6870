"""The notebooks of `examples/notebooks`: all of their code runs, and what their cells end with can be shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(name: str) -> list[Any]:
    return list(json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"])


def test_there_are_five_with_words_before_their_code() -> None:
    assert len(NOTEBOOKS) == 5
    for name in NOTEBOOKS:
        kinds = [cell["cell_type"] for cell in cells(name)]
        assert kinds[0] == "markdown"
        assert kinds.count("code") >= 3
        assert all(not cell["outputs"] for cell in cells(name) if cell["cell_type"] == "code")


@pytest.mark.medium
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(FOLDER)
    names: dict[str, Any] = {}
    for cell in cells(name):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)  # type: ignore[attr-defined]
            if value is not None:  # a notebook shows it
                shown = value._repr_svg_() if hasattr(value, "_repr_svg_") else value._repr_html_()
                assert "<svg" in shown or "<table" in shown
    assert "Traceback" not in capsys.readouterr().out
