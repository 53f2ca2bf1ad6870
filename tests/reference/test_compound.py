"""The long compound operations: counts on drawn trees, laws between them, and the rules that they brought."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from tests.reference.generate import random_trees
from tests.reference.graphs import evaluate as whole
from tests.reference.oracles import inputs, oracle
from tests.reference.problems import LONG, random_chip, random_workload
from tests.reference.test_counts import SEEDS, Checker, assert_agrees, many
from tests.reference.trees import chip, nest

from halley.errors import BadInput
from halley.execute.interpreter import run
from halley.ir.hardware import Dataflow, VectorEngine
from halley.ir.mapping import Compute, Sequence
from halley.ir.workload import OpKind
from halley.workloads import attention, build, mla, moe, transformer_layer
from halley.workloads.mlp import gemm_gelu_gemm

LANES = VectorEngine("simd", 4, 1e9, dict.fromkeys(("add", "mul", "max", "exp", "div", "rsqrt"), 1.0))

# ---------------------------------------------------------------- formulas equal execution


def grow(seed: int, kind: str, edits: int) -> int:
    random = Random(seed)
    workload, machine = random_workload(random, (kind,)), random_chip(random)
    return sum(1 for _ in random_trees(random, workload, machine, Checker(workload, machine, seed % 1000), edits))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [*LONG, "attention-einsum", "gemm-gelu-gemm"])
def test_compound_operations_on_grown_trees(kind: str, seed: int) -> None:
    """Values equal the textbook, counts equal the formulas, on the plain tree and on every edit of it."""
    assert grow(seed, kind, 12) > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
@given(SEEDS)
@many(150)
def test_compound_operations_on_many_grown_trees(kind: str, seed: int) -> None:
    grow(seed, kind, 25)


@pytest.mark.parametrize("flow", Dataflow)
@pytest.mark.parametrize("kind", ["gpt-layer", "transformer-layer"])
def test_contractions_with_several_dims_in_a_role(kind: str, flow: Dataflow) -> None:
    """Heads and head dim are columns of the projections and contracted on the way back; an array of 2 x 3 cuts them."""
    sizes: dict[str, object] = {"tokens": 5, "model": 5, "heads": 4, "head_dim": 5, "hidden": 7, "dtype": "bf16"}
    workload = build(kind, sizes | ({"kv_heads": 2} if kind == "transformer-layer" else {}))
    machine = replace(chip(2, 2, rows=2, cols=3, flow=flow), vector=LANES)
    steps = []
    for op in workload.ops:
        if op.kind is OpKind.CONTRACT:
            role = op.dims
            steps.append(nest((role[0], 2), (role[1], 3), Compute(op.name)))
        else:
            steps.append(Compute(op.name))
    ends = " ".join((*workload.inputs, *workload.outputs))
    tree = nest(("dram", ends), ("obuf", " ".join(workload.tensors)), Sequence(tuple(steps)))
    arrays = inputs(workload, 1, 0.5)
    done = run(workload, machine, tree, arrays)
    for name, value in oracle(workload, arrays).items():
        np.testing.assert_allclose(done.outputs[name], value, rtol=1e-9)
    assert_agrees(workload, machine, tree, done)


def test_folds_of_several_columns_by_hand() -> None:
    """Q[h, m, d] of 4 x 5 x 5 from 5 model dims on 2 rows x 3 columns, weights in place: X is read once per head and per
    ceil(5 / 3) = 2 folds of d, results are written once per ceil(5 / 2) = 3 folds of k."""
    workload = build("gpt-layer", {"tokens": 5, "model": 5, "heads": 4, "head_dim": 5, "hidden": 7, "dtype": "bf16"})
    machine = replace(chip(1, 1, rows=2, cols=3), vector=LANES)
    ends = " ".join((*workload.inputs, *workload.outputs))
    tree = nest(("dram", ends), ("obuf", " ".join(workload.tensors)), Sequence(tuple(Compute(op.name) for op in workload.ops)))
    counters = run(workload, machine, tree, inputs(workload, 1, 0.5)).counters
    assert counters.reads["obuf", "Xq", "operand"] == 5 * 5 * 2 * 4 * 2
    assert counters.reads["obuf", "Wq", "operand"] == 4 * 5 * 5 * 2
    assert counters.writes["obuf", "Q", "result"] == 4 * 5 * 5 * 2 * 3


# ---------------------------------------------------------------- laws


def test_multi_query_attention_shares_one_head_of_keys() -> None:
    shared = attention(1, 4, 1, 3, 5, 2)
    assert (shared.dims["h"], shared.dims["m"]) == (1, 12)
    arrays = inputs(shared, 1)
    each = attention(1, 4, 4, 3, 5, 2)
    spread = {"Q": arrays["Q"].reshape(4, 3, 2), "K": np.repeat(arrays["K"], 4, 0), "V": np.repeat(arrays["V"], 4, 0)}
    np.testing.assert_allclose(whole(shared, arrays)["O"].reshape(4, 3, 2), whole(each, spread)["O"], rtol=1e-12)
    assert shared.bytes("K") * 4 == each.bytes("K")


def test_latent_attention_is_attention_over_expanded_keys() -> None:
    """With keys and values written out and the rotary part appended, it is multi-head attention."""
    work = mla(3, 2, 5, latent=4, head_dim=3, rope_dim=2, value_dim=6, causal=True)
    given = inputs(work, 2)
    expanded = {
        "Q": np.concatenate([given["Qc"], given["Qr"]], axis=2),
        "K": np.concatenate([np.einsum("nc,hcd->hnd", given["C"], given["Wk"]), np.repeat(given["R"][None], 3, 0)], axis=2),
        "V": np.einsum("nc,hce->hne", given["C"], given["Wv"]),
    }
    full = attention(1, 3, 3, 2, 5, 5, value_dim=6, causal=True)
    np.testing.assert_allclose(whole(work, given)["O"], whole(full, expanded)["O"], rtol=1e-10)


def test_absorbing_pays_in_decode_and_costs_in_prefill() -> None:
    """DeepSeek-V2: 128 heads, latent 512, head dims 128, rotary 64. Read as multiply-accumulates per variant."""
    sizes = {"heads": 128, "keys": 4096, "latent": 512, "head_dim": 128, "rope_dim": 64}
    decode, prefill = (
        {v: mla(queries=queries, variant=v, **sizes).macs() for v in ("plain", "absorbed")}
        for queries in (1, 4096)  # type: ignore[arg-type]
    )
    assert decode["plain"] > 100 * decode["absorbed"]
    assert prefill["absorbed"] > 2 * prefill["plain"]
    cache = mla(queries=1, **sizes)  # type: ignore[arg-type]
    assert cache.bytes("C") + cache.bytes("R") == 4096 * (512 + 64) * 2


def routed(logits: np.ndarray, top_k: int, capacity: int) -> np.ndarray:
    """Tokens in order take the slots of the experts that they chose; an empty slot names a token that did not choose it."""
    chosen = np.argsort(-logits, axis=1)[:, :top_k]
    table = np.empty((logits.shape[1], capacity), np.int32)
    for expert in range(logits.shape[1]):
        takers = [token for token in range(len(logits)) if expert in chosen[token]][:capacity]
        others = [token for token in range(len(logits)) if expert not in chosen[token]]
        table[expert] = (takers + others * capacity)[:capacity]
    return table


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_routed_experts_equal_every_token_through_its_experts(top_k: int) -> None:
    work = moe(tokens=9, model=4, hidden=5, experts=3, top_k=top_k, capacity=9)
    given = inputs(work, top_k)
    logits = given["X"] @ given["Wr"]
    given["index"] = routed(logits, top_k, 9) if top_k < 3 else np.tile(np.arange(9, dtype=np.int32), (3, 1))
    weights = np.zeros_like(logits)
    for token, row in enumerate(logits):
        best = np.argsort(-row)[:top_k]
        weights[token, best] = np.exp(row[best]) / np.exp(row[best]).sum()
    gate = np.einsum("mk,xkf->xmf", given["X"], given["Wg"])
    hidden = gate / (1 + np.exp(-gate)) * np.einsum("mk,xkf->xmf", given["X"], given["Wu"])
    dense = np.einsum("mx,xmf,xfn->mn", weights, hidden, given["Wd"])
    np.testing.assert_allclose(whole(work, given)["Y"], dense, rtol=1e-9, atol=1e-12)


def test_experts_as_many_as_chosen_are_a_wider_block() -> None:
    """The work of the experts is that of the tokens that they take, whatever their number."""
    few, many_ = (moe(tokens=8, model=4, hidden=5, experts=n, top_k=2) for n in (2, 8))
    router = 8 * 4
    assert few.macs() - router * 2 == many_.macs() - router * 8 == 3 * 2 * 8 * 4 * 5


@pytest.mark.parametrize("gated", [True, False])
def test_a_layer_holds_its_blocks(gated: bool) -> None:
    """Multiply-accumulates are those of projections, attention and feed-forward block; the last token sees all."""
    work = transformer_layer(6, 8, 4, 2, 3, 10, gated=gated)
    projections = 6 * 8 * 3 * (4 + 2 + 2 + 4)
    scores = attention(1, 4, 2, 6, 6, 3).macs()
    block = build("gated-mlp", {"tokens": 6, "model": 8, "hidden": 10}) if gated else gemm_gelu_gemm(6, 8, 10)
    assert work.macs() == projections + scores + block.macs()
    arrays = inputs(work, 3)
    changed = arrays | {"Xn": arrays["Xn"].copy()}
    changed["Xn"][4] += 1.0
    moved = np.abs(whole(work, arrays)["Y"] - whole(work, changed)["Y"]).max(axis=1) > 1e-9
    assert moved.tolist() == [False] * 4 + [True] * 2


def test_impossible_experts_are_refused() -> None:
    with pytest.raises(BadInput, match=r"at most experts \(2\); got 3"):
        moe(4, 4, 4, experts=2, top_k=3)
    with pytest.raises(BadInput, match=r"at most tokens \(4\); got 5"):
        moe(4, 4, 4, experts=2, top_k=1, capacity=5)
    with pytest.raises(BadInput, match="one round of the gate each"):
        moe(4, 4, 4, experts=100, top_k=65)
    with pytest.raises(BadInput, match="a divisor of heads"):
        transformer_layer(4, 4, 3, 2, 4, 4)
    with pytest.raises(BadInput, match="under a causal mask"):
        mla(2, 5, 4, 4, 4, 4, causal=True)
