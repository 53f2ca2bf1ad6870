"""The time of one step: one pass of a batch through all layers of a replica.

A step's batch is a number of sequences that each get one more token (decode), and chunks of prompts (prefill). Its time is a sum
of terms that depend on one or two numbers each: matrices, elementwise kernels, experts and collectives on the tokens of the step,
attention on sequences and their contexts. `StepModel` times the kernels of these terms once, on grids, and a step looks them up.

.. math:: t(n, c, q, k) = t_h + n t_u + \\max(L t_l, G(n + q) + D(n, c) + P(q, k) + R(n, q) + H(n + p))

Symbols: n [1] decoding sequences of mean context c [1], q [1] prompt tokens of p [1] prompts that end at k [1] keys; t_h, t_u,
t_l [s] host time of a step, of a sequence, of a layer (0 in a graph); G: matrices, elementwise kernels, experts, collectives,
gaps; D, P: attention; R: recurrent layers of a hybrid, whose states c and k do not change; H: the head.

With speculative decoding a step is a round: a draft proposes w - 1 tokens of each sequence one after the other, and w n tokens
take the place of n in G and H.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from halley.formulas.numbers import Number
from halley.formulas.spatial import two_stage_time
from halley.ir.mapping import CollectiveKind
from halley.kernels.times import Attention
from halley.serving import recurrent
from halley.serving.kernels import StepKernels
from halley.serving.layout import ReplicaLayout, ReplicaNetwork, check_layout
from halley.serving.model import ACTIVATION_BYTES, CACHE_BYTES, WEIGHT_BYTES, ServedModel, stage_layers
from halley.serving.software import ServingSoftware
from halley.serving.tables import Array, PiecewiseLinear, StackedLines, Surface, grid
from halley.workloads.transformer import Hybrid

PARTS = {
    "attention": "attention over the cache",
    "recurrence": "states of recurrent layers",
    "matrices": "matrices",
    "experts": "experts",
    "elementwise": "norms, activations and other elementwise kernels",
    "collectives": "collectives between chips",
    "head": "head",
    "draft": "the draft of speculative decoding",
    "host": "host and gaps between kernels",
}
"""Parts of a step's time."""

ATTENTION_KERNELS, BLOCK_KERNELS, EXPERT_KERNELS, LATENT_KERNELS = 5, 4, 5, 4
"""Kernels of attention (norm, projections, rotation, attention, output projection) and of a feed-forward block (norm, two
products, activation); more with experts (gate, choice, two permutations, second grouped product) and with latent attention (two
more projections, two absorbed ones)."""
KERNELS_PER_LAYER = ATTENTION_KERNELS + BLOCK_KERNELS
"""Kernels of a dense layer of a transformer."""
PROMPT_BATCH = 4096
"""Prompt tokens from which attention over prompts fills a chip: shorter prompts are timed together with others [tokens]."""
SLICES = (1, 2, 4, 8, 16, 32, 64)
"""Slices into which the tokens of a step may be cut on a spatial chip."""
TOKENS_PER_SLICE = 16
"""Least tokens of a slice where there are several; fewer would leave stages of the array idle."""
SUM_BYTES = 4
"""A sum of squares is fp32."""
FP8_DISPATCH = ("fp8", "nvfp4")
"""Weights for which tokens travel to the experts in fp8."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The batch of one step on one attention rank; numbers or arrays that broadcast. ``users`` decode at a mean ``context``
    (their own token included); ``prompt`` tokens of ``prompts`` prompts, which end at ``keys`` keys each."""

    users: Number = 0
    context: Number = 0
    prompt: Number = 0
    keys: Number = 0
    prompts: Number = 1


