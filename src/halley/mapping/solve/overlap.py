"""Exact search of overlapped stages, which work on different tiles in rounds (docs/model.md, "Rounds").

Times of sequential stages add up, so each stage is searched separately. For overlapped stages the time is that of the busiest
child or shared resource, and all hold their tiles at the same time. A *state* of some stages has the energy, the time of each
child, the busy time of each shared resource (and that of each child where children wait for it), and the footprint in each
memory by child. Resources in the clusters are not shared by children on separate partitions of the clusters: the time of the
child includes them. A stage that runs after all rounds has its own time and footprint. States of disjoint stages are combined
(sums; maxima of footprints in one child), and the cost of a plan is monotonic in every component. So a state of lower bounds
gives a lower bound of its plans, and a partial plan is dominated by another one whose state is no larger in every component. An
array of states has one column per state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from functools import cache
from itertools import combinations

import numpy as np

from halley.cost.estimate import Resource
from halley.cost.programs.program import Array, Indices
from halley.cost.resources import depth_of, meets, shared_engines
from halley.errors import Fault, InternalError
from halley.formulas.timing import contended_time, delayed_time, in_flight_time, longest, share_of_rounds, total, waiting_time
from halley.mapping.bounds.chain_sets import starts
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.bounds.shapes import Compiled
from halley.mapping.bounds.tighten import least_time
from halley.mapping.solve.fixed_shared_tiles import FixedTileSearch
from halley.mapping.solve.group import GroupState
from halley.mapping.solve.outside_stages import outside_cost
from halley.mapping.solve.stage_fronts import Pick, Vector
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import Skeleton
from halley.rewrite.rounds import rounds_apart, starts_together

MEMBERS_WITHOUT_TIGHTENING = 8
"""Up to this number of members of an axis, bound tightening is not worth a search, as few frames use its result."""


MIN_TIME = 1e-30
"""Smallest time [s] in divisions, to avoid division by zero."""


def in_children(group: GroupState, sequential: Sequence[Values]) -> list[Values]:
    """For each stage, least time and energy (shapes x combinations x 2), from its costs in sequential order (``sequential``): its
    time in a child is the same. With static power the energy is 0, as the costs contain leakage over a time that other stages may
    hide."""
    found: list[Values] = []
    for costs in sequential:
        values: Values = np.zeros((*costs.shape[:2], 2))
        for place, name in enumerate(("time", "energy")):
            if name in group.objectives and not (name == "energy" and group.chip.static_power):
                values[..., place] = costs[..., group.objectives.index(name)]
        found.append(values)
    return found


class Rounds:
    """The search of one frame of a group with overlapped stages."""

    def __init__(self, group: GroupState, frame: Frame, alone: Sequence[Values]) -> None:
        """``alone``: of each stage, least time and energy but for what leaks (shapes x combinations x both)."""
        self.group, self.frame = group, frame
        self.chip = group.chip
        self.memories = group.costs.limited
        self.capacities = np.array([self.chip.memory(name).capacity for name in self.memories])
        self.child_of = {stage: at for at, child in enumerate((*frame.children, frame.last)) for stage in child}
        self.shared = group.costs.searched_slots(frame.shared)
        self.rows = group.costs.combinations(frame)
        self.left = np.empty(0, dtype=np.int64)
        if not self.rows or not all(stage.skeletons for stage in frame.stages):
            return
        if self.group.found.pruned(self._least(alone)).all():
            return
        self.outside = outside_cost(group.costs, frame, group.outside_costs)
        self.left = self._worthwhile()
        if not len(self.left):
            return
        inside = self.chip.levels.index(self.chip.level(frame.partition.level)) if frame.partition else len(self.chip.levels)
        ops = [[group.costs.workload.op(op) for stage in child for op in frame.stages[stage].ops] for child in frame.children]
        together = {} if frame.partition else shared_engines(self.chip, ops)
        self.contended = {name: own for name, own in together.items() if starts_together(own, ops)}
        self.meetings: dict[tuple[int, int], tuple[Array, list[tuple[int, int]]]] = {}
        self.apart = [self.chip.depth(name) >= inside for name in self.memories]
        self._lay_out((), (), ())
        self.parts = self._promising(alone)
        if not len(self.left):
            return
        users: dict[Resource, set[int]] = {}
        for stage, parts in enumerate(self.parts):
            for resource in (resource for part in parts for resource in part.resources):
                users.setdefault(resource, set()).add(self.child_of[stage])
        shared = self.outside.busy.keys() | self.outside.beside.keys()
        met: dict[tuple[int, int], list[Resource]] = {}
        for pair in combinations(() if frame.partition else range(self.after), 2):
            met[pair] = [r for r, own in users.items() if own.issuperset(pair) and meets(self.chip, r, pair, together)]
        self._lay_out(
            (r for r, own in users.items() if depth_of(self.chip, r) < inside and (r in shared or len(own - {self.after}) > 1)),
            (resource for resource in self.outside.beside if self.after in users.get(resource, ())),
            dict.fromkeys((child, resource) for pair, common in met.items() for resource in common for child in pair),
        )
        rounds = self.outside.entries / self.outside.phases
        for pair, common in met.items():
            if common:
                places = [(self.uses.index((pair[0], r)), self.uses.index((pair[1], r))) for r in common]
                self.meetings[pair] = np.asarray(share_of_rounds(rounds, rounds_apart(pair, ops))), places
        self._floors = [[self._floor(at, part) for part in parts] for at, parts in enumerate(self.parts)]

    def _least(self, alone: Sequence[Values]) -> Values:
        """First lower bounds of the objectives for each combination of shared sizes: the longest child, and the stages after the
        rounds."""
        least = [own.min(axis=0) for own in alone]
        times = np.zeros((self.after + 1, self.rows))
        for stage, own in enumerate(least):
            times[self.child_of[stage]] += own[:, 0]
        time = times[:-1].max(axis=0) + times[-1]
        costs = {"time": time, "energy": total(own[:, 1] for own in least) + self.chip.static_power * time}
        return np.stack([costs[name] for name in self.group.objectives], axis=1)

    def _worthwhile(self) -> Indices:
        """The combinations of shared sizes that may be better than other frames. On all clusters, these have several rounds per
        phase: in a single round no stage overlaps another, so sequential stages of the same shapes are as fast with no larger
        footprint. On partitions, stages may have shapes that sequential stages do not have."""
        return np.flatnonzero(self.outside.entries > (self.outside.phases if self.frame.cut and not self.frame.partition else 0))

    @property
    def after(self) -> int:
        """The index, among the children, of the stages after the rounds."""
        return len(self.frame.children)

    def _lay_out(self, resources: Iterable[Resource], later: Iterable[Resource], uses: Iterable[tuple[int, Resource]]) -> None:
        """The layout of a state: energy; times; busy times of ``resources`` in the rounds, then of those ``later``; busy times of
        one child (``uses``); footprints."""
        self.resources, self.later, self.uses = tuple(resources), tuple(later), tuple(uses)
        children = self.after + bool(self.frame.last)
        self.busy = slice(1 + children, 1 + children + len(self.resources))
        self.used = slice(self.busy.stop + len(self.later), self.busy.stop + len(self.later) + len(self.uses))
        self.adding = self.used.stop  # what of a state adds up
        self.width = self.adding + children * len(self.memories)

    def _promising(self, alone: Sequence[Values]) -> list[list[Vector]]:
        """The shapes of each stage that are not pruned, with the remaining combinations of shared sizes in ``left``: first by the
        costs of each shape ``alone``, then by compiled bounds, stage by stage. Most frames are pruned before all shapes are
        compiled."""
        shapes = [list(stage.skeletons) for stage in self.frame.stages]
        states = [self._from_costs(stage, costs) for stage, costs in enumerate(alone)]
        parts: list[list[Vector]] = [[] for _ in shapes]
        self._narrow(states, shapes)
        for stage in sorted(range(len(shapes)), key=lambda stage: self._unknown(stage, shapes[stage])):
            if not len(self.left):
                break
            parts[stage] = [self._vector(stage, skeleton) for skeleton in shapes[stage]]
            states[stage] = np.full((self.width, len(parts[stage]), self.rows), np.inf)
            for place, part in enumerate(parts[stage]):
                states[stage][:, place, self.left] = self._floor(stage, part)
            self._narrow(states, shapes)
        kept = [{id(skeleton) for skeleton in own} for own in shapes]
        return [[part for part in own if id(part.skeleton) in kept[at]] for at, own in enumerate(parts)]

    def _narrow(self, states: list[Values], shapes: list[list[Skeleton]]) -> None:
        """Prune shapes (and their ``states``: components x shapes x combinations) and combinations that cannot improve the
        frontier with any shapes of the other stages."""
        for stage, skeletons in enumerate(shapes):
            least = [own[:, :, self.left].min(axis=1) for at, own in enumerate(states) if at != stage]
            own = states[stage][:, :, self.left].reshape(self.width, -1)
            joined = self.join(np.tile(self.together(least), len(skeletons)), own)
            pruned = self.group.found.pruned(self.objectives(joined, np.tile(self.left, len(skeletons))))
            possible = ~pruned.reshape(len(skeletons), -1)
            self.left = self.left[possible.any(axis=0)]
            if not len(self.left):
                return
            kept = np.flatnonzero(possible.any(axis=1))
            states[stage], shapes[stage] = states[stage][:, kept], [skeletons[at] for at in kept]

    def _from_costs(self, stage: int, costs: Values) -> Values:
        """States (components x shapes x combinations) from the least costs of a stage's shapes, with footprints and resources
        0."""
        states: Values = np.zeros((self.width, *costs.shape[:2]))
        states[1 + self.child_of[stage]], states[0] = costs[..., 0], costs[..., 1]
        return states

    # --- what is compiled ---------------------------------------------------------------------------------------------

    def _unknown(self, stage: int, skeletons: Sequence[Skeleton]) -> int:
        """Number of a stage's shapes that are not compiled yet."""
        return sum(self.frame.known_by(stage, skeleton) not in self.group.vectors for skeleton in skeletons)

    def _vector(self, index: int, skeleton: Skeleton) -> Vector:
        """The compiled shape of a stage, shared by frames that differ only in what overlaps."""
        known, key = self.group.vectors, self.frame.known_by(index, skeleton)
        if key not in known:
            known[key] = self._compile(index, skeleton)
        return known[key]

    def _compile(self, index: int, skeleton: Skeleton) -> Vector:
        self.group.tally.tick()
        estimate = self.group.costs.draft(self.frame, index, skeleton)
        trees = self.group.costs.trees.of(self.shared, self.group.costs.searched_slots(skeleton.slots))
        energy = estimate.energy_of_actions
        left_over = [estimate.footprint.get(name, 0) for name in self.memories]
        outputs = [estimate.time, energy, *estimate.busy.values(), *left_over]
        made = self.group.costs.trees.program(outputs, trees, lambda: f"{skeleton.name}, {self.frame.name}")

        @cache
        def exact() -> Compiled:
            symbols = self.group.costs.symbols(self.frame, skeleton)
            return self.group.costs.trees.single([self.group.costs.estimate(self.frame, index, skeleton, symbols).time], trees)

        return Vector(skeleton, made, trees, tuple(estimate.busy), starts(trees, self.shared, self.rows), exact)

    # --- states -------------------------------------------------------------------------------------------------------

    def _floor(self, stage: int, part: Vector) -> Values:
        """The least states of a stage's shape, one for each combination of shared sizes that is ``left``: mostly few."""
        self.group.tally.bounds += len(self.left)
        return self.state(stage, part, part.at_least(self.left), self.left)

    def floors(self, stage: int, at: Indices) -> list[Values]:
        """The least states of each shape of a stage, for some of the combinations that are left."""
        columns = np.searchsorted(self.left, at)
        return [floor[:, columns] for floor in self._floors[stage]]

    def state(self, stage: int, part: Vector, values: Array, at: Indices) -> Values:
        """States of a stage's shape from its bounds; ``at``: the combination of shared sizes of each."""
        states: Values = np.zeros((self.width, values.shape[1]))
        child, known = self.child_of[stage], dict(zip(part.resources, values[2:], strict=False))
        states[0] = values[1]
        states[1 + child] = values[0]
        follows = child == self.after
        resources, start = (self.later, self.busy.stop) if follows else (self.resources, self.busy.start)
        for place, resource in enumerate(resources, start):
            states[place] = known.get(resource, 0.0)
        for place, (user, resource) in enumerate(self.uses, self.used.start):
            if user == child:
                states[place] = known.get(resource, 0.0)
        own, counted = self.adding + child * len(self.memories), self.outside.footprint if follows else self.outside.counted
        left_over = np.maximum(values[2 + len(part.resources) :] - counted[:, at], 0.0)
        if not self.frame.cut:  # sequential stages reuse the capacity: each fits or not, whatever another leaves free
            left_over = np.where(left_over + self.outside.footprint[:, at] > self.capacities[:, None], np.inf, 0.0)
        states[own : own + len(self.memories)] = left_over
        return states

    def join(self, first: Values, second: Values) -> Values:
        """The combined states; a single column is broadcast."""
        result: Values = np.empty((self.width, max(first.shape[1], second.shape[1])))
        np.add(first[: self.adding], second[: self.adding], out=result[: self.adding])
        np.maximum(first[self.adding :], second[self.adding :], out=result[self.adding :])
        return result

    def objectives(self, states: Values, at: Indices) -> Values:
        """Costs of plans with these states, a row each; infinite where they do not fit. ``at``: as for `state`."""
        time = self._time(states, at) if self.group.costs.timed else 0.0
        costs = {"time": time, "energy": states[0] + self.outside.energy[at] + self.chip.static_power * time}
        result: Values = np.stack([costs[name] for name in self.group.objectives], axis=1)
        for place, capacity in enumerate(self.capacities):
            left_over = states[self.adding + place :: len(self.memories)]
            own, after = left_over[: self.after], left_over[self.after :].max(axis=0, initial=0.0)
            used = np.maximum(own.max(axis=0) if self.apart[place] else own.sum(axis=0), after)
            result[used + self.outside.footprint[place, at] > capacity] = np.inf
        return result

    def _time(self, states: Values, at: Indices) -> Values:
        """Least time of plans with these states: the busiest child or resource, pipeline fill and drain, and the stages after the
        rounds. It is monotonic in every component: a larger component may shorten fill and drain, but by no more than its
        increase, as every round has at least one entry per phase."""
        outside_cost = self.outside
        children, after, busy = states[1 : 1 + self.after], states[1 + self.after : self.busy.start], states[self.busy]
        work: dict[Resource, Values] = dict(zip(self.resources, busy, strict=True))
        for resource, time in outside_cost.busy.items():
            work[resource] = time[at] + work.get(resource, 0.0)
        busiest = children.max(axis=0)
        for engine, users in self.contended.items():
            times = [np.maximum(children[child], MIN_TIME) for child in users]
            busiest = np.maximum(busiest, contended_time(times, work.get(engine, 0.0)))
        for child, met in self._met(states[self.used], at).items():
            busiest = np.maximum(busiest, delayed_time(np.maximum(children[child], MIN_TIME), met))
        for resource in work.keys() - outside_cost.ends.keys():
            busiest = np.maximum(busiest, work[resource])
        waiting = outside_cost.phases[at] * waiting_time(children.sum(axis=0), busiest, outside_cost.entries[at])
        result = busiest + waiting + outside_cost.ramps[at]
        for resource in work.keys() & outside_cost.ends.keys():
            result = np.maximum(result, work[resource] + outside_cost.ends[resource][at])
        for visits in outside_cost.visits:
            inside = children[visits.first : visits.last + 1].sum(axis=0)
            result = np.maximum(result, in_flight_time(visits.moving[at] + inside, visits.buffers[at]))
        result = result + after.sum(axis=0) + outside_cost.serial[at]
        later = dict(zip(self.later, states[self.busy.stop : self.used.start], strict=True))
        for resource, time in outside_cost.beside.items():
            result = np.maximum(result, time[at] + work.get(resource, 0.0) + later.get(resource, 0.0))
        return np.asarray(result)

    def _met(self, uses: Values, at: Indices) -> dict[int, Values]:
        """For each child, its meetings [s^2] with other children at resources (`delayed_time`)."""
        found: dict[int, Values] = {}
        for pair, (share, places) in self.meetings.items():
            product = share[at] * longest(uses[first] * uses[second] for first, second in places)
            for child in pair:
                found[child] = found[child] + product if child in found else product
        return found

    def total(self) -> Values:
        """Lower bounds of the objectives for each combination of shared tile sizes."""
        result: Values = np.full((self.rows, len(self.group.objectives)), np.inf)
        if len(self.left):
            result[self.left] = self.objectives(self.together(self.least_states(self.left)), self.left)
        return result

    # --- shared tile sizes fixed --------------------------------------------------------------------------------------

    def solve(self, combination: int, quick: bool = False) -> None:
        """Find the Pareto set of each stage, then the plans that improve the frontier. ``quick`` follows only the most promising
        choice.

        Most resources and memories limit no plan. So the dominance resources are refined lazily: at first, mappings of a stage
        are compared only in time and energy, and in the limits that earlier frames needed. If a plan then costs more because of
        an omitted limit, the search is repeated with that limit."""
        at = np.array([combination])
        if not quick and self._in_many():
            self._tighten(at)
        dominance_resources = self.group.dominance_resources[self.frame.partition is not None]
        while limits := FixedTileSearch(self, at, quick, {} if quick else self._hidden(dominance_resources)).run():
            dominance_resources |= limits

    def _hidden(self, dominance_resources: Set[Hashable]) -> Mapping[Hashable, Sequence[int]]:
        """The components of a state by the resource or memory that they belong to, without the dominance resources."""
        found: dict[Hashable, list[int]] = {}
        every = (*self.resources, *self.later, *(resource for _, resource in self.uses))
        for place, resource in enumerate(every, self.busy.start):
            found.setdefault(resource, []).append(place)
        for place, name in enumerate(self.memories, self.adding):
            found[name] = [*range(place, self.width, len(self.memories))]
        return {limit: parts for limit, parts in found.items() if limit not in dominance_resources}

    def reach(self, picks: Mapping[int, Pick], expected: Values) -> None:
        """Add a plan, given by the pick of each stage, with its exact cost to the frontier: at least ``expected``, as visits of
        Holds outside all phases may take longer."""
        tiles = self.group.costs.fixed_sizes(self.frame.shared)
        for part, nodes in picks.values():
            for tree, node in zip(part.trees.values(), nodes, strict=True):
                tiles |= tree.sizes(int(node))
            tiles |= self.group.costs.fixed_sizes(part.skeleton.slots)
        values = self.group.reach(self.frame, tuple(picks[stage][0].skeleton for stage in range(len(picks))), tiles)
        if (values < expected * (1 - 1e-9)).any():
            got = f"{values} for {self.frame.name}"
            raise InternalError(Fault("search", f"overlapped stages to cost at least {expected} together", got, "please report"))

    def _in_many(self) -> bool:
        """Whether a stage's shapes are in many frames, which differ in the partitions of the other stages."""
        partition = self.frame.partition
        return partition is not None and self.chip.axis(partition.level, partition.axis).size > MEMBERS_WITHOUT_TIGHTENING

    def _tighten(self, at: Indices) -> None:
        """Tighten the bounds of shapes that are not pruned to their least times, which are computed once for all frames with the
        shapes; most of these frames are then pruned."""
        column = np.searchsorted(self.left, at)
        for stage, (parts, floors) in enumerate(zip(self.parts, self._floors, strict=True)):
            others = self.together([state for other, state in enumerate(self.least_states(at)) if other != stage])
            for part, floor in zip(parts, floors, strict=True):
                if not self.group.found.pruned(self.objectives(self.join(others, floor[:, column]), at))[0]:
                    child, time = 1 + self.child_of[stage], self._least_time(part, at)
                    floor[child, column] = np.maximum(floor[child, column], time if np.isfinite(time) else 0.0)

    def _least_time(self, part: Vector, at: Indices) -> float:
        """The least time of a shape with given shared sizes; the same in all frames with the shape."""
        combination = int(at[0])
        if combination not in part.times:
            self.group.tally.tick()
            start = starts(part.trees, self.shared, self.rows)
            nodes = {dim: int(own[combination]) for dim, own in start.items()}
            left_over = (self.capacities + self.outside.counted[:, combination])[:, None]

            def fits(found: Array) -> Flags:
                return np.asarray((found[2 + len(part.resources) :] <= left_over).all(axis=0))

            part.times[combination] = least_time(part.bounds, part.trees, nodes, fits)
        return part.times[combination]

    def least_states(self, at: Indices) -> list[Values]:
        """For each stage the minimum over its shapes, for some combinations of shared sizes."""
        return [np.min(self.floors(stage, at), axis=0) for stage in range(len(self.parts))]

    def together(self, states: Sequence[Values]) -> Values:
        """The combination of several states."""
        result = states[0]
        for state in states[1:]:
            result = self.join(result, state)
        return result
