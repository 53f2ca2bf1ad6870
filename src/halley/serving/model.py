"""A transformer as it is served: parameters and cache of its layers in bytes.

Weights of matrices have one dtype, the cache another; embedding, head and activations are bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import DTYPE_BYTES
from halley.workloads.transformer import Transformer

ACTIVATION_BYTES = 2
"""Activations, embedding and head are bf16."""

WEIGHT_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625}
"""Bytes of a weight. nvfp4: 4 bits, and an fp8 scale for each 16 of them."""
CACHE_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
"""Bytes of an element of the cache."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A transformer with the dtypes it is served in.

    ``window``: tokens that a layer with a sliding window attends to, in ``windowed`` of the layers; the others attend to all.
    Raises BadInput: an unknown dtype, more windowed layers than layers.

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

    def __post_init__(self) -> None:
        where, faults = f"serving of {self.shape.name}", []
        for what, name, known in (("weights", self.weights, WEIGHT_BYTES), ("cache", self.cache, CACHE_BYTES)):
            if name not in known:
                faults.append(Fault(f"{where}, {what}", f"one of {', '.join(known)}", repr(name), did_you_mean(name, known)))
        if self.shape.state_space is not None:
            remedy = "'halley plan --train' plans its training"
            faults.append(Fault(where, "layers of attention", "a state space, whose serving Halley does not model", remedy))
        if not 0 <= self.windowed <= self.shape.layers or (self.windowed > 0) != (self.window > 0):
            got = f"a window of {self.window} in {self.windowed} layers"
            faults.append(Fault(where, f"a window in at most {self.shape.layers} layers, or none", got))
        if faults:
            raise BadInput(faults)

    @property
    def compute(self) -> str:
        """Dtype in which matrices are multiplied."""
        return self.weights

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention of one layer."""
        shape = self.shape
        if shape.latent is None:
            return shape.model * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
        latent = shape.latent
        down = shape.model * (latent.queries + latent.keys + latent.rope_dim)
        up = latent.queries * shape.heads * (shape.head_dim + latent.rope_dim)
        up += latent.keys * shape.heads * (shape.head_dim + latent.value_dim)
        return down + up + shape.heads * latent.value_dim * shape.model

    @property
    def matrices(self) -> int:
        """Matrices of a feed-forward block."""
        return 3 if self.shape.gated else 2

    @property
    def dense_layers(self) -> int:
        """Layers with a plain feed-forward block."""
        experts = self.shape.experts
        return self.shape.layers if experts is None else experts.dense_layers

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.shape.layers - self.dense_layers

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
        layers = shape.layers * self.attention_parameters + self.dense_layers * self.feed_forward_parameters
        if shape.experts is not None:
            layers += self.expert_layers * (self.shared_parameters + shape.experts.experts * self.expert_parameters)
        return layers * WEIGHT_BYTES[self.weights] + self.vocabulary_bytes

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied by, with the head and without the embedding."""
        shape = self.shape
        layers = shape.layers * self.attention_parameters + self.dense_layers * self.feed_forward_parameters
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
        """Bytes that all layers keep of one token, each once; those with a window drop old tokens."""
        return self.shape.layers * self.cache_width * CACHE_BYTES[self.cache]


def cached_tokens(model: ServedModel, context: float) -> float:
    """Tokens that a layer keeps of a context on average over the layers: those with a window keep at most the window.

    .. math:: c = \\frac{(L - L_w) C + L_w \\min(C, W)}{L}
    """
    layers, windowed = model.shape.layers, model.windowed
    return ((layers - windowed) * context + windowed * min(context, model.window)) / layers


__all__ = ["ACTIVATION_BYTES", "CACHE_BYTES", "DTYPE_BYTES", "WEIGHT_BYTES", "ServedModel", "cached_tokens"]
