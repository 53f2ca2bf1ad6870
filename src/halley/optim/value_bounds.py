"""Lower bounds of a sum of tables over one or two variables each: of the least sum, and of the least sum with each value.

Costs move between tables so that no sum changes (equivalence-preserving transformations: Cooper et al., Artificial Intelligence
174, 2010), in passes over the variables forward and back (sequential reweighted message passing: Kolmogorov, IEEE TPAMI 28,
2006). A cost that a table adds for every combination with a value moves to that value; the costs of a variable's values move
on, in equal parts, to the tables with later variables. All entries stay at 0 or more, so the sum over variables of their least
cost is a lower bound of the least sum, and it never falls.

    A[x, y] >= 0, B[y, z] >= 0   ->   A - a[y], B + a[y]   with a[y] = min over x of A[x, y]

The given tables are not changed. What has moved out of a table is stored separately, for each value of its two variables: the
table's entries are those given less both.

The bound is at best that of the local-consistency linear relaxation, and may be below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.optim.elimination import CostTable, aligned
from halley.optim.switch import CompiledLoops

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

SWITCH = CompiledLoops("halley.optim.value_bounds_compiled", load_after=1.0)
"""Whether passes run compiled."""

PAIR_SECONDS, VALUE_SECONDS = 1e-5, 2e-9
"""Approximate NumPy time of a pass [s]: for each table of two variables, and for each of its entries."""

CHAIN_NEIGHBOURS = 3
"""Largest number of neighbours of a variable in a chain: the two beside it, and one attached to it."""

RELATIVE_ROUNDING = 1e-10
"""By how much, relative, a bound has to exceed a sum that was found before its value is pruned: far more than accumulated
rounding, far less than a relevant difference."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The tables of two variables, as index arrays. ``sizes``: number of values of each variable; variable v's values start at
    ``places[v]``. Table e has variables ``first[e]`` and ``second[e]`` (the later one); its entries, row by row, start at
    ``spots[e]``; what has moved out of it to the values of both starts at ``sides[e]``. Variable v is in tables
    ``of[starts[v]]`` to ``of[starts[v + 1] - 1]``."""

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
    """State of the bounds. ``left``: by variable, the remaining values (numbers in the given tables). ``single``, ``double``:
    costs of values, and of pairs before ``moved`` is subtracted; ``constant``: cost of all sums. ``lowest``: a lower bound
    of all sums. ``of_values``: lower bounds by value. ``best``: the least sum found, with its ``chosen`` values; infinite if
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
        """Passes over the variables, forward and back, ``rounds`` times."""
        least = np.minimum.reduceat(self.single, self.pairs.places[:-1])
        self.lowest = self.constant + math.fsum(least)
        compiled = SWITCH.loops()
        run: Callable[..., float] = compiled.sweep if compiled is not None else sweep
        p = self.pairs
        for number in range(2 * rounds):
            values = np.zeros(len(self.names), np.int64)
            bound = run(
                p.sizes, p.places, p.first, p.second, p.spots, p.sides, p.starts, p.of,
                self.single, self.double, self.moved, self.of_values, least, values, self.lowest, number % 2 == 1,
            )  # fmt: skip
            self.lowest = float(bound)
            self._record_sum(values)
        if compiled is None:
            SWITCH.spent += 2 * rounds * (len(p.first) * PAIR_SECONDS + len(self.double) * VALUE_SECONDS)

    def _record_sum(self, values: Indices) -> None:
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
        """best - lowest."""
        return self.best - self.lowest

    @property
    def closed(self) -> bool:
        """Whether the best sum exceeds the bound by no more than rounding."""
        return self.distance <= RELATIVE_ROUNDING * abs(self.best) < math.inf

    @property
    def impossible(self) -> bool:
        """Whether no sum is finite."""
        return self.lowest >= self.constant + self.forbidden

    def needed(self, most: float | None = None) -> NDArray[np.bool_]:
        """By value, whether it may be in a sum up to ``most``; without it, in one as good as the best."""
        most = self.best if most is None else most
        return self.of_values <= (most + RELATIVE_ROUNDING * abs(most) if math.isfinite(most) else math.inf)

    def promising(self, count: int) -> dict[str, Indices]:
        """By variable, ``count`` values of lowest bound, with the one in the best sum among them. The number is constant, so
        that the elimination order is cached."""
        found = {}
        for name, left, start, end in zip(self.names, self.left, self.pairs.places, self.pairs.places[1:], strict=False):
            first = left[np.argsort(self.of_values[start:end], kind="stable")[:count]]
            if self.chosen is not None and self.chosen[name] not in first:
                first[-1] = self.chosen[name]
            found[name] = np.sort(first)
        return found

    def bounds(self, name: str, values: int, others: float | None = None) -> Numbers:
        """By value of a variable, a lower bound of all sums with it; ``values``: how many it had at first. Pruned values get
        ``others``, or the best sum."""
        at = self.names.index(name)
        found = np.full(values, self.best if others is None else others)
        found[self.left[at]] = self.of_values[self.pairs.places[at] : self.pairs.places[at + 1]]
        return found

    def restricted(self, keep: NDArray[np.bool_]) -> ValueBounds:
        """The bounds without the values outside ``keep``."""
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
        """The bounds with one value of a variable fixed."""
        at = self.names.index(name)
        keep = np.ones(len(self.single), bool)
        keep[self.pairs.places[at] : self.pairs.places[at + 1]] = self.left[at] == value
        found = self.restricted(keep)
        if self.chosen is None or self.chosen[name] != value:
            found.best, found.chosen = math.inf, None
        return found


