"""Model files: the extents of a transformer as YAML, read into a `Transformer`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from halley.errors import BadInput
from halley.io.files.check import about_others, check
from halley.io.files.entries import Text
from halley.io.files.models import Model
from halley.io.files.shelf import found
from halley.io.files.text import DocumentFault, read_yaml
from halley.library import MODELS
from halley.workloads.construction.parameters import SIZE_LIMIT
from halley.workloads.transformer import Experts, Latent, StateSpace, Transformer, shape_faults

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


class TransformerFile(Model):
    """A transformer."""

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
    published: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(description="parameters as the source states them")


def load_model(path_or_name: str | Path) -> Transformer:
    """The model of that name, if it ships with Halley, else that of the file.

    >>> load_model("llama3-8b").layers
    32

    Raises BadInput: neither a shipped model nor a file that can be read; every fault of the file.
    """
    return load_windowed(path_or_name)[0]


def load_windowed(path_or_name: str | Path) -> tuple[Transformer, int, int]:
    """`load_model`, the keys of its sliding window and the layers that have one; 0 where there is none.

    >>> load_windowed("mistral-7b")[1:]
    (4096, 32)
    """
    text, name, _ = found(MODELS, path_or_name)
    return _parsed(text, name)


def parse_model(text: str, name: str = "model") -> Transformer:
    """The transformer that the text of a file describes. Raises BadInput: every fault of the text."""
    return _parsed(text, name)[0]


def _parsed(text: str, name: str) -> tuple[Transformer, int, int]:
    document = read_yaml(text, name)
    file, findings = check(TransformerFile, document.data)
    findings += about_others(_rules(document.data), findings)
    if file is None or findings:
        raise BadInput(document.faults(findings))
    given = file.model_dump(exclude={"format", "remark", "experts", "latent", "state_space", "window"})
    keys, layers = (file.window.keys, file.window.layers) if file.window else (0, 0)
    experts = Experts(**file.experts.model_dump()) if file.experts else None
    latent = Latent(**file.latent.model_dump()) if file.latent else None
    state_space = StateSpace(**file.state_space.model_dump()) if file.state_space else None
    return Transformer(**given, experts=experts, latent=latent, state_space=state_space), keys, layers


def _rules(data: object) -> Iterator[DocumentFault]:
    """What is wrong with keys together. The rules look at the raw data, so that one run shows all faults."""
    given = data if isinstance(data, dict) else {}
    for fault in shape_faults(given):
        yield DocumentFault(tuple(fault.where.split(", ")), fault.expected, fault.got, fault.remedy)
    window, most = given.get("window"), given.get("layers")
    layers = window.get("layers") if isinstance(window, dict) else None
    if isinstance(layers, int) and isinstance(most, int) and layers > most:
        yield DocumentFault(("window", "layers"), f"at most {most} layers", str(layers))


def model_text(shape: Transformer, remark: str = "") -> str:
    """The text of a model file.

    >>> parse_model(model_text(load_model("llama3-8b"))) == load_model("llama3-8b")
    True
    """
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
    document |= given | {"published": published}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False, width=LINE_WIDTH)
