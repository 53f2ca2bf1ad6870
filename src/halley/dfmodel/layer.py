"""A GPT layer as in DFModel's published inputs (arXiv 2412.16432): 18 kernels forward, 41 with the backward pass.

The published kernels as a table over the extents of any such layer. Tensor-parallel chips split each kernel along its rows, or
along the contraction with an all-reduce of the partial sums; other kernels are replicated. In the training graph the backward
pass starts from a loss of its own, so forward and backward passes of different samples may run together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault
from halley.formulas.numbers import ceil_div
from halley.spatial.chip import Engine, Kernel, SpatialGraph, SpatialTensor, TiledDim
from halley.workloads.transformer import Transformer

BYTES_PER_ELEMENT = 2
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel: its extents by name, the ``split`` extent ("rows", "depth" or ""), and the kernels that read its result."""

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
    KernelRow("Add_Prev", "model", "tokens", readers="LN1 Add1"),
    KernelRow("LN1", "model", "tokens", readers="Q K V"),
    KernelRow("Q", "inner", "tokens", "model", "rows", True, "MHA1"),
    KernelRow("K", "inner", "tokens", "model", "rows", True, "MHA1"),
    KernelRow("V", "inner", "tokens", "model", "rows", True, "MHA2"),
    KernelRow("MHA1", "scores", "tokens", "head", "rows", False, "Softmax"),
    KernelRow("Softmax", "scores", "tokens", split="rows", readers="Drop1"),
    KernelRow("Drop1", "scores", "tokens", split="rows", readers="MHA2"),
    KernelRow("MHA2", "inner", "tokens", "tokens", "rows", False, "PROJ"),
    KernelRow("PROJ", "model", "tokens", "inner", "depth", True, "Drop2"),
    KernelRow("Drop2", "model", "tokens", readers="Add1"),
    KernelRow("Add1", "model", "tokens", readers="LN2 Add2"),
    KernelRow("LN2", "model", "tokens", readers="FFN0"),
    KernelRow("FFN0", "hidden", "tokens", "model", "rows", True, "GeLU"),
    KernelRow("GeLU", "hidden", "tokens", split="rows", readers="FFN1"),
    KernelRow("FFN1", "model", "tokens", "hidden", "depth", True, "Drop3"),
    KernelRow("Drop3", "model", "tokens", readers="Add2"),
    KernelRow("Add2", "model", "tokens"),
)

BACKWARD = (
    KernelRow("Loss_b", "model", "tokens", readers="Drop3_b"),
    KernelRow("Drop3_b", "model", "tokens", readers="FFN1_b FFN1_wu"),
    KernelRow("FFN1_b", "hidden", "tokens", "model", "rows", True, "GeLU_b"),
    KernelRow("GeLU_b", "hidden", "tokens", split="rows", readers="FFN0_b FFN0_wu"),
    KernelRow("FFN0_b", "model", "tokens", "hidden", "depth", True, "LN2_b"),
    KernelRow("LN2_b", "model", "tokens", readers="Drop2_b"),
    KernelRow("Drop2_b", "model", "tokens", readers="PROJ_b PROJ_wu"),
    KernelRow("PROJ_b", "inner", "tokens", "model", "rows", True, "MHA2_b1 MHA2_b2"),
    KernelRow("MHA2_b1", "scores", "tokens", "head", "rows", False, "Drop1_b"),
    KernelRow("MHA2_b2", "inner", "tokens", "tokens", "rows", False, "V_b V_wu"),
    KernelRow("V_b", "model", "tokens", "inner", "depth", True),
    KernelRow("Drop1_b", "scores", "tokens", split="rows", readers="SM_b"),
    KernelRow("SM_b", "scores", "tokens", split="rows", readers="MHA1_b1 MHA1_b2"),
    KernelRow("MHA1_b1", "inner", "tokens", "tokens", "rows", False, "Q_b Q_wu"),
    KernelRow("MHA1_b2", "inner", "tokens", "tokens", "rows", False, "K_b K_wu"),
    KernelRow("Q_b", "model", "tokens", "inner", "rows", True),
    KernelRow("K_b", "model", "tokens", "inner", "rows", True),
    KernelRow("FFN1_wu", "hidden", "model", "tokens", "rows"),
    KernelRow("FFN0_wu", "model", "hidden", "tokens", "rows"),
    KernelRow("PROJ_wu", "inner", "model", "tokens", "rows"),
    KernelRow("V_wu", "model", "inner", "tokens", "rows"),
    KernelRow("K_wu", "model", "inner", "tokens", "rows"),
    KernelRow("Q_wu", "model", "inner", "tokens", "rows"),
)

SAVED_READERS = {
    "LN1": "V_wu K_wu Q_wu",
    "Q": "MHA1_b2",
    "K": "MHA1_b1",
    "V": "MHA2_b1",
    "Drop1": "MHA2_b2",
    "MHA2": "PROJ_wu",
    "LN2": "FFN0_wu",
    "GeLU": "FFN1_wu",
}
"""Kernels of the backward pass that read a result of the forward pass."""


def check_layer(shape: Transformer) -> None:
    """Raises BadInput: a layer with other kernels than those of the table, one fault per reason."""
    wanted = {
        "gated": ("a plain feed-forward block", not shape.gated),
        "kv_heads": (f"as many as heads, {shape.heads}", shape.kv_heads == shape.heads),
        "experts": ("none", shape.experts is None),
        "latent": ("none", shape.latent is None),
        "state_space": ("none", shape.state_space is None),
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
) -> SpatialGraph:
    """A chip's part of a layer on ``chips`` tensor-parallel chips, for one sample of ``sequence`` tokens.

    ``reduction``: time [s] of an all-reduce over them, by bytes; without it, all-reduces take no time. ``training``: with the
    backward pass. Raises BadInput: a layer that is not GPT's.

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
    return SpatialGraph(kernels, tuple(_tensors(rows, kernels, training)), sequence)


def _kernel(row: KernelRow, extents: Mapping[str, int], chips: int, reduction: Callable[[float], float] | None) -> Kernel:
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
        TiledDim.COLUMNS if row.columns == "tokens" else TiledDim.DEPTH,
        weights=float(rows * depth * BYTES_PER_ELEMENT) if row.weights else 0.0,
        network=reduction(rows * columns * BYTES_PER_ELEMENT) if summed and reduction else 0.0,
    )


def _tensors(rows: tuple[KernelRow, ...], kernels: tuple[Kernel, ...], training: bool) -> Iterator[SpatialTensor]:
    """Results that other kernels read, and the layer's inputs and outputs."""
    place = {row.name: number for number, row in enumerate(rows)}
    read: set[int] = set()
    for number, (row, kernel) in enumerate(zip(rows, kernels, strict=True)):
        names = [*row.readers.split(), *(SAVED_READERS.get(row.name, "").split() if training else ())]
        readers = tuple(sorted(place[name] for name in names))
        read.update(readers)
        yield SpatialTensor(number, readers, float(kernel.rows * kernel.columns * BYTES_PER_ELEMENT), leaves=not readers)
    for number, kernel in enumerate(kernels):
        if number not in read:
            yield SpatialTensor(None, (number,), float(kernel.rows * kernel.columns * BYTES_PER_ELEMENT))
