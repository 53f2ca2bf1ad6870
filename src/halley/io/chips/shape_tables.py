"""Tables of measured operators whose sizes are in one cell: ``hardware,op,shape,dtype,measured_latency_s``.

A shape is ``M=64;N=128;K=256``. `OPS` says which operators are kernels of a family, and their sizes. Rows of other operators
are left out.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault
from halley.kernels.library.rows import MeasuredKernel

COLUMNS = ("hardware", "op", "shape", "dtype", "measured_latency_s")
ROW_LIMIT = 200_000
"""Most rows of a table."""
FAULTS_SHOWN = 20
"""Faults after which the rest of a table is not read."""
STREAM_COLUMNS = 1024.0
"""Columns of a row as which a stream of elements is counted."""

Shape = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ShapeOperator:
    """``family`` of an operator, its sizes from the shape, ``dtype`` where the table's word is another, and the kernel's name."""

    family: str
    sizes: Callable[[Shape], dict[str, float]]
    dtype: str = ""
    kernel: Callable[[Shape], str] = lambda shape: ""


def _heads(shape: Shape) -> dict[str, float]:
    return {"heads": shape["heads"], "kv_heads": shape["kv_heads"], "head_dim": shape["head_dim"], "window": 0.0}


OPS: dict[str, ShapeOperator] = {
    "matmul": ShapeOperator("gemm", lambda s: {"m": s["M"], "n": s["N"], "k": s["K"]}),
    "gemm": ShapeOperator("gemm", lambda s: {"m": s["M"], "n": s["N"], "k": s["K"]}, "fp8_block"),
    "softmax": ShapeOperator("softmax", lambda s: {"rows": s["M"], "columns": s["N"]}),
    "layernorm": ShapeOperator("layernorm", lambda s: {"rows": s["M"], "columns": s["N"]}),
    "gelu": ShapeOperator("gelu", lambda s: {"rows": s["M"] / STREAM_COLUMNS, "columns": STREAM_COLUMNS}),
    "mha_decode": ShapeOperator(
        "attention_decode",
        lambda s: {**_heads(s), "batch": s["batch_size"], "cached": s["kv_len"] - 1},
        "bf16",
        lambda s: "8 heads of keys" if s["kv_heads"] == 8 else "",
    ),
    "mha_prefill": ShapeOperator(
        "attention_prefill", lambda s: {**_heads(s), "batch": 1.0, "queries": s["seq_len"], "cached": 0.0}, "bf16"
    ),
    "mla_decode": ShapeOperator(
        "mla_decode", lambda s: {"batch": s["batch_size"], "cached": s["kv_len"] - 1, "heads": s["heads"]}, "bf16"
    ),
}
"""Operators of the table. Decode with 8 heads of keys was timed apart by its source."""
FORMATS = {"bf16/kv_fp8": ("bf16", "fp8"), "bf16/kv_bf16": ("bf16", "bf16")}


def is_shape_table(text: str) -> bool:
    """Whether the text's head is that of such a table.

    >>> is_shape_table("hardware,op,shape,dtype,measured_latency_s"), is_shape_table("operator,dtype,time")
    (True, False)
    """
    head = [cell.strip() for cell in text.split("\n", 1)[0].split(",")]
    return all(column in head for column in COLUMNS)


def read_shape_table(text: str, name: str, framework: str = "") -> dict[str, tuple[MeasuredKernel, ...]]:
    """The rows of known operators by hardware; ``framework``: the software that ran them; ``name`` is the file's name.

    Raises BadInput: the first faults of the table, with their lines; no rows, or too many.
    """
    reader = csv.DictReader(text.splitlines())
    found: dict[str, list[MeasuredKernel]] = {}
    faults: list[Fault] = []
    try:
        for count, row in enumerate(reader):
            where = f"{name}:{reader.line_num}"
            if count >= ROW_LIMIT or len(faults) >= FAULTS_SHOWN:
                faults.append(Fault(where, f"at most {ROW_LIMIT} rows and {FAULTS_SHOWN} faults", "more"))
                break
            op = OPS.get(row.get("op") or "")
            if op is not None:
                made = _measured(op, {key: value or "" for key, value in row.items() if isinstance(key, str)}, where, framework)
                if isinstance(made, Fault):
                    faults.append(made)
                else:
                    found.setdefault(row.get("hardware") or "", []).append(made)
    except csv.Error as error:
        faults.append(Fault(f"{name}:{reader.line_num}", "a line of CSV", str(error)))
    if not found and not faults:
        faults.append(Fault(name, f"rows of {', '.join(OPS)}", "none"))
    if faults:
        raise BadInput(faults)
    return {hardware: tuple(mine) for hardware, mine in found.items()}


def _measured(op: ShapeOperator, row: Mapping[str, str], where: str, framework: str) -> MeasuredKernel | Fault:
    shape: dict[str, float] = {}
    for part in row["shape"].split(";"):
        key, _, said = part.partition("=")
        if not (said.isascii() and said.isdigit() and 0 < len(said) < 14 and int(said) > 0):
            return Fault(f"{where}: shape", "sizes like M=64;N=128", repr(row["shape"][:60]))
        shape[key.strip()] = float(said)
    try:
        sizes, kernel, time = op.sizes(shape), op.kernel(shape), float(row["measured_latency_s"])
    except KeyError as missing:
        return Fault(f"{where}: shape", f"a size {missing.args[0]}", ", ".join(shape)[:60])
    except ValueError:
        return Fault(f"{where}: measured_latency_s", "a time above 0", repr(row["measured_latency_s"][:40]))
    if not 0 < time < 1e4:
        return Fault(f"{where}: measured_latency_s", "a time above 0", repr(row["measured_latency_s"][:40]))
    dtype, cache = FORMATS.get(row["dtype"], (op.dtype or row["dtype"], "bf16" if op.family in _CACHED else ""))
    return MeasuredKernel(op.family, sizes, "bf16" if dtype == "fp16" else dtype, cache, framework, kernel, time)


_CACHED = ("attention_decode", "attention_prefill", "mla_decode")
