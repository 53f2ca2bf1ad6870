"""Transformers and models of Mamba-2 layers for training: embedding, layer, head and loss as graphs over a batch.

Dims: sequences b, tokens m (as keys n), model k, KV heads h, query heads per group g (absent if every head has its own keys),
head dims d and e, hidden f, vocabulary v; experts x with slots c, shared experts s; of latent attention the latents q of queries
and l of keys, and the rotary part r.

With a state space, tokens are chunks c and positions l in a chunk (as sources s), heads h in groups g (absent if there is one)
with head dim p, columns of a state n, taps j.

Each dim can be sharded: b (data parallelism), m (sequence parallelism; keys and values are all-gathered where m is renamed to n),
h or g (heads), f (hidden dim), x (experts), v (vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import STATISTIC, contract, elementwise, reduction, tensors
from halley.workloads.construction.steps import layernorm, rmsnorm, scale_scores, softmax_and_values
from halley.workloads.mamba import convolved, scan_by_chunks
from halley.workloads.model import ChunkedScan, ModelPart, TrainingModel
from halley.workloads.moe import gate
from halley.workloads.transformer import Experts, Latent, StateSpace, Transformer, check_training, token_extents

ROW = "b m"
"""The dims of a token; with a state space, `CHUNKED_ROW`."""
CHUNKED_ROW = "b c l"


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a layer: ops, kernels, and dims of its weights, results, statistics (fp32) and integer tensors."""

    ops: tuple[Op, ...]
    kernels: tuple[tuple[str, ...], ...]
    weights: dict[str, str]
    made: dict[str, str]
    statistics: dict[str, str]
    integers: dict[str, str]


def training_model(shape: Transformer, batch: int, sequence: int | None = None, dtype: str = "bf16") -> TrainingModel:
    """The model on ``batch`` sequences of ``sequence`` tokens (by default the length that it was trained with).

    >>> from halley.workloads.transformer import Transformer
    >>> small = Transformer("small", layers=2, model=8, heads=2, kv_heads=1, head_dim=4, hidden=16, vocabulary=32, sequence=6)
    >>> model = training_model(small, batch=3)
    >>> model.layers, model.blocks[0].parameters, model.parameters
    (2, 592, 1704)

    Raises BadInput with every fault of the arguments.
    """
    tokens = shape.sequence if sequence is None else sequence
    check_training(shape, batch, tokens, dtype)
    experts = shape.experts
    dense = shape.layers if experts is None else experts.dense_layers
    blocks = []
    if shape.state_space is not None:
        blocks.append(_state_space_layer(shape, shape.state_space, batch, tokens, dtype))
    elif dense:
        blocks.append(ModelPart(_layer(shape, batch, tokens, dtype, None), dense))
    if experts is not None:
        blocks.append(ModelPart(_layer(shape, batch, tokens, dtype, experts), shape.layers - dense))
    return TrainingModel(
        shape.name,
        ModelPart(_embedding(shape, batch, tokens, dtype)),
        tuple(blocks),
        ModelPart(_head(shape, batch, tokens, dtype)),
        shape.tied,
        shape.source,
    )


def _row(shape: Transformer) -> str:
    return ROW if shape.state_space is None else CHUNKED_ROW


def _embedding(shape: Transformer, batch: int, tokens: int, dtype: str) -> Workload:
    """``Y = table[token]``, with learned positions ``+ positions[m]``."""
    made, row = "Y0" if shape.positions else "Y", _row(shape)
    ops = [Op("look_up", OpKind.GATHER, ("table", "token"), (made,), (*row.split(), "k"), along="v")]
    dims = {"table": "v k", "Y": f"{row} k"}
    if shape.positions:
        ops.append(elementwise("place", "add", "Y0 positions", "Y", "b m k"))
        dims |= {"positions": "m k", "Y0": "b m k"}
    return Workload(
        f"{shape.name} embedding",
        {"b": batch, **token_extents(shape, tokens), "k": shape.model, "v": shape.vocabulary},
        tensors(dtype, dims) | tensors("int32", {"token": row}),
        tuple(ops),
        ("Y",),
        kernels=(tuple(op.name for op in ops),),
    )


