"""``halley validate``: Halley against simulators, RTL and measurements.

The comparisons lie in the folder ``validation`` of a checkout.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import halley
from halley.cli import options
from halley.cli.options import JsonOption
from halley.errors import BadInput, Fault, did_you_mean
from halley.report.table import Table
from halley.report.terminal import show

DATA = "HALLEY_DATA"
"""Environment variable that names the folder of data where ``--data`` does not."""

NAMES = (
    "timeloop", "accelforge", "scalesim", "rtl", "mesh", "dfmodel", "attention", "collectives", "operators", "kernels",
    "machines", "tiles", "megatron", "training", "serving", "area",
)  # fmt: skip
"""The comparisons of `validation.sources`."""

FAILED_EXIT_CODE = 1
"""Exit code where a tolerance is missed."""


def validate(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help=f"{', '.join(NAMES[:-1])} or {NAMES[-1]}; all if left out."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="FOLDER", help=f"Folder of tables outside the repository; by default the variable {DATA}."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare Halley with simulators, RTL and measurements; exit code 1 where a tolerance is missed.

    Example: halley validate scalesim
    """
    sources = _sources()
    if name is not None and name not in sources.SOURCES:
        raise BadInput(Fault("validate", "the name of a comparison", repr(name), did_you_mean(name, sources.SOURCES)))
    outcomes = [sources.SOURCES[item](_folder(data)) for item in ([name] if name else sources.SOURCES)]
    if json:
        options.print_json([_document(outcome) for outcome in outcomes])
    else:
        show(options.output(), [_table(outcomes)])
        for outcome in outcomes:
            for note in outcome.notes:
                options.output().print(f"{outcome.source}: {note}", markup=False, highlight=False)
    for outcome in outcomes:
        if outcome.skipped:
            text = f"{outcome.source}: skipped: {outcome.skipped}; name its folder with --data or {DATA}"
            options.remarks().print(text, markup=False)
        for line in (line for line in outcome.lines if not line.holds):
            case = line.worst_case
            text = f"{outcome.source}: {line.quantity}: missed; worst: {case.name}: {case.halley:.6g} against {case.figure:.6g}"
            options.remarks().print(text, markup=False)
    if not all(outcome.holds for outcome in outcomes):
        raise typer.Exit(FAILED_EXIT_CODE)


def _folder(data: Path | None) -> Path | None:
    """Raises BadInput: what was named is no folder."""
    named = data if data is not None else Path(os.environ[DATA]) if os.environ.get(DATA) else None
    if named is not None and not named.is_dir():
        raise BadInput(Fault("--data" if data is not None else DATA, "a folder", repr(str(named))))
    return named


def _sources() -> ModuleType:
    """The comparisons of the checkout that this package runs from, and of no other place.

    Raises BadInput: the package was installed without them.
    """
    root = Path(halley.__file__).resolve().parents[2]
    if not (root / "validation" / "sources.py").is_file():
        remedy = "run it from a checkout of the repository, installed with 'pip install -e .'"
        raise BadInput(Fault("validate", "the folder validation beside the source", "an installation without it", remedy))
    if "validation" not in sys.modules:
        spec = PathFinder.find_spec("validation", [str(root)])
        if spec is not None:
            sys.modules["validation"] = module_from_spec(spec)
    return importlib.import_module("validation.sources")


def _table(outcomes: list[Any]) -> Table:
    rows = []
    for outcome in outcomes:
        for line in outcome.lines:
            cells = (_percent(line.mean_error), _percent(line.mean), _percent(abs(line.worst_case.error)), _percent(line.worst))
            rows.append((outcome.source, line.quantity, str(len(line.cases)), *cells, "holds" if line.holds else "missed"))
        if outcome.skipped:
            rows.append((outcome.source, "", "0", "", "", "", "", "skipped"))
    head = ("source", "quantity", "cases", "mean", "allowed", "worst", "allowed", "")
    missed = frozenset(index for index, row in enumerate(rows) if row[-1] == "missed")
    return Table("Relative error against the source's figures", head, tuple(rows), frozenset({2, 3, 4, 5, 6}), missed)


def _percent(share: float) -> str:
    """A relative error; equal is said so, and that any is allowed.

    >>> _percent(0.0), _percent(0.00568), _percent(0.1196), _percent(math.inf)
    ('0 %', '0.57 %', '12.0 %', 'any')
    """
    if math.isinf(share):
        return "any"
    return "0 %" if share == 0 else f"{100 * share:.2f} %" if share < 0.01 else f"{100 * share:.1f} %"


def _finite(allowed: float) -> float | None:
    """What is allowed, as JSON: null if any error is."""
    return allowed if math.isfinite(allowed) else None


def _document(outcome: Any) -> dict[str, Any]:
    lines = [
        {
            "quantity": line.quantity,
            "cases": len(line.cases),
            "mean_error": line.mean_error,
            "mean_error_allowed": _finite(line.mean),
            "bias": line.bias,
            "worst_error": abs(line.worst_case.error),
            "worst_error_allowed": _finite(line.worst),
            "worst_case": {"name": line.worst_case.name, "halley": line.worst_case.halley, "figure": line.worst_case.figure},
            "holds": line.holds,
        }
        for line in outcome.lines
    ]
    return {"source": outcome.source, "skipped": outcome.skipped, "lines": lines, "notes": list(outcome.notes)}
