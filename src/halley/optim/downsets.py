"""Best chains of downsets: the best way to partition the vertices (elements) of a graph into blocks that run one after the other.

A downset (order ideal) contains, with each element, all elements that it needs. Blocks that can run one after the other are the
differences of nested downsets, so every chain of downsets from the empty to the full one is such a sequence of blocks. A
dynamic programme over the downsets finds the best chain for any costs of blocks. Graphs of real layers have few downsets.

A chain has several costs, each a sum over its blocks. Its value is a function of these sums that does not decrease in any of
them. The programme keeps the Pareto-optimal sums of each downset.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Costs: TypeAlias = tuple[float, ...]
State = TypeVar("State")

Elements: TypeAlias = int
"""A set of the graph's vertices: bit i stands for vertex i."""

MOST_DOWNSETS = 1_000_000
"""Largest number of downsets that a search takes."""


class TooManyDownsets(Exception):
    """The graph has more downsets than a search takes."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """The downsets of a graph by size, from the empty to the full one. ``steps``: for each downset, the elements that can be
    added next, ascending, with the index of the resulting downset."""

    downsets: tuple[Elements, ...]
    steps: tuple[tuple[tuple[int, int], ...], ...]


@lru_cache(maxsize=64)
def lattice(needs: tuple[Elements, ...], most: int = MOST_DOWNSETS) -> Lattice:
    """All downsets. ``needs``: for each element the set of elements that it needs, at least the direct ones. An element needs
    earlier ones only.

    >>> lattice((0b0, 0b1, 0b1, 0b110)).downsets   # a diamond
    (0, 1, 3, 5, 7, 15)

    Raises TooManyDownsets; ValueError if an element needs a later one.
    """
    if any(needed >> place for place, needed in enumerate(needs)):
        raise ValueError("needs: expected elements that need earlier ones only")
    readers = [[reader for reader, needed in enumerate(needs) if needed >> place & 1] for place in range(len(needs))]
    place = {0: 0}
    found, ready = [0], [[element for element, needed in enumerate(needs) if not needed]]
    steps = []
    for downset, free in zip(found, ready, strict=False):  # both grow during the loop
        taken = []
        for element in free:
            larger = downset | 1 << element
            target = place.get(larger)
            if target is None:
                target = place[larger] = len(found)
                if target >= most:
                    raise TooManyDownsets
                found.append(larger)
                freed = [reader for reader in readers[element] if not needs[reader] & ~larger]
                ready.append(sorted([other for other in free if other != element] + freed))
            taken.append((element, target))
        steps.append(tuple(taken))
    return Lattice(tuple(found), tuple(steps))


@lru_cache(maxsize=64)
def chain_lattice(count: int) -> Lattice:
    """The downsets of elements that run one by one in the given order. Their chains partition the elements into runs of
    consecutive ones.

    >>> chain_lattice(3).downsets
    (0, 1, 3, 7)
    """
    steps = (*(((element, element + 1),) for element in range(count)), ())
    return Lattice(tuple((1 << size) - 1 for size in range(count + 1)), steps)


def blocks(
    downsets: Lattice, source: int, empty: State, grow: Callable[[State, int], Iterable[State]]
) -> Iterator[tuple[int, State]]:
    """Every block that can follow a downset: index of the downset with it, and its state; each set of elements once per state.

    ``grow`` returns the states of a block with one more element: several where the element has variants, none where neither the
    block nor any larger one fits. Elements are added in ascending order, so ``grow`` must return a state for every subset of a
    block that fits.
    """
    left = [(source, -1, empty)]
    while left:
        at, last, state = left.pop()
        for element, target in downsets.steps[at]:
            if element > last:
                for grown in grow(state, element):
                    yield target, grown
                    left.append((target, element, grown))


class Label(NamedTuple, Generic[State]):
    """Costs of a chain that ends at a downset; ``block``: its last block; ``before``: the chain without it."""

    costs: Costs
    before: Label[State] | None = None
    block: State | None = None

    def chain(self) -> tuple[State, ...]:
        """The blocks in order."""
        found: list[State] = []
        label: Label[State] | None = self
        while label is not None and label.block is not None:
            found.append(label.block)
            label = label.before
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class BestChain(Generic[State]):
    """The best chain, empty if none has a value below the limit; its value; ``costed``: the number of blocks costed."""

    chain: tuple[State, ...]
    value: float
    costed: int


def best_chain(
    downsets: Lattice,
    empty: Sequence[State],
    grow: Callable[[State, int], Iterable[State]],
    cost_of: Callable[[State], Costs],
    value: Callable[[Costs], float],
    rest: Sequence[Costs],
    limit: float = math.inf,
    least: Callable[[Elements, State], Costs] | None = None,
    single: Callable[[int], tuple[State, Costs] | None] | None = None,
) -> BestChain[State]:
    """The chain of least value, if any is below ``limit``.

    ``empty``, ``grow``: see `blocks`; blocks of different kinds grow from an empty state each. ``cost_of``: the costs of a
    block, none negative. ``value``: of a chain's costs, non-decreasing in each. ``rest``: for each downset, a lower bound of
    the costs of the remaining elements; zeros are always valid. ``least``: a lower bound of the costs that remain after a
    downset if its next block contains the given state's elements. ``single``: a block of one element that cannot grow,
    with its costs, in addition to those of ``grow``.
    """
    labels: list[list[Label[State]]] = [[] for _ in downsets.downsets]
    labels[0].append(Label(tuple(0.0 for _ in rest[0])))
    best: Label[State] | None = None
    end, costed = len(labels) - 1, 0
    for place, here in enumerate(labels[:end]):
        open_labels = [label for label in here if value(_sum(label.costs, rest[place])) < limit]
        labels[place] = []
        if not open_labels:
            continue
        lowest = tuple(min(label.costs[cost] for label in open_labels) for cost in range(len(rest[0])))
        done = downsets.downsets[place]

        def grown_below_limit(
            state: State, element: int, lowest: Costs = lowest, done: Elements = done, limit: float = limit
        ) -> list[State]:
            """Grown states that may still give a value below the limit."""
            found = grow(state, element)
            return [each for each in found if least is None or value(_sum(lowest, least(done, each))) < limit]

        starts = itertools.chain.from_iterable(blocks(downsets, place, each, grown_below_limit) for each in empty)
        grown = ((target, state, cost_of(state)) for target, state in starts)
        for target, state, costs in itertools.chain(_single(downsets.steps[place], single), grown):
            costed += 1
            for label in open_labels:
                found = Label(_sum(label.costs, costs), label, state)
                bound = value(_sum(found.costs, rest[target]))
                if bound >= limit:
                    continue
                if target == end:
                    best, limit = found, bound
                else:
                    _keep(labels[target], found)
    return BestChain(best.chain() if best else (), limit, costed)


def _single(
    steps: Iterable[tuple[int, int]], single: Callable[[int], tuple[State, Costs] | None] | None
) -> Iterator[tuple[int, State, Costs]]:
    """The blocks of one element that cannot grow."""
    for element, target in steps if single else ():
        found = single(element) if single else None
        if found is not None:
            yield target, *found


def _keep(labels: list[Label[State]], found: Label[State]) -> None:
    """Adds a label unless another dominates it; removes those that it dominates."""
    if any(all(a <= b for a, b in zip(label.costs, found.costs, strict=True)) for label in labels):
        return
    labels[:] = [label for label in labels if any(a < b for a, b in zip(label.costs, found.costs, strict=True))]
    labels.append(found)


def _sum(a: Costs, b: Costs) -> Costs:
    return tuple(x + y for x, y in zip(a, b, strict=True))
