"""Time on the links as a function of the payload: exact for every size, a few operations for a number or a whole array.

A payload of S is cut into C chunks of c = ceil(S / C): the first floor(S / c) are full, the next one has the rest, the others are
empty. So chunks 0 .. m - 1 have c min(m, x) bytes together, x = S / c, and what one link carries in one step is c times a
function of x alone, linear between whole numbers. The busiest link of a step is the largest of such functions, a collective the
sum over its steps: the time is c g(x) for one piecewise linear function g, whatever algorithm, graph and size. Its pieces are
found once (`curve`, `summed`); neighbours on one line are one piece, and most collectives have one or few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.formulas.busiest import piece_bytes
from halley.formulas.numbers import Number, ceil_div

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]

MOST_CELLS = 1 << 16
"""Most entries of a curve's index of pieces."""


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """What the busiest links carry, summed over steps, by payload [B]: numbers or arrays.

    Pieces begin at ``knots`` (values of S / c, rising, from 1 on; at the end infinity). Each is a straight line of slope
    ``each`` with the value ``before`` [chunks] at ``base``, the whole number below. ``bandwidth`` [B/s]: of the links whose
    bytes count as they are; on slower ones they count more. ``first``: the piece at every whole multiple of 1 / ``fineness``,
    behind which ``most`` more begin before the next.
    """

    cut: int
    bandwidth: float
    knots: Floats
    base: Floats
    before: Floats
    each: Floats
    first: Places
    fineness: int
    most: int

    def bytes(self, size: Number) -> Number:
        """Bytes on the busiest link of each step, summed: whole numbers where all links are equal."""
        chunk = ceil_div(size, self.cut)
        piece = self._piece(size, chunk)
        return piece_bytes(self.base[piece], self.before[piece], self.each[piece], chunk, size)

    def _piece(self, size: Number, chunk: Number) -> Number:
        if len(self.base) == 1:
            return 0
        part = size / chunk
        if not isinstance(part, np.ndarray):
            return int(np.searchsorted(self.knots, part, "right")) - 1
        if part.min(initial=self.cut) >= self.knots[-2]:
            return -1  # as of payloads that are large
        piece = self.first[(part * self.fineness).astype(np.intp)]
        for _ in range(self.most):
            piece += part >= self.knots[piece + 1]
        return piece

    def __call__(self, size: Number) -> Number:
        """Seconds that the links work, summed over steps."""
        return self.bytes(size) / self.bandwidth


def curve(
    row_starts: Integers, step_starts: Integers, chunk: Integers, counts: Integers | Floats, bandwidths: Floats, cut: int
) -> Curve:
    """From rows of entries (see `halley.network.time.evaluate.Layout`); ``chunk``: per entry, its place in the payload."""
    fastest = float(bandwidths.max(initial=0.0)) or 1.0
    alike: Counter[bytes] = Counter()
    row_ends = np.append(row_starts, len(chunk))[1:]
    step_ends = np.append(step_starts, len(row_starts))[1:]
    for begin, end in zip(step_starts.tolist(), step_ends.tolist(), strict=True):
        first, last = row_starts[begin], row_ends[end - 1]
        row = np.repeat(np.arange(end - begin), row_ends[begin:end] - row_starts[begin:end])
        load = np.zeros((end - begin, cut))
        np.add.at(load, (row, chunk[first:last]), counts[first:last])
        load *= (fastest / bandwidths[begin:end])[:, None]
        alike[b"".join(sorted(item.tobytes() for item in _outstanding(load)))] += 1
    steps = [(np.frombuffer(rows).reshape(-1, cut), times) for rows, times in sorted(alike.items())]
    certain = sum((times * load for load, times in steps if len(load) == 1), np.zeros((1, cut)))
    return _joined(cut, fastest, [_longest(certain, 1), *(_longest(*step) for step in steps if len(step[0]) > 1)])


def summed(loads: Sequence[Floats], bandwidth: float) -> Curve:
    """From [links, chunks], one for each step: how often each link of a step carries each chunk.

    >>> summed([np.array([[2.0, 0.0], [1.0, 3.0]])], 10.0).bytes(np.array([2.0, 3.0, 4.0])).tolist()
    [4.0, 5.0, 8.0]
    """
    return _joined(loads[0].shape[1], bandwidth, [_longest(_outstanding(load), 1) for load in loads])


