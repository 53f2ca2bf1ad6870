"""The wheel: its files, its metadata, and that it runs where nothing else of the repository is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMOKE = (
    ("--version",),
    ("chips", "edge"),
    ("import", "llama3-8b"),
    ("optimise", "gemm", "--m", "64", "--n", "64", "--k", "64", "--chip", "edge", "--no-baselines", "--no-save"),
    ("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-h100"),
)
"""Commands that read chips, models, systems and fits of the library."""


def clean() -> dict[str, str]:
    """The environment without the source of the repository."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source. Skipped where the build back end is neither installed nor found in an index."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--wheel-dir", str(folder)]
    try:
        made = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=clean(), timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip("no index answers")
    if made.returncode and re.search(
        r"No module named pip|No matching distribution found for hatchling|ConnectionError", made.stderr
    ):
        pytest.skip("no build back end")
    assert made.returncode == 0, made.stderr
    (path,) = folder.glob("halley-*.whl")
    return path


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode("utf-8"))


@pytest.mark.medium
def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Chips, models, networks, systems, fits and the parts of reports too, and nothing beside the package."""
    source = ROOT / "src"
    expected = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        others = {name.split("/", 1)[1] for name in archive.namelist() if ".dist-info/" in name}
    assert found == expected
    assert sum(name.endswith(".yaml") for name in found) > 100
    assert {"entry_points.txt", "licenses/LICENSE"} <= others


@pytest.mark.medium
def test_the_metadata_of_the_wheel(wheel: Path) -> None:
    told, given = metadata(wheel), project()
    assert (told["Name"], told["Version"]) == (given["name"], given["version"])
    assert told["Summary"] == given["description"]
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == given["requires-python"] == ">=3.11"
    assert set(told.get_all("Classifier", [])) == set(given["classifiers"])  # type: ignore[call-overload]
    assert set(told.get_all("Provides-Extra", [])) == set(given["optional-dependencies"])  # type: ignore[call-overload]
    needed = {re.split(r"[><=;\[ ]", item)[0] for item in told.get_all("Requires-Dist", []) if "extra ==" not in item}
    assert {name.lower() for name in needed} == {"numpy", "pydantic", "pyyaml", "rich", "typer"}
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_classifiers_are_those_of_supported_versions() -> None:
    words = project()["classifiers"]
    assert isinstance(words, list)
    versions = [word.rsplit(" ", 1)[1] for word in words if re.search(r"Python :: 3\.\d+$", word)]
    assert versions[0] == "3.11"
    assert versions == [f"3.{number}" for number in range(11, 11 + len(versions))]
    assert not any(word.startswith("License ::") for word in words)  # the expression says it


def smoke(python: Path, folder: Path) -> None:
    """Run the commands from a folder in which there is no source."""
    program = str(python.with_name("halley"))
    for words in SMOKE:
        made = subprocess.run([program, *words], capture_output=True, text=True, check=False, cwd=folder, env=clean())
        assert made.returncode == 0, f"{words}: {made.stderr}"
    where = subprocess.run(
        [python, "-c", "import halley; print(halley.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=clean(),
    )
    assert Path(where.stdout.strip()).is_relative_to(folder)


@pytest.mark.medium
def test_the_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, which borrows the dependencies of this one."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(words, check=True, capture_output=True, env=clean())
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed), encoding="utf-8")
    smoke(python, tmp_path)


@pytest.mark.slow
def test_the_wheel_installs_with_its_dependencies(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, with what an index has: needs one."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    made = subprocess.run([python, "-m", "pip", "install", str(wheel)], capture_output=True, text=True, check=False, env=clean())
    if made.returncode and re.search(r"No matching distribution|ConnectionError", made.stderr):
        pytest.skip("no index with the dependencies")
    assert made.returncode == 0, made.stderr
    smoke(python, tmp_path)
