"""The sheet of a sweep as Parquet, by pyarrow where that is installed."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

from halley.errors import BadInput, Fault
from halley.report.rows import Row
from halley.report.sweeps.facts import columns


def parquet_bytes(rows: list[Row]) -> bytes:
    """The rows under their heads as a Parquet file. Raises BadInput: pyarrow is not installed."""
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        remedy = "pip install 'halley[parquet]', or use --csv"
        raise BadInput(Fault("--parquet", "the package pyarrow", "none", remedy)) from None
    stream = BytesIO()
    parquet.write_table(arrow.table(dict(columns(rows))), stream)
    return stream.getvalue()
