"""A GPT layer as DFModel's published inputs have it (arXiv 2412.16432): 18 kernels forward, 41 with the backward pass.

Facts of that publication as a table over the extents of any such layer. It shares each kernel out over the tensor-parallel chips
along rows, or along the contraction, whose partial sums an all-reduce adds up; other kernels are repeated on each chip. In the
training graph the backward pass starts from a loss of its own: forward and backward of different samples may run together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault
from halley.formulas.numbers import ceil_div
from halley.spatial.chip import Engine, Graph, Kernel, Tensor, Walked
from halley.workloads.transformer import Transformer

WORD = 2
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel: its extents by name, what of it is ``split`` ("rows", "depth" or ""), the kernels that read its result."""

    name: str
    rows: str
    columns: str
    depth: str = ""
    split: str = ""
    weights: bool = False
    readers: str = ""

    @property
    def engine(self) -> Engine:
        return Engine.MATRIX if self.depth else Engine.VECTOR


FORWARD = (
    Row("Add_Prev", "model", "tokens", readers="LN1 Add1"),
    Row("LN1", "model", "tokens", readers="Q K V"),
    Row("Q", "inner", "tokens", "model", "rows", True, "MHA1"),
    Row("K", "inner", "tokens", "model", "rows", True, "MHA1"),
    Row("V", "inner", "tokens", "model", "rows", True, "MHA2"),
    Row("MHA1", "scores", "tokens", "head", "rows", False, "Softmax"),
    Row("Softmax", "scores", "tokens", split="rows", readers="Drop1"),
    Row("Drop1", "scores", "tokens", split="rows", readers="MHA2"),
    Row("MHA2", "inner", "tokens", "tokens", "rows", False, "PROJ"),
    Row("PROJ", "model", "tokens", "inner", "depth", True, "Drop2"),
    Row("Drop2", "model", "tokens", readers="Add1"),
    Row("Add1", "model", "tokens", readers="LN2 Add2"),
    Row("LN2", "model", "tokens", readers="FFN0"),
    Row("FFN0", "hidden", "tokens", "model", "rows", True, "GeLU"),
    Row("GeLU", "hidden", "tokens", split="rows", readers="FFN1"),
    Row("FFN1", "model", "tokens", "hidden", "depth", True, "Drop3"),
    Row("Drop3", "model", "tokens", readers="Add2"),
    Row("Add2", "model", "tokens"),
)

BACKWARD = (
    Row("Loss_b", "model", "tokens", readers="Drop3_b"),
    Row("Drop3_b", "model", "tokens", readers="FFN1_b FFN1_wu"),
    Row("FFN1_b", "hidden", "tokens", "model", "rows", True, "GeLU_b"),
    Row("GeLU_b", "hidden", "tokens", split="rows", readers="FFN0_b FFN0_wu"),
    Row("FFN0_b", "model", "tokens", "hidden", "depth", True, "LN2_b"),
    Row("LN2_b", "model", "tokens", readers="Drop2_b"),
    Row("Drop2_b", "model", "tokens", readers="PROJ_b PROJ_wu"),
    Row("PROJ_b", "inner", "tokens", "model", "rows", True, "MHA2_b1 MHA2_b2"),
    Row("MHA2_b1", "scores", "tokens", "head", "rows", False, "Drop1_b"),
    Row("MHA2_b2", "inner", "tokens", "tokens", "rows", False, "V_b V_wu"),
    Row("V_b", "model", "tokens", "inner", "depth", True),
    Row("Drop1_b", "scores", "tokens", split="rows", readers="SM_b"),
    Row("SM_b", "scores", "tokens", split="rows", readers="MHA1_b1 MHA1_b2"),
    Row("MHA1_b1", "inner", "tokens", "tokens", "rows", False, "Q_b Q_wu"),
    Row("MHA1_b2", "inner", "tokens", "tokens", "rows", False, "K_b K_wu"),
    Row("Q_b", "model", "tokens", "inner", "rows", True),
    Row("K_b", "model", "tokens", "inner", "rows", True),
    Row("FFN1_wu", "hidden", "model", "tokens", "rows"),
    Row("FFN0_wu", "model", "hidden", "tokens", "rows"),
    Row("PROJ_wu", "inner", "model", "tokens", "rows"),
    Row("V_wu", "model", "inner", "tokens", "rows"),
    Row("K_wu", "model", "inner", "tokens", "rows"),
    Row("Q_wu", "model", "inner", "tokens", "rows"),
)

