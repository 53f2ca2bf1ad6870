"""Measured operators from a CSV: one row per timed kernel, with its extents in columns of their own.

``operator``, ``dtype`` and ``time`` are in every row; a time has its unit (``12.5 us``). Which further columns an operator needs
says `OPERATORS`. Cells of other columns are left empty; columns that no operator has are refused. Lines that start with # are
comments.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halley.errors import BadInput, Fault, UnitError, did_you_mean
from halley.ir.workload import DTYPE_BYTES, FUNCTIONS
from halley.kernels.calibrate import KernelMeasurement
from halley.kernels.times import Attention, Gemm, Kernel, elementwise, layer_norm, rms_norm, softmax
from halley.units import SECONDS, parse

TEXT_LIMIT = 16 * 2**20
"""Largest file [B]."""
ROW_LIMIT = 10_000
"""Most rows of a table."""
EXTENT_LIMIT = 2**40
"""Largest extent of a dim."""
COLUMNS = ("operator", "dtype", "time")
"""Columns of every row."""

Extents = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Operator:
    """Columns that an operator needs and may have, and its kernel from them and the dtype."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    kernel: Callable[[Extents, str], Kernel]


_ROWS = ("rows", "columns")
_HEADS = ("batch", "queries", "keys", "heads", "kv_heads", "head_dim")


def _gemm(given: Extents, dtype: str) -> Kernel:
    result = "bf16" if DTYPE_BYTES[dtype] == 1 else dtype
    return Gemm(given["m"], given["n"], given["k"], given.get("batch", 1), dtype, result, given.get("spread", 0) / 100)


def _attention(backward: bool) -> Callable[[Extents, str], Kernel]:
    def kernel(given: Extents, dtype: str) -> Kernel:
        return Attention(
            **{name: given[name] for name in _HEADS},
            value_dim=given.get("value_dim", 0),
            causal=bool(given.get("causal")),
            latent=bool(given.get("latent")),
            backward=backward,
            dtype=dtype,
            cached=dtype,
        )

    return kernel


def _elementwise(function: str) -> Callable[[Extents, str], Kernel]:
    return lambda given, dtype: elementwise(given["elements"], function, dtype)


LOADED = "gemm-under-load"
"""A product that is repeated for seconds, at the clock that the power limit leaves: it is no part of the fit."""
OPERATORS: dict[str, Operator] = {
    "gemm": Operator(("m", "n", "k"), ("batch",), _gemm),
    LOADED: Operator(("m", "n", "k"), (), _gemm),
    "grouped-gemm": Operator(("batch", "m", "n", "k"), ("spread",), _gemm),
    "softmax": Operator(_ROWS, (), lambda given, dtype: softmax(given["rows"], given["columns"], dtype)),
    "layernorm": Operator(_ROWS, (), lambda given, dtype: layer_norm(given["rows"], given["columns"], dtype)),
    "rmsnorm": Operator(_ROWS, (), lambda given, dtype: rms_norm(given["rows"], given["columns"], dtype)),
    "attention": Operator(_HEADS, ("value_dim", "causal", "latent"), _attention(False)),
    "attention-backward": Operator(_HEADS, ("value_dim", "causal", "latent"), _attention(True)),
    **{name: Operator(("elements",), (), _elementwise(name)) for name in FUNCTIONS if not FUNCTIONS[name].constants},
}
"""Operators by name. ``spread``: how unevenly rows lie over the groups, in per cent; ``causal``, ``latent``: 0 or 1."""

EXTENTS = tuple(dict.fromkeys(name for item in OPERATORS.values() for name in (*item.needed, *item.optional)))
_MAY_BE_0 = ("spread", "causal", "latent", "value_dim")


