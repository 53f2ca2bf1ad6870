"""A transformer or a hybrid as it is served: parameters, cache and state of its layers in bytes.

Weights of matrices have one dtype, the cache another, the state of recurrent layers a third; embedding, head, activations and the
windows of convolutions are bf16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.recurrence import sequence_state
from halley.ir.workload import DTYPE_BYTES
from halley.workloads.transformer import Hybrid, Transformer, hybrid_faults

ACTIVATION_BYTES = 2
"""Activations, embedding and head are bf16."""

WEIGHT_ONLY: dict[str, float] = {"int4": 0.5 + 2.5 / 128, "mxfp4": 0.5 + 1 / 32}
"""Bytes of a weight in formats of weights alone, which products convert to bf16. int4: a scale of 16 bits and a zero point of
4 for 128 values, as AWQ and GPTQ; mxfp4: a scale of 8 bits for 32."""
WEIGHT_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625, **WEIGHT_ONLY}
"""Bytes of a weight. nvfp4: 4 bits, and an fp8 scale for each 16 of them."""
CACHE_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
"""Bytes of an element of the cache."""
STATE_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0}
"""Bytes of an element of the state of recurrent layers."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A transformer, or a ``hybrid`` with recurrent layers, with the dtypes it is served in; ``state``: of recurrent layers.

    ``window``: tokens that a layer with a sliding window attends to, in ``windowed`` of the layers; the others attend to all.
    Raises BadInput: an unknown dtype, more windowed layers than layers with attention, extents of a hybrid that contradict each
    other.

    >>> from halley.io.transformers import load_model
    >>> model = ServedModel(load_model("llama3-8b"))
    >>> round(model.weight_bytes / 1e9, 2), model.cache_bytes_per_token
    (16.06, 131072.0)
    """

    shape: Transformer
    weights: str = "bf16"
    cache: str = "bf16"
    window: int = 0
    windowed: int = 0
    hybrid: Hybrid | None = None
    state: str = "bf16"

    def __post_init__(self) -> None:
        where, faults = f"serving of {self.shape.name}", []
        dtypes = ("weights", self.weights, WEIGHT_BYTES), ("cache", self.cache, CACHE_BYTES), ("state", self.state, STATE_BYTES)
        for what, name, known in dtypes:
            if name not in known:
                faults.append(Fault(f"{where}, {what}", f"one of {', '.join(known)}", repr(name), did_you_mean(name, known)))
        if self.hybrid is not None:
            given = {item: getattr(self.hybrid, item) for item in Hybrid.__slots__}
            faults += [replace(fault, where=f"{where}, {fault.where}") for fault in hybrid_faults(given, self.shape.layers)]
        elif self.shape.state_space is not None:
            faults.append(Fault(where, "its recurrent layers (`Transformer.recurrent`)", "none", "pass them as hybrid"))
        if not 0 <= self.windowed <= self.attention_layers or (self.windowed > 0) != (self.window > 0):
            got = f"a window of {self.window} in {self.windowed} layers"
            faults.append(Fault(where, f"a window in at most {self.attention_layers} layers, or none", got))
        if faults:
            raise BadInput(faults)

    @property
    def compute(self) -> str:
        """Dtype in which matrices are multiplied."""
        return "bf16" if self.weights in WEIGHT_ONLY else self.weights

    @property
    def recurrent_layers(self) -> int:
        """Layers with a recurrence in place of attention."""
        return 0 if self.hybrid is None else self.hybrid.layers

    @property
    def attention_layers(self) -> int:
        """Layers with attention."""
        return self.shape.layers - self.recurrent_layers

    @property
    def feed_forward_layers(self) -> int:
        """Layers with a feed-forward block or experts."""
        return self.shape.layers if self.hybrid is None else self.hybrid.feed_forward

    @property
    def split_heads(self) -> int:
        """Tensor-parallel ranks divide this number: the heads of attention, and those of the recurrence."""
        return self.shape.heads if self.hybrid is None else math.gcd(self.shape.heads, self.hybrid.heads)

    @property
    def gate_width(self) -> int:
        """Columns of the gate of attention's output."""
        return self.shape.heads * self.shape.head_dim if self.hybrid is not None and self.hybrid.output_gate else 0

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention of one layer."""
        shape = self.shape
        if shape.latent is None:
            return shape.model * (shape.head_dim * 2 * (shape.heads + shape.kv_heads) + self.gate_width)
        latent = shape.latent
        down = shape.model * (latent.queries + latent.keys + latent.rope_dim)
        up = latent.queries * shape.heads * (shape.head_dim + latent.rope_dim)
        up += latent.keys * shape.heads * (shape.head_dim + latent.value_dim)
        return down + up + shape.heads * latent.value_dim * shape.model

    @property
    def recurrent_parameters(self) -> int:
        """Parameters of the matrices of one recurrent layer."""
        return 0 if self.hybrid is None else self.hybrid.parameters(self.shape.model)

    @property
    def mixer_parameters(self) -> int:
        """Parameters of attention and of recurrences, of all layers."""
        return self.attention_layers * self.attention_parameters + self.recurrent_layers * self.recurrent_parameters

    @property
    def state_bytes(self) -> float:
        """Bytes that one recurrent layer keeps of a sequence: its state, and the window of its convolution."""
        own = self.hybrid
        if own is None:
            return 0.0
        kept, word = own.taps - 1, STATE_BYTES[self.state]
        return float(sequence_state(own.heads, own.head_dim, own.state, word, own.channels, kept, ACTIVATION_BYTES))

    @property
    def state_bytes_per_sequence(self) -> float:
        """Bytes that all recurrent layers keep of a sequence, whatever its context."""
        return self.recurrent_layers * self.state_bytes

    @property
    def matrices(self) -> int:
        """Matrices of a feed-forward block."""
        return 3 if self.shape.gated else 2

    @property
    def dense_layers(self) -> int:
        """Layers with a plain feed-forward block."""
        experts = self.shape.experts
        return self.feed_forward_layers if experts is None else experts.dense_layers

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.feed_forward_layers - self.dense_layers

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert; 0 without experts."""
        experts = self.shape.experts
        return 0 if experts is None else self.matrices * self.shape.model * experts.hidden

    @property
    def shared_parameters(self) -> int:
        """Parameters of the shared experts and the router of one layer."""
        experts = self.shape.experts
        return 0 if experts is None else self.shape.model * (self.matrices * experts.shared + experts.experts)

    @property
    def feed_forward_parameters(self) -> int:
        """Parameters of a plain feed-forward block."""
        return self.matrices * self.shape.model * self.shape.hidden

    @property
    def vocabulary_bytes(self) -> float:
        """Embedding and head [B]."""
        return self.shape.vocabulary * self.shape.model * ACTIVATION_BYTES * (1 if self.shape.tied else 2)

    @property
    def weight_bytes(self) -> float:
        """All weights [B]."""
        shape = self.shape
        layers = self.mixer_parameters + self.dense_layers * self.feed_forward_parameters
        if shape.experts is not None:
            layers += self.expert_layers * (self.shared_parameters + shape.experts.experts * self.expert_parameters)
        return layers * WEIGHT_BYTES[self.weights] + self.vocabulary_bytes

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied by, with the head and without the embedding."""
        shape = self.shape
        layers = self.mixer_parameters + self.dense_layers * self.feed_forward_parameters
        if shape.experts is not None:
            layers += self.expert_layers * (self.shared_parameters + shape.experts.top_k * self.expert_parameters)
        return layers + shape.vocabulary * shape.model

    @property
    def cache_width(self) -> int:
        """Elements that one layer keeps of one token."""
        latent, shape = self.shape.latent, self.shape
        return 2 * shape.kv_heads * shape.head_dim if latent is None else latent.keys + latent.rope_dim

    @property
    def cache_bytes_per_token(self) -> float:
        """Bytes that all layers with attention keep of one token, each once; those with a window drop old tokens."""
        return self.attention_layers * self.cache_width * CACHE_BYTES[self.cache]


def cached_tokens(model: ServedModel, context: float) -> float:
    """Tokens that a layer with attention keeps of a context on average over these layers: those with a window keep at most the
    window. 0 where no layer has attention.

    .. math:: c = \\frac{(L - L_w) C + L_w \\min(C, W)}{L}
    """
    layers, windowed = model.attention_layers, model.windowed
    if layers == 0:
        return 0.0
    return ((layers - windowed) * context + windowed * min(context, model.window)) / layers


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Layers of the stage of a pipeline that has most: with ``attention``, ``recurrent``, with a ``dense`` block, with experts
    (``sparse``)."""

    attention: int
    recurrent: int
    dense: int
    sparse: int


def stage_layers(model: ServedModel, stages: int) -> StageLayers:
    """Layers of the largest of so many equal stages. Layers of a hybrid alternate, so that each stage has its share of each kind;
    of other models a stage may have no layer but those with experts.

    >>> from halley.io.transformers import load_model
    >>> stage_layers(ServedModel(load_model("deepseek-v3")), 8)
    StageLayers(attention=8, recurrent=0, dense=0, sparse=8)
    """
    layers = -(-model.shape.layers // stages)
    if model.hybrid is None:
        sparse = min(layers, model.expert_layers)
        return StageLayers(layers, 0, layers - sparse, sparse)
    counts = model.attention_layers, model.recurrent_layers, model.dense_layers, model.expert_layers
    return StageLayers(*(-(-count // stages) for count in counts))


__all__ = [
    "ACTIVATION_BYTES",
    "CACHE_BYTES",
    "DTYPE_BYTES",
    "STATE_BYTES",
    "WEIGHT_BYTES",
    "ServedModel",
    "StageLayers",
    "cached_tokens",
    "stage_layers",
]
