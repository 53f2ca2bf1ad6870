"""What was measured, as the tables that the fits of `halley calibrate` read, and as a file from which a run goes on."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from halley.errors import BadInput, Fault
from halley.io.chips.kernel_tables import KINDS
from halley.io.chips.operators import LOADED
from halley.io.files.text import read_text_bounded
from halley.measure.suite import FLASH, UNDER_LOAD, Case, operations
from halley.measure.timing import TimedCase, Timing

FORMAT = "halley.measured/1"
ROWS_LIMIT = 64 * 2**20
"""Largest file of measurements [B]."""
FRAMEWORK = "pytorch"
LAST = ("spread", "latency_us", "time")
"""Columns behind all others."""
TRAINED = ("attention_prefill", "attention_backward")
RATE_TIME = 1e-4
"""Time [s] from which a kernel's rate, and not its start, is what was measured."""


def rows_document(device: str, software: str, measured: Sequence[TimedCase], skipped: Mapping[str, str]) -> str:
    """All that was measured as JSON, from which `read_rows` goes on."""
    rows = [
        {
            "op": item.case.op,
            "sizes": dict(item.case.sizes),
            "dtype": item.case.dtype,
            "kernel": item.case.kernel,
            "time": item.timing.time,
            "spread": item.timing.spread,
            "count": item.timing.count,
        }
        for item in measured
    ]
    said = {"format": FORMAT, "device": device, "software": software, "skipped": dict(skipped)}
    body = ",\n".join(json.dumps(row) for row in rows)
    return json.dumps(said, indent=1)[:-2] + f',\n "rows": [\n{body}\n]}}\n'


