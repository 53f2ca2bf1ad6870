"""Selective state-space blocks: Mamba, with a decay rate per state, and Mamba-2, with one rate per head."""

from __future__ import annotations

from halley.errors import Fault
from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import STATISTIC, contract, elementwise, reduction, tensors
from halley.workloads.construction.graph import batch as batched
from halley.workloads.construction.parameters import Rule, WorkloadKind, algorithm, check, element_type, size
from halley.workloads.construction.steps import OpSequence, rmsnorm
from halley.workloads.convolution import causal_convolution


def mamba(
    length: int,
    model: int,
    inner: int | None = None,
    state: int = 16,
    rank: int | None = None,
    taps: int = 4,
    batch: int = 1,
    dtype: str = "bf16",
) -> Workload:
    """The Mamba block (Gu and Dao, arXiv 2312.00752, figure 3 and algorithm 2).

    With ``x = silu(causal convolution of X Wx + bias)`` and ``dt = softplus(x Wd Wt + bias)``, per channel e and state n:

    - ``H[t] = exp(dt[t] A) H[t-1] + dt[t] B[t] x[t]``, with B and C projections of x;
    - ``y[t] = sum_n C[t, n] H[t, n] + D x[t]``, and ``Y = (silu(X Wz) y) Wy``.

    A is the argument of the discretisation, negative in a trained model (minus the exponential of the stored parameter). The
    channels have one name, as the block both contracts them and computes elementwise along them.

    Dims: sequence t, model m, channels e, taps j, rank k, state n, output o.

    >>> work = mamba(length=4, model=8)
    >>> {name: work.dims[name] for name in "ekn"}, work.op("scan").along
    ({'e': 16, 'k': 1, 'n': 16}, 't')

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "length": length,
        "model": model,
        "inner": inner,
        "state": state,
        "rank": rank,
        "taps": taps,
        "batch": batch,
        "dtype": dtype,
    }
    check(MAMBA, given)
    b, extents = batched(batch)
    row, states = f"{b}t e", f"{b}t n e"  # lanes run along the channels, which are more than the states
    short = causal_convolution("X0", "X1", "short", f"{b}t", "t", "e", "x")
    projected = (contract("project_x", "X Wx", "X0", f"{b}t m e"), contract("project_z", "X Wz", "Z", f"{b}t m e"))
    activate = elementwise("activate", "silu_bias", "X1 bias", "X2", row)
    selected = (
        contract("select_rank", "X2 Wd", "R", f"{b}t e k"),
        contract("select_b", "X2 Wb", "B", f"{b}t e n"),
        contract("select_c", "X2 Wc", "C", f"{b}t e n"),
        contract("select_step", "R Wt", "T", f"{b}t k e"),
    )
    scanned = (
        elementwise("step", "softplus_bias", "T step_bias", "dt", row),
        elementwise("decay", "exp_product", "dt A", "Abar", states),
        elementwise("drive", "product", "dt B X2", "Bx", states),
        Op("scan", OpKind.SCAN, ("Abar", "Bx"), ("H",), tuple(states.split()), monoid="linear", along="t"),
        reduction("read", "sum", "H C", "Y0", states, function="mul"),
        elementwise("skip", "multiply_add", "X2 D Y0", "Y1", row),
        elementwise("gate", "silu_mul", "Z Y1", "Y2", row),
    )
    output = contract("project_out", "Y2 Wy", "Y", f"{b}t e o")
    dims = {"X": f"{b}t m", "Wx": "m e", "Wz": "m e", "short": "j e", "bias": "e", "Wd": "e k", "Wb": "e n", "Wc": "e n"}
    dims |= {"Wt": "k e", "step_bias": "e", "A": "e n", "D": "e", "Wy": "e o", "R": f"{b}t k", "Y": f"{b}t o"}
    dims |= dict.fromkeys(("B", "C"), f"{b}t n") | dict.fromkeys(("Abar", "Bx", "H"), states) | short.made
    dims |= dict.fromkeys(("X0", "Z", "X2", "T", "dt", "Y0", "Y1", "Y2"), row)
    channels = 2 * model if inner is None else inner
    return Workload(
        MAMBA.name,
        extents
        | {"t": length, "m": model, "e": channels, "j": taps}
        | {"k": -(-model // 16) if rank is None else rank, "n": state, "o": model},
        tensors(dtype, dims),
        (*projected, *short.ops, activate, *selected, *scanned, output),
        ("Y",),
        kernels=(
            *((op.name,) for op in projected),
            (*short.kernels[0], "activate"),
            *((op.name,) for op in selected),
            tuple(op.name for op in scanned),
            (output.name,),
        ),
        parameters=given,
        divisible=True,
    )


def mamba_2(
    chunks: int,
    chunk: int,
    model: int,
    heads: int,
    head_dim: int,
    state: int = 128,
    taps: int = 4,
    variant: str = "scan",
    dtype: str = "bf16",
) -> Workload:
    """The Mamba-2 block (Dao and Gu, arXiv 2405.21060, sections 6 and 7) on a sequence of ``chunks * chunk`` tokens.

    With x, B, C = silu of causal convolutions of projections of X, ``dt = softplus(X Wt + bias)`` and one rate A per head h:

    - ``H[t] = exp(dt[t] A) H[t-1] + dt[t] x[t] B[t]``, a state of head_dim by state per head; B and C are shared by all heads;
    - ``y[t] = H[t] C[t] + D x[t]``, and ``Y = rmsnorm(silu(X Wz) y) Wy``.

    Variants with equal results:

    - scan: the recurrence, token by token.
    - chunked: inside a chunk, a masked product as in attention, ``(C B^T * decays) x``; between chunks, a scan over the final
      states of the chunks, multiplied by ``C``. The source tokens of the product are the dim s, so B, x and the sums of rates are
      copied to tensors over s.

    Dims: chunk c, position in the chunk l (as a source: s), model m, heads h, head dim p, state n, taps j, output o.

    >>> [op.name for op in mamba_2(3, 4, 8, 2, 4, state=2, variant="chunked").ops if op.kind.value == "scan"]
    ['sum_rates', 'carry']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "chunks": chunks,
        "chunk": chunk,
        "model": model,
        "heads": heads,
        "head_dim": head_dim,
        "state": state,
        "taps": taps,
        "variant": variant,
        "dtype": dtype,
    }
    check(MAMBA_2, given)
    short = (_short("x", "h p"), _short("b", "n"), _short("c", "n"))
    projected = (
        *(projection for projection, *_ in short),
        contract("project_z", "X Wz", "Z", "c l m h p"),
        contract("project_step", "X Wt", "T", "c l m h"),
    )
    before = (
        elementwise("step", "softplus_bias", "T step_bias", "dt", "c l h"),
        elementwise("drive", "mul", "dt X2", "V", "c l h p"),
    )
    core, made, kernels = _recurrence() if variant == "scan" else scan_by_chunks()
    after = (
        elementwise("skip", "multiply_add", "X2 D Y0", "Y1", "c l h p"),
        elementwise("gate", "silu_mul", "Z Y1", "Y2", "c l h p"),
    )
    norm = rmsnorm("Y2", "Y3", "c l", "h p", heads * head_dim)
    output = contract("project_out", "Y3 Wy", "Y", "c l h p o")
    dims = {"X": "c l m", "Wz": "m h p", "Wt": "m h", "step_bias": "h", "A": "h", "D": "h", "gain": "h p", "Wy": "h p o"}
    dims |= {"T": "c l h", "dt": "c l h", "Y": "c l o"} | dict.fromkeys(("Z", "V", "Y0", "Y1", "Y2"), "c l h p")
    for _, steps, weights in short:
        dims |= weights | steps.made
    return Workload(
        MAMBA_2.name,
        {"c": chunks, "l": chunk, "s": chunk, "m": model, "h": heads, "p": head_dim, "n": state, "j": taps, "o": model},
        tensors(dtype, dims | made | norm.made) | tensors(STATISTIC, norm.statistics),
        (*projected, *(op for _, steps, _ in short for op in steps.ops), *before, *core, *after, *norm.ops, output),
        ("Y",),
        kernels=(
            *((op.name,) for op in projected),
            *(kernel for _, steps, _ in short for kernel in steps.kernels),
            ("step", "drive"),
            *kernels,
            (*(op.name for op in after), *norm.kernels[0]),
            (output.name,),
        ),
        variant=variant,
        parameters=given,
        divisible=True,
    )


