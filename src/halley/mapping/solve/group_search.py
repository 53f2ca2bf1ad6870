"""Exact search in one group: frames, shared tile sizes, then each stage separately.

Every stage's cost formulas run once on open tile sizes (`halley.mapping.bounds.costing`). Bounds and costs are that program's
values on sets of tile chains (`halley.mapping.space.tile_chains`), from all of them down to single ones. A set is pruned only if
its bound is no better than the incumbent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

import numpy as np

from halley.cost.programs.program import Indices
from halley.mapping.bounds.chain_sets import (
    CHAINS_WITH_OPEN_BUFFERS,
    DIVE_BEAM_WIDTHS,
    DIVE_SHAPES,
    opened,
    split_in,
    starts,
)
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Flags, Frontier, Values, minimal
from halley.mapping.bounds.progress import Interrupted
from halley.mapping.bounds.shapes import Shape
from halley.mapping.solve.axis_partitions import promising
from halley.mapping.solve.engine_work import engine_bounds
from halley.mapping.solve.group import GroupState
from halley.mapping.solve.loop_orders import ruled_out
from halley.mapping.solve.outside_stages import holds_fit
from halley.mapping.solve.overlap import Rounds, in_children
from halley.mapping.solve.pipelines import Pipelines
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.stages import BUFFERS, GroupStage
from halley.optim.branch_and_bound import Batch, Batches, branch_and_bound

FRAMES_PER_BATCH = 1 << 8
"""Number of frames with stages on partitions in one batch: each stores bounds of all its remaining shapes."""

SPLITS_IN_DIVE = 3
"""Number of splits of the lowest bounds of which a first mapping is found."""

SPLITS_PER_BATCH = 16
"""Number of frames in one batch where their bounds depend on their splits."""

FIRST_DIVES_WITHOUT_GAIN = 4
"""Dives into frames of one stage before their shapes are compiled end after this many that do not improve the incumbents."""

GAP_OF_NARROW_DIVES = 0.1
"""Relative gap between the incumbent and the bounds of frames of one stage, above which their dives are repeated with a wider
beam."""

DIVES_WITHOUT_GAIN = 32
"""Dives end after this many consecutive mappings that do not improve the incumbents."""


IDLING_DIVES_WITHOUT_GAIN = 2
"""The same for frames with idle members."""


@dataclass(slots=True)
class GroupSearch:
    """Search of a ``group`` over the frames of a ``space``. ``frames``: the current frames by number; frames with stages on
    partitions of an axis are added and removed in batches. ``open_bounds``: lower bounds of what an interrupted search leaves.
    ``beam_left_out``: whether the beam of a dive has left out sets."""

    group: GroupState
    space: GroupSpace
    frames: list[Frame] = field(init=False)
    open_bounds: list[Values] = field(default_factory=list)
    beam_left_out: bool = False
    _floors: dict[int, list[Values]] = field(default_factory=dict)
    _rounds: dict[int, Rounds | None] = field(default_factory=dict)
    _sequential_costs: dict[Hashable, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.frames = list(self.space.plain)

    @property
    def costs(self) -> Costing:
        return self.group.costs

    @property
    def found(self) -> Frontier:
        return self.group.found

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.group.objectives

    def run(self, incumbents: Values) -> Frontier:
        """The proven frontier, together with the ``incumbents``: values reached by other means, which mappings must improve on
        (payload None). On `Interrupted`, ``found`` has the best so far, and ``open_bounds`` lower bounds of the rest."""
        for incumbent in incumbents:
            self.found.add(incumbent, None)
        every = [Pipelines(self.group, implicit_set) for implicit_set in self.space.implicit_sets]
        bounds, numbers = self._bounds(every), range(len(self.frames))
        all_at_work, idling = ([at for at in numbers if self.frames[at].idles is idles] for idles in (False, True))
        least = [self.group.least_of(self.frames[at]) for at in idling]
        self._search_by_split(all_at_work, np.vstack([bounds, *least]), idling)
        self._search_batch(idling, bounds)
        for at, pipelines in enumerate(every):
            self._search_set(pipelines, self._bounds(every[at:]))
        self._rounds.clear()  # what is compiled stays, for baselines
        self._floors.clear()
        return self.found

    def narrowed(self, space: GroupSpace, objectives: tuple[str, ...]) -> GroupSearch:
        """A new search of the same frames with fewer shapes of their stages. It reuses everything compiled here, which is most of
        the work."""
        costs, found = self.costs, Frontier(len(objectives), self.found.gap)
        if objectives == self.objectives:
            return GroupSearch(replace(self.group, found=found, orders={}), space)
        own = Costing(costs.workload, costs.chip, space.ops, costs.enclose, objectives, costs.trees, costs.tally)
        return GroupSearch(GroupState(own, self.group.least, found, self.group.engines), space)

    # --- the order of frames ------------------------------------------------------------------------------------------

    def _bounds(self, every: Sequence[Pipelines]) -> Values:
        """Lower bounds of several implicit sets of frames."""
        return np.vstack([np.empty((0, len(self.objectives))), *(pipelines.bounds() for pipelines in every)])

    def _search_set(self, pipelines: Pipelines, left: Values) -> None:
        """Search an implicit set of frames in batches, so that neither the frames nor their bounds have to be stored; incumbents
        of earlier batches prune most frames before they are made. ``left``: lower bounds of this and the following sets."""
        first, frames = len(self.frames), pipelines.frames()
        try:
            while batch := list(islice(frames, FRAMES_PER_BATCH)):
                self.frames += batch
                self._search_batch(range(first, len(self.frames)), left)
                self._forget(first)
        except (Interrupted, KeyboardInterrupt):
            self._forget(first)
            self._leave(left)
            raise

    def _search_by_split(self, numbers: Sequence[int], later: Values, idling: Sequence[int]) -> None:
        """Search some frames; where their compulsory bounds depend on their splits, in batches, those of the lowest bounds first.
        There are many splits of axes in groups, and most are pruned before anything of them is compiled."""
        if not any(self.frames[at].split for at in numbers):
            self._search_batch(numbers, later, idling)
            return
        least = {at: self.group.least_of(self.frames[at]) for at in numbers}
        left = sorted(numbers, key=lambda at: tuple(least[at][0]))
        while left := [at for at in left if not self.found.pruned(least[at])[0]]:
            batch, left = left[:SPLITS_PER_BATCH], left[SPLITS_PER_BATCH:]
            self._search_batch(batch, np.vstack([later, *(least[at] for at in left)]), () if left else idling)

    def _search_batch(self, numbers: Sequence[int], later: Values, idling: Sequence[int] = ()) -> None:
        """Search some frames, the lowest bounds first. ``later``: lower bounds of the following ones, among them those with idle
        members (``idling``)."""
        left = np.vstack([np.empty((0, len(self.objectives))), *(self.group.least_of(self.frames[number]) for number in numbers)])
        try:
            self._dive_first(numbers)
            bounds, places = self.candidates(numbers)
            left, order = bounds, np.lexsort(bounds.T[::-1])
            order = order[~self.found.pruned(bounds[order])]
            self._dive(bounds, places, order)
            self._dive_idling(idling)
            order = order[~self.found.pruned(bounds[order])]
            if len(self.objectives) > 1:  # against a poor front stages that overlap have too many trade-offs: the others before
                order = order[np.argsort([bool(self.frames[places[position][0]].cut) for position in order], kind="stable")]
            for index, position in enumerate(order):
                if self.found.pruned(bounds[position][None, :])[0]:
                    continue
                left = bounds[order[index:]]
                self.group.tally.tick()
                self.solve(*places[position])
        except (Interrupted, KeyboardInterrupt):
            self._leave(np.vstack([left, later]))
            raise

    def _leave(self, bounds: Values) -> None:
        """Record lower bounds of the part that an interrupted search leaves open."""
        self.open_bounds = list(bounds[~self.found.pruned(bounds)])

    def _forget(self, first: int) -> None:
        """Drop the frames from a number on, with the data of these frames only."""
        for number in range(first, len(self.frames)):
            self._rounds.pop(number, None)
        del self.frames[first:]

    def _dive_first(self, numbers: Sequence[int]) -> None:
        """A first mapping of frames of one stage, the lowest bounds first, until a few do not improve the incumbents: against a
        good one, most shapes of the other frames are pruned before they are compiled. Again with a wider beam where that left
        out sets, and the incumbent is far from the bounds."""
        first = {at: self._first_bound(at) for at in numbers if self._single(at) and not self.frames[at].idles}
        for beam in DIVE_BEAM_WIDTHS if len(self.objectives) == 1 else DIVE_BEAM_WIDTHS[:1]:
            self.beam_left_out = False
            self._dive_frames(first, beam)
            least = min(first.values(), default=(np.inf,))[0]
            if not self.beam_left_out or self.found.points.min(initial=np.inf) <= (1 + GAP_OF_NARROW_DIVES) * least:
                break

    def _dive_frames(self, first: Mapping[int, tuple[float, ...]], beam: int) -> None:
        """A first mapping of the frames with these bounds, the lowest first, until a few do not improve the incumbents."""
        without_gain, width, gap = 0, len(self.objectives), self.found.gap
        for frame in sorted(first, key=first.__getitem__):
            if without_gain == FIRST_DIVES_WITHOUT_GAIN:
                return
            if self.found.pruned(np.array([first[frame][:width]]))[0]:
                continue
            before, self.found.gap = self.found.points, 0.0  # a mapping may close the gap that is better by less than the gap
            try:
                self._dive_single(frame, beam)
            finally:
                self.found.gap = gap
            without_gain = without_gain + 1 if self.found.points is before else 0

    def _dive(self, bounds: Values, places: Sequence[tuple[int, int]], order: Indices) -> None:
        """A first mapping of each frame for its most promising combination (``order``: of ``places``), until many consecutive
        ones do not improve the incumbents. A good incumbent prunes most of the search; which one does not change the result."""
        dived: set[int] = set()
        without_gain = 0
        for position in order:
            frame, combination = places[position]
            if without_gain == DIVES_WITHOUT_GAIN:
                return
            if frame not in dived and not self.frames[frame].idles and not self.found.pruned(bounds[position][None, :])[0]:
                dived.add(frame)
                before = self.found.points
                self.solve(frame, combination, DIVE_BEAM_WIDTHS[0])
                without_gain = without_gain + 1 if self.found.points is before else 0

    def _dive_idling(self, numbers: Sequence[int]) -> None:
        """A first mapping of frames with idle members, the lowest bounds first, until a few do not improve the incumbents. Small
        problems are often best there, and then it prunes most of the other frames."""
        relaxed: dict[int, tuple[float, ...]] = {}
        for number in numbers:
            bounds = engine_bounds(self.costs, self.frames[number])
            if not self.found.pruned(bounds).all():
                (bare,) = self._bare(self.frames[number], len(bounds))
                bounds = np.maximum(bare.min(axis=0, initial=np.inf), bounds)
                if not self.found.pruned(bounds).all():
                    relaxed[number] = tuple(bounds.min(axis=0))
        without_gain = 0
        for number in sorted(relaxed, key=relaxed.__getitem__):
            made, before = self.frames[number], self.found.points
            useful = (shape for shape in made.stages[0].skeletons if not self.group.wastes(made, shape))
            if all(ruled_out(self.group, made, shape) for shape in useful):
                continue
            self._dive_single(number)
            without_gain = without_gain + 1 if self.found.points is before else 0
            if without_gain == IDLING_DIVES_WITHOUT_GAIN:
                return

    def dive(self) -> None:
        """Find a first mapping quickly: the most promising candidate of the first frame on all clusters that has one; of frames
        of one stage, of that with the lowest bound; where bounds depend on the splits, of a few frames of the lowest bounds. If
        only frames with stages on partitions fit, none is found."""
        by_split = [at for at, frame in enumerate(self.frames) if frame.split and not frame.cut]
        first = {at: self._first_bound(at) for at, frame in enumerate(self.frames) if at in by_split or self._single(at)}
        for frame in sorted(by_split, key=first.__getitem__)[:SPLITS_IN_DIVE]:
            if self._single(frame):
                self._dive_single(frame)
            elif len(total := self._total(frame)) and np.isfinite(best := total[np.lexsort(total.T[::-1])[:1]]).all():
                self.solve(frame, int(np.flatnonzero((total == best).all(axis=1))[0]), DIVE_BEAM_WIDTHS[0])
        if self.found.payloads:
            return
        for frame in sorted(range(len(self.frames)), key=lambda at: (at not in first, first.get(at, ()))):
            if self._single(frame):
                self._dive_single(frame)
                if self.found.payloads:
                    return
                continue
            total = self._total(frame)
            for position in np.lexsort(total.T[::-1])[:2]:
                if np.isfinite(total[position]).all():
                    self.solve(frame, int(position), DIVE_BEAM_WIDTHS[0])
                if self.found.payloads:
                    return

    def _first_bound(self, frame: int) -> tuple[float, ...]:
        """The order of frames in a dive: compulsory bounds, of frames of one stage raised to the untiled relaxation of its first
        shape, which says how many clusters its split leaves without work; of equal ones that with less traffic, by the relaxation
        alone."""
        made = self.frames[frame]
        least = untiled = self.group.least_of(made)[0]
        useful = (shape for shape in made.stages[0].skeletons if not self.group.wastes(made, shape))
        if self._single(frame) and (shape := next(useful, None)) is not None:
            untiled = self.costs.bounds(made, 0, shape)[0]
        return (*np.maximum(least, untiled), *untiled)

    def _single(self, frame: int) -> bool:
        """Whether a frame has one stage and no open shared sizes."""
        own = self.frames[frame]
        return not own.joint and len(own.stages) == 1 and self.costs.combinations(own) == 1

    def _dive_single(self, frame: int, beam: int = DIVE_BEAM_WIDTHS[0]) -> None:
        """Solve a frame of one stage quickly for one shape: that of the least untiled relaxation that has a mapping. The others
        are not compiled: once there is an incumbent, most of them are pruned (`halley.mapping.solve.loop_orders`)."""
        made = self.frames[frame]
        stage, shared, rows = made.stages[0], self.costs.searched_slots(made.shared), self.costs.combinations(made)
        useful = [at for at, shape in enumerate(stage.skeletons) if not self.group.wastes(made, shape)]
        some = slice(int(made.known_first), None)
        relaxed = [self.costs.bounds(made, 0, stage.skeletons[at])[some].min(axis=0) for at in useful]
        for place in np.lexsort(np.array(relaxed).reshape(-1, len(self.objectives)).T[::-1]):
            shape = self.costs.shape(made, 0, stage.skeletons[useful[place]])
            floors = np.full((len(stage.skeletons), rows, len(self.objectives)), np.inf)
            floors[useful[place], some] = shape.floor(starts(shape.trees, shared, rows), rows)[some]
            self._floors[frame] = [floors]
            try:
                self.solve(frame, 0, beam)
            finally:
                del self._floors[frame]  # those of the other shapes are not known
            if self.found.payloads:
                return

    # --- shared tile sizes open ---------------------------------------------------------------------------------------

    def candidates(self, numbers: Sequence[int]) -> tuple[Values, list[tuple[int, int]]]:
        """Lower bounds for every combination of the frames' shared tile sizes, and (frame, combination) of each; of frames with
        idle members for all combinations together, which are searched together."""
        rows: list[Values] = [np.empty((0, len(self.objectives)))]
        places: list[tuple[int, int]] = []
        for frame in numbers:
            total = self._total(frame)
            if self.frames[frame].idles and len(total):
                total = total.min(axis=0, keepdims=True)
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
            made = promising(self.group, own) if own.partition else None
            # if times do not matter hidden work does not pay: overlapped stages move and compute the same, and keep no less
            if not own.partition and (self.costs.timed or not own.cut) and (useful := self.group.useful(own)):
                made = useful, in_children(self.group, self._bare(useful, self.costs.combinations(own)))
            self._rounds[frame] = Rounds(self.group, *made) if made else None
        return self._rounds[frame]

    def _floor(self, frame: int) -> list[Values]:
        """Per stage, lower bounds (skeletons x combinations of shared sizes x objectives), infinite for pruned skeletons; no
        stages if all are pruned."""
        if frame not in self._floors:
            made = self.frames[frame]
            shared, rows = self.costs.searched_slots(made.shared), self.costs.combinations(made)
            engines = engine_bounds(self.costs, made) if made.idles else np.zeros((rows, len(self.objectives)))
            if made.idles and self.found.pruned(engines).all():
                self._floors[frame] = []
                return []
            bare = [np.maximum(bounds, engines) for bounds in self._bare(made, rows)]
            least = np.array([bounds.min(axis=0, initial=np.inf) for bounds in bare])
            if rows > 1 and not made.idles and not self.found.pruned(least.sum(axis=0)).all():
                least[:, ~holds_fit(self.costs, made)] = np.inf
            stages: list[Values] = []
            for index, bounds in enumerate(bare):
                self.group.tally.tick()
                others = np.delete(least, index, axis=0).sum(axis=0)
                floors = np.full((max(1, len(bounds)), rows, len(self.objectives)), np.inf)
                for position, bound in enumerate(bounds):
                    left = np.flatnonzero(~self.found.pruned(bound + others))
                    if len(left) and not ruled_out(self.group, made, made.stages[index].skeletons[position]):
                        shape = self.costs.shape(made, index, made.stages[index].skeletons[position])
                        every = starts(shape.trees, shared, rows)
                        floors[position, left] = shape.floor({dim: own[left] for dim, own in every.items()}, len(left))
                        self.group.tally.bounds += len(left)
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
            self.group.tally.tick()
            bounds: list[Values] = []
            for skeleton in stage.skeletons:  # frames that differ in what overlaps have them in common
                if self.group.wastes(made, skeleton):
                    bounds.append(never)
                    continue
                key = made.compiled_by(skeleton), rows
                if known and key not in self._sequential_costs:
                    self._sequential_costs[key] = self.costs.bounds(made, index, skeleton)
                bounds.append(self._sequential_costs[key] if known else nothing)
            found.append(np.array(bounds).reshape(-1, *shape))
        return found

    # --- shared tile sizes fixed --------------------------------------------------------------------------------------

    def solve(self, frame: int, combination: int, beam: int = 0) -> None:
        """The best mappings of every stage, then their combinations. With a ``beam`` of some width it takes the first mapping of
        each stage. A frame with idle members is searched for all combinations of its shared sizes together."""
        if self.frames[frame].joint:
            if rounds := self._overlapped(frame):
                rounds.solve(combination, beam > 0)
            return
        made, floors = self.frames[frame], self._floor(frame)
        some = slice(None) if made.idles else slice(combination, combination + 1)
        rest: list[Values] = [floor[:, some].min(axis=(0, 1)) for floor in floors]
        fronts: list[Frontier] = []
        for index, stage in enumerate(made.stages):
            others = sum((rest[i] for i in range(len(rest)) if i != index), np.zeros(len(self.objectives)))
            front = self._solve_stage(frame, index, stage, some, others, beam)
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
            self.group.reach(made, tuple(skeleton for skeleton, _ in picked), tiles)

    def _solve_stage(self, frame: int, index: int, stage: GroupStage, some: slice, others: Values, beam: int) -> Frontier:
        """Frontier of one stage with ``some`` combinations of the shared tiles, without mappings that cannot improve the group's
        frontier even with the least costs of the other stages."""
        made, floors = self.frames[frame], self._floor(frame)[index][:, some]
        front = Frontier(len(self.objectives), self.found.gap)
        order = np.lexsort(floors.min(axis=1).T[::-1])
        for position in order[:DIVE_SHAPES] if beam else order:
            skeleton = stage.skeletons[position]
            left = np.flatnonzero(~self._pruned(front, floors[position], others))
            if not len(left) or ruled_out(self.group, made, skeleton):
                continue
            shape = self.costs.shape(made, index, skeleton)
            every = starts(shape.trees, self.costs.searched_slots(made.shared), self.costs.combinations(made))
            start = {dim: nodes[some][left] for dim, nodes in every.items()}
            self._refine(shape, start, floors[position, left], front, others, beam)
        return front

    def _pruned(self, front: Frontier, bounds: Values, others: Values) -> Flags:
        result = front.pruned(bounds)
        left = np.flatnonzero(~result)
        result[left] = self.found.pruned(bounds[left] + others)
        return result

    def _refine(
        self, shape: Shape, start: Mapping[str, Indices], bound: Values, front: Frontier, others: Values, beam: int
    ) -> None:
        """Divide sets of tile chains down to single mappings, the most promising sets first."""

        def pruned(bounds: Values) -> Flags:
            return self._pruned(front, bounds, others)

        def branch(batch: Batch) -> Iterator[Batch]:
            self.group.tally.tick()
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
            self.group.tally.bounds += len(children)
            kept = np.flatnonzero(values[:, 0] < np.inf)
            kept = kept[~pruned(values[kept])]
            yield values[kept], children[kept]

        dims, trees = tuple(shape.trees), tuple(shape.trees.values())
        nodes = np.stack([start[dim] for dim in dims], axis=1) if dims else np.empty((1, 0), dtype=np.int64)
        if BUFFERS in dims:
            nodes = opened(nodes, dims.index(BUFFERS), shape.trees[BUFFERS].alike)
            bound = shape.bounds({dim: nodes[:, at] for at, dim in enumerate(dims)}, len(nodes), pruned)
        batches = Batches((bound, nodes), pruned, beam)
        branch_and_bound(batches, branch)
        self.beam_left_out |= batches.left_out

    def _keep(self, shape: Shape, costs: Values, nodes: Indices, front: Frontier, others: Values) -> None:
        """Add single mappings to the stage's frontier."""
        self.group.tally.costed += len(costs)
        better = np.flatnonzero(~self._pruned(front, costs, others))
        if not len(better):
            return
        for position in better[minimal(costs[better])]:
            sizes: dict[str, int] = {}
            for at, tree in enumerate(shape.trees.values()):
                sizes |= tree.sizes(int(nodes[position, at]))
            front.add(costs[position], (shape.skeleton, sizes))
