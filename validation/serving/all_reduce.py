"""The share of the links' bandwidth that all-reduces of serving frameworks reach: ``python -m validation.serving.all_reduce
FOLDER``.

The table times the frameworks' all-reduces on one node, apart from any server; its sizes are numbers of elements of two bytes,
as a comparison with NCCL's times in ``measured_collectives.csv`` shows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from validation.outcome import read_figures

from halley.io.systems.system import load_system
from halley.ir.mapping import CollectiveKind
from halley.serving.layout import ReplicaNetwork

TABLE = "kernels/all_reduce_custom.csv"
CHIPS = {"A100 SXM": "a100", "H100 SXM": "h100", "B200 SXM": "b200"}
"""Chips of the table whose nodes have a switch."""
LARGEST = 1e8
"""Bytes of the largest all-reduce of a step."""
WORD = 2


def all_reduces(folder: Path, framework: str) -> dict[str, list[tuple[float, float]]]:
    """By chip: time of the best schedule at the links' bandwidth, and measured time [s], of kernels that a graph replays."""
    found: dict[str, list[tuple[float, float]]] = {}
    networks: dict[tuple[str, int], ReplicaNetwork] = {}
    for row in read_figures(folder / TABLE, ("gpu", "framework", "kernel_source")):
        size, ranks = WORD * float(row["message_size"]), int(row["num_gpus"])
        if row["framework"] != framework or row["gpu"] not in CHIPS or "eager" in row["kernel_source"] or size > LARGEST:
            continue
        chip = CHIPS[row["gpu"]]
        if (chip, ranks) not in networks:
            networks[chip, ranks] = ReplicaNetwork(load_system(f"{ranks} x {chip}, nvlink {ranks}"), {})
        ideal = networks[chip, ranks].collective(CollectiveKind.ALL_REDUCE, ranks, 1, size, 0.0)
        found.setdefault(chip, []).append((float(ideal), float(row["latency_us"]) * 1e-6))
    return found


def fitted(rows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Start-up [s] and share that fit best."""
    ideal, measured = np.array(rows).T

    def errors(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.log((values[0] * 1e-6 + ideal / values[1]) / measured))

    found = least_squares(errors, [4.0, 0.5], bounds=([0.1, 0.05], [30.0, 1.0]), loss="soft_l1", f_scale=0.2).x
    return float(found[0]) * 1e-6, float(found[1])


def error(rows: Sequence[tuple[float, float]], startup: float, share: float) -> float:
    """Mean relative error."""
    ideal, measured = np.array(rows).T
    return float(np.abs((startup + ideal / share) / measured - 1).mean())


def main(folder: Path) -> None:
    """Prints the share of each framework, its error, and the error on each chip when the others are fitted."""
    for framework in ("vllm", "trtllm", "sglang"):
        known = all_reduces(folder, framework)
        every = [row for rows in known.values() for row in rows]
        startup, share = fitted(every)
        before = error(every, startup, 1.0)
        print(
            f"{framework}: start-up {startup * 1e6:.1f} us, share {share:.2f}, error {error(every, startup, share):.0%}", end=""
        )
        print(f" ({before:.0%} at the full bandwidth)")
        for chip, rows in known.items():
            others = fitted([row for name, some in known.items() if name != chip for row in some])
            print(f"    {chip} by the others: {error(rows, *others):.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
