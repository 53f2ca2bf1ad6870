"""Extents of a transformer, as a model file states them; `halley.workloads.training.training_model` builds its graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import DTYPE_BYTES
from halley.workloads.construction.parameters import SIZE_LIMIT

EXPERTS_PER_TOKEN = 64
"""Largest number of experts per token; each needs a round of the gate."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward block.

    ``hidden``: hidden dim of an expert. ``shared``: joint hidden dim of the experts that process every token, 0 for none.
    ``dense_layers``: number of first layers that have the dense block.
    """

    experts: int
    top_k: int
    hidden: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class Latent:
    """Latent attention: dims of the latents of queries (0: they have none) and keys, of the rotary part, of a head's values."""

    queries: int
    keys: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Transformer:
    """Extents of one transformer.

    ``model``: model dim; ``head_dim``: of queries and keys (of their content part in latent attention); ``hidden``: of the
    feed-forward block; ``sequence``: length of the sequences in training. ``gated``: three feed-forward matrices (SwiGLU) rather
    than two with GELU; ``rms``: RMSNorm rather than LayerNorm; ``positions``: a learned table of positions; ``tied``: embedding
    and head share one table; ``dropout``: rate of dropout on attention weights and on both residual branches. ``causal``: no
    token attends to later ones. ``published``: number of parameters that the source states, 0 if it states none. ``products``:
    element type in which layers multiply by weights in training, operands being cast before; "" is that in which they are stored.
    Left out: biases of matrices, rotary embeddings.

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
    causal: bool = True
    published: float = 0.0
    source: str = ""
    products: str = ""

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
    if shape.products not in ("", "bf16", "fp8"):
        yield Fault(f"{where}, products", "bf16 or fp8", repr(shape.products))
    if not 0 <= shape.dropout < 1:
        yield Fault(f"{where}, dropout", "a share from 0 to below 1", repr(shape.dropout))
    if shape.latent is not None:
        latent = {item.name: getattr(shape.latent, item.name) for item in fields(Latent)}
        yield from _size_faults(f"{where}, latent", {"queries": latent.pop("queries")}, 0)
        yield from _size_faults(f"{where}, latent", latent)
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
    """Check batch, sequence length and element type of a training run. Raises BadInput with every fault."""
    where = f"training of {shape.name}"
    faults = list(_size_faults(where, {"batch": batch, "sequence": tokens}))
    if dtype not in DTYPE_BYTES or dtype.startswith("int"):
        known = [name for name in DTYPE_BYTES if not name.startswith("int")]
        faults.append(Fault(f"{where}, dtype", "an element type of real numbers", repr(dtype), did_you_mean(str(dtype), known)))
    if shape.positions and not faults and tokens > shape.sequence:
        faults.append(Fault(f"{where}, sequence", f"at most {shape.sequence}, the positions of its table", str(tokens)))
    if faults:
        raise BadInput(faults)