@dataclass(frozen=True, eq=False, slots=True)
class _Bends:
    """A piecewise linear function from 1 on: ``value`` and ``slope`` at every whole number, and the bends behind each: ``cell``,
    that number; ``place``, how far behind; by how much the line's ``value`` at the whole number, and its ``slope``, change."""

    value: Floats
    slope: Floats
    cell: Integers
    place: Floats
    value_change: Floats
    slope_change: Floats


def _longest(load: Floats, times: int) -> _Bends:
    """The largest of the functions that rise by ``load`` [rows, cut] up to 1, 2, ..., so many times; all cells at once."""
    cut = load.shape[1]
    start = np.cumsum(load, axis=1)[:, : max(cut - 1, 1)]  # at 1 and behind it, as every payload has a full chunk
    rise = load[:, 1:] if cut > 1 else np.zeros_like(load)
    cells = np.arange(start.shape[1])
    now = np.where(start == start.max(axis=0), rise, -1.0).argmax(axis=0)
    value, slope = start[now, cells], rise[now, cells]
    bends = [np.zeros((4, 0))]
    while len(cells):
        lead, steeper = start[now, cells] - start[:, cells], rise[:, cells] - rise[now, cells]
        meeting = np.divide(lead, steeper, out=np.ones_like(lead), where=steeper > 0)
        place = meeting.min(axis=0)
        after = np.where(meeting == place, rise[:, cells], -1.0).argmax(axis=0)
        bent = place < 1
        cells, place, now, after = cells[bent], place[bent], now[bent], after[bent]
        bends.append(np.stack([cells, place, start[after, cells] - start[now, cells], rise[after, cells] - rise[now, cells]]))
        now = after
    cell, place, value_change, slope_change = np.concatenate(bends, axis=1)
    return _Bends(times * value, times * slope, cell, place, times * value_change, times * slope_change)


def _joined(cut: int, bandwidth: float, parts: list[_Bends]) -> Curve:
    """The sum of functions. Neighbouring pieces on one line become one."""
    value = np.sum([part.value for part in parts], axis=0)
    slope = np.sum([part.slope for part in parts], axis=0)
    bends = np.concatenate([np.stack([part.cell, part.place, part.value_change, part.slope_change]) for part in parts], axis=1)
    bends = bends[:, np.lexsort((bends[1], bends[0]))]
    ends = np.searchsorted(bends[0], np.arange(len(value) + 1))
    found: list[tuple[float, float, float, float]] = []
    for cell, line in enumerate(zip(value.tolist(), slope.tolist(), strict=True)):
        base, (before, each) = float(cell + 1), line
        if not found or (before, each) != (_at(found[-1], base), found[-1][3]):
            found.append((base, base, before, each))
        for _, place, value_change, slope_change in bends[:, ends[cell] : ends[cell + 1]].T.tolist():
            before, each = before + value_change, each + slope_change
            if found[-1][0] == base + place:
                found.pop()  # several steps bend there
            found.append((base + place, base, before, each))
    knots, bases, befores, eaches = np.array(found).T
    return Curve(cut, bandwidth, np.append(knots, np.inf), bases, befores, eaches, *_index(knots, cut))


def _at(piece: tuple[float, float, float, float], part: float) -> float:
    _, base, before, each = piece
    return before + (part - base) * each


def _index(knots: Floats, cut: int) -> tuple[Places, int, int]:
    """The piece at every multiple of 1 / fineness, the fineness, and how many pieces at most begin between two multiples: no more
    than one if the index need not be too large for that."""
    fineness = 1
    while True:
        marks = np.arange(cut * fineness + 1)
        first = np.searchsorted(knots, marks / fineness, "right") - 1
        inside = np.bincount(np.floor(knots[knots * fineness % 1 > 0] * fineness).astype(np.intp))
        most = int(inside.max(initial=0))
        if most <= 1 or 2 * cut * fineness > MOST_CELLS:
            return first, fineness, most
        fineness *= 2


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
