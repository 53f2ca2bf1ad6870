"""Exact search in one group: frames, shared tile sizes, then each stage separately.

Every stage's cost formulas run once on open tile sizes (`halley.mapping.bounds.costing`). Bounds and costs are that program's
values on sets of tile chains (`halley.mapping.space.tile_chains`), from all of them down to single ones. A set is pruned only if
its bound is no better than the incumbent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from halley.cost.evaluate import evaluate
from halley.cost.program import Indices
from halley.errors import Fault, InternalError
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node
from halley.ir.workload import Workload
from halley.mapping.bounds.chain_sets import (
    CHAINS_WITH_OPEN_BUFFERS,
    DIVE_BEAM_WIDTH,
    DIVE_SHAPES,
    opened,
    split_in,
    starts,
)
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Flags, Frontier, Values, minimal
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.bounds.shapes import Shape, Trees
from halley.mapping.solve.axis_partitions import promising
from halley.mapping.solve.frame_order import search_all
from halley.mapping.solve.loop_orders import ruled_out
from halley.mapping.solve.outside_stages import OutsideCost, holds_fit
from halley.mapping.solve.overlap import Rounds, Vector, fits, in_children
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.compose import Cut
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.stages import BUFFERS, GroupStage, Skeleton
from halley.optim.branch_and_bound import Batch, Batches, branch_and_bound


@dataclass(slots=True)
class GroupSearch:
    """Search of one group. ``around`` wraps the group's tree in the workload's outer Holds; ``least``: compulsory lower bounds of
    a frame. ``frames``: the current frames by number; frames with stages on partitions of an axis are added and removed in
    batches. ``dominance_resources``: the resources and memories in which mappings of overlapped stages must be compared, for
    frames on all clusters and on partitions."""

    workload: Workload
    chip: Chip
    space: GroupSpace
    around: Callable[[Node], Node]
    objectives: tuple[str, ...]
    tally: SearchCounter
    gap: float = 0.0
    trees: Trees = field(default_factory=Trees)
    least: Callable[[Frame, Compute | None], Mapping[str, float]] = lambda frame, laid: {"time": 0.0, "energy": 0.0}
    frames: list[Frame] = field(init=False)
    found: Frontier = field(init=False)
    open_bounds: list[Values] = field(default_factory=list)
    costs: Costing = field(init=False)
    _floors: dict[int, list[Values]] = field(default_factory=dict)
    _rounds: dict[int, Rounds | None] = field(default_factory=dict)
    _in_turn: dict[tuple[int, int], Values] = field(default_factory=dict)
    vectors: dict[Hashable, Vector] = field(default_factory=dict)
    outside_costs: dict[tuple[Cut, str], OutsideCost] = field(default_factory=dict)
    orders: dict[Hashable, tuple[Frame, bool]] = field(default_factory=dict)
    dominance_resources: tuple[set[Hashable], set[Hashable]] = field(default_factory=lambda: (set(), set()))

    def __post_init__(self) -> None:
        self.frames, self.found = list(self.space.plain), Frontier(len(self.objectives), self.gap)
        ops = self.space.ops
        self.costs = Costing(self.workload, self.chip, ops, self.around, self.objectives, self.trees, self.tally)

    def run(self, incumbents: Values) -> Frontier:
        """The proven frontier, together with the ``incumbents``: values reached by other means, which mappings must improve on
        (payload None). On `Interrupted`, ``found`` has the best so far, and ``open_bounds`` lower bounds of the rest."""
        for incumbent in incumbents:
            self.found.add(incumbent, None)
        search_all(self)
        self._rounds.clear()  # what is compiled stays, for baselines
        self._floors.clear()
        return self.found

    def leave(self, bounds: Values) -> None:
        """Record lower bounds of the part that an interrupted search leaves open."""
        self.open_bounds = list(bounds[~self.found.pruned(bounds)])

    def forget(self, first: int) -> None:
        """Drop the frames from a number on, with the data of these frames only."""
        for number in range(first, len(self.frames)):
            self._rounds.pop(number, None)
        del self.frames[first:]

    def least_of(self, frame: Frame, laid: Compute | None = None) -> Values:
        """Compulsory lower bounds of one frame, as a row. ``laid``: only for shapes with these dims on the array."""
        costs = self.least(frame, laid)
        return np.array([[costs[name] for name in self.objectives]])

    def useful(self, frame: Frame) -> Frame | None:
        """The frame without pruned shapes (`wastes`); None if a stage has no others."""
        left = [tuple(shape for shape in stage.skeletons if not self.wastes(frame, shape)) for stage in frame.stages]
        stages = (replace(stage, skeletons=own) for stage, own in zip(frame.stages, left, strict=True))
        return replace(frame, stages=tuple(stages)) if all(left) else None

    def wastes(self, frame: Frame, skeleton: Skeleton) -> bool:
        """Whether a shape is pruned: its only advantage is time, which does not matter, or its use of the array is too low."""
        if self.costs.lean and skeleton.revisits:
            return True
        return skeleton.laid is not None and bool(self.found.pruned(self.least_of(frame, skeleton.laid))[0])

    def dive(self) -> None:
        """Find a first mapping quickly: the most promising candidate of the first frame on all clusters that has one. If only
        frames with stages on partitions fit, none is found."""
        for frame in range(len(self.frames)):
            total = self._total(frame)
            for position in np.lexsort(total.T[::-1])[:2]:
                if np.isfinite(total[position]).all():
                    self.solve(frame, int(position), quick=True)
                if self.found.payloads:
                    return

    def narrowed(self, space: GroupSpace, objectives: tuple[str, ...]) -> GroupSearch:
        """A new search of the same frames with fewer shapes of their stages. It reuses everything compiled here, which is most of
        the work."""
        made = GroupSearch(self.workload, self.chip, space, self.around, objectives, self.tally, self.gap, self.trees, self.least)
        if objectives == self.objectives:
            made.costs, made.vectors, made.outside_costs, made.dominance_resources = (
                self.costs,
                self.vectors,
                self.outside_costs,
                self.dominance_resources,
            )
        return made

    # --- shared tile sizes open ---------------------------------------------------------------------------------------

    def candidates(self, numbers: Sequence[int]) -> tuple[Values, list[tuple[int, int]]]:
        """Lower bounds for every combination of the frames' shared tile sizes, and (frame, combination) of each."""
        rows: list[Values] = [np.empty((0, len(self.objectives)))]
        places: list[tuple[int, int]] = []
        for frame in numbers:
            total = self._total(frame)
            rows.append(total)
            places += [(frame, position) for position in range(len(total))]
        return np.vstack(rows), places

    def _total(self, frame: int) -> Values:
        """Lower bounds of a frame for each combination of its shared tile sizes; no rows if all are pruned."""
        if self.frames[frame].joint:
            rounds = self._overlapped(frame)
            return rounds.total() if rounds else np.empty((0, len(self.objectives)))
        floors = self._floor(frame)
        if not floors:
            return np.empty((0, len(self.objectives)))
        return np.asarray(np.sum([floor.min(axis=0) for floor in floors], axis=0))

    def _overlapped(self, frame: int) -> Rounds | None:
        """The search of a frame whose stages overlap; None if it is pruned."""
        if frame not in self._rounds:
            own = self.frames[frame]
            made = promising(self, own) if own.shares else None
            # if times do not matter hidden work does not pay: overlapped stages move and compute the same, and keep no less
            if not own.shares and (self.costs.timed or not own.cut) and (useful := self.useful(own)):
                made = useful, in_children(self, self._bare(useful, self.costs.combinations(own)))
            self._rounds[frame] = Rounds(self, *made) if made else None
        return self._rounds[frame]

    def _floor(self, frame: int) -> list[Values]:
        """Per stage, lower bounds (skeletons x combinations of shared sizes x objectives), infinite for pruned skeletons; no
        stages if all are pruned."""
        if frame not in self._floors:
            made = self.frames[frame]
            shared, rows = self.costs.searched_slots(made.shared), self.costs.combinations(made)
            bare = self._bare(made, rows)
            least = np.array([bounds.min(axis=0, initial=np.inf) for bounds in bare])
            if rows > 1 and not self.found.pruned(least.sum(axis=0)).all():
                least[:, ~holds_fit(self, made)] = np.inf
            stages: list[Values] = []
            for index, bounds in enumerate(bare):
                self.tally.tick()
                others = np.delete(least, index, axis=0).sum(axis=0)
                floors = np.full((max(1, len(bounds)), rows, len(self.objectives)), np.inf)
                for position, bound in enumerate(bounds):
                    left = np.flatnonzero(~self.found.pruned(bound + others))
                    if len(left) and not ruled_out(self, made, made.stages[index].skeletons[position]):
                        shape = self.costs.shape(made, index, made.stages[index].skeletons[position])
                        every = starts(shape.trees, shared, rows)
                        floors[position, left] = shape.floor({dim: own[left] for dim, own in every.items()}, len(left))
                        self.tally.bounds += len(left)
                stages.append(floors)
                least[index] = floors.min(axis=0)
                if self.found.pruned(least.sum(axis=0)).all():
                    stages = []
                    break
            self._floors[frame] = stages
        return self._floors[frame]

    def _bare(self, made: Frame, rows: int) -> list[Values]:
        """Per stage, lower bounds like those of `_floor` without capacity constraints. They are usually cached, as other groups
        have the same stages in the same loops. 0 if there is no incumbent."""
        shape = rows, len(self.objectives)
        nothing, never = np.zeros(shape), np.full(shape, np.inf)
        known = len(self.found.points) > 0
        found: list[Values] = []
        for index, stage in enumerate(made.stages):
            self.tally.tick()
            bounds: list[Values] = []
            for skeleton in stage.skeletons:  # frames that differ in what overlaps have them in common
                if self.wastes(made, skeleton):
                    bounds.append(never)
                    continue
                if known and (id(skeleton), rows) not in self._in_turn:
                    self._in_turn[id(skeleton), rows] = self.costs.bounds(made, index, skeleton)
                bounds.append(self._in_turn[id(skeleton), rows] if known else nothing)
            found.append(np.array(bounds).reshape(-1, *shape))
        return found

    # --- shared tile sizes fixed --------------------------------------------------------------------------------------

    def solve(self, frame: int, combination: int, quick: bool = False) -> None:
        """The best mappings of every stage, then their combinations. ``quick`` takes the first mapping of each stage."""
        if self.frames[frame].joint:
            if rounds := self._overlapped(frame):
                rounds.solve(combination, quick)
            return
        made, floors = self.frames[frame], self._floor(frame)
        rest: list[Values] = [floor[:, combination].min(axis=0) for floor in floors]
        fronts: list[Frontier] = []
        for index, stage in enumerate(made.stages):
            others = sum((rest[i] for i in range(len(rest)) if i != index), np.zeros(len(self.objectives)))
            front = self._solve_stage(frame, index, stage, combination, others, quick)
            if not front.payloads:
                return
            rest[index] = front.points.min(axis=0)
            fronts.append(front)
        sums = np.zeros((1, len(self.objectives)))
        for front in fronts:
            sums = (sums[:, None, :] + front.points[None, :, :]).reshape(-1, sums.shape[1])
        combos = list(product(*(front.payloads for front in fronts)))
        for position in minimal(sums):
            if self.found.pruned(sums[position][None, :])[0]:
                continue
            picked = combos[int(position)]
            tiles = self.costs.fixed_sizes(made.shared)
            for skeleton, sizes in picked:
                tiles |= self.costs.fixed_sizes(skeleton.slots) | sizes
            self.reach(made, tuple(skeleton for skeleton, _ in picked), tiles)

    def _solve_stage(self, frame: int, index: int, stage: GroupStage, combination: int, others: Values, quick: bool) -> Frontier:
        """Frontier of one stage with given shared tiles, without mappings that cannot improve the group's frontier even with the
        least costs of the other stages."""
        made, floors = self.frames[frame], self._floor(frame)[index][:, combination]
        front = Frontier(len(self.objectives), self.gap)
        order = np.lexsort(floors.T[::-1])
        for position in order[:DIVE_SHAPES] if quick else order:
            if self._pruned(front, floors[position][None, :], others)[0] or ruled_out(self, made, stage.skeletons[position]):
                continue
            shape = self.costs.shape(made, index, stage.skeletons[position])
            every = starts(shape.trees, self.costs.searched_slots(made.shared), self.costs.combinations(made))
            start = {dim: nodes[combination : combination + 1] for dim, nodes in every.items()}
            self._refine(shape, start, floors[position][None, :], front, others, quick)
        return front

    def _pruned(self, front: Frontier, bounds: Values, others: Values) -> Flags:
        result = front.pruned(bounds)
        left = np.flatnonzero(~result)
        result[left] = self.found.pruned(bounds[left] + others)
        return result

    def _refine(
        self, shape: Shape, start: Mapping[str, Indices], bound: Values, front: Frontier, others: Values, quick: bool
    ) -> None:
        """Divide sets of tile chains down to single mappings, the most promising sets first."""

        def pruned(bounds: Values) -> Flags:
            return self._pruned(front, bounds, others)

        def branch(batch: Batch) -> Iterator[Batch]:
            self.tally.tick()
            bounds, nodes = batch
            sizes = np.array([tree.size[nodes[:, at]] for at, tree in enumerate(trees)]).reshape(len(trees), len(nodes))
            single = sizes.max(axis=0, initial=1) == 1
            if single.any():  # bounds of single mappings are their costs
                self._keep(shape, bounds[single], nodes[single], front, others)
                nodes, sizes = nodes[~single], sizes[:, ~single]
            if not len(nodes):
                return
            if BUFFERS in dims:
                own = sizes[dims.index(BUFFERS)]
                own[own > 1] = CHAINS_WITH_OPEN_BUFFERS
            children = split_in(trees, nodes, sizes.argmax(axis=0))
            columns = {dim: np.ascontiguousarray(children[:, place]) for place, dim in enumerate(dims)}  # each is read many times
            values = shape.bounds(columns, len(children), pruned)
            self.tally.bounds += len(children)
            kept = np.flatnonzero(values[:, 0] < np.inf)
            kept = kept[~pruned(values[kept])]
            yield values[kept], children[kept]

        dims, trees = tuple(shape.trees), tuple(shape.trees.values())
        nodes = np.stack([start[dim] for dim in dims], axis=1) if dims else np.empty((1, 0), dtype=np.int64)
        if BUFFERS in dims:
            nodes = opened(nodes, dims.index(BUFFERS), shape.trees[BUFFERS].alike)
            bound = shape.bounds({dim: nodes[:, at] for at, dim in enumerate(dims)}, len(nodes), pruned)
        branch_and_bound(Batches((bound, nodes), pruned, DIVE_BEAM_WIDTH if quick else 0), branch)

    def _keep(self, shape: Shape, costs: Values, nodes: Indices, front: Frontier, others: Values) -> None:
        """Add single mappings to the stage's frontier."""
        self.tally.costed += len(costs)
        better = np.flatnonzero(~self._pruned(front, costs, others))
        if not len(better):
            return
        for position in better[minimal(costs[better])]:
            sizes: dict[str, int] = {}
            for at, tree in enumerate(shape.trees.values()):
                sizes |= tree.sizes(int(nodes[position, at]))
            front.add(costs[position], (shape.skeleton, sizes))

    def reach(self, frame: Frame, skeletons: tuple[Skeleton, ...], tiles: Mapping[str, int]) -> Values:
        """Add a mapping with its exact cost."""
        choice = GroupMapping(frame, skeletons, tiles)
        estimate = evaluate(self.workload, self.chip, self.around(choice.tree()))
        if not fits(self.chip, estimate):
            got = f"{ {name: float(used) for name, used in estimate.footprint.items()} } B together"
            raise InternalError(Fault("search", "stages that fit one by one to fit together", got, "please report"))
        costs = {"time": estimate.time, "energy": estimate.energy}
        values = np.array([costs[name] for name in self.objectives], dtype=np.float64)
        self.found.add(values, choice)
        return values
