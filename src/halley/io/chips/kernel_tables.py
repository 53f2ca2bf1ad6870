"""Tables of measured kernels as public collections have them: one CSV for each kind of kernel, read as they are.

The columns are those of the tables of aiconfigurator (``gemm_dtype``, ``num_heads``, ...), with the time in ``latency_us``, or in
``latency`` in milliseconds. ``op`` says the kind. `KINDS` says which columns a kind needs. Columns that no kind has are refused,
except those that describe a row (`NOTES`). Lines that start with # are comments.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.kernels.library.formats import FORMATS, OTHER_NAMES
from halley.kernels.library.rows import MeasuredKernel

TEXT_LIMIT = 64 * 2**20
"""Largest file [B]."""
ROW_LIMIT = 200_000
"""Most rows of a table."""
FAULTS_SHOWN = 20
"""Faults after which the rest of a table is not read."""
SIZE_LIMIT = 2.0**40
"""Largest size of a kernel [elements]."""
NOTES = (
    "gpu",
    "op",
    "op_name",
    "framework",
    "version",
    "kernel_source",
    "device",
    "model_name",
    "origin",
    "power",
    "source",
    "spread",
)
"""Columns that describe a row and are no size."""
TIMES = {"latency_us": 1e-6, "latency": 1e-3}
"""Columns of the time, and their units [s]."""

Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KernelTable:
    """A kind of table. ``sizes``: column of each size; ``optional``: those that may be empty or absent; ``dtype``, ``cache``:
    columns of number formats; ``ignored``: further columns; ``adjust``: sizes from those read and the cells."""

    family: str
    sizes: Mapping[str, str]
    dtype: str
    cache: str = ""
    optional: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    adjust: Callable[[dict[str, float], Cells], dict[str, float]] = lambda sizes, cells: sizes


def _decode(sizes: dict[str, float], cells: Cells) -> dict[str, float]:
    """The context is isl + step, with the new token; ``new`` of them is isl."""
    return {**{name: value for name, value in sizes.items() if name != "new"}, "cached": sizes["cached"] + sizes["new"] - 1}


def _experts(sizes: dict[str, float], cells: Cells) -> dict[str, float]:
    said = cells.get("distribution", "") or "balanced"
    alpha = 0.0 if said == "balanced" else float(said.removeprefix("power_law_"))
    return {**sizes, "alpha": alpha, "gated": 0.0 if "nongated" in cells.get("kernel_source", "") else 1.0}


_HEADS = {"batch": "batch_size", "heads": "num_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim"}
_FULL = {**_HEADS, "window": "window_size", "cached": "step"}
KINDS: dict[str, KernelTable] = {
    "gemm": KernelTable("gemm", {"m": "m", "n": "n", "k": "k"}, "gemm_dtype"),
    "attention_prefill": KernelTable(
        "attention_prefill",
        {**_FULL, "queries": "isl"},
        "attn_dtype",
        "kv_cache_dtype",
        ("window", "cached"),
        ("beam_width",),
    ),
    "attention_decode": KernelTable(
        "attention_decode", {**_FULL, "new": "isl"}, "attn_dtype", "kv_cache_dtype", ("window",), ("beam_width",), _decode
    ),
    "attention_encoder": KernelTable(
        "attention_encoder", {"batch": "batch_size", "queries": "isl", "heads": "num_heads", "head_dim": "head_dim"}, "attn_dtype"
    ),
    "mla_prefill": KernelTable(
        "mla_prefill",
        {"batch": "batch_size", "queries": "isl", "cached": "step", "heads": "num_heads"},
        "mla_dtype",
        "kv_cache_dtype",
        ("cached",),
        ("tp_size",),
    ),
    "mla_decode": KernelTable(
        "mla_decode",
        {"batch": "batch_size", "new": "isl", "cached": "step", "heads": "num_heads"},
        "mla_dtype",
        "kv_cache_dtype",
        (),
        ("tp_size",),
        _decode,
    ),
    "moe": KernelTable(
        "moe",
        {
            "tokens": "num_tokens",
            "hidden": "hidden_size",
            "inter": "inter_size",
            "topk": "topk",
            "experts": "num_experts",
            "tp": "moe_tp_size",
            "ep": "moe_ep_size",
        },
        "moe_dtype",
        "",
        (),
        ("distribution",),
        _experts,
    ),
    "mamba2": KernelTable(
        "mamba2",
        {
            "batch": "batch_size",
            "queries": "seq_len",
            "heads": "nheads",
            "head_dim": "head_dim",
            "groups": "n_groups",
            "state": "d_state",
        },
        "",
        "",
        (),
        ("phase", "num_tokens", "d_model", "d_conv", "chunk_size"),
    ),
    **{
        name: KernelTable(name, {"rows": "rows", "columns": "columns"}, "dtype")
        for name in ("softmax", "layernorm", "rmsnorm", "gelu", "silu", "add", "copy")
    },
}
"""Kinds of tables by the word in their column ``op``."""
MAY_BE_0 = ("cached", "window")
DEFAULT_FORMAT = "bf16"


def is_kernel_table(text: str) -> bool:
    """Whether the text's head is that of a table of kernels.

    >>> is_kernel_table("gpu,op,framework,version,kernel_source,gemm_dtype,m,n,k,latency_us"), is_kernel_table("operator,time")
    (True, False)
    """
    head = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    cells = [cell.strip().lower() for cell in head.split(",")]
    return ("op" in cells or "op_name" in cells) and any(name in cells for name in TIMES)


def read_kernel_table(text: str, name: str) -> dict[str, tuple[MeasuredKernel, ...]]:
    """The rows of a table by GPU, as its column ``gpu`` names it ("" without one); ``name`` is the file's name for messages.

    Raises BadInput: every fault of every row, with its line; no rows, or too many.
    """
    reader = csv.reader(("" if line.startswith("#") else line for line in text.splitlines()), skipinitialspace=True)
    rows = (row for row in reader if row)
    found: dict[str, list[MeasuredKernel]] = {}
    faults: list[Fault] = []
    try:
        head = [column.strip().lower() for column in next(rows, [])]
        faults = _head(head, f"{name}:{max(reader.line_num, 1)}")
        for count, row in enumerate(rows if not faults else ()):
            where = f"{name}:{reader.line_num}"
            if count >= ROW_LIMIT:
                faults.append(Fault(where, f"at most {ROW_LIMIT} rows", "more"))
                break
            if len(faults) >= FAULTS_SHOWN:
                faults.append(Fault(where, "no fault", "more than can be shown", "correct those above first"))
                break
            if len(row) != len(head):
                faults.append(Fault(where, f"{len(head)} cells, as the head has columns", str(len(row))))
                continue
            cells = {column: cell.strip() for column, cell in zip(head, row, strict=True)}
            measured = _measured(cells, where)
            if isinstance(measured, MeasuredKernel):
                found.setdefault(cells.get("gpu", ""), []).append(measured)
            else:
                faults += measured
    except csv.Error as error:
        faults.append(Fault(f"{name}:{reader.line_num}", "a line of CSV", str(error)))
    if not found and not faults:
        faults.append(Fault(name, "rows of measured kernels", "none"))
    if faults:
        raise BadInput(faults)
    return {gpu: tuple(mine) for gpu, mine in found.items()}


def _head(head: Sequence[str], where: str) -> list[Fault]:
    said = ", ".join(head)[:80] or "nothing"
    faults = []
    if "op" not in head and "op_name" not in head:
        faults.append(Fault(where, "the column op", said))
    if not any(column in head for column in TIMES):
        faults.append(Fault(where, f"a column of times: {' or '.join(TIMES)}", said))
    known = {*NOTES, *TIMES}
    for kind in KINDS.values():
        known |= {*kind.sizes.values(), *kind.ignored, kind.dtype, kind.cache} - {""}
    for column in head:
        if len(faults) >= FAULTS_SHOWN:
            faults.append(Fault(where, f"at most {FAULTS_SHOWN} faults", "more"))
            break
        if column not in known:
            remedy = did_you_mean(column[:40], sorted(known))
            faults.append(Fault(where, "columns that a table of kernels has", repr(column[:40]), remedy))
        elif head.count(column) > 1 and not any(column in fault.got for fault in faults):
            faults.append(Fault(where, "each column once", f"{column} twice"))
    return faults


def _measured(cells: Cells, where: str) -> MeasuredKernel | list[Fault]:
    """The row, or all that is wrong with it."""
    op = cells.get("op") or cells.get("op_name", "")
    kind = KINDS.get(op)
    if kind is None:
        return [Fault(f"{where}: op", f"one of {', '.join(KINDS)}", repr(op[:40]), did_you_mean(op[:40], KINDS))]
    faults: list[Fault] = []
    sizes: dict[str, float] = {}
    for size, column in kind.sizes.items():
        said = cells.get(column, "")
        value = _whole(said)
        if not said and size in kind.optional:
            continue
        if value is None or (value == 0 and size not in MAY_BE_0):
            faults.append(Fault(f"{where}: {column}", f"a whole number from 1 to {SIZE_LIMIT:g}", repr(said[:40])))
        else:
            sizes[size] = value
    formats = []
    for column in (kind.dtype, kind.cache):
        said = cells.get(column, "") if column else ""
        word = OTHER_NAMES.get(said, said)
        if said and word not in FORMATS:
            remedy = did_you_mean(said[:40], FORMATS)
            faults.append(Fault(f"{where}: {column}", f"one of {', '.join(FORMATS)}", repr(said[:40]), remedy))
        formats.append(word)
    unit = next(column for column in TIMES if column in cells)
    time = _number(cells[unit])
    if time is None or not 0 < time * TIMES[unit] < 1e4:
        faults.append(Fault(f"{where}: {unit}", "a time above 0", repr(cells[unit][:40])))
    if sizes.get("heads") and sizes.get("kv_heads") and sizes["heads"] % sizes["kv_heads"]:
        place = f"{where}: {kind.sizes['kv_heads']}"
        faults.append(Fault(place, f"a divisor of {sizes['heads']:g} heads", f"{sizes['kv_heads']:g}"))
    if faults or time is None:
        return faults
    try:
        adjusted = kind.adjust(sizes, cells)
    except ValueError:
        said = cells.get("distribution", "")
        return [Fault(f"{where}: distribution", "balanced, or power_law_ and a number", repr(said[:40]))]
    framework, kernel = (cells.get(name, "")[:100] for name in ("framework", "kernel_source"))
    dtype = formats[0] or DEFAULT_FORMAT
    return MeasuredKernel(kind.family, adjusted, dtype, formats[1], framework.lower(), kernel, time * TIMES[unit])


def _whole(text: str) -> float | None:
    value = _number(text)
    return value if value is not None and value == math.floor(value) and 0 <= value <= SIZE_LIMIT else None


def _number(text: str) -> float | None:
    """A decimal number; None where it is none."""
    if not text.isascii() or len(text) > 40:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
