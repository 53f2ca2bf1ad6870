"""Layers of a model as workloads of the registry, and its parameters by kind."""

from __future__ import annotations

from halley.importers.model import LayerWorkload, WeightGroup
from halley.workloads.transformer import Experts, Hybrid, StateSpace, Transformer


def product(meaning: str, columns: int, contraction: int) -> LayerWorkload:
    """The product of the tokens' rows with a matrix of weights."""
    return LayerWorkload(meaning, "gemm", {"n": columns, "k": contraction}, ("m",))


def attention_layer(heads: int, kv_heads: int, head_dim: int, causal: bool, window: int = 0) -> LayerWorkload:
    """The attention of all heads of a layer, from queries, keys and values; with ``window``, a query sees that many keys."""
    given: dict[str, object] = {"batch": 1, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "causal": causal}
    meaning = f"attention, {heads} heads of {head_dim}"
    if window:
        given["window"], meaning = window, f"{meaning}, to {window} keys"
    return LayerWorkload(meaning, "attention", given, ("queries",), ("keys",))


def block(
    heads: int, kv_heads: int, head_dim: int, model: int, hidden: int, gated: bool, rms: bool, causal: bool
) -> LayerWorkload:
    """A whole layer."""
    given: dict[str, object] = {"model": model, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "hidden": hidden}
    given |= {"causal": causal, "gated": gated, "rms": rms}
    return LayerWorkload("a whole layer with its norms and residual sums", "transformer-layer", given, ("tokens",))


def dense(model: int, hidden: int, gated: bool) -> LayerWorkload:
    """A feed-forward block."""
    kind, matrices = ("gated-mlp", "three") if gated else ("gemm-gelu-gemm", "two")
    return LayerWorkload(f"feed-forward block of {matrices} matrices", kind, {"model": model, "hidden": hidden}, ("tokens",))


def mixture(model: int, experts: Experts) -> LayerWorkload:
    """The routed experts of a layer."""
    given: dict[str, object] = {"model": model, "hidden": experts.hidden, "experts": experts.experts, "top_k": experts.top_k}
    return LayerWorkload(f"router and {experts.experts} experts, {experts.top_k} for a token", "moe", given, ("tokens",))


def mixer_layers(shape: Transformer, space: StateSpace) -> dict[str, LayerWorkload]:
    """The layers of a model of Mamba-2 layers; the workload of a mixer has one group of heads."""
    given: dict[str, object] = {"chunk": space.chunk, "model": shape.model, "heads": shape.heads, "head_dim": shape.head_dim}
    given |= {"state": space.state, "taps": space.taps}
    meaning = f"state-space block, in chunks of {space.chunk} tokens"
    return {
        "mixer": LayerWorkload(meaning, "mamba-2", given, ("chunks",), unit=space.chunk),
        "logits": product("projection to the vocabulary", shape.vocabulary, shape.model),
    }


def mixer_groups(shape: Transformer, mixer: Hybrid) -> list[WeightGroup]:
    """The parameters of a model of Mamba-2 layers, by kind."""
    model, layers, inner = shape.model, shape.layers, mixer.inner
    projections, table = mixer.parameters(model), shape.vocabulary * model
    return [
        WeightGroup("embedding", table),
        WeightGroup("projections of the mixers", projections, layers, projections),
        WeightGroup("convolutions of the mixers", mixer.channels * (mixer.taps + 1), layers),
        WeightGroup("steps, rates and skips of the mixers", 3 * mixer.heads, layers),
        WeightGroup("norms", model + inner, layers),
        WeightGroup("last norm", model),
        WeightGroup("head", 0 if shape.tied else table, 1, table),
    ]


