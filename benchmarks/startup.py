"""How long Halley takes to import and to answer a small question from the command line, and how much it takes to install."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import ROOT, Measurement, environment, in_new_process

IMPORT_TARGET = 0.3
COMMAND_TARGET = 0.5
SMALL = ("optimise", "gemm", "--m", "16", "--n", "16", "--k", "16", "--chip", "edge", "--no-save")
"""A command whose search is next to nothing: what it takes is fixed cost."""

INSTALL_TARGET = 100.0
RUNS = 5
TOOLS = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "wheel", "distutils-precedence.pth")


def measurements() -> Iterator[Measurement]:
    yield Measurement("start: import halley", import_time("halley"), "s", IMPORT_TARGET)
    yield Measurement("start: the command line, before its command", import_time("halley.cli.main"), "s", IMPORT_TARGET)
    yield Measurement("start: import halley.mapping.optimise", import_time("halley.mapping.optimise"), "s", IMPORT_TARGET)
    yield Measurement("start: halley optimise gemm 16^3, edge, whole process", command_time(SMALL), "s", COMMAND_TARGET)


def import_time(module: str) -> float:
    """Median over new interpreters; the first, which fills the disk cache, does not count."""
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    times = [float(in_new_process("-c", code)) for _ in range(RUNS + 1)]
    return statistics.median(times[1:])


def command_time(words: tuple[str, ...]) -> float:
    """Median wall time [s] of a command from the start of its process to its end; the first, which fills the disk cache, does not
    count."""
    command = [sys.executable, "-c", "from halley.cli.start import main; main()", *words]
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, env=environment(ROOT / "src"), check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def install_size() -> Measurement:
    """Size of Halley and all that it needs, in a new environment; asks the package index."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-compile", str(ROOT)], check=True)
        (packages,) = home.glob("lib/python*/site-packages")
        files = [path for path in packages.rglob("*") if path.is_file() and not belongs_to_tools(path.relative_to(packages))]
        size = sum(path.stat().st_size for path in files) / 1e6
        return Measurement("start: install size of the core", size, "MB", INSTALL_TARGET)


def belongs_to_tools(path: Path) -> bool:
    """Whether the file is of the tools that every environment starts with."""
    return path.parts[0] in TOOLS or any(path.parts[0].startswith(f"{tool}-") for tool in TOOLS)
