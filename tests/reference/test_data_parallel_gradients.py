"""Layers on data-parallel ranks, executed forward and backward: the collective of gradients leaves what one rank computes from
all sequences; a graph for which that is wrong is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from halley.graphs.plan import GraphProblem, plan_graph
from halley.io.chips.load import load_chip
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.kernels.machine import PEAK
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.search import best_training_plan
from halley.verify.data_parallel import gradients_finding
from halley.verify.training import training_findings
from halley.workloads.transformer import Experts, Transformer
from halley.workloads.user import graph

SMALL = Transformer("small", layers=2, model=64, heads=4, kv_heads=4, head_dim=16, hidden=128, vocabulary=64, sequence=32)
MODELS = {
    "gpt": SMALL,
    "llama": replace(SMALL, name="llama", gated=True, kv_heads=2),
    "experts": replace(SMALL, name="experts", gated=True, experts=Experts(4, 2, 32)),
}
CHOICES: Mapping[str, Fixed] = {
    "all-reduce": Fixed(data=2, model=2, sharded=Sharded.NOTHING, recompute=Recompute.NONE),
    "ZeRO 2, everything recomputed": Fixed(data=2, model=2, sharded=Sharded.GRADIENTS, recompute=Recompute.FULL),
    "data parallelism alone": Fixed(data=4, sharded=Sharded.NOTHING),
}
AXES = tuple(Axis(name, 2, Topology.SWITCH, Link(100e9, 1e-6)) for name in ("x", "y"))


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("model", MODELS)
def test_ranks_end_with_the_gradients_of_one_rank_that_has_all_sequences(model: str, choice: str) -> None:
    """Of embedding, each kind of layer and head; also with the ops of each rank split over two chips."""
    shape, fixed = MODELS[model], CHOICES[choice]
    problem = TrainingProblem(shape, System("drawn", load_chip("h100"), AXES), 8, shape.sequence, PEAK, fixed=fixed)
    result = best_training_plan(problem, others=0)
    found = [finding for finding in training_findings(result, search=False) if finding.what == "gradients"]
    assert len(found) == len(result.cost.parts.parts)
    assert all(finding.passed for finding in found), found
    kind = "all-reduce" if result.plan.sharded is Sharded.NOTHING else "reduce-scatter"
    assert all(finding.detail.startswith(f"{kind} of ") for finding in found)
    assert all(f"each of {min(fixed.data, 3)} ranks" in finding.detail for finding in found)


@pytest.mark.parametrize(("monoid", "right"), [("sum", True), ("max", False)])
@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER])
def test_what_is_no_sum_over_sequences_is_found(kind: CollectiveKind, monoid: str, right: bool) -> None:
    """A result over all sequences that ranks cannot add up."""
    lines = ["C[b,n] = A[b,k] * B[k,n]", f"g[n] = {monoid}(C[b,n])"]
    work = graph(lines, {"b": 8, "n": 8, "k": 8}, outputs=["g"])
    plan = plan_graph(GraphProblem(work, System("drawn", load_chip("h100"), AXES), splits={"C": {"x": "n", "y": "k"}}))
    found = gradients_finding("drawn", plan.sharding, {"B": "g"}, 2, kind)
    assert found.passed is right
    assert right or "the sum of gradients: other values than one rank with all sequences has" in found.detail


def test_results_of_other_sequences_are_found() -> None:
    """An op that looks at other sequences: ranks have only their own."""
    work = graph(["m[n] = max(A[b,n])", "Y[b,n] = subtract(A[b,n],m[n])"], {"b": 8, "n": 8}, outputs=["Y"])
    plan = plan_graph(GraphProblem(work, System("drawn", load_chip("h100"), AXES)))
    found = gradients_finding("drawn", plan.sharding, {}, 2, CollectiveKind.ALL_REDUCE)
    assert found.passed is False
    assert found.detail.startswith("Y: other values")
