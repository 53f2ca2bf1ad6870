"""Shapes of published transformer models, and the compound operations that occur in them."""

from __future__ import annotations

from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Workload
from halley.workloads.attention import attention
from halley.workloads.gemm import gemm_layernorm, gemm_rmsnorm, gemm_softmax
from halley.workloads.mlp import gated_mlp


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Extents of one transformer. ``vocabulary`` is None for models that read no tokens of a vocabulary.

    ``causal``: a decoder. ``gated``: the feed-forward block has three matrices (SwiGLU) rather than two; ``rms``: RMSNorm
    rather than LayerNorm. ``source`` is the publication that states the numbers.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int | None
    causal: bool
    gated: bool
    rms: bool
    source: str


def _classic(layers: int, hidden: int, heads: int, vocabulary: int | None, causal: bool, source: str) -> ModelShape:
    """Multi-head attention, two feed-forward matrices of four times the hidden dim, LayerNorm."""
    return ModelShape(
        layers, hidden, heads, heads, hidden // heads, 4 * hidden, vocabulary, causal, gated=False, rms=False, source=source
    )


def _llama(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, source: str) -> ModelShape:
    """Grouped-query attention with heads of 128, SwiGLU, RMSNorm."""
    return ModelShape(layers, hidden, heads, kv_heads, 128, ffn, vocabulary, causal=True, gated=True, rms=True, source=source)


_BERT = "Devlin et al. 2019, arXiv 1810.04805, section 3; vocabulary of the released uncased models"
_GPT2 = "Radford et al. 2019, table 2 and section 2.2; heads of the released models"
_GPT3 = "Brown et al. 2020, arXiv 2005.14165, table 2.1; vocabulary of GPT-2; its sparse layers are taken as dense"
_LLAMA2 = "Touvron et al. 2023, arXiv 2307.09288, section 2; extents of the released models"
_LLAMA3 = "Llama team 2024, arXiv 2407.21783, table 3; vocabulary of the released models"
_MISTRAL = "Jiang et al. 2023, arXiv 2310.06825, table 1; its window of 4096 keys is not modelled: right up to 4096 tokens"
_FALCON = "Almazrouei et al. 2023, arXiv 2311.16867; extents of the released model"
_VIT = "Dosovitskiy et al. 2021, arXiv 2010.11929, table 1; at 224 x 224 pixels 197 tokens in patches of 16, 257 of 14"

MODELS: dict[str, ModelShape] = {
    "bert-base": _classic(12, 768, 12, 30522, False, _BERT),
    "bert-large": _classic(24, 1024, 16, 30522, False, _BERT),
    "gpt2-xl": _classic(48, 1600, 25, 50257, True, _GPT2),
    "gpt3-6.7b": _classic(32, 4096, 32, 50257, True, _GPT3),
    "gpt3-175b": _classic(96, 12288, 96, 50257, True, _GPT3),
    "llama2-7b": _llama(32, 4096, 32, 32, 11008, 32000, _LLAMA2),
    "llama2-70b": _llama(80, 8192, 64, 8, 28672, 32000, _LLAMA2),
    "llama3-8b": _llama(32, 4096, 32, 8, 14336, 128256, _LLAMA3),
    "llama3-70b": _llama(80, 8192, 64, 8, 28672, 128256, _LLAMA3),
    "llama3-405b": _llama(126, 16384, 128, 8, 53248, 128256, _LLAMA3),
    "mistral-7b": _llama(32, 4096, 32, 8, 14336, 32000, _MISTRAL),
    "falcon-7b": ModelShape(32, 4544, 71, 1, 64, 18176, 65024, causal=True, gated=False, rms=False, source=_FALCON),
    "vit-b/16": _classic(12, 768, 12, None, False, _VIT),
    "vit-l/16": _classic(24, 1024, 16, None, False, _VIT),
    "vit-h/14": _classic(32, 1280, 16, None, False, _VIT),
}
"""Published transformers by name."""


def shapes(model: str, tokens: int, dtype: str = "bf16") -> dict[str, Workload]:
    """The compound operations of one sequence of ``tokens`` in that model, by role.

    - ``scores-softmax``: ``Q K^T`` of one KV head with its query heads stacked, then softmax along the keys:
      m = heads / kv_heads x tokens, n = tokens, k = head dim. A short contraction before a wide row. The other KV heads
      repeat it; only the attention workloads have scale and mask.
    - ``vocabulary-softmax``: the projection to the vocabulary, then softmax: m = tokens, n = vocabulary, k = hidden. A long
      contraction before the widest row of the model, so a split of n matters most here.
    - ``projection-norm``: the attention's output projection, then the model's norm: m = tokens, n = hidden,
      k = heads x head dim.
    - ``ffn-norm``: the second feed-forward GEMM, then the norm: m = tokens, n = hidden, k = ffn. Left out of both: bias and
      residual sum, which most models have between GEMM and norm.
    - ``attention-prefill``: all heads, queries = keys = tokens, masked in decoders.
    - ``attention-decode``: one query against tokens keys (decoders only).
    - ``gated-mlp``: the whole feed-forward block (gated models only).

    >>> dict(shapes("llama3-8b", 512)["scores-softmax"].dims)
    {'m': 2048, 'n': 512, 'k': 128}

    Raises BadInput: an unknown model, tokens or dtype that the builders refuse.
    """
    if model not in MODELS:
        raise BadInput(Fault("model", "a known model", repr(model), did_you_mean(str(model), MODELS)))
    shape = MODELS[model]
    norm = gemm_rmsnorm if shape.rms else gemm_layernorm
    made = {
        "attention-prefill": attention(
            1, shape.heads, shape.kv_heads, tokens, tokens, shape.head_dim, causal=shape.causal, dtype=dtype
        ),
        "scores-softmax": gemm_softmax(shape.heads // shape.kv_heads * tokens, tokens, shape.head_dim, dtype=dtype),
        "projection-norm": norm(tokens, shape.hidden, shape.heads * shape.head_dim, dtype=dtype),
        "ffn-norm": norm(tokens, shape.hidden, shape.ffn, dtype=dtype),
    }
    if shape.causal:
        made["attention-decode"] = attention(1, shape.heads, shape.kv_heads, 1, tokens, shape.head_dim, causal=True, dtype=dtype)
    if shape.vocabulary is not None:
        made["vocabulary-softmax"] = gemm_softmax(tokens, shape.vocabulary, shape.hidden, dtype=dtype)
    if shape.gated:
        made["gated-mlp"] = gated_mlp(tokens, shape.hidden, shape.ffn, dtype=dtype)
    return made