@dataclass(frozen=True, eq=False)
class StepModel:
    """Times of steps of one replica. ``longest``: context for which tables are made [tokens]. ``width``: tokens of a sequence
    that decodes, more than one where the proposals of a ``draft`` are verified; ``each``: output tokens that it gets in a step.

    >>> from halley.io.systems.system import load_system
    >>> from halley.io.transformers import load_model
    >>> from halley.kernels.machine import PEAK
    >>> from halley.serving.kernels import LibraryKernels, serving_machine
    >>> from halley.serving.software import IDEAL
    >>> system = load_system("1 x h100")
    >>> served, network = ServedModel(load_model("llama3-8b")), ReplicaNetwork(system)
    >>> kernels = LibraryKernels(serving_machine(system), PEAK)  # at the data sheet's rates
    >>> model = StepModel(served, ReplicaLayout(), network, kernels, IDEAL)
    >>> f"{float(model.time(StepBatch(users=1, context=1024))) * 1e3:.1f} ms"  # 15 GB of weights at 3.35 TB/s
    '4.5 ms'
    """

    model: ServedModel
    layout: ReplicaLayout
    network: ReplicaNetwork
    kernels: StepKernels
    software: ServingSoftware
    longest: int = 32768
    width: int = 1
    draft: StepModel | None = None
    each: float = 1.0

    def __post_init__(self) -> None:
        shape = self.model.shape
        experts = shape.experts.experts if shape.experts else 0
        check_layout(self.layout, self.model.split_heads, experts, shape.layers, f"serving of {shape.name}")

    def with_budget(self, budget: int) -> StepModel:
        """The same tables with a smaller budget of tokens a step."""
        return self._sharing(replace(self, software=replace(self.software, budget=budget)))

    def with_width(self, width: int, draft: StepModel | None = None, each: float = 1.0) -> StepModel:
        """The same tables with other tokens of a sequence that decodes, proposed by a ``draft``."""
        return self._sharing(replace(self, width=width, draft=draft, each=each))

    def _sharing(self, made: StepModel) -> StepModel:
        names = _TABLES + (_LATENT_TABLES if self.model.shape.latent is not None else ())
        names += _HYBRID_TABLES if self.model.hybrid is not None else ()
        made.__dict__.update({name: getattr(self, name) for name in names})
        return made

    # --- what a step takes -----------------------------------------------------------------------------------------------

    def time(self, batch: StepBatch) -> Array:
        """[s], of the shape that the batch broadcasts to."""
        chip = sum(self._chip_parts(batch).values(), np.zeros(()))
        time = self._host(batch) + np.maximum(chip, self._launching(batch))
        return np.asarray(time if self.draft is None else time + self._drafting(self.draft, batch))

    def parts(self, batch: StepBatch) -> dict[str, Array]:
        """The time in the parts of `PARTS`, which add up to it."""
        found = self._chip_parts(batch)
        chip = sum(found.values(), np.zeros(()))
        waiting = np.maximum(self._launching(batch) - chip, 0.0)
        found["host"] = found["host"] + self._host(batch) + waiting
        return found if self.draft is None else found | {"draft": self._drafting(self.draft, batch)}

    def _drafting(self, draft: StepModel, batch: StepBatch) -> Array:
        """Time of the draft: a step for each proposed token, of which the first has the prompts too [s]."""
        users = np.asarray(batch.users, dtype=np.float64)
        more = np.where(users > 0, draft.time(StepBatch(users, batch.context)), 0.0)
        return np.asarray(draft.time(batch) + (self.width - 2) * more)

    def decode_steps(self, tokens: float) -> float:
        """Steps in which a sequence gets so many output tokens."""
        return decode_steps(tokens, self.each)

    def _chip_parts(self, batch: StepBatch) -> dict[str, Array]:
        users, prompts = np.asarray(batch.users, dtype=np.float64), np.asarray(batch.prompts, dtype=np.float64)
        prompt = np.asarray(batch.prompt, dtype=np.float64)
        verified = users * self.width
        tokens = verified + prompt
        found = dict(zip(self.lines, self.stacked(tokens), strict=True))
        found["head"] = self.head(verified + np.where(prompt > 0, prompts, 0.0))
        each = prompt / np.maximum(prompts, 1.0)
        found["attention"] = self.decode(users, batch.context) + prompts * self.prefill(each, batch.keys)
        if self.model.shape.latent is not None:
            found["matrices"] = (
                found["matrices"] + self.absorbed(verified) + prompts * self.expanded(np.where(prompt > 0, batch.keys, 0))
            )
        if self.model.hybrid is not None:
            found["recurrence"] = self.update(users * self.states_moved) + prompts * self.scan(each)
        return found

    def _host(self, batch: StepBatch) -> Array:
        users = np.asarray(batch.users, dtype=np.float64) + np.where(np.asarray(batch.prompt) > 0, batch.prompts, 0.0)
        return self.software.step + self.software.user * users

    def _launching(self, batch: StepBatch) -> Array:
        """Least time of a step whose kernels are launched one by one [s]."""
        tokens = np.asarray(batch.users, dtype=np.float64) * self.width + batch.prompt
        return np.where(tokens > self.software.graphs, self.launches, 0.0)

    @property
    def launches(self) -> float:
        """Time to launch all kernels of a step one by one [s]. A recurrent layer counts like one with attention, and a layer
        without a feed-forward block half."""
        return (self.model.shape.layers + self.model.feed_forward_layers) / 2 * self.software.layer

    @property
    def states_moved(self) -> int:
        """States of a sequence that a step which decodes reads and writes: one, and one behind each of its tokens."""
        return 1 + self.width

    # --- tables ----------------------------------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> Array:
        """The grid of tokens of a step."""
        return grid(self.software.budget + self._verified)

    @property
    def _verified(self) -> int:
        """Tokens of sequences that decode, at most."""
        return self.software.users * self.width

    @cached_property
    def lines(self) -> Mapping[str, PiecewiseLinear]:
        """By part, what depends on the tokens of a step alone, of all layers and stages."""
        tokens, shape = self.tokens, self.model.shape
        dense, sparse = self.model.dense_layers, self.model.expert_layers
        hybrid, mixers = self.model.hybrid, self.model.attention_layers
        found = {"matrices": mixers * self._projections(tokens)}
        if hybrid is not None:
            found["matrices"] = found["matrices"] + hybrid.layers * recurrent.projections(
                self.kernels, self.model, self.layout.tp, tokens
            )
        # kernels side by side on a spatial chip hand tensors on without memory: elementwise ones take no time of their own
        streamed = bool(self.network.system.chip.streams)
        found["elementwise"] = 0.0 * tokens if streamed else self._elementwise(tokens)
        found["matrices"] = found["matrices"] + dense * self._feed_forward(tokens, shape.hidden)
        if sparse:
            found["matrices"] = found["matrices"] + sparse * self._shared(tokens)
            found["experts"] = sparse * self._experts(tokens)
        work = found["matrices"] + found.get("experts", 0.0)
        found["collectives"] = self._beside(work, tokens) if streamed else self._exchanges(tokens)
        hidden = tokens * shape.model * ACTIVATION_BYTES / self.layout.tp
        found["collectives"] = found["collectives"] + (self.layout.pp - 1) * self.network.send(
            self.layout.stage, hidden, self.software.collective
        )
        kernels = mixers * ATTENTION_KERNELS + (dense + sparse) * BLOCK_KERNELS + sparse * EXPERT_KERNELS
        kernels += LATENT_KERNELS * mixers if shape.latent else 0
        kernels += 0 if hybrid is None else hybrid.layers * recurrent.RECURRENT_KERNELS[hybrid.kind]
        found["host"] = np.full_like(tokens, kernels * self.software.gap)
        return {name: PiecewiseLinear(tokens, np.asarray(values, dtype=np.float64)) for name, values in found.items()}

    @cached_property
    def stacked(self) -> StackedLines:
        """All of `lines`, looked up together."""
        return StackedLines(self.tokens, np.stack([line.values for line in self.lines.values()]))

    @cached_property
    def head(self) -> PiecewiseLinear:
        """By sequences that get a token: the head, and the logits of all ranks."""
        rows, shape = grid(self._verified), self.model.shape
        time = self.kernels.product(rows, shape.vocabulary / self.layout.tp, shape.model)
        logits = rows * shape.vocabulary * ACTIVATION_BYTES
        time = time + self.kernels.stream(logits / self.layout.tp, 0 * logits)
        return PiecewiseLinear(rows, time + self._collective(CollectiveKind.ALL_GATHER, self.layout.tp, 1, logits))

    @cached_property
    def decode(self) -> Surface:
        """By sequences and their context: attention of all layers over one new token."""
        users, context = grid(self.software.users, 2), grid(self.longest, 2)
        n, c = users[:, None], context[None, :]
        model = self.model
        if not model.attention_layers:
            return Surface(users, context, np.zeros((len(users), len(context))))
        plain = self.kernels.attention(self._attention(n, 1, c))
        total = (model.attention_layers - model.windowed) * plain
        if model.windowed:
            total = total + model.windowed * self.kernels.attention(self._attention(n, 1, np.minimum(c, model.window)))
        return Surface(users, context, np.asarray(total))

    @cached_property
    def prefill(self) -> Surface:
        """By tokens of a chunk and keys at its end: attention of all layers over one prompt, among enough others to fill the
        chip."""
        chunk, keys = grid(self.software.budget, 2), grid(max(self.longest, self.software.budget), 2)
        q = chunk[:, None]
        k = np.maximum(keys[None, :], q)
        batch = np.maximum(np.ceil(PROMPT_BATCH / q), 1.0)
        model = self.model
        if not model.attention_layers:
            return Surface(chunk, keys, np.zeros((len(chunk), len(keys))))
        total = (model.attention_layers - model.windowed) * self._prompt(batch, q, k)
        if model.windowed:
            total = total + model.windowed * self._prompt(batch, q, np.minimum(k, q + model.window))
        return Surface(chunk, keys, np.asarray(total / batch))

    @cached_property
    def update(self) -> PiecewiseLinear:
        """Of a hybrid: by states that sequences that decode read or write, the updates of all recurrent layers. Contexts do not
        change them."""
        model = self.model
        rows = grid(self.software.users * self.states_moved)
        return PiecewiseLinear(rows, model.recurrent_layers * recurrent.moved_states(self.kernels, model, self.layout.tp, rows))

    @cached_property
    def scan(self) -> PiecewiseLinear:
        """Of a hybrid: by tokens of a chunk of a prompt, the scans of all recurrent layers over one prompt, among enough others
        to fill the chip."""
        chunk, model = grid(self.software.budget, 2), self.model
        batch = np.maximum(np.ceil(PROMPT_BATCH / chunk), 1.0)
        total = model.recurrent_layers * recurrent.scan(self.kernels, model, self.layout.tp, batch, chunk)
        return PiecewiseLinear(chunk, total / batch)

    @cached_property
    def absorbed(self) -> PiecewiseLinear:
        """Latent attention: the projections of queries into the latents of keys, and of results out of them, for decoding."""
        rows, shape, latent = grid(self._verified), self.model.shape, self.model.shape.latent
        assert latent is not None  # asked for only then
        heads = shape.heads / self.layout.tp
        into = self.kernels.product(rows, latent.keys, shape.head_dim, heads)
        out = self.kernels.product(rows, latent.value_dim, latent.keys, heads)
        return PiecewiseLinear(rows, shape.layers * (into + out))

    @cached_property
    def expanded(self) -> PiecewiseLinear:
        """Latent attention: keys and values of a prompt from their latents, by keys."""
        rows, shape, latent = grid(max(self.longest, self.software.budget)), self.model.shape, self.model.shape.latent
        assert latent is not None  # asked for only then
        width = shape.heads / self.layout.tp * (shape.head_dim + latent.value_dim)
        return PiecewiseLinear(rows, shape.layers * self.kernels.product(rows, width, latent.keys, 1, self.model.weights))

    # --- kernels of one layer --------------------------------------------------------------------------------------------

    @property
    def _kv_heads(self) -> float:
        return max(self.model.shape.kv_heads / self.layout.tp, 1.0)

    def _attention(self, batch: Number, queries: Number, keys: Number) -> Attention:
        shape, heads, cached = self.model.shape, self.model.shape.heads / self.layout.tp, _cache_dtype(self.model)
        if shape.latent is None:
            return Attention(batch, queries, keys, heads, self._kv_heads, shape.head_dim, cached=cached)
        width = shape.latent.keys + shape.latent.rope_dim
        return Attention(batch, queries, keys, heads, 1, width, shape.latent.keys, latent=True, cached=cached)

    def _prompt(self, batch: Number, queries: Number, keys: Number) -> Array:
        shape, heads = self.model.shape, self.model.shape.heads / self.layout.tp
        if shape.latent is None:
            cached = _cache_dtype(self.model)
            kernel = Attention(batch, queries, keys, heads, self._kv_heads, shape.head_dim, causal=True, cached=cached)
        else:
            width = shape.head_dim + shape.latent.rope_dim
            kernel = Attention(batch, queries, keys, heads, heads, width, shape.latent.value_dim, causal=True)
        return self.kernels.attention(kernel)

    def _product(self, rows: Number, columns: Number, depth: Number, batch: Number = 1) -> Array:
        return self.kernels.product(rows, columns, depth, batch, self.model.weights)

    def _projections(self, tokens: Array) -> Array:
        shape, tp = self.model.shape, self.layout.tp
        if shape.latent is None:
            width = (shape.heads / tp + 2 * self._kv_heads) * shape.head_dim + self.model.gate_width / tp
            return self._product(tokens, width, shape.model) + self._product(
                tokens, shape.model, shape.heads / tp * shape.head_dim
            )
        latent = shape.latent
        down = self._product(tokens, latent.queries + latent.keys + latent.rope_dim, shape.model)
        up = self._product(tokens, shape.heads / tp * (shape.head_dim + latent.rope_dim), latent.queries)
        return down + up + self._product(tokens, shape.model, shape.heads / tp * latent.value_dim)

    def _feed_forward(self, tokens: Array, hidden: int) -> Array:
        shape, wide = self.model.shape, hidden / self.layout.tp
        first = self._product(tokens, (self.model.matrices - 1) * wide, shape.model)
        return first + self._product(tokens, shape.model, wide)

    def _shared(self, tokens: Array) -> Array:
        """The gate and the shared experts of one layer."""
        experts = self.model.shape.experts
        assert experts is not None  # asked for only then
        gate = self.kernels.product(tokens, experts.experts, self.model.shape.model)
        return gate + (self._feed_forward(tokens, experts.shared) if experts.shared else 0.0)

    def _experts(self, tokens: Array) -> Array:
        """The chosen experts of one layer on the rank that has most of their tokens."""
        shape, layout = self.model.shape, self.layout
        experts = shape.experts
        assert experts is not None  # asked for only then
        chosen = tokens * layout.dp * experts.top_k
        distinct = distinct_experts(tokens * layout.dp, experts.experts, experts.top_k)
        active, rows = distinct / layout.ep, chosen / distinct
        rows = rows * busiest_share(chosen / layout.ep, layout.ep)
        wide = experts.hidden * layout.ep / layout.stage
        first = self._product(rows, (self.model.matrices - 1) * wide, shape.model, active)
        return first + self._product(rows, shape.model, wide, active)

    def _elementwise(self, tokens: Array) -> Array:
        """Norms with the residual, rotation and the cache, activation, of all layers; of recurrent ones the convolution, gate and
        norm."""
        model, shape, tp, word = self.model, self.model.shape, self.layout.tp, ACTIVATION_BYTES
        hidden = tokens * shape.model * word
        norm = self.kernels.stream(2 * hidden, 2 * hidden)
        turned = tokens * (shape.heads / tp + self._kv_heads) * shape.head_dim * word
        kept = tokens * model.cache_width * CACHE_BYTES[model.cache] / (1 if shape.latent else min(tp, shape.kv_heads))
        rotation = self.kernels.stream(turned, turned + kept)
        if model.gate_width:
            gate = tokens * model.gate_width / tp * word
            rotation = rotation + self.kernels.stream(2 * gate, gate)
        wide = shape.hidden / tp
        if shape.experts is not None:
            experts = shape.experts
            wide = (experts.top_k * experts.hidden + experts.shared) * self.layout.dp / self.layout.stage
        middle = tokens * wide * word
        activation = self.kernels.stream((model.matrices - 1) * middle, middle)
        if model.hybrid is None:
            return shape.layers * (2 * norm + rotation + activation)
        blocks = model.feed_forward_layers
        found = (shape.layers + blocks) * norm + model.attention_layers * rotation + blocks * activation
        return found + model.hybrid.layers * recurrent.elementwise(self.kernels, model, tp, tokens)

    # --- collectives -----------------------------------------------------------------------------------------------------

    def _exchanges(self, tokens: Array) -> Array:
        """All collectives of all layers, but for messages between stages."""
        dense, sparse = self.model.dense_layers, self.model.expert_layers
        found = (self.model.shape.layers + dense) * self._reduction(tokens)
        if self.model.hybrid is not None:
            found = found + self.model.hybrid.layers * self._inner_sums(self.model.hybrid, tokens)
        return found + sparse * self._exchange(tokens) if sparse else found

    def _inner_sums(self, own: Hybrid, tokens: Array) -> Array:
        """Sums over the ranks inside a recurrent layer: what Mamba selects by; the mean of squares of a norm over a group of
        heads that several ranks share."""
        tp = self.layout.tp
        if own.kind == "mamba":
            return self._collective(CollectiveKind.ALL_REDUCE, tp, 1, tokens * (own.rank + 2 * own.state) * ACTIVATION_BYTES)
        if own.kind == "mamba-2" and own.groups % tp:
            return self._collective(CollectiveKind.ALL_REDUCE, tp, 1, tokens * SUM_BYTES)
        return 0.0 * tokens

    def _beside(self, work: Array, tokens: Array) -> Array:
        """What collectives add to the ``work`` [s] of matrices and experts on a spatial chip, whose kernels run side by side:
        while one slice of the tokens is exchanged, another is multiplied. The best number of slices is taken."""
        times = [
            np.where(
                (tokens >= cut * TOKENS_PER_SLICE) | (cut == 1),
                two_stage_time(work, cut * self._exchanges(tokens / cut), cut),
                np.inf,
            )
            for cut in SLICES
        ]
        return np.asarray(np.min(times, axis=0) - work)

    def _collective(self, kind: CollectiveKind, ranks: int, stride: int, size: Array) -> Array:
        own = self.software
        return np.asarray(self.network.collective(kind, ranks, stride, size, own.collective, own.network)) + 0.0 * size

    def _reduction(self, tokens: Array) -> Array:
        size = tokens * self.model.shape.model * ACTIVATION_BYTES
        return self._collective(CollectiveKind.ALL_REDUCE, self.layout.tp, 1, size)

    def _exchange(self, tokens: Array) -> Array:
        """Tokens to their experts and back: one all-reduce where all ranks have all tokens; else the faster of gathering all
        tokens and of sending each token to the ranks of its experts."""
        layout, experts = self.layout, self.model.shape.experts
        assert experts is not None  # asked for only then
        if layout.dp == 1:
            return self._reduction(tokens)
        ranks, hidden = layout.stage, tokens * self.model.shape.model
        word = 1 if self.model.weights in FP8_DISPATCH else ACTIVATION_BYTES
        there = self._collective(CollectiveKind.ALL_GATHER, ranks, 1, layout.dp * hidden * word)
        gathered = there + self._collective(CollectiveKind.REDUCE_SCATTER, ranks, 1, layout.dp * hidden * ACTIVATION_BYTES)
        copies = layout.ep * (1 - (1 - 1 / layout.ep) ** experts.top_k)  # ranks that one token goes to
        sent = hidden / layout.tp * copies * layout.stage / layout.ep
        there = self._collective(CollectiveKind.ALL_TO_ALL, ranks, 1, sent * word)
        return np.minimum(gathered, there + self._collective(CollectiveKind.ALL_TO_ALL, ranks, 1, sent * ACTIVATION_BYTES))


