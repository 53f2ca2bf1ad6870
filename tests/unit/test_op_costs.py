"""Times of ops of training graphs: against kernels as a whole, against fitted passes over rows, against what practice keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.graphs import evaluate
from tests.reference.textbook import attention_core_bytes, layer_input_bytes, sequence_parallel_layer_bytes

from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Replicate, Shard
from halley.ir.workload import Op, OpKind
from halley.kernels.machine import machine
from halley.kernels.times import Attention, Gemm, Stream, kernel_time, layer_norm, softmax
from halley.library import SYSTEMS
from halley.rewrite.backward import backward
from halley.rewrite.recompute import Recompute, recompute
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem
from halley.training.kernels import TrainingGraph, kernels, saved_tensors, training_graph
from halley.training.op_costs import OpCosts, op_tasks
from halley.training.part_bounds import model_bound
from halley.workloads.training import training_model
from halley.workloads.transformer import Experts, Latent, Transformer
from halley.workloads.user import graph as user_graph

CHIP, FIT = machine(load_chip("a100")), load_chip_fit("a100").efficiency
GPT = Transformer("gpt", 2, 256, 4, 4, 64, 1024, 512, 128, gated=False, rms=False, positions=True, tied=True, dropout=0.1)
LLAMA = Transformer("llama", 2, 256, 4, 2, 64, 512, 512, 128)
MIXTURE = replace(LLAMA, name="mixture", experts=Experts(4, 2, 256, shared=128))
LATENT = Transformer("latent", 2, 256, 4, 4, 64, 512, 512, 128, latent=Latent(queries=96, keys=64, rope_dim=32, value_dim=48))
SHAPES = (GPT, LLAMA, MIXTURE, LATENT)


def layer(shape: Transformer, choice: Recompute = Recompute.NONE, fused: bool = False, batch: int = 2) -> TrainingGraph:
    part = training_model(shape, batch).blocks[-1]
    return training_graph(backward(part.workload), part.weights, choice, fused)


def costs(graph: TrainingGraph) -> OpCosts:
    return OpCosts(graph, CHIP, FIT)


def together(graph: TrainingGraph, *names: str) -> float:
    work = graph.workload
    return math.fsum(costs(graph)(work.op(name), {dim: work.dims[dim] for dim in work.op(name).dims}) for name in names)


def moving(graph: TrainingGraph, names: tuple[str, ...]) -> bool:
    """Whether a kernel is one of maps and reductions, and nothing else."""
    shares = [graph.contributions[name] for name in names]
    return not any(share.part or share.core or share.summed for share in shares) and all(
        graph.workload.op(name).kind in (OpKind.MAP, OpKind.REDUCE) for name in names
    )


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SHAPES), st.integers(1, 16), st.sampled_from(list(Recompute)))
def test_ops_take_no_less_than_their_kernel_as_a_whole(shape: Transformer, batch: int, choice: Recompute) -> None:
    """Bounds of single ops add up to no less than that of all bytes and all work, and to at most three times as much: memory,
    cache and lanes may each bound one."""
    graph = layer(shape, choice, batch=batch)
    for kernel in kernels(graph.workload):
        if not moving(graph, kernel):
            continue
        tasks = [task for name in kernel for task in op_tasks(graph, graph.workload.op(name), {}) if task.times]
        streams = [task.kernel for task in tasks if isinstance(task.kernel, Stream)]
        work: dict[str, float] = {}
        for stream in streams:
            for name, count in stream.work.items():
                work[name] = work.get(name, 0.0) + float(stream.points) * count
        points = max(float(stream.points) for stream in streams)
        moved = [math.fsum(float(getattr(stream, name)) for stream in streams) for name in ("read", "written", "cached")]
        whole = Stream(points, moved[0], moved[1], {name: count / points for name, count in work.items()}, moved[2])
        passes = sum(task.opened for task in tasks)
        start = FIT.launch + FIT.latency * passes
        least = float(kernel_time(whole, CHIP, replace(FIT, launch=0.0, latency=0.0)))
        found = together(graph, *kernel)
        assert sum(task.launched for task in tasks) == 1
        assert start + least <= found * (1 + 1e-9)
        # where ops have fewer points than the kernel, they fill fewer cores
        if all(float(stream.points) >= 1024 * CHIP.cores for stream in streams):
            assert found <= start + 3 * least


@pytest.mark.parametrize("tokens", [2048, 8192])
@pytest.mark.parametrize("model", [2048, 12288])
def test_norm_and_softmax_are_near_the_fitted_passes(tokens: int, model: int) -> None:
    """What the chip's fit was measured for, as one kernel; the graph's norm takes mean and variance in two passes, not one."""
    shape = replace(GPT, model=model, heads=model // 64, kv_heads=model // 64, dropout=0.0, sequence=tokens)
    graph = layer(shape, batch=1)
    norm = together(graph, "mean1", "variance1", "rstd1", "normalise1")
    assert 1.0 < norm / float(kernel_time(layer_norm(tokens, model), CHIP, FIT)) < 1.4
    weights = together(graph, "scale", "max", "exp", "sum", "divide")
    assert 0.9 < weights / float(kernel_time(softmax(tokens * shape.heads, tokens), CHIP, FIT)) < 1.35


def test_only_what_crosses_a_kernels_edge_passes_the_memory() -> None:
    graph = layer(GPT)
    shares = graph.contributions
    assert shares["mean1"].read == ("X",)
    assert shares["mean1"].written == ("mu1",), "the backward reads it"
    assert (shares["variance1"].read, shares["variance1"].cached) == ((), ("X",))
    assert (shares["normalise1"].read, shares["normalise1"].cached) == (("gain1", "bias1"), ("X",))
    assert shares["normalise1"].written == ("A",)
    assert [shares[name].first for name in ("mean1", "variance1", "rstd1", "normalise1")] == [True, False, False, False]
    assert [shares[name].opens for name in ("mean1", "variance1", "rstd1", "normalise1")] == [True, True, True, False]
    assert not {"S2", "E", "mx", "z"} & graph.stored
    assert {"P", "Pd", "keep_P", "A", "X"} <= graph.stored


def test_masks_are_drawn_once_and_again_where_ops_are_repeated() -> None:
    plain, again = layer(GPT), layer(GPT, Recompute.FULL)
    assert plain.contributions["drop_weights"].drawn == ("keep_P",)
    assert "keep_P" in plain.contributions["drop_weights"].written
    assert plain.contributions["drop_weights_d_P"].drawn == ()
    assert again.contributions["drop_weights"].written == ("Pd",), "nobody reads the first mask"
    assert again.contributions["again_drop_weights"].drawn == ("again_keep_P",)
    kept = set(saved_tensors(again))
    assert kept == {"X"}


def test_masks_that_are_drawn_alike_give_the_same_gradients() -> None:
    shape = Transformer("tiny", 1, 6, 2, 2, 3, 8, 9, 4, gated=False, rms=False, dropout=0.25)
    part = training_model(shape, 2).blocks[0]
    plain, random = backward(part.workload), np.random.default_rng(1)
    arrays = {}
    for name in plain.workload.inputs:
        extents = [plain.workload.dims[dim] for dim in plain.workload.tensors[name].dims]
        integers = plain.workload.tensors[name].dtype == "int8"
        arrays[name] = random.integers(0, 2, extents) if integers else random.normal(size=extents)
    first = evaluate(plain.workload, arrays)
    for choice in Recompute:
        for fused in (False, True):
            graph = training_graph(plain, part.weights, choice, fused)
            masks = {name: arrays[name.removeprefix("again_")] for name in graph.workload.inputs}
            second = evaluate(graph.workload, masks)
            assert all(np.array_equal(first[name], second[name]) for name in plain.gradients.values())


@pytest.mark.parametrize("name", ["megatron-22b", "megatron-530b"])
def test_what_is_kept_is_what_is_published(name: str) -> None:
    """Korthikanti et al., MLSys 2023, table 2; and fused, two numbers a row instead of all scores."""
    shape = load_model(name)
    tokens, norms = shape.sequence, 4 * 4 * shape.sequence
    outside = sequence_parallel_layer_bytes(tokens, 1, shape.model, 1)
    core = attention_core_bytes(tokens, 1, shape.heads, 1)
    whole = outside + core + norms
    wanted = {
        Recompute.NONE: whole,
        Recompute.SELECTIVE: outside + norms,
        Recompute.FULL: layer_input_bytes(tokens, 1, shape.model, 1),
    }
    for choice, size in wanted.items():
        for fused in (False, True):
            graph = layer(shape, choice, fused, batch=1)
            kept = sum(graph.workload.bytes(each) for each in saved_tensors(graph))
            statistics = 2 * 4 * tokens * shape.heads if fused else 0
            assert kept == (size if choice is Recompute.FULL else (outside + norms + statistics) if fused else size)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("choice", list(Recompute))
def test_fused_attention_is_one_kernel_each_way(shape: Transformer, choice: Recompute) -> None:
    graph = layer(shape, choice, fused=True)
    dims = graph.workload.dims
    found = {
        op.name: task.kernel
        for op in graph.workload.ops
        for task in op_tasks(graph, op, {})
        if isinstance(task.kernel, Attention)
    }
    again = ["again_values"] if choice is Recompute.FULL else []
    assert sorted(found) == sorted(["values", *again, next(name for name in found if name.startswith("values_d_P"))])
    kernel = found["values"]
    assert (kernel.batch, kernel.queries, kernel.keys) == (1, dims["m"], dims["n"])
    assert (kernel.heads, kernel.kv_heads) == (2 * shape.heads, 2 * shape.kv_heads)
    assert kernel.head_dim == shape.head_dim + (shape.latent.rope_dim if shape.latent else 0)
    assert kernel.value_dim == (shape.latent.value_dim if shape.latent else shape.head_dim)
    assert kernel.causal
    assert [each.backward for each in found.values()] == [False, *([False] if again else []), True]


def test_ranks_that_share_out_keys_are_not_masked() -> None:
    """The rank that has the first keys is asked by all queries."""
    graph = layer(LLAMA, fused=True)
    values = graph.workload.op("values")
    local = {dim: graph.workload.dims[dim] for dim in values.dims}
    own = [task.kernel for task in op_tasks(graph, values, local | {"n": 16})]
    assert [kernel.causal for kernel in own if isinstance(kernel, Attention)] == [False]
    assert costs(graph)(values, local | {"n": 16}) > 0


def test_products_of_one_input_are_one() -> None:
    graph, model = layer(LLAMA), LLAMA.model
    tokens = 2 * LLAMA.sequence
    wide = (LLAMA.heads + 2 * LLAMA.kv_heads) * LLAMA.head_dim

    def gemms(*names: str) -> list[Gemm]:
        tasks = [task for name in names for task in op_tasks(graph, graph.workload.op(name), {})]
        return [task.kernel for task in tasks if isinstance(task.kernel, Gemm)]

    assert gemms("queries", "keys", "make_values") == [Gemm(tokens, wide, model)]
    assert gemms("queries_d_A", "keys_d_A", "make_values_d_A") == [Gemm(tokens, model, wide)]
    assert gemms("queries_d_Wq", "keys_d_Wk", "make_values_d_Wv") == [Gemm(model, wide, tokens, result="fp32")]
    assert gemms("gate", "up") == [Gemm(tokens, 2 * LLAMA.hidden, model)]
    assert op_tasks(graph, graph.workload.op("sum_d_A"), {}) == ()
    latent = layer(LATENT)
    assert not latent.contributions["compress"].merged, "nothing splits both latents"
    assert not latent.contributions["compress"].part


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_no_product_is_lost(shape: Transformer) -> None:
    """Fused, merged, repeated or not: the multiply-accumulates of all kernels are those of the graph."""
    for choice in Recompute:
        graph = layer(shape, choice)
        found = [task.kernel for op in graph.workload.ops for task in op_tasks(graph, op, {})]
        macs = sum(each.rows * each.columns * each.depth * each.batch for each in found if isinstance(each, Gemm))
        assert macs == graph.workload.macs()


def test_a_reduction_over_ranks_ends_its_kernel() -> None:
    graph = layer(GPT)
    op, dims = graph.workload.op("mean1"), graph.workload.dims
    local = {dim: dims[dim] for dim in op.dims}
    by_tokens, by_model = (costs(graph)(op, local | {dim: dims[dim] // 2}) for dim in ("m", "k"))
    assert by_model > by_tokens + FIT.launch
    last = graph.workload.op("normalise1_d_gain1")
    local = {dim: dims[dim] for dim in last.dims}
    assert not graph.contributions[last.name].awaited
    assert costs(graph)(last, local | {"m": dims["m"] // 2}) <= costs(graph)(last, local)


def test_gradients_are_summed_in_the_recipes_type() -> None:
    graph = layer(GPT)
    op = graph.workload.op("down_d_Wd")
    product, added = (task.kernel for task in op_tasks(graph, op, {}, 4))
    assert isinstance(product, Gemm)
    assert product.result == "fp32"
    assert isinstance(added, Stream)
    assert added.read == 4 * GPT.hidden * GPT.model
    assert [task.kernel for task in op_tasks(graph, op, {}, 2)][1].read == 2 * GPT.hidden * GPT.model  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("fused", [False, True])
def test_many_at_a_time_are_those_of_one(shape: Transformer, fused: bool) -> None:
    graph = layer(shape, Recompute.SELECTIVE, fused)
    prepared, single = costs(graph), costs(graph)
    for op in graph.workload.ops:
        dims = dict.fromkeys((*op.dims, *op.sequence))
        whole = {dim: graph.workload.dims[dim] for dim in dims}
        quarters = [whole | {dim: math.ceil(whole[dim] / 4)} for dim in op.dims]
        prepared.many(op, {dim: np.array([each[dim] for each in quarters]) for dim in dims})
    for op in graph.workload.ops:
        for name, extent in ((dim, graph.workload.dims[dim]) for dim in op.dims):
            local = {dim: graph.workload.dims[dim] for dim in (*op.dims, *op.sequence)} | {name: math.ceil(extent / 4)}
            assert prepared(op, local) == single(op, local)


def test_what_is_recomputed_is_a_graph_as_it_was() -> None:
    """The rewrite is `recompute`'s; only the masks have names of their own."""
    part = training_model(LLAMA, 2).blocks[0]
    found = backward(part.workload)
    assert training_graph(found, part.weights, Recompute.SELECTIVE, False).found == recompute(found, Recompute.SELECTIVE)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ops_of_a_kernel_are_split_alike_as_far_as_they_can_be(ranks: int) -> None:
    """Split on the columns, the statistic of a row is repeated; the best is that of all choices for the three together."""
    lines = "s[m]:fp32 = sum(X[m,k])\nr[m]:fp32 = rsqrt(s[m])\nY[m,k] = X[m,k] * r[m]"
    work = user_graph(lines, {"m": 8, "k": 64})
    mesh = (MeshAxis("x", ranks),)

    def kernel(op: Op, local: Mapping[str, int]) -> float:
        return math.prod(local[dim] for dim in op.dims) * 1e-9

    def wire(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        return 1e-9 + size * 1e-9

    free = ShardingProblem(work, mesh, kernel, wire)
    ops = [op.name for op in work.ops]
    choices = [{ops[0]: dim, ops[1]: "" if dim == "k" else dim, ops[2]: dim} for dim in ("", "m", "k")]
    for layout in (Replicate(), Shard("m"), Shard("k")):
        fixed = replace(free, layouts={"X": (layout,), "Y": (layout,)})
        alike = shard(replace(fixed, same_split=(tuple(ops),)))
        each = [shard(replace(fixed, splits={op: {"x": dim} for op, dim in choice.items()})).time for choice in choices]
        assert alike.time == pytest.approx(min(each), rel=1e-8)
        assert {op: alike.strategy(op)[0].split for op in ops} in choices


@pytest.mark.parametrize("chip", sorted({load_system(name).chip.name for name in SYSTEMS.names()}))
@pytest.mark.parametrize("model", ["gpt2-xl", "llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_chips_of_systems_have_what_models_need(chip: str, model: str) -> None:
    """Element types of all products (routers of experts are fp32) and all functions, in all passes."""
    found = model_bound(load_model(model), 1, 256, 8, machine(load_chip(chip)), FIT)
    assert float(found.time) > 0
