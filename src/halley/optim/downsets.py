"""Best chains of downsets: how the kernels of a graph are best parted into blocks that run one after the other.

A downset (order ideal) holds, with each kernel, all that the kernel needs. Blocks that can run one after the other are the
differences of nested downsets, and each chain of downsets from the empty to the full one is such a sequence of blocks. So a
dynamic programme over the downsets finds the best, whatever a block costs. Graphs of real layers have few of them.

A chain has several costs, each a sum over its blocks, and is judged by a value that falls with none of them; for each downset
those sums are kept that no other matches in every cost.
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

Kernels: TypeAlias = int
"""A set of the graph's vertices: bit i stands for vertex i."""

MOST_DOWNSETS = 1_000_000
"""Downsets that a search looks at."""


class TooManyDownsets(Exception):
    """More downsets than a search can look at."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """Downsets of a graph, smaller ones first, the empty one and the full one at the ends. ``steps``: for each, the kernels that
    it can take next, ascending, and the number of the downset that results."""

    downsets: tuple[Kernels, ...]
    steps: tuple[tuple[tuple[int, int], ...], ...]


@lru_cache(maxsize=64)
def lattice(needs: tuple[Kernels, ...], most: int = MOST_DOWNSETS) -> Lattice:
    """All downsets. ``needs``: for each kernel those that it needs, at least the direct ones, all of them before it.

    >>> lattice((0b0, 0b1, 0b1, 0b110)).downsets   # a diamond
    (0, 1, 3, 5, 7, 15)

    Raises TooManyDownsets; ValueError if a kernel needs a later one.
    """
    if any(needed >> place for place, needed in enumerate(needs)):
        raise ValueError("needs: expected kernels that need earlier ones only")
    readers = [[reader for reader, needed in enumerate(needs) if needed >> place & 1] for place in range(len(needs))]
    place = {0: 0}
    found, ready = [0], [[kernel for kernel, needed in enumerate(needs) if not needed]]
    steps = []
    for downset, free in zip(found, ready, strict=False):  # both grow as they are walked
        taken = []
        for kernel in free:
            larger = downset | 1 << kernel
            target = place.get(larger)
            if target is None:
                target = place[larger] = len(found)
                if target >= most:
                    raise TooManyDownsets
                found.append(larger)
                freed = [reader for reader in readers[kernel] if not needs[reader] & ~larger]
                ready.append(sorted([other for other in free if other != kernel] + freed))
            taken.append((kernel, target))
        steps.append(tuple(taken))
    return Lattice(tuple(found), tuple(steps))


@lru_cache(maxsize=64)
def in_line(count: int) -> Lattice:
    """The downsets of kernels that run one by one in the given order: its chains part them into runs of consecutive kernels.

    >>> in_line(3).downsets
    (0, 1, 3, 7)
    """
    steps = (*(((kernel, kernel + 1),) for kernel in range(count)), ())
    return Lattice(tuple((1 << size) - 1 for size in range(count + 1)), steps)


def blocks(
    downsets: Lattice, source: int, empty: State, grow: Callable[[State, int], Iterable[State]]
) -> Iterator[tuple[int, State]]:
    """Every block that can follow a downset: number of the downset with it, and its state; each set of kernels once per state.

    ``grow`` gives the states of a block with one kernel more: several where the kernel has variants, none where what is grown
    cannot fit any more. Kernels come in ascending order, so that every block that fits must be reached through some that fit.
    """
    left = [(source, -1, empty)]
    while left:
        at, last, state = left.pop()
        for kernel, target in downsets.steps[at]:
            if kernel > last:
                for grown in grow(state, kernel):
                    yield target, grown
                    left.append((target, kernel, grown))


class Label(NamedTuple, Generic[State]):
    """What some chain to a downset costs; ``before`` and ``block``: its last block."""

    costs: Costs
    before: Label[State] | None = None
    block: State | None = None

    def chain(self) -> tuple[State, ...]:
        """The blocks from the first to the last."""
        found: list[State] = []
        label: Label[State] | None = self
        while label is not None and label.block is not None:
            found.append(label.block)
            label = label.before
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class Found(Generic[State]):
    """The best chain, empty if none is below the limit, and its value; ``costed``: blocks that were costed."""

    chain: tuple[State, ...]
    value: float
    costed: int


def best_chain(
    downsets: Lattice,
    empty: Sequence[State],
    grow: Callable[[State, int], Iterable[State]],
    price: Callable[[State], Costs],
    value: Callable[[Costs], float],
    rest: Sequence[Costs],
    limit: float = math.inf,
    least: Callable[[Kernels, State], Costs] | None = None,
    alone: Callable[[int], tuple[State, Costs] | None] | None = None,
) -> Found[State]:
    """The chain of least value, if any is below ``limit``.

    ``empty``, ``grow``: see `blocks`; blocks of several kinds grow from an empty one each. ``price``: costs of a block, none
    negative. ``value``: of a chain's costs; it falls with none of them. ``rest``: for each downset, a lower bound of the costs of
    what is still to come; zeros are always right. ``least``: a lower bound of what is still to come after a downset, that block
    or one grown from it included. ``alone``: a block of one kernel that does not grow, with its costs, beside those that do.
    """
    labels: list[list[Label[State]]] = [[] for _ in downsets.downsets]
    labels[0].append(Label(tuple(0.0 for _ in rest[0])))
    best: Label[State] | None = None
    end, costed = len(labels) - 1, 0
    for place, here in enumerate(labels[:end]):
        live = [label for label in here if value(_sum(label.costs, rest[place])) < limit]
        labels[place] = []
        if not live:
            continue
        lowest = tuple(min(label.costs[cost] for label in live) for cost in range(len(rest[0])))
        done = downsets.downsets[place]

        def promising(
            state: State, kernel: int, lowest: Costs = lowest, done: Kernels = done, limit: float = limit
        ) -> list[State]:
            """What has grown, as far as it can still come below the limit."""
            found = grow(state, kernel)
            return [each for each in found if least is None or value(_sum(lowest, least(done, each))) < limit]

        starts = itertools.chain.from_iterable(blocks(downsets, place, each, promising) for each in empty)
        grown = ((target, state, price(state)) for target, state in starts)
        for target, state, costs in itertools.chain(_single(downsets.steps[place], alone), grown):
            costed += 1
            for label in live:
                found = Label(_sum(label.costs, costs), label, state)
                bound = value(_sum(found.costs, rest[target]))
                if bound >= limit:
                    continue
                if target == end:
                    best, limit = found, bound
                else:
                    _keep(labels[target], found)
    return Found(best.chain() if best else (), limit, costed)


def _single(
    steps: Iterable[tuple[int, int]], alone: Callable[[int], tuple[State, Costs] | None] | None
) -> Iterator[tuple[int, State, Costs]]:
    """The blocks of one kernel that do not grow."""
    for kernel, target in steps if alone else ():
        found = alone(kernel) if alone else None
        if found is not None:
            yield target, *found


def _keep(labels: list[Label[State]], found: Label[State]) -> None:
    """Take a label in, unless one matches it in every cost; leave out those that it matches so."""
    if any(all(a <= b for a, b in zip(label.costs, found.costs, strict=True)) for label in labels):
        return
    labels[:] = [label for label in labels if any(a < b for a, b in zip(label.costs, found.costs, strict=True))]
    labels.append(found)


def _sum(a: Costs, b: Costs) -> Costs:
    return tuple(x + y for x, y in zip(a, b, strict=True))
