"""Extents of a transformer, as a model file states them; `halley.workloads.training.training_model` builds its graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal, TypeAlias, TypeGuard, assert_never, get_args

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import DTYPE_BYTES
from halley.workloads.construction.parameters import SIZE_LIMIT

SIZES = ("layers", "model", "heads", "kv_heads", "head_dim", "hidden", "vocabulary", "sequence")
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


RecurrenceKind: TypeAlias = Literal["mamba", "mamba-2", "gated-delta"]
"""How a recurrent layer updates its state. mamba: a decay for each channel and element of its state, every channel being a head
of width 1; mamba-2: a decay for each head; gated-delta: that and the gated delta rule (linear attention)."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Recurrent layers of a model, and what else differs from a transformer of the same extents.

    ``kind``; ``layers``: recurrent ones, of all layers; ``heads``, ``head_dim``: of values (Mamba: a head for each channel);
    ``state``: elements of state for each value (linear attention: head dim of keys); ``groups``: of heads that share B and C
    (linear attention: heads of keys); ``taps``: of the causal convolution; ``rank``: of the steps' projection (Mamba alone);
    ``chunk``: tokens that are multiplied together in prompts. ``feed_forward``: layers with a feed-forward block or experts;
    ``output_gate``: attention has a gate of its output, as wide as its queries.
    """

    kind: RecurrenceKind
    layers: int
    heads: int
    head_dim: int
    state: int
    groups: int
    taps: int
    chunk: int
    feed_forward: int
    rank: int = 0
    output_gate: bool = False

    @property
    def inner(self) -> int:
        """Channels of values."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the causal convolution: values, and those by which the state is written and read."""
        return self.inner + (0 if self.kind == "mamba" else 2 * self.groups * self.state)

    @property
    def entry(self) -> int:
        """Columns of the projection into a layer: channels, a gate as wide as the values, and rates of the heads."""
        rates = {"mamba": 0, "mamba-2": 1, "gated-delta": 2}[self.kind]
        return self.channels + self.inner + rates * self.heads

    def parameters(self, model: int) -> int:
        """Parameters of the matrices of one layer."""
        selection = self.inner * (2 * self.rank + 2 * self.state) if self.kind == "mamba" else 0
        return model * (self.entry + self.inner) + selection

    @property
    def vectors(self) -> int:
        """Parameters of one layer that multiply no token's row: taps with their biases, rates, skips, norms."""
        convolution = self.channels * (self.taps + (self.kind != "gated-delta"))
        match self.kind:
            case "mamba":
                return convolution + self.inner * (self.state + 2)
            case "mamba-2":
                return convolution + 3 * self.heads + self.inner
            case "gated-delta":
                return convolution + 2 * self.heads + self.head_dim
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A Mamba-2 block in place of attention and feed-forward block: columns of a head's ``state``, ``taps`` of the convolution,
    tokens of a ``chunk`` of the scan. The heads of a group share B and C."""

    state: int
    taps: int = 4
    chunk: int = 256


@dataclass(frozen=True, slots=True)
class Transformer:
    """Extents of one transformer, or of a model of Mamba-2 layers.

    ``model``: model dim; ``head_dim``: of queries and keys (of their content part in latent attention); ``hidden``: of the
    feed-forward block; ``sequence``: length of the sequences in training. ``gated``: three feed-forward matrices (SwiGLU) rather
    than two with GELU; ``rms``: RMSNorm rather than LayerNorm; ``positions``: a learned table of positions; ``tied``: embedding
    and head share one table; ``dropout``: rate of dropout on attention weights and on both residual branches. ``causal``: no
    token attends to later ones. ``published``: number of parameters that the source states, 0 if it states none. ``products``:
    element type in which layers multiply by weights in training, operands being cast before; "" is that in which they are stored.
    With a ``state_space``, ``heads`` of ``head_dim`` channels make up the ``hidden`` channels of a layer, and ``kv_heads`` is the
    number of groups of heads, each with a B and a C of its own. Left out: biases of matrices, rotary embeddings.

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
    state_space: StateSpace | None = None

    def __post_init__(self) -> None:
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        given |= {name: asdict(part) for name in ("latent", "experts", "state_space") if (part := given[name]) is not None}
        where = f"model {self.name}"
        if faults := [replace(fault, where=f"{where}, {fault.where}") for fault in shape_faults(given)]:
            raise BadInput(faults)

    @property
    def recurrent(self) -> Hybrid | None:
        """The layers of a state space as recurrent layers; None without one."""
        space = self.state_space
        if space is None:
            return None
        own = self.layers, self.heads, self.head_dim, space.state, self.kv_heads, space.taps, space.chunk
        return Hybrid("mamba-2", *own, feed_forward=0)


