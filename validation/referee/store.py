"""What was found, in docs/referee.csv: the published figures, and where a run that was stopped goes on."""

from __future__ import annotations

import ast
import csv
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "referee.csv"

DEPENDS = ("formulas", "ir", "network", "workloads", "rewrite", "cost", "mapping", "simulate")
"""The packages that a figure depends on."""

DATA = ("energy.yaml", "parts.yaml")
"""The files of the library that all chips use."""


@dataclass(frozen=True, slots=True)
class Row:
    """A problem on a chip. ``formula_us`` is that of the whole winner; ``part_us`` and ``simulated_us`` are both of the same part
    of it: of the ``iterations`` first iterations of each dim's outermost loop, or of all of it (0). ``lost``: what the winner
    takes longer in the simulation than the best there of the ``plans`` best by formula. ``reason``: why there is nothing."""

    chip: str
    problem: str
    group: str
    sizes: str
    formula_us: float = 0.0
    part_us: float = 0.0
    simulated_us: float = 0.0
    ratio: float = 0.0
    tasks: int = 0
    iterations: int = 0
    gap: float = 0.0
    plans: int = 0
    lost: float = 0.0
    reason: str = ""
    source: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.chip, self.problem

    @property
    def told(self) -> bool:
        """Whether there are two times to compare."""
        return self.ratio > 0


def fingerprint(chip: str) -> str:
    """Of all code and data behind the figures of a chip: statements and values, wherever they stand; no comments, docstrings or
    imports."""
    source = ROOT / "src" / "halley"
    own = [Path(__file__).with_name(f"{name}.py") for name in ("problems", "compare", "neighbours")]
    code = [file for part in DEPENDS for file in (source / part).rglob("*.py")]
    data = [source / "library" / name for name in (*DATA, f"chips/{chip}.yaml")]
    parts = [_statements(file.read_text(encoding="utf-8")) for file in (*code, *own)]
    parts += [file.read_text(encoding="utf-8") for file in data]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:12]


def _statements(text: str) -> str:
    """A module without docstrings and imports.

    >>> _statements("import math\\n\\ndef f():\\n    'Two.'\\n    return 2  # not 3")
    'def f():\\n    return 2'
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            texts = (each for each in body if not isinstance(each, ast.Import | ast.ImportFrom))
            node.body = [each for each in texts if not _is_text(each)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def load(path: Path = FILE) -> dict[tuple[str, str], Row]:
    """The rows by chip and problem; none without a file."""
    if not path.exists():
        return {}
    kinds = {field.name: {"float": float, "int": int}.get(str(field.type), str) for field in fields(Row)}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Row(**{name: kinds[name](value) for name, value in entry.items()}) for entry in csv.DictReader(file)]
    return {row.key: row for row in rows}


def save(rows: Iterable[Row], path: Path = FILE) -> None:
    """Write all rows, so that a reader never sees half of them."""
    half = path.with_suffix(".part")
    with half.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.9g}" if isinstance(value, float) else value for name, value in asdict(row).items()} for row in rows
        )
    half.replace(path)
