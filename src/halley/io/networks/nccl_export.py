"""Predictions in the form of the tables that nccl-tests print, so that what reads measurements reads predictions.

`halley.io.networks.nccl_tests` reads them back. Source of the form: README.md and doc/PERFORMANCE.md of
github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from halley.errors import BadInput, Fault
from halley.formulas.software import sent_bytes
from halley.io.networks.nccl_tests import KINDS
from halley.network.algorithms.tables import Kind
from halley.network.time.collective import PASSES

NAMES: dict[Kind, str] = {kind: name for name, kind in KINDS.items()}
FLOAT_BYTES = 4
"""Bytes of a float."""
_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def nccl_text(kind: Kind, ranks: int, rows: Sequence[tuple[int, float]], network: str) -> str:
    """The table of one collective: rows are (size [B], predicted time [s]). In place and out of place are alike.

    Raises BadInput: a kind that nccl-tests do not have.

    >>> from halley.ir.mapping import CollectiveKind
    >>> print(nccl_text(CollectiveKind.ALL_REDUCE, 4, [(1024, 12.5e-6)], "mine").splitlines()[-1])
            1024           256     float     sum      -1     12.5    0.082    0.123      0     12.5    0.082    0.123    N/A
    """
    name = NAMES.get(kind)
    if name is None:
        remedy = f"use one of: {', '.join(str(item) for item in NAMES)}"
        raise BadInput(Fault("table of nccl-tests", "a collective that they have", str(kind), remedy))
    least, most = rows[0][0], rows[-1][0]
    head = [
        f"# Predicted by Halley for {' '.join(network.split())}; nothing here was measured.",
        f"# Collective test starting: {name}_perf",
        f"# nThread 1 nGpus {ranks} minBytes {least} maxBytes {most}",
        "#",
        "# Using devices",
        *(f"#  Rank {rank:2} Group  0 device {rank} (predicted)" for rank in range(ranks)),
        "#",
        f"#{'out-of-place':>73} {'in-place':>26}",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
    ]
    return "\n".join([*head, *(_row(kind, name, ranks, size, time) for size, time in rows)]) + "\n"


def _row(kind: Kind, name: str, ranks: int, size: int, time: float) -> str:
    sent = float(sent_bytes(PASSES[kind], ranks, size)) if kind in PASSES else size
    figures = f"{time * 1e6:8.6g} {size / time / 1e9:8.3f} {sent / time / 1e9:8.3f}"
    operation, root = "sum" if name in _REDUCING else "none", 0 if name in _ROOTED else -1
    return f"{size:12} {size // FLOAT_BYTES:13} {'float':>9} {operation:>7} {root:7} {figures}      0 {figures}    N/A"
