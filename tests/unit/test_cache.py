"""Searched kernels between runs: several processes, a killed one, other versions, broken files, shares, the command."""

from __future__ import annotations

import ast
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.running import halley

import halley as halley_package
from halley.errors import BadInput
from halley.io import cache as module
from halley.io.cache import (
    FILE,
    FOLDER_VARIABLE,
    MODEL,
    SHARED_VARIABLE,
    KernelCache,
    SharedKernels,
    model_key,
    user_cache,
    user_store,
    without_docstrings,
)
from halley.io.chips.load import load_chip
from halley.kernels.groups import GroupKernel, pattern_of
from halley.kernels.searched import AttentionShape, KernelCost, Product, SearchedKernels
from halley.workloads.mlp import gemm_gelu_gemm

SOURCE = Path(halley_package.__file__).parent

WRITER = """
import sys
from collections.abc import Callable
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


def test_several_processes_write_at_once_and_one_reads(tmp_path: Path) -> None:
    """The file is new to all of them. A reader sees whole kernels only."""
    path = tmp_path / FILE
    processes = [writer(path, 20 * number, 20 * number + 20) for number in range(4)]
    cache, chip = KernelCache(path), load_chip("edge")
    while any(process.poll() is None for process in processes):
        found = cache.costs(chip)
        assert all(cost == KernelCost(each.rows - 1.0, f"mapping {each.rows - 1}") for each, cost in found.items())
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 4
    assert {each.rows for each in cache.costs(chip)} == set(range(1, 81))


def test_a_killed_process_loses_at_most_its_last_product(tmp_path: Path) -> None:
    path = tmp_path / FILE
    for _ in range(3):
        process = writer(path, 0, 100_000)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(10)]
        time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        told += process.communicate()[0].splitlines(keepends=True)
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


def test_kernels_of_every_kind(tmp_path: Path) -> None:
    """A group that no mapping fits takes infinitely long."""
    cache, chip = KernelCache(tmp_path / FILE), load_chip("edge")
    found = pattern_of(gemm_gelu_gemm(4, 5, 6), ["expand"], ["activate"])
    assert found is not None
    kernels = {
        product(3): KernelCost(1.0, "one"),
        AttentionShape(8, 8, 2, 1, 4, 4, True, "bf16"): KernelCost(2.0, "two"),
        GroupKernel(found.pattern, (4, 5, 6)).shape: KernelCost(3.0, "three"),
        GroupKernel(found.pattern, (8, 5, 6)).shape: KernelCost(math.inf, ""),
    }
    for shape, cost in kernels.items():
        cache.add(chip, shape, cost)
    assert cache.costs(chip) == kernels
    assert [each.kernels for each in cache.kept()] == [4]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("no database, but long enough to look at" * 40, encoding="utf-8")
    with pytest.raises(BadInput, match=r"products\.sqlite: expected a file of searched kernels"):
        KernelCache(path).costs(load_chip("edge"))


def test_a_file_with_a_broken_page_is_named(tmp_path: Path) -> None:
    """The header is in order, what follows is not: as after a fault of the disk."""
    cache, chip = KernelCache(tmp_path / FILE), load_chip("edge")
    for rows in range(1, 200):
        cache.add(chip, product(rows), KernelCost(1.0, "m" * 100))
    content = bytearray(cache.path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    cache.path.write_bytes(content)
    with pytest.raises(BadInput, match=r"products\.sqlite: expected a file of searched kernels; got .*; delete the file"):
        cache.costs(chip)
    with pytest.raises(BadInput, match="delete the file"):
        cache.add(chip, product(1000), KernelCost(1.0, "m"))


def test_shares_are_read_and_never_written(tmp_path: Path) -> None:
    chip, own, first, second = load_chip("edge"), *(KernelCache(tmp_path / name / FILE) for name in ("own", "first", "second"))
    own.add(chip, product(1), KernelCost(1.0, "own"))
    for rows in (1, 2):
        first.add(chip, product(rows), KernelCost(2.0, "first"))
    for rows in (1, 2, 3):
        second.add(chip, product(rows), KernelCost(3.0, "second"))
    shares = [KernelCache(tmp_path / f"{name}.sqlite") for name in ("first", "second")]
    first.export(shares[0].path)
    second.export(shares[1].path)
    before = [share.path.read_bytes() for share in shares]
    store = SharedKernels(own, shares)
    assert [store.costs(chip)[product(rows)].mapping for rows in (1, 2, 3)] == ["own", "first", "second"]
    store.add(chip, product(4), KernelCost(4.0, "own"))
    assert set(own.costs(chip)) == {product(1), product(4)}
    assert [share.path.read_bytes() for share in shares] == before
    assert sorted(path.name for path in tmp_path.glob("*.sqlite*")) == ["first.sqlite", "second.sqlite"]
    alone = SharedKernels(None, shares)
    alone.add(chip, product(5), KernelCost(5.0, "m"))
    assert set(alone.costs(chip)) == {product(1), product(2), product(3)}


READER = """
import os, sys
from collections.abc import Callable
from pathlib import Path
from halley.io.cache import KernelCache, SharedKernels
from halley.io.chips.load import load_chip
store, chip = SharedKernels(None, [KernelCache(Path(sys.argv[1]))]), load_chip("edge")
store.costs(chip)
os.setuid(65534)
print(len(store.costs(chip)), os.access(sys.argv[1], os.W_OK), os.access(Path(sys.argv[1]).parent, os.W_OK))
"""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become a user without write access")
def test_a_share_in_a_folder_without_write_access() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache, share = KernelCache(Path(folder) / "own" / FILE), Path(folder) / "share.sqlite"
        cache.add(load_chip("edge"), product(1), KernelCost(1.0, "m"))
        cache.export(share)
        share.chmod(0o444)
        Path(folder).chmod(0o555)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", READER, str(share)], capture_output=True, text=True, env=environment)
        assert (done.stdout, done.stderr) == ("1 False False\n", "")


def test_a_share_that_is_missing_or_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert user_store() is None
    monkeypatch.setenv(SHARED_VARIABLE, os.pathsep.join(["", str(tmp_path)]))
    with pytest.raises(BadInput, match=r"products\.sqlite: expected a file of searched kernels; got none"):
        user_store().costs(load_chip("edge"))
    (tmp_path / FILE).write_bytes(b"broken" * 1000)
    with pytest.raises(BadInput, match=f"leave its folder out of {SHARED_VARIABLE}"):
        user_store().costs(load_chip("edge"))


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
    monkeypatch.setenv(SHARED_VARIABLE, str(shared))
    assert user_store().costs(load_chip("edge"))
    shown = json.loads(halley("cache", "show", "--json").out)
    assert (shown["chips"], [each["chips"][0]["kernels"] for each in shown["shared"]]) == ([], [1])
    assert "read only" in halley("cache", "show").out


@pytest.mark.parametrize("kind", ["none", "a file"])
def test_an_export_to_no_folder_names_the_folder(kind: str, tmp_path: Path) -> None:
    """The user's own file is in order, and no advice is to delete it."""
    cache, target = KernelCache(tmp_path / "own" / FILE), tmp_path / "target"
    cache.add(load_chip("edge"), product(1), KernelCost(1.0, "m"))
    if kind == "a file":
        target.write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match=rf"^{target}: expected an existing folder; got {kind}; create it, or name another$"):
        cache.export(target / FILE)


