"""The search against exhaustive enumeration where stages have many rounds: norms and softmax, alone, of up to 24 rows.

The enumerations of other files have extents of 1 to 3: there, a round is a row, and bounds that are wrong for many rounds look
right.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.certificates.exhaustive import draw_chip
from tests.certificates.test_search import compared

from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.mapping.problem import Objective
from halley.workloads import gemm_layernorm, gemm_rmsnorm, gemm_softmax

WALKS_LIMIT = 3000
"""Largest number of walks of a group, each over all combinations of one buffer or two."""


def draw_rows(draw: random.Random) -> Workload:
    """A norm or softmax of many short rows, or of a few longer ones."""
    m, n = draw.choice([(draw.randint(8, 24), draw.randint(2, 4)), (draw.randint(2, 6), draw.randint(4, 12))])
    match draw.choice(["softmax", "layernorm", "rmsnorm"]):
        case "softmax":
            return without_product(gemm_softmax(m, n, 1))
        case "layernorm":
            return without_product(gemm_layernorm(m, n, 1, variant=draw.choice(["two-pass", "welford"])))
        case _:
            return without_product(gemm_rmsnorm(m, n, 1))


def without_product(workload: Workload) -> Workload:
    """What follows the first op, whose result is then an input."""
    first, *ops = workload.ops
    dims = {dim: extent for dim, extent in workload.dims.items() if dim != "k"}
    tensors = {name: tensor for name, tensor in workload.tensors.items() if name not in first.inputs}
    return replace(workload, ops=tuple(ops), kernels=workload.kernels[1:], dims=dims, tensors=tensors)


def draw_larger(draw: random.Random) -> Chip:
    """A drawn chip that holds several rows."""
    chip, factor = draw_chip(draw), draw.choice([4, 8, 16])
    levels = (
        replace(level, memories=tuple(replace(memory, capacity=factor * memory.capacity) for memory in level.memories))
        for level in chip.levels
    )
    return replace(chip, levels=tuple(levels))


@pytest.mark.parametrize("seed", [21, 49, 80, 134, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(300, 500))])
def test_search_of_many_rounds_equals_exhaustive_enumeration(seed: int) -> None:
    """Each of the first four is missed by a bound that takes a single round for overlapped rows."""
    draw = random.Random(seed)
    assert compared(draw_rows(draw), draw_larger(draw), WALKS_LIMIT, tuple(Objective), ()) == "equal"