def shape_layers(shape: Transformer, window: int = 0, windowed: bool = False) -> dict[str, LayerWorkload]:
    """The layers of a transformer, by name. ``window``: keys that a query sees in some layers, in all of them if ``windowed``.

    >>> small = Transformer("small", layers=2, model=8, heads=2, kv_heads=1, head_dim=4, hidden=16, vocabulary=32, sequence=6)
    >>> list(shape_layers(small))
    ['attention', 'mlp', 'layer', 'queries', 'keys', 'output', 'output-norm', 'up', 'down', 'logits', 'logits-softmax']
    """
    if shape.state_space is not None:
        return mixer_layers(shape, shape.state_space)
    made: dict[str, LayerWorkload] = {}
    model, heads, kv_heads, width = shape.model, shape.heads, shape.kv_heads, shape.head_dim
    experts, latent = shape.experts, shape.latent
    values = width
    if latent is not None:
        values = latent.value_dim
        given: dict[str, object] = {"heads": heads, "latent": latent.keys, "head_dim": width, "rope_dim": latent.rope_dim}
        given |= {"value_dim": values, "causal": shape.causal}
        made["attention"] = LayerWorkload(f"latent attention, {heads} heads", "mla", given, ("queries",), ("keys",))
    elif windowed and window:
        made["attention"] = attention_layer(heads, kv_heads, width, shape.causal, window)
    else:
        made["attention"] = attention_layer(heads, kv_heads, width, shape.causal)
        if window:
            made["attention-window"] = attention_layer(heads, kv_heads, width, True, window)
    plain = experts is None or experts.dense_layers > 0
    if plain:
        made["mlp"] = dense(model, shape.hidden, shape.gated)
    if experts is not None:
        made["experts"] = mixture(model, experts)
        if experts.shared:
            made["shared-experts"] = dense(model, experts.shared, True)
    elif latent is None:
        made["layer"] = block(heads, kv_heads, width, model, shape.hidden, shape.gated, shape.rms, shape.causal)
    if latent is None:
        made["queries"] = product("projection to queries", heads * width, model)
        made["keys"] = product("projection to keys, and to values", kv_heads * width, model)
    made["output"] = product("output projection of attention", model, heads * values)
    norm = "gemm-rmsnorm" if shape.rms else "gemm-layernorm"
    given = {"n": model, "k": heads * values}
    made["output-norm"] = LayerWorkload("output projection and the next norm", norm, given, ("m",))
    if plain:
        made["up"] = product("first product of the feed-forward block", shape.hidden, model)
        made["down"] = product("last product of the feed-forward block", model, shape.hidden)
    made["logits"] = product("projection to the vocabulary", shape.vocabulary, model)
    given = {"n": shape.vocabulary, "k": model}
    made["logits-softmax"] = LayerWorkload("projection to the vocabulary and softmax", "gemm-softmax", given, ("m",))
    return made


def shape_groups(shape: Transformer) -> list[WeightGroup]:
    """The parameters of a transformer that a plan trains, by kind, counted from its extents."""
    if (mixer := shape.recurrent) is not None:
        return mixer_groups(shape, mixer)
    model, layers, experts, latent = shape.model, shape.layers, shape.experts, shape.latent
    found = [WeightGroup("embedding", shape.vocabulary * model)]
    if shape.positions:
        found.append(WeightGroup("positions", shape.sequence * model))
    if latent is None:
        of_queries = 2 * model * shape.heads * shape.head_dim  # the output projection is as large
        each = of_queries + 2 * model * shape.kv_heads * shape.head_dim
    else:
        wide = shape.head_dim + latent.rope_dim
        rank = latent.queries
        each = model * rank + rank * shape.heads * wide if rank else model * shape.heads * wide
        each += model * (latent.keys + latent.rope_dim)
        each += latent.keys * shape.heads * (shape.head_dim + latent.value_dim) + shape.heads * latent.value_dim * model
        found.append(WeightGroup("norms of the latents", latent.queries + latent.keys, layers))
    found.append(WeightGroup("attention", each, layers, each))
    norm = model if shape.rms else 2 * model
    found.append(WeightGroup("norms", norm, 2 * layers + 1))
    plain = layers if experts is None else experts.dense_layers
    if plain:
        each = (3 if shape.gated else 2) * model * shape.hidden
        found.append(WeightGroup("feed-forward blocks", each, plain, each))
    if experts is not None:
        mixed = layers - plain
        one = 3 * model * experts.hidden
        found.append(WeightGroup("routers", model * experts.experts, mixed, model * experts.experts))
        found.append(WeightGroup("experts", experts.experts * one, mixed, experts.top_k * one))
        if experts.shared:
            each = 3 * model * experts.shared
            found.append(WeightGroup("shared experts", each, mixed, each))
    table = shape.vocabulary * model
    # a tied head multiplies by the table of the embedding, which is counted above
    found.append(WeightGroup("head", 0 if shape.tied else table, 1, table))
    return found