def _short(mark: str, dims: str) -> tuple[Op, OpSequence, dict[str, str]]:
    """From X to a tensor of the name's capital with 2 [c l dims]: (the projection; its causal convolution and silu, with the dims
    of all results; the dims of the weights)."""
    name, steps = mark.upper(), convolved(mark, "c l", "c l", dims)
    weights = {f"W{mark}": f"m {dims}", f"short_{mark}": f"j {dims}", f"bias_{mark}": dims}
    return contract(f"project_{mark}", f"X W{mark}", f"{name}0", f"c l m {dims}"), steps, weights


def convolved(mark: str, places: str, sequence: str, channels: str) -> OpSequence:
    """``S2 = silu(causal convolution of S0 + bias)``, where S is the capital of ``mark``; other arguments as in
    `causal_convolution`."""
    name = mark.upper()
    steps = causal_convolution(f"{name}0", f"{name}1", f"short_{mark}", places, sequence, channels, mark)
    activate = elementwise(f"activate_{mark}", "silu_bias", f"{name}1 bias_{mark}", f"{name}2", f"{places} {channels}")
    made = dict.fromkeys((f"{name}0", f"{name}2"), f"{places} {channels}") | steps.made
    return OpSequence((*steps.ops, activate), made, {}, ((*steps.kernels[0], activate.name),))


Core = tuple[tuple[Op, ...], dict[str, str], tuple[tuple[str, ...], ...]]
"""The ops from dt, A, B2, C2 and V = dt x to Y0; the dims of the intermediate tensors; the kernels."""


