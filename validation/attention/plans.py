"""How the kernels run on the GPU, as mapping trees: the fused kernels as published, everything else tile by tile.

A plan is a tuple of kernels that run one after the other; `in_memory` puts device memory around them. A `Deal` gives each
streaming multiprocessor (SM) its share: heads along one axis of the grid of SMs and rows along the other, or either along both.
A row tile is an even part of a share, at most as long as the published one. What several SMs or tiles read is held in L2, where
it fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil

from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Hold, Node, Sequence, Spatial, Temporal, walk
from halley.ir.text import parse
from halley.ir.workload import Workload

GEMM_TILE = 128
"""Rows and columns of an SM's tile of a GEMM; the contraction goes by 32."""

FORWARD = """
spread {first} by {firsts} over sm.x
  spread {dealt} by {share} over sm.y
    for h by 1
      hold l2 x2: K V
        for m by {tile}
          hold smem x2: Q
            hold rf x3: mx
              hold rf x2: O z
                hold rf: U
                  sequence
                    for n by {keys}
                      hold smem x2: K V
                        hold rf x2: S|S2
                          hold smem x2: E
                            overlap
                              compute scores
                              sequence
                                compute scale
                                compute max
                                compute exp
                                compute sum
                              compute values
                    compute divide
"""

FORWARD_BY_BLOCKS = """
spread {first} by {firsts} over sm.x
  spread {dealt} by {share} over sm.y
    for h by 1
      hold l2 x2: Q
        for b by 1
          hold smem: K V
            for m by {tile}
              hold smem x2: Q
                hold rf x2: O mx z weight
                  hold rf: U
                    sequence
                      hold rf: S|S2
                        hold smem: E
                          sequence
                            compute scores
                            compute scale
                            compute max
                            compute exp
                            compute sum
                            compute values
                      for m by 16
                        hold smem: part
                          sequence
                            compute share
                            compute combine
"""

BACKWARD_BY_BLOCKS = """
spread {first} by {firsts} over sm.x
  spread {dealt} by {share} over sm.y
    for h by 1
      hold l2 x2: Q dO lse r
        for b by 1
          hold smem: K V
            hold rf: dK dV
              for m by 64
                hold smem x2: Q dO
                  hold rf x2: lse r dQ
                    hold rf: U
                      sequence
                        hold rf: S|S2 dP
                          hold smem: P|dS
                            sequence
                              compute scores
                              compute scale
                              compute again
                              compute dP
                              compute dV
                              compute dS
                              compute dK
                              compute dQ
                        for m by 16
                          hold smem: part
                            sequence
                              compute share
                              compute combine
"""

BACKWARD = """
spread {first} by {firsts} over sm.x
  for h by 1
    hold l2 x2: Q dO lse r
      hold l2 x2: dQ
        spread {dealt} by {share} over sm.y
          for n by {keys}
            hold smem: K V
              hold rf x2: dK dV
                for m by {tile}
                  hold smem x2: Q dO
                    hold rf x2: lse r dQ
                      hold rf: S|S2 dP
                        hold smem: P dS
                          sequence
                            compute scores
                            compute scale
                            compute again
                            compute dP
                            compute dS
                            compute dV
                            compute dK
                            compute dQ
"""

ROWS = """
spread {first} by {firsts} over sm.x
  spread {dealt} by {share} over sm.y
    for h by 1
      for {r} by {tile}
        hold rf x2: {tensors}
          sequence
            {work}
"""

GEMM = """
spread {first} by {firsts} over sm.x
  spread {dealt} by {share} over sm.y
    for h by 1
      hold l2 x2: {b}
        for {r} by {rows}
          {again}for {c} by {columns}
            hold rf x2: {out}
              for {k} by 32
                hold smem x2: {a} {b}
                  compute {op}
"""


