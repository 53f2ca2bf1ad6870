"""Laws of hybrids: what recurrent layers keep of a sequence and take of a step, between attention and recurrence alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.importers.published import CONFIGS
from tests.reference.serving_cases import SOFTWARE, deployment

from halley.errors import BadInput
from halley.formulas.numbers import Number
from halley.importers.serving import served_model
from halley.importers.source import find_model
from halley.kernels.times import Attention
from halley.library import MODELS
from halley.serving.bounds import throughput_bounds
from halley.serving.deployment import Deployment, Load, transfer_time
from halley.serving.kernels import ADDITION
from halley.serving.layout import ReplicaLayout
from halley.serving.memory import serving_memory
from halley.serving.model import ServedModel, stage_layers
from halley.serving.recurrent import scan, state_bytes_per_rank
from halley.serving.served import served
from halley.serving.simulate import generated, simulate
from halley.serving.speculation import Acceptance, Speculation, proposing_head
from halley.serving.steady import Lengths, closed_loop
from halley.serving.step import StepBatch, weight_bytes_per_chip
from halley.serving.tables import Array
from halley.workloads import build

SHIPPED = [name for name in MODELS.names() if find_model(name).hybrid is not None]
PLACES = {
    "granite-4.0-h-small": ("2 x h100, nvlink 2", ReplicaLayout(2)),
    "jamba-v0.1": ("4 x h100, nvlink 4", ReplicaLayout(4)),
    "nemotron-h-8b": ("1 x h100", ReplicaLayout()),
    "qwen3-next-80b-a3b": ("4 x h100, nvlink 4", ReplicaLayout(4)),
}


@cache
def mixed(recurrent: int) -> Deployment:
    """Nemotron-H with so many recurrent layers of its 28."""
    made = deployment("nemotron-h-8b")
    assert made.model.hybrid is not None
    own = replace(made.model.hybrid, layers=recurrent) if recurrent else None
    return replace(made, model=replace(made.model, hybrid=own))


def sequence_bytes(made: Deployment, context: float) -> float:
    memory = made.engine_memory
    return memory.pages(context) * memory.page


@given(st.integers(1, 30_000), st.integers(1, 30_000))
def test_memory_of_recurrent_layers_alone_does_not_depend_on_the_context(one: int, other: int) -> None:
    made = mixed(28)
    assert sequence_bytes(made, one) == sequence_bytes(made, other) == made.model.state_bytes_per_sequence
    assert made.capacity_users(Lengths(one, 8)) == made.capacity_users(Lengths(other, 8))


@given(st.integers(1, 27), st.integers(1, 20_000), st.integers(1, 20_000))
def test_a_hybrid_grows_by_its_layers_with_attention_alone(recurrent: int, one: int, other: int) -> None:
    """By whole pages, whose bytes are those of the layers with attention."""
    short, long = sorted((one, other))
    made, pure = mixed(recurrent), mixed(0)
    grown = sequence_bytes(made, long) - sequence_bytes(made, short)
    whole = sequence_bytes(pure, long) - sequence_bytes(pure, short)
    assert grown == pytest.approx(whole * (28 - recurrent) / 28, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 26), st.integers(1, 64), st.integers(1, 8000))
def test_a_hybrid_lies_between_attention_and_recurrence(recurrent: int, users: int, context: int) -> None:
    """Bytes of a sequence and the times of what keeps them are sums over layers; so each more recurrent layer changes them in one
    direction, by the same amount."""
    fewer, more = mixed(recurrent), mixed(recurrent + 1)
    ends = mixed(0), mixed(28)
    for value in (
        lambda made: made.model.attention_layers * made.model.cache_width * 2 * context + made.model.state_bytes_per_sequence,
        lambda made: float(
            sum(made.step.parts(StepBatch(users, context)).get(name, 0.0) for name in ("attention", "recurrence"))
        ),
    ):
        low, high = sorted(value(made) for made in ends)
        assert low * (1 - 1e-12) <= value(fewer) <= high * (1 + 1e-12)
        each = (value(ends[1]) - value(ends[0])) / 28
        assert value(more) - value(fewer) == pytest.approx(each, rel=1e-6, abs=1e-9 * high)


@given(st.integers(1, 64), st.integers(1, 8000), st.integers(1, 8000))
def test_contexts_do_not_change_a_step_of_recurrent_layers(users: int, one: int, other: int) -> None:
    step = mixed(28).step
    assert float(step.time(StepBatch(users, one))) == float(step.time(StepBatch(users, other)))


@pytest.mark.parametrize("name", SHIPPED)
def test_ranks_share_states_and_weights(name: str) -> None:
    """All ranks of a group hold at least a state and all weights; exactly so where groups of heads divide."""
    model = served_model(name)
    assert model.hybrid is not None
    whole = state_bytes_per_rank(model, 1)
    assert whole == model.state_bytes
    for tp in (2, 4, 8):
        each = tp * state_bytes_per_rank(model, tp)
        divides = model.hybrid.kind == "mamba" or model.hybrid.groups % tp == 0
        assert each == pytest.approx(whole) if divides else whole < each < 1.1 * whole
        assert tp * weight_bytes_per_chip(model, ReplicaLayout(tp)) == pytest.approx(model.weight_bytes)


@given(st.sampled_from(SHIPPED), st.integers(1, 16))
def test_stages_hold_all_layers(name: str, stages: int) -> None:
    model = served_model(name)
    found = stage_layers(model, stages)
    counts = model.attention_layers, model.recurrent_layers, model.dense_layers, model.expert_layers
    for most, count in zip((found.attention, found.recurrent, found.dense, found.sparse), counts, strict=True):
        assert count <= stages * most < count + stages


@pytest.mark.parametrize("name", SHIPPED)
def test_closed_forms_are_near_the_simulation(name: str) -> None:
    made = deployment(name, *PLACES[name])
    lengths = Lengths(300, 60)
    state = closed_loop(made.step, made.engine_memory, 16, lengths)
    found = simulate(made.step, made.engine_memory, generated(600, 0.0, (250, 350), (50, 70)), concurrency=16)
    assert state.rate == pytest.approx(found.requests / found.time, rel=0.03)
    assert state.tpot == pytest.approx(found.tpot.mean, rel=0.05)


def test_a_cache_full_of_states() -> None:
    """The simulation decodes as many sequences as states fit, and the closed form has as many."""
    made = mixed(28)
    memory = replace(
        made.engine_memory, usable=made.engine_memory.usable - made.engine_memory.cache + 10.5 * made.model.state_bytes * 28
    )
    assert memory.users(5000) == 10
    found = simulate(made.step, memory, generated(200, 0.0, (20, 30), (90, 110)), concurrency=40)
    state = closed_loop(made.step, memory, 40, Lengths(25, 100))
    assert found.peak == state.running == 10
    assert state.rate == pytest.approx(found.requests / found.time, rel=0.05)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(SHIPPED), st.integers(1, 200), st.integers(10, 3000), st.integers(2, 300))
def test_nothing_exceeds_the_bounds(name: str, users: int, long: int, answer: int) -> None:
    made = deployment(name, *PLACES[name])
    value = served(made, Load(Lengths(long, answer), concurrency=users))
    assert value.requests <= value.bounds[0].rate * (1 + 1e-12)
    steps = next(item.rate for item in value.bounds if item.name == "steps")
    assert steps <= min(item.rate for item in throughput_bounds(made, Lengths(long, answer), users)) * 1.001


def test_a_prefix_leaves_scans_out() -> None:
    """A prompt whose first half is cached starts from the state behind it; in the cache that is one more state."""
    made = mixed(28)
    half, whole = (float(made.step.time(StepBatch(0, 0, new, 1024))) for new in (256, 512))
    assert half < whole
    memory = replace(
        made.engine_memory, usable=made.engine_memory.usable - made.engine_memory.cache + 3.5 * made.engine_memory.page
    )
    block = list(generated(30, 0.0, (200, 300), (20, 30)))
    peaks = [simulate(made.step, memory, block, prefix=prefix).peak for prefix in (0, 64)]
    assert peaks == [3, 2]


def test_rounds_keep_a_state_behind_each_token() -> None:
    """So that a sequence goes on behind the last accepted token: as many states as tokens, written once and read once a round."""
    made = deployment("qwen3-next-80b-a3b", *PLACES["qwen3-next-80b-a3b"])
    own = Speculation(proposing_head(made.model), Acceptance(0.8), 3)
    speculating = replace(made, speculation=own)
    assert speculating.memory.state == 4 * made.memory.state
    update = (
        float(made.step.parts(StepBatch(32, 500))["recurrence"]),
        float(speculating.step.parts(StepBatch(32, 500))["recurrence"]),
    )
    assert update[1] == pytest.approx(2.5 * update[0], rel=0.1)  # 5 states are moved in place of 2
    assert proposing_head(made.model).recurrent_layers == 0
    found = simulate(
        speculating.step,
        speculating.engine_memory,
        generated(60, 0.0, (90, 110), (40, 60)),
        concurrency=4,
        acceptance=own.acceptance,
    )
    assert found.requests == 60


def test_a_hybrid_that_drafts_keeps_its_states_too() -> None:
    made = deployment()
    own = Speculation(served_model("nemotron-h-8b"), Acceptance(0.9), 2)
    memory = replace(made, speculation=own).memory
    assert memory.draft is not None
    assert memory.draft.state == 3 * own.draft.state_bytes_per_sequence


@dataclass
class Counting:
    """Kernels that count what they are asked for: multiply-accumulates of products, bytes of streams, functions on the lanes."""

    macs: float = 0.0
    bytes: float = 0.0
    work: dict[str, float] = field(default_factory=dict)

    def product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1, dtype: str = "bf16") -> Array:
        self.macs += float(np.sum(batch * rows * columns * depth))
        return np.zeros(())

    def attention(self, kernel: Attention) -> Array:
        raise AssertionError("recurrent layers have none")

    def stream(self, read: Number, written: Number, points: Number | None = None, work: Mapping[str, float] = ADDITION) -> Array:
        self.bytes += float(np.sum(read + written))
        if points is not None:
            for name, count in work.items():
                self.work[name] = self.work.get(name, 0.0) + float(np.sum(points * count))
        return np.zeros(())


@given(st.integers(1, 9), st.integers(1, 3), st.sampled_from([1, 2]))
def test_products_of_a_scan_are_those_of_the_workload(chunks: int, prompts: int, tp: int) -> None:
    """Of the block of Mamba-2 by chunks, whose heads are one group, on one of several ranks."""
    model = served_model("granite-4.0-h-small")
    own = model.hybrid
    assert own is not None
    sizes = {"chunks": chunks, "chunk": own.chunk, "model": 1, "heads": own.heads // tp, "head_dim": own.head_dim}
    block = build("mamba-2", {**sizes, "state": own.state, "variant": "chunked"})
    inside = sum(
        math.prod(block.dims[dim] for dim in op.dims) for op in block.ops if op.name in ("scores", "inside", "states", "across")
    )
    found = Counting()
    scan(found, model, tp, prompts, chunks * own.chunk)
    assert found.macs == prompts * inside
    states = own.heads // tp * own.head_dim * own.state
    assert found.bytes == prompts * (4 * chunks * states * 4 + 2 * state_bytes_per_rank(model, tp))


def test_functions_of_a_scan_are_those_of_the_workload() -> None:
    """Of Mamba: decay, drive, recurrence and what is read of it."""
    model = served_model("jamba-v0.1")
    own = model.hybrid
    assert own is not None
    block = build("mamba", {"length": 96, "model": 1, "inner": own.inner, "state": own.state, "rank": 1})
    wanted: dict[str, float] = {}
    for op in block.ops:
        if op.name in ("decay", "drive", "scan", "read"):
            for name, count in block.work(op).items():
                wanted[name] = wanted.get(name, 0.0) + count * math.prod(block.dims[dim] for dim in op.dims)
    found = Counting()
    scan(found, model, 1, 1, 96)
    assert found.work == pytest.approx(wanted)


def test_a_delta_rule_by_hand() -> None:
    """A chunk of 64 tokens of one layer of Qwen3-Next: 16 heads of keys, 32 of values, all of 128."""
    found, model = Counting(), served_model("qwen3-next-80b-a3b")
    scan(found, model, 1, 1, 64)
    tokens, width = 64, 128
    groups = 16 * (2 * tokens * tokens * width)  # queries by keys, keys by keys
    heads = 32 * (tokens * tokens * width + 2 * width * width * tokens)  # values by scores; the state, and what it adds
    heads += 32 * (
        tokens**3 / 3 + 2 * tokens * tokens * width + tokens * width * width
    )  # the triangle, its results, the state by keys
    assert found.macs == pytest.approx(groups + heads)


@pytest.mark.parametrize("name", SHIPPED)
def test_updates_take_the_bytes_of_their_states(name: str) -> None:
    """At the data sheet's bandwidth, for many sequences."""
    made = deployment(name, *PLACES[name])
    update = float(made.step.parts(StepBatch(64, 500))["recurrence"])
    moved = 2 * 64 * made.model.recurrent_layers * state_bytes_per_rank(made.model, made.layout.tp)
    least = moved / made.system.tiers[0].read_bandwidth
    assert least * (1 - 1e-9) <= update <= 1.1 * least + made.model.recurrent_layers * 2e-6