def _head(shape: Transformer, batch: int, tokens: int, dtype: str) -> Workload:
    """``S = norm(X) W``; ``L = log sum exp(S) - S[target]``, the cross entropy of each token. The exponentials are fp32."""
    norm, row = _norm(shape, "X", "A", "f"), _row(shape)
    weight = ("table", "v k") if shape.tied else ("Wv", "k v")
    scores = f"{row} v"
    ops = (
        contract("logits", f"A {weight[0]}", "S", f"{row} k v"),
        reduction("max", "max", "S", "mx", scores),
        elementwise("exp", "exp_difference", "S mx", "E", scores),
        reduction("sum", "sum", "E", "z", scores),
        elementwise("log", "log", "z", "lz", row),
        elementwise("total", "add", "mx lz", "all", row),
        Op("pick", OpKind.GATHER, ("S", "target"), ("picked",), tuple(row.split()), along="v"),
        elementwise("loss", "subtract", "all picked", "L", row),
    )
    made = {"X": f"{row} k", "S": scores, weight[0]: weight[1]} | norm.weights | norm.made
    statistics = dict.fromkeys(("mx", "z", "lz", "all", "picked", "L"), row) | {"E": scores} | norm.statistics
    return Workload(
        f"{shape.name} head",
        {"b": batch, **token_extents(shape, tokens), "k": shape.model, "v": shape.vocabulary},
        tensors(dtype, made) | tensors(STATISTIC, statistics) | tensors("int32", {"target": row}),
        (*norm.ops, *ops),
        ("L",),
        kernels=(*norm.kernels, ("logits",), tuple(op.name for op in ops[1:])),
    )


def _layer(shape: Transformer, batch: int, tokens: int, dtype: str, experts: Experts | None) -> Workload:
    """``X2 = X + attention(norm(X))``, ``Y = X2 + mlp(norm(X2))``."""
    latent = shape.latent
    blocks = (
        _norm(shape, "X", "A", "1"),
        _multi_head(shape, tokens) if latent is None else _latent(shape, latent, tokens),
        _residual(shape, "attention", "X", "Z", "X2"),
        _norm(shape, "X2", "B", "2"),
        _feed_forward(shape.gated) if experts is None else _experts(experts),
        _residual(shape, "mlp", "X2", "D", "Y"),
    )
    extents = _extents(shape, batch, tokens, experts)
    merged = {name: dims for block in blocks for part in (block.weights, block.made) for name, dims in part.items()}
    statistics = {name: dims for block in blocks for name, dims in block.statistics.items()}
    integers = {name: dims for block in blocks for name, dims in block.integers.items()}
    masks = {name: dims for name, dims in integers.items() if name != "index"}
    indices = {name: dims for name, dims in integers.items() if name == "index"}
    # a residual sum and the norm after it are one kernel
    kernels = (
        *blocks[0].kernels,
        *blocks[1].kernels,
        (*blocks[2].kernels[0], *blocks[3].kernels[0]),
        *blocks[4].kernels,
        *blocks[5].kernels,
    )
    return Workload(
        f"{shape.name} layer" if experts is None else f"{shape.name} layer of experts",
        extents,
        tensors(dtype, {"X": "b m k"} | merged)
        | tensors(STATISTIC, statistics)
        | tensors("int8", masks)
        | tensors("int32", indices),
        tuple(op for block in blocks for op in block.ops),
        ("Y",),
        kernels=kernels,
    )