def value_bounds(tables: Sequence[CostTable]) -> ValueBounds:
    """Bounds of the sum of tables of at most two variables each, at least one variable in all.

    >>> chain = [CostTable(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), CostTable(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = value_bounds(chain)
    >>> found.sweep()
    >>> found.lowest, found.best, found.chosen, found.of_values.tolist()
    (4.0, 4.0, {'x': 1, 'y': 1, 'z': 0}, [8.0, 4.0, 9.0, 4.0, 4.0])
    """
    extents: dict[str, int] = {}
    for item in tables:
        extents.update(zip(item.variables, item.values.shape, strict=True))
    names = _sweep_order(tables)
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
    # forbidden sums cost more than any allowed one
    forbidden = 2 * math.fsum(highest - lowest for lowest, highest, _ in ranges) or 1.0
    for item, ordered, (lowest, _, whole) in zip(tables, walked, ranges, strict=True):
        constant += lowest
        values = item.values - lowest if whole else np.minimum(item.values - lowest, forbidden)
        if len(ordered) == 1:
            at = number[ordered[0]]
            single[places[at] : places[at + 1]] += values
        elif ordered:
            edge = edges[ordered]
            turned = aligned(CostTable(item.variables, values), ordered)
            double[spots[edge] : spots[edge + 1]].reshape(turned.shape)[...] += turned
    ends = np.concatenate((first, second))
    by_variable = np.argsort(ends, kind="stable")
    starts = np.searchsorted(ends[by_variable], np.arange(len(sizes) + 1)).astype(np.int64)
    pairs = Pairs(sizes, places, first, second, spots, sides, starts, (by_variable % max(len(first), 1)).astype(np.int64))
    left = [np.arange(size, dtype=np.int64) for size in sizes]
    moved = np.zeros(sides[-1])
    return ValueBounds(names, left, pairs, single, double, moved, constant, forbidden, np.full(len(single), -math.inf))


def _range(values: Numbers) -> tuple[float, float, bool]:
    """The least and the largest finite value, 0 where there is none; and whether all values are finite."""
    lowest, highest = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
    if math.isfinite(lowest) and math.isfinite(highest):
        return lowest, highest, True
    allowed = values[np.isfinite(values)]
    return (float(allowed.min()), float(allowed.max()), False) if allowed.size else (0.0, 0.0, False)


def _sweep_order(tables: Sequence[CostTable]) -> tuple[str, ...]:
    """The order of the variables in a pass: as they first occur, each followed by the chains that start at it, so that costs
    move along a chain in one pass."""
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
                waiting += (other for other in reversed(near[following]) if len(near[other]) <= CHAIN_NEIGHBOURS)
    return tuple(found)


def _edges(sizes: Indices, first: Indices, second: Indices) -> tuple[Indices, Indices]:
    """Start of each table's entries, and of what has moved out of it."""
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
    """One pass over the variables; returns the new bound. ``least``: the least cost of each variable. Fills ``chosen`` with the
    value of each variable that costs least given those chosen before."""
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
