"""What practice has found, the search finds by itself: collectives of the optimum on real topologies, and the names they go
by."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache

import pytest
from tests.reference.training_graphs import (
    GRADIENTS,
    TIED,
    TOKENWISE,
    WEIGHTS,
    embedding_and_head,
    expert_block,
    forward_layer,
    layer_dims,
    training_layer,
)

from halley.errors import BadInput
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Replicate, Shard
from halley.ir.workload import Op, OpKind
from halley.network.time.collective import best_time, team_of
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import Sharding, shard
from halley.sharding.solve import ShardingProblem
from halley.sharding.text import parallelisms
from halley.workloads.user import graph

WHOLE = (Replicate(),)
MESH = (MeshAxis("x", 8),)
ALIKE = (*GRADIENTS, ("X", "Y", "dX", "dY"))


def work(op: Op, local: Mapping[str, int]) -> float:
    """Matrices at 300 TFLOPS, everything else at 2 TB/s of three tensors."""
    points = math.prod(local[dim] for dim in op.dims)
    return 2 * points / 300e12 if op.kind is OpKind.CONTRACT else 6 * points / 2e12


def network(*axes: Axis) -> Callable[[CollectiveKind, tuple[str, ...], int], float]:
    by_name = {axis.name: axis for axis in axes}

    @cache
    def time(kind: CollectiveKind, names: tuple[str, ...], size: int) -> float:
        return best_time(kind, team_of(tuple(by_name[name] for name in names)), size)

    return time


RING = network(Axis("x", 8, Topology.RING, Link(100e9, 1e-6)))
FULL = network(Axis("x", 8, Topology.FULL, Link(50e9, 1e-6)))


def collectives(plan: Sharding) -> Counter[tuple[str, str]]:
    return Counter((str(step.kind), move.tensor) for move, step in plan.steps)


def training(tokens: int = 2048, model: int = 4096, **more: object) -> ShardingProblem:
    layer = training_layer(layer_dims(tokens, model, 32, 4 * model))
    given: dict = {"tied": TIED, "weights": dict.fromkeys(WEIGHTS, 16.0), "backward": "dH", "same_layout": ALIKE} | more
    return ShardingProblem(layer, MESH, work, RING, **given)


def test_four_all_reduces_of_tensor_parallelism() -> None:
    """Two forward and two backward, of the sums that leave each block (Shoeybi et al., arXiv 1909.08053), where every rank
    works on the whole residual stream. Backward, the sum may as well be taken behind the norm, of as many bytes."""
    whole = dict.fromkeys(("X", "Y", "dX", "dY"), WHOLE)
    plan = shard(training(same_layout=GRADIENTS, layouts=whole, splits={op: {"x": ""} for op in TOKENWISE}))
    found = {name: number for (kind, name), number in collectives(plan).items() if kind == "all-reduce"}
    behind = itertools.product(("dB", "b5"), ("dA", "a5"))  # or behind the norm's linear part, of either block
    assert found in [dict.fromkeys(("Z", "D", *sums), 1) for sums in behind]
    assert len(plan.steps) == 4
    assert all(step.bytes == 2048 * 4096 * 2 for _, step in plan.steps)
    assert parallelisms(plan) == {"x": ("TP",)}
    splits = {name: plan.strategy(name)[0].split for name in ("Q", "K", "V", "S", "O", "Z", "F", "D")}
    assert splits == dict.fromkeys(("Q", "K", "V", "S", "O", "Z"), "h") | {"F": "f", "D": "f"}


def test_sequence_parallelism_where_nothing_is_fixed() -> None:
    """An all-reduce of a ring is a reduce-scatter and an all-gather; what lies between can as well be split by tokens
    (Korthikanti et al., arXiv 2205.05198): the same bytes, less work and memory."""
    whole = dict.fromkeys(("X", "Y", "dX", "dY"), WHOLE)
    tensor = shard(training(same_layout=GRADIENTS, layouts=whole, splits={op: {"x": ""} for op in TOKENWISE}))
    plan = shard(training())
    gathered = Counter({("all-gather", name): 1 for name in ("A", "B", "dY", "dX2")})
    assert collectives(plan) == gathered + Counter({("reduce-scatter", name): 1 for name in ("Z", "D", "dB", "dA")})
    assert plan.collective_time == pytest.approx(tensor.collective_time, rel=1e-9)
    assert plan.time < tensor.time
    assert plan.saved_memory < tensor.saved_memory
    assert parallelisms(plan) == {"x": ("SP", "TP")}


def test_less_memory_gathers_again() -> None:
    """What a block reads is kept whole for the backward pass if it fits, and else gathered a second time."""
    free = shard(training())
    tight = shard(training(), capacity=free.memory - 1)
    assert tight.time > free.time
    extra = collectives(tight) - collectives(free)
    assert extra in ({("all-gather", "A"): 1}, {("all-gather", "B"): 1})
    assert tight.certificate.gap == 0.0
    assert tight.memory == free.memory - 2048 * 4096 * 2 * 7 / 8


def test_sharded_data_parallelism() -> None:
    """Many tokens and small matrices: tokens are split, gradients are reduced; what each rank would keep twice is gathered
    (Rajbhandari et al., arXiv 1910.02054, stage 3)."""
    plan = shard(training(tokens=65536, model=1024))
    found = collectives(plan)
    assert all(found["all-gather", name] == 1 for name in WEIGHTS)
    assert all(found["reduce-scatter", f"d{name}"] == 1 for name in WEIGHTS)
    assert "FSDP" in parallelisms(plan)["x"]
    matrices = dict.fromkeys((*WEIGHTS, *(f"d{name}" for name in WEIGHTS)), WHOLE)
    plain = shard(training(tokens=65536, model=1024, layouts=matrices))
    assert sum(collectives(plain)["all-reduce", f"d{name}"] for name in WEIGHTS) == len(WEIGHTS)
    assert plain.time == pytest.approx(plan.time, rel=1e-3)
    assert plain.weights_memory == 8 * plan.weights_memory


def test_all_to_all_of_experts() -> None:
    """Tokens are split, experts do not fit: they are split too, and tokens travel (Lepikhin et al., arXiv 2006.16668)."""
    block = expert_block(tokens=8192, model=4096, hidden=14336, experts=8, top_k=2)
    tokens = {"X": (Shard("m"),), "Y": (Shard("m"),)}
    problem = ShardingProblem(block, MESH, work, FULL, layouts=tokens, weights={"Wu": 2.0, "Wd": 2.0})
    plan = shard(problem, capacity=2 * 4096 * 14336 * 2)
    assert collectives(plan) == {("all-to-all", "G"): 1, ("all-to-all", "E"): 1}
    # each rank sends what its tokens need: top_k rows each
    assert all(step.bytes == 8192 * 2 // 8 * 4096 * 2 for _, step in plan.steps)
    assert parallelisms(plan) == {"x": ("EP",)}


def test_vocabulary_parallel_embedding_and_head() -> None:
    """Rows of the table and columns of the head are split; then logits are not gathered, only their statistics are combined."""
    model, vocabulary = 4096, 128256
    both = embedding_and_head(tokens=8192, model=model, vocabulary=vocabulary)
    problem = ShardingProblem(
        both, MESH, work, FULL, layouts={"loss": WHOLE}, weights={"table": 18.0, "Wh": 18.0}, splits={"T": {"x": ""}}
    )
    plan = shard(problem, capacity=2 * model * vocabulary * 18 / 8)
    assert plan.ends["Wh"] == (Shard("v"),)
    assert collectives(plan)["all-reduce", "mx z"] == 1
    assert collectives(plan)["all-reduce", "picked"] == 1
    assert not [name for _, name in collectives(plan) if name in ("L", "Wh", "table")]
    assert parallelisms(plan) == {"x": ("TP",)}
    rows = {"X": {"x": "v"}, "T": {"x": ""}}
    other = shard(ShardingProblem(both, MESH, work, FULL, layouts={"loss": WHOLE}, splits=rows))
    assert ("all-reduce", "X") in collectives(other), "rows that a member lacks count as zero, and are added up"


def attention(heads: bool) -> ShardingProblem:
    """A long sequence split by tokens, with keys and values for each head, or one for all."""
    h = "h," if heads else ""
    lines = f"""