def _extents(shape: Transformer, batch: int, tokens: int, experts: Experts | None) -> dict[str, int]:
    group = shape.heads // shape.kv_heads
    extents = {"b": batch, "m": tokens, "n": tokens, "k": shape.model, "h": shape.kv_heads}
    if group > 1:
        extents["g"] = group
    extents |= {"d": shape.head_dim, "e": shape.head_dim}
    if shape.latent is not None:
        latent = shape.latent
        extents |= {"e": latent.value_dim, "l": latent.keys, "r": latent.rope_dim}
        if latent.queries:
            extents["q"] = latent.queries
    if experts is None:
        return extents | {"f": shape.hidden}
    slots = math.ceil(experts.top_k * tokens / experts.experts)
    extents |= {"x": experts.experts, "c": slots, "f": experts.hidden}
    if experts.shared:
        extents["s"] = experts.shared
    return extents


def _norm(shape: Transformer, source: str, result: str, mark: str) -> _Block:
    return _normed(shape.rms, source, result, "k", shape.model, mark, _row(shape))


def _normed(rms: bool, source: str, result: str, along: str, count: int, mark: str, row: str = ROW) -> _Block:
    gain, bias = f"gain{mark}", f"bias{mark}"
    if rms:
        steps, weights = rmsnorm(source, result, row, along, count, mark, gain), {gain: along}
    else:
        steps = layernorm(source, result, row, along, count, "two-pass", mark, f"{gain} {bias}")
        weights = {gain: along, bias: along}
    return _Block(steps.ops, steps.kernels, weights, steps.made, steps.statistics, {})


def _residual(shape: Transformer, name: str, source: str, branch: str, result: str) -> _Block:
    """``result = source + branch``, with dropout on the branch."""
    ops, made, integers = [], dict.fromkeys((branch, result), "b m k"), {}
    last = branch
    if shape.dropout:
        ops.append(_dropout(f"drop_{name}", branch, f"{branch}d", "b m k", shape.dropout))
        made[last := f"{branch}d"] = "b m k"
        integers[f"keep_{branch}"] = "b m k"
    ops.append(elementwise(f"add_{name}", "add", f"{source} {last}", result, "b m k"))
    return _Block(tuple(ops), (tuple(op.name for op in ops),), {}, made, {}, integers)


def _dropout(name: str, source: str, result: str, dims: str, share: float) -> Op:
    """``result = source x keep / (1 - share)``; the mask ``keep`` is 0 or 1, one byte per element."""
    return elementwise(name, "scaled_product", f"{source} keep_{source}", result, dims, constants={"scale": 1.0 / (1.0 - share)})


def _rename(name: str, source: str, result: str, dims: str) -> Op:
    """A copy with renamed dims: tokens as keys."""
    return Op(name, OpKind.PERMUTE, (source,), (result,), tuple(dims.split()))


def _multi_head(shape: Transformer, tokens: int) -> _Block:
    """Multi-head, grouped-query and multi-query attention, from A to Z."""
    g = "g " if shape.heads > shape.kv_heads else ""
    rows = f"b h {g}m"
    before = (
        contract("queries", "A Wq", "Q", f"b m k h {g}d"),
        contract("keys", "A Wk", "Km", "b m k h d"),
        contract("make_values", "A Wv", "Vm", "b m k h e"),
        _rename("name_keys", "Km", "K", "b h n d"),
        _rename("name_values", "Vm", "V", "b h n e"),
        contract("scores", "Q K", "S", f"{rows} d n"),
    )
    weights = {"Wq": f"k h {g}d", "Wk": "k h d", "Wv": "k h e", "Wo": f"h {g}e k"}
    made = {"Q": f"{rows} d", "Km": "b h m d", "Vm": "b h m e", "K": "b h n d", "V": "b h n e", "S": f"{rows} n"}
    core = _core(shape, "S", rows, tokens, shape.head_dim)
    output = contract("output", "O Wo", "Z", f"b m h {g}e k")
    kernels = (*((op.name,) for op in before), *core.kernels, ("output",))
    return _Block((*before, *core.ops, output), kernels, weights, made | core.made, core.statistics, core.integers)


