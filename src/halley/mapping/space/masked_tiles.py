"""Numbers of visible pairs of tiles under a mask in the search, which depend on the shared tile sizes of two dims.

In a frame with a loop over visible keys inside the rows, both sizes are shared sizes, which are always fixed first. So each
combination of them is a set with exact numbers, like an additional dim without sizes to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from halley.cost.pairs import Counts, MaskedPairs, of_open, pair_counts
from halley.cost.programs.instructions import made_of, tabulate
from halley.cost.programs.program import Array, Factor, Indices
from halley.formulas.terms import Operation, Term
from halley.mapping.space.tile_chains import ChainTree


class PairTree(ChainTree):
    """A node for each combination of the shared sizes of rows and of keys, the keys' fastest."""

    def __init__(self, dims: tuple[str, str], rows: ChainTree, keys: ChainTree) -> None:
        self.dims = dims
        self._sides = rows, keys
        combinations = len(rows.given) * len(keys.given)
        self.count, self.shared = 1, 0
        self.start: Indices = np.arange(combinations)
        self.size: Indices = np.ones(combinations, dtype=np.int64)
        self.first_child = self.children = np.zeros(combinations, dtype=np.int64)
        self.columns = {}
        self._seen: dict[MaskedPairs, Counts] = {}
        self._values: dict[int, Array] = {}

    @property
    def given(self) -> Indices:
        """One: which combination it is depends on the nodes of the two dims (`node`)."""
        return np.zeros(1, dtype=np.int64)

    def node(self, nodes: Mapping[str, Indices]) -> Indices:
        """The node of each pair of ``nodes`` that fix the shared sizes."""
        (first, second), (rows, keys) = (tree.given for tree in self._sides), (nodes[dim] for dim in self.dims)
        return np.asarray((rows - first[0]) * len(second) + keys - second[0])

    def tables(self, factors: Sequence[Factor]) -> list[Array]:
        for factor in factors:
            if factor.term.index not in self._values:
                self._values[factor.term.index] = self._tabulated_pairs(factor.term)
        return [self._values[factor.term.index] for factor in factors]

    def negative(self, factor: Factor) -> bool:
        return bool(self._values[factor.term.index].min() < 0.0)

    def sizes(self, node: int) -> dict[str, int]:
        return {}

    def _tabulated_pairs(self, term: Term) -> Array:
        opened = [part.a for part in made_of([term]) if part.operation is Operation.OPEN]
        return np.ascontiguousarray(tabulate([term], {name: self._numbers(name) for name in opened})[0])

    def _numbers(self, name: str) -> Array:
        """Of an open number of pairs, the value for each combination."""
        seen, (rows, keys) = of_open(name)
        if seen not in self._seen:
            tiles = [*(cut.tile for cut in seen.cuts), seen.tile]
            columns = self._sizes()
            found = iter(tabulate([tile for tile in tiles if isinstance(tile, Term)], columns))
            made = [next(found) if isinstance(tile, Term) else np.full(len(self.start), tile) for tile in tiles]
            hows = tuple(cut.how for cut in seen.cuts)
            self._seen[seen] = pair_counts(seen.mask, seen.rows, seen.keys, hows, np.stack(made, axis=1))
        return np.asarray(self._seen[seen][2 * rows + keys])

    def _sizes(self) -> dict[str, Array]:
        """The shared sizes of both dims, for each combination."""
        rows, keys = self._sides
        of_rows, of_keys = (own.ravel() for own in np.meshgrid(rows.start[rows.given], keys.start[keys.given], indexing="ij"))
        shared = [(tree, list(tree.columns.items())[: tree.shared], at) for tree, at in ((rows, of_rows), (keys, of_keys))]
        return {name: column[at].astype(np.float64) for _, columns, at in shared for name, column in columns}
