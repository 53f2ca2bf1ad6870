"""Mappings that are run on a GPU as Triton kernels: what each is, with its text for Halley.

A program of a kernel is one core of the chip's grid of 12 x 11, and stays there for the whole kernel. So each kernel does what
its mapping says: which core has which tiles, in which order, in how many buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ROWS, COLUMNS = 12, 11
"""Cores of an H100 or H200 along sm.x and sm.y."""
SHARED = 227 * 1024
"""Shared memory [B] that a kernel may take."""
ELEMENT = 2
"""Bytes of an operand (bf16)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One mapping. ``kind``: what it computes. ``sizes``: of the workload. ``tile``: rows, columns and depth of a core's tile in
    one step; ``buffers`` of it in shared memory."""

    kind: str
    sizes: tuple[int, ...]
    tile: tuple[int, int, int]
    buffers: int

    @property
    def problem(self) -> str:
        """For a table."""
        return f"{self.kind} {' x '.join(map(str, self.sizes))}"

    def __str__(self) -> str:
        return f"{self.problem}, tiles {' x '.join(map(str, self.tile))}, {self.buffers} buffers"


GEMM, FLAT, SPLIT, SOFTMAX = "gemm", "flat gemm", "gemm, split contraction", "gemm-softmax"
ATTENTION, CAUSAL, DECODE = "attention", "causal attention", "attention of one token"
HEADS = COLUMNS
"""One head (of keys) for each column of cores."""
GROUP = 16
"""Query heads for each head of keys, in attention of one token."""

GEMMS = ((6144, 5632, 4096), (3072, 2816, 2048), (1536, 1408, 4096), (768, 1408, 8192))
FLATS = ((64, 16896, 4096), (64, 8448, 8192), (128, 16896, 2048))
SPLITS = ((128, 1408, 6144), (64, 704, 12288), (256, 2816, 6144))
SOFTMAXES = ((1536, 2816, 128), (1536, 2816, 512), (1536, 2816, 2048), (768, 1408, 1024), (3072, 1408, 512))
ATTENTIONS = ((3072, 128), (6144, 128), (1536, 128), (3072, 64))
"""Tokens and the dim of a head, with `HEADS` heads."""
DECODES = ((12288, 128), (49152, 128), (24576, 64))
"""Tokens in the cache and the dim of a head."""
WIDTHS, DEPTHS, BUFFERS = (64, 128, 256), (32, 64, 128), (2, 3, 4)


def _products(kind: str, sizes: tuple[int, ...]) -> Iterator[Case]:
    m, n, k = sizes
    rows = m if kind in (SPLIT, FLAT) else m // ROWS
    columns = n // (ROWS * COLUMNS) if kind == FLAT else n // COLUMNS
    depth = k // ROWS if kind == SPLIT else k
    for bm in WIDTHS:
        for bn in WIDTHS:
            for bk in DEPTHS:
                for buffers in BUFFERS:
                    whole = rows % bm == 0 and columns % bn == 0 and depth % bk == 0
                    if whole and ELEMENT * bk * (bm + bn) * buffers <= SHARED and bm * bn <= 128 * 256:
                        yield Case(kind, sizes, (bm, bn, bk), buffers)


def _softmaxes(sizes: tuple[int, ...]) -> Iterator[Case]:
    m, n, _ = sizes
    for case in _products(GEMM, sizes):
        if case.tile[0] * ROWS <= m and case.tile[1] * COLUMNS == n:
            yield Case(SOFTMAX, sizes, case.tile, case.buffers)


def _attentions(kind: str, sizes: tuple[int, ...]) -> Iterator[Case]:
    tokens, head = sizes
    for bm in (64, 128):
        for bn in (32, 64, 128):
            for buffers in BUFFERS:
                shared = ELEMENT * head * (bm + 2 * bn * buffers)
                if tokens // ROWS % bm == 0 and shared <= SHARED:
                    yield Case(kind, sizes, (bm, bn, head), buffers)


def _decodes(sizes: tuple[int, ...]) -> Iterator[Case]:
    tokens, head = sizes
    for bn in (32, 64, 128, 256):
        for buffers in BUFFERS:
            if tokens // ROWS % bn == 0 and 2 * ELEMENT * head * bn * buffers <= SHARED:
                yield Case(DECODE, sizes, (GROUP, bn, head), buffers)


def cases() -> tuple[Case, ...]:
    """All of them."""
    found = [case for sizes in GEMMS for case in _products(GEMM, sizes)]
    found += [case for kind, each in ((SPLIT, SPLITS), (FLAT, FLATS)) for sizes in each for case in _products(kind, sizes)]
    found += [case for sizes in SOFTMAXES for case in _softmaxes(sizes)]
    found += [case for kind in (ATTENTION, CAUSAL) for sizes in ATTENTIONS for case in _attentions(kind, sizes)]
    found += [case for sizes in DECODES for case in _decodes(sizes)]
    return tuple(found)
