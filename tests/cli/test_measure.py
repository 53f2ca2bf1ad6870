"""``halley measure`` on the processor, where PyTorch is installed; what it says where it is not."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley.io.chips.kernel_tables import read_kernel_table
from halley.io.chips.operators import read_operators
from halley.io.chips.software import load_software
from halley.io.networks.nccl_tests import read_measurements

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed")
def test_without_pytorch(empty_folder: Path) -> None:
    said = halley("measure", "--device", "cpu")
    assert (said.code, said.out) == (1, "")
    assert "expected PyTorch, which runs the kernels; got none; pip install 'halley[torch]'" in said.err
    assert not (empty_folder / "measured").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--only", "gem"), "did you mean 'gemm'"),
        (("--ranks", "1"), "--ranks: expected a whole number from 2"),
        (("--time-limit", "soon"), "--time-limit"),
    ],
)
@needs_torch
def test_options_that_cannot_be(empty_folder: Path, options: tuple[str, ...], words: str) -> None:
    said = halley("measure", "--device", "cpu", *options)
    assert said.code == 1
    assert words in said.err


@needs_torch
@pytest.mark.medium
def test_devices_that_are_not_there(empty_folder: Path) -> None:
    for name in ("tpu", "cuda:99", "cuda:x"):
        said = halley("measure", "--device", name)
        assert said.code == 1
        assert "--device" in said.err


@needs_torch
@pytest.mark.medium
def test_tables_of_the_processor(empty_folder: Path) -> None:
    said = halley("measure", "--device", "cpu", "--only", "rows", "--time-limit", "15s", "-o", "mine", "--ranks", "2")
    assert said.code == 0, said.err
    assert "launch of an operator by the host" in said.out
    folder = empty_folder / "mine"
    (rows,) = read_kernel_table((folder / "kernels.csv").read_text(), "kernels.csv").values()
    operators = read_operators((folder / "operators.csv").read_text(), "operators.csv")
    assert len(rows) > 3
    assert len(operators) > 3
    assert 1e-8 < load_software(folder / "software.yaml").launch < 1e-3
    collectives = read_measurements((folder / "collectives.csv").read_text(), "collectives.csv")
    assert {row.ranks for row in collectives} == {2}
    again = halley("measure", "--device", "cpu", "--only", "rows", "--time-limit", "1ms", "-o", "mine")
    assert again.code == 0, again.err
    (more,) = read_kernel_table((folder / "kernels.csv").read_text(), "kernels.csv").values()
    assert set(map(str, more)) >= set(map(str, rows)), "nothing was lost or timed again"
    warm = halley("measure", "--device", "cpu", "--warm", "-o", "mine")
    assert warm.code == 1
    assert "measurements with the software" in warm.err


@needs_torch
@pytest.mark.medium
def test_a_signal_keeps_what_was_timed(empty_folder: Path) -> None:
    command = [sys.executable, "-m", "halley", "measure", "--device", "cpu", "--only", "rows", "-o", "mine"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(6)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("all was timed before the signal")
    assert "run it again to go on" in said
    assert (empty_folder / "mine" / "rows.json").is_file()
