"""Shapes of stages, compiled: what they cost on open tile sizes, and bounds of that over sets of tile chains."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from halley.cost.counting import Sums
from halley.cost.program import Array, Indices, Normal, Program
from halley.formulas.numbers import Number
from halley.formulas.terms import Terms
from halley.ir.workload import Workload
from halley.search.chains import ChainTree
from halley.search.frontier import Values
from halley.search.stages import BUFFERS, Skeleton, Slot

FLOOR_ROWS = 1 << 14
"""Sets that are bounded at once for a first bound of a shape."""


class StageCosts(NamedTuple):
    """Costs of a stage in its frame on open tile sizes, by objective; and their lower bounds, whatever room the stage takes: a
    row for each combination of the shared sizes."""

    costs: Mapping[str, Number]
    bounds: Values


class Trees:
    """Open tile sizes and their chains, kept for all shapes that have them in common."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.normal = Normal(self.terms)
        self.cautious = Normal(self.terms, differences=False)
        self.stages: dict[Hashable, StageCosts] = {}
        self._known: dict[object, ChainTree] = {}
        self._sums: dict[tuple[tuple[str, int], ...], Sums] = {}

    def sums(self, workload: Workload) -> Sums:
        """What was found of dims of these extents."""
        return self._sums.setdefault(tuple(workload.dims.items()), {})

    def symbols(self, slots: Sequence[Slot]) -> dict[str, Number]:
        return {slot.name: self.terms.open(slot.name, slot.dim, slot.among) for slot in slots}

    def of(self, shared: Sequence[Slot], own: Sequence[Slot]) -> dict[str, ChainTree]:
        """The chains of each dim: shared slots outermost."""
        slots = (*shared, *own)
        symbols = self.symbols(slots)
        result: dict[str, ChainTree] = {}
        for dim in dict.fromkeys(slot.dim for slot in slots):
            mine = [slot for slot in slots if slot.dim == dim]
            given = sum(slot.dim == dim for slot in shared)
            limits = (slot.limit(symbols) for slot in mine)
            key = given, *(
                (slot.name, slot.sizes, limit if isinstance(limit, int) else limit.index, isinstance(limit, int))
                for slot, limit in zip(mine, limits, strict=True)
            )
            if key not in self._known:
                self._known[key] = ChainTree(dim, mine, given, symbols)
            result[dim] = self._known[key]
        return result


@dataclass(frozen=True, slots=True)
class Shape:
    """A skeleton of a stage, compiled: its program, the chains of its dims, the tables of its factors."""

    skeleton: Skeleton
    program: Program
    trees: Mapping[str, ChainTree]
    tables: Sequence[Array]
    capacities: Sequence[float]
    width: int

    def bounds(self, nodes: Mapping[str, Indices], rows: int) -> Values:
        """Lower bounds of the objectives, one row per set; inf where a memory overflows in all of it."""
        result = self.program(self.tables, nodes, rows)
        values = result[: self.width].T.copy()
        for used, capacity in zip(result[self.width :], self.capacities, strict=True):
            values[used > capacity] = np.inf
        return values


    def floor(self, nodes: Mapping[str, Indices], rows: int) -> Values:
        """As `bounds`, the least over the numbers of buffers, one by one: sets that leave them open have poor bounds."""
        if BUFFERS not in nodes:
            return self.bounds(nodes, rows)
        settled, number = self.trees[BUFFERS].singles(nodes[BUFFERS])
        if len(settled) > FLOOR_ROWS:
            return self.bounds(nodes, rows)
        wide = {dim: settled if dim == BUFFERS else np.repeat(own, number) for dim, own in nodes.items()}
        least: Values = np.minimum.reduceat(self.bounds(wide, len(settled)), np.cumsum(number) - number, axis=0)
        return least