Q[h,m,d] = A[m,k] * Wq[k,h,d]
An[n,k] = A[m,k]
K[{h}n,d] = An[n,k] * Wk[k,{h}d]
V[{h}n,e] = An[n,k] * Wv[k,{h}e]
S[h,m,n] = Q[h,m,d] * K[{h}n,d]
mx[h,m]:fp32, z[h,m]:fp32 = softmax(S[h,m,n])
P[h,m,n] = softmax_from_stats(S[h,m,n], mx[h,m], z[h,m])
O[h,m,e] = P[h,m,n] * V[{h}n,e]
Z[m,k] = O[h,m,e] * Wo[h,e,k]
"""
    graph_of = graph(lines, {"m": 131072, "n": 131072, "k": 4096, "h": 32, "d": 128, "e": 128})
    tokens = {"A": (Shard("m"),), "Z": (Shard("m"),)}
    return ShardingProblem(graph_of, MESH, work, FULL, layouts=tokens, weights=dict.fromkeys(("Wq", "Wk", "Wv", "Wo"), 2.0))


def test_context_parallelism_gathers_few_keys() -> None:
    plan = shard(attention(heads=False))
    assert collectives(plan) == {("all-gather", "K"): 1, ("all-gather", "V"): 1}
    assert parallelisms(plan) == {"x": ("CP",)}
    assert plan.strategy("S")[0].split == "m"


def test_context_parallelism_exchanges_many_heads() -> None:
    """From tokens to heads and back, in four all-to-alls (Jacobs et al., arXiv 2309.14509)."""
    plan = shard(attention(heads=True))
    assert collectives(plan) == {("all-to-all", name): 1 for name in ("Q", "K", "V", "O")}
    assert parallelisms(plan) == {"x": ("CP",)}
    assert plan.strategy("S")[0].split == "h"


def test_decode_splits_a_long_cache() -> None:
    """One query of one head: keys are split, and the softmax is combined (Dao et al., Flash-Decoding, 2023)."""
    lines = """