class Along(Enum):
    """What is dealt along the axes of the grid of SMs: heads along the first and rows along the second, or either along both."""

    HEADS_AND_ROWS = "heads and rows"
    HEADS = "heads"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Deal:
    """How work is dealt ``along`` the grid of SMs; ``sizes`` are the extents of the dims."""

    chip: Chip
    sizes: dict[str, int]
    along: Along = Along.HEADS_AND_ROWS

    def shares(self, rows: str) -> dict[str, str | int]:
        """What is dealt along the first axis, and along the second, with the share of each."""
        first = rows if self.along is Along.ROWS else "h"
        dealt = "h" if self.along is Along.HEADS else rows
        along_x, along_y = (self.chip.axis("sm", name).size for name in ("x", "y"))
        firsts = ceil(self.sizes[first] / along_x)
        share = ceil((firsts if first == dealt else self.sizes[dealt]) / along_y)
        return {"first": first, "firsts": firsts, "dealt": dealt, "share": share}

    def tile(self, rows: str, most: int) -> int:
        """An even part of an SM's rows."""
        shares = self.shares(rows)
        share = shares["share"] if shares["dealt"] == rows else self.sizes[rows]
        assert isinstance(share, int)
        return even(share, most)


def even(extent: int, most: int) -> int:
    """The tile that cuts an extent into equal parts of at most ``most``.

    >>> even(228, 128)
    114
    """
    return ceil(extent / ceil(extent / most))


def rowwise(deal: Deal, tensors: str, ops: Iterable[str], tile: int = 1, rows: str = "m") -> Node:
    """A kernel that walks rows: all its tensors lie in registers."""
    work = f"\n{'':12}".join(f"compute {op}" for op in ops)
    return parse(ROWS.format(**deal.shares(rows), r=rows, tile=deal.tile(rows, tile), tensors=tensors, work=work))


def copy(deal: Deal, name: str, source: str, target: str) -> Node:
    """A kernel that changes the layout of a tensor of queries or keys."""
    return rowwise(deal, f"{source} {target}", [f"copy_{name}"], 64, "m" if name in ("Q", "dQ", "dO") else "n")


def gemm(deal: Deal, op: str, names: str, dims: str) -> Node:
    """A batched GEMM kernel; ``names``: its two inputs and its output; ``dims``: rows, columns, contraction. Rows of the first
    input that several tiles of columns read are held in L2, too."""
    (a, b, out), (r, c, k) = names.split(), dims.split()
    tiles = {"rows": deal.tile(r, GEMM_TILE), "columns": even(deal.sizes[c], GEMM_TILE)}
    places = {"a": a, "b": b, "out": out, "r": r, "c": c, "k": k, "op": op}
    head, mark, rest = GEMM.partition("          {again}")
    if deal.sizes[c] > GEMM_TILE:
        rest = "hold l2 x2: {a}\n            " + rest.replace("\n", "\n  ").rstrip() + "\n"
    return parse((head + mark.removesuffix("{again}") + rest).format(**deal.shares(r), **tiles, **places))


def standard(deal: Deal, causal: bool) -> tuple[Node, ...]:
    """Kernel by kernel through memory, in the order of the graph."""
    scores = "S2" if causal else "S"
    mask = (rowwise(deal, "S S2", ["mask"]),) if causal else ()
    before = (copy(deal, name, f"{name}0", name) for name in ("Q", "K", "V", "dO"))
    after = (copy(deal, name, name, f"{name}0") for name in ("dQ", "dK", "dV"))
    return (
        *before,
        gemm(deal, "scores", "Q K S", "m n d"),
        *mask,
        rowwise(deal, f"{scores} E P mx z", ["max", "exp", "sum", "divide"]),
        gemm(deal, "values", "P V O", "m e n"),
        gemm(deal, "dV", "P dO dV", "n e m"),
        gemm(deal, "dP", "dO V dP", "m n e"),
        rowwise(deal, "P dP dS r", ["row", "dS"]),
        gemm(deal, "dQ", "dS K dQ", "m d n"),
        gemm(deal, "dK", "dS Q dK", "n d m"),
        *after,
    )