def test_an_export_that_fails_leaves_the_copy_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, share = KernelCache(tmp_path / "own" / FILE), KernelCache(tmp_path / FILE)
    cache.add(load_chip("edge"), product(1), KernelCost(1.0, "m"))
    cache.export(share.path)
    cache.add(load_chip("edge"), product(2), KernelCost(1.0, "m"))
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "replace", raised(OSError("no space left")))
        with pytest.raises(
            BadInput, match=rf"^{share.path}: expected a file that can be written; got no space left; free some space"
        ):
            cache.export(share.path)
    assert set(share.costs(load_chip("edge"))) == {product(1)}
    cache.export(share.path)
    assert set(share.costs(load_chip("edge"))) == {product(1), product(2)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", FILE]


def raised(error: Exception) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


def test_a_file_in_place_of_the_folder_is_named_before_any_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kernels"
    file.write_text("mine", encoding="utf-8")
    monkeypatch.setenv(FOLDER_VARIABLE, str(file))
    words = f"{file}: expected a folder for searched kernels; got a file; set {FOLDER_VARIABLE} to a folder"
    with pytest.raises(BadInput, match=words):
        SearchedKernels(load_chip("edge"), store=user_store())
    shown = halley("cache", "show")
    assert (shown.code, "expected a folder for searched kernels" in shown.err) == (1, True)


def test_the_command_names_a_share_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(SHARED_VARIABLE, str(tmp_path / "none"))
    shown = halley("cache", "show")
    assert (shown.code, "expected a file of searched kernels; got none" in shown.err.replace("\n", " ")) == (1, True)


def test_a_search_goes_on_where_its_kernels_cannot_be_kept(tmp_path: Path) -> None:
    """The folder is lost between two kernels: those found stay known, and the store says why they are not kept."""
    store = SharedKernels(KernelCache(tmp_path / "own" / FILE), ())
    kernels, shapes = SearchedKernels(load_chip("edge"), store=store), [product(rows) for rows in (1, 2, 3)]
    kernels.search(shapes[0])
    assert store.fault is None
    shutil.rmtree(tmp_path / "own")
    (tmp_path / "own").write_text("a file", encoding="utf-8")
    for shape in shapes[1:]:
        kernels.search(shape)
    assert kernels.known.keys() == set(shapes)
    assert "expected a file of searched kernels that can be written" in str(store.fault)


FULL = """
import resource, sys
from collections.abc import Callable
from pathlib import Path
from halley.io.cache import KernelCache, SharedKernels
from halley.io.chips.load import load_chip
from halley.kernels.searched import Product, KernelCost
store, chip = SharedKernels(KernelCache(Path(sys.argv[1])), ()), load_chip("edge")
store.add(chip, Product(1, 8, 8, 1, "bf16", "bf16"), KernelCost(1.0, "m"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
store.add(chip, Product(2, 8, 8, 1, "bf16", "bf16"), KernelCost(1.0, "m" * (1 << 17)))
print(store.fault)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits of files are those of POSIX")
def test_a_full_disk_loses_no_kernel_that_was_kept(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FULL, str(tmp_path / FILE)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "expected a file of searched kernels that can be written" in done.stdout, done.stderr
    assert "delete" not in done.stdout
    assert set(KernelCache(tmp_path / FILE).costs(load_chip("edge"))) == {product(1)}


# --- versions -----------------------------------------------------------------------------------------------------------


def model_in(folder: Path, changed: str, before: str, after: str) -> Path:
    """A copy of the model with a change in one file."""
    for package in MODEL:
        shutil.copytree(SOURCE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / changed
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    return folder


def test_a_changed_docstring_keeps_the_kernels_and_changed_code_does_not(tmp_path: Path) -> None:
    file, said, code = "formulas/timing.py", '    """Time', "    return "
    assert model_key(model_in(tmp_path / "words", file, said, '    """A longer\n    time')) == model_key()
    assert model_key(model_in(tmp_path / "code", file, code, "    return 2 * ")) != model_key()


def test_only_docstrings_are_left_out() -> None:
    """Of every file of the model, the lines of statements that are a string alone."""
    for path in (path for package in MODEL for path in (SOURCE / package).rglob("*.py")):
        source = path.read_bytes()
        words = [
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ]
        said = {line for node in words if isinstance(node.value.value, str) for line in range(node.lineno, node.end_lineno + 1)}
        lines = source.splitlines(keepends=True)
        assert without_docstrings(source) == b"".join(text for line, text in enumerate(lines, 1) if line not in said), path
