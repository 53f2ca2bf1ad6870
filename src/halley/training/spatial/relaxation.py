"""Lower bounds of a part's time on a spatial chip, from the demands of its kernels on work, memory and network in each section
of a pass.

Partitions take the longest of the three resources and run in sequence. So does a section, which is a set of partitions: it
takes at least any weighted mean of its kernels' demands. Lagrange multipliers that add up to 1 in each section make a sum over
kernels of it, which is minimised exactly over all shardings. A kernel that may be in several sections takes the least of them.
`halley.optim.multipliers` finds multipliers that raise this minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
"""Work, memory and network."""
MEMORY_INDEX = 1
"""Index of memory among work, memory and network."""

MAX_ROUNDS = 12
"""Largest number of multipliers that are tried."""

LEAST_RELATIVE_RISE = 2e-3
"""Possible relative rise of a bound below which the multipliers are accepted."""

MULTIPLIER_POWERS = (1.0, 1.5, 2.0, 3.0, 5.0)
"""Powers of multipliers that are tried."""

EQUAL_SHARE = 0.05
"""Share of equal multipliers in softened ones."""


class ResourceTimes(NamedTuple):
    """Time ``always`` [s] that overlaps with nothing, and times of work, memory and network, ``sizes`` [s]; each a number or a
    table."""

    always: float | Floats
    sizes: tuple[float | Floats, float | Floats, float | Floats]

    def relaxed(self, multipliers: Floats) -> float | Floats:
        """The weighted mean of the resources."""
        return self.always + sum(float(weight) * size for weight, size in zip(multipliers, self.sizes, strict=True))

    def at(self, place: tuple[int, ...]) -> tuple[float, Floats]:
        """The times of one choice."""
        always, *sizes = (float(each if isinstance(each, float) else each[place]) for each in (self.always, *self.sizes))
        return always, np.array(sizes)


class KernelDemand(NamedTuple):
    """A demand of kernel ``kernel`` of a part, by the values of ``variables``: the best of its ``options``."""

    variables: tuple[str, ...]
    kernel: int
    options: tuple[ResourceTimes, ...]

    def relaxed(self, multipliers: Floats) -> Floats:
        """The least of all options, by the values of the variables."""
        return np.asarray(reduce(np.minimum, (way.relaxed(multipliers) for way in self.options)))

    def difference(self, here: tuple[int, ...], there: tuple[int, ...]) -> float:
        """Difference of its first option between two entries of the tables, summed over all resources [s]."""
        one, other = self.options[0].at(here), self.options[0].at(there)
        return abs(one[0] - other[0]) + float(np.abs(one[1] - other[1]).sum())

    def at(self, values: Mapping[str, int], multipliers: Floats) -> tuple[float, Floats]:
        """The best option of a choice with these multipliers: its time that overlaps with nothing, and those of the resources."""
        place = tuple(values[name] for name in self.variables)
        return min((way.at(place) for way in self.options), key=lambda each: each[0] + float(multipliers @ each[1]))


class FlexibleKernel(NamedTuple):
    """The ``sections`` in which a kernel may be; ``extra`` [its sections, sections] [s]: memory time of tensors that pass
    through memory because the kernel is in that section."""

    sections: tuple[int, ...]
    extra: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PartTables:
    """Times of a part by its sharding: ``unfused``, tables of times that overlap with nothing and of forbidden values;
    ``items``, the demands of its ``kernels``, each in one of the sections of the passes. ``passes``: by section, the number
    of its pass; ``end``: the variable of the layout of the boundary."""

    unfused: Sequence[CostTable]
    items: Sequence[KernelDemand]
    kernels: Sequence[FlexibleKernel]
    passes: tuple[int, ...]
    end: str

    @property
    def sections(self) -> int:
        return len(self.passes)

    def relaxed(self, multipliers: Floats, near: Mapping[str, int] | None = None) -> list[CostTable]:
        """Tables of the weighted mean of the resources of each section, by ``multipliers`` [sections, resources].

        A kernel takes the least over its sections of the sum of its items and of its extra memory traffic. That is at least the
        sum over its items of their own least, with the traffic divided among them in any way. The division is chosen to be
        exact for the choice ``near``, if there is one.
        """
        tables, by_kernel = list(self.unfused), dict[int, list[KernelDemand]]()
        for item in self.items:
            by_kernel.setdefault(item.kernel, []).append(item)
        for kernel, items in by_kernel.items():
            found = [[item.relaxed(multipliers[section]) for section in self.kernels[kernel].sections] for item in items]
            place = [tuple(near[name] for name in item.variables) for item in items] if near else None
            values = _least_over_sections(found, self._crossing(kernel, multipliers), place)
            tables += (CostTable(item.variables, each) for item, each in zip(items, values, strict=True))
        return tables

    def times(self, values: Mapping[str, int], multipliers: Floats) -> tuple[float, Floats]:
        """Of a choice, with kernels in the sections, and weights in the options, that are best with these multipliers: time
        that overlaps with nothing, and of each section the three resources [s]."""
        always, taken = cost(self.unfused, values), np.zeros((self.sections, RESOURCES))
        by_kernel = dict[int, list[KernelDemand]]()
        for item in self.items:
            by_kernel.setdefault(item.kernel, []).append(item)
        for kernel, items in by_kernel.items():
            crossing, best = self._crossing(kernel, multipliers), (math.inf, 0.0, 0, np.zeros(RESOURCES))
            for number, section in enumerate(self.kernels[kernel].sections):
                own = [item.at(values, multipliers[section]) for item in items]
                beside, sizes = math.fsum(each for each, _ in own), np.sum([each for _, each in own], axis=0)
                weighted_time = beside + float(multipliers[section] @ sizes) + crossing[number]
                if weighted_time < best[0]:
                    best = weighted_time, beside, number, sizes
            _, beside, number, sizes = best
            always += beside
            taken[self.kernels[kernel].sections[number]] += sizes
            extra = self.kernels[kernel].extra[number]
            taken[: len(extra), MEMORY_INDEX] += extra
        return always, taken

    def _crossing(self, kernel: int, multipliers: Floats) -> list[float]:
        """By section, the weighted time of the extra memory traffic if a kernel is there [s]."""
        extra = self.kernels[kernel].extra
        return [float(each @ multipliers[: extra.shape[1], MEMORY_INDEX]) for each in extra]


def _least_over_sections(
    found: Sequence[Sequence[Floats]], crossing: Sequence[float], near: Sequence[tuple[int, ...]] | None
) -> list[Floats]:
    """By item, the least over its sections [items][sections] of its values and its share of the extra traffic ``crossing``
    [sections].

    An item gets a larger share the cheaper it is than in the first section: at the entry ``near`` first, then at most.
    """
    least = [each[0] for each in found]
    for section in range(1, len(crossing)):
        added = crossing[section] - crossing[0]
        most = np.array([max(0.0, float((each[0] - each[section]).max())) for each in found])
        here = (
            most
            if near is None
            else np.array([max(0.0, float(each[0][at] - each[section][at])) for each, at in zip(found, near, strict=True)])
        )
        multipliers = _divided(added, here, most)
        least = [np.minimum(known, each[section] + share) for known, each, share in zip(least, found, multipliers, strict=True)]
    return [each + crossing[0] / len(found) for each in least]


def _divided(amount: float, first: Floats, then: Floats) -> Floats:
    """An amount divided in proportion to ``first`` up to its sum, and the rest in proportion to ``then``; the parts always add
    up to the amount."""
    asked = float(first.sum())
    given = first * min(1.0, max(amount, 0.0) / asked) if asked else np.zeros_like(first)
    left, whole = amount - float(given.sum()), float(then.sum())
    return np.asarray(given + left * (then / whole if whole else np.full(len(then), 1.0 / len(then))))


class ShardingChoice(NamedTuple):
    """A sharding by the ``values`` of its variables; ``always`` [s], and ``times`` [sections, resources] [s]."""

    values: Mapping[str, int]
    always: float
    times: Floats

    @property
    def time(self) -> float:
        """Time if each section takes the longest of its resources [s]: close to that of its partitions, and often less."""
        return self.always + float(self.times.max(axis=1).sum())


class RelaxedBounds(NamedTuple):
    """``bounds`` [layouts] [s]: lower bounds over the shardings with this layout of the part's end, under any fusion.
    ``multipliers`` [sections, resources]: those of the highest minimum; ``choices``: shardings found; ``entries`` of joined
    tables."""

    bounds: Floats
    multipliers: Floats
    choices: tuple[ShardingChoice, ...]
    entries: int


def least_by_layout(
    tables: PartTables, barred: Sequence[CostTable] = (), met: Sequence[ShardingChoice] = (), enough: float = math.inf,
    rounds: int = MAX_ROUNDS,
    by_pass: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> RelaxedBounds:  # fmt: skip
    """The best bounds found, and their multipliers. ``barred``: tables of forbidden values; ``met``: allowed shardings to start
    from; ``enough`` [s]: a bound that suffices. ``by_pass``: the sections of a pass share their multipliers, which takes
    fewer rounds; multipliers by section may give higher bounds. ``stop``: asked after each round, whether that was the last."""
    ties = np.array(tables.passes) if by_pass else np.arange(tables.sections)
    choices, best = list(met), np.full((tables.sections, RESOURCES), 1.0 / RESOURCES)
    multipliers = _best_against(choices, ties) if choices else best
    bounds, lowest, entries = np.zeros(1), -math.inf, 0
    for _ in range(rounds):
        near = choices[-1].values if choices else None
        least = MinMarginals([*tables.relaxed(multipliers, near), *barred], tables.end)
        found = least.bounds
        entries += least.entries
        bounds = np.maximum(bounds, found)
        if float(found.min()) > lowest:
            lowest, best = float(found.min()), multipliers
        solved = least.solved(int(np.argmin(found))) if lowest < enough else None
        if solved is None or stop():
            break
        choices.append(ShardingChoice(solved.values, *tables.times(solved.values, multipliers)))
        multipliers = _best_against(choices, ties)
        hoped = min(each.always + float((multipliers * each.times).sum()) for each in choices)
        if hoped <= lowest * (1 + LEAST_RELATIVE_RISE):
            break
    return RelaxedBounds(bounds, best, tuple(choices), entries)


def by_section(tables: PartTables, by_pass: RelaxedBounds, stop: Callable[[], bool] = lambda: False) -> RelaxedBounds:
    """Bounds with multipliers by section, at least those by pass."""
    if len(set(tables.passes)) == tables.sections:
        return by_pass
    found = least_by_layout(tables, met=by_pass.choices, rounds=MAX_ROUNDS // 2, stop=stop)
    multipliers = found.multipliers if float(found.bounds.min()) > float(by_pass.bounds.min()) else by_pass.multipliers
    return RelaxedBounds(np.maximum(by_pass.bounds, found.bounds), multipliers, found.choices, by_pass.entries + found.entries)


def softened(multipliers: Floats) -> Floats:
    """Multipliers without zeros: where one resource dominates, the others break ties between shardings."""
    return np.asarray((1 - EQUAL_SHARE) * multipliers + EQUAL_SHARE / RESOURCES)


def _best_against(choices: Sequence[ShardingChoice], ties: Integers) -> Floats:
    """The multipliers, by section, that are best against these choices. The solution of the matrix game has no zeros; the
    sharpest power of it that is no worse is taken. ``ties``: by section a number; sections with the same number share their
    multipliers."""
    always, times = np.array([each.always for each in choices]), np.array([each.times for each in choices])
    sums = (ties == np.arange(int(ties.max()) + 1)[:, None]).astype(np.float64)
    found = best_multipliers(always, sums @ times)[ties]
    tried = [found**power / (found**power).sum(axis=1, keepdims=True) for power in MULTIPLIER_POWERS]
    return max(tried, key=lambda multipliers: float((always + (multipliers * times).sum(axis=(1, 2))).min()))
