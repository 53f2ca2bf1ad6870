"""Measured operators on two GPUs: fitted on every second row, judged on those between; and carried from one GPU to the other.

The measurements are public, but not part of this repository: ``measured_ops.csv`` of the folder of data. Fits that ship
(`halley.library`) are of every second row of each operator, in order of shape; three questions are asked of them:

- rows between, on the same chip;
- another operator: attention on A100 and MLA's decode on H20, of which no row was fitted;
- another chip: H20 with its own data sheet, and the A100's efficiencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from validation.outcome import Case, Line, Outcome, positive, read_figures, whole

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.kernels.calibrate import KernelMeasurement, Prediction, halves, predictions
from halley.kernels.machine import Machine, machine
from halley.kernels.times import Attention, Gemm, Kernel, call_time, elementwise, kernel_time, layer_norm, softmax

TABLE = "measured_ops.csv"
COLUMNS = ("hardware", "op", "shape", "dtype", "measured_latency_s")
ROUTED = 0.3
"""Tokens of an expert lie evenly within 30 % of the mean, as DeepGEMM's benchmark draws them; whole ones, so that of a mean of
one token half of the experts get none."""

MEANS = {"gemm": 0.06, "softmax": 0.08, "layernorm": 0.08, "gelu": 0.05}
"""Allowed on A100, rows held out."""
WORST = 0.35
"""Allowed of a single row there: rows of layer normalisation that spill."""
OWN_MEANS = {"gemm": 0.08, "prefill": 0.08, "grouped-gemm": 0.18, "decode": 0.22, "decode-8": 0.22, "mla-decode": 0.25}
CARRIED_MEANS = {"gemm": 0.08, "prefill": 0.22, "grouped-gemm": 0.20, "decode": 0.28, "decode-8": 0.28, "mla-decode": 0.22}
"""Allowed on H20: with a fit of its own, rows held out; with the A100's efficiencies, all rows."""
NOT_FITTED = ("mla-decode",)
"""Operators that the fits leave out, so that they judge it."""
OTHER_WORST = 1.0
"""Allowed of a single row on H20: a different library at one setting."""
FUSED_MEAN, FUSED_WORST = 0.10, 0.2
"""Allowed of FlashAttention-2 on A100."""

APART = "decode-8"
"""Decode with 8 heads of keys, which its source has timed apart: no call takes less than 27 us elsewhere, there 10 us."""

Sizes = Mapping[str, int]


