"""One op of a plan as one mapping: it is legal, computes the product on all chips of a stage, and moves the plan's bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.certificates.test_joint_plans import MODEL, one_cluster

from halley.answers.load import as_answer
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import Collective, Spatial, walk
from halley.ir.system import System
from halley.ir.text import parse, to_text
from halley.kernels.groups import GroupKernel
from halley.kernels.machine import PEAK
from halley.kernels.search import searched_kernel, timed_kernel
from halley.kernels.searched import AnyKernel, KernelCost, Product, SearchedKernels, shape_of
from halley.kernels.times import Array, Attention, Gemm
from halley.rewrite.legality import faults
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.training.groups import sharded_kernels
from halley.training.op_mapping import SYSTEM, OpMapping, op_mapping, ops_of_kernels
from halley.training.part_costs import training_graphs
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.verify.sharding import bytes_finding, sharding_finding
from halley.verify.training import training_findings

MAPPING = """hold dram: A B C
  for m by 16
    hold ibuf: A
      for n by 16
        hold wbuf: B
          hold obuf: C
            compute gemm
"""
"""Legal for every small product on `one_cluster`."""

ATTENTION = """hold dram: Q K V O
  for h by 1
    hold obuf: S|S2|E z
      hold obuf: U
        sequence
          hold ibuf: Q
            hold wbuf: K
              compute scores
          hold obuf: mx
            sequence
              compute scale
              compute max
              compute exp
              compute sum
          hold wbuf: V
            hold ibuf: E
              compute values
          hold obuf: O
            compute divide
