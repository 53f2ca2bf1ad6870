"""Workloads mean what the textbook says: graphs against oracles, laws between variants and shapes, the registry, the models."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.graphs import evaluate
from tests.reference.oracles import ORACLES, inputs, oracle

from halley.errors import BadInput
from halley.ir.workload import FUNCTIONS, OpKind, Workload
from halley.workloads import (
    MODELS,
    WORKLOADS,
    ModelShape,
    ParameterType,
    attention,
    build,
    gated_mlp,
    gemm,
    gemm_layernorm,
    gemm_rmsnorm,
    gemm_softmax,
    shapes,
    variants,
)
from halley.workloads.construction.graph import EPSILON
from halley.workloads.construction.parameters import completed

EXAMPLES: dict[str, dict[str, object]] = {
    "gemm": {"m": 3, "n": 5, "k": 7, "b": 2},
    "gemm-softmax": {"m": 3, "n": 5, "k": 7, "b": 2},
    "gemm-layernorm": {"m": 3, "n": 5, "k": 7},
    "gemm-rmsnorm": {"m": 3, "n": 5, "k": 7},
    "attention": {"batch": 2, "heads": 6, "kv_heads": 2, "queries": 3, "keys": 5, "head_dim": 4, "value_dim": 7, "causal": True},
    "mla": {"heads": 2, "queries": 3, "keys": 5, "latent": 4, "head_dim": 3, "rope_dim": 2, "value_dim": 6, "causal": True},
    "gated-mlp": {"tokens": 3, "model": 5, "hidden": 7},
    "gemm-gelu-gemm": {"tokens": 3, "model": 5, "hidden": 7},
    "moe": {"tokens": 6, "model": 5, "hidden": 4, "experts": 3, "top_k": 2},
    "transformer-layer": {"tokens": 4, "model": 6, "heads": 4, "kv_heads": 2, "head_dim": 3, "hidden": 5},
    "attention-einsum": {"heads": 2, "queries": 3, "keys": 5, "head_dim": 4, "value_dim": 7},
    "gpt-layer": {"tokens": 3, "model": 5, "heads": 2, "head_dim": 2, "hidden": 4},
    "mamba": {"length": 5, "model": 3, "inner": 4, "state": 2, "rank": 2, "taps": 3, "batch": 2},
    "mamba-2": {"chunks": 3, "chunk": 4, "model": 5, "heads": 2, "head_dim": 3, "state": 2, "taps": 6},
    "hyena": {"length": 6, "model": 3, "batch": 2},
    "conv": {"height": 8, "width": 7, "channels": 4, "filters": 6, "stride": 2, "padding": 1, "groups": 2, "images": 2},
    "conv-chain": {"height": 8, "width": 7, "channels": 2, "filters": 3, "layers": 3, "images": 2},
    "dlrm": {"batch": 3, "tables": 4, "rows": 5, "width": 2, "lookups": 3, "dense": 6, "bottom_layers": 3, "bottom_hidden": 4}
    | {"top_layers": 3, "top_hidden": 5},
    "hpl": {"order": 7, "block": 3},
    "fft": {"rows": 4, "columns": 8},
    "gated-scan": {"length": 6, "channels": 3},
    "power-spectrum": {"m": 3, "n": 8},
    "embedding": {"tokens": 9, "vocabulary": 4, "width": 3},
    "scatter-add": {"tokens": 9, "slots": 4, "width": 3},
    "merge-heads": {"tokens": 3, "heads": 4, "head_dim": 5},
    "graph": {
        "lines": "S[m,n] = A[m,k] * B[k,n]\nz[m]:fp32 = sum(square(S[m,n]))\nP[m,n] = S[m,n] / z[m]",
        "dims": "m=3 n=5 k=7",
    },
}


def examples() -> list[Workload]:
    return [work for kind, parameters in EXAMPLES.items() for work in variants(build(kind, parameters))]


def label(work: Workload) -> str:
    return f"{work.name}-{work.variant}".strip("-")


def holds(work: Workload, seed: int = 0, spread: float = 1.0) -> None:
    """The op graph and the textbook agree."""
    arrays = inputs(work, seed, spread)
    expected = oracle(work, arrays)
    assert set(expected) == set(work.outputs)
    made = evaluate(work, arrays)
    for name, value in expected.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-9, atol=1e-9 * np.abs(value).max())


# ---------------------------------------------------------------- graphs against the textbook


def test_every_kind_has_an_example_and_an_oracle() -> None:
    assert set(EXAMPLES) == set(WORKLOADS) == set(ORACLES)


@pytest.mark.parametrize("work", examples(), ids=label)
@pytest.mark.parametrize("spread", [1.0, 8.0])
def test_graph_equals_textbook(work: Workload, spread: float) -> None:
    unguarded = any(op.function == "exp" for op in work.ops)  # no maximum is subtracted: large scores overflow
    holds(work, seed=1, spread=min(spread, 0.5) if unguarded else spread)


SIZE = st.integers(1, 6)


@settings(max_examples=30, deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, b=st.integers(1, 3), seed=st.integers(0, 99))
def test_gemm_family_equals_textbook(m: int, n: int, k: int, b: int, seed: int) -> None:
    for work in (gemm(m, n, k, b), gemm_softmax(m, n, k, b), gemm_layernorm(m, n, k), gemm_rmsnorm(m, n, k)):
        for variant in variants(work):
            holds(variant, seed)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_attention_equals_textbook(data: st.DataObject) -> None:
    kv_heads, group, queries = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), data.draw(SIZE)
    causal = data.draw(st.booleans())
    work = attention(
        batch=data.draw(st.integers(1, 2)),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        queries=queries,
        keys=data.draw(st.integers(queries if causal else 1, 8)),
        head_dim=data.draw(SIZE),
        value_dim=data.draw(st.none() | SIZE),
        causal=causal,
    )
    for variant in variants(work):
        holds(variant, data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_online_attention_may_stream_over_the_keys(spread: float) -> None:
    """``running`` and ``scaled_by`` are licences to tile: block by block over n, with rescaling, the result is the same."""
    work = attention(1, 4, 2, 3, 11, 4, value_dim=5, causal=True, variant="online")
    arrays = inputs(work, 3, spread)
    whole = evaluate(work, arrays)
    assert work.op("exp").running == (work.op("values").scaled_by,) == ("mx",)
    largest, total = np.full((2, 6), -np.inf), np.zeros((2, 6))
    accumulator = np.zeros((2, 6, 5))
    for start in range(0, 11, 4):
        scores, values = whole["S2"][:, :, start : start + 4], arrays["V"][:, start : start + 4]
        grown = np.maximum(largest, scores.max(axis=-1))
        shrink = np.exp(largest - grown)
        weights = np.exp(scores - grown[..., None])
        total = total * shrink + weights.sum(axis=-1)
        accumulator = accumulator * shrink[..., None] + weights @ values
        largest = grown
    np.testing.assert_allclose(largest, whole["mx"], rtol=1e-12)
    np.testing.assert_allclose(total, whole["z"], rtol=1e-9)
    np.testing.assert_allclose(accumulator / total[..., None], oracle(work, arrays)["O"], rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- laws between workloads


@pytest.mark.parametrize("kind", [name for name, kind in WORKLOADS.items() if kind.variants])
def test_variants_agree(kind: str) -> None:
    """Same inputs, outputs, dims and multiply-accumulates; same numbers; different ops."""
    family = variants(build(kind, EXAMPLES[kind]))
    assert tuple(work.variant for work in family) == WORKLOADS[kind].variants
    first = family[0]
    arrays = inputs(first, 5)
    for work in family[1:]:
        assert (set(work.inputs), work.outputs, work.dims) == (set(first.inputs), first.outputs, first.dims)
        trades = "absorbed" in work.variant or work.variant == "chunked"  # some work for other
        assert work.macs() == first.macs() or trades
        assert [op.name for op in work.ops] != [op.name for op in first.ops]
        for name in work.outputs:
            np.testing.assert_allclose(evaluate(work, arrays)[name], evaluate(first, arrays)[name], rtol=1e-9, atol=1e-11)
    for work in family:
        assert variants(work) == family


@pytest.mark.parametrize("variant", WORKLOADS["attention"].variants)
def test_decode_is_the_last_row_of_causal_prefill(variant: str) -> None:
    heads, kv_heads, length = 6, 2, 7
    prefill = attention(1, heads, kv_heads, length, length, 4, causal=True, variant=variant)
    decode = attention(1, heads, kv_heads, 1, length, 4, causal=True, variant=variant)
    arrays = inputs(prefill, 2)
    last = [member * length + length - 1 for member in range(heads // kv_heads)]
    step = arrays | {"Q": arrays["Q"][:, last]}
    assert decode.dims["m"] == len(last)
    np.testing.assert_allclose(evaluate(decode, step)["O"], evaluate(prefill, arrays)["O"][:, last], rtol=1e-12)


def test_grouped_heads_equal_multi_head_with_repeated_keys_and_values() -> None:
    grouped, full = attention(2, 6, 2, 3, 5, 4, causal=True), attention(2, 6, 6, 3, 5, 4, causal=True)
    arrays = inputs(grouped, 4)
    repeated = {
        "Q": arrays["Q"].reshape(12, 3, 4),
        "K": np.repeat(arrays["K"], 3, axis=0),
        "V": np.repeat(arrays["V"], 3, axis=0),
    }
    assert grouped.macs() == full.macs()
    np.testing.assert_allclose(evaluate(grouped, arrays)["O"].reshape(12, 3, 4), evaluate(full, repeated)["O"], rtol=1e-12)


def test_causal_attention_is_blind_to_the_future_only() -> None:
    work = attention(1, 2, 1, 4, 6, 3, causal=True)
    arrays = inputs(work, 6)
    changed = {name: array.copy() for name, array in arrays.items()}
    changed["K"][0, 4] += 1.0  # the key of the third of the four queries
    before, after = evaluate(work, arrays)["O"][0], evaluate(work, changed)["O"][0]
    differs = np.abs(before - after).max(axis=1) > 1e-9
    assert differs.tolist() == [False, False, True, True] * 2


@settings(max_examples=20, deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, b=st.integers(1, 3))
def test_multiply_accumulates_have_their_closed_forms(m: int, n: int, k: int, b: int) -> None:
    assert gemm(m, n, k, b).macs() == gemm_softmax(m, n, k, b).macs() == b * m * n * k
    assert gemm_layernorm(m, n, k).macs() == gemm_rmsnorm(m, n, k).macs() == m * n * k
    assert gated_mlp(m, n, k).macs() == 3 * m * n * k
    work = attention(b, 4 * k, k, m, m + 2, n, value_dim=n + 1)
    assert work.macs() == b * 4 * k * m * (m + 2) * (2 * n + 1)


def test_online_softmax_costs_one_more_exponential_per_score() -> None:
    """What the optimiser trades against a pass over the scores."""

    def exponentials(work: Workload) -> float:
        return sum(
            work.work(op).get("exp", 0.0) * math.prod(work.dims[dim] for dim in op.dims)
            for op in work.ops
            if op.kind is not OpKind.CONTRACT
        )

    plain, online = gemm_softmax(3, 5, 7), gemm_softmax(3, 5, 7, variant="online")
    assert (exponentials(plain), exponentials(online)) == (15, 30)
    # attention keeps them for the product with V
    sizes = {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 3, "keys": 5, "head_dim": 2}
    for variant in ("plain", "deferred", "online"):
        assert exponentials(build("attention", {**sizes, "variant": variant})) == 2 * 3 * 5


# ---------------------------------------------------------------- form of the graphs


@pytest.mark.parametrize("work", examples(), ids=label)
def test_graph_is_well_formed(work: Workload) -> None:
    assert [name for kernel in work.kernels for name in kernel] == [op.name for op in work.ops]
    used = {name for op in work.ops for name in (*op.inputs, *op.outputs)}
    assert used == set(work.tensors)
    assert {name for name in work.tensors if work.producer(name) and not work.consumers(name)} <= set(work.outputs)
    kept_besides = {"hpl": {"L21", "U12"}}.get(work.name, set())  # the factors are read by the update, and are results
    assert {name for name in work.outputs if work.consumers(name)} == kept_besides
    for op in work.ops:
        dims = {name: work.points(op, name) for name in (*op.inputs, *op.outputs)}
        assert len(set(op.dims)) == len(op.dims)
        if op.kind in (OpKind.MAP, OpKind.REDUCE):
            assert len(op.inputs) == FUNCTIONS[op.function].arity
            assert all(set(dims[name]) <= set(op.dims) for name in dims)
        if op.kind is OpKind.CONTRACT:
            (left, right), (result,) = (dims[name] for name in op.inputs), (dims[name] for name in op.outputs)
            assert work.reduced(op)
            assert set(work.reduced(op)) <= set(left) & set(right)
            assert set(right) - set(left)
            assert set(op.dims) == set(left) | set(right) == set(result) | set(work.reduced(op))
        rows = set(work.reduced(op)) if op.kind is OpKind.REDUCE else set()
        sequences = {dim for each in work.ops for dim in each.sequence}  # whole in a tile, so lanes may lie along them
        assert op.dims[-1] in {work.tensors[op.outputs[0]].dims[-1]} | rows | sequences


@pytest.mark.parametrize("work", examples(), ids=label)
def test_statistics_are_fp32_and_the_rest_in_the_dtype_asked_for(work: Workload) -> None:
    asked = build(work.name, {**work.parameters, "dtype": "fp16"})
    for tensor in asked.tensors.values():
        special = dict.fromkeys(("mx", "z", "mu", "v", "r", "q", "r1", "r2", "r3", "q1", "q2", "q3"), "fp32") | {"index": "int32"}
        if work.name == "moe":  # the gate
            special |= dict.fromkeys(("L1", "L2", "t1", "t2", "E", "W", "Ws"), "fp32")
        assert tensor.dtype == special.get(tensor.name, "fp16"), tensor.name


def test_batch_dim_is_present_only_when_there_is_one() -> None:
    assert "b" not in gemm(3, 5, 7).dims
    assert "b" not in gemm_softmax(3, 5, 7).dims
    assert gemm(3, 5, 7, b=2).dims["b"] == 2


# ---------------------------------------------------------------- registry


@pytest.mark.parametrize("kind", WORKLOADS.values(), ids=lambda kind: kind.name)
def test_kind_describes_its_builder(kind) -> None:
    assert WORKLOADS[kind.name] is kind
    signature = inspect.signature(kind.builder).parameters
    assert tuple(signature) == tuple(parameter.name for parameter in kind.parameters)
    for parameter in kind.parameters:
        default = signature[parameter.name].default
        if default is inspect.Parameter.empty:  # given by the caller, or completed where it is built by name
            others = {other.name: 1 for other in kind.parameters if other is not parameter}
            assert parameter.required or completed(kind, others)[parameter.name] is not None
        else:
            assert not parameter.required
            assert parameter.default == default
        assert parameter.meaning
        assert parameter.required or parameter.type is not ParameterType.CHOICE or parameter.default in parameter.choices


@pytest.mark.parametrize("work", examples(), ids=label)
def test_a_workload_records_what_rebuilds_it(work: Workload) -> None:
    assert build(work.name, work.parameters) == work


def test_a_changed_workload_has_no_known_variants() -> None:
    work = gemm_softmax(3, 5, 7)
    changed = replace(work, dims={**work.dims, "n": 6})
    assert variants(changed) == (changed,)
    renamed = replace(work, name="mine")
    assert variants(renamed) == (renamed,)
    bare = replace(work, parameters={})
    assert variants(bare) == (bare,)


BAD = {
    ParameterType.SIZE: [0, -3, True, 2.0, "8", 2**40 + 1, [4], float("nan"), 10**30],
    ParameterType.COUNT: [-1, True, 2.0, "8", 2**40 + 1, None],
    ParameterType.FLAG: [0, 1, "true", None],
    ParameterType.TEXT: ["", "  ", 3, True, ["x"], "x" * (2**18 + 1)],
    ParameterType.CHOICE: ["bf17", "", 3, None, ["plain"]],
}


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [(kind, item) for kind in WORKLOADS.values() for item in kind.parameters],
    ids=lambda item: item.name,
)
def test_each_bad_value_is_named(kind, parameter) -> None:
    """By name and by call alike: one bad value, one fault that names its parameter."""
    for value in BAD[parameter.type]:
        bad = {**EXAMPLES[kind.name], parameter.name: value}
        with pytest.raises(BadInput) as by_name:
            build(kind.name, bad)
        assert [fault.where for fault in by_name.value.faults] == [f"workload {kind.name}, parameter {parameter.name}"]
        with pytest.raises(BadInput) as by_call:
            kind.builder(**bad)
        assert by_call.value.faults == by_name.value.faults
    if parameter.required:
        missing = {name: value for name, value in EXAMPLES[kind.name].items() if name != parameter.name}
        with pytest.raises(BadInput, match=f"give {parameter.name}"):
            build(kind.name, missing)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        build(
            "attention",
            {"batch": 0, "heads": 7, "kv_heads": 2, "queries": 9, "keys": 4, "causal": True, "headdim": 64, "variant": "onlin"},
        )
    faults = [str(fault) for fault in caught.value.faults]
    assert len(faults) == 6
    for told in (
        "got 'headdim'; did you mean 'head_dim'?",
        "give head_dim",
        "parameter batch",
        "got 'onlin'; did you mean 'online'?",
        "a divisor of heads (7); got 2",
        "at most keys (4) under a causal mask; got 9",
    ):
        assert sum(told in fault for fault in faults) == 1, told


@pytest.mark.parametrize("kind", ["gemm-softmx", "", 3])
def test_unknown_kind(kind) -> None:
    with pytest.raises(BadInput, match="a known kind"):
        build(kind, {})
    with pytest.raises(BadInput, match="did you mean 'gemm-softmax'"):
        build("gemm-softmx", {})


def test_sizes_are_refused_where_they_cannot_be_meant() -> None:
    assert gemm(2**40, 1, 1).dims["m"] == 2**40
    with pytest.raises(BadInput, match="heads / kv_heads x queries"):
        attention(1, 2**21, 1, 2**20, 1, 1)
    with pytest.raises(BadInput, match=r"at most keys \(4\) under a causal mask; got 5"):
        attention(1, 1, 1, 5, 4, 1, causal=True)
    assert attention(1, 1, 1, 5, 4, 1).dims["m"] == 5
    with pytest.raises(BadInput, match="pad the rows to 16"):
        build("power-spectrum", {"m": 1, "n": 12})


# ---------------------------------------------------------------- models

# parameters as the publications or model cards state them, and how often these count the vocabulary's matrix
PUBLISHED = {
    "bert-base": (110e6, 1),
    "bert-large": (340e6, 1),
    "gpt2-xl": (1.542e9, 1),
    "gpt3-6.7b": (6.7e9, 1),
    "gpt3-175b": (175e9, 1),
    "llama2-7b": (6.74e9, 2),
    "llama2-70b": (69.0e9, 2),
    "llama3-8b": (8.03e9, 2),
    "llama3-70b": (70.6e9, 2),
    "llama3-405b": (405e9, 2),
    "mistral-7b": (7.24e9, 2),
    "falcon-7b": (6.92e9, 1),
    "vit-b/16": (86e6, 0),
    "vit-l/16": (307e6, 0),
    "vit-h/14": (632e6, 0),
}


def weights(shape: ModelShape, vocabularies: int) -> int:
    """Elements of all matrices; norms, biases and positions are below the tolerance."""
    projections = shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    ffn = (3 if shape.gated else 2) * shape.hidden * shape.ffn
    return shape.layers * (projections + ffn) + vocabularies * (shape.vocabulary or 0) * shape.hidden


@pytest.mark.parametrize("name", MODELS)
def test_model_adds_up_to_its_published_size(name: str) -> None:
    shape = MODELS[name]
    published, vocabularies = PUBLISHED[name]
    assert weights(shape, vocabularies) == pytest.approx(published, rel=0.02)
    assert shape.heads * shape.head_dim == shape.hidden
    assert shape.heads % shape.kv_heads == 0
    assert shape.source


@pytest.mark.parametrize("name", MODELS)
def test_shapes_of_a_model(name: str) -> None:
    tokens, shape = 96, MODELS[name]
    made = shapes(name, tokens, dtype="fp16")
    prefill, scores = made["attention-prefill"], made["scores-softmax"]
    assert prefill.bytes("Q") == tokens * shape.hidden * 2
    assert shape.kv_heads * scores.macs() * 2 == prefill.macs()  # Q K^T is half of attention
    assert made["projection-norm"].bytes("B") == shape.hidden**2 * 2
    assert made["ffn-norm"].dims == {"m": tokens, "n": shape.hidden, "k": shape.ffn}
    assert made["ffn-norm"].name == ("gemm-rmsnorm" if shape.rms else "gemm-layernorm")
    assert ("attention-decode" in made) == shape.causal == any(op.function == "scale_mask" for op in prefill.ops)
    if shape.causal:
        assert made["attention-decode"].macs() * tokens == prefill.macs()
    assert ("gated-mlp" in made) == shape.gated
    if "vocabulary-softmax" in made:
        assert made["vocabulary-softmax"].bytes("B") == shape.vocabulary * shape.hidden * 2


def test_unknown_model_and_bad_tokens() -> None:
    with pytest.raises(BadInput, match="did you mean 'llama3-8b'"):
        shapes("llama-3-8b", 128)
    with pytest.raises(BadInput, match="parameter queries"):
        shapes("llama3-8b", 0)


# ---------------------------------------------------------------- the page


def test_the_reference_page_lists_every_kind_parameter_and_model() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/workloads.md").read_text(encoding="utf-8")
    sections = {part.split("\n", 1)[0].strip("` "): part for part in page.split("\n## ")[1:]}
    for kind in WORKLOADS.values():
        rows = [line for line in sections[kind.name].splitlines() if line.startswith("| `")]
        assert rows == [
            f"| `{item.name}` | {item.type} | {'required' if item.required else _word(item.default)} | {item.meaning} |"
            for item in kind.parameters
        ]
        for work in variants(build(kind.name, EXAMPLES[kind.name])):
            for op in work.ops:
                assert f"`{op.name}`" in sections[kind.name]
    rows = [line for line in sections["Models"].splitlines() if line.startswith("| `")]
    for row, (name, shape) in zip(rows, MODELS.items(), strict=True):
        extents = (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn, shape.vocabulary or "-")
        assert row == " | ".join((f"| `{name}`", *map(str, extents), f"{shape.source} |"))
    assert f"epsilon = {EPSILON:g}" in page


def _word(default: object) -> str:
    return "derived" if default is None else str(default).lower()
