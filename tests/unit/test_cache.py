"""Searched products between runs: several processes, a killed one, other versions, broken files, the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley.errors import BadInput
from halley.io import cache as module
from halley.io.cache import FILE, FOLDER_VARIABLE, KernelCache, user_cache
from halley.io.chips.load import load_chip
from halley.kernels.searched import KernelCost, Product

WRITER = """
import sys
from pathlib import Path
from halley.io.cache import KernelCache
from halley.io.chips.load import load_chip
from halley.kernels.searched import Product, KernelCost
cache, chip = KernelCache(Path(sys.argv[1])), load_chip("edge")
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    cache.add(chip, Product(number + 1, 8, 8, 1, "bf16", "bf16"), KernelCost(float(number), f"mapping {number}"))
    print(number, flush=True)
"""


def product(rows: int) -> Product:
    return Product(rows, 8, 8, 1, "bf16", "bf16")


def writer(path: Path, start: int, stop: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(start), str(stop)], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    processes = [writer(path, 0, 40), writer(path, 40, 80)]
    assert [process.wait() for process in processes] == [0, 0]
    found = KernelCache(path).costs(load_chip("edge"))
    assert {each.rows for each in found} == set(range(1, 81))
    assert found[product(8)] == KernelCost(7.0, "mapping 7")


def test_a_killed_process_loses_at_most_its_last_product(tmp_path: Path) -> None:
    path = tmp_path / FILE
    for _ in range(3):
        process = writer(path, 0, 100_000)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(10)]
        time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        told += process.stdout.readlines()
        process.wait()
        found = KernelCache(path).costs(load_chip("edge"))
        assert {each.rows for each in found} >= {int(line) + 1 for line in told if line.endswith("\n")}
        assert all(cost.mapping == f"mapping {each.rows - 1}" for each, cost in found.items())


def test_products_of_another_model_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, chip = KernelCache(tmp_path / FILE), load_chip("edge")
    cache.add(chip, product(1), KernelCost(1.0, "m"))
    monkeypatch.setattr(module, "model_key", lambda: "another")
    assert not cache.costs(chip)
    assert [(each.name, each.current, each.kernels) for each in cache.kept()] == [("edge", False, 1)]


def test_a_renamed_chip_has_the_same_products_and_a_changed_one_not(tmp_path: Path) -> None:
    from dataclasses import replace

    cache, chip = KernelCache(tmp_path / FILE), load_chip("edge")
    cache.add(chip, product(1), KernelCost(1.0, "m"))
    assert cache.costs(replace(chip, name="mine"))
    assert not cache.costs(replace(chip, static_power=1.0))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("no database, but long enough to look at" * 40, encoding="utf-8")
    with pytest.raises(BadInput, match=r"products\.sqlite: expected a file of searched kernels"):
        KernelCache(path).costs(load_chip("edge"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_is_read_only(tmp_path: Path) -> None:
    cache, chip = KernelCache(tmp_path / FILE), load_chip("edge")
    cache.add(chip, product(1), KernelCost(1.0, "m"))
    cache.path.chmod(0o444)
    cache.add(chip, product(2), KernelCost(2.0, "m"))
    assert set(cache.costs(chip)) == {product(1)}


def test_nothing_is_kept_if_the_variable_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert user_cache() is None


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert "no kernels yet" in halley("cache", "show").out
    user_cache().add(load_chip("edge"), product(1), KernelCost(1.0, "m"))
    shown = json.loads(halley("cache", "show", "--json").out)
    assert shown["chips"] == [{"name": "edge", "current": True, "kernels": 1}]
    assert "edge" in halley("cache", "show").out
    shared = tmp_path / "shared"
    shared.mkdir()
    assert halley("cache", "export", str(shared)).code == 0
    assert halley("cache", "export", str(shared)).code == 1
    assert "1 kernels removed" in halley("cache", "clear").out
    monkeypatch.setenv(FOLDER_VARIABLE, str(shared))
    assert user_cache().costs(load_chip("edge"))
