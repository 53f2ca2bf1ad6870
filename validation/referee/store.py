"""What was found, in docs/referee.csv: the published figures, and where a run that was stopped goes on."""

from __future__ import annotations

import ast
import csv
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path

from validation.referee.problems import Problem

from halley.io.chips.load import load_chip
from halley.ir.digest import full_text
from halley.workloads import variants

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "referee.csv"

MODULES = (
    "mapping.optimise", "mapping.result", "cost.evaluate", "simulate.simulation", "simulate.truncation", "rewrite.legality",
    "rewrite.canonical",
)  # fmt: skip
"""What the referee calls. A figure depends on these modules and on all that they import, directly or not."""

INPUTS = ("workloads",)
"""Packages that only make a problem: the figure depends on the workload that they make, not on their code."""


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


def fingerprint(chip: str, problem: Problem) -> str:
    """Of all that the figures of a problem on a chip depend on: both as values, and the statements of the code behind them (no
    comments, docstrings or imports)."""
    given = problem.on(chip)
    return hashlib.sha256("\n".join([_code(), _machine(chip), *map(repr, (given, *variants(given)))]).encode()).hexdigest()[:12]


@cache
def _machine(chip: str) -> str:
    return full_text(replace(load_chip(chip), description="", sources={}))


@cache
def _code() -> str:
    """A hash of the modules behind every figure."""
    own = [Path(__file__).with_name(f"{name}.py") for name in ("compare", "neighbours")]
    texts = sorted(_statements(file.read_text(encoding="utf-8")) for file in {*own, *_behind(MODULES)})
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _behind(modules: Iterable[str]) -> set[Path]:
    """The files of modules of the package and of all that they import, without `INPUTS`."""
    left, found = [f"halley.{name}" for name in modules], dict[str, Path]()
    while left:
        name = left.pop()
        base = ROOT / "src" / Path(*name.split("."))
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if name in found or name.split(".")[1:2] == [*INPUTS] or not file.exists():
            continue
        found[name] = file
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("halley."):
                left += [str(node.module), *(f"{node.module}.{each.name}" for each in node.names)]
            elif isinstance(node, ast.Import):
                left += [each.name for each in node.names if each.name.startswith("halley.")]
    return set(found.values())


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
