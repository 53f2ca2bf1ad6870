"""A result file made once by the command line itself, and a way to run commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.running import Outcome, halley

NORM = ["gemm-layernorm", "--m", "1", "--n", "64", "--k", "4", "--chip", "edge"]


@pytest.fixture(scope="session")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A small problem whose best plan needs collectives: the result file, and what the command said."""
    folder = tmp_path_factory.mktemp("solved")
    before = os.getcwd()
    os.chdir(folder)
    try:
        outcome = halley("optimise", *NORM, "--front")
    finally:
        os.chdir(before)
    return folder / "gemm-layernorm-edge.json", outcome


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test runs in a folder of its own, as no command may litter."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
