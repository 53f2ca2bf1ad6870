"""Which blocks the chunks and stages of a training plan have, by number. Computed once for plans that agree in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.pipeline.schedule import Integers

T = TypeVar("T")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BlockCounts:
    """Distinct chunks and blocks are numbered in the order in which they occur; chunks or blocks that are one object have one
    number.

    ``chunk`` [chunks]: number of each chunk. ``blocks`` [distinct chunks, distinct blocks]: how many blocks of each number a
    chunk has. ``kind`` [stages]: stages with the same chunks are of one kind. ``firsts`` [kinds]: first stage of each kind.
    ``held`` [kinds, distinct blocks], ``run`` [kinds, distinct chunks]: how many of each number a stage has.
    """

    chunk: Integers
    blocks: Integers
    kind: Integers
    firsts: tuple[int, ...]
    held: Integers
    run: Integers


def numbered(given: Sequence[T]) -> tuple[list[T], tuple[int, ...]]:
    """The distinct objects in order; and for each given object its number among them.

    >>> one, other = [1], [1]
    >>> numbered([one, other, one])
    ([[1], [1]], (0, 1, 0))
    """
    known: dict[int, int] = {}
    numbers = tuple([known.setdefault(id(each), len(known)) for each in given])
    if len(known) == len(given):
        return list(given), numbers
    firsts = dict(zip(reversed(numbers), reversed(given), strict=True))
    return [firsts[number] for number in range(len(known))], numbers


@lru_cache(maxsize=1024)
def block_counts(chunks: tuple[int, ...], blocks: tuple[tuple[int, ...], ...], stages: int) -> BlockCounts:
    """The counts of a plan with these ``chunks`` (numbers, in the order of the model) and these ``blocks`` (numbers) of each
    distinct chunk.

    >>> found = block_counts((0, 1, 1, 2), ((0, 1), (1, 1), (1, 2)), 2)
    >>> found.held.tolist(), found.run.tolist()
    ([[1, 3, 0], [0, 3, 1]], [[1, 1, 0], [0, 1, 1]])
    """
    most = 1 + max(max(each) for each in blocks)
    counts = np.stack([np.bincount(each, minlength=most) for each in blocks])
    chunk = np.array(chunks, np.int64)
    kinds: dict[bytes, int] = {}
    kind = np.array([kinds.setdefault(chunk[stage::stages].tobytes(), len(kinds)) for stage in range(stages)])
    firsts = tuple(np.unique(kind, return_index=True)[1].tolist())
    run = np.stack([np.bincount(chunk[first::stages], minlength=len(blocks)) for first in firsts])
    return BlockCounts(chunk, counts, kind, firsts, run @ counts, run)


def table_of(values: Sequence[Number]) -> Floats:
    """[values, plans] from numbers and arrays over plans.

    >>> table_of([3.0, np.array([1.0, 2.0])]).tolist()
    [[3.0, 3.0], [1.0, 2.0]]
    """
    table = np.empty((len(values), max(each.size if isinstance(each, np.ndarray) else 1 for each in values)))
    for row, each in zip(table, values, strict=True):
        row[:] = each
    return table


def summed(counts: Integers, values: Floats) -> Floats:
    """[rows, plans] the sum of values [values, plans] weighted with counts [rows, values]; added in one order for any number of
    plans.

    >>> summed(np.array([[1, 3], [0, 2]]), np.array([[5.0, 6.0], [7.0, 8.0]])).tolist()
    [[26.0, 30.0], [14.0, 16.0]]
    """
    return np.asarray(total(column[:, None] * value for column, value in zip(counts.T, values, strict=True)))
