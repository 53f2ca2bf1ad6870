"""Lower bounds of a sum of tables over one or two variables each: of the least sum, and of the least with any one value.

Costs are moved between tables so that no sum changes (equivalence-preserving transformations: Cooper et al., Artificial
Intelligence 174, 2010), in passes over the variables in an order and back (sequential reweighted message passing: Kolmogorov,
IEEE TPAMI 28, 2006). What every value of a variable costs in a table moves to the variable; what the variable costs moves on, in
equal shares, to those that come later. All tables stay at 0 or more, so the sum of the least cost of each variable is a bound
of the whole, and it never falls.

    A[x, y] >= 0, B[y, z] >= 0   ->   A - a[y], B + a[y]   with a[y] = min over x of A[x, y]

The bound is that of the linear relaxation over consistent pairs at best, and may stop short of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.cost.switch import Switch
from halley.planning.elimination import Table, aligned

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

SWITCH = Switch(module="halley.planning.value_bounds_compiled", patience=1.0)
"""Whether passes run compiled."""

SLACK = 1e-10
"""By how much a bound has to exceed a sum that was found before a value is given up, relative: far more than what rounding
adds up to, far less than what counts as a difference."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Which variables share a table, as numbers. ``sizes`` of the variables, whose values lie in a row from ``places`` on; a
    table of ``first`` and ``second`` (a later variable), row by row, from ``spots`` on. Variable v is in the tables
    ``of[starts[v]]`` to ``of[starts[v + 1] - 1]``."""

    sizes: Indices
    places: Indices
    first: Indices
    second: Indices
    spots: Indices
    starts: Indices
    of: Indices


@dataclass(slots=True, eq=False)
class ValueBounds:
    """Tables on their way. ``left``: by variable, the values (numbers in the tables that were given) that are looked at.
    ``single``, ``double``: costs of values, and of pairs; ``constant`` besides. ``lowest``: no sum is less. ``of_values``: no sum
    with this value is less. ``best``: the least sum that was met, with the ``chosen`` values; infinite if none was."""

    names: tuple[str, ...]
    left: list[Indices]
    pairs: Pairs
    single: Numbers
    double: Numbers
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
        start, compiled = time.perf_counter(), SWITCH.kernels()
        run: Callable[..., float] = compiled.sweep if compiled is not None else sweep
        p = self.pairs
        for number in range(2 * rounds):
            values = np.zeros(len(self.names), np.int64)
            bound = run(
                p.sizes, p.places, p.first, p.second, p.spots, p.starts, p.of,
                self.single, self.double, self.of_values, least, values, self.lowest, number % 2 == 1,
            )  # fmt: skip
            self.lowest = float(bound)
            self._meet(values)
        if compiled is None:
            SWITCH.spent += time.perf_counter() - start

    def _meet(self, values: Indices) -> None:
        """Compares the sum at these values with the best."""
        p = self.pairs
        pairs = p.spots[:-1] + values[p.first] * p.sizes[p.second] + values[p.second]
        total = self.constant + float(self.single[p.places[:-1] + values].sum() + self.double[pairs].sum())
        if total < min(self.best, self.constant + self.forbidden):
            self.best = total
            self.chosen = {name: int(left[value]) for name, left, value in zip(self.names, self.left, values, strict=True)}

    @property
    def gap(self) -> float:
        """Between the best and the bound."""
        return self.best - self.lowest

    @property
    def closed(self) -> bool:
        """No sum is less than the best by more than rounding."""
        return self.gap <= SLACK * abs(self.best) < math.inf

    @property
    def impossible(self) -> bool:
        """No sum is finite."""
        return self.lowest >= self.constant + self.forbidden

    def needed(self) -> NDArray[np.bool_]:
        """By value, whether a sum as good as the best may have it."""
        return self.of_values <= self.best + SLACK * abs(self.best)

    def bounds(self, name: str, values: int) -> Numbers:
        """By value of a variable, a bound of all sums with it; ``values``: how many it had at first. Those that are no longer
        looked at are beyond the best."""
        at = self.names.index(name)
        found = np.full(values, self.best)
        found[self.left[at]] = self.of_values[self.pairs.places[at] : self.pairs.places[at + 1]]
        return found

    def restricted(self, keep: NDArray[np.bool_]) -> ValueBounds:
        """The same without the values that are not in ``keep``."""
        p = self.pairs
        masks = [keep[start:end] for start, end in zip(p.places, p.places[1:], strict=False)]
        pieces = []
        for edge, (one, other) in enumerate(zip(p.first, p.second, strict=True)):
            block = self.double[p.spots[edge] : p.spots[edge + 1]].reshape(p.sizes[one], p.sizes[other])
            pieces.append(block[masks[one]][:, masks[other]].ravel())
        sizes = np.array([int(mask.sum()) for mask in masks])
        left = [numbers[mask] for numbers, mask in zip(self.left, masks, strict=True)]
        pairs = Pairs(sizes, _starts(sizes), p.first, p.second, _starts(sizes[p.first] * sizes[p.second]), p.starts, p.of)
        double = np.concatenate(pieces) if pieces else np.zeros(0)
        return ValueBounds(self.names, left, pairs, self.single[keep], double, self.constant, self.forbidden,
                           self.of_values[keep], self.best, self.chosen, self.lowest)

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
    """Bounds of the sum of tables of at most two variables each, one variable or more in all; variables are walked
    through in the order in which they first come.

    >>> chain = [Table(("x", "y"), np.array([[0.0, 5.0], [2.0, 1.0]])), Table(("y", "z"), np.array([[9.0], [3.0]]))]
    >>> found = value_bounds(chain)
    >>> found.sweep()
    >>> found.lowest, found.best, found.chosen, found.of_values.tolist()
    (4.0, 4.0, {'x': 1, 'y': 1, 'z': 0}, [8.0, 4.0, 9.0, 4.0, 4.0])
    """
    extents: dict[str, int] = {}
    for item in tables:
        extents.update(zip(item.variables, item.values.shape, strict=True))
    number = {name: place for place, name in enumerate(extents)}
    sizes = np.array(list(extents.values()), np.int64)
    places = _starts(sizes)
    single, joined, constant = np.zeros(places[-1]), dict[tuple[int, int], Numbers](), 0.0
    # sums that are forbidden cost more than any that is not
    finite = [item.values[np.isfinite(item.values)] for item in tables]
    forbidden = 2 * math.fsum(float(np.ptp(values)) for values in finite if values.size) or 1.0
    for item, allowed in zip(tables, finite, strict=True):
        lowest = float(allowed.min()) if allowed.size else 0.0
        constant += lowest
        values = np.minimum(item.values - lowest, forbidden)
        if len(item.variables) == 1:
            at = number[item.variables[0]]
            single[places[at] : places[at + 1]] += values
        elif item.variables:
            one, other = sorted(item.variables, key=number.__getitem__)
            key, turned = (number[one], number[other]), aligned(Table(item.variables, values), (one, other))
            joined[key] = joined[key] + turned if key in joined else turned
    first, second = (np.array([key[side] for key in joined], np.int64) for side in (0, 1))
    double = np.concatenate([values.ravel() for values in joined.values()]) if joined else np.zeros(0)
    ends = np.concatenate((first, second))
    by_variable = np.argsort(ends, kind="stable")
    starts = np.searchsorted(ends[by_variable], np.arange(len(sizes) + 1)).astype(np.int64)
    spots = _starts(sizes[first] * sizes[second])
    pairs = Pairs(sizes, places, first, second, spots, starts, (by_variable % max(len(first), 1)).astype(np.int64))
    left = [np.arange(size, dtype=np.int64) for size in sizes]
    return ValueBounds(tuple(extents), left, pairs, single, double, constant, forbidden, np.full(len(single), -math.inf))


def _starts(sizes: Indices) -> Indices:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def sweep(
    sizes: Indices, places: Indices, first: Indices, second: Indices, spots: Indices, starts: Indices, of: Indices,
    single: Numbers, double: Numbers, of_values: Numbers, least: Numbers, chosen: Indices, lowest: float, backward: bool,
) -> float:  # fmt: skip
    """One pass over the variables; gives the new bound. ``least``: the least cost of each variable. Fills ``chosen``: of each
    variable the value that costs least with those that were chosen before."""
    count = len(sizes)
    costs = [single[places[v] : places[v + 1]] for v in range(count)]
    for v in range(count - 1, -1, -1) if backward else range(count):
        own = costs[v]
        ahead, behind = list[tuple[np.int64, Numbers]](), list[tuple[np.int64, Numbers]]()
        for edge in of[starts[v] : starts[v + 1]]:
            block = double[spots[edge] : spots[edge + 1]].reshape(sizes[first[edge]], sizes[second[edge]])
            other, turned = (second[edge], block) if first[edge] == v else (first[edge], block.T)
            (ahead if (other > v) != backward else behind).append((other, turned))
        for _, block in ahead:
            shared = block.min(axis=1)
            block -= shared[:, None]
            own += shared
        now = float(own.min())
        lowest += now - least[v]
        values = of_values[places[v] : places[v + 1]]
        np.maximum(values, lowest + (own - now), out=values)
        joint = own.copy()
        for other, block in behind:
            joint += block[:, chosen[other]]
        chosen[v] = joint.argmin()
        if ahead:
            share = own / max(len(ahead), len(behind))
            for other, block in ahead:
                block += share[:, None]
                shared = block.min(axis=0)
                block -= shared
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