_TABLES: tuple[str, ...] = ("tokens", "lines", "stacked", "head", "decode", "prefill")
"""Cached properties that hold the tables."""
_LATENT_TABLES, _HYBRID_TABLES = ("absorbed", "expanded"), ("update", "scan")
"""Those of latent attention, and of hybrids, beside them."""


def decode_steps(tokens: float, each: float) -> float:
    """Steps in which a sequence gets so many ``tokens``, ``each`` in a step on average: at least one, if there are any.

    >>> decode_steps(12.0, 1.0), decode_steps(12.0, 3.0), decode_steps(2.0, 3.0)
    (12.0, 4.0, 1.0)
    """
    return max(tokens / each, min(tokens, 1.0))


def distinct_experts(tokens: Number, experts: int, chosen: int) -> Number:
    """Expected number of experts that at least one token chooses, if all are equally likely.

    .. math:: D = N (1 - (1 - k / N)^T)

    Symbols: N [1] experts, k [1] of a token, T [1] tokens.

    >>> distinct_experts(1, 256, 8), round(float(distinct_experts(64, 256, 8)), 1)
    (8.0, 222.4)
    """
    return experts * (1 - (1 - chosen / experts) ** tokens)


def busiest_share(mean: Number, groups: int) -> Number:
    """Load of the busiest of equally likely groups relative to the mean: a Gaussian bound of the largest of as many Poisson
    numbers, at most all of the load.

    .. math:: b = \\min(g, 1 + \\sqrt{2 \\ln g / m})

    Symbols: g [1] groups, m [1] mean load of one.

    >>> float(busiest_share(32.0, 1)), round(float(busiest_share(32.0, 8)), 2)
    (1.0, 1.36)
    """
    found: Number = np.minimum(float(groups), 1 + np.sqrt(2 * np.log(groups) / mean))
    return found


def _cache_dtype(model: ServedModel) -> str:
    return model.cache


def weight_bytes_per_chip(model: ServedModel, layout: ReplicaLayout) -> float:
    """Weights on the chip that has most: its share of all layers of its stage, and of embedding or head."""
    shape, word, layers = model.shape, WEIGHT_BYTES[model.weights], stage_layers(model, layout.pp)
    stage = layers.attention * model.attention_parameters / layout.tp + layers.dense * model.feed_forward_parameters / layout.tp
    stage += layers.recurrent * model.recurrent_parameters / layout.tp
    if shape.experts is not None:
        routed = shape.experts.experts * model.expert_parameters / layout.stage
        stage += layers.sparse * (model.shared_parameters / layout.tp + routed)
    tables = model.vocabulary_bytes / layout.tp
    return stage * word + (tables if layout.pp == 1 else tables / (1 if shape.tied else 2))
