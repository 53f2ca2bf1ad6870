"""What a part takes at least on a spatial chip, from what its kernels ask of work, memory and network in each section of a pass.

Partitions take the longest of the three, and follow each other; so does a section, which is some of them, and takes at least any
mean of what its kernels ask for. Prices, which add up to 1 in each section, make a sum over kernels of it, which is minimised
exactly over all shardings. A kernel that may be in several sections takes the least of them. Prices that raise the least of it
are looked for (`halley.optim.multipliers`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.optim.elimination import CostTable, cost
from halley.optim.least_sum import MinMarginals
from halley.optim.multipliers import best_multipliers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RESOURCES = 3
MEMORY = 1
"""Its place among work, memory and network."""

ROUNDS = 12
"""Prices that are tried at most."""

RISES = 2e-3
"""Relative rise that a bound may still have when prices count as good enough."""

SHARPER = (1.0, 1.5, 2.0, 3.0, 5.0)
"""Powers of prices that are tried."""

SOFT = 0.05
"""Share of equal prices in softened ones."""


class Taken(NamedTuple):
    """``always`` [s] beside all else, and time of work, memory and network ``sizes`` [s]; each a number or a table."""

    always: float | Floats
    sizes: tuple[float | Floats, float | Floats, float | Floats]

    def priced(self, prices: Floats) -> float | Floats:
        """A mean of the resources."""
        return self.always + sum(float(price) * size for price, size in zip(prices, self.sizes, strict=True))

    def at(self, place: tuple[int, ...]) -> tuple[float, Floats]:
        """Of one choice."""
        always, *sizes = (float(each if isinstance(each, float) else each[place]) for each in (self.always, *self.sizes))
        return always, np.array(sizes)


class Item(NamedTuple):
    """Something that kernel ``kernel`` of a part takes, by the values of ``variables``, in the way that is ``best``."""

    variables: tuple[str, ...]
    kernel: int
    ways: tuple[Taken, ...]

    def priced(self, prices: Floats) -> Floats:
        """The least of all ways, by the values of the variables."""
        return np.asarray(reduce(np.minimum, (way.priced(prices) for way in self.ways)))

    def difference(self, here: tuple[int, ...], there: tuple[int, ...]) -> float:
        """How much more or less its first way takes in one place of the tables than in another, all resources together [s]."""
        one, other = self.ways[0].at(here), self.ways[0].at(there)
        return abs(one[0] - other[0]) + float(np.abs(one[1] - other[1]).sum())

    def at(self, values: Mapping[str, int], prices: Floats) -> tuple[float, Floats]:
        """The way of least price for a choice: what it takes beside all else, and of the resources."""
        place = tuple(values[name] for name in self.variables)
        return min((way.at(place) for way in self.ways), key=lambda each: each[0] + float(prices @ each[1]))


class Loose(NamedTuple):
    """The ``sections`` in which a kernel may be; ``extra`` [sections of it, sections] [s]: time of the memory for what crosses it
    because the kernel is there."""

    sections: tuple[int, ...]
    extra: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PartTables:
    """What a sharding of a part takes: tables ``unfused``, with what is forbidden, and ``items`` of its ``kernels``, each in one of
    the sections of the passes. ``passes``: by section, the number of its pass; ``end``: the variable of the layout in which parts
    meet."""

    unfused: Sequence[CostTable]
    items: Sequence[Item]
    kernels: Sequence[Loose]
    passes: tuple[int, ...]
    end: str

    @property
    def sections(self) -> int:
        return len(self.passes)

    def priced(self, shares: Floats, near: Mapping[str, int] | None = None) -> list[CostTable]:
        """A mean of the resources of each section, by ``shares`` [sections, resources].

        A kernel takes the least over its sections of all its items and what crosses the memory. That is not less than the sum
        over its items of their own least, what crosses the memory shared out among them in any way: so that least is lost for the
        choice ``near`` which it is to be distinguished from, if there is one."""
        tables, by_kernel = list(self.unfused), dict[int, list[Item]]()
        for item in self.items:
            by_kernel.setdefault(item.kernel, []).append(item)
        for kernel, items in by_kernel.items():
            found = [[item.priced(shares[section]) for section in self.kernels[kernel].sections] for item in items]
            place = [tuple(near[name] for name in item.variables) for item in items] if near else None
            values = _least_shared(found, self._crossing(kernel, shares), place)
            tables += (CostTable(item.variables, each) for item, each in zip(items, values, strict=True))
        return tables

    def times(self, values: Mapping[str, int], shares: Floats) -> tuple[float, Floats]:
        """Of a choice, with kernels in the sections, and weights in the ways, that are best at these prices: what overlaps with
        nothing, and of each section the three resources [s]."""
        always, taken = cost(self.unfused, values), np.zeros((self.sections, RESOURCES))
        by_kernel = dict[int, list[Item]]()
        for item in self.items:
            by_kernel.setdefault(item.kernel, []).append(item)
        for kernel, items in by_kernel.items():
            crossing, best = self._crossing(kernel, shares), (math.inf, 0.0, 0, np.zeros(RESOURCES))
            for number, section in enumerate(self.kernels[kernel].sections):
                own = [item.at(values, shares[section]) for item in items]
                beside, sizes = math.fsum(each for each, _ in own), np.sum([each for _, each in own], axis=0)
                price = beside + float(shares[section] @ sizes) + crossing[number]
                if price < best[0]:
                    best = price, beside, number, sizes
            _, beside, number, sizes = best
            always += beside
            taken[self.kernels[kernel].sections[number]] += sizes
            extra = self.kernels[kernel].extra[number]
            taken[: len(extra), MEMORY] += extra
        return always, taken

    def _crossing(self, kernel: int, shares: Floats) -> list[float]:
        """By section, the price of what crosses the memory because a kernel is there [s]."""
        extra = self.kernels[kernel].extra
        return [float(each @ shares[: extra.shape[1], MEMORY]) for each in extra]


def _least_shared(
    found: Sequence[Sequence[Floats]], crossing: Sequence[float], near: Sequence[tuple[int, ...]] | None
) -> list[Floats]:
    """By item, the least over its sections [items][sections] of its values and a share of what is crossing [sections].

    The more an item would be cheaper than in the first section, the larger its share: ``near`` a place first, then at most."""
    least = [each[0] for each in found]
    for section in range(1, len(crossing)):
        added = crossing[section] - crossing[0]
        most = np.array([max(0.0, float((each[0] - each[section]).max())) for each in found])
        here = (
            most
            if near is None
            else np.array([max(0.0, float(each[0][at] - each[section][at])) for each, at in zip(found, near, strict=True)])
        )
        shares = _shared(added, here, most)
        least = [np.minimum(known, each[section] + share) for known, each, share in zip(least, found, shares, strict=True)]
    return [each + crossing[0] / len(found) for each in least]


def _shared(amount: float, first: Floats, then: Floats) -> Floats:
    """An amount shared out by what is asked for first, and what is left by what is asked for then; it adds up in any case."""
    asked = float(first.sum())
    given = first * min(1.0, max(amount, 0.0) / asked) if asked else np.zeros_like(first)
    left, whole = amount - float(given.sum()), float(then.sum())
    return np.asarray(given + left * (then / whole if whole else np.full(len(then), 1.0 / len(then))))


class Choice(NamedTuple):
    """A sharding by the ``values`` of its variables: what it takes ``always`` [s], and ``times`` [sections, resources] [s]."""

    values: Mapping[str, int]
    always: float
    times: Floats

    @property
    def time(self) -> float:
        """Each section takes the longest of its resources [s]: about what its partitions take, and often less."""
        return self.always + float(self.times.max(axis=1).sum())


class Priced(NamedTuple):
    """``bounds`` [layouts] [s]: no sharding takes less with a part's end in this layout, however its kernels are fused.
    ``shares`` [sections, resources]: the prices for which the lowest of them was most; ``choices``: shardings that were met;
    ``entries`` of tables that were joined for it."""

    bounds: Floats
    shares: Floats
    choices: tuple[Choice, ...]
    entries: int


def least_by_layout(
    tables: PartTables, barred: Sequence[CostTable] = (), met: Sequence[Choice] = (), enough: float = math.inf,
    rounds: int = ROUNDS,
    by_pass: bool = False,
) -> Priced:  # fmt: skip
    """The best bounds that were found, and their prices. ``barred``: tables of what is not allowed; ``met``: shardings that are,
    from which to start; ``enough`` [s]: a bound that will do. ``by_pass``: the sections of a pass have prices in common, which
    are fewer to find, so that the bounds are good after few rounds; those of prices by section may get above them."""
    ties = np.array(tables.passes) if by_pass else np.arange(tables.sections)
    choices, best = list(met), np.full((tables.sections, RESOURCES), 1.0 / RESOURCES)
    shares = _against(choices, ties) if choices else best
    bounds, lowest, entries = np.zeros(1), -math.inf, 0
    for _ in range(rounds):
        near = choices[-1].values if choices else None
        least = MinMarginals([*tables.priced(shares, near), *barred], tables.end)
        found = least.bounds
        entries += least.entries
        bounds = np.maximum(bounds, found)
        if float(found.min()) > lowest:
            lowest, best = float(found.min()), shares
        solved = least.solved(int(np.argmin(found))) if lowest < enough else None
        if solved is None:
            break
        choices.append(Choice(solved.values, *tables.times(solved.values, shares)))
        shares = _against(choices, ties)
        hoped = min(each.always + float((shares * each.times).sum()) for each in choices)
        if hoped <= lowest * (1 + RISES):
            break
    return Priced(bounds, best, tuple(choices), entries)


def by_section(tables: PartTables, priced: Priced) -> Priced:
    """Bounds that are no lower than those of prices by pass, with prices by section."""
    if len(set(tables.passes)) == tables.sections:
        return priced
    found = least_by_layout(tables, met=priced.choices, rounds=ROUNDS // 2)
    shares = found.shares if float(found.bounds.min()) > float(priced.bounds.min()) else priced.shares
    return Priced(np.maximum(priced.bounds, found.bounds), shares, found.choices, priced.entries + found.entries)


def softened(shares: Floats) -> Floats:
    """Prices of which none is 0: where one resource decides, the others tell shardings apart that waste them."""
    return np.asarray((1 - SOFT) * shares + SOFT / RESOURCES)


def _against(choices: Sequence[Choice], ties: Integers) -> Floats:
    """The prices that are best against these, by section; of what the game says, which stops short of prices of 0, the sharpest
    that is no worse. ``ties``: by section a number that those have in common whose prices are the same."""
    always, times = np.array([each.always for each in choices]), np.array([each.times for each in choices])
    sums = (ties == np.arange(int(ties.max()) + 1)[:, None]).astype(np.float64)
    found = best_multipliers(always, sums @ times)[ties]
    tried = [found**power / (found**power).sum(axis=1, keepdims=True) for power in SHARPER]
    return max(tried, key=lambda shares: float((always + (shares * times).sum(axis=(1, 2))).min()))
