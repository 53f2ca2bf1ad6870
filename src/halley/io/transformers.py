"""Model files: the extents of a transformer, or of a hybrid with recurrent layers, as YAML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.files.check import about_others, check
from halley.io.files.entries import Text
from halley.io.files.models import Model
from halley.io.files.shelf import found
from halley.io.files.text import DocumentFault, read_yaml
from halley.library import MODELS
from halley.workloads.construction.parameters import SIZE_LIMIT
from halley.workloads.transformer import (
    Experts,
    Hybrid,
    Latent,
    RecurrenceKind,
    StateSpace,
    Transformer,
    hybrid_faults,
    shape_faults,
)

Extent = Annotated[int, Field(ge=1, le=SIZE_LIMIT)]
LINE_WIDTH = 130
"""Longest line of a file that is written [characters], where there is a space to break it."""

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class ExpertsFile(Model):
    """A mixture of experts in place of the feed-forward block."""

    experts: Extent = Field(description="experts of a layer")
    top_k: Extent = Field(description="experts per token")
    hidden: Extent = Field(description="hidden dim of an expert")
    shared: Annotated[int, Field(ge=0, le=SIZE_LIMIT)] = Field(0, description="joint hidden dim of shared experts; 0: none")
    dense_layers: Annotated[int, Field(ge=0, le=SIZE_LIMIT)] = Field(0, description="first layers with a plain block")


class LatentFile(Model):
    """Latent attention."""

    queries: Annotated[int, Field(ge=0, le=SIZE_LIMIT)] = Field(description="dim of the queries' latents; 0: they have none")
    keys: Extent = Field(description="dim of the keys' latents")
    rope_dim: Extent = Field(description="head dim of the rotary part")
    value_dim: Extent = Field(description="head dim of values")


class StateSpaceFile(Model):
    """A Mamba-2 block in place of attention and feed-forward block."""

    state: Extent = Field(description="columns of a head's state")
    taps: Extent = Field(4, description="taps of the causal convolution")
    chunk: Extent = Field(256, description="tokens of a chunk of the scan")


class WindowFile(Model):
    """Layers in which a token attends to the last keys alone."""

    keys: Extent = Field(description="keys that a token attends to at most, itself among them")
    layers: Extent = Field(description="layers with the window; the others attend to all keys")


class HybridFile(Model):
    """Recurrent layers in place of attention."""

    kind: RecurrenceKind = Field(description="how a layer updates its state: mamba, mamba-2 or gated-delta")
    layers: Extent = Field(description="recurrent layers, of all layers; the others have attention")
    heads: Extent = Field(description="heads of values; of mamba the channels")
    head_dim: Extent = Field(description="head dim of values; 1 of mamba")
    state: Extent = Field(description="elements of state for each value; of gated-delta the head dim of keys")
    groups: Extent = Field(description="groups of heads that share B and C; of gated-delta the heads of keys; 1 of mamba")
    taps: Extent = Field(description="taps of the causal convolution")
    chunk: Extent = Field(description="tokens of a prompt that are multiplied together")
    feed_forward: Annotated[int, Field(ge=0, le=SIZE_LIMIT)] = Field(description="layers with a feed-forward block or experts")
    rank: Annotated[int, Field(ge=0, le=SIZE_LIMIT)] = Field(0, description="rank of the steps' projection; mamba alone")
    output_gate: bool = Field(False, description="true: attention has a gate of its output, as wide as its queries")


class TransformerFile(Model):
    """A transformer, or a hybrid."""

    format: Literal["halley.model/1"] = Field(description="version of the format")
    name: Text = Field(description="name of the model")
    source: Text = Field(description="the publication that states the numbers")
    remark: Text | None = Field(None, description="what differs from the publication, and why")
    layers: Extent = Field(description="layers")
    model: Extent = Field(description="model dim")
    heads: Extent = Field(description="query heads; heads of a state space")
    kv_heads: Extent = Field(description="key and value heads, groups of a state space; divides heads")
    head_dim: Extent = Field(description="head dim of queries and keys (of the content part in latent attention)")
    hidden: Extent = Field(description="hidden dim of the feed-forward block; channels of a state space")
    vocabulary: Extent = Field(description="rows of the embedding table")
    sequence: Extent = Field(description="tokens of a sequence in training")
    gated: bool = Field(description="true: a gated feed-forward block (three matrices); false: two around GELU")
    rms: bool = Field(description="true: RMSNorm; false: LayerNorm")
    positions: bool = Field(description="true: a learned table of positions")
    tied: bool = Field(description="true: the head multiplies by the table of the embedding")
    dropout: Share = Field(description="share dropped from attention weights and branches")
    causal: bool = Field(True, description="true: no token attends to later ones; false: an encoder")
    experts: ExpertsFile | None = Field(None, description="a mixture of experts")
    latent: LatentFile | None = Field(None, description="latent attention")
    state_space: StateSpaceFile | None = Field(None, description="Mamba-2 blocks instead of attention and feed-forward blocks")
    window: WindowFile | None = Field(None, description="sliding windows; serving has them, plans of training do not")
    hybrid: HybridFile | None = Field(None, description="recurrent layers; serving has them, plans of training do not")
    published: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(description="parameters as the source states them")


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What a model file says: a ``shape``; a sliding window of ``keys`` in ``windowed`` layers, 0 where there is none; recurrent
    layers of a ``hybrid``, whose other layers have the shape."""

    shape: Transformer
    keys: int = 0
    windowed: int = 0
    hybrid: Hybrid | None = None