def forward(deal: Deal) -> tuple[Node, ...]:
    """FlashAttention-2's forward kernel: 128 rows of Q against 128 keys (64 at a head dim of 128). An SM holds two of its
    thread blocks of four warps, so that the products of one run beside the exponentials of another."""
    keys = 128 if deal.sizes["d"] <= 64 else 64
    return (parse(FORWARD.format(**deal.shares("m"), tile=deal.tile("m", 128), keys=keys)),)


def forward_by_blocks(deal: Deal) -> tuple[Node, ...]:
    """FlashAttention-1's forward kernel: a block of keys stays while all rows of Q and of the output pass."""
    return (parse(FORWARD_BY_BLOCKS.format(**deal.shares("m"), tile=deal.tile("m", 64))),)


def backward(deal: Deal) -> tuple[Node, ...]:
    """FlashAttention-2's backward kernels: row sums of O dO, then 128 keys against 128 rows of Q (64 at a head dim of 128). dQ is
    summed in L2, as all SMs work on few heads at a time."""
    text = BACKWARD.format(
        **deal.shares("n"), tile=even(deal.sizes["m"], 128 if deal.sizes["d"] <= 64 else 64), keys=deal.tile("n", 128)
    )
    return rowwise(deal, "O dO r", ["row"], 64), parse(text)


def backward_by_blocks(deal: Deal) -> tuple[Node, ...]:
    """FlashAttention-1's backward kernels. dQ is summed in device memory, as each SM works on heads of its own."""
    return rowwise(deal, "O dO r", ["row"], 64), parse(BACKWARD_BY_BLOCKS.format(**deal.shares("b")))


def passed(work: Workload, kernels: tuple[Node, ...]) -> frozenset[str]:
    """Tensors that lie in device memory: inputs, outputs, and what goes from one kernel to another."""
    used = [_used(work, kernel) for kernel in kernels]
    return frozenset({*work.inputs, *work.outputs} | {name for name in work.tensors if sum(name in names for names in used) > 1})


def in_memory(work: Workload, kernels: tuple[Node, ...], outside: frozenset[str]) -> Node:
    """Kernels one after the other, with those of the tensors ``outside`` that they use in device memory."""
    used = outside & {name for kernel in kernels for name in _used(work, kernel)}
    groups = tuple((name,) for name in work.tensors if name in used)
    return Hold("dram", groups, Sequence(kernels) if len(kernels) > 1 else kernels[0])


def _used(work: Workload, kernel: Node) -> set[str]:
    ops = [work.op(node.op) for _, node in walk(kernel) if isinstance(node, Compute)]
    return {name for op in ops for name in (*op.inputs, *op.outputs)}


def in_cache(kernel: Node, buffers: int) -> Node:
    """The kernel with so many buffers for what it holds in L2; with 0 it holds nothing there and reads device memory again.

    >>> from halley.ir.text import to_text
    >>> print(to_text(in_cache(parse("hold l2: A\\n  hold smem: A\\n    compute f"), 0)))
    hold smem: A
      compute f
    """
    match kernel:
        case Hold("l2") if buffers == 0:
            return in_cache(kernel.body, buffers)
        case Hold("l2"):
            return replace(kernel, body=in_cache(kernel.body, buffers), buffers=buffers)
        case Hold() | Temporal() | Spatial():
            return replace(kernel, body=in_cache(kernel.body, buffers))
        case Sequence():
            return Sequence(tuple(in_cache(child, buffers) for child in kernel.children))
        case _:
            return kernel


__all__ = [
    "Along",
    "Deal",
    "backward",
    "backward_by_blocks",
    "copy",
    "even",
    "forward",
    "forward_by_blocks",
    "gemm",
    "in_cache",
    "in_memory",
    "passed",
    "rowwise",
    "standard",
]
