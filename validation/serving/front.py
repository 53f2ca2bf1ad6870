"""Fits the time of requests in the front end of a server to the fitting half of the rows: ``python -m validation.serving.front
FOLDER``.

.. math:: T = T_e + f + g u + f_e e

Symbols: T [s] measured time to first token of a closed loop, T_e [s] that of the event simulation without a front end, u [1]
users, f, g [s] front end, f_e [s] more of it for models with experts (e = 1).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from validation.serving.compare import closed_loop_of, closed_rows
from validation.serving.predict import Predictor
from validation.serving.rows import Measured

from halley.io.software import load_software
from halley.serving.software import ServingSoftware

LONGEST = 5.0
"""Times to first token [s] up to which rows are fitted: in those above, requests wait for the cache."""
FRAMEWORKS = ("vllm", "trtllm", "sglang")


def without_front_end(framework: str) -> ServingSoftware:
    return replace(load_software(framework), request=0.0, request_user=0.0, request_experts=0.0)


def fits(row: Measured) -> bool:
    """Rows that are fitted: of servers whose ranks do not hold prompts back for each other, and of SGLang those that state a
    version; the others start up to 1.6 s later, with more than 16 users 7 s later."""
    return bool(row.ttft) and row.layout.dp == 1 and (row.framework != "sglang" or row.version != "")


def main(folder: Path) -> None:
    """Prints the three times of each framework, and its errors."""
    made = Predictor(without_front_end)
    for framework in FRAMEWORKS:
        rows = [row for row in closed_rows(folder)[0] if row.framework == framework and fits(row)]
        loops = [closed_loop_of(row, made) for row in rows]
        loops = [loop for loop in loops if max(loop.simulated.ttft.mean, loop.row.ttft or 0.0) < LONGEST]
        inside = np.array([loop.simulated.ttft.mean for loop in loops])
        given = np.array([loop.row.ttft for loop in loops], dtype=np.float64)
        experts = [float(loop.row.experts) for loop in loops]
        both = 0 < sum(experts) < len(experts) and framework != "vllm"
        columns = np.array([[1.0, float(loop.row.batch), each * both] for loop, each in zip(loops, experts, strict=True)])

        def errors(
            values: np.ndarray, inside: np.ndarray = inside, columns: np.ndarray = columns, given: np.ndarray = given
        ) -> np.ndarray:
            return np.asarray(np.log((inside + columns @ values) / given))

        found = least_squares(
            errors, [0.02, 1e-4, 1e-4], loss="soft_l1", f_scale=0.1, bounds=(0, np.inf), x_scale=[1e-2, 1e-4, 1e-2]
        ).x
        relative = np.abs(np.expm1(errors(found)))
        print(
            f"{framework}: {len(loops)} rows, {np.round(found, 4).tolist()}, median {np.median(relative):.1%}, mean"
            f" {relative.mean():.1%}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