KEPT = {
    "LN1": "V_wu K_wu Q_wu",
    "Q": "MHA1_b2",
    "K": "MHA1_b1",
    "V": "MHA2_b1",
    "Drop1": "MHA2_b2",
    "MHA2": "PROJ_wu",
    "LN2": "FFN0_wu",
    "GeLU": "FFN1_wu",
}
"""What the backward pass reads of the forward pass."""


def check_layer(shape: Transformer) -> None:
    """Raises BadInput: a layer of other kernels than those of the table, each reason apart."""
    wanted = {
        "gated": ("a plain feed-forward block", not shape.gated),
        "kv_heads": (f"as many as heads, {shape.heads}", shape.kv_heads == shape.heads),
        "experts": ("none", shape.experts is None),
        "latent": ("none", shape.latent is None),
    }
    remedy = "DFModel publishes GPT's layer alone; use the default model"
    faults = [
        Fault(f"model {shape.name}, {name}", expected, str(getattr(shape, name)), remedy)
        for name, (expected, right) in wanted.items()
        if not right
    ]
    if faults:
        raise BadInput(faults)


def layer_graph(
    shape: Transformer,
    sequence: int,
    chips: int = 1,
    reduction: Callable[[float], float] | None = None,
    training: bool = True,
) -> Graph:
    """A chip's part of a layer on ``chips`` tensor-parallel chips, for one sample of ``sequence`` tokens.

    ``reduction``: time [s] of an all-reduce over them, by bytes; without one it costs nothing. ``training``: with the backward
    pass. Raises BadInput: a layer that is not GPT's.

    >>> small = Transformer("small", 2, 8, 2, 2, 4, 32, vocabulary=16, sequence=6, gated=False)
    >>> len(layer_graph(small, 6, chips=2).kernels), len(layer_graph(small, 6, training=False).kernels)
    (41, 18)
    """
    check_layer(shape)
    extents = {
        "model": shape.model,
        "inner": shape.heads * shape.head_dim,
        "scores": shape.heads * sequence,
        "head": shape.head_dim,
        "hidden": shape.hidden,
        "tokens": sequence,
    }
    rows = (*FORWARD, *BACKWARD) if training else FORWARD
    kernels = tuple(_kernel(row, extents, chips, reduction) for row in rows)
    return Graph(kernels, tuple(_tensors(rows, kernels, training)), sequence)


def _kernel(row: Row, extents: Mapping[str, int], chips: int, reduction: Callable[[float], float] | None) -> Kernel:
    rows, columns = extents[row.rows], extents[row.columns]
    depth = extents[row.depth] if row.depth else 1
    if row.split == "rows":
        rows = int(ceil_div(rows, chips))
    elif row.split == "depth":
        depth = int(ceil_div(depth, chips))
    summed = row.split == "depth" and chips > 1 and reduction is not None
    return Kernel(
        row.name,
        row.engine,
        rows,
        columns,
        depth,
        Walked.COLUMNS if row.columns == "tokens" else Walked.DEPTH,
        weights=float(rows * depth * WORD) if row.weights else 0.0,
        network=reduction(rows * columns * WORD) if summed and reduction else 0.0,
    )


def _tensors(rows: tuple[Row, ...], kernels: tuple[Kernel, ...], training: bool) -> Iterator[Tensor]:
    """Results that other kernels read, and what enters and leaves the layer."""
    place = {row.name: number for number, row in enumerate(rows)}
    read: set[int] = set()
    for number, (row, kernel) in enumerate(zip(rows, kernels, strict=True)):
        names = [*row.readers.split(), *(KEPT.get(row.name, "").split() if training else ())]
        readers = tuple(sorted(place[name] for name in names))
        read.update(readers)
        yield Tensor(number, readers, float(kernel.rows * kernel.columns * WORD), leaves=not readers)
    for number, kernel in enumerate(kernels):
        if number not in read:
            yield Tensor(None, (number,), float(kernel.rows * kernel.columns * WORD))