"""
"""Legal for attention."""


class Given(SearchedKernels):
    """Every product has `MAPPING`, and attention has `ATTENTION`, so that nothing is searched; no group is one kernel."""

    def times(self, kernel: AnyKernel) -> Array:
        if isinstance(kernel, GroupKernel):
            return np.full(np.broadcast_shapes(*map(np.shape, kernel.extents)), np.inf)
        if isinstance(kernel, Gemm) and not kernel.spread:
            extents = np.broadcast_arrays(kernel.rows, kernel.columns, kernel.depth, kernel.batch)
            for row in set(zip(*(each.ravel().tolist() for each in extents), strict=True)):
                product = Product(*map(int, row), kernel.dtype, kernel.result)
                if product not in self.known:
                    self.known[product] = timed_kernel(self.chip, product, MAPPING)
        if isinstance(kernel, Attention) and not kernel.backward:
            names = ("queries", "keys", "heads", "kv_heads", "head_dim", "value_dim")
            extents = np.broadcast_arrays(*(getattr(kernel, name) for name in names))
            for row in set(zip(*(each.ravel().tolist() for each in extents), strict=True)):
                shape = shape_of(replace(kernel, **dict(zip(names, row, strict=True))))
                if shape is not None and shape not in self.known:
                    self.known[shape] = timed_kernel(self.chip, shape, ATTENTION)
        return SearchedKernels.times(self, kernel)


SYSTEMS: dict[str, tuple[tuple[int, ...], Fixed]] = {
    "an axis for each role": ((2, 2, 2), Fixed(data=2, stages=2, model=2, microbatch=2)),
    "roles that share an axis": ((8,), Fixed(data=2, stages=2, model=2, microbatch=2)),
    "two axes that split ops": ((2, 2), Fixed(data=1, stages=1, model=4, microbatch=4)),
    "split tokens": (
        (2, 2),
        Fixed(microbatch=1, axes={"x": {Role.DATA: 2}, "y": {Role.MODEL: 2}}, splits={"normalise1": {"y": "m"}}),
    ),
}


@cache
def plan(name: str, searched: bool = True) -> TrainingResult:
    sizes, fixed = SYSTEMS[name]
    chip = one_cluster()
    axes = tuple(Axis("xyz"[place], size, Topology.SWITCH, Link(20e9, 1e-6)) for place, size in enumerate(sizes))
    fixed = replace(fixed, recompute=Recompute.NONE, fused=True)
    problem = TrainingProblem(MODEL, System("drawn", chip, axes), 8, MODEL.sequence, PEAK, fixed=fixed)
    if searched:
        problem = replace(problem, searched=Given(problem.chip))
    return best_training_plan(problem, others=0)


def attended(Q: Array, K: Array, V: Array) -> Array:
    """Causal attention of each head: Q [h, m, d], K [h, n, d], V [h, n, e]."""
    scores = np.einsum("hmd,hnd->hmn", Q, K) / np.sqrt(Q.shape[2])
    scores = np.where(np.tri(Q.shape[1], K.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(np.einsum("hmn,hne->hme", weights / weights.sum(axis=2, keepdims=True), V))


def mappings(result: TrainingResult) -> list[OpMapping]:
    """Of all ops with searched kernels."""
    named = [f"{part}/{op}" for part, ops in ops_of_kernels(result).items() for op, kernel in ops.items() if shape_of(kernel)]
    return [op_mapping(result, name) for name in named]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_mapping_of_an_op_computes_it_on_all_chips_of_a_stage(name: str) -> None:
    result = plan(name)
    found = mappings(result)
    assert len(found) >= 10
    assert any(op.op == "values" for op in found)
    for op in found:
        assert op.whole, op.op
        work, chip, tree = op.workload, op.chip, op.tree
        assert not faults(tree, work, chip)
        arrays = random_inputs(work, 1)
        made = run(work, chip, tree, arrays).outputs[work.outputs[0]]
        assert np.allclose(made, attended(**arrays) if op.op == "values" else arrays["A"] @ arrays["B"]), op.op


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_chip_of_a_stage_has_its_part(name: str) -> None:
    """The parts of the axes that split the op are nodes around the mapping of one chip, with the extents of the plan."""
    result = plan(name)
    for op in mappings(result):
        product, node = shape_of(op.kernel), op.tree
        extents = dict(op.workload.dims)
        for split in op.splits:
            assert bool(split.dim) == bool(split.split)
            if split.dim:
                assert isinstance(node, Spatial)
                assert (node.axis, node.dim, node.tile) == (split.axis, split.dim, split.tile)
                assert split.tile * split.part.size == extents[split.dim]
                extents[split.dim], node = split.tile, node.body
        assert extents == dict(product.workload.dims)
        sizes = [split.part.size for split in op.splits if split.part.role is not Role.PIPELINE]
        assert np.prod(sizes) == result.plan.data * result.plan.model
        inner = [item for _, item in walk(parse(op.cost.mapping))]
        outer = [item for _, item in walk(op.tree)]
        assert type(inner[-1]) is type(next(item for item in reversed(outer) if type(item) is type(inner[-1])))
        assert op.time == op.cost.time


def test_collectives_are_those_of_the_plan() -> None:
    result = plan("an axis for each role")
    for op in mappings(result):
        sharding = next(part.sharding for part in result.cost.parts.parts if part.sharding.problem.workload.name == op.part)
        for move in op.movements:
            if move.role is Role.MODEL:
                steps = [step for item, step in sharding.steps if item.tensor == move.tensor]
                assert (move.kind, move.axes, move.bytes, move.time) in [
                    (str(step.kind), step.axes, step.bytes, step.time) for step in steps
                ]
    moved = [move for move in op_mapping(result, "output").movements if move.role is Role.MODEL]
    assert [(move.kind, move.tensor, move.axes) for move in moved] == [("all-reduce", "Z", ("z",))]


def test_partial_sums_are_completed_by_the_bytes_of_the_plan() -> None:
    """What the interpreter sends over the axis is what the plan's all-reduce is costed for."""
    result = plan("an axis for each role")
    op = op_mapping(result, "output")
    counted = run(op.workload, op.chip, op.tree, random_inputs(op.workload, 1)).counters
    sent = next(item.sent for item in result.cost.traffic if item.kind == "all-reduce")
    assert {axis for level, axis, _, _ in counted.links if level == SYSTEM} == {"z"}
    assert sum(size for (_, axis, _, _), size in counted.links.items() if axis == "z") == 8 * sent["z"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_text_of_an_op_parses_to_its_mapping(name: str) -> None:
    answer = as_answer(plan(name))
    for op in mappings(answer.value):
        text = answer.op_text(f"{op.part}/{op.op}")
        assert parse(text) == op.tree
        assert text.endswith(to_text(op.tree))


def test_an_op_without_a_mapping_over_the_system_has_that_of_one_chip() -> None:
    """Partial sums that return to the chip's memory cannot be split over chips."""
    result = plan("an axis for each role")
    shape, chip = shape_of(op_mapping(result, "output").kernel), result.problem.chip
    returning = MAPPING.replace("for m by 16", "for k by 16")
    known = result.problem.searched.known | {shape: timed_kernel(chip, shape, returning)}
    changed = replace(result, problem=replace(result.problem, searched=SearchedKernels(chip, known)))
    op = op_mapping(changed, "output")
    assert (op.whole, op.tree, op.chip, op.workload) == (False, parse(returning), chip, shape.workload)
    assert "no loop over k" in op.reason
    assert [split.tile for split in op.splits if split.dim] == [64, 32]
    assert f"cannot enclose it as nodes: {op.reason}" in as_answer(changed).op_text("output")


def test_every_op_with_a_kernel_has_a_text() -> None:
    """Ops without searched kernels have the outer axes alone."""
    answer = as_answer(plan("an axis for each role"))
    for part, ops in ops_of_kernels(answer.value).items():
        for op in ops:
            text = answer.op_text(f"{part}/{op}")
            assert all(f"# {axis}, 2 " in text for axis in "xyz")


def test_an_op_in_the_kernel_of_another_stands_for_it() -> None:
    result = plan("an axis for each role")
    assert op_mapping(result, "keys") == op_mapping(result, "queries")
    assert op_mapping(result, "keys").ops == ("queries", "keys", "make_values")
    assert op_mapping(result, "scores").op == "values"
    assert op_mapping(result, "scores_d_Q").op == "values_d_P"


def test_names_that_are_none_or_several() -> None:
    result = plan("an axis for each role")
    with pytest.raises(BadInput, match="did you mean 'queries'"):
        op_mapping(result, "quries")
    with pytest.raises(BadInput, match="write 'small layer/max' or 'small head/max'"):
        op_mapping(result, "max")
    assert op_mapping(result, "small head/max").part == "small head"


def test_a_plan_without_searched_kernels_has_the_outer_axes_alone() -> None:
    answer = as_answer(plan("an axis for each role", searched=False))
    text = answer.op_text("output")
    assert "z, 2 model-parallel chips: h (heads) split" in text
    assert "kernels were not searched" in text
    assert all(line.startswith("#") for line in text.splitlines())


def test_the_table_of_kernels_names_the_ops() -> None:
    answer = as_answer(plan("an axis for each role"))
    table = next(table for table in answer.tables(details=True) if table.title.startswith("Kernels"))
    assert {"output", "queries", "down_d_Wd", "values"} <= {name for row in table.rows for name in row[-1].split()}


def test_the_check_of_a_plan_runs_its_kernels_on_the_chips_of_a_stage() -> None:
    """The longest kernels and attention, forward, on 4 chips."""
    result = plan("an axis for each role")
    found = [finding for finding in training_findings(result, search=False) if "/" in finding.part]
    assert {finding.what for finding in found} == {"simulated time", "execution", "counts"}
    assert [finding.part for finding in found if finding.what == "counts" and "/values" in finding.part] == [
        "small layer/values on 4 chips"
    ]
    assert all(finding.part.endswith("on 4 chips") for finding in found if finding.what != "simulated time")
    assert all(finding.passed for finding in found if finding.what != "simulated time")


class WithMLPs(Given):
    """MLPs are one kernel, as they take no time."""

    def times(self, kernel: AnyKernel) -> Array:
        if not isinstance(kernel, GroupKernel) or len(kernel.pattern.contractions) == 1:
            return Given.times(self, kernel)
        extents = np.broadcast_arrays(*kernel.extents)
        for row in set(zip(*(each.ravel().tolist() for each in extents), strict=True)):
            self.known.setdefault(GroupKernel(kernel.pattern, row).shape, KernelCost(1e-9, ""))
        return SearchedKernels.times(self, kernel)


@pytest.mark.medium
def test_an_mlp_is_one_mapping_on_chips_that_split_its_hidden_dim() -> None:
    """Forward and backward: the chips add up their parts of the result, as they have parts of the hidden values."""
    chip = one_cluster()
    axes = (Axis("x", 2, Topology.SWITCH, Link(20e9, 1e-6)),)
    splits = {name: {"x": "f"} for name in ("up", "activate", "activate_d_F")}
    fixed = Fixed(recompute=Recompute.NONE, fused=True, microbatch=2, axes={"x": {Role.MODEL: 2}}, splits=splits)
    shape = replace(MODEL, gated=False)
    problem = TrainingProblem(shape, System("drawn", chip, axes), 2, shape.sequence, PEAK, fixed=fixed, searched=WithMLPs(chip))
    result = best_training_plan(problem, others=0)
    part = result.cost.parts.parts[1]
    assert [each.group.name for each in part.sharding.fused_groups] == ["up to down", "down_d_H to up_d_B"]
    graph = training_graphs(shape, 2, shape.sequence, Recompute.NONE, True)[1]
    for group in (kernel.shape for _, kernel, _ in sharded_kernels(graph, part.sharding, 4) if isinstance(kernel, GroupKernel)):
        problem.searched.known[group] = KernelCost(1e-9, searched_kernel(chip, group).mapping)
    name = part.sharding.problem.workload.name
    for op, function in (("up", gelu), ("down_d_H", None)):
        found = op_mapping(result, f"{name}/{op}")
        assert found.whole, found.reason
        assert [split.dim for split in found.splits] == ["n"]
        assert not faults(found.tree, found.workload, found.chip)
        sums = [node for _, node in walk(found.tree) if isinstance(node, Collective) and node.tensors == ("C2",)]
        assert any(node.axis == found.splits[0].axis for node in sums)
        arrays = random_inputs(found.workload, 1)
        made = run(found.workload, found.chip, found.tree, arrays).outputs
        hidden = arrays["A"] @ arrays["B"] if op == "up" else arrays["A"] @ arrays["B"].T
        if function is not None:
            assert np.allclose(made["C2"], function(hidden) @ arrays["B2"])
        assert np.allclose(made["C2"], made["Y"] @ (arrays["B2"] if op == "up" else arrays["B2"].T))
        if op == "down_d_H":
            step = 1e-6
            slope = (gelu(arrays["X"] + step) - gelu(arrays["X"] - step)) / (2 * step)
            assert np.allclose(made["Y"], slope * hidden, atol=1e-6)
    for finding in (sharding_finding(name, part.sharding), bytes_finding(name, part.sharding, part.parameters)):
        assert finding.passed, finding.detail


def gelu(x: Array) -> Array:
    """In the form with tanh (Hendrycks and Gimpel, arXiv 1606.08415)."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
