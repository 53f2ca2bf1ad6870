"""One result for all tests of reports, its file, and an empty folder for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.made import made_result

from halley.io.results.result import load_result, save_result
from halley.mapping.result import Result


@pytest.fixture(scope="session")
def result_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "result.json"
    save_result(made_result(), path)
    return path


@pytest.fixture(scope="session")
def result(result_file: Path) -> Result:
    """As read from the file, which sorts the memories of a level."""
    return load_result(result_file)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test runs in a folder of its own, as no command may litter."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
