"""Chains of tile sizes of one dim, outermost first, as a tree of sets for branch and bound.

The root is the set of all chains. Shared sizes are fixed first; then the children of a node divide its chains by the octave of
each further size, by parts of octaves, and finally by the sizes. Nodes are numbered level by level, so that the values of a
factor over all nodes form one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from halley.cost.programs.instructions import tabulate
from halley.cost.programs.program import Array, Factor, Indices
from halley.formulas.numbers import Number
from halley.formulas.terms import Term
from halley.mapping.space.stages import BUFFERS, Slot

Flags = np.ndarray[Any, np.dtype[np.bool_]]

PARTS_PER_OCTAVE = (1, 4)
"""Number of parts of an octave of sizes, by level, before single sizes: a direct step from octaves to sizes would split a set
into dozens of subsets to bound."""


class ChainTree:
    """All chains for the slots of one dim, the first ``shared`` of which concern several stages. ``symbols``: the open number of
    each slot."""

    def __init__(self, dim: str, slots: Sequence[Slot], shared: int, symbols: Mapping[str, Number]) -> None:
        columns = _chains(dim, slots, symbols)
        sizes = list(columns.values())
        if dim == BUFFERS:
            coarse = [np.minimum(column, most) for most in (1, 2) for column in sizes[shared:]]
        else:
            coarse = [np.floor(parts * np.log2(column)) for parts in PARTS_PER_OCTAVE for column in sizes[shared:]]
        keys = [*sizes[:shared], *coarse, *sizes[shared:]]
        order = np.lexsort(keys[::-1])
        self.columns = {name: column[order] for name, column in columns.items()}
        self.count = len(order)
        levels = _levels([key[order] for key in keys])
        self._alike = len(sizes)
        self.shared = shared
        offsets = np.cumsum([0, *(len(level) for level in levels)])
        self._offsets = offsets
        self.start: Indices = np.concatenate(levels)
        self._levels = np.split(self.start, offsets[1:-1])  # of the same numbers
        # of the nodes of each level, the place of their first subset in the next level; of the last level, of their first chain
        self._first_parts = [*(np.searchsorted(inner, outer) for outer, inner in pairwise(levels)), levels[-1]]
        stops = [np.append(level[1:], self.count) for level in levels]
        self.size: Indices = np.concatenate(stops) - self.start
        self.first_child, self.children = _children(levels, offsets, self._first_parts)
        self._tables: WeakValueDictionary[tuple[int, bool], Array] = WeakValueDictionary()  # as long as a program has them
        self._negative: set[tuple[int, bool]] = set()

    @property
    def given(self) -> Indices:
        """The nodes that fix the shared sizes and nothing else."""
        return np.arange(self._offsets[self.shared], self._offsets[self.shared + 1])

    def tables(self, factors: Sequence[Factor]) -> list[Array]:
        """Of each factor, the least (or greatest) value over each node's chains. They are found together, as they have parts in
        common, and kept for as long as somebody has them."""
        found = [self._tables.get((factor.term.index, factor.upper)) for factor in factors]
        new = [factor for factor, table in zip(factors, found, strict=True) if table is None]
        made = iter(self._tabulated(new))
        return [next(made) if table is None else table for table in found]

    def negative(self, factor: Factor) -> bool:
        """Whether a factor that was asked for is below 0 for some chain, where bounds take factors to be at least 0."""
        return (factor.term.index, factor.upper) in self._negative

    def _tabulated(self, factors: Sequence[Factor]) -> list[Array]:
        """The tables of factors: from the chains to the root, each level from the next one."""
        if not factors:
            return []
        terms = {factor.term.index: factor.term for factor in factors}
        values = dict(zip(terms, tabulate(list(terms.values()), self.columns), strict=True))
        inner = np.stack([values[factor.term.index] for factor in factors])
        upper = np.array([factor.upper for factor in factors])
        some: list[tuple[np.ufunc, slice | Flags]] = [(np.minimum, slice(None))]
        if upper.any():
            some = [(np.minimum, ~upper), (np.maximum, upper)]
        tables: Array = np.empty((len(factors), len(self.start)))
        for at, first in reversed(tuple(enumerate(self._first_parts))):
            own = tables[:, self._offsets[at] : self._offsets[at + 1]]
            if len(first) == inner.shape[1]:
                own[...] = inner
            else:
                for reduce, rows in some:
                    own[rows] = reduce.reduceat(inner[rows], first, axis=1)
            inner = own
        found: list[Array] = list(tables)
        for factor, table, least in zip(factors, found, tables.min(axis=1), strict=True):
            key = factor.term.index, factor.upper
            self._tables[key] = table
            if least < 0.0:
                self._negative.add(key)
        return found

    def singles(self, nodes: Indices) -> tuple[Indices, Indices]:
        """The single chains below each of some nodes, and how many they are."""
        return self._below(nodes, len(self._levels) - 1)

    def alike(self, nodes: Indices) -> tuple[Indices, Indices]:
        """The sets below each of some nodes whose own sizes are of one octave; of numbers of buffers, that leave out the same
        Holds. And how many they are."""
        return self._below(nodes, self._alike)

    def _below(self, nodes: Indices, level: int) -> tuple[Indices, Indices]:
        first = np.searchsorted(self._levels[level], self.start[nodes])
        number = np.searchsorted(self._levels[level], self.start[nodes] + self.size[nodes]) - first
        before = np.repeat(np.cumsum(number) - number, number)
        return self._offsets[level] + np.repeat(first, number) + np.arange(number.sum()) - before, number

    def sizes(self, node: int) -> dict[str, int]:
        """Tile sizes of the first chain of a node, by slot."""
        return {name: int(column[self.start[node]]) for name, column in self.columns.items()}


def _chains(dim: str, slots: Sequence[Slot], symbols: Mapping[str, Number]) -> dict[str, Array]:
    """One column per slot, one row per chain."""
    columns: dict[str, Array] = {}
    rows = 1
    for slot in slots:
        assert slot.name not in columns, f"two slots are named {slot.name}: one would hide the other's choices"
        limit = slot.limit(symbols)
        if isinstance(limit, Term):
            assert limit.kinds == {dim}, f"the range that {slot.name} cuts depends on {sorted(limit.kinds)}"
            limits = tabulate([limit], columns)[0]
        else:
            limits = np.full(rows, float(limit))
        distinct, which = np.unique(limits, return_inverse=True)
        choices = [np.array(slot.sizes(int(extent)), dtype=np.float64) for extent in distinct]
        lengths = np.array([len(choice) for choice in choices])[which]
        columns = {name: np.repeat(column, lengths) for name, column in columns.items()}
        columns[slot.name] = np.concatenate([choices[at] for at in which])
        rows = len(columns[slot.name])
    return columns


def _levels(keys: Sequence[Array]) -> list[Indices]:
    """Where the nodes of each level start: a level for each key, after the root."""
    changed = np.zeros(len(keys[0]), dtype=bool)
    changed[0] = True
    levels = [np.flatnonzero(changed)]
    for key in keys:
        changed = changed.copy()
        changed[1:] |= key[1:] != key[:-1]
        levels.append(np.flatnonzero(changed))
    return levels


def _children(levels: Sequence[Indices], offsets: Indices, first_parts: Sequence[Indices]) -> tuple[Indices, Indices]:
    """(first child, number of children) of each node; an only child's children stand for it. ``first_parts``: of the nodes of
    each level, the place of their first subset in the next one."""
    first = np.zeros(offsets[-1], dtype=np.int64)
    count = np.zeros(offsets[-1], dtype=np.int64)
    for level in range(len(levels) - 2, -1, -1):
        number = np.diff(np.append(first_parts[level], len(levels[level + 1])))
        begin = first_parts[level] + offsets[level + 1]
        only = number == 1
        own = slice(offsets[level], offsets[level + 1])
        first[own] = np.where(only, first[begin], begin)
        count[own] = np.where(only, count[begin], number)
    return first, count
