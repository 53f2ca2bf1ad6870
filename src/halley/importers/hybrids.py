"""Hybrids of Hugging Face: layers with attention beside recurrent ones (Mamba, Mamba-2, gated delta rule).

A plan of training does not cover them; they are served. Each function reads the fields of one architecture, whose parameters its
modelling code creates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halley.importers.fields import Fields, matching, period_layers
from halley.importers.layers import attention_layer, dense, mixture, product
from halley.importers.model import Counted, LayerWorkload, WeightGroup
from halley.workloads.transformer import Experts, Hybrid, Transformer

CHUNK_TOKENS = 256
"""Tokens of a chunk of a state-space block, as in the published kernels."""
DELTA_CHUNK_TOKENS = 64
"""Tokens of a chunk of the gated delta rule, as in the kernels of flash-linear-attention; no configuration states them."""


def hybrid_missing(layers: int, hybrid: Hybrid) -> str:
    """Why no plan trains a hybrid of so many layers."""
    if hybrid.kind == "gated-delta":
        return f"{hybrid.layers} of {layers} layers have linear attention with a delta rule, which Halley has no block for"
    return f"{hybrid.layers} of {layers} layers are state-space blocks; a plan trains transformers"


def hybrid_groups(
    shape: Transformer, hybrid: Hybrid, recurrent: int = 0, attention: int = 0, blocks: int = 0, routed: int = 0
) -> Iterator[WeightGroup]:
    """The parameters of a hybrid by kind, counted from its extents. Parameters that multiply no token's row, beside those of the
    extents: of a ``recurrent`` layer, of one with ``attention``, of a plain feed-forward block (``blocks``); ``routed``: of the
    gate of the shared experts of a layer, which does."""

    def group(what: str, each: int, count: int = 1, active: int = 0) -> WeightGroup:
        return WeightGroup(what, each, count, active, planned=False)

    model, experts, attending = shape.model, shape.experts, shape.layers - hybrid.layers
    matrices = model * shape.head_dim * (2 + hybrid.output_gate) * shape.heads + 2 * model * shape.kv_heads * shape.head_dim
    projections, table = hybrid.parameters(model), shape.vocabulary * model
    each = 3 if shape.gated else 2
    plain = hybrid.feed_forward if experts is None else experts.dense_layers
    yield group("embedding", table)
    yield group("gated attention" if hybrid.output_gate else "attention", matrices, attending, matrices)
    yield group("biases and norms of attention", attention, attending)
    yield group("projections of recurrent layers", projections, hybrid.layers, projections)
    yield group("taps, rates, skips and norms of recurrent layers", hybrid.vectors + recurrent, hybrid.layers)
    yield group("feed-forward blocks", each * model * shape.hidden + blocks, plain, each * model * shape.hidden)
    if experts is not None:
        mixed, one = hybrid.feed_forward - plain, each * model * experts.hidden
        shared = each * model * experts.shared + routed
        yield group("routers", model * experts.experts, mixed, model * experts.experts)
        yield group("experts", experts.experts * one, mixed, experts.top_k * one)
        yield group("shared experts and their gate" if routed else "shared experts", shared, mixed, shared)
    yield group("norms", model, shape.layers + hybrid.feed_forward + 1)
    yield group("head", 0 if shape.tied else table, 1, table)


def hybrid_layers(shape: Transformer, hybrid: Hybrid) -> dict[str, LayerWorkload]:
    """Its layers as workloads; there is none of the gated delta rule."""
    model, experts = shape.model, shape.experts
    made = {"attention": attention_layer(shape.heads, shape.kv_heads, shape.head_dim, True)}
    given: dict[str, object] = {"model": model}
    match hybrid.kind:
        case "mamba":
            given |= {"inner": hybrid.inner, "state": hybrid.state, "rank": hybrid.rank, "taps": hybrid.taps, "batch": 1}
            made["mixer"] = LayerWorkload("selective state-space block", "mamba", given, ("length",))
        case "mamba-2":
            given |= {"chunk": hybrid.chunk, "heads": hybrid.heads, "head_dim": hybrid.head_dim}
            given |= {"state": hybrid.state, "taps": hybrid.taps}
            words = f"state-space block, in chunks of {hybrid.chunk} tokens"
            made["mixer"] = LayerWorkload(words, "mamba-2", given, ("chunks",), unit=hybrid.chunk)
        case "gated-delta":
            pass
    if hybrid.feed_forward and (experts is None or experts.dense_layers):
        made["mlp"] = dense(model, shape.hidden, shape.gated)
    if experts is not None:
        made["experts"] = mixture(model, experts)
    made["output"] = product("output projection of attention", model, shape.heads * shape.head_dim)
    made["logits"] = product("projection to the vocabulary", shape.vocabulary, model)
    return made


@dataclass(slots=True)
class _Draft:
    """A hybrid while its fields are read: extents of the transformer, those of the recurrent layers, and parameters that
    `hybrid_groups` adds."""

    shape: Transformer
    hybrid: Hybrid
    recurrent: int = 0
    attention: int = 0
    blocks: int = 0
    routed: int = 0
    remarks: tuple[str, ...] = ()

    def counted(self, fields: Fields) -> Counted:
        """All of it. Raises BadInput: a field is wrong."""
        fields.done()
        shape, hybrid = self.shape, self.hybrid
        groups = tuple(hybrid_groups(shape, hybrid, self.recurrent, self.attention, self.blocks, self.routed))
        if not hybrid.layers:
            words = "an architecture of hybrids, here without recurrent layers; a plan trains other transformers"
            return Counted(groups, hybrid_layers(shape, hybrid), words, self.remarks, shape)
        made = groups, hybrid_layers(shape, hybrid), hybrid_missing(shape.layers, hybrid)
        return Counted(*made, self.remarks, shape, hybrid)


def _shape(fields: Fields, layers: int, head_dim: int, hidden: int, experts: Experts | None, gated: bool = True) -> Transformer:
    """The transformer around recurrent layers. Raises BadInput: a field is wrong."""
    heads, kv_heads = fields.whole("num_attention_heads"), fields.whole("num_key_value_heads")
    fields.divides("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    model, vocabulary = fields.whole("hidden_size"), fields.whole("vocab_size")
    sequence, tied = fields.whole("max_position_embeddings", default=4096), fields.flag("tie_word_embeddings", False)
    if experts is not None and experts.top_k > experts.experts:
        fields.wrong("num_experts_per_tok", f"at most {experts.experts} experts")
    fields.done()
    return Transformer(
        "hybrid", layers, model, heads, kv_heads, head_dim, hidden, vocabulary, sequence, gated, tied=tied, experts=experts
    )


def _head_width(fields: Fields) -> int:
    """Head dim, where heads make up the model dim."""
    model, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    fields.divides("num_attention_heads", heads, "hidden_size", model)
    return max(model // heads, 1)


def jamba(fields: Fields) -> Counted:
    """Mamba, and experts in some layers (Lieber et al., arXiv 2403.19887)."""
    layers, hidden = fields.layer_count("num_hidden_layers"), fields.whole("intermediate_size")
    attending = period_layers(
        layers, fields.whole("attn_layer_period", default=8), fields.whole("attn_layer_offset", default=4, least=0)
    )
    mixed = period_layers(
        layers, fields.whole("expert_layer_period", default=2), fields.whole("expert_layer_offset", default=1, least=0)
    )
    number, top_k = fields.whole("num_experts", default=16), fields.whole("num_experts_per_tok", default=2)
    experts = Experts(number, top_k, hidden, 0, layers - mixed) if number > 1 and mixed else None
    model = fields.whole("hidden_size")
    inner, state = fields.whole("mamba_expand", default=2) * model, fields.whole("mamba_d_state", default=16)
    taps, rank = fields.whole("mamba_d_conv", default=4), -(-model // 16)
    rank = fields.whole("mamba_dt_rank", default=rank) if fields.data.get("mamba_dt_rank") != "auto" else rank
    biases = (2 * inner + model) if fields.flag("mamba_proj_bias", False) else 0
    biases -= 0 if fields.flag("mamba_conv_bias", True) else inner
    hybrid = Hybrid("mamba", layers - attending, inner, 1, state, 1, taps, CHUNK_TOKENS, layers, rank)
    return _Draft(_shape(fields, layers, _head_width(fields), hidden, experts), hybrid, biases + rank + 2 * state).counted(fields)


def qwen3_next(fields: Fields) -> Counted:
    """Linear attention with the gated delta rule, attention with a gate of its output, experts."""
    layers, width = fields.layer_count("num_hidden_layers"), fields.whole("head_dim")
    period = fields.whole("full_attention_interval", default=4)
    attending = period_layers(layers, period, period - 1)
    value_heads, key_heads = fields.whole("linear_num_value_heads"), fields.whole("linear_num_key_heads")
    fields.divides("linear_num_key_heads", key_heads, "linear_num_value_heads", value_heads)
    key_width, value_width = fields.whole("linear_key_head_dim"), fields.whole("linear_value_head_dim")
    taps = fields.whole("linear_conv_kernel_dim", default=4)
    hidden, shared = fields.whole("moe_intermediate_size"), fields.whole("shared_expert_intermediate_size", default=0, least=0)
    step, plain = fields.whole("decoder_sparse_step", default=1), set(fields.numbers("mlp_only_layers"))
    mixed = sum(1 for layer in range(layers) if layer not in plain and (layer + 1) % step == 0)
    number, top_k = fields.whole("num_experts"), fields.whole("num_experts_per_tok")
    experts = Experts(number, top_k, hidden, shared, layers - mixed) if mixed else None
    model, dense_hidden = fields.whole("hidden_size"), fields.whole("intermediate_size")
    extents = value_heads, value_width, key_width, key_heads, taps, DELTA_CHUNK_TOKENS, layers
    hybrid = Hybrid("gated-delta", layers - attending, *extents, output_gate=True)
    shape = _shape(fields, layers, width, dense_hidden, experts)
    return _Draft(shape, hybrid, attention=2 * width, routed=model if shared else 0).counted(fields)


def _mamba_2(fields: Fields, layers: int, recurrent: int) -> tuple[Hybrid, int]:
    """Recurrent layers of Mamba-2 as Bamba and Granite name their fields, and their parameters beside those of the extents."""
    model, heads = fields.whole("hidden_size"), fields.whole("mamba_n_heads", default=128)
    inner = fields.whole("mamba_expand", default=2) * model
    width = max(inner // heads, 1) if fields.data.get("mamba_d_head", "auto") == "auto" else fields.whole("mamba_d_head")
    if heads * width != inner and not fields.findings:
        fields.wrong("mamba_n_heads", f"heads of {width} that make up {inner} channels, mamba_expand x hidden_size")
    groups = fields.whole("mamba_n_groups", default=1)
    fields.divides("mamba_n_groups", groups, "mamba_n_heads", heads)
    state, taps = fields.whole("mamba_d_state", default=256), fields.whole("mamba_d_conv", default=4)
    chunk = fields.whole("mamba_chunk_size", default=CHUNK_TOKENS)
    found = Hybrid("mamba-2", recurrent, heads, width, state, groups, taps, chunk, layers)
    biases = found.entry + model if fields.flag("mamba_proj_bias", False) else 0
    return found, biases - (0 if fields.flag("mamba_conv_bias", True) else found.channels)


def _attention_biases(fields: Fields, width: int) -> int:
    """Of the four projections of a layer."""
    heads, kv_heads = fields.whole("num_attention_heads"), fields.whole("num_key_value_heads")
    every = (heads + 2 * kv_heads) * width + fields.whole("hidden_size")
    return every if fields.flag("attention_bias", False) else 0


def bamba(fields: Fields) -> Counted:
    """Mamba-2, with a feed-forward block in every layer."""
    layers, hidden = fields.layer_count("num_hidden_layers"), fields.whole("intermediate_size")
    attending = sum(1 for layer in set(fields.numbers("attn_layer_indices")) if layer < layers)
    hybrid, biases = _mamba_2(fields, layers, layers - attending)
    width = _head_width(fields)
    shape = _shape(fields, layers, width, hidden, None)
    blocks = 2 * hidden + shape.model if fields.flag("mlp_bias", False) else 0
    return _Draft(shape, hybrid, biases, _attention_biases(fields, width), blocks).counted(fields)


def granite_hybrid(fields: Fields) -> Counted:
    """Mamba-2 and attention as a list of the layers says, with routed experts beside a shared one, or the shared one alone."""
    layers, hidden = fields.layer_count("num_hidden_layers"), fields.whole("intermediate_size")
    key = "layer_types" if fields.has("layer_types") else "layers_block_type"
    kinds = fields.words(key)
    if len(kinds) != layers or not set(kinds) <= {"mamba", "attention"}:
        fields.wrong(key, f"{layers} words, mamba or attention, one for each layer")
    shared = fields.whole("shared_intermediate_size", default=1024)
    number = fields.whole("num_local_experts", default=8, least=0)
    top_k = fields.whole("num_experts_per_tok", default=2, least=0)
    experts = Experts(number, max(top_k, 1), hidden, shared) if number else None
    hybrid, biases = _mamba_2(fields, layers, matching(kinds, "mamba"))
    width = _head_width(fields)
    shape = _shape(fields, layers, width, shared, experts)
    return _Draft(shape, hybrid, biases, _attention_biases(fields, width)).counted(fields)


def nemotron_h(fields: Fields) -> Counted:
    """Mamba-2, attention and feed-forward layers in the order of a pattern (NVIDIA, arXiv 2504.03624). A layer of Halley is one
    with a recurrence or attention; feed-forward ones count with those before them."""
    key, count = "hybrid_override_pattern", fields.layer_count("num_hidden_layers")
    pattern = fields.word(key)
    recurrent, attending, plain, mixed = (pattern.count(letter) for letter in "M*-E")
    layers = recurrent + attending
    if len(pattern) != count or count != layers + plain + mixed or not layers or plain + mixed > layers:
        fields.wrong(key, f"{count} letters: M (Mamba-2), * (attention), and no more of - (feed-forward) and E (experts)")
    heads, width = fields.whole("mamba_num_heads"), fields.whole("mamba_head_dim")
    groups, state = fields.whole("n_groups", default=8), fields.whole("ssm_state_size", default=128)
    fields.divides("n_groups", groups, "mamba_num_heads", heads)
    taps, chunk = fields.whole("conv_kernel", default=4), fields.whole("chunk_size", default=CHUNK_TOKENS)
    experts = None
    if mixed:
        shared = fields.whole("n_shared_experts", default=0, least=0)
        shared *= fields.whole("moe_shared_expert_intermediate_size", default=0, least=0)
        number, top_k = fields.whole("n_routed_experts"), fields.whole("num_experts_per_tok")
        experts = Experts(number, top_k, fields.whole("moe_intermediate_size"), shared, plain)
    extents = heads, width, state, groups, taps, chunk, plain + mixed
    hybrid = Hybrid("mamba-2", recurrent, *extents)
    head_dim = fields.whole("head_dim", "attention_head_dim", default=128)
    fields.done()
    shape = _shape(fields, layers, head_dim, fields.whole("intermediate_size"), experts, gated=False)
    biases = hybrid.entry + shape.model if fields.flag("use_bias", False) else 0
    biases -= 0 if fields.flag("use_conv_bias", True) else hybrid.channels
    blocks = shape.hidden + shape.model if fields.flag("mlp_bias", False) else 0
    remarks = [f"its {count} layers of one kind each are {layers} here, of which {plain + mixed} have a feed-forward block"]
    remarks += ["a bias of each routed expert is not counted"] if experts is not None else []
    return _Draft(shape, hybrid, biases, _attention_biases(fields, head_dim), blocks, remarks=tuple(remarks)).counted(fields)
