"""A GPT as Megatron-LM of 2022 runs it: kernels and collectives of layer, embedding and head on one tensor-parallel rank.

Attention is not fused: scores, masked softmax, dropout and values are kernels of their own. Bias, dropout and residual sum are
one kernel, as are bias and GELU. The gradient of a weight is added to an fp32 sum by the GEMM that makes it.

    scattered   into a split weight        out of a split weight   backward of the first            backward of the second
    no                                     all-reduce              all-reduce, beside weight's
    yes         all-gather                 reduce-scatter          all-gather beside input's,       all-gather
                                                                   reduce-scatter beside weight's

Sources: Shoeybi et al., arXiv 1909.08053; Narayanan et al., SC 2021 (arXiv 2104.04473); Korthikanti et al., MLSys 2023 (arXiv
2205.05198). Left out: gradients of positions, targets picked from the logits, memory that a kernel and a collective both want.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.ir.mapping import CollectiveKind
from halley.ir.workload import DTYPE_BYTES, FUNCTIONS
from halley.planning.kernels import Gemm, Stream, layer_norm
from halley.planning.operations import DRAW
from halley.planning.passes import Exchange, Kind, Step, Work
from halley.rewrite.recompute import Recompute
from halley.workloads.transformer import Transformer

WORD, SUM, MASK = DTYPE_BYTES["bf16"], DTYPE_BYTES["fp32"], 1
"""Bytes of an activation, of what is summed in fp32, and of an entry of a dropout mask."""

WORK = {**FUNCTIONS, "draw": DRAW}
SOFTMAX = ("scale_mask", "maximum", "exp_difference", "add", "divide")

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER


@dataclass(frozen=True, slots=True)
class Split:
    """One microbatch on tensor-parallel ``ranks``. ``scattered``: between split weights each rank has its share of the tokens
    (sequence parallelism), else all ranks have all of them. ``microbatch`` [sequences], ``sequence`` [tokens]."""

    microbatch: Number
    sequence: Number
    ranks: int = 1
    scattered: bool = False

    @property
    def tokens(self) -> Number:
        """All tokens of the microbatch."""
        return self.microbatch * self.sequence

    @property
    def own(self) -> Number:
        """Tokens that a rank has between split weights."""
        return self.tokens / self.ranks if self.scattered else self.tokens


@dataclass(frozen=True, slots=True)
class Part:
    """Work of one microbatch: ``forward``, ``backward``, ``recompute`` (forward work again, before the backward pass).
    ``parameters`` of one rank."""

    forward: Work
    backward: Work
    recompute: Work
    parameters: int


def check_split(shape: Transformer, split: Split) -> None:
    """Raises BadInput with every fault: a model that is no GPT, ranks that do not divide its extents."""
    faults = []
    unlike = {"gated": shape.gated, "rms": shape.rms, "experts": shape.experts is not None, "latent": shape.latent is not None}
    found = [name for name, has in unlike.items() if has]
    if found:
        expected = "a GPT: LayerNorm, plain attention, two matrices around GELU"
        faults.append(Fault(f"model {shape.name}", expected, ", ".join(found)))
    extents = {"heads": shape.heads, "kv_heads": shape.kv_heads, "hidden": shape.hidden, "vocabulary": shape.vocabulary}
    if split.scattered:
        extents["sequence"] = int(split.sequence)
    for name, extent in extents.items():
        if split.ranks < 1 or extent % split.ranks:
            faults.append(Fault(f"tensor-parallel ranks of {shape.name}", f"a divisor of {name} ({extent})", str(split.ranks)))
    if faults:
        raise BadInput(faults)


def layer(shape: Transformer, split: Split, recompute: Recompute = Recompute.NONE) -> Part:
    """One layer. Raises BadInput: see `check_split`.

    >>> small = Transformer("small", 2, 8, 2, 2, 4, 32, 64, 16, gated=False, rms=False)
    >>> part = layer(small, Split(3, 16, ranks=2, scattered=True), Recompute.SELECTIVE)
    >>> [step.name for step in part.recompute]
    ['scores', 'softmax', 'values', 'merge heads']
    """
    check_split(shape, split)
    core = _core(shape, split)
    forward = (*_attention(shape, split, core), *_feed_forward(shape, split))
    backward = (*_feed_forward_backward(shape, split), *_attention_backward(shape, split))
    again: Work = {Recompute.NONE: (), Recompute.SELECTIVE: core, Recompute.FULL: forward}[recompute]
    return Part(forward, backward, again, _parameters(shape, split.ranks))


def embedding(shape: Transformer, split: Split) -> Part:
    """Look-up in a table of which each rank has rows, positions, dropout. Its gradient is as large as the table."""
    check_split(shape, split)
    every, own = split.tokens * shape.model, split.own * shape.model
    table = shape.vocabulary // split.ranks * shape.model
    forward: Work = (
        _stream("look up", every, WORD, WORD, "identity"),
        Exchange(ALL_REDUCE, every * WORD),
        *([_stream("place", every, 2 * WORD, WORD, "add")] if shape.positions else []),
        *([_stream("keep own tokens", own, WORD, WORD, "identity")] if split.scattered else []),
        *_dropout(shape, "drop", own),
    )
    backward: Work = (
        *_dropout(shape, "drop backward", own, backward=True),
        *_gathered(split, own * split.ranks),
        _stream("table, cleared", table, 0, WORD, "identity"),
        _stream("table, summed over tokens", every, 2 * WORD, WORD, "add"),
        _stream("table, added up", table, WORD + SUM, SUM, "add"),
    )
    return Part(forward, backward, (), table + (shape.sequence * shape.model if shape.positions else 0))


def head(shape: Transformer, split: Split, table: bool = True) -> Part:
    """Final norm, logits of the rank's part of the vocabulary, cross entropy in fp32 in the steps of Megatron-LM. ``table``: the
    chip keeps one for the head, apart from any that the embedding has."""
    check_split(shape, split)
    tokens, columns = split.tokens, shape.vocabulary // split.ranks
    logits, statistic = tokens * columns, Exchange(ALL_REDUCE, tokens * SUM)
    forward: Work = (
        _norm("final norm", shape, split),
        *_gathered(split, tokens * shape.model),
        _matrix("logits", tokens, columns, shape.model),
        _stream("logits in fp32", logits, WORD, SUM, "identity"),
        _stream("maximum", logits, SUM, 0, "maximum"),
        statistic,
        _stream("less maximum", logits, SUM, SUM, "subtract"),
        statistic,  # the target's logit
        _stream("exponential", logits, SUM, SUM, "exp"),
        _stream("sum", logits, SUM, 0, "add"),
        statistic,
        _stream("softmax", logits, SUM, SUM, "divide"),
    )
    backward: Work = (
        _stream("loss backward", logits, SUM, SUM, "mul"),
        _stream("gradient of logits", logits, SUM, WORD, "identity"),
        *_into_backward("logits", shape, split, columns),
        *_norm_backward("final norm", shape, split, residual=False),
    )
    return Part(forward, backward, (), (columns if table else 0) * shape.model + 2 * shape.model)


# --- a layer's parts ----------------------------------------------------------------------------------------------------


def _attention(shape: Transformer, split: Split, core: Work) -> Iterator[Step | Exchange]:
    heads, wide = _heads(shape, split)
    yield _norm("attention norm", shape, split)
    yield from _gathered(split, split.tokens * shape.model)
    yield _matrix("queries, keys, values", split.tokens, wide, shape.model)
    yield _stream("bias of queries, keys, values", split.tokens * wide, WORD, WORD, "add")
    yield from core
    yield _matrix("projection", split.tokens, shape.model, heads * shape.head_dim)
    yield from _summed(split, split.tokens * shape.model)
    yield _residual(shape, split, "attention residual")


def _core(shape: Transformer, split: Split) -> Work:
    """From queries, keys and values to what the projection reads: what selective recomputation repeats."""
    heads, _ = _heads(shape, split)
    scores, length, batch = _scores(shape, split), split.sequence, split.microbatch * heads
    return (
        _matrix("scores", length, length, shape.head_dim, batch, Kind.ATTENTION),
        # masked scores are written, not read
        _stream("softmax", scores, WORD / 2, WORD, *SOFTMAX, kind=Kind.ATTENTION),
        *_dropout(shape, "drop weights", scores, Kind.ATTENTION),
        _matrix("values", length, shape.head_dim, length, batch, Kind.ATTENTION),
        _stream("merge heads", split.tokens * heads * shape.head_dim, WORD, WORD, "identity", kind=Kind.ATTENTION),
    )


def _feed_forward(shape: Transformer, split: Split) -> Iterator[Step | Exchange]:
    wide = shape.hidden // split.ranks
    yield _norm("feed-forward norm", shape, split)
    yield from _gathered(split, split.tokens * shape.model)
    yield _matrix("up", split.tokens, wide, shape.model)
    yield _stream("bias, GELU", split.tokens * wide, WORD, WORD, "add", "gelu")
    yield _matrix("down", split.tokens, shape.model, wide)
    yield from _summed(split, split.tokens * shape.model)
    yield _residual(shape, split, "feed-forward residual")


def _feed_forward_backward(shape: Transformer, split: Split) -> Iterator[Step | Exchange]:
    wide = shape.hidden // split.ranks
    yield from _residual_backward(shape, split, "feed-forward residual")
    yield from _out_backward("down", shape, split, wide)
    yield _stream("bias, GELU backward", split.tokens * wide, 2 * WORD, WORD, "add", "gelu_gradient")
    yield _stream("gradient of up's bias", split.tokens * wide, WORD, 0, "add")
    yield from _into_backward("up", shape, split, wide)
    yield from _norm_backward("feed-forward norm", shape, split)


def _attention_backward(shape: Transformer, split: Split) -> Iterator[Step | Exchange]:
    heads, wide = _heads(shape, split)
    scores, length, batch = _scores(shape, split), split.sequence, split.microbatch * heads
    yield from _residual_backward(shape, split, "attention residual")
    yield from _out_backward("projection", shape, split, heads * shape.head_dim)
    yield _matrix("gradient of weights", length, length, shape.head_dim, batch, Kind.ATTENTION)
    yield _matrix("gradient of values", length, shape.head_dim, length, batch, Kind.ATTENTION)
    yield from _dropout(shape, "drop weights backward", scores, Kind.ATTENTION, backward=True)
    yield _stream("softmax backward", scores, 2 * WORD, WORD, "mul", "add", "scaled_difference", kind=Kind.ATTENTION)
    yield _matrix("gradient of queries", length, shape.head_dim, length, batch, Kind.ATTENTION)
    yield _matrix("gradient of keys", length, shape.head_dim, length, batch, Kind.ATTENTION)
    yield _stream("join queries, keys, values", split.tokens * wide, WORD, WORD, "identity")
    yield _stream("gradient of their bias", split.tokens * wide, WORD, 0, "add")
    yield from _into_backward("queries, keys, values", shape, split, wide)
    yield from _norm_backward("attention norm", shape, split)


def _heads(shape: Transformer, split: Split) -> tuple[int, int]:
    """Query heads of a rank; columns of its queries, keys and values."""
    return shape.heads // split.ranks, (shape.heads + 2 * shape.kv_heads) * shape.head_dim // split.ranks


def _scores(shape: Transformer, split: Split) -> Number:
    return split.tokens * split.sequence * (shape.heads // split.ranks)


def _parameters(shape: Transformer, ranks: int) -> int:
    """Weights and biases of split matrices by ranks; norms and biases after sums on all of them."""
    wide = (shape.heads + 2 * shape.kv_heads) * shape.head_dim + shape.hidden
    across = shape.heads * shape.head_dim + shape.hidden
    return ((wide + across) * shape.model + wide) // ranks + 6 * shape.model


# --- kernels ------------------------------------------------------------------------------------------------------------


def _matrix(name: str, rows: Number, columns: Number, depth: Number, batch: Number = 1, kind: Kind = Kind.MATRIX) -> Step:
    return Step(name, kind, Gemm(rows, columns, depth, batch))


def _stream(name: str, points: Number, read: float, written: float, *functions: str, kind: Kind = Kind.VECTOR) -> Step:
    """``read`` and ``written`` [B] at each point."""
    work: dict[str, float] = {}
    for function in functions:
        for operation, count in WORK[function].work.items():
            work[operation] = work.get(operation, 0.0) + count
    return Step(name, kind, Stream(points, points * read, points * written, work))


def _dropout(shape: Transformer, name: str, points: Number, kind: Kind = Kind.VECTOR, backward: bool = False) -> Iterator[Step]:
    """Forward it makes a mask, backward it reads it."""
    if shape.dropout and backward:
        yield _stream(name, points, WORD + MASK, WORD, "scaled_product", kind=kind)
    elif shape.dropout:
        yield _stream(name, points, WORD, WORD + MASK, "draw", "maximum", "scaled_product", kind=kind)


def _norm(name: str, shape: Transformer, split: Split) -> Step:
    return Step(name, Kind.VECTOR, layer_norm(split.own, shape.model))


def _norm_backward(name: str, shape: Transformer, split: Split, residual: bool = True) -> Iterator[Step]:
    """Gradient of the input, then of gain and bias; the residual's gradient is added by a kernel of its own."""
    points = split.own * shape.model
    yield _stream(f"{name} backward", points, 2 * WORD, WORD, "normalise", "product_sum", "scaled_difference")
    yield _stream(f"{name}, gradient of gain and bias", points, 2 * WORD, 0, "normalise", "multiply_add", "add")
    if residual:
        yield _stream(f"{name}, residual's gradient", points, 2 * WORD, WORD, "add")