def read_operators(text: str, name: str) -> tuple[KernelMeasurement, ...]:
    """The rows of a CSV of measured operators; ``name`` is the file's name for messages.

    >>> read_operators("operator,dtype,m,n,k,time\\ngemm,bf16,64,128,256,12.5 us\\n", "mine.csv")[0].time
    1.25e-05

    Raises BadInput: every fault of every row, with its line; no rows, or too many.
    """
    # a comment becomes an empty line, which counts but is skipped
    reader = csv.reader(("" if line.startswith("#") else line for line in text.splitlines()), skipinitialspace=True)
    rows = (row for row in reader if row)
    found: list[KernelMeasurement] = []
    faults: list[Fault] = []
    try:
        head = [column.strip().lower() for column in next(rows, [])]
        faults = _head(head, f"{name}:{max(reader.line_num, 1)}")
        for row in rows if not faults else ():
            where = f"{name}:{reader.line_num}"
            if len(found) >= ROW_LIMIT:
                faults.append(Fault(where, f"at most {ROW_LIMIT} rows", "more"))
                break
            measured = _measurement(head, row, where)
            if isinstance(measured, KernelMeasurement):
                found.append(measured)
            else:
                faults += measured
    except csv.Error as error:
        faults.append(Fault(f"{name}:{reader.line_num}", "a line of CSV", str(error)))
    if not found and not faults:
        faults.append(Fault(name, "rows of measured operators", "none"))
    if faults:
        raise BadInput(faults)
    return tuple(found)


def _head(head: list[str], where: str) -> list[Fault]:
    said = ", ".join(head)[:80] or "nothing"
    faults = [Fault(where, f"the column {column}", said) for column in COLUMNS if column not in head]
    known = (*COLUMNS, *EXTENTS)
    for column in head:
        if column not in known:
            faults.append(Fault(where, "columns that an operator has", repr(column[:40]), did_you_mean(column[:40], known)))
        elif head.count(column) > 1 and not any(column in fault.got for fault in faults):
            faults.append(Fault(where, "each column once", f"{column} twice"))
    return faults


def _measurement(head: Sequence[str], row: Sequence[str], where: str) -> KernelMeasurement | list[Fault]:
    """The measurement in a row, or all that is wrong with it."""
    if len(row) != len(head):
        return [Fault(where, f"{len(head)} cells, as the head has columns", str(len(row)))]
    cells = {column: cell.strip() for column, cell in zip(head, row, strict=True)}
    faults: list[Fault] = []
    operator = OPERATORS.get(cells["operator"].lower())
    if operator is None:
        said = cells["operator"][:40]
        faults.append(Fault(f"{where}: operator", "a known operator", repr(said), did_you_mean(said, OPERATORS)))
    if cells["dtype"] not in DTYPE_BYTES:
        said = cells["dtype"][:40]
        faults.append(Fault(f"{where}: dtype", "an element type", repr(said), did_you_mean(said, DTYPE_BYTES)))
    time = _time(cells["time"])
    if time is None:
        faults.append(Fault(f"{where}: time", "a time above 0 with its unit, like 12.5 us", repr(cells["time"][:40])))
    if operator is None:
        return faults
    given, wrong = _extents(operator, cells, where)
    if faults + wrong or time is None:
        return faults + wrong
    return KernelMeasurement(cells["operator"].lower(), operator.kernel(given, cells["dtype"]), time)


def _extents(operator: Operator, cells: Mapping[str, str], where: str) -> tuple[dict[str, int], list[Fault]]:
    """The extents that the operator has, and all that is wrong with the cells."""
    given: dict[str, int] = {}
    faults: list[Fault] = []
    for column in EXTENTS:
        said, place = cells.get(column, ""), f"{where}: {column}"
        if column not in (*operator.needed, *operator.optional):
            if said:
                faults.append(Fault(place, f"nothing, as {cells['operator'][:40]} has none", repr(said[:40])))
        elif said or column in operator.needed:
            value = _count(said)
            if value is None or (value == 0 and column not in _MAY_BE_0):
                faults.append(Fault(place, f"a whole number from 1 to {EXTENT_LIMIT}", repr(said[:40])))
            else:
                given[column] = value
    if not faults and given.get("kv_heads") and given["heads"] % given["kv_heads"]:
        faults.append(Fault(f"{where}: kv_heads", f"a divisor of {given['heads']} heads", str(given["kv_heads"])))
    return given, faults


def _count(text: str) -> int | None:
    """A whole number within the limit; None where it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 13):
        return None
    return int(text) if int(text) <= EXTENT_LIMIT else None


def _time(text: str) -> float | None:
    """A time in s; None where it is none above 0."""
    try:
        value = parse(text, SECONDS)
    except UnitError:
        return None
    return value if 0 < value < math.inf else None
