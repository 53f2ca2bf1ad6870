"""A workload's ops as kernels of a spatial chip."""

from __future__ import annotations

import pytest
from validation.dfmodel.case import graph, problem

from halley.errors import BadInput
from halley.spatial.chip import HALLEY, Problem
from halley.spatial.solve import best_plan
from halley.spatial.workload import spatial_graph
from halley.workloads.einsum import gpt_layer
from halley.workloads.gemm import gemm

LAYER = gpt_layer(2048, 12288, 96, 128, 49152, "bf16")
PUBLISHED = {"Q": "Q", "K": "K", "V": "V", "QK": "MHA1", "AV": "MHA2", "Z": "PROJ", "FFA": "FFN0", "FFB": "FFN1"}


@pytest.mark.parametrize("tensor", [1, 4, 8])
def test_a_gpt_layer_has_the_published_kernels(tensor: int) -> None:
    """Sharded by heads and by the hidden dim, as DFModel has it."""
    found = spatial_graph(LAYER, ["m", "n"], {"h": 96 // tensor, "f": 49152 // tensor})
    theirs = {kernel.name: kernel for kernel in graph(tensor).kernels}
    mine = {kernel.name: kernel for kernel in found.kernels}
    for name, other in PUBLISHED.items():
        kernel, expected = mine[name], theirs[other]
        assert (kernel.rows, kernel.columns, kernel.depth) == (expected.rows, expected.columns, expected.depth), name
        assert (kernel.engine, kernel.walked, kernel.weights) == (expected.engine, expected.walked, expected.weights), name
    assert found.weights == graph(tensor).weights
    assert found.sequence == 2048


def test_it_can_be_planned() -> None:
    made = spatial_graph(LAYER, ["m", "n"], {"h": 12, "f": 6144}, {"Z": 1.76e-3, "FFB": 1.76e-3})
    found = best_plan(Problem(made, problem(8, 1).chip, HALLEY), [64])
    assert found.proven
    assert sorted(name for part in found.partitions for name in part.names) == sorted(op.name for op in LAYER.ops)
    assert found.layer >= made.work / problem(8, 1).chip.peak


def test_gradients_of_weights_walk_their_contraction() -> None:
    kernel = spatial_graph(gemm(64, 128, 256), ["k"]).kernels[0]
    assert (kernel.rows, kernel.columns, kernel.depth, kernel.walked) == (64, 128, 256, "depth")


def test_what_cannot_be_walked_is_named() -> None:
    with pytest.raises(BadInput, match=r"op gemm: expected one of the dims m; got .*|expected the name of a dim; got 'tokens'"):
        spatial_graph(LAYER, ["tokens"])
    with pytest.raises(BadInput, match=r"op K: expected one of the dims m"):
        spatial_graph(LAYER, ["m"])
    with pytest.raises(BadInput, match=r"sequence: expected dims of one extent; got m 2048, n 2048, d 128"):
        spatial_graph(LAYER, ["m", "n", "d"])
    with pytest.raises(BadInput, match=r"expected the name of an op; got 'FFC'; did you mean"):
        spatial_graph(LAYER, ["m", "n"], network={"FFC": 1.0})
