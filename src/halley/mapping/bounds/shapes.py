"""Compiled shapes of stages: costs with open tile sizes, and bounds over sets of tile-size chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from halley.cost.counting import Sums
from halley.cost.pairs import PAIRS
from halley.cost.programs.program import Array, Indices, NormalForms, Program
from halley.errors import Fault, InternalError
from halley.formulas.numbers import Number, as_number
from halley.formulas.terms import Term, TermFactory
from halley.ir.workload import Workload
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.space.masked_tiles import PairTree
from halley.mapping.space.stages import BUFFERS, Skeleton, Slot
from halley.mapping.space.tile_chains import ChainTree

SETS_BEFORE_FULL_COSTS = 1 << 15
"""Number of sets that the least costs fail to prune before formulas of all costs are compiled to bound them: compiling takes as
long as bounding some 30,000 sets by the least costs."""


class Trees:
    """Open tile sizes and their trees of chains, shared by all shapes that have them in common."""

    def __init__(self) -> None:
        self.terms = TermFactory()
        self.normal = NormalForms(self.terms)
        self.cautious = NormalForms(self.terms, differences=False)
        self.stages: dict[Hashable, StageCosts] = {}
        self.untiled: dict[Hashable, Values] = {}
        self._programs: dict[Hashable, Compiled] = {}
        self._known: dict[object, ChainTree] = {}
        self._of: dict[tuple[int, ...], tuple[Mapping[str, ChainTree], object]] = {}  # these two by the ids of slots, which they
        self._of_slots: dict[tuple[int, ...], tuple[ChainTree, object]] = {}  # keep: a freed one's id could be given to another
        self._paired: dict[tuple[object, ...], PairTree] = {}
        self._sums: dict[tuple[tuple[str, int], ...], Sums] = {}

    def sums(self, workload: Workload) -> Sums:
        """Cache of sums over dims of these extents."""
        return self._sums.setdefault(tuple(workload.dims.items()), {})

    def symbols(self, slots: Sequence[Slot]) -> dict[str, Number]:
        return {slot.name: as_number(self.terms.open(slot.name, slot.dim, slot.among)) for slot in slots}

    def program(self, outputs: Sequence[Number], trees: Mapping[str, ChainTree], where: Callable[[], str]) -> Compiled:
        """A program of lower bounds of terms over sets of chains, with the tables of its factors; cached. ``where``: what the
        costs are of, for errors."""
        terms = (output.index if isinstance(output, Term) else (float(output),) for output in outputs)
        key = *terms, *map(id, trees.values())
        if key not in self._programs:
            self._programs[key] = self.compiled(outputs, trees, where)
        return self._programs[key]

    def compiled(self, outputs: Sequence[Number], trees: Mapping[str, ChainTree], where: Callable[[], str]) -> Compiled:
        """The same without caching, for bounds that are needed once."""
        for normal in (self.normal, self.cautious):
            program = Program(normal, outputs)
            tables = _tables(program, trees)
            if not any(trees[factor.kind].negative(factor) for factor in program.factors):
                return Compiled(program, tables)
        raise InternalError(Fault("search", "sizes and counts of at least 0", f"a negative factor in {where()}", "please report"))

    def single(self, outputs: Sequence[Number], trees: Mapping[str, ChainTree]) -> Compiled:
        """A program of exact values of terms, for sets of a single choice."""
        program = Program(None, outputs)
        return Compiled(program, _tables(program, trees))

    def of(self, shared: Sequence[Slot], own: Sequence[Slot]) -> Mapping[str, ChainTree]:
        """The chains of each dim: shared slots outermost."""
        slots = (*shared, *own)
        key = len(shared), *map(id, slots)
        if key not in self._of:
            self._of[key] = self._chains(shared, slots), slots
        return self._of[key][0]

    def combinations(self, shared: Sequence[Slot]) -> int:
        """Number of combinations of shared sizes."""
        return math.prod(len(tree.given) for tree in self.of(shared, ()).values())

    def _chains(self, shared: Sequence[Slot], slots: Sequence[Slot]) -> dict[str, ChainTree]:
        of_dim: dict[str, list[Slot]] = {}
        for slot in slots:
            of_dim.setdefault(slot.dim, []).append(slot)
        symbols: dict[str, Number] = {}
        result: dict[str, ChainTree] = {}
        for dim, mine in of_dim.items():
            given = sum(slot.dim == dim for slot in shared)
            key = given, *map(id, mine)
            if key not in self._of_slots:
                symbols = symbols or self.symbols(slots)
                self._of_slots[key] = self._tree(dim, mine, given, symbols), mine
            result[dim] = self._of_slots[key][0]
        for slot in shared:
            if slot.rows:
                result[PAIRS] = self._pairs((slot.rows, slot.dim), result[slot.rows], result[slot.dim])
        return result

    def _pairs(self, dims: tuple[str, str], rows: ChainTree, keys: ChainTree) -> PairTree:
        """The tree of pairs of tiles of two dims, cached."""
        key = *dims, id(rows), id(keys)
        if key not in self._paired:
            self._paired[key] = PairTree(dims, rows, keys)
        return self._paired[key]

    def _tree(self, dim: str, slots: Sequence[Slot], given: int, symbols: Mapping[str, Number]) -> ChainTree:
        """The tree of chains of one dim, cached for equal slots."""
        limits = (slot.limit(symbols) for slot in slots)
        key = (
            given,
            *(
                (slot.name, slot.sizes, limit.index if isinstance(limit, Term) else limit, isinstance(limit, Term))
                for slot, limit in zip(slots, limits, strict=True)
            ),
        )
        if key not in self._known:
            self._known[key] = ChainTree(dim, slots, given, symbols)
        return self._known[key]


def _tables(program: Program, trees: Mapping[str, ChainTree]) -> list[Array]:
    """For each factor of a program, its values by node."""
    tables: list[Array] = [np.empty(0)] * len(program.factors)
    for dim, tree in trees.items():
        own = [at for at, factor in enumerate(program.factors) if factor.kind == dim]
        for at, table in zip(own, tree.tables([program.factors[at] for at in own]), strict=True):
            tables[at] = table
    return tables


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, and the tables of its factors."""

    program: Program
    tables: Sequence[Array]

    def __call__(self, nodes: Mapping[str, Indices], rows: int) -> Values:
        """Lower bounds, a row per set."""
        return self.program(self.tables, nodes, rows).T