def _recurrence() -> Core:
    """``H = exp(dt A) H + V B``, ``Y0 = H C``."""
    states = "c l h p n"
    ops = (
        elementwise("decay", "exp_product", "dt A", "Abar", "c l h"),
        elementwise("outer", "mul", "V B2", "Bx", states),
        Op("scan", OpKind.SCAN, ("Abar", "Bx"), ("H",), tuple(states.split()), monoid="linear", along="c l"),
        reduction("read", "sum", "H C2", "Y0", states, function="mul"),
    )
    return ops, {"Abar": "c l h", "Bx": states, "H": states}, (tuple(op.name for op in ops),)


def scan_by_chunks(batch: str = "", groups: str = "") -> Core:
    """Chunked variant. G: inclusive prefix sum of the rates in a chunk; the decay between two positions is their difference.

    ``batch``, ``groups``: prefixes with the dims of sequences, and of groups of heads that share B and C; "" for none.
    """
    b, g = batch, groups
    at, of = f"{b}c l {g}", f"{b}c s {g}"  # a target position, a source position
    chunk = f"{b}c {g}"

    def copy(name: str, source: str, result: str, dims: str) -> Op:
        return Op(name, OpKind.PERMUTE, (source,), (result,), tuple(dims.split()))

    rates = (
        elementwise("rates", "mul", "dt A", "g", f"{at}h"),
        Op("sum_rates", OpKind.SCAN, ("g",), ("G",), tuple(f"{at}h".split()), monoid="sum", along="l"),
        reduction("chunk_rate", "sum", "g", "g_all", f"{at}h"),
        copy("source_rates", "G", "Gs", f"{of}h"),
        copy("source_values", "V", "Vs", f"{of}h p"),
        copy("source_b", "B2", "Bs", f"{of}n"),
    )
    inside = (
        contract("scores", "C2 Bs", "S", f"{chunk}l n s"),
        elementwise("mask", "decay_mask", "S G Gs", "M", f"{chunk}h l s"),
        contract("inside", "M Vs", "Yd", f"{chunk}h l s p"),
    )
    left = (
        elementwise("to_end", "exp_difference", "g_all Gs", "E", f"{of}h"),
        elementwise("weigh", "mul", "Vs E", "Ve", f"{of}h p"),
        contract("states", "Ve Bs", "St", f"{of}h p n"),
    )
    carried = (
        elementwise("chunk_decay", "exp", "g_all", "Dc", f"{chunk}h"),
        Op("carry", OpKind.SCAN, ("Dc", "St"), ("Hc",), tuple(f"{chunk}h p n".split()), monoid="linear_before", along="c"),
    )
    out = (
        contract("across", "C2 Hc", "Yo", f"{at}n h p"),
        elementwise("combine", "add_decayed", "Yd Yo G", "Y0", f"{at}h p"),
    )
    made = dict.fromkeys(("g", "G"), f"{at}h") | {"g_all": f"{chunk}h", "Gs": f"{of}h", "Vs": f"{of}h p", "Bs": f"{of}n"}
    made |= {"S": f"{chunk}l s", "M": f"{chunk}h l s", "Yd": f"{at}h p", "E": f"{of}h", "Ve": f"{of}h p", "St": f"{chunk}h p n"}
    made |= {"Dc": f"{chunk}h", "Hc": f"{chunk}h p n", "Yo": f"{at}h p"}
    stages = (rates, inside, left, carried, out)
    return tuple(op for stage in stages for op in stage), made, tuple(tuple(op.name for op in stage) for stage in stages)


def _folded(chunks: int, chunk: int) -> Fault | None:
    """The length of the sequence, a product of two dims, must not exceed the limit of sizes."""
    limit = 2**40
    if chunks * chunk <= limit:
        return None
    return Fault("workload mamba-2", f"chunks x chunk of at most {limit}", str(chunks * chunk))


MAMBA = WorkloadKind(
    "mamba",
    "selective state-space block",
    mamba,
    (
        size("length", "tokens of a sequence"),
        size("model", "model dim"),
        size("inner", "channels; twice the model dim unless given", None),
        size("state", "states per channel", 16),
        size("rank", "rank of the step's projection; a sixteenth of the model dim unless given", None),
        size("taps", "taps of the convolution", 4),
        size("batch", "sequences", 1),
        element_type(),
    ),
)
MAMBA_2 = WorkloadKind(
    "mamba-2",
    "state-space block with one rate per head",
    mamba_2,
    (
        size("chunks", "chunks of the sequence"),
        size("chunk", "tokens of a chunk"),
        size("model", "model dim"),
        size("heads", "heads"),
        size("head_dim", "channels of a head"),
        size("state", "columns of a head's state", 128),
        size("taps", "taps of the convolutions", 4),
        algorithm("scan", "chunked"),
        element_type(),
    ),
    (Rule(("chunks", "chunk"), _folded),),
)
