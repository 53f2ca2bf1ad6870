"""GPT3-1T on 1024 chips in DFModel's space (whole axes, its assumptions), to the proven optimum: CPU time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import Measurement
from halley.dfmodel import plan as dfmodel
from halley.dfmodel.plan import DFModelProblem, best_training
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.spatial import chip as spatial

CASES = (
    ("1024 x h100, nvlink 8, ib", False, 0.1),
    ("dfmodel:tpu-v4/torus-3d/hbm3/nvlink-4", False, 0.1),
    ("dfmodel:sn30/dgx-1/hbm3/nvlink-4", True, None),
    ("dfmodel:sn30/torus-3d/hbm3/nvlink-4", True, None),
    ("dfmodel:wse-2/torus-2d/ddr4/nvlink-4", True, None),
)
"""System, whether its chips fuse kernels, target [s]."""


def measurements() -> Iterator[Measurement]:
    shape = load_model("gpt3-1t")
    for name, fused, target in CASES:
        problem = DFModelProblem(shape, load_system(name), 2048, shape.sequence, fused)
        how = "best partitions of 41 kernels" if fused else "kernel by kernel"
        yield Measurement(f"GPT3-1T on {name}, {how}", _least(problem), "s", target)


def _least(problem: DFModelProblem, repeats: int = 2) -> float:
    """CPU time [s] with nothing remembered from runs before but compiled code."""
    found = []
    for _ in range(repeats + 1):
        spatial._choices.cache_clear()
        dfmodel._graph.cache_clear()
        start = time.process_time()
        best_training(problem)
        found.append(time.process_time() - start)
    return min(found[1:])
