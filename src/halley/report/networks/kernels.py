"""Tables of fitted library kernels: rows, held-out errors, baselines, intervals, parameters on a bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halley.kernels.library.fit import Judged, relative_error
from halley.kernels.library.times import KernelFits
from halley.report.table import Table


def kernels_tables(fits: KernelFits, judged: Sequence[Judged]) -> list[Table]:
    """Errors of rows held out: by family, then by kernel."""
    head = ("kernels", "rows held out", "error", "roofline, fitted", "in the interval")
    lines: list[tuple[str, ...]] = []
    for name in dict.fromkeys(item.stratum.family for item in judged):
        mine = [item for item in judged if item.stratum.family == name]
        keys = ("measured", "predicted", "baseline", "low", "high")
        joined = {key: np.concatenate([getattr(item, key) for item in mine]) for key in keys}
        inside = float(np.mean((joined["low"] <= joined["measured"]) & (joined["measured"] <= joined["high"])))
        errors = (relative_error(joined[key], joined["measured"]) for key in ("predicted", "baseline"))
        lines.append((name, str(len(joined["measured"])), *(_percent(error) for error in errors), _percent(inside)))
    families = Table(f"{fits.measured}: mean error of rows held out", head, tuple(lines), frozenset({1, 2, 3, 4}))
    titles = ("kernel", "rows", "error", "roofline, fitted", "interval", "on a bound")
    rows: list[tuple[str, ...]] = []
    for item in fits.fits:
        said = ("" if error is None else _percent(error) for error in (item.error, item.baseline))
        rows.append((str(item.stratum), str(item.rows), *said, f"{item.low:.2f} to {item.high:.2f}", ", ".join(item.on_bound)))
    return [families, Table("Each kernel", titles, tuple(rows), frozenset({1, 2, 3}))]


def kernel_remarks(fits: KernelFits) -> list[str]:
    """A warning for each parameter on a bound: it may hide an effect that the model lacks."""
    found: dict[str, int] = {}
    for item in fits.fits:
        for name in item.on_bound:
            found[f"{item.stratum.family}: {name}"] = found.get(f"{item.stratum.family}: {name}", 0) + 1
    return [f"warning: {name} is on a bound of its fit in {count} kernels" for name, count in sorted(found.items())]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
