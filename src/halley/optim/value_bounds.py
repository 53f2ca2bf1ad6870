"""Lower bounds of a sum of tables over one or two variables each: of the least sum, and of the least with any one value.

Costs are moved between tables so that no sum changes (equivalence-preserving transformations: Cooper et al., Artificial
Intelligence 174, 2010), in passes over the variables in an order and back (sequential reweighted message passing: Kolmogorov,
IEEE TPAMI 28, 2006). What every value of a variable costs in a table moves to the variable; what the variable costs moves on, in
equal shares, to those that come later. All tables stay at 0 or more, so the sum of the least cost of each variable is a bound
of the whole, and it never falls.

    A[x, y] >= 0, B[y, z] >= 0   ->   A - a[y], B + a[y]   with a[y] = min over x of A[x, y]

Tables are only read. What has moved out of one is kept beside it, for each value of its two variables: a table is what was given
less both.

The bound is that of the linear relaxation over consistent pairs at best, and may stop short of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.optim.elimination import Table, aligned
from halley.optim.switch import Switch

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

SWITCH = Switch("halley.optim.value_bounds_compiled", patience=1.0)
"""Whether passes run compiled."""

PAIR_TIME, VALUE_TIME = 1e-5, 2e-9
"""About what NumPy takes in a pass for a pair of variables, and for each pair of their values [s]."""

CHAINED = 3
"""Neighbours of a variable that is one of a chain, at most: those beside it, and one that hangs on it."""

SLACK = 1e-10
"""By how much a bound has to exceed a sum that was found before a value is given up, relative: far more than what rounding
adds up to, far less than what counts as a difference."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Which variables share a table, as numbers. ``sizes`` of the variables, whose values lie in a row from ``places`` on; a
    table of ``first`` and ``second`` (a later variable), row by row, from ``spots`` on, and what has moved out of it to the
    values of both from ``sides`` on. Variable v is in the tables ``of[starts[v]]`` to ``of[starts[v + 1] - 1]``."""

    sizes: Indices
    places: Indices
    first: Indices
    second: Indices
    spots: Indices
    sides: Indices
    starts: Indices
    of: Indices


@dataclass(slots=True, eq=False)
class ValueBounds:
    """Costs on their way. ``left``: by variable, the values (numbers in the tables that were given) that are looked at.
    ``single``, ``double``: costs of values, and of pairs before any ``moved``; ``constant`` besides. ``lowest``: no sum is less.
    ``of_values``: no sum with this value is less. ``best``: the least sum that was met, with the ``chosen`` values; infinite if
    none was."""

    names: tuple[str, ...]
    left: list[Indices]
    pairs: Pairs
    single: Numbers
    double: Numbers
    moved: Numbers
    constant: float
    forbidden: float
    of_values: Numbers
    best: float = math.inf
    chosen: Mapping[str, int] | None = None
    lowest: float = -math.inf

    def sweep(self, rounds: int = 1) -> None:
        """Passes over the variables, forward and back."""
        least = np.minimum.reduceat(self.single, self.pairs.places[:-1])
        self.lowest = self.constant + math.fsum(least)
        compiled = SWITCH.kernels()
        run: Callable[..., float] = compiled.sweep if compiled is not None else sweep
        p = self.pairs
        for number in range(2 * rounds):
            values = np.zeros(len(self.names), np.int64)
            bound = run(
                p.sizes, p.places, p.first, p.second, p.spots, p.sides, p.starts, p.of,
                self.single, self.double, self.moved, self.of_values, least, values, self.lowest, number % 2 == 1,
            )  # fmt: skip
            self.lowest = float(bound)
            self._meet(values)
        if compiled is None:
            SWITCH.spent += 2 * rounds * (len(p.first) * PAIR_TIME + len(self.double) * VALUE_TIME)

    def _meet(self, values: Indices) -> None:
        """Compares the sum at these values with the best."""
        p = self.pairs
        pairs = p.spots[:-1] + values[p.first] * p.sizes[p.second] + values[p.second]
        gone = self.moved[p.sides[:-1] + values[p.first]] + self.moved[p.sides[:-1] + p.sizes[p.first] + values[p.second]]
        total = self.constant + float(self.single[p.places[:-1] + values].sum() + (self.double[pairs] - gone).sum())
        if total < min(self.best, self.constant + self.forbidden):
            self.best = total
            self.chosen = {name: int(left[value]) for name, left, value in zip(self.names, self.left, values, strict=True)}

    @property
    def distance(self) -> float:
        """Between the best and the bound."""
        return self.best - self.lowest

    @property
    def closed(self) -> bool:
        """No sum is less than the best by more than rounding."""
        return self.distance <= SLACK * abs(self.best) < math.inf

    @property
    def impossible(self) -> bool:
        """No sum is finite."""
        return self.lowest >= self.constant + self.forbidden

    def needed(self, most: float | None = None) -> NDArray[np.bool_]:
        """By value, whether a sum up to ``most``, or one as good as the best, may have it."""
        most = self.best if most is None else most
        return self.of_values <= (most + SLACK * abs(most) if math.isfinite(most) else math.inf)

    def promising(self, count: int) -> dict[str, Indices]:
        """By variable, that many values: those of the least bounds, with the one that was chosen in the best sum. (Always as
        many, so that the order of elimination is known from before.)"""
        found = {}
        for name, left, start, end in zip(self.names, self.left, self.pairs.places, self.pairs.places[1:], strict=False):
            first = left[np.argsort(self.of_values[start:end], kind="stable")[:count]]
            if self.chosen is not None and self.chosen[name] not in first:
                first[-1] = self.chosen[name]
            found[name] = np.sort(first)
        return found

    def bounds(self, name: str, values: int, others: float | None = None) -> Numbers:
        """By value of a variable, a bound of all sums with it; ``values``: how many it had at first. Those that are no longer
        looked at are beyond ``others``, or beyond the best."""
        at = self.names.index(name)
        found = np.full(values, self.best if others is None else others)
        found[self.left[at]] = self.of_values[self.pairs.places[at] : self.pairs.places[at + 1]]
        return found

    def restricted(self, keep: NDArray[np.bool_]) -> ValueBounds:
        """The same without the values that are not in ``keep``."""
        p = self.pairs
        masks = [keep[start:end] for start, end in zip(p.places, p.places[1:], strict=False)]
        rows = [np.flatnonzero(mask) for mask in masks]
        pieces, moved = list[Numbers](), list[Numbers]()
        for edge, (one, other) in enumerate(zip(p.first, p.second, strict=True)):
            block = self.double[p.spots[edge] : p.spots[edge + 1]].reshape(p.sizes[one], p.sizes[other])
            for axis, end in enumerate((one, other)):
                if len(rows[end]) < p.sizes[end]:
                    block = block.take(rows[end], axis)
            pieces.append(block.ravel())
            moved.append(self.moved[p.sides[edge] : p.sides[edge + 1]][np.concatenate((masks[one], masks[other]))])
        sizes = np.array([int(mask.sum()) for mask in masks])
        left = [numbers[mask] for numbers, mask in zip(self.left, masks, strict=True)]
        pairs = Pairs(sizes, _starts(sizes), p.first, p.second, *_edges(sizes, p.first, p.second), p.starts, p.of)
        return ValueBounds(
            self.names,
            left,
            pairs,
            self.single[keep],
            _row(pieces),
            _row(moved),
            self.constant,
            self.forbidden,
            self.of_values[keep],
            self.best,
            self.chosen,
            self.lowest,
        )

    def with_value(self, name: str, value: int) -> ValueBounds:
        """The same for one value of a variable."""
        at = self.names.index(name)
        keep = np.ones(len(self.single), bool)
        keep[self.pairs.places[at] : self.pairs.places[at + 1]] = self.left[at] == value
        found = self.restricted(keep)
        if self.chosen is None or self.chosen[name] != value:
            found.best, found.chosen = math.inf, None
        return found


def value_bounds(tables: Sequence[Table]) -> ValueBounds:
    """Bounds of the sum of tables of at most two variables each, one variable or more in all.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = value_bounds(chain)
    >>> found.sweep()
    >>> found.lowest, found.best, found.chosen, found.of_values.tolist()
    (4.0, 4.0, {'x': 1, 'y': 1, 'z': 0}, [8.0, 4.0, 9.0, 4.0, 4.0])
    """
    extents: dict[str, int] = {}
    for item in tables:
        extents.update(zip(item.variables, item.values.shape, strict=True))
    names = _walk(tables)
    number = {name: place for place, name in enumerate(names)}
    sizes = np.array([extents[name] for name in names], np.int64)
    places = _starts(sizes)
    walked = [(*sorted(item.variables, key=number.__getitem__),) for item in tables]
    joined: dict[tuple[str, ...], None] = dict.fromkeys(names for names in walked if len(names) == 2)
    edges = dict(zip(joined, range(len(joined)), strict=True))
    first, second = (np.array([number[names[side]] for names in edges], np.int64) for side in (0, 1))
    spots, sides = _edges(sizes, first, second)
    single, double, constant = np.zeros(places[-1]), np.zeros(spots[-1]), 0.0
    ranges = [_range(item.values) for item in tables]
    # sums that are forbidden cost more than any that is not
    forbidden = 2 * math.fsum(highest - lowest for lowest, highest, _ in ranges) or 1.0
    for item, ordered, (lowest, _, whole) in zip(tables, walked, ranges, strict=True):
        constant += lowest
        values = item.values - lowest if whole else np.minimum(item.values - lowest, forbidden)
        if len(ordered) == 1:
            at = number[ordered[0]]
            single[places[at] : places[at + 1]] += values
        elif ordered:
            edge = edges[ordered]
            turned = aligned(Table(item.variables, values), ordered)
            double[spots[edge] : spots[edge + 1]].reshape(turned.shape)[...] += turned
    ends = np.concatenate((first, second))
    by_variable = np.argsort(ends, kind="stable")
    starts = np.searchsorted(ends[by_variable], np.arange(len(sizes) + 1)).astype(np.int64)
    pairs = Pairs(sizes, places, first, second, spots, sides, starts, (by_variable % max(len(first), 1)).astype(np.int64))
    left = [np.arange(size, dtype=np.int64) for size in sizes]
    moved = np.zeros(sides[-1])
    return ValueBounds(names, left, pairs, single, double, moved, constant, forbidden, np.full(len(single), -math.inf))


def _range(values: Numbers) -> tuple[float, float, bool]:
    """The least and the largest of what is finite, 0 where nothing is; and whether all is."""
    lowest, highest = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
    if math.isfinite(lowest) and math.isfinite(highest):
        return lowest, highest, True
    allowed = values[np.isfinite(values)]
    return (float(allowed.min()), float(allowed.max()), False) if allowed.size else (0.0, 0.0, False)


def _walk(tables: Sequence[Table]) -> tuple[str, ...]:
    """The variables in the order of the passes: as they first come, each followed by the chains that begin at it, so that what is
    moved along a chain arrives in one pass."""
    near: dict[str, dict[str, None]] = {}
    for item in tables:
        for name in item.variables:
            near.setdefault(name, {}).update((other, None) for other in item.variables if other != name)
    found: dict[str, None] = {}
    for name in near:
        waiting = [name]
        while waiting:
            following = waiting.pop()
            if following not in found:
                found[following] = None
                waiting += (other for other in reversed(near[following]) if len(near[other]) <= CHAINED)
    return tuple(found)


def _edges(sizes: Indices, first: Indices, second: Indices) -> tuple[Indices, Indices]:
    """Where tables begin, and what has moved out of them."""
    return _starts(sizes[first] * sizes[second]), _starts(sizes[first] + sizes[second])


def _row(pieces: Sequence[Numbers]) -> Numbers:
    return np.concatenate(pieces) if pieces else np.zeros(0)


def _starts(sizes: Indices) -> Indices:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def sweep(
    sizes: Indices, places: Indices, first: Indices, second: Indices, spots: Indices, sides: Indices, starts: Indices,
    of: Indices, single: Numbers, double: Numbers, moved: Numbers, of_values: Numbers, least: Numbers, chosen: Indices,
    lowest: float, backward: bool,
) -> float:  # fmt: skip
    """One pass over the variables; gives the new bound. ``least``: the least cost of each variable. Fills ``chosen``: of each
    variable the value that costs least with those that were chosen before."""
    count = len(sizes)
    costs = [single[places[v] : places[v + 1]] for v in range(count)]
    for v in range(count - 1, -1, -1) if backward else range(count):
        own = costs[v]
        ahead, behind = (list[tuple[np.int64, Numbers, Numbers, Numbers]]() for _ in range(2))
        for edge in of[starts[v] : starts[v + 1]]:
            rows = sizes[first[edge]]
            block = double[spots[edge] : spots[edge + 1]].reshape(rows, sizes[second[edge]])
            sides_of = moved[sides[edge] : sides[edge] + rows], moved[sides[edge] + rows : sides[edge + 1]]
            item = (second[edge], block, *sides_of) if first[edge] == v else (first[edge], block.T, *sides_of[::-1])
            (ahead if (item[0] > v) != backward else behind).append(item)
        for _, block, mine, theirs in ahead:
            shared = (block - theirs).min(axis=1) - mine
            mine += shared
            own += shared
        now = float(own.min())
        lowest += now - least[v]
        values = of_values[places[v] : places[v + 1]]
        np.maximum(values, lowest + (own - now), out=values)
        joint = own.copy()
        for other, block, mine, theirs in behind:
            joint += block[:, chosen[other]] - mine - theirs[chosen[other]]
        chosen[v] = joint.argmin()
        if ahead:
            share = own / max(len(ahead), len(behind))
            for other, block, mine, theirs in ahead:
                mine -= share
                shared = (block - mine[:, None]).min(axis=0) - theirs
                theirs += shared
                costs[other] += shared
                after = float(costs[other].min())
                lowest += after - least[other]
                least[other] = after
                own -= share
            after = float(own.min())
            lowest += after - now
            now = after
        least[v] = now
    return lowest
