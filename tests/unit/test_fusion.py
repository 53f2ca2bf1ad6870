"""Groups of kernels that may run as one: which there are, what they move, how long they take."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.test_op_costs import CHIP, FIT, GPT, LLAMA, MIXTURE, SHAPES, layer

from halley.formulas.numbers import Number
from halley.ir.workload import OpKind
from halley.kernels.times import Gemm, Stream, demand, kernel_time
from halley.rewrite.recompute import Recompute
from halley.training.fusion.costs import FusedPair
from halley.training.fusion.groups import Fusion, fusions
from halley.training.fusion.shapes import fusion_pattern
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import OpCosts, op_tasks
from halley.training.part_bounds import rate_time
from halley.workloads.transformer import Transformer

CHOICES = st.sampled_from(list(Recompute))
EVERY = st.sampled_from(SHAPES)


def moved(graph: TrainingGraph, fusion: Fusion, local: dict[str, int]) -> float:
    """Bytes that pass the memory as ``graph`` has the kernels of a group."""
    tasks = (task for name in fusion.ops for task in op_tasks(graph, graph.workload.op(name), local))
    return float(sum(np.asarray(task.times) * demand(task.kernel)[1] for task in tasks))


def launches(graph: TrainingGraph, fusion: Fusion) -> int:
    tasks = [task for name in fusion.ops for task in op_tasks(graph, graph.workload.op(name), {})]
    return sum(task.launched for task in tasks)


def by_hand(fusion: Fusion, local: dict[str, int]) -> int:
    """Each tensor that comes from outside once, each that is read outside or leaves once; masks of dropout are made here, and
    kept if another kernel reads them."""
    work = fusion.graph.workload
    ops = [work.op(name) for name in fusion.ops]
    made = {name for op in ops for name in op.outputs}
    read = {name for op in work.ops if op.name not in fusion.ops for name in op.inputs}
    masks = {name for op in ops for name in op.inputs if work.tensors[name].dtype == "int8"} - read
    crossing = {name for op in ops for name in op.inputs} - made - masks
    crossing |= {name for name in made if name in read or name in work.outputs}
    words = {"bf16": 2, "fp32": 4, "int8": 1}
    return sum(math.prod(local[dim] for dim in work.tensors[name].dims) * words[work.tensors[name].dtype] for name in crossing)


def test_the_groups_of_layers() -> None:
    assert [group.name for group in fusions(layer(GPT))] == ["up | activate", "down | drop_mlp", "down_d_H | activate_d_F"]
    assert [group.name for group in fusions(layer(LLAMA))] == ["gate+up | activate", "down | add_mlp", "down_d_H | activate_d_G"]
    again = {group.name for group in fusions(layer(LLAMA, Recompute.FULL))}
    assert {"again_gate+again_up | again_activate", "again_down | again_add_mlp"} <= again
    assert "shared_gate+shared_up | shared_activate" in {group.name for group in fusions(layer(MIXTURE))}


@given(EVERY, CHOICES, st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_a_group_moves_what_crosses_its_edge_and_never_more_than_its_kernels(
    shape: Transformer, choice: Recompute, batch: int, parts: int
) -> None:
    graph = layer(shape, choice, batch=batch)
    local = {dim: -(-extent // parts) if dim in "fm" else extent for dim, extent in graph.workload.dims.items()}
    for fusion in fusions(graph):
        one, apart = moved(fusion.graph, fusion, local), moved(graph, fusion, local)
        assert one == by_hand(fusion, local), fusion.name
        assert one < apart
        assert launches(fusion.graph, fusion) == 1 < launches(graph, fusion)


@given(EVERY, CHOICES)
@settings(max_examples=12, deadline=None)
def test_groups_are_disjoint_and_can_run_at_one_moment(shape: Transformer, choice: Recompute) -> None:
    """Nothing between the two kernels needs the first and is needed by the second: they can be put next to each other."""
    graph = layer(shape, choice)
    found = fusions(graph)
    names = [name for fusion in found for name in fusion.ops]
    assert len(names) == len(set(names))
    for fusion in found:
        rest = [op for op in graph.workload.ops if op.name not in fusion.ops]
        after = {name for each in fusion.ops for name in graph.workload.op(each).outputs}
        for op in rest:
            if after.intersection(op.inputs):
                after.update(op.outputs)
        inputs = {name for each in fusion.ops for name in graph.workload.op(each).inputs}
        made = {name for each in fusion.ops for name in graph.workload.op(each).outputs}
        assert not (inputs - made) & after, fusion.name


@given(EVERY, CHOICES)
@settings(max_examples=8, deadline=None)
def test_work_of_a_group_is_that_of_its_kernels(shape: Transformer, choice: Recompute) -> None:
    graph = layer(shape, choice)
    for fusion in fusions(graph):
        assert works(fusion.graph, fusion) == pytest.approx(works(graph, fusion))


def works(graph: TrainingGraph, fusion: Fusion) -> tuple[float, float]:
    """Multiply-accumulates, and cycles of lanes."""
    kernels = [task.kernel for name in fusion.ops for task in op_tasks(graph, graph.workload.op(name), {})]
    products = [each for each in kernels if isinstance(each, Gemm)]
    streams = [each for each in kernels if isinstance(each, Stream)] + [each.tail for each in products if each.tail]
    macs = sum(float(each.rows * each.columns * each.depth * each.batch) for each in products)
    return macs, sum(float(each.points) * CHIP.lane_cycles(each.work) for each in streams)


# --- times --------------------------------------------------------------------------------------------------------------


@given(st.integers(128, 5000), st.integers(128, 5000), st.integers(1, 5000), st.integers(12, 40))
@settings(max_examples=60, deadline=None)
def test_a_tail_that_does_nothing_is_none(rows: int, columns: int, depth: int, batch: int) -> None:
    """A group of one kernel is that kernel, where libraries do not cut its sums (more tiles than cores)."""
    plain = Gemm(rows, columns, depth, batch * 12)
    tail = Stream(batch * 12 * rows * columns, 0, batch * 12 * rows * columns * 2, {})
    assert kernel_time(replace(plain, tail=tail), CHIP, FIT) == pytest.approx(float(kernel_time(plain, CHIP, FIT)), rel=1e-12)


@given(EVERY, CHOICES, st.integers(1, 8))
@settings(max_examples=8, deadline=None)
def test_a_group_takes_no_less_than_its_roofline(shape: Transformer, choice: Recompute, parts: int) -> None:
    graph = layer(shape, choice)
    local: dict[str, Number] = {dim: -(-extent // parts) if dim == "f" else extent for dim, extent in graph.workload.dims.items()}
    for fusion in fusions(graph):
        work = fusion.graph.workload
        tasks = [task for name in fusion.ops for task in op_tasks(fusion.graph, work.op(name), local)]
        least = math.fsum(float(rate_time(task.kernel, 1, CHIP, FIT)) for task in tasks)
        pair = FusedPair(fusion, OpCosts(fusion.graph, CHIP, FIT))
        assert pair.many({dim: np.array([extent]) for dim, extent in local.items()})[0] >= least


def test_many_at_a_time_are_those_of_one() -> None:
    fusion = fusions(layer(LLAMA))[0]
    extents = {dim: np.array([extent, extent, max(extent // 2, 1)]) for dim, extent in fusion.graph.workload.dims.items()}
    extents["f"] = np.array([512, 96, 31])
    pair = FusedPair(fusion, OpCosts(fusion.graph, CHIP, FIT))
    each = [pair.many({dim: counts[n : n + 1] for dim, counts in extents.items()})[0] for n in range(3)]
    assert pair.many(extents).tolist() == each


# --- what a chip sees of them -------------------------------------------------------------------------------------------


def test_dims_that_always_come_together_are_one() -> None:
    first, second, third = map(fusion_pattern, fusions(layer(LLAMA)))
    assert first.merged == {"d0": ("b", "m"), "d1": ("k",), "d2": ("f",)}
    assert [op.kind for op in first.ops] == [OpKind.CONTRACT, OpKind.CONTRACT, OpKind.MAP]
    assert len({first.graph, second.graph, third.graph}) == 3
    other = fusion_pattern(fusions(layer(replace(LLAMA, name="other", hidden=1024), batch=7))[0])
    assert other.graph == first.graph


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_group_as_a_workload_is_the_same_work(shape: Transformer) -> None:
    graph = layer(shape)
    for fusion in fusions(graph):
        pattern, work = fusion_pattern(fusion), graph.workload
        local = {dim: np.array([extent]) for dim, extent in work.dims.items()}
        made = pattern.workload(pattern.extents(local)[0])
        ops = [work.op(name) for name in fusion.ops]
        assert made.macs() == sum(math.prod(work.dims[d] for d in op.dims) for op in ops if op.kind is OpKind.CONTRACT)
        crossing = sum(made.bytes(name) for name in (*made.inputs, *made.outputs))
        assert crossing == by_hand(fusion, dict(work.dims)), "masks of dropout are read there, and written here"
