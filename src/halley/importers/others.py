"""Models of Hugging Face that are no decoder transformer: encoders, state-space models, and hybrids (`halley.importers.hybrids`).

Their layers are workloads, and all parameters are counted by kind. Of them, a plan of training covers Mamba-2 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from halley.importers.decoders import training_sequence
from halley.importers.fields import Fields
from halley.importers.hybrids import CHUNK_TOKENS, bamba, granite_hybrid, jamba, nemotron_h, qwen3_next
from halley.importers.layers import attention_layer, block, dense, product, shape_groups, shape_layers
from halley.importers.model import Counted, LayerWorkload, WeightGroup
from halley.workloads.transformer import Hybrid, StateSpace, Transformer


def _group(what: str, each: int, count: int = 1, active: int = 0) -> WeightGroup:
    return WeightGroup(what, each, count, active, planned=False)


def _matrices(what: str, matrices: Sequence[int], count: int, biases: int = 0) -> WeightGroup:
    """Matrices that every token is multiplied by, with their biases."""
    return _group(what, sum(matrices) + biases, count, sum(matrices))


def _encoder_layers(heads: int, model: int, hidden: int, causal: bool = False) -> dict[str, LayerWorkload]:
    width = model // heads
    return {
        "attention": attention_layer(heads, heads, width, causal),
        "mlp": dense(model, hidden, False),
        "layer": block(heads, heads, width, model, hidden, False, False, causal),
        "projections": product("a projection of attention", model, model),
        "up": product("first product of the feed-forward block", hidden, model),
        "down": product("last product of the feed-forward block", model, hidden),
    }


def _heads(fields: Fields, key: str, model: int, of: str) -> int:
    heads = fields.whole(key)
    fields.divides(key, heads, of, model)
    return heads


def _vit(fields: Fields) -> Counted:
    model, layers = fields.whole("hidden_size"), fields.layer_count("num_hidden_layers")
    heads, hidden = _heads(fields, "num_attention_heads", model, "hidden_size"), fields.whole("intermediate_size")
    image, patch, channels = fields.whole("image_size"), fields.whole("patch_size"), fields.whole("num_channels", default=3)
    tokens = (image // patch) ** 2 + 1
    biases = 4 * model if fields.flag("qkv_bias", True) else model
    pixels = patch * patch * channels * model
    groups = [
        _group("projection of patches", pixels + model, 1, pixels),
        _group("class token and positions", (tokens + 1) * model),
        _matrices("attention", (4 * model * model,), layers, biases),
        _matrices("feed-forward blocks", (2 * model * hidden,), layers, hidden + model),
        _group("norms", 2 * model, 2 * layers + 1),
    ]
    if any("ImageClassification" in item for item in fields.words("architectures")):
        labels = fields.data.get("id2label")
        classes = len(labels) if isinstance(labels, dict) else fields.whole("num_labels", default=2, said=True)
        groups.append(_group("head of classes", (model + 1) * classes))
    else:
        groups.append(_group("pooler", model * model + model))
    remarks = (f"{tokens} tokens an image",)
    return Counted(tuple(groups), _encoder_layers(heads, model, hidden), "an encoder of images; a plan trains decoders", remarks)


def _whisper(fields: Fields) -> Counted:
    model, vocabulary = fields.whole("d_model"), fields.whole("vocab_size")
    heads = _heads(fields, "encoder_attention_heads", model, "d_model")
    _heads(fields, "decoder_attention_heads", model, "d_model")
    encoders, decoders = fields.layer_count("encoder_layers"), fields.layer_count("decoder_layers")
    hidden = fields.whole("encoder_ffn_dim"), fields.whole("decoder_ffn_dim")
    mels = fields.whole("num_mel_bins", default=80)
    frames, tokens = fields.whole("max_source_positions", default=1500), fields.whole("max_target_positions", default=448)
    square, biases = 4 * model * model, 3 * model  # the projection to keys has no bias
    groups = (
        _group("convolutions of the spectrogram", 3 * mels * model + model + 3 * model * model + model, 1, 0),
        _group("positions", (frames + tokens) * model),
        _group("embedding, shared with the head", vocabulary * model, 1, vocabulary * model),
        _matrices("attention of the encoder", (square,), encoders, biases),
        _matrices("feed-forward blocks of the encoder", (2 * model * hidden[0],), encoders, hidden[0] + model),
        _matrices("attention of the decoder, to itself and to the encoder", (2 * square,), decoders, 2 * biases),
        _matrices("feed-forward blocks of the decoder", (2 * model * hidden[1],), decoders, hidden[1] + model),
        _group("norms", 2 * model, 2 * encoders + 3 * decoders + 2),
    )
    layers = _encoder_layers(heads, model, hidden[0])
    decoder = _encoder_layers(heads, model, hidden[1], True)
    layers |= {"decoder-attention": decoder["attention"], "cross-attention": layers["attention"]}
    layers["logits"] = product("projection to the vocabulary", vocabulary, model)
    why = "an encoder with a decoder that attends to it; a plan trains decoders"
    return Counted(groups, layers, why, (f"{frames} positions of sound, at most {tokens} tokens of text",))


def _mamba_2(fields: Fields) -> Counted:
    model, layers = fields.whole("hidden_size"), fields.layer_count("num_hidden_layers")
    heads, width = fields.whole("num_heads"), fields.whole("head_dim")
    inner = fields.whole("expand", default=2) * model
    if heads * width != inner and not fields.findings:
        fields.wrong("num_heads", f"heads of {width} that make up {inner} channels, expand x hidden_size")
    state, groups = fields.whole("state_size", default=128), fields.whole("n_groups", default=8)
    fields.divides("n_groups", groups, "num_heads", heads)
    space = StateSpace(state, fields.whole("conv_kernel", default=4), fields.whole("chunk_size", default=256))
    vocabulary, tied = fields.whole("vocab_size"), fields.flag("tie_word_embeddings", False)
    sequence = training_sequence(fields)
    biases = (2 * inner + 2 * groups * state + heads + model) if fields.flag("use_bias", False) else 0
    bare = not fields.flag("use_conv_bias", True)
    if fields.findings:  # the caller raises them
        return Counted((), {}, "")
    shape = Transformer("mamba2", layers, model, heads, groups, width, inner, vocabulary, sequence, tied=tied, state_space=space)
    found, remarks = shape_groups(shape), []
    if biases:
        found.append(_group("biases of the mixers", biases, layers))
    if bare:
        found = [
            replace(group, each=group.each // (space.taps + 1) * space.taps) if group.what.startswith("convolutions") else group
            for group in found
        ]
        remarks.append("the convolutions of the file have no bias; a plan has one for each channel")
    if groups > 1:
        remarks.append("the workload of a mixer has one group of states; a plan has all, and a norm over the channels of each")
    return Counted(tuple(found), shape_layers(shape), "", tuple(remarks), shape=shape)


def _mamba(fields: Fields) -> Counted:
    model, layers = fields.whole("hidden_size", "d_model"), fields.layer_count("num_hidden_layers", "n_layer")
    inner = fields.whole("intermediate_size", "d_inner", default=2 * model)
    state, taps = fields.whole("state_size", default=16), fields.whole("conv_kernel", default=4)
    rank = -(-model // 16)
    rank = fields.whole("time_step_rank", default=rank) if fields.data.get("time_step_rank") != "auto" else rank
    vocabulary = fields.whole("vocab_size")
    biases = (2 * inner + model) if fields.flag("use_bias", False) else 0
    taps_of = inner * taps + (inner if fields.flag("use_conv_bias", True) else 0)
    tied = fields.flag("tie_word_embeddings", True)
    groups = (
        _group("embedding", vocabulary * model),
        _matrices("projections of the mixers", (3 * model * inner, inner * (2 * rank + 2 * state)), layers, biases),
        _group("convolutions of the mixers", taps_of, layers),
        _group("steps, rates and skips of the mixers", inner * (state + 2), layers),
        _group("norms", model, layers + 1),
        _group("head", 0 if tied else vocabulary * model, 1, vocabulary * model),
    )
    mixer: dict[str, object] = {"model": model, "inner": inner, "state": state, "rank": rank, "taps": taps, "batch": 1}
    made = {
        "mixer": LayerWorkload("selective state-space block", "mamba", mixer, ("length",)),
        "logits": product("projection to the vocabulary", vocabulary, model),
    }
    recurrent = Hybrid("mamba", layers, inner, 1, state, 1, taps, CHUNK_TOKENS, 0, rank)
    served = _recurrent_alone(fields, model, vocabulary, tied, recurrent)
    return Counted(groups, made, "a state-space model; a plan trains transformers", (), served, recurrent)


def _recurrent_alone(fields: Fields, model: int, vocabulary: int, tied: bool, recurrent: Hybrid) -> Transformer:
    """What is served of a model whose layers are all recurrent. Raises BadInput: a field is wrong."""
    fields.done()
    heads, width, inner, layers = recurrent.heads, recurrent.head_dim, recurrent.inner, recurrent.layers
    sequence = fields.whole("max_position_embeddings", default=4096)
    return Transformer("recurrent", layers, model, heads, heads, width, inner, vocabulary, sequence, False, tied=tied)


OTHERS: dict[str, Callable[[Fields], Counted]] = {
    "vit": _vit,
    "whisper": _whisper,
    "mamba": _mamba,
    "mamba2": _mamba_2,
    "jamba": jamba,
    "qwen3_next": qwen3_next,
    "nemotron_h": nemotron_h,
    "granitemoehybrid": granite_hybrid,
    "bamba": bamba,
}
"""By model type, what reads its fields."""