def load_model(path_or_name: str | Path) -> Transformer:
    """The model of that name, if it ships with Halley, else that of the file.

    >>> load_model("llama3-8b").layers
    32

    Raises BadInput: neither a shipped model nor a file that can be read; every fault of the file; recurrent layers.
    """
    return _transformer(load_description(path_or_name))


def load_description(path_or_name: str | Path) -> ModelDescription:
    """The same with sliding windows and recurrent layers.

    >>> load_description("mistral-7b").keys, load_description("nemotron-h-8b").hybrid.layers
    (4096, 24)

    Raises BadInput: neither a shipped model nor a file that can be read; every fault of the file.
    """
    text, name, _ = found(MODELS, path_or_name)
    return parse_description(text, name)


def parse_model(text: str, name: str = "model") -> Transformer:
    """The transformer that the text of a file describes. Raises BadInput: every fault of the text; recurrent layers."""
    return _transformer(parse_description(text, name))


def _transformer(model: ModelDescription) -> Transformer:
    if model.hybrid is not None:
        got = f"{model.hybrid.layers} recurrent layers of {model.shape.layers}"
        raise BadInput(Fault(f"model {model.shape.name}", "a transformer", got, "'halley serve' takes hybrids, plans do not"))
    return model.shape


def parse_description(text: str, name: str = "model") -> ModelDescription:
    """What the text of a file describes. Raises BadInput: every fault of the text."""
    document = read_yaml(text, name)
    file, findings = check(TransformerFile, document.data)
    findings += about_others(_rules(document.data), findings)
    if file is None or findings:
        raise BadInput(document.faults(findings))
    given = file.model_dump(exclude={"format", "remark", "experts", "latent", "state_space", "window", "hybrid"})
    keys, layers = (file.window.keys, file.window.layers) if file.window else (0, 0)
    experts = Experts(**file.experts.model_dump()) if file.experts else None
    latent = Latent(**file.latent.model_dump()) if file.latent else None
    state_space = StateSpace(**file.state_space.model_dump()) if file.state_space else None
    hybrid = Hybrid(**file.hybrid.model_dump()) if file.hybrid else None
    return ModelDescription(Transformer(**given, experts=experts, latent=latent, state_space=state_space), keys, layers, hybrid)


def _rules(data: object) -> Iterator[DocumentFault]:
    """What is wrong with keys together. The rules look at the raw data, so that one run shows all faults."""
    given = data if isinstance(data, dict) else {}
    for fault in shape_faults(given):
        yield DocumentFault(tuple(fault.where.split(", ")), fault.expected, fault.got, fault.remedy)
    hybrid, most = given.get("hybrid"), given.get("layers")
    if isinstance(hybrid, dict):
        for fault in hybrid_faults(hybrid, most):
            yield DocumentFault(tuple(fault.where.split(", ")), fault.expected, fault.got, fault.remedy)
        recurrent = hybrid.get("layers")
        most = most - recurrent if isinstance(most, int) and isinstance(recurrent, int) else most
    window = given.get("window")
    layers = window.get("layers") if isinstance(window, dict) else None
    if isinstance(layers, int) and isinstance(most, int) and layers > most:
        yield DocumentFault(("window", "layers"), f"at most {most} layers", str(layers))


def model_text(model: ModelDescription, remark: str = "") -> str:
    """The text of a model file, from which `parse_description` reads the same.

    >>> parse_description(model_text(load_description("mistral-7b"))) == load_description("mistral-7b")
    True
    """
    shape, hybrid = model.shape, model.hybrid
    given = {
        item.name: getattr(shape, item.name) for item in fields(shape) if item.name != "products"
    }  # a choice of the training
    name, source, published = given.pop("name"), given.pop("source"), given.pop("published")
    document: dict[str, object] = {"format": "halley.model/1", "name": name, "source": source}
    document |= {"remark": remark} if remark else {}
    for key in ("experts", "latent", "state_space"):
        part = given.pop(key)
        if part is not None:
            given[key] = asdict(part)
    document |= given
    document |= {"window": {"keys": model.keys, "layers": model.windowed}} if model.windowed else {}
    document |= {} if hybrid is None else {"hybrid": asdict(hybrid)}
    document["published"] = published
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False, width=LINE_WIDTH)
