"""Fits the parameters of serving software to the fitting half of the rows: ``python -m validation.serving.fit FOLDER``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from validation.serving.predict import Predictor
from validation.serving.rows import Measured, halves, measured

from halley.serving.software import ServingSoftware

UNITS = {"step": 1e-3, "user": 1e-5, "gap": 1e-6, "collective": 1e-6, "layer": 1e-3, "memory": 1.0, "matrix": 1.0}
BOUNDS = {
    "step": (0.8, 0.0, 15.0),
    "user": (0.8, 0.0, 20.0),
    "gap": (1.5, 0.5, 8.0),
    "collective": (6.0, 3.0, 12.0),
    "layer": (0.5, 0.0, 2.0),
    "memory": (0.95, 0.7, 1.0),
    "matrix": (0.85, 0.55, 1.0),
}
"""Where each number starts, and the least and the most that it may be. Start-ups of collectives of a server's own kernels are 3
to 12 us (the least times of one-shot all-reduces in the kernel tables); gaps between kernels some two."""
SHARES = ("step", "user", "gap", "collective", "memory", "matrix")
"""Numbers that are fitted where no kernel of the framework was measured."""
LAUNCHES = ("step", "user", "gap", "collective", "layer")
"""Numbers that are fitted beside measured kernels. In a closed loop a step with prompts has more tokens than a graph, and its
kernels are launched one by one: the time of a layer explains what a share of the matrix rate would hide, also on smaller
chips."""
NETWORK = {"vllm": 0.51, "trtllm": 0.44}
"""Share of the links' bandwidth that all-reduces reach in the tables of kernels (`validation.serving.all_reduce`), by software
with measured kernels. Those of 2024 had other kernels. Of SGLang there are rows of DeepSeek alone, whose attention is not taken
from the tables: the new numbers were no better, and worse for CloudMatrix384."""
ROWS = 100
"""Rows that are fitted at most, evenly drawn: more change nothing."""

FRONT = {"vllm": (0.032, 0.0011, 0.0), "trtllm": (0.020, 0.0011, 0.133), "sglang": (0.112, 0.0041, 0.0)}
"""Time of a request in the front end, more of it for each request in flight, and for models with experts [s]
(`validation.serving.front`)."""

FRONT_TIMES = ("request", "request_user", "request_experts")

FITS = {
    "vllm-2024": ("vllm", "static", ("A100", "H100")),
    "trtllm-2024": ("trtllm", "static", ("A100", "H100")),
    "vllm": ("vllm", "agg", ("H100", "B200", "GB200")),
    "trtllm": ("trtllm", "agg", ("H100", "B200", "GB200")),
    "sglang": ("sglang", "agg", ("H100", "B200", "GB200")),
}
"""By name of the software, framework, mode and chips of its rows."""


def names_of(name: str) -> tuple[str, ...]:
    """Numbers that are fitted for this software."""
    return LAUNCHES if name in NETWORK else SHARES


def software(name: str, values: NDArray[np.float64]) -> ServingSoftware:
    """The software with these parameters."""
    names = names_of(name)
    given = {key: float(value) * UNITS[key] for key, value in zip(names, values, strict=True)}
    given |= dict(zip(FRONT_TIMES, FRONT.get(name, (0.0, 0.0, 0.0)), strict=True))
    given |= {"network": NETWORK.get(name, 1.0), "graphs": 512}
    kernels = name if name in NETWORK else ""
    return ServingSoftware(name=name, budget=8192, users=1024, share=0.95, reserve=1e9, kernels=kernels, **given)


def residuals(values: NDArray[np.float64], name: str, rows: Sequence[Measured]) -> NDArray[np.float64]:
    """Logarithms of predicted over measured times."""
    made = Predictor(lambda framework: software(name, values))
    found = []
    for row in rows:
        if row.mode == "static":
            found.append(np.log(made.static(row) / (row.latency or 1.0)))
        else:
            found.append(np.log(made.closed(row).tpot / (row.tpot or 1.0)))
    return np.array(found)


def rows_of(folder: Path, name: str) -> tuple[list[Measured], list[Measured]]:
    """Rows that the software is fitted to, and that judge it: of plain dtypes of the cache."""
    framework, mode, chips = FITS[name]
    kept = [row for row in measured(folder, (mode,)) if row.gpu in chips and row.model.cache in ("bf16", "fp8")]
    fitted, judged = halves(row for row in kept if row.mode == mode)
    return [[row for row in part if row.framework == framework] for part in (fitted, judged)]  # type: ignore[return-value]


def main(folder: Path, names: Sequence[str]) -> None:
    """Prints the parameters of each software and its errors on both halves."""
    for name in names:
        fitted, judged = rows_of(folder, name)
        names = names_of(name)
        start, low, high = np.array([BOUNDS[key] for key in names]).T
        some = fitted[:: max(len(fitted) // ROWS, 1)]
        found = least_squares(
            residuals, start, args=(name, some), bounds=(low, high), loss="soft_l1", f_scale=0.1, diff_step=0.05, max_nfev=14,
            x_scale=start,
        )  # fmt: skip
        print(name, {key: round(float(value), 4) for key, value in zip(names, found.x, strict=True)})
        for half, rows in (("fitted", fitted), ("judged", judged)):
            errors = np.abs(np.expm1(residuals(found.x, name, rows)))
            if len(rows):
                print(f"  {half}: {len(rows)} rows, median {np.median(errors):.1%}, mean {errors.mean():.1%}")
            for pair in sorted({(row.pair, row.model.weights) for row in rows}):
                mine = residuals(found.x, name, [row for row in rows if (row.pair, row.model.weights) == pair])
                print(f"    {pair} {len(mine)} bias {np.median(mine):+.3f} median {np.median(np.abs(mine)):.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(FITS))
