"""Pareto search at fixed shared tile sizes for overlapped stages: the Pareto set of each stage, and plans that combine them.

Used by `halley.mapping.solve.overlap`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from halley.cost.programs.program import Indices
from halley.errors import Fault, InternalError
from halley.mapping.bounds.chain_sets import DIVE_BEAM_WIDTHS, DIVE_SHAPES, opened, split_in, starts
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.solve.stage_fronts import Fronts, Pick, Vector, dominated, undominated
from halley.mapping.space.stages import BUFFERS
from halley.optim.branch_and_bound import Batch, Batches, branch_and_bound

if TYPE_CHECKING:
    from halley.mapping.solve.overlap import Rounds


@dataclass(frozen=True, slots=True)
class FixedTileSearch:
    """The search of a frame with the combination ``at`` of its shared sizes. Mappings of a stage are compared in all components
    of their states except for the ``hidden`` ones (by limit); ``quick`` follows only the most promising choice."""

    rounds: Rounds
    at: Indices
    quick: bool
    hidden: Mapping[Hashable, Sequence[int]]

    def run(self) -> set[Hashable]:
        """Compute the Pareto sets of the stages, those of fewest mappings first, then add the plans that improve the frontier.
        Returns limits that must be dominance resources as well: a plan costs more because of them, and mappings that need less
        of them may be better."""
        rounds = self.rounds
        least = rounds.least_states(self.at)
        if self.pruned(rounds.objectives(rounds.together(least), self.at))[0]:
            return set()
        order = sorted(range(len(rounds.parts)), key=lambda stage: sum(map(_mappings, rounds.parts[stage])))
        fronts: list[Fronts] = []
        for place, stage in enumerate(order):
            others = rounds.together([*(front.states[:, :1] for front in fronts), *(least[s] for s in order[place + 1 :])])
            front = _StageSearch(self, stage, others).run()
            if front is None:
                return set()
            fronts.append(front)
        return self._join_up(fronts, order)

    def pruned(self, bounds: Values) -> Flags:
        return self.rounds.group.found.pruned(bounds)

    def _join_up(self, fronts: Sequence[Fronts], order: Sequence[int]) -> set[Hashable]:
        """Add the plans that improve the frontier: combinations of one pick of each stage's front (``fronts``, in ``order``).
        Sets of picks are divided down to single ones. Returns like `run`, at the first plan that costs more than its bound."""
        limits = set[Hashable]()

        def branch(batch: Batch) -> Iterator[Batch]:
            self.rounds.group.tally.tick()
            bounds, rows = batch
            sizes = np.stack([front.size[rows[:, place]] for place, front in enumerate(fronts)], axis=1)
            single = sizes.max(axis=1, initial=1) == 1
            for bound, row in zip(bounds[single], rows[single], strict=True):
                if not self.pruned(bound[None, :])[0]:
                    limits.update(self._reach(dict(zip(order, map(Fronts.pick, fronts, row), strict=True)), bound))
                    if limits:
                        return
            if not single.all():
                parts = split_in(fronts, rows[~single], sizes[~single].argmax(axis=1))
                yield self._of_picks(fronts, parts), parts

        every = np.zeros((1, len(fronts)), dtype=np.int64)
        branch_and_bound(Batches((self._of_picks(fronts, every), every), self.pruned), branch, lambda: bool(limits))
        return limits

    def _of_picks(self, fronts: Sequence[Fronts], rows: Indices) -> Values:
        """Lower bounds of plans, a node of each front per row."""
        self.rounds.group.tally.bounds += len(rows)
        states = [front.states[:, own] for front, own in zip(fronts, rows.T, strict=True)]
        return self.rounds.objectives(self.rounds.together(states), self.at)

    def _reach(self, picks: Mapping[int, Pick], bound: Values) -> set[Hashable]:
        """Add a plan, given by the pick of each stage, with its exact cost to the frontier. Returns the hidden limits that make
        it cost more than its ``bound``."""
        rounds = self.rounds
        states = rounds.together([self.states(stage, part, np.array([nodes])) for stage, (part, nodes) in picks.items()])
        (costs,) = rounds.objectives(states, self.at)
        if not self.pruned(costs[None, :])[0]:
            rounds.reach(picks, costs)
        if not (costs > bound).any():
            return set()

        def costs_more(limits: Set[Hashable]) -> bool:
            return bool((rounds.objectives(self.by_dominance_resources(states, limits), self.at) > bound).any())

        if not costs_more(self.hidden.keys()):
            raise InternalError(Fault("search", f"a plan to cost {bound}", f"{costs}, by no limit left out", "please report"))
        if limits := {limit for limit in self.hidden if costs_more({limit})}:
            return limits
        limits = set(self.hidden)  # waits of a child at several resources add up: those that it takes together
        for limit in self.hidden:
            if costs_more(limits - {limit}):
                limits.discard(limit)
        return limits

    def by_dominance_resources(self, states: Values, by: Set[Hashable] = frozenset()) -> Values:
        """States with the hidden components set to 0, except for those of the limits ``by``."""
        seen = states.copy()
        seen[[part for limit, parts in self.hidden.items() if limit not in by for part in parts]] = 0.0
        return seen

    def states(self, stage: int, part: Vector, rows: Indices) -> Values:
        """States of sets of a stage's shape, a node per dim."""
        nodes = {dim: np.ascontiguousarray(rows[:, place]) for place, dim in enumerate(part.trees)}
        return self.rounds.state(stage, part, part.bounds(nodes, len(rows)), self.at)


