"""Time on the links as a function of the payload: exact for every size, a few operations for a number or a whole array.

A payload of S is cut into C chunks: the first F = floor(S / c) have c = ceil(S / C) bytes, the next one has S - F c, the others
none. No chunk is larger than the one before it. So of two links in one step the one that has, up to every chunk, at least as much
to carry (relative to its bandwidth) is never the faster one; where one outdoes all others, the step's time is a weighted sum of
chunk sizes, and the sum over such steps needs two table look-ups. What remains is kept as alternatives to take the largest of.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number, ceil_div, floor_div, maximum

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """A weighted sum of chunk sizes: ``each[c]`` [s/B], and ``before[c]``, the sum of those before c. Both of C + 1 entries."""

    each: Floats
    before: Floats

    @classmethod
    def of(cls, each: Floats) -> Weights:
        return cls(np.append(each, 0.0), np.concatenate([[0.0], np.cumsum(each)]))

    def over(self, full: Number, chunk: Number, rest: Number) -> Number:
        """``full`` chunks of ``chunk`` bytes and one of ``rest``, as a time [s]."""
        return chunk * self.before[full] + rest * self.each[full]


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds that the links work, summed over steps, by payload [B]: numbers or arrays.

    ``certain``: steps whose slowest link does not depend on the size; ``open_steps``: (how many alike, the links in question).
    """

    cut: int
    certain: Weights
    open_steps: tuple[tuple[int, tuple[Weights, ...]], ...]

    def __call__(self, size: Number) -> Number:
        chunk = ceil_div(size, self.cut)
        full = floor_div(size, chunk)
        rest = size - full * chunk
        places = full.astype(np.intp) if isinstance(full, np.ndarray) else int(full)
        time = self.certain.over(places, chunk, rest)
        for times, rows in self.open_steps:
            longest = rows[0].over(places, chunk, rest)
            for row in rows[1:]:
                longest = maximum(longest, row.over(places, chunk, rest))
            time = time + times * longest
        return time

    @property
    def slope(self) -> float:
        """Time per byte of a payload that the chunks divide [s/B]."""
        return float(self(self.cut)) / self.cut


def curve(
    row_starts: Integers, step_starts: Integers, chunk: Integers, counts: Integers | Floats, bandwidths: Floats, cut: int
) -> Curve:
    """From rows of entries (see `halley.network.evaluate.Layout`); ``chunk``: per entry, its place in the payload."""
    certain = np.zeros(cut)
    unsure: Counter[tuple[bytes, ...]] = Counter()
    row_ends = np.append(row_starts, len(chunk))[1:]
    step_ends = np.append(step_starts, len(row_starts))[1:]
    for begin, end in zip(step_starts.tolist(), step_ends.tolist(), strict=True):
        first, last = row_starts[begin], row_ends[end - 1]
        row = np.repeat(np.arange(end - begin), row_ends[begin:end] - row_starts[begin:end])
        load = np.zeros((end - begin, cut))
        np.add.at(load, (row, chunk[first:last]), counts[first:last])
        load /= bandwidths[begin:end, None]
        rows = _outstanding(load)
        if len(rows) == 1:
            certain += rows[0]
        else:
            unsure[tuple(sorted(item.tobytes() for item in rows))] += 1
    open_steps = tuple(
        (times, tuple(Weights.of(np.frombuffer(item)) for item in items)) for items, times in sorted(unsure.items())
    )
    return Curve(cut, Weights.of(certain), open_steps)


def _outstanding(load: Floats) -> Floats:
    """The rows that no other outdoes up to every chunk."""
    upto = np.cumsum(load, axis=1)
    top = np.flatnonzero((upto == upto.max(axis=0)).all(axis=1))
    if len(top):
        return load[top[:1]]
    kept: list[int] = []
    for index in np.argsort(-upto.sum(axis=1), kind="stable"):  # what outdoes a row has a larger sum, and comes before it
        if not kept or not (upto[kept] >= upto[index]).all(axis=1).any():
            kept.append(int(index))
    return load[kept]