def _core(shape: Transformer, scores: str, rows: str, tokens: int, width: int) -> _Block:
    """From the scores to O: scale and mask, softmax, dropout, weighted sum."""
    scale = scale_scores(scores, f"{rows} n", 1.0 / math.sqrt(width), shape.causal, tokens, tokens)
    steps = softmax_and_values("plain", scale, rows, "n", "e", values="V")
    if not shape.dropout:
        return _Block(steps.ops, steps.kernels, {}, steps.made, steps.statistics, {})
    drop = _dropout("drop_weights", "P", "Pd", f"{rows} n", shape.dropout)
    values = contract("values", "Pd V", "O", f"{rows} n e")
    ops = (*steps.ops[:-1], drop, values)
    kernels = ((*steps.kernels[0], drop.name), ("values",))
    return _Block(ops, kernels, {}, steps.made | {"Pd": f"{rows} n"}, steps.statistics, {"keep_P": f"{rows} n"})


def _latent(shape: Transformer, latent: Latent, tokens: int) -> _Block:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), from A to Z; the latents are normalised."""
    keys = _normed(True, "Ca", "Cm", "l", latent.keys, "l")
    queries = _normed(True, "Qa", "Qn", "q", latent.queries, "q") if latent.queries else _Block((), (), {}, {}, {}, {})
    source, q = ("Qn", "q") if latent.queries else ("A", "k")
    compressed = (contract("compress_queries", "A Wa", "Qa", "b m k q"),) if latent.queries else ()
    before = (
        *compressed,
        *queries.ops,
        contract("queries", f"{source} Wq", "Qc", f"b m {q} h d"),
        contract("rotary_queries", f"{source} Wrq", "Qr", f"b m {q} h r"),
        contract("compress", "A Wc", "Ca", "b m k l"),
        *keys.ops,
        contract("rotary_keys", "A Wrk", "Rm", "b m k r"),
        _rename("name_latents", "Cm", "C", "b n l"),
        _rename("name_rotary", "Rm", "R", "b n r"),
        contract("make_keys", "C Wk", "Kc", "b n l h d"),
        contract("make_values", "C Wv", "V", "b n l h e"),
        contract("scores", "Qc Kc", "S", "b h m d n"),
        contract("rotary", "Qr R", "Sr", "b h m r n"),
        elementwise("add", "add", "S Sr", "U", "b h m n"),
    )
    weights = {"Wa": "k q"} if latent.queries else {}
    weights |= {"Wq": f"{q} h d", "Wrq": f"{q} h r", "Wc": "k l", "Wrk": "k r", "Wk": "l h d", "Wv": "l h e", "Wo": "h e k"}
    made = {"Qa": "b m q"} if latent.queries else {}
    made |= {"Qc": "b h m d", "Qr": "b h m r", "Ca": "b m l", "Rm": "b m r", "C": "b n l", "R": "b n r"}
    made |= {"Kc": "b h n d", "V": "b h n e"} | dict.fromkeys(("S", "Sr", "U"), "b h m n") | queries.made | keys.made
    core = _core(shape, "U", "b h m", tokens, shape.head_dim + latent.rope_dim)
    output = contract("output", "O Wo", "Z", "b m h e k")
    norms = (*queries.kernels, *keys.kernels)
    normed = {name for kernel in norms for name in kernel}
    kernels = _kernels(before[:-1], norms, normed)
    return _Block(
        (*before, *core.ops, output),
        (*kernels, ("add", *core.kernels[0]), *core.kernels[1:], ("output",)),
        weights | queries.weights | keys.weights,
        made | core.made,
        core.statistics | queries.statistics | keys.statistics,
        core.integers,
    )


def _kernels(ops: Iterable[Op], groups: Iterable[tuple[str, ...]], grouped: set[str]) -> tuple[tuple[str, ...], ...]:
    """Kernels: the ops of a group together, every other op alone."""
    first = {group[0]: group for group in groups}
    return tuple(first.get(op.name, (op.name,)) for op in ops if op.name in first or op.name not in grouped)


def _feed_forward(gated: bool) -> _Block:
    """The feed-forward block from B to D."""
    down = contract("down", "H Wd", "D", "b m f k")
    if not gated:
        ops: tuple[Op, ...] = (
            contract("up", "B Wu", "F", "b m k f"),
            elementwise("activate", "gelu", "F", "H", "b m f"),
            down,
        )
        weights, made = {"Wu": "k f", "Wd": "f k"}, dict.fromkeys("FH", "b m f")
    else:
        ops = (
            contract("gate", "B Wg", "G", "b m k f"),
            contract("up", "B Wu", "F", "b m k f"),
            elementwise("activate", "silu_mul", "G F", "H", "b m f"),
            down,
        )
        weights, made = {"Wg": "k f", "Wu": "k f", "Wd": "f k"}, dict.fromkeys("GFH", "b m f")
    return _Block(ops, tuple((op.name,) for op in ops), weights, made, {}, {})


def _experts(experts: Experts) -> _Block:
    """A mixture of experts from B to D, as in `moe`; each sequence has its own slots. Shared experts, which process every token,
    are modelled as one expert with their joint hidden dim s."""
    result = "M" if experts.shared else "D"
    routed, logits, tops = gate(experts.top_k, ROW, "g")
    ops = (
        contract("router", "B Wr", logits[0], "b m k x"),
        *routed,
        Op("dispatch", OpKind.GATHER, ("B", "index"), ("T",), ("b", "x", "c", "k"), along="m"),
        contract("gate", "T Wg", "G", "b x c k f"),
        contract("up", "T Wu", "F", "b x c k f"),
        elementwise("activate", "silu_mul", "G F", "H", "b x c f"),
        contract("down", "H Wd", "N", "b x c f k"),
        Op("slot_weights", OpKind.GATHER, ("W", "index"), ("Ws",), ("b", "x", "c"), along="m"),
        elementwise("apply", "mul", "N Ws", "P2", "b x c k"),
        Op("combine", OpKind.SCATTER, ("P2", "index"), (result,), ("b", "x", "c", "k"), along="m"),
    )
    weights = {"Wr": "k x", "Wg": "x k f", "Wu": "x k f", "Wd": "x f k"}
    made = {"T": "b x c k"} | dict.fromkeys("GFH", "b x c f") | dict.fromkeys(("N", "P2"), "b x c k")
    statistics = dict.fromkeys((*logits, "Eg", "W"), "b m x") | dict.fromkeys((*tops, "zg"), ROW) | {"Ws": "b x c"}
    kernels = (
        ("router",),
        tuple(op.name for op in routed),
        *((op.name,) for op in ops[len(routed) + 1 : -2]),
        ("apply", "combine"),
    )
    if experts.shared:
        shared = (
            contract("shared_gate", "B Vg", "Gs", "b m k s"),
            contract("shared_up", "B Vu", "Fs", "b m k s"),
            elementwise("shared_activate", "silu_mul", "Gs Fs", "Hs", "b m s"),
            contract("shared_down", "Hs Vd", "Ds", "b m s k"),
            elementwise("add_shared", "add", "M Ds", "D", "b m k"),
        )
        ops, kernels = (*ops, *shared), (*kernels, *((op.name,) for op in shared))
        weights |= {"Vg": "k s", "Vu": "k s", "Vd": "s k"}
        made |= dict.fromkeys(("Gs", "Fs", "Hs"), "b m s") | dict.fromkeys(("M", "Ds", "D"), "b m k")
    return _Block(ops, kernels, weights, made, statistics, {"index": "b x c"})


def _state_space_layer(shape: Transformer, space: StateSpace, batch: int, tokens: int, dtype: str) -> ModelPart:
    """``Y = X + mixer(norm(X))`` with the Mamba-2 block (Dao and Gu, arXiv 2405.21060, section 7) as mixer: that of
    `halley.workloads.mamba.mamba_2` by chunks, with a norm over the channels of each group of heads. Steps and rates are fp32."""
    groups, row = shape.kv_heads, CHUNKED_ROW
    g = "g " if groups > 1 else ""
    channels, states, heads = f"{g}h p", f"{g}n", f"{g}h"
    first = _norm(shape, "X", "N", "1")
    names = {"B0": "b", "C0": "c", "Z": "z", "X0": "x", "T": "step"}
    source = {"B0": states, "C0": states, "Z": channels, "X0": channels, "T": heads}
    projected = tuple(contract(f"project_{names[to]}", f"N W{names[to]}", to, f"{row} k {of}") for to, of in source.items())
    taken = {"x": channels, "b": states, "c": states}
    short = [convolved(mark, row, "c l", of) for mark, of in taken.items()]
    rates = (
        elementwise("step", "softplus_bias", "T step_bias", "dt", f"{row} {heads}"),
        elementwise("drive", "mul", "dt X2", "V", f"{row} {channels}"),
    )
    core, made, stages = scan_by_chunks("b ", g)
    skip = elementwise("skip", "multiply_add", "X2 D Y0", "Y1", f"{row} {channels}")
    gate = elementwise("gate", "silu_mul", "Z Y1", "Y2", f"{row} {channels}")
    norm = rmsnorm("Y2", "Y3", f"{row} {g}".strip(), "h p", shape.hidden // groups, "2", "gain2")
    output = contract("project_out", "Y3 Wy", "O", f"{row} {channels} k")
    residual = elementwise("add_mixer", "add", "X O", "Y", f"{row} k")
    scan = (*rates, *core, skip)
    weights = {f"W{name}": f"k {source[to]}" for to, name in names.items()}
    for mark, of in taken.items():
        weights |= {f"short_{mark}": f"j {of}", f"bias_{mark}": of}
    weights |= {"gain2": channels, "Wy": f"{channels} k"} | first.weights
    dims = dict.fromkeys(("X", "O", "Y"), f"{row} k") | {to: f"{row} {of}" for to, of in source.items()}
    dims |= dict.fromkeys(("V", "Y0", "Y1", "Y2"), f"{row} {channels}") | norm.made | first.made
    for each in short:
        dims |= each.made
    exact = {name: made.pop(name) for name in ("g", "G", "g_all", "Gs", "E", "Dc")}
    exact |= {"dt": f"{row} {heads}"} | dict.fromkeys(("step_bias", "A", "D"), heads)
    extents = {"b": batch, **token_extents(shape, tokens)}
    extents |= {"s": extents["l"], "k": shape.model, **({"g": groups} if groups > 1 else {}), "h": shape.heads // groups}
    work = Workload(
        f"{shape.name} layer",
        extents | {"p": shape.head_dim, "n": space.state, "j": space.taps},
        tensors(dtype, dims | made | weights) | tensors(STATISTIC, exact | norm.statistics | first.statistics),
        (*first.ops, *projected, *(op for each in short for op in each.ops), *scan, gate, *norm.ops, output, residual),
        ("Y",),
        kernels=(
            *first.kernels,
            *((op.name,) for op in projected),
            # one convolution of all channels side by side
            tuple(name for each in short for name in each.kernels[0]),
            (*(op.name for op in rates), *stages[0]),
            *stages[1:-1],
            (*stages[-1], skip.name),
            (gate.name, *norm.kernels[0]),
            (output.name,),
            (residual.name,),
        ),
    )
    one = ChunkedScan(tuple(op.name for op in scan), ("b", *heads.split()), "c", "l", "s", ("p", "n"))
    return ModelPart(work, shape.layers, (one,))