def test_what_moves_between_pools() -> None:
    """Keys and values of a prompt by its tokens, states whatever its tokens."""
    made = deployment("nemotron-h-8b", "2 x h100, nvlink 2", ReplicaLayout(1))
    link = made.system.axes[0].link
    one, two = (transfer_time(made, tokens, link, 1) for tokens in (1000, 2000))
    kept = made.model.state_bytes_per_sequence / link.bandwidth
    assert two - one == pytest.approx(1000 * 4 * 2 * 8 * 128 * 2 / link.bandwidth)
    assert one - (two - one) == pytest.approx(kept + link.latency)


def test_what_is_refused() -> None:
    model = served_model("nemotron-h-8b")
    assert model.hybrid is not None
    with pytest.raises(BadInput, match="state: expected one of bf16, fp16, fp32; got 'fp8'"):
        replace(model, state="fp8")
    with pytest.raises(BadInput, match="hybrid, layers: expected at most 28 layers; got 29"):
        replace(model, hybrid=replace(model.hybrid, layers=29))
    with pytest.raises(BadInput, match=r"hybrid, groups: expected a divisor of heads \(128\); got 3"):
        replace(model, hybrid=replace(model.hybrid, groups=3))
    with pytest.raises(BadInput, match="a rank of the steps with kind mamba, none with others; got 8"):
        replace(model, hybrid=replace(model.hybrid, rank=8))
    with pytest.raises(BadInput, match="a model with attention in some layers; got recurrent layers alone"):
        replace(mixed(28), speculation=Speculation(served_model("llama-68m"), Acceptance(0.5), 1))
    with pytest.raises(BadInput, match="tp: expected a divisor of 32 heads; got 3"):
        _ = replace(
            mixed(24), system=deployment("nemotron-h-8b", "3 x h100, nvlink 3", ReplicaLayout(3)).system, layout=ReplicaLayout(3)
        ).step
    with pytest.raises(BadInput, match="a window in at most 4 layers"):
        replace(model, window=10, windowed=5)


def test_models_without_attention_are_imported() -> None:
    for repository in ("mistralai/Mamba-Codestral-7B-v0.1", "state-spaces/mamba-130m-hf"):
        found = served_model(json.dumps(CONFIGS[repository]))
        assert isinstance(found, ServedModel)
        assert (found.attention_layers, found.feed_forward_layers, found.cache_bytes_per_token) == (0, 0, 0.0)
        memory = serving_memory(found, ReplicaLayout(), deployment().system, SOFTWARE)
        assert memory.pages(10) == memory.pages(10_000) == 1
        assert np.isfinite(memory.capacity_pages)