def shape_faults(given: Mapping[str, object]) -> Iterator[Fault]:
    """What is wrong with the fields of a transformer, each at ``KEY`` or ``PART, KEY``; rules between fields hold for those that
    are sizes. ``given``: by name, with parts (``latent``, ``experts``) as maps of their own; a file may lack some."""
    sizes = {name: given.get(name) for name in SIZES}
    bad = list(_size_faults("", sizes))
    yield from bad
    known = {name: value for name, value in sizes.items() if _is_size(value)}
    heads, kv_heads, layers = (known.get(name) for name in ("heads", "kv_heads", "layers"))
    if heads and kv_heads and heads % kv_heads:
        yield Fault("kv_heads", f"a divisor of heads ({heads})", str(kv_heads))
    if given.get("products", "") not in ("", "bf16", "fp8"):
        yield Fault("products", "bf16 or fp8", repr(given["products"]))
    dropout = given.get("dropout", 0.0)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        yield Fault("dropout", "a share from 0 to below 1", repr(dropout))
    latent = given.get("latent")
    if isinstance(latent, Mapping):
        names = [item.name for item in fields(Latent)]
        yield from _size_faults("latent", {"queries": latent.get("queries")}, 0)
        yield from _size_faults("latent", {name: latent.get(name) for name in names if name != "queries"})
        if heads and kv_heads and kv_heads != heads:
            yield Fault("kv_heads", f"heads ({heads}) with latent attention", str(kv_heads))
    experts = given.get("experts")
    if isinstance(experts, Mapping):
        extents = {name: experts.get(name) for name in ("experts", "top_k", "hidden")}
        yield from _size_faults("experts", extents)
        yield from _size_faults("experts", {name: experts.get(name, 0) for name in ("shared", "dense_layers")}, 0)
        number, top_k = extents["experts"], extents["top_k"]
        most = min(number, EXPERTS_PER_TOKEN) if _is_size(number) else EXPERTS_PER_TOKEN
        if _is_size(top_k) and top_k > most:
            yield Fault("experts, top_k", f"at most {most}", str(top_k))
        dense = experts.get("dense_layers", 0)
        if layers and _is_size(dense) and dense >= layers:
            yield Fault("experts, dense_layers", f"fewer than layers ({layers})", str(dense))

    state_space = given.get("state_space")
    if isinstance(state_space, Mapping):
        yield from _size_faults("state_space", {item.name: state_space.get(item.name, 1) for item in fields(StateSpace)})
        width, hidden = known.get("head_dim"), known.get("hidden")
        if heads and width and hidden and heads * width != hidden:
            yield Fault("hidden", f"heads x head_dim ({heads * width}) with a state space", str(hidden))
        absent = {"experts": None, "latent": None, "dropout": 0, "positions": False}
        for name, value in absent.items():
            if given.get(name, value) != value:
                yield Fault(name, "none with a state space", repr(given[name])[:60])
        if given.get("causal", True) is not True:
            yield Fault("causal", "true with a state space", repr(given["causal"]))


def hybrid_faults(given: Mapping[str, object], layers: object) -> Iterator[Fault]:
    """What is wrong with the fields of a `Hybrid` of a model with so many ``layers``, each at ``hybrid, KEY``."""
    sizes = {item.name: given.get(item.name) for item in fields(Hybrid) if item.type == "int"}
    rank, blocks = sizes.pop("rank"), sizes.pop("feed_forward")
    yield from _size_faults("hybrid", sizes)
    yield from _size_faults("hybrid", {"feed_forward": blocks, "rank": 0 if rank is None else rank}, 0)
    for name, number in (("layers", sizes["layers"]), ("feed_forward", blocks)):
        if _is_size(layers) and _is_size(number) and number > layers:
            yield Fault(f"hybrid, {name}", f"at most {layers} layers", str(number))
    heads, groups = sizes["heads"], sizes["groups"]
    if _is_size(heads) and _is_size(groups) and heads % groups:
        yield Fault("hybrid, groups", f"a divisor of heads ({heads})", str(groups))
    kinds = get_args(RecurrenceKind)
    if given.get("kind") not in kinds:
        yield Fault("hybrid, kind", f"one of {', '.join(kinds)}", repr(given.get("kind")))
    mamba = given.get("kind") == "mamba"
    if mamba and (sizes["head_dim"], groups) != (1, 1):
        yield Fault("hybrid, head_dim", "1, and one group: in Mamba each channel is a head", str(sizes["head_dim"]))
    if mamba != (isinstance(rank, int) and rank > 0):
        yield Fault("hybrid, rank", "a rank of the steps with kind mamba, none with others", str(rank))


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= SIZE_LIMIT


def _size_faults(where: str, sizes: Mapping[str, object], least: int = 1) -> Iterator[Fault]:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= SIZE_LIMIT:
            yield Fault(f"{where}, {name}" if where else name, f"a whole number from {least} to {SIZE_LIMIT}", repr(value))


def check_training(shape: Transformer, batch: int, tokens: int, dtype: str) -> None:
    """Check batch, sequence length and element type of a training run. Raises BadInput with every fault."""
    where = f"training of {shape.name}"
    faults = list(_size_faults(where, {"batch": batch, "sequence": tokens}))
    if dtype not in DTYPE_BYTES or dtype.startswith("int"):
        known = [name for name in DTYPE_BYTES if not name.startswith("int")]
        faults.append(Fault(f"{where}, dtype", "an element type of real numbers", repr(dtype), did_you_mean(str(dtype), known)))
    if shape.positions and not faults and tokens > shape.sequence:
        faults.append(Fault(f"{where}, sequence", f"at most {shape.sequence}, the positions of its table", str(tokens)))
    if shape.state_space is not None and not faults and tokens % min(shape.state_space.chunk, tokens):
        faults.append(Fault(f"{where}, sequence", f"a multiple of a chunk of {shape.state_space.chunk} tokens", str(tokens)))
    if faults:
        raise BadInput(faults)


def token_extents(shape: Transformer, tokens: int) -> dict[str, int]:
    """The dims of the tokens of a sequence with their extents: one dim, or with a state space chunks and positions in a chunk.

    >>> small = Transformer("s", 1, 8, 2, 1, 4, 8, 16, 6, state_space=StateSpace(2, chunk=3))
    >>> token_extents(small, 6)
    {'c': 2, 'l': 3}
    """
    if shape.state_space is None:
        return {"m": tokens}
    chunk = min(shape.state_space.chunk, tokens)
    return {"c": tokens // chunk, "l": chunk}