def _grouped(size: Sizes, dtype: str) -> Kernel:
    """Gate and up projections of the experts on one GPU."""
    tokens = max(1, size["batch_size_per_gpu"] * size["num_gpus"] * size["topk"] // size["num_experts"])
    return Gemm(tokens, 2 * size["intermediate_size"], size["hidden_size"], size["num_local_experts"], "fp8", "bf16", ROUTED)


def _prefill(size: Sizes, dtype: str) -> Kernel:
    heads, length = (size["heads"], size["kv_heads"], size["head_dim"]), size["seq_len"]
    return Attention(1, length, length, *heads, causal=True)


def _decode(size: Sizes, dtype: str) -> Kernel:
    cached = "fp8" if dtype.endswith("fp8") else "bf16"
    return Attention(size["batch_size"], 1, size["kv_len"], size["heads"], size["kv_heads"], size["head_dim"], cached=cached)


def _latent(size: Sizes, dtype: str) -> Kernel:
    value, rope = size["d_kv_or_nope"], size["d_rope"]
    return Attention(size["batch_size"], 1, size["kv_len"], size["heads"], 1, value + rope, value, latent=True)


OPERATORS: dict[str, tuple[str, Callable[[Sizes, str], Kernel]]] = {
    "matmul": ("gemm", lambda size, dtype: Gemm(size["M"], size["N"], size["K"])),
    "softmax": ("softmax", lambda size, dtype: softmax(size["M"], size["N"], dtype)),
    "layernorm": ("layernorm", lambda size, dtype: layer_norm(size["M"], size["N"], dtype)),
    "gelu": ("gelu", lambda size, dtype: elementwise(size["M"], "gelu", dtype)),
    "gemm": ("gemm", lambda size, dtype: Gemm(size["M"], size["N"], size["K"], 1, "fp8", "bf16")),
    "grouped_gemm_up_decode": ("grouped-gemm", _grouped),
    "mha_prefill": ("prefill", _prefill),
    "mha_decode": ("decode", _decode),
    "mla_decode": ("mla-decode", _latent),
}
"""Operators of the table: name here, and kernel from the sizes and the dtype."""


def measured(path: Path, device: str) -> tuple[KernelMeasurement, ...]:
    """The table's rows of one device, for the operators above. Raises BadInput: a row that cannot be read."""
    found = []
    for number, row in enumerate(read_figures(path, COLUMNS), start=1):
        if device in row["hardware"] and row["op"] in OPERATORS:
            name, kernel = OPERATORS[row["op"]]
            where = f"{path}, row {number}"
            sizes = _sizes(row["shape"], where)
            name = APART if name == "decode" and sizes.get("kv_heads") == 8 else name
            try:
                made = kernel(sizes, row["dtype"])
            except KeyError as missing:
                raise BadInput(Fault(f"{where}, shape", f"a size {missing.args[0]}", ", ".join(sizes))) from missing
            found.append(KernelMeasurement(name, made, positive(row, "measured_latency_s", where)))
    return tuple(found)


def _sizes(shape: str, where: str) -> dict[str, int]:
    parts = dict(item.partition("=")[::2] for item in shape.split(";"))
    return {name: whole(parts, name, where) for name in parts}


def fused(path: Path) -> tuple[Case, ...]:
    """FlashAttention-2 on A100, forward and backward as two kernels, with the fit in which no attention is."""
    chip, efficiency = _chip("a100"), load_chip_fit("a100").efficiency
    cases = []
    for number, row in enumerate(read_figures(path, COLUMNS), start=1):
        if row["op"] != "attention_fwd+bwd_fa2":
            continue
        where = f"{path}, row {number}"
        size = _sizes(row["shape"], where)
        extents: tuple[Number, ...] = (size["batch"], size["seq"], size["seq"], size["heads"], size["heads"], size["head_dim"])
        forward = Attention(*extents, causal=bool(size["causal"]))
        time = sum(float(kernel_time(kernel, chip, efficiency)) for kernel in (forward, replace(forward, backward=True)))
        cases.append(Case(f"fa2: {row['shape']}", time, positive(row, "measured_latency_s", where)))
    return tuple(cases)


def fit_rows(path: Path, device: str) -> tuple[KernelMeasurement, ...]:
    """The rows that a fit is made of, one half, and judged on, the other."""
    return tuple(row for row in measured(path, device) if row.operator not in NOT_FITTED)


def held_out(path: Path, device: str, name: str) -> tuple[Prediction, ...]:
    """What the shipped fit has not seen: every second row of its operators, every row of others."""
    rows = [*halves(fit_rows(path, device))[1], *(row for row in measured(path, device) if row.operator in NOT_FITTED)]
    chip, efficiency = _chip(name), load_chip_fit(name).efficiency
    return predictions(rows, partial(call_time, chip=chip, efficiency=efficiency))


def carried(path: Path) -> tuple[Prediction, ...]:
    """All rows of the H20 with its data sheet and the A100's efficiencies, without the A100's host."""
    chip, efficiency = _chip("h20"), replace(load_chip_fit("a100").efficiency, hosts={})
    return predictions(measured(path, "H20"), partial(call_time, chip=chip, efficiency=efficiency))


def compare(data: Path | None) -> Outcome:
    """Every operator, with what is allowed."""
    if data is None or not (data / TABLE).is_file():
        return Outcome("operators", skipped=f"no data: {TABLE}")
    path = data / TABLE
    lines = [*_lines("{} on A100, held out", held_out(path, "A100", "a100"), MEANS, WORST)]
    lines.append(Line("FlashAttention-2 on A100, none fitted", fused(path), FUSED_MEAN, FUSED_WORST))
    own = held_out(path, "H20", "h20")
    known, new = ({name: mean for name, mean in OWN_MEANS.items() if (name in NOT_FITTED) == left} for left in (False, True))
    lines += _lines("{} on H20, held out", own, known, OTHER_WORST) + _lines("{} on H20, none fitted", own, new, OTHER_WORST)
    lines += _lines("{} on H20, from the A100's fit", carried(path), CARRIED_MEANS, OTHER_WORST)
    return Outcome("operators", tuple(lines))


def _lines(title: str, found: tuple[Prediction, ...], means: Mapping[str, float], worst: float) -> list[Line]:
    lines = []
    for operator, mean in means.items():
        mine = [item for item in found if item.row.operator == operator]
        if mine:
            cases = tuple(Case(str(item.row.kernel), item.predicted, item.row.time) for item in mine)
            lines.append(Line(title.format(operator), cases, mean, worst))
    return lines


def _chip(name: str) -> Machine:
    return machine(load_chip(name))
