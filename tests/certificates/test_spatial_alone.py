"""Partitions beside kernels that run alone on the whole chip: the search against every chain, by the oracle of `test_spatial`."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from tests.certificates.test_spatial import CASES, MODELS, _loop, best_of_all_chains, drawn

from halley.errors import BadInput
from halley.spatial.chip import HALLEY, Engine, Kernel, SpatialChip, SpatialGraph, SpatialProblem

loop = _loop


def variegated(problem: SpatialProblem, seed: int) -> SpatialProblem:
    """The same with kernels that may run alone, or must; tensors that spread on their way, and that readers wait for."""
    draw = random.Random(seed)
    kernels = []
    for kernel in problem.graph.kernels:
        alone = draw.choice((math.inf, 10.0, 60.0, 250.0))
        cycles = draw.choice((1.0, 2.5))
        kernels.append(replace(kernel, cycles=cycles, unfused_time=alone, unfused=alone < math.inf and draw.random() < 0.2))
    tensors = tuple(
        replace(
            tensor,
            gathered_bytes=draw.choice((0.0, 0.0, 150.0)),
            needed_whole=draw.random() < 0.2,
            least_read=draw.choice((math.inf, 0.0)),
        )
        for tensor in problem.graph.tensors
    )
    # no kernel takes less alone than what it reads and does on the whole chip
    fair = [max(k.unfused_time, *(t.bytes for t in tensors if p in t.readers), k.work) for p, k in enumerate(kernels)]
    kernels = [replace(k, unfused_time=fair[p] if k.unfused_time < math.inf else k.unfused_time) for p, k in enumerate(kernels)]
    graph = replace(problem.graph, kernels=tuple(kernels), tensors=tensors)
    return replace(problem, graph=graph, chip=replace(problem.chip, dram=math.inf), most=1.0, fewest=1.0)


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("model", MODELS)
def test_best_of_all_chains_with_kernels_alone(model: str) -> None:
    best_of_all_chains(variegated(drawn(seed, MODELS[model], 4), seed) for seed in range(CASES))


def test_kernels_alone_work_off_one_sample_at_a_time() -> None:
    kernel = Kernel("k", Engine.VECTOR, 4, 4, unfused_time=1.0)
    with pytest.raises(BadInput, match="one sample at a time"):
        SpatialProblem(SpatialGraph((kernel,), (), 4), SpatialChip(4, 2, 2, 1.0, 1e3, 1e6, 1.0), HALLEY)