def _residual(shape: Transformer, split: Split, name: str) -> Step:
    """Bias, dropout and sum in one kernel."""
    points = split.own * shape.model
    if shape.dropout:
        return _stream(name, points, 2 * WORD, WORD + MASK, "add", "draw", "maximum", "scaled_product", "add")
    return _stream(name, points, 2 * WORD, WORD, "add", "add")


def _residual_backward(shape: Transformer, split: Split, name: str) -> Iterator[Step]:
    points = split.own * shape.model
    yield from _dropout(shape, f"{name} backward", points, backward=True)
    yield _stream(f"{name}, gradient of bias", points, WORD, 0, "add")


def _weight_gradient(name: str, rows: Number, columns: Number, depth: Number) -> tuple[Step, Step]:
    """In fp32, and what it takes longer as it is added to a sum: a tile fills the registers of its core until it is done, and
    only then reads the sum. (What it writes waits in the cache, and leaves beside the next tiles.)"""
    product = Step(f"{name}, gradient of weight", Kind.MATRIX, Gemm(rows, columns, depth, 1, "bf16", "fp32"))
    return product, _stream(f"{name}, sum of gradients read", rows * columns, SUM, 0, "add", kind=Kind.MATRIX)


def _into_backward(name: str, shape: Transformer, split: Split, columns: Number) -> Work:
    """Of a weight whose ``columns`` the ranks share out: each has a part of its input's gradient."""
    size = split.tokens * shape.model * WORD
    weight, added = _weight_gradient(name, columns, shape.model, split.tokens)
    entering = _matrix(f"{name}, gradient of input", split.tokens, shape.model, columns)
    if split.scattered:
        return (Exchange(ALL_GATHER, size, beside=entering), Exchange(REDUCE_SCATTER, size, beside=weight), added)
    return (entering, Exchange(ALL_REDUCE, size, beside=weight), added)


def _out_backward(name: str, shape: Transformer, split: Split, depth: Number) -> Work:
    """Of a weight whose rows, ``depth`` of them, the ranks share out."""
    return (
        *_gathered(split, split.tokens * shape.model),
        _matrix(f"{name}, gradient of input", split.tokens, depth, shape.model),
        *_weight_gradient(name, shape.model, depth, split.tokens),
    )


def _gathered(split: Split, points: Number) -> tuple[Exchange, ...]:
    return (Exchange(ALL_GATHER, points * WORD),) if split.scattered else ()


def _summed(split: Split, points: Number) -> tuple[Exchange, ...]:
    return (Exchange(REDUCE_SCATTER if split.scattered else ALL_REDUCE, points * WORD),)
