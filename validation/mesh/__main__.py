"""``python -m validation.mesh [TABLE]``: attention on a mesh of tiles, run by run: published time, simulation, formulas.

TABLE has the columns of attention.csv, which is read unless another is named; rows of other kinds are left out. ``--formulas``
leaves the simulation out, which takes some seconds for a run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
from validation.kernels.compare import rank_correlation
from validation.mesh import runs
from validation.mesh.attention import FLASH
from validation.table import markdown, told

HEAD = ("run", "channels", "published", "simulation", "error", "formulas", "error", "no latencies")


def table(figures: Iterable[runs.Figure], simulated: bool) -> str:
    """Times, and their errors against the published ones; then the mean and the worst error of each kind of run, and how well the
    utilisation of all runs is ordered (Kendall's tau: 1 for the same order)."""
    rows: list[tuple[str, ...]] = []
    rates: list[tuple[float, float, float]] = []
    errors: dict[str, list[list[float]]] = {}
    for figure in figures:
        chip = runs.machine(figure)
        formula, bare = runs.formula_time(figure, chip), runs.formula_time(figure, runs.without_latency(chip))
        simulation = runs.simulated_time(figure, chip) if simulated else float("nan")
        rows.append(tuple(_row(figure, simulation, formula, bare)))
        rates.append((figure.work / figure.time, figure.work / simulation, figure.work / formula))
        if not runs.is_fitted(figure):
            kind = "FlashAttention" if figure.run.dataflow in FLASH else "FlatAttention"
            errors.setdefault(kind, []).append([abs(time / figure.time - 1) for time in (simulation, formula)])
    for kind, found in errors.items():
        for what, of in (("mean", fmean), ("worst", max)):
            first, second = (f"{of(own):.1%}" for own in zip(*found, strict=True))
            rows.append((f"{kind}, {len(found)} runs, {what}", "", "", "", first, "", second, ""))
    published, *ours = (np.array(column) for column in zip(*rates, strict=True))
    first, second = (f"{rank_correlation(own, published):.2f}" for own in ours)
    rows.append((f"all, {len(rates)} runs, Kendall's tau of utilisation", "", "", "", first, "", second, ""))
    return markdown(HEAD, rows)


def _row(figure: runs.Figure, simulation: float, formula: float, bare: float) -> Iterator[str]:
    yield figure.run.name + (" (fitted)" if runs.is_fitted(figure) else "")
    yield str(figure.channels)
    yield f"{figure.time * 1e3:.4f} ms"
    for time in (simulation, formula):
        yield f"{time * 1e3:.4f} ms"
        yield f"{time / figure.time - 1:+.1%}"
    yield f"{bare / figure.time - 1:+.1%}"


if __name__ == "__main__":
    named = [word for word in sys.argv[1:] if not word.startswith("--")]
    path = Path(named[0]) if named else runs.HERE / "attention.csv"
    sys.exit(told(lambda: table(runs.figures(path), "--formulas" not in sys.argv)))
