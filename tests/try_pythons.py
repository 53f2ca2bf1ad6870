"""``make test-pythons``: the wheel in a new environment of every Python from 3.11 on that is found here.

Each installs the wheel with its dependencies and runs the README's first search. The tests themselves run on one Python alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

ROOT = Path(__file__).parents[1]
MINORS = range(11, 16)
SEARCH = ("optimise", "gemm-softmax", "--m", "512", "--n", "1024", "--k", "64", "--chip", "edge", "--no-save")


def pythons() -> dict[int, Path]:
    """By minor version: of the path, or of pyenv. One that cannot make environments does not count."""
    found: dict[int, Path] = {}
    for minor in MINORS:
        path = which(f"python3.{minor}")
        able = [*([Path(path)] if path else []), *sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))]
        for python in filter(_makes_environments, able):
            found[minor] = python
    return found


def _makes_environments(python: Path) -> bool:
    return subprocess.run([str(python), "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL).returncode == 0


def main() -> int:
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        words = ("pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--disable-pip-version-check", "--wheel-dir", folder)
        subprocess.run([sys.executable, "-m", *words], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        for minor, python in sorted(pythons().items()):
            home = Path(folder) / f"python3.{minor}"
            subprocess.run([str(python), "-m", "venv", str(home)], check=True)
            pip = (str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
            made = [subprocess.run(command, cwd=folder) for command in (pip, (str(home / "bin" / "halley"), *SEARCH))]
            right = all(each.returncode == 0 for each in made)
            faults += not right
            print(f"python3.{minor}: {'the wheel works' if right else 'expected a working wheel; see above'}", flush=True)
    return faults


if __name__ == "__main__":
    sys.exit(main())