S[m,n] = Q[m,d] * K[n,d]
mx[m]:fp32, z[m]:fp32 = softmax(S[m,n])
P[m,n] = softmax_from_stats(S[m,n], mx[m], z[m])
O[m,e] = P[m,n] * V[n,e]
"""
    cache_of = graph(lines, {"m": 1, "n": 1 << 22, "d": 128, "e": 128})
    plan = shard(ShardingProblem(cache_of, MESH, work, FULL, layouts={"O": WHOLE}))
    assert {plan.strategy(op.name)[0].split for op in cache_of.ops} == {"n"}
    assert collectives(plan) == {("all-reduce", "mx z"): 1, ("all-reduce", "O"): 1}


def test_two_axes_split_tokens_and_batches() -> None:
    """A fast axis inside a node and a slow one between nodes: on the slow one batches are split, and only gradients pass."""
    fast, slow = Axis("node", 8, Topology.SWITCH, Link(400e9, 1e-6)), Axis("rail", 4, Topology.SWITCH, Link(12e9, 5e-6))
    layer = training_layer(layer_dims(2048, 8192, 64, 32768, batch=16))
    mesh = (MeshAxis("node", 8), MeshAxis("rail", 4))
    problem = ShardingProblem(
        layer, mesh, work, network(fast, slow), tied=TIED, same_layout=ALIKE, weights=dict.fromkeys(WEIGHTS, 16.0), backward="dH"
    )
    plan = shard(problem)
    assert plan.certificate.gap == 0.0
    assert parallelisms(plan) == {"node": ("CP",), "rail": ("DP",)}
    assert collectives_over(plan, "rail") == {("all-reduce", f"d{name}"): 1 for name in WEIGHTS}


def collectives_over(plan: Sharding, axis: str) -> Counter[tuple[str, str]]:
    return Counter((str(step.kind), move.tensor) for move, step in plan.steps if axis in step.axes)


@pytest.mark.parametrize("ranks", [3, 5, 8, 64])
def test_uneven_parts_cost_their_ceiling(ranks: int) -> None:
    layer = forward_layer(layer_dims(384, 96, 6, 768))
    heads = {op: {"x": "h"} for op in ("S", "mx", "P", "O")}
    seen: dict[str, int] = {}

    def kernel(op: Op, local: Mapping[str, int]) -> float:
        if op.name == "S":
            seen[str(sorted(local.items()))] = local["h"]
        return work(op, local)

    free = ShardingProblem(layer, (MeshAxis("x", ranks),), kernel, RING)
    shard(free)
    assert -(-6 // ranks) in seen.values()
    if 6 % ranks:
        with pytest.raises(BadInput, match=rf"h=6 in {ranks} equal parts; got {6 % ranks} left over"):
            ShardingProblem(layer, (MeshAxis("x", ranks),), kernel, RING, splits=heads)
