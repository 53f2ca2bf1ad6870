"""Fused groups of kernels: the search of each, and its results so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from halley.ir.mapping import Hold, Node
from halley.ir.workload import Workload
from halley.mapping.baselines import AdmittedShapes
from halley.mapping.bounds.compulsory import CompulsoryBounds
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Frontier, Values, minimal
from halley.mapping.bounds.progress import Interrupted, SearchCounter
from halley.mapping.bounds.shapes import Trees
from halley.mapping.problem import Problem, objective_value
from halley.mapping.solve.aligned_tiles import with_aligned_tiles
from halley.mapping.solve.descent import descend
from halley.mapping.solve.group import GroupState
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.slack import with_slack
from halley.mapping.solve.space_size import count_mappings, has_mappings
from halley.mapping.solve.ties import EQUAL, fastest
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.equal_groups import form, renamed
from halley.mapping.space.frame_sets import GroupSpace
from halley.mapping.space.frames.group import frames, fusible
from halley.mapping.space.frames.shared_buffer import Laid
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import divisions, hierarchy
from halley.mapping.space.partitions import Kernels, group_ops


@dataclass(slots=True, eq=False)
class FusedGroup:
    """A fused group: its search, and the results so far. The search is made when it is first asked for, by ``make``: most groups
    of a large workload are pruned by their compulsory lower bound alone.

    ``lower``: rows of objectives; every mapping is no better than one of them (except for the allowed gap). ``points``:
    objectives of the mappings ``choices``; ``exact``: these are proven optimal.
    """

    make: Callable[[], GroupSearch]
    trees: Trees
    lower: Values
    points: Values
    choices: list[GroupMapping] = field(default_factory=list)
    exact: bool = False
    done: bool = False
    _search: GroupSearch | None = None
    _size: int | None = None

    @property
    def search(self) -> GroupSearch:
        if self._search is None:
            self._search = self.make()
        return self._search

    def open(self) -> bool:
        """Whether the space of the group has any mapping; without one, no plan has the group."""
        if has_mappings(self.search.space, self.trees):
            return True
        self.lower, self.exact, self.done, self._size = self.lower[:0], True, True, 0
        return False

    def size(self, tick: Callable[[], None]) -> int:
        """Exact number of mappings. ``tick`` may end the count with `Interrupted`."""
        if self._size is None:
            self._size = count_mappings(self.search.space, self.trees, tick)
        return self._size

    def restrict(self, shapes: AdmittedShapes, objectives: tuple[str, ...]) -> None:
        """Search anew, only some shapes, for these objectives. What was found stays."""
        self._search = restricted_search(self.search, shapes, objectives)
        for point, choice in zip(self.points, self.choices, strict=True):
            self._search.found.add(point, choice)

    def run(self, incumbents: Values, gap: float = 0.0) -> None:
        """Search for mappings that beat the incumbents. On `Interrupted` the best so far and a bound are recorded. ``gap``: only
        until no mapping is better than the best found by more than this relative gap, instead of the one that is allowed; the
        group is not done then."""
        found = self.search.found
        allowed, coarse = found.gap, found.width == 1 and gap > found.gap
        if coarse:
            found.gap = gap
        try:
            self.search.run(incumbents)
            if coarse:
                self._raise_to(found.points / (1 + found.gap))
                self.search.group.orders.clear()  # ruled out for this gap only
            else:
                self.done, self.lower = True, found.points
                self.exact = None not in found.payloads
        except (Interrupted, KeyboardInterrupt):
            if self.search.open_bounds:
                best = found.points / (1 + found.gap) if coarse else found.points
                self._raise_to(np.array([*self.search.open_bounds, *best]))
            raise
        finally:
            found.gap = allowed
            self.collect()

    def within(self, incumbents: Values, gap: float) -> bool:
        """Whether a search for this relative gap would find nothing, for one objective: no mapping is better by more than that
        than the best one found, or than the ``incumbents``."""
        known = np.vstack([self.points, incumbents])
        return gap > 0 and known.shape[1] == 1 and self.lower.min(initial=np.inf) * (1 + gap) >= known.min(initial=np.inf)

    def _raise_to(self, lower: Values) -> None:
        """Other valid bounds: with one objective, the higher of two; fronts are not ordered, and the later one is tighter. No
        bounds at all: there is no mapping."""
        higher = lower.min(initial=np.inf) > self.lower.min(initial=np.inf)
        self.lower = lower if lower.shape[1] > 1 or higher else self.lower

    def dive(self) -> None:
        """Find a first mapping quickly."""
        try:
            self.search.dive()
        finally:
            self.collect()

    def descend(self, choice: GroupMapping, tick: Callable[[], None]) -> None:
        """Improve a mapping that was found, by changes of single sizes; ``tick`` may end that with `Interrupted`."""
        try:
            descend(self.search, choice, tick)
        finally:
            self.collect()

    def collect(self) -> None:
        own = [i for i, choice in enumerate(self.search.found.payloads) if choice is not None]
        self.points, self.choices = self.search.found.points[own], [self.search.found.payloads[i] for i in own]


Whose = tuple[int, str, bool]
"""The division of the chip and the variant that kernels are of, and whether these are its single ops."""


def _whose(workload: Workload, division: int) -> Whose:
    return division, workload.variant, workload.divisible


class FusedGroups:
    """The groups of a problem, created on demand. Groups that are equal except for names share one search.

    ``objectives``: those of the search; ``goals``: the ones that a baseline needs."""

    def __init__(
        self, problem: Problem, objectives: tuple[str, ...], goals: tuple[str, ...], gap: float, tally: SearchCounter
    ) -> None:
        self.problem, self.objectives, self.goals, self.gap, self.tally = problem, objectives, goals, gap, tally
        self.machines = tuple(map(hierarchy, divisions(problem.chip)))
        self.trees = Trees()
        self._known: dict[tuple[Whose, Kernels], FusedGroup] = {}
        self._alike: dict[Hashable, FusedGroup] = {}
        self._parts: dict[tuple[FusedGroup, AdmittedShapes], FusedGroup] = {}
        self._laid: dict[Whose, Laid] = {}
        self._spaces: dict[tuple[Whose, Kernels], GroupSpace] = {}
        self._work: dict[Whose, dict[Hashable, tuple[float, float]]] = {}
        self._fastest: dict[int, tuple[GroupMapping, GroupMapping]] = {}
        self._adjusted: dict[int, tuple[GroupMapping, GroupMapping]] = {}

    def of(self, workload: Workload, kernels: Kernels, division: int = 0) -> FusedGroup:
        """The group with all of its shapes, searched for the objectives of the best plan. ``division``: the number of the chip
        with its axes whole or in groups (`halley.mapping.space.hierarchy.divisions`)."""
        key = (_whose(workload, division), kernels)
        if key not in self._known:
            ops = group_ops(workload, kernels)
            kept = _kept(workload, kernels)
            same = division, form(workload, ops, kept)
            if same not in self._alike:
                self._alike[same] = self._made(workload, kernels, kept, division)
            self._known[key] = self._alike[same]
        return self._known[key]

    def _made(self, workload: Workload, kernels: Kernels, kept: tuple[str, ...], division: int) -> FusedGroup:
        ops, machine = group_ops(workload, kernels), self.machines[division]
        outer, chip = machine.outer, machine.chip
        work = self._work.setdefault(_whose(workload, division), {})
        floors = CompulsoryBounds(workload, chip, machine, ops, kept, work)

        def enclose(node: Node) -> Node:
            return Hold(outer, tuple((name,) for name in kept), node, 1)

        def make() -> GroupSearch:
            space = self._frames(workload, kernels, division)
            costs = Costing(workload, chip, space.ops, enclose, self.objectives, self.trees, self.tally)
            return GroupSearch(GroupState(costs, floors.frame, Frontier(len(self.objectives), self.gap), floors.engines), space)

        none = np.empty((0, len(self.objectives)))
        if not fusible(FusedOps(workload, machine, tuple(ops))):
            return FusedGroup(make, self.trees, none, none, exact=True, done=True, _size=0)
        least = floors.group()
        return FusedGroup(make, self.trees, np.array([[least[name] for name in self.objectives]]), none)

    def _frames(self, workload: Workload, kernels: Kernels, division: int) -> GroupSpace:
        """The frames of a group, made once; stages are shared with other groups."""
        whose = _whose(workload, division)
        key = (whose, kernels)
        if key not in self._spaces:
            laid, ops = self._laid.setdefault(whose, Laid()), group_ops(workload, kernels)
            self._spaces[key] = frames(workload, self.machines[division], ops, laid)
        return self._spaces[key]

    def part(self, workload: Workload, kernels: Kernels, shapes: AdmittedShapes, division: int = 0) -> FusedGroup:
        """The group for a baseline: only admitted shapes, searched for the best mappings among them even if other shapes are
        better. It starts from the results of the main search: its bound, and its mappings of admitted shapes."""
        base = self.of(workload, kernels, division)
        key = (base, shapes)
        if key not in self._parts:
            columns = [self.objectives.index(name) for name in self.goals]
            fitting = [i for i, choice in enumerate(base.choices) if shapes.admits(choice)]
            points, lower = base.points[:, columns], base.lower[:, columns]
            part = FusedGroup(lambda: restricted_search(base.search, shapes, self.goals), self.trees, lower, points[fitting])
            part.choices = [base.choices[i] for i in fitting]
            if base.exact:
                part.exact = not len(points) or set(minimal(points).tolist()) <= set(fitting)
            self._parts[key] = part
        return self._parts[key]

    def choice(
        self,
        workload: Workload,
        kernels: Kernels,
        found: GroupMapping,
        tick: Callable[[], None] = lambda: None,
        adjusted: bool = False,
        division: int = 0,
        allowed: float = EQUAL,
    ) -> GroupMapping:
        """A mapping found for these kernels, or for an equal group, with the names of these kernels. If energy is the only
        objective, a fast one among those of equal energy; ``tick`` may end the search for it with `Interrupted`. ``adjusted``: of
        mappings that are equally good, or take longer by no more than a share ``allowed``, one with slack and aligned tile
        sizes."""
        group = self.of(workload, kernels, division)
        costs = group.search.costs
        if costs.lean:
            if id(found) not in self._fastest:
                self._fastest[id(found)] = found, fastest(group.search, found, tick)
            found = self._fastest[id(found)][1]
        if adjusted:
            if id(found) not in self._adjusted:
                given = costs.workload, costs.chip, costs.enclose
                value = partial(objective_value, self.problem.objective)
                self._adjusted[id(found)] = found, with_aligned_tiles(*given, with_slack(*given, found, value, allowed))
            found = self._adjusted[id(found)][1]
        ops = group_ops(workload, kernels)
        if tuple(op for op in costs.workload.ops if op.name in costs.ops) == ops:
            return found  # as in another variant with the same kernel: its frames need not be made
        return renamed(found, group.search.space, self._frames(workload, kernels, division))


def _kept(workload: Workload, kernels: Kernels) -> tuple[str, ...]:
    """The tensors of a group that the outer memory holds: inputs from outside the group, and results for outside."""
    ops = group_ops(workload, kernels)
    inside = {op.name for op in ops}
    made = {name for op in ops for name in op.outputs}
    return tuple(
        name
        for name in dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))
        if name not in made or workload.leaves(name, inside)
    )


def restricted_search(search: GroupSearch, shapes: AdmittedShapes, objectives: tuple[str, ...]) -> GroupSearch:
    """A new search restricted to some shapes."""
    return search.narrowed(shapes.of(search.space), objectives)
