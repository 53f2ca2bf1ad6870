"""Decoders of Hugging Face, and BERT: from the fields of a configuration to the extents of a transformer.

Each function reads the fields of one architecture, whose parameters its modelling code creates; what a plan does not include is
listed with its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from halley.importers.fields import Fields, matching
from halley.importers.layers import shape_groups, shape_layers
from halley.importers.model import ImportedModel, WeightGroup
from halley.workloads.transformer import Experts, Latent, Transformer


@dataclass(slots=True)
class Draft:
    """A transformer while its fields are read. ``extra``: parameters that no plan includes; ``windowed``: layers with a window;
    ``activation``: of the architecture, where the file names none."""

    layers: int
    model: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    sequence: int
    gated: bool = True
    rms: bool = True
    positions: bool = False
    tied: bool = False
    dropout: float = 0.0
    experts: Experts | None = None
    latent: Latent | None = None
    window: int = 0
    windowed: int = 0
    activation: str = ""
    causal: bool = True
    extra: list[WeightGroup] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def note_activation(self, fields: Fields) -> None:
        """Note it where a plan has another activation."""
        keys = ("hidden_activation", "hidden_act", "activation_function")
        found = next((fields.word(key) for key in keys if fields.has(key)), self.activation)
        usual = ("silu", "swish", "swiglu") if self.gated else ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
        if found and found not in usual:
            there = "gate of the feed-forward block" if self.gated else "activation"
            instead = "SiLU" if self.gated else "GELU"
            self.remarks.append(f"the {there} is {found[:30]!r}; a plan has a {instead} there, with other vector work")

    def leave_out(self, what: str, each: int, count: int | None = None, active: int = 0) -> None:
        """Parameters that no plan includes, by default in each layer."""
        if each and count != 0:
            self.extra.append(WeightGroup(what, each, self.layers if count is None else count, active, planned=False))

    def finish(self, name: str, architecture: str, source: str) -> ImportedModel:
        """Raises BadInput: the extents contradict each other."""
        shape = Transformer(
            name, self.layers, self.model, self.heads, self.kv_heads, self.head_dim, self.hidden, self.vocabulary, self.sequence,
            self.gated, self.rms, self.positions, self.tied, self.dropout, self.experts, self.latent, self.causal,
        )  # fmt: skip
        groups = (*shape_groups(shape), *self.extra)
        total = sum(group.parameters for group in groups)
        shape = replace(shape, published=float(total), source=f"{source} ({architecture})")
        layers = shape_layers(shape, self.window if self.windowed else 0, self.windowed == self.layers)
        return ImportedModel(
            name,
            architecture,
            source,
            groups,
            shape,
            layers,
            remarks=tuple(self.remarks),
            window=self.window if self.windowed else 0,
            windowed=self.windowed,
        )


NORMS_BEHIND = "its norms are behind the blocks, those of a plan before them"


def _llama_like(fields: Fields, tied: bool = False, head_dim: int | None = None) -> Draft:
    """The fields that most decoders share; ``tied``, ``head_dim``: the defaults of the architecture."""
    model = fields.whole("hidden_size")
    heads = fields.whole("num_attention_heads")
    if head_dim is None and not fields.has("head_dim"):
        fields.divides("num_attention_heads", heads, "hidden_size", model)
    kv_heads = fields.whole("num_key_value_heads", default=heads)
    fields.divides("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    return Draft(
        layers=fields.layer_count("num_hidden_layers"),
        model=model,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.whole("head_dim", default=head_dim or max(model // heads, 1)),
        hidden=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        sequence=training_sequence(fields),
        tied=fields.flag("tie_word_embeddings", tied),
        dropout=fields.share("attention_dropout"),
    )


def training_sequence(fields: Fields, default: int = 4096) -> int:
    """Tokens of a sequence in training: those before the positions were stretched, if the file says so."""
    for key in ("rope_scaling", "rope_parameters"):
        if fields.has(key):
            inner = Fields(fields.document, (*fields.path, key))
            if inner.has("original_max_position_embeddings"):
                return fields.inner(key).whole("original_max_position_embeddings")
    return fields.whole("original_max_position_embeddings", "max_position_embeddings", default=default, said=True)


def _projection_biases(draft: Draft, output: bool) -> None:
    """Biases of the projections to queries, keys and values, and of the output projection."""
    draft.leave_out("biases of queries, keys and values", (draft.heads + 2 * draft.kv_heads) * draft.head_dim)
    if output:
        draft.leave_out("biases of the output projection", draft.model)


def _head_norms(draft: Draft) -> None:
    draft.leave_out("norms of queries and keys", 2 * draft.head_dim)


def _window(fields: Fields, draft: Draft, layers: int | None = None, default: int = 0) -> None:
    """A window in ``layers``: by default in all of them, or where ``layer_types`` says so."""
    draft.window = fields.whole("sliding_window", default=default, least=0)
    kinds = fields.words("layer_types")
    if kinds and len(kinds) != draft.layers:
        fields.wrong("layer_types", f"{draft.layers} words, one for each layer")
    count = matching(kinds, "sliding_attention") if kinds else draft.layers if layers is None else layers
    draft.windowed = min(count, draft.layers) if draft.window else 0


def _llama(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    if fields.flag("attention_bias", False):
        _projection_biases(draft, True)
    if fields.flag("mlp_bias", False):
        draft.leave_out("biases of the feed-forward blocks", 2 * draft.hidden + draft.model)
    return draft


def _mistral(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    _window(fields, draft)
    return draft


def _mixtral(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    _window(fields, draft)
    draft.experts = Experts(fields.whole("num_local_experts"), fields.whole("num_experts_per_tok"), draft.hidden)
    return draft


def _qwen2(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    _projection_biases(draft, False)
    if fields.flag("use_sliding_window", False):
        first = fields.whole("max_window_layers", default=0, least=0)
        _window(fields, draft, max(draft.layers - first, 0))
    return draft


def _qwen3(fields: Fields) -> Draft:
    draft = _llama_like(fields, head_dim=128)
    _head_norms(draft)
    if fields.flag("attention_bias", False):
        _projection_biases(draft, True)
    if fields.flag("use_sliding_window", False):
        _window(fields, draft, max(draft.layers - fields.whole("max_window_layers", default=0, least=0), 0))
    return draft


def _qwen3_moe(fields: Fields) -> Draft:
    draft = _qwen3(fields)
    step = fields.whole("decoder_sparse_step", default=1)
    plain = set(fields.numbers("mlp_only_layers"))
    mixed = [layer for layer in range(draft.layers) if layer not in plain and (layer + 1) % step == 0]
    experts, top_k = fields.whole("num_experts"), fields.whole("num_experts_per_tok")
    _mixed(draft, mixed, Experts(experts, top_k, fields.whole("moe_intermediate_size")))
    return draft


def _mixed(draft: Draft, mixed: list[int], experts: Experts) -> None:
    """Experts in the layers ``mixed``; a plan has the layers without experts first."""
    plain = draft.layers - len(mixed)
    if not mixed:
        return
    draft.experts = Experts(experts.experts, experts.top_k, experts.hidden, experts.shared, plain)
    if mixed != list(range(plain, draft.layers)):
        draft.remarks.append(f"{plain} layers without experts are between layers with them; a plan has them first")


def _deepseek(fields: Fields) -> Draft:
    """DeepSeek V2 and V3, Kimi K2: latent attention; the first layers have no experts."""
    heads = fields.whole("num_attention_heads")
    draft = Draft(
        layers=fields.layer_count("num_hidden_layers"),
        model=fields.whole("hidden_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.whole("qk_nope_head_dim"),
        hidden=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        sequence=training_sequence(fields),
        tied=fields.flag("tie_word_embeddings", False),
        dropout=fields.share("attention_dropout"),
    )
    ranks = fields.whole("q_lora_rank", default=0), fields.whole("kv_lora_rank")
    draft.latent = Latent(*ranks, fields.whole("qk_rope_head_dim"), fields.whole("v_head_dim"))
    if fields.flag("attention_bias", False):
        biases = (ranks[0] or 0) + ranks[1] + draft.latent.rope_dim + draft.model
        draft.leave_out("biases of attention", biases)
    if fields.has("n_routed_experts"):
        usual = "greedy" if fields.word("model_type") == "deepseek_v2" else "noaux_tc"
        _routed(fields, draft, corrected=fields.word("topk_method", usual) == "noaux_tc")
    return draft


def _routed(fields: Fields, draft: Draft, corrected: bool) -> None:
    """Routed and shared experts in all but the first layers, in the fields of DeepSeek; ``corrected``: the router adds a bias."""
    hidden = fields.whole("moe_intermediate_size")
    first = fields.whole("first_k_dense_replace", default=0, least=0)
    step = fields.whole("moe_layer_freq", default=1)
    mixed = [layer for layer in range(draft.layers) if layer >= first and layer % step == 0]
    shared = fields.whole("n_shared_experts", default=0, least=0) * hidden
    _mixed(draft, mixed, Experts(fields.whole("n_routed_experts"), fields.whole("num_experts_per_tok"), hidden, shared))
    if corrected and draft.experts is not None:
        draft.leave_out("biases of the routers", draft.experts.experts, len(mixed))
        draft.remarks.append("a softmax gate over all experts stands for the sigmoid gate with groups of experts")
    following = fields.whole("num_nextn_predict_layers", default=0, least=0)
    if following:
        draft.remarks.append(f"not counted and not planned: {following} module that predicts a further token")


def _glm4_moe(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    if fields.flag("attention_bias", False):
        _projection_biases(draft, False)
    if fields.flag("use_qk_norm", False):
        _head_norms(draft)
    _routed(fields, draft, corrected=True)
    return draft


def _glm(fields: Fields) -> Draft:
    draft = _llama_like(fields, head_dim=128)
    if fields.flag("attention_bias", False):
        _projection_biases(draft, False)
    return draft


def _glm4(fields: Fields) -> Draft:
    draft = _glm(fields)
    draft.leave_out("norms behind attention and feed-forward block", draft.model, 2 * draft.layers)
    return draft


def _chatglm(fields: Fields) -> Draft:
    heads = fields.whole("num_attention_heads")
    grouped = fields.flag("multi_query_attention", False)
    draft = Draft(
        layers=fields.layer_count("num_layers"),
        model=fields.whole("hidden_size"),
        heads=heads,
        kv_heads=fields.whole("multi_query_group_num") if grouped else heads,
        head_dim=fields.whole("kv_channels"),
        hidden=fields.whole("ffn_hidden_size"),
        vocabulary=fields.whole("padded_vocab_size"),
        sequence=fields.whole("seq_length", default=4096, said=True),
        rms=fields.flag("rmsnorm", True),
        tied=fields.flag("tie_word_embeddings", False),
        dropout=fields.share("attention_dropout"),
    )
    fields.divides("multi_query_group_num", draft.kv_heads, "num_attention_heads", heads)
    if fields.flag("add_qkv_bias", False) or fields.flag("add_bias_linear", False):
        _projection_biases(draft, False)
    return draft


def _gemma(fields: Fields) -> Draft:
    draft = _llama_like(fields, tied=True, head_dim=256)
    if fields.flag("attention_bias", False):
        _projection_biases(draft, True)
    draft.activation = "gelu"
    return draft


def _gemma2(fields: Fields) -> Draft:
    draft = _gemma(fields)
    draft.leave_out("norms behind attention and feed-forward block", draft.model, 2 * draft.layers)
    draft.remarks.append("a plan leaves out the soft caps of scores and logits")
    _window(fields, draft, (draft.layers + 1) // 2, 4096)
    return draft


def _gemma3(fields: Fields) -> Draft:
    """Files of these models leave out what equals the defaults of their architecture."""
    for key, default in (("num_attention_heads", 8), ("num_key_value_heads", 4), ("vocab_size", 262208)):
        if not fields.has(key):
            fields.whole(key, default=default, said=True)
            fields.data = fields.data | {key: default}
    draft = _gemma(fields)
    draft.leave_out("norms behind attention and feed-forward block", draft.model, 2 * draft.layers)
    _head_norms(draft)
    period = fields.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    _window(fields, draft, draft.layers - draft.layers // period, 4096)
    return draft


def _gpt_oss(fields: Fields) -> Draft:
    draft = _llama_like(fields, head_dim=64)
    if fields.flag("attention_bias", True):
        _projection_biases(draft, True)
    draft.leave_out("sinks of the heads", draft.heads)
    experts = fields.whole("num_local_experts", "num_experts")
    draft.experts = Experts(experts, fields.whole("num_experts_per_tok", "experts_per_token"), draft.hidden)
    draft.leave_out("biases of routers and experts", experts + experts * (2 * draft.hidden + draft.model))
    _window(fields, draft, (draft.layers + 1) // 2, 128)
    return draft


def _llama4(fields: Fields) -> Draft:
    draft = _llama_like(fields, head_dim=128)
    wide = fields.whole("intermediate_size_mlp", default=2 * draft.hidden)
    step = fields.whole("interleave_moe_layer_step", default=1)
    mixed = list(fields.numbers("moe_layers")) or list(range(step - 1, draft.layers, step))
    if any(layer >= draft.layers for layer in mixed):
        fields.wrong("moe_layers", f"layers below {draft.layers}")
        mixed = []
    experts = Experts(fields.whole("num_local_experts"), fields.whole("num_experts_per_tok"), draft.hidden, draft.hidden)
    draft.hidden = wide
    _mixed(draft, sorted(set(mixed)), experts)
    draft.window = fields.whole("attention_chunk_size", default=0, least=0)
    kinds = fields.numbers("no_rope_layers")
    chunked = sum(1 for item in kinds if item) if kinds else draft.layers - draft.layers // 4
    draft.windowed = min(chunked, draft.layers) if draft.window else 0
    return draft


def _phi3(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    _window(fields, draft)
    return draft


def _multi_head(
    fields: Fields,
    model: tuple[str, int],
    heads: tuple[str, ...] = ("num_attention_heads",),
    layers: tuple[str, ...] = ("num_hidden_layers",),
    **others: Any,
) -> Draft:
    """Layers whose heads all have keys and values of their own, with LayerNorm, two feed-forward matrices, and biases of all
    matrices. ``model``: the field of the model dim and its value; ``heads``, ``layers``: the fields of their numbers;
    ``others``: further values of the draft."""
    number = fields.whole(*heads)
    fields.divides(heads[0], number, *model)
    draft = Draft(
        layers=fields.layer_count(*layers),
        model=model[1],
        heads=number,
        kv_heads=number,
        head_dim=max(model[1] // number, 1),
        vocabulary=fields.whole("vocab_size"),
        gated=False,
        rms=False,
        **others,
    )
    _all_biases(draft)
    return draft


def _gpt2(fields: Fields) -> Draft:
    model = fields.whole("n_embd", "hidden_size")
    return _multi_head(
        fields,
        ("n_embd", model),
        ("n_head", "num_attention_heads"),
        ("n_layer", "num_hidden_layers"),
        hidden=fields.whole("n_inner", default=4 * model),
        sequence=fields.whole("n_positions", "n_ctx"),
        positions=True,
        tied=fields.flag("tie_word_embeddings", True),
        dropout=fields.share("resid_pdrop", 0.1),
    )


def _all_biases(draft: Draft) -> None:
    """Biases of all matrices of a layer."""
    _projection_biases(draft, True)
    draft.leave_out("biases of the feed-forward blocks", draft.hidden + draft.model)


def _gpt_neox(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    draft.gated, draft.rms = False, False
    draft.dropout = fields.share("hidden_dropout")
    if fields.flag("attention_bias", True):
        _projection_biases(draft, True)
    draft.leave_out("biases of the feed-forward blocks", draft.hidden + draft.model)
    if fields.flag("use_parallel_residual", True):
        draft.remarks.append("attention and feed-forward block read the same tensor; a plan has one after the other")
    return draft


def _opt(fields: Fields) -> Draft:
    model = fields.whole("hidden_size")
    draft = _multi_head(
        fields,
        ("hidden_size", model),
        hidden=fields.whole("ffn_dim"),
        sequence=fields.whole("max_position_embeddings", default=2048),
        positions=True,
        tied=fields.flag("tie_word_embeddings", True),
        dropout=fields.share("dropout", 0.1),
    )
    draft.leave_out("first two rows of the table of positions", 2 * model, 1)
    draft.activation = "relu"
    if not fields.flag("do_layer_norm_before", True):
        fields.wrong("do_layer_norm_before", "true: a norm before each block")
    if fields.whole("word_embed_proj_dim", default=model) != model:
        fields.wrong("word_embed_proj_dim", f"the hidden_size, {model}")
    return draft


def _bert(fields: Fields) -> Draft:
    """The encoder; a plan trains it to predict tokens."""
    model = fields.whole("hidden_size")
    draft = _multi_head(
        fields,
        ("hidden_size", model),
        hidden=fields.whole("intermediate_size"),
        sequence=fields.whole("max_position_embeddings"),
        positions=True,
        tied=True,
        dropout=fields.share("hidden_dropout_prob", 0.1),
        causal=False,
    )
    draft.leave_out("table of types", fields.whole("type_vocab_size", default=2) * model, 1)
    parts = fields.words("architectures")
    pretrained = any("PreTraining" in item for item in parts)
    if pretrained or any("MaskedLM" in item for item in parts):
        draft.leave_out("product, norm and biases of the head", model * model + 3 * model + draft.vocabulary, 1, model * model)
    if not any("MaskedLM" in item for item in parts):
        draft.leave_out("pooler", model * model + model, 1)
    if pretrained:
        draft.leave_out("head of the next sentence", 2 * model + 2, 1)
    draft.remarks.append("a plan trains it to predict all tokens of a sequence, with a head that shares the table of tokens")
    draft.remarks.append(NORMS_BEHIND)
    return draft


def _qwen2_moe(fields: Fields) -> Draft:
    draft = _qwen2(fields)
    step, plain = fields.whole("decoder_sparse_step", default=1), set(fields.numbers("mlp_only_layers"))
    mixed = [layer for layer in range(draft.layers) if layer not in plain and (layer + 1) % step == 0]
    experts, top_k = fields.whole("num_experts"), fields.whole("num_experts_per_tok")
    shared = fields.whole("shared_expert_intermediate_size", default=0, least=0)
    _mixed(draft, mixed, Experts(experts, top_k, fields.whole("moe_intermediate_size"), shared))
    if shared:
        draft.leave_out("gates of the shared experts", draft.model, len(mixed), draft.model)
    return draft


def _olmo2(fields: Fields) -> Draft:
    draft = _llama_like(fields)
    draft.leave_out("norms of queries and keys", (draft.heads + draft.kv_heads) * draft.head_dim)
    draft.remarks.append(NORMS_BEHIND)
    return draft


def _starcoder2(fields: Fields) -> Draft:
    draft = _llama_like(fields, tied=True)
    draft.gated, draft.rms = False, False
    draft.dropout = fields.share("residual_dropout")
    if fields.flag("use_bias", True):
        _all_biases(draft)
    _window(fields, draft)
    return draft


def _bloom(fields: Fields) -> Draft:
    model = fields.whole("hidden_size", "n_embed")
    draft = _multi_head(
        fields,
        ("hidden_size", model),
        ("n_head", "num_attention_heads"),
        ("n_layer", "num_hidden_layers"),
        hidden=4 * model,
        sequence=fields.whole("seq_length", default=2048, said=True),
        tied=fields.flag("tie_word_embeddings", True),
        dropout=fields.share("hidden_dropout"),
    )
    draft.leave_out("norm of the embedding", 2 * model, 1)
    return draft


DECODERS: dict[str, Callable[[Fields], Draft]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "glm": _glm,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "chatglm": _chatglm,
    "llama4_text": _llama4,
    "phi3": _phi3,
    "opt": _opt,
    "bert": _bert,
    "roberta": _bert,
    "qwen2_moe": _qwen2_moe,
    "olmo2": _olmo2,
    "starcoder2": _starcoder2,
    "bloom": _bloom,
}
"""By model type, what reads its fields."""