def _mappings(part: Vector) -> float:
    """Approximate number of mappings of a shape."""
    return float(np.prod([float(tree.count) for tree in part.trees.values()]))


@dataclass(slots=True)
class _StageSearch:
    """The Pareto set of one stage. ``others``: least states of the other stages."""

    fixed: FixedTileSearch
    stage: int
    others: Values
    front: Values = field(init=False)
    made: list[Pick] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.front = np.empty((self.fixed.rounds.width, 0))

    def run(self) -> Fronts | None:
        """The non-dominated mappings of the stage, compared in the dominance resources."""
        rounds, quick = self.fixed.rounds, self.fixed.quick
        floors = [self._bounds(floor) for floor in rounds.floors(self.stage, self.fixed.at)]
        order = sorted(range(len(floors)), key=lambda place: tuple(floors[place][0]))
        for place in order[:DIVE_SHAPES] if quick else order:
            if not self.fixed.pruned(floors[place])[0]:
                self._refine(rounds.parts[self.stage][place], floors[place])
        if not self.made:
            return None
        if quick:  # of frames with equal bounds, the one that leaves the others most capacity
            bounds = self._bounds(self.front)
            best = np.lexsort((self.front[rounds.adding :].sum(axis=0), *bounds.T[::-1]))[:1]
            return Fronts(self.front[:, best], [self.made[int(best[0])]])
        return Fronts(self.front, self.made)

    def _bounds(self, states: Values) -> Values:
        """Lower bounds of plans with these states of the stage."""
        rounds = self.fixed.rounds
        return rounds.objectives(rounds.join(self.others, states), self.fixed.at)

    def _refine(self, part: Vector, floor: Values) -> None:
        """Divide sets of tile chains down to single mappings."""
        fixed, rounds = self.fixed, self.fixed.rounds
        dims, trees = tuple(part.trees), tuple(part.trees.values())
        start = starts(part.trees, rounds.shared, rounds.rows)
        rows = np.array([[int(start[dim][fixed.at[0]]) for dim in dims]], dtype=np.int64)
        if BUFFERS in dims:
            rows = opened(rows, dims.index(BUFFERS), part.trees[BUFFERS].singles)
            floor = self._bounds(self._states(part, rows))

        def branch(batch: Batch) -> Iterator[Batch]:
            rounds.group.tally.tick()
            _, rows = batch
            sizes = np.array([tree.size[rows[:, at]] for at, tree in enumerate(trees)]).reshape(len(trees), len(rows))
            single = sizes.max(axis=0, initial=1) == 1
            if single.any():
                self._keep(part, rows[single])
                rows, sizes = rows[~single], sizes[:, ~single]
            if not len(rows):
                return
            rows = split_in(trees, rows, sizes.argmax(axis=0))
            states = self._states(part, rows)
            values = self._bounds(states)
            kept = np.flatnonzero(~fixed.pruned(values))
            kept = kept[~dominated(fixed.by_dominance_resources(states[:, kept]), self.front)]
            yield values[kept], rows[kept]

        branch_and_bound(Batches((floor, rows), fixed.pruned, DIVE_BEAM_WIDTHS[0] if fixed.quick else 0), branch)

    def _states(self, part: Vector, rows: Indices) -> Values:
        """States of a shape's sets."""
        self.fixed.rounds.group.tally.bounds += len(rows)
        return self.fixed.states(self.stage, part, rows)

    def _keep(self, part: Vector, rows: Indices) -> None:
        """Add single mappings to the Pareto set."""
        self.fixed.rounds.group.tally.costed += len(rows)
        states = np.hstack([self.front, self.fixed.by_dominance_resources(self._states(part, rows))])
        made = [*self.made, *((part, tuple(row)) for row in rows)]
        best = undominated(states)
        self.front, self.made = states[:, best], [made[place] for place in best]