def least_of_buffers(
    costs: Callable[[Mapping[str, Indices], int], Values],
    trees: Mapping[str, ChainTree],
    nodes: Mapping[str, Indices],
    rows: int,
    free: bool = False,
) -> Values:
    """Lower bounds of sets, a row each: the minimum of ``costs`` over all numbers of buffers, as bounds with open numbers are
    weak. ``free``: the costs hold for any number of buffers, so that only the presence of each Hold is enumerated."""
    if BUFFERS not in trees:
        return costs(nodes, rows)
    tree = trees[BUFFERS]
    each, number = (tree.alike if free else tree.singles)(nodes[BUFFERS])
    wide = {dim: each if dim == BUFFERS else np.repeat(own, number) for dim, own in nodes.items()}
    least: Values = np.minimum.reduceat(costs(wide, len(each)), np.cumsum(number) - number, axis=0)
    return least


@dataclass(slots=True)
class StageCosts:
    """Compiled costs of a stage in its frame: minimum over numbers of buffers (``least``); lower bounds for given numbers
    (``given``) and exact costs of single mappings (``exact``), once they are needed."""

    least: Compiled
    given: Compiled | None = None
    exact: Compiled | None = None


@dataclass(slots=True)
class Shape:
    """A compiled skeleton of a stage: the chains of its dims, and lower bounds over sets of them, each evaluated only for sets
    that the ones before do not prune. ``footprint``: footprint of each memory; ``least``: objectives for any numbers of buffers
    (cheapest to evaluate); ``given``: objectives for fixed numbers (None if there is no choice); ``exact``: objectives of single
    mappings (None if they are already known). The last two are compiled on first use."""

    skeleton: Skeleton
    trees: Mapping[str, ChainTree]
    capacities: Array
    width: int
    footprint: Compiled
    least: Compiled
    given: Callable[[], Compiled] | None
    exact: Callable[[], Compiled] | None
    _asked: int = 0

    def bounds(self, nodes: Mapping[str, Indices], rows: int, pruned: Callable[[Values], Flags] | None = None) -> Values:
        """Lower bounds of the objectives, one row per set; inf if every mapping of the set overflows a memory, or if the least
        costs are ``pruned``. Bounds of single mappings are their costs."""
        result = self._fitting(nodes, rows, self.least)
        left = self._promising(np.arange(rows), result, pruned)
        if self.given is not None:
            left = left[self.trees[BUFFERS].size[nodes[BUFFERS][left]] == 1]
            self._asked += len(left)
            if self._asked >= SETS_BEFORE_FULL_COSTS and len(left):
                result[left] = np.maximum(result[left], self.given()(_some(nodes, left), len(left)))
                left = self._promising(left, result, pruned)
        if self.exact is not None:
            left = left[np.logical_and.reduce([tree.size[nodes[dim][left]] == 1 for dim, tree in self.trees.items()])]
            if len(left):
                result[left] = np.maximum(result[left], self.exact()(_some(nodes, left), len(left)))
        return result

    def _promising(self, some: Indices, result: Values, pruned: Callable[[Values], Flags] | None) -> Indices:
        """The sets that are not pruned; pruned ones become inf in ``result``."""
        left: Indices = some[result[some, 0] < np.inf]
        if pruned is not None:
            gone = pruned(result[left])
            result[left[gone]] = np.inf
            left = left[~gone]
        return left

    def _fitting(self, nodes: Mapping[str, Indices], rows: int, costs: Compiled) -> Values:
        """Lower bounds of the objectives; inf for sets that do not fit."""
        if not len(self.capacities):
            return costs(nodes, rows)
        left = np.flatnonzero((self.footprint(nodes, rows) <= self.capacities).all(axis=1))
        result: Values = np.full((rows, self.width), np.inf)
        result[left] = costs(_some(nodes, left), len(left))
        return result

    def floor(self, nodes: Mapping[str, Indices], rows: int) -> Values:
        """Lower bounds like `bounds`, as the minimum over all choices of omitted Holds, as sets with this choice open have weak
        bounds."""
        if self.given is None:
            return self.bounds(nodes, rows)
        return least_of_buffers(partial(self._fitting, costs=self.least), self.trees, nodes, rows, free=True)


def _some(nodes: Mapping[str, Indices], rows: Indices) -> dict[str, Indices]:
    return {dim: own[rows] for dim, own in nodes.items()}