def read_rows(path: Path, device: str, software: str) -> dict[str, TimedCase]:
    """What an earlier run measured, by case; nothing if there is no file.

    Raises BadInput: another format, another device or software, rows that this version does not know.
    """
    if not path.exists():
        return {}
    where = str(path)
    try:
        document: Any = json.loads(read_text_bounded(where, ROWS_LIMIT))
        if document["format"] != FORMAT:
            raise BadInput(Fault(where, f"the format {FORMAT}", repr(str(document["format"])[:40]), "choose another folder"))
        for name, mine in (("device", device), ("software", software)):
            if document[name] != mine:
                got = f"rows of {str(document[name])[:80]!r}"
                remedy = "choose another folder, or give --force"
                raise BadInput(Fault(where, f"measurements with the {name} {mine!r}", got, remedy))
        found = [
            TimedCase(
                Case(str(row["op"]), {str(k): int(v) for k, v in row["sizes"].items()}, str(row["dtype"]), str(row["kernel"])),
                Timing(float(row["time"]), float(row["spread"]), int(row["count"])),
            )
            for row in document["rows"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        got = f"{type(error).__name__}: {str(error)[:80]}"
        raise BadInput(Fault(where, "the rows of an earlier run", got, "give --force")) from None
    return {str(item.case): item for item in found}


def kernel_table(device: str, software: str, measured: Iterable[TimedCase], remark: str) -> str:
    """Kernels of the families of `halley time`, one row each; of one device, with the time in microseconds."""
    rows: list[dict[str, object]] = []
    for item in measured:
        case = item.case
        kind = KINDS.get(case.op)
        if kind is None:
            continue
        sizes = dict(case.sizes)
        if case.op == "attention_decode":
            sizes["new"] = 1
        cells: dict[str, object] = {kind.sizes[name]: value for name, value in sizes.items()}
        cells |= {column: case.dtype for column in (kind.dtype, kind.cache) if column}
        said = {"gpu": device, "op": case.op, "framework": FRAMEWORK, "version": software, "kernel_source": case.kernel}
        rows.append({**said, **cells, "spread": f"{item.timing.spread:.3f}", "latency_us": f"{item.timing.time * 1e6:.6g}"})
    return _csv(rows, remark)


def _elements(case: Case) -> dict[str, object]:
    return {"elements": case.sizes["rows"] * case.sizes["columns"]}


def _heads(case: Case) -> dict[str, object]:
    s = case.sizes
    causal = {"causal": int(case.op != "attention_encoder")}
    return {"kv_heads": s["heads"], "keys": s["queries"], **s, **causal}


_OPERATORS: dict[str, tuple[str, Callable[[Case], Mapping[str, object]]]] = {
    "gemm": ("gemm", lambda case: case.sizes),
    UNDER_LOAD: (LOADED, lambda case: case.sizes),
    "grouped_gemm": ("grouped-gemm", lambda case: case.sizes),
    "softmax": ("softmax", lambda case: case.sizes),
    "layernorm": ("layernorm", lambda case: case.sizes),
    "rmsnorm": ("rmsnorm", lambda case: case.sizes),
    "attention_prefill": ("attention", _heads),
    "attention_encoder": ("attention", _heads),
    "attention_backward": ("attention-backward", _heads),
    "gelu": ("gelu", _elements),
    "silu": ("silu", _elements),
    "add": ("add", _elements),
    "copy": ("identity", _elements),
}
"""Operators of the chip's fit, and their columns. Decoding is left out: its kernels divide the keys, which that model has not."""
_DTYPES = {"fp8_static": "fp8"}


def operator_table(measured: Iterable[TimedCase], remark: str) -> str:
    """Operators for the fit of a chip; of the kernels of attention the fastest, since the fit is of what the chip can do."""
    rows: list[dict[str, object]] = []
    for item in fastest(measured):
        case = item.case
        if case.op not in _OPERATORS:
            continue
        name, columns = _OPERATORS[case.op]
        said = {"operator": name, "dtype": _DTYPES.get(case.dtype, case.dtype)}
        rows.append({**said, **columns(case), "time": f"{item.timing.time * 1e6:.6g} us"})
    return _csv(rows, remark)


def fastest(measured: Iterable[TimedCase]) -> list[TimedCase]:
    """Of cases that differ in the kernel alone, the fastest."""
    best: dict[str, TimedCase] = {}
    for item in measured:
        name = str(replace(item.case, kernel=""))
        if name not in best or item.timing.time < best[name].timing.time:
            best[name] = item
    return list(best.values())


def attention_share(measured: Sequence[TimedCase]) -> tuple[float, int]:
    """Rate of the kernel of attention that PyTorch takes (`FLASH`) as a share of the fastest one's, over the passes of training
    that take at least `RATE_TIME`: the median, and how many; (1, 0) where none was timed."""
    best = {str(replace(item.case, kernel="")): item.timing.time for item in fastest(measured)}
    shares = [
        best[str(replace(item.case, kernel=""))] / item.timing.time
        for item in measured
        if item.case.kernel == FLASH and item.case.op in TRAINED and item.timing.time >= RATE_TIME
    ]
    return (statistics.median(shares), len(shares)) if shares else (1.0, 0)


def _csv(rows: Sequence[Mapping[str, object]], remark: str) -> str:
    columns = dict.fromkeys(name for row in rows for name in row)
    head = [name for name in columns if name not in LAST] + [name for name in LAST if name in columns]
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in remark.splitlines())
    writer = csv.DictWriter(text, head, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: tuple(_order(row.get(name)) for name in head)))
    return text.getvalue()


def _order(value: object) -> tuple[int, float, str]:
    return (1, float(value), "") if isinstance(value, int) else (0, 0.0, str(value or ""))


def reached(measured: Iterable[TimedCase]) -> dict[str, float]:
    """The highest rates of the run: products [op/s] by number format, and of a copy the bytes [B/s] read and written."""
    best: dict[str, float] = {}
    for item in measured:
        case = item.case
        if case.op == "gemm":
            name, rate = f"products in {case.dtype}", operations(case) / item.timing.time
        elif case.op == UNDER_LOAD:
            name, rate = "products under load", operations(case) / item.timing.time
        elif case.op == "copy":
            name, rate = "copy", 4.0 * case.sizes["rows"] * case.sizes["columns"] / item.timing.time
        else:
            continue
        best[name] = max(best.get(name, 0.0), rate)
    return best
