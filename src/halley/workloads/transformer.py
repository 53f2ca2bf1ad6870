"""The extents of a transformer: what a model file says, and what `training_model` builds from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import DTYPE_BYTES
from halley.workloads.parameters import SIZE_LIMIT

EXPERTS_PER_TOKEN = 64
"""Most experts per token: a round of the gate each."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward block.

    ``hidden``: hidden dim of an expert. ``shared``: joint hidden dim of the experts that every token visits, 0 for none.
    ``dense_layers``: first layers that have the plain block.
    """

    experts: int
    top_k: int
    hidden: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class Latent:
    """Latent attention: dims of the latents of queries and keys, of the rotary part, of a head's values."""

    queries: int
    keys: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Transformer:
    """Extents of one transformer.

    ``model``: model dim; ``head_dim``: of queries and keys (of their content part in latent attention); ``hidden``: of the
    feed-forward block; ``sequence``: tokens that it was trained on. ``gated``: three feed-forward matrices (SwiGLU) rather than
    two around GELU; ``rms``: RMSNorm rather than LayerNorm; ``positions``: a learned table of positions; ``tied``: the
    head multiplies by the table of the embedding; ``dropout``: share that is dropped from attention weights and of the two
    branches. ``published``: parameters that the source states, 0 if it states none. Left out: biases of matrices, rotation by
    position.

    Raises BadInput with every fault.
    """

    name: str
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
    published: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise BadInput(faults)


def _faults(shape: Transformer) -> Iterator[Fault]:
    where = f"model {shape.name}"
    sizes = ("layers", "model", "heads", "kv_heads", "head_dim", "hidden", "vocabulary", "sequence")
    bad = list(_size_faults(where, {name: getattr(shape, name) for name in sizes}))
    yield from bad
    if not bad and shape.heads % shape.kv_heads:
        yield Fault(f"{where}, kv_heads", f"a divisor of heads ({shape.heads})", str(shape.kv_heads))
    if not 0 <= shape.dropout < 1:
        yield Fault(f"{where}, dropout", "a share from 0 to below 1", repr(shape.dropout))
    if shape.latent is not None:
        yield from _size_faults(f"{where}, latent", {item.name: getattr(shape.latent, item.name) for item in fields(Latent)})
        if shape.kv_heads != shape.heads:
            yield Fault(f"{where}, kv_heads", f"heads ({shape.heads}) with latent attention", str(shape.kv_heads))
    experts = shape.experts
    if experts is not None:
        extents = {"experts": experts.experts, "top_k": experts.top_k, "hidden": experts.hidden}
        wrong = list(_size_faults(f"{where}, experts", extents))
        wrong += _size_faults(f"{where}, experts", {"shared": experts.shared, "dense_layers": experts.dense_layers}, 0)
        yield from wrong
        most = min(experts.experts, EXPERTS_PER_TOKEN) if not wrong else EXPERTS_PER_TOKEN
        if not wrong and experts.top_k > most:
            yield Fault(f"{where}, experts, top_k", f"at most {most}", str(experts.top_k))
        if not wrong and not bad and experts.dense_layers >= shape.layers:
            yield Fault(f"{where}, experts, dense_layers", f"fewer than layers ({shape.layers})", str(experts.dense_layers))


def _size_faults(where: str, sizes: Mapping[str, object], least: int = 1) -> Iterator[Fault]:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= SIZE_LIMIT:
            yield Fault(f"{where}, {name}", f"a whole number from {least} to {SIZE_LIMIT}", repr(value))


def check_training(shape: Transformer, batch: int, tokens: int, dtype: str) -> None:
    """Raise `BadInput` with every fault of what a model is to be trained on."""
    where = f"training of {shape.name}"
    faults = list(_size_faults(where, {"batch": batch, "sequence": tokens}))
    if dtype not in DTYPE_BYTES or dtype.startswith("int"):
        known = [name for name in DTYPE_BYTES if not name.startswith("int")]
        faults.append(Fault(f"{where}, dtype", "an element type of real numbers", repr(dtype), did_you_mean(str(dtype), known)))
    if shape.positions and not faults and tokens > shape.sequence:
        faults.append(Fault(f"{where}, sequence", f"at most {shape.sequence}, the positions of its table", str(tokens)))
    if faults:
        raise BadInput(faults)
