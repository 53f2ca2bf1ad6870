"""Exact search in one group: frames, shared tile sizes, then each stage for itself.

Every stage's cost formulas run once on open tile sizes (`halley.cost.program`); bounds and costs are that program's values on
sets of tile chains (`halley.search.chains`), from all of them down to single ones. Nothing is dropped unless its bound is no
better than a value already reached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.footprint import footprint
from halley.cost.movement import Body
from halley.cost.program import Indices
from halley.cost.window import counter_of
from halley.errors import Fault, InternalError
from halley.formulas.numbers import Number
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node, walk
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Workload
from halley.search.around import Around
from halley.search.chains import ChainTree
from halley.search.choice import Choice
from halley.search.compose import Cut
from halley.search.frontier import Flags, Frontier, Values, minimal
from halley.search.overlap import Rounds, Vector, fits, in_children
from halley.search.rooms import may_be_full, on_a_share
from halley.search.sets import BEAM, DIVES, UNSETTLED, foremost, opened, split_in, starts
from halley.search.shapes import Compiled, Shape, StageCosts, Trees
from halley.search.shares import Lone, promising
from halley.search.space import Frame, Space
from halley.search.stages import BUFFERS, Skeleton, Slot, Stage, one
from halley.search.tally import Tally
from halley.search.trim import essence
from halley.search.waves import search_all


@dataclass(slots=True)
class GroupSearch:
    """Search of one group. ``around`` puts the group's tree under the workload's outer Holds; ``least``: lower bounds of a frame
    that need no search. ``frames``: those at hand, by number; ones with stages on shares of the clusters come and go."""

    workload: Workload
    chip: Chip
    space: Space
    around: Callable[[Node], Node]
    objectives: tuple[str, ...]
    tally: Tally
    gap: float = 0.0
    trees: Trees = field(default_factory=Trees)
    least: Callable[[Frame, Compute | None], Mapping[str, float]] = lambda frame, laid: {"time": 0.0, "energy": 0.0}
    frames: list[Frame] = field(init=False)
    found: Frontier = field(init=False)
    open_bounds: list[Values] = field(default_factory=list)
    _anchors: set[str] = field(init=False)
    _shapes: dict[int, Shape] = field(default_factory=dict)
    _floors: dict[int, list[Values]] = field(default_factory=dict)
    _rounds: dict[int, Rounds | None] = field(default_factory=dict)
    _drafts: dict[Hashable, Estimate] = field(default_factory=dict)
    _in_turn: dict[int, Values] = field(default_factory=dict)
    _leaner: dict[tuple[int, ...], tuple[Sequence[Slot], tuple[Slot, ...]]] = field(default_factory=dict)
    _lean_slots: dict[int, tuple[Slot, Slot | None]] = field(default_factory=dict)
    _limited: tuple[str, ...] | None = None
    vectors: dict[Hashable, Vector] = field(default_factory=dict)
    lone: dict[int, Lone] = field(default_factory=dict)
    arounds: dict[tuple[Cut, str], Around] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.frames, self.found = list(self.space.plain), Frontier(len(self.objectives), self.gap)
        scaled = {op.scaled_by for op in self.workload.ops if op.scaled_by}
        # a rescaled accumulator must see where its running maximum is computed, and a collective that joins its parts that it was
        # computed; other stages may be left empty around one
        self._anchors = {op.name for op in self.workload.ops if op.scaled_by or scaled & set(op.outputs)}

    def run(self, rivals: Values) -> Frontier:
        """The proven frontier, together with ``rivals``: values reached by other means, which mappings here must beat to
        matter (payload None). On `Interrupted`, ``found`` has the best so far and ``open_bounds`` what was left."""
        for rival in rivals:
            self.found.add(rival, None)
        search_all(self)
        self._rounds.clear()  # what is compiled stays, for baselines
        self._floors.clear()
        return self.found

    def leave(self, bounds: Values) -> None:
        """Note lower bounds of what a search leaves when it is stopped."""
        self.open_bounds = list(bounds[~self.found.hopeless(bounds)])

    def forget(self, first: int) -> None:
        """Drop the frames from a number on, with what is known of just them."""
        for number in range(first, len(self.frames)):
            self._rounds.pop(number, None)
        del self.frames[first:]

    def least_of(self, frame: Frame, laid: Compute | None = None) -> Values:
        """The lower bounds of one frame that need no search, as a row. ``laid``: of shapes with these dims on the array."""
        costs = self.least(frame, laid)
        return np.array([[costs[name] for name in self.objectives]])

    def _useful(self, frame: Frame) -> Frame | None:
        """The frame without shapes that waste the array; none where a stage has no others."""
        left = [tuple(shape for shape in stage.skeletons if not self._wastes(frame, shape)) for stage in frame.stages]
        stages = (replace(stage, skeletons=own) for stage, own in zip(frame.stages, left, strict=True))
        return replace(frame, stages=tuple(stages)) if all(left) else None

    def _wastes(self, frame: Frame, skeleton: Skeleton) -> bool:
        """Whether a shape is hopeless for how little of the array it can use."""
        return skeleton.laid is not None and bool(self.found.hopeless(self.least_of(frame, skeleton.laid))[0])

    def dive(self) -> None:
        """A first mapping, quickly: the most promising candidate of the first frame that has one, of those on all clusters. Where
        just stages on shares of them fit, none is found, and the search begins without."""
        for frame in range(len(self.frames)):
            total = self._total(frame)
            for position in np.lexsort(total.T[::-1])[:2]:
                if np.isfinite(total[position]).all():
                    self.solve(frame, int(position), quick=True)
                if self.found.payloads:
                    return

    def narrowed(self, space: Space, objectives: tuple[str, ...]) -> GroupSearch:
        """A new search of frames that are parts of those here: some of the shapes of their stages. What was compiled here
        serves again: that is most of the work."""
        made = GroupSearch(
            self.workload, self.chip, space, self.around, objectives, self.tally, self.gap, self.trees, self.least
        )
        if objectives == self.objectives:
            made._shapes, made._drafts, made.vectors, made.lone = self._shapes, self._drafts, self.vectors, self.lone
            made.arounds = self.arounds
        return made

    @property
    def limited(self) -> tuple[str, ...]:
        """The memories that can be full."""
        if self._limited is None:
            ops = (Compute(op) for frame in self.frames[:1] for stage in frame.stages for op in stage.ops)
            self._limited = may_be_full(self.workload, self.chip, self.around(Steps(tuple(ops))))
        return self._limited

    @property
    def timed(self) -> bool:
        """Whether times matter: as an objective, or for what leaks meanwhile."""
        return "time" in self.objectives or self.chip.static_power > 0

    @property
    def lean(self) -> bool:
        """Whether one buffer is as good as two: without time, energy is that of the bytes that move, which are the same."""
        return not self.timed

    def settled(self, slots: Sequence[Slot]) -> dict[str, int]:
        """Sizes that need no search."""
        return {slot.name: 1 for slot in slots if self.lean and slot.dim == BUFFERS and slot.sizes(1) == (1,)}

    def unsettled(self, slots: Sequence[Slot]) -> tuple[Slot, ...]:
        """The slots whose sizes are searched, with what is to be tried of them."""
        if not self.lean:
            return tuple(slots)
        key = tuple(map(id, slots))
        if key not in self._leaner:
            self._leaner[key] = slots, tuple(own for slot in slots if (own := self._lean(slot)) is not None)
        return self._leaner[key][1]

    def _lean(self, slot: Slot) -> Slot | None:
        """What is to be tried of a slot where one buffer is as good as two; None where that is settled."""
        if slot.dim != BUFFERS:
            return slot
        if id(slot) not in self._lean_slots:
            self._lean_slots[id(slot)] = slot, None if self.settled((slot,)) else replace(slot, limit=one)
        return self._lean_slots[id(slot)][1]

    def symbols(self, frame: Frame, skeleton: Skeleton) -> dict[str, Number]:
        """The sizes of a stage in its frame: open ones, and those that need no search."""
        slots = (*frame.shared, *skeleton.slots)
        return self.trees.symbols(self.unsettled(slots)) | self.settled(slots)

    # --- shared tile sizes open ---------------------------------------------------------------------------------------

    def candidates(self, numbers: Sequence[int]) -> tuple[Values, list[tuple[int, int]]]:
        """Lower bounds of frames with every combination of their shared tile sizes, and which these are."""
        rows: list[Values] = [np.empty((0, len(self.objectives)))]
        places: list[tuple[int, int]] = []
        for frame in numbers:
            total = self._total(frame)
            rows.append(total)
            places += [(frame, position) for position in range(len(total))]
        return np.vstack(rows), places

    def _total(self, frame: int) -> Values:
        """Lower bounds of a frame for each combination of its shared tile sizes; no rows where all are hopeless."""
        if self.frames[frame].cut:
            rounds = self._overlapped(frame)
            return rounds.total() if rounds else np.empty((0, len(self.objectives)))
        floors = self._floor(frame)
        if not floors:
            return np.empty((0, len(self.objectives)))
        return np.asarray(np.sum([floor.min(axis=0) for floor in floors], axis=0))

    def _overlapped(self, frame: int) -> Rounds | None:
        """The search of a frame whose stages overlap; none where that is hopeless."""
        if frame not in self._rounds:
            own = self.frames[frame]
            made = promising(self, own) if own.shares else None
            # if times do not matter hidden work does not pay: overlapped stages move and compute the same, and keep no less
            if not own.shares and self.timed and (useful := self._useful(own)):
                made = useful, in_children(self, self._bare(useful, self.combinations(own)))
            self._rounds[frame] = Rounds(self, *made) if made else None
        return self._rounds[frame]

    def combinations(self, frame: Frame) -> int:
        """In how many ways the shared tile sizes of a frame can be chosen."""
        return self.trees.combinations(self.unsettled(frame.shared))

    def _floor(self, frame: int) -> list[Values]:
        """Per stage, lower bounds (skeletons x combinations of shared sizes x objectives), infinite for skeletons that are
        hopeless; no stages where all are."""
        if frame not in self._floors:
            shared = self.unsettled(self.frames[frame].shared)
            rows = self.combinations(self.frames[frame])
            bare = self._bare(self.frames[frame], rows)
            least = np.array([bounds.min(axis=0, initial=np.inf) for bounds in bare])
            stages: list[Values] = []
            for index, bounds in enumerate(bare):
                self.tally.tick()
                others = np.delete(least, index, axis=0).sum(axis=0)
                floors = np.full((max(1, len(bounds)), rows, len(self.objectives)), np.inf)
                for position, bound in enumerate(bounds):
                    if not self.found.hopeless(bound + others).all():
                        shape = self._compiled(frame, index, position)
                        floors[position] = shape.floor(starts(shape.trees, shared, rows), rows)
                        self.tally.bounds += rows
                stages.append(floors)
                least[index] = floors.min(axis=0)
                if self.found.hopeless(least.sum(axis=0)).all():
                    stages = []
                    break
            self._floors[frame] = stages
        return self._floors[frame]

    def _bare(self, made: Frame, rows: int) -> list[Values]:
        """Per stage, lower bounds like those of `_floor`, whatever room the stages take. Other groups mostly have the same stages
        in the same loops, so that these are known. Where there is nothing that they could be hopeless against: 0."""
        shape = rows, len(self.objectives)
        nothing, never = np.zeros(shape), np.full(shape, np.inf)
        known = len(made.stages) > 1 and len(self.found.points) > 0
        found: list[Values] = []
        for index, stage in enumerate(made.stages):
            self.tally.tick()
            bounds: list[Values] = []
            for skeleton in stage.skeletons:  # frames that differ in what overlaps have them in common
                if self._wastes(made, skeleton):
                    bounds.append(never)
                    continue
                if known and id(skeleton) not in self._in_turn:
                    self._in_turn[id(skeleton)] = self._shared_costs(made, index, skeleton).bounds
                bounds.append(self._in_turn[id(skeleton)] if known else nothing)
            found.append(np.array(bounds).reshape(-1, *shape))
        return found

    def _compiled(self, frame: int, index: int, position: int) -> Shape:
        """A skeleton of a stage, its formulas run on open tile sizes. Frames with stages in turn have none in common."""
        made = self.frames[frame]
        skeleton = made.stages[index].skeletons[position]
        if id(skeleton) not in self._shapes:
            self._shapes[id(skeleton)] = self._compile(made, index, skeleton)
        return self._shapes[id(skeleton)]

    def _compile(self, frame: Frame, index: int, skeleton: Skeleton) -> Shape:
        """The formulas of all objectives wait until bounds ask for them: those of the least costs rule out most shapes."""
        used = self._footprint(frame, index, skeleton)
        memories = [name for name in used if name in self.limited]
        capacities = np.array([self.chip.memory(name).capacity for name in memories])
        trees = self.trees.of(self.unsettled(frame.shared), self.unsettled(skeleton.slots))
        room = self.trees.program([used[name] for name in memories], trees, f"{skeleton.name}, {frame.name}")
        least = self._least(frame, index, skeleton, trees) if self.chooses(skeleton) else None

        def exact() -> Compiled:
            return self._exact(frame, index, skeleton, trees)

        return Shape(skeleton, trees, capacities, len(self.objectives), room, least, exact)

    def chooses(self, skeleton: Skeleton) -> bool:
        """Whether a stage has a choice of one buffer or two."""
        return not self.lean and any(slot.dim == BUFFERS for slot in skeleton.slots)

    def _least(self, frame: Frame, index: int, skeleton: Skeleton, trees: Mapping[str, ChainTree]) -> Compiled:
        """What a stage costs at least, whatever numbers of buffers it has."""
        if len(frame.stages) > 1:
            return self._shared_costs(frame, index, skeleton).least
        tree, _ = self.alone(frame, index, skeleton)
        return self._costs(self.share(tree, tree, Steps(()), self.chooses(skeleton)), trees, f"{skeleton.name}, {frame.name}")

    def _exact(self, frame: Frame, index: int, skeleton: Skeleton, trees: Mapping[str, ChainTree]) -> Compiled:
        """What a stage costs."""
        if not self.chooses(skeleton):
            return self._least(frame, index, skeleton, trees)
        where = f"{skeleton.name}, {frame.name}"
        if len(frame.stages) == 1:
            tree, _ = self.alone(frame, index, skeleton)
            return self._costs(self.share(tree, tree, Steps(())), trees, where)
        known = self._shared_costs(frame, index, skeleton)
        if known.exact is None:
            tree, node = self.alone(frame, index, skeleton)
            known.exact = self._costs(self.share(tree, node, Steps(())), trees, where)
        return known.exact

    def _costs(self, found: Estimate, trees: Mapping[str, ChainTree], where: str) -> Compiled:
        """The objectives of an estimate on open tile sizes."""
        costs = {"time": found.time, "energy": found.energy}
        return self.trees.program([costs[name] for name in self.objectives], trees, where)

    def _shared_costs(self, frame: Frame, index: int, skeleton: Skeleton) -> StageCosts:
        """Costs of one of several stages; found once for all groups in which it stands in the same loops and Holds."""
        tree, node = self.alone(frame, index, skeleton)
        shared = self.unsettled(frame.shared)
        grid, chains = self.trees.of(shared, ()), self.trees.of(shared, self.unsettled(skeleton.slots))
        key = (self.objectives, essence(tree, self.workload), *grid.values(), *chains.values())
        if key not in self.trees.stages:
            chooses = self.chooses(skeleton)
            made = self._costs(self.share(tree, node, Steps(()), chooses), chains, f"{skeleton.name}, {frame.name}")
            rows = self.combinations(frame)
            shape = Shape(skeleton, chains, np.empty(0), len(self.objectives), made, made if chooses else None, lambda: made)
            self.tally.bounds += rows
            self.trees.stages[key] = StageCosts(made, shape.floor(starts(chains, shared, rows), rows))
        return self.trees.stages[key]

    def draft(self, frame: Frame, index: int, skeleton: Skeleton) -> Estimate:
        """A stage's cost on open tile sizes, stages in turn; on a share of the clusters, with the room that matters to others."""
        key = frame.known_by(index, skeleton)
        if key not in self._drafts:
            known = self.lone[id(skeleton)].costs if id(skeleton) in self.lone else None
            if known is not None:
                found = replace(known, footprint=self._footprint(frame, index, skeleton))
            else:
                found = self._estimate(frame, index, skeleton, self.symbols(frame, skeleton))
            used = on_a_share(self.chip, frame.shares.level, found.footprint) if frame.shares else found.footprint
            self._drafts[key] = replace(found, footprint=used, events=(), nodes={})
        return self._drafts[key]

    def _footprint(self, frame: Frame, index: int, skeleton: Skeleton) -> Mapping[str, Number]:
        """What a group with a stage needs of each memory, on open tile sizes."""
        counter = counter_of(self.workload, self.chip, sums=self.trees.sums(self.workload))
        return footprint(counter, self._held(frame, index, skeleton, self.symbols(frame, skeleton)), Body(counter))

    def _estimate(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> Estimate:
        """Cost of one stage in its frame; the footprint is that of the whole."""
        tree, node = self.alone_on(frame, index, skeleton, tiles)
        if len(frame.stages) == 1:  # it is the whole, loops around it included; of several, each is a phase of its own
            return self.share(tree, tree, tree)
        return self.share(tree, node, self._held(frame, index, skeleton, tiles))

    def share(self, tree: Node, node: Node, held: Node, least: bool = False) -> Estimate:
        """Cost of a node of a tree, in the objectives that are asked for, with the footprint of another."""
        path = next(path for path, found in walk(tree) if found is node)
        wanted, sums = ("energy" in self.objectives, self.timed), self.trees.sums(self.workload)
        return evaluate(self.workload, self.chip, tree, path, *wanted, held=held, sums=sums, least=least)

    def alone(self, frame: Frame, index: int, skeleton: Skeleton) -> tuple[Node, Node]:
        """The group's tree with one stage alone, and that stage, on open tile sizes."""
        return self.alone_on(frame, index, skeleton, self.symbols(frame, skeleton))

    def alone_on(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> tuple[Node, Node]:
        """The same on tile sizes that are given."""
        stubs: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops if op in self._anchors)) for stage in frame.stages]
        node = skeleton.build(tiles)
        stubs[index] = frame.alone(index, node)
        return self.around(frame.in_turn(tiles, stubs)), node

    def _held(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> Node:
        """The group's tree with one stage, and all that may lie in the frame's buffers: the other stages' shapes are open, but
        their ops use these whatever shape they take."""
        users: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops)) for stage in frame.stages]
        users[index] = frame.alone(index, skeleton.build(tiles))
        return self.around((frame.tree if index in frame.last else frame.in_turn)(tiles, users))

    # --- shared tile sizes fixed --------------------------------------------------------------------------------------

    def solve(self, frame: int, combination: int, quick: bool = False) -> None:
        """Best of every stage, then their combinations. ``quick`` takes the first mapping of each stage."""
        if self.frames[frame].cut:
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
            if self.found.hopeless(sums[position][None, :])[0]:
                continue
            picked = combos[int(position)]
            tiles = self.settled(made.shared)
            for skeleton, sizes in picked:
                tiles |= self.settled(skeleton.slots) | sizes
            self.reach(made, tuple(skeleton for skeleton, _ in picked), tiles)

    def _solve_stage(
        self, frame: int, index: int, stage: Stage, combination: int, others: Values, quick: bool
    ) -> Frontier:
        """Frontier of one stage with the shared tiles given; what cannot improve the group's frontier even with the least of the
        other stages is left out."""
        floors = self._floor(frame)[index][:, combination]
        front = Frontier(len(self.objectives), self.gap)
        order = np.lexsort(floors.T[::-1])
        for position in order[:DIVES] if quick else order:
            if self._hopeless(front, floors[position][None, :], others)[0]:
                continue
            shape = self._compiled(frame, index, int(position))
            every = starts(shape.trees, self.unsettled(self.frames[frame].shared), self.combinations(self.frames[frame]))
            start = {dim: nodes[combination : combination + 1] for dim, nodes in every.items()}
            self._refine(shape, start, floors[position][None, :], front, others, quick)
        return front

    def _hopeless(self, front: Frontier, bounds: Values, others: Values) -> Flags:
        result = front.hopeless(bounds)
        left = np.flatnonzero(~result)
        result[left] = self.found.hopeless(bounds[left] + others)
        return result

    def _refine(
        self, shape: Shape, start: Mapping[str, Indices], bound: Values, front: Frontier, others: Values, quick: bool
    ) -> None:
        """Split sets of tile chains until what is left are single mappings, the most promising sets first."""
        def hopeless(bounds: Values) -> Flags:
            return self._hopeless(front, bounds, others)

        dims, trees = tuple(shape.trees), tuple(shape.trees.values())
        nodes = np.stack([start[dim] for dim in dims], axis=1) if dims else np.empty((1, 0), dtype=np.int64)
        if BUFFERS in dims:
            nodes = opened(nodes, dims.index(BUFFERS), shape.trees[BUFFERS].alike)
            bound = shape.bounds({dim: nodes[:, at] for at, dim in enumerate(dims)}, len(nodes), hopeless)
        stack = [(bound, nodes)]
        while stack:
            self.tally.tick()
            bounds, nodes = foremost(stack, hopeless, BEAM if quick else 0)
            sizes = np.array([tree.size[nodes[:, at]] for at, tree in enumerate(trees)]).reshape(len(trees), len(nodes))
            single = sizes.max(axis=0, initial=1) == 1
            if single.any():  # bounds of single mappings are their costs
                self._keep(shape, bounds[single], nodes[single], front, others)
                nodes, sizes = nodes[~single], sizes[:, ~single]
            if not len(nodes):
                continue
            if BUFFERS in dims:
                own = sizes[dims.index(BUFFERS)]
                own[own > 1] = UNSETTLED
            children = split_in(trees, nodes, sizes.argmax(axis=0))
            own = {dim: np.ascontiguousarray(children[:, place]) for place, dim in enumerate(dims)}  # each is read many times
            values = shape.bounds(own, len(children), hopeless)
            self.tally.bounds += len(children)
            kept = np.flatnonzero(values[:, 0] < np.inf)
            kept = kept[~hopeless(values[kept])]
            stack.append((values[kept], children[kept]))

    def _keep(self, shape: Shape, costs: Values, nodes: Indices, front: Frontier, others: Values) -> None:
        """Add single mappings to the stage's frontier."""
        self.tally.costed += len(costs)
        better = np.flatnonzero(~self._hopeless(front, costs, others))
        if not len(better):
            return
        for position in better[minimal(costs[better])]:
            sizes: dict[str, int] = {}
            for at, tree in enumerate(shape.trees.values()):
                sizes |= tree.sizes(int(nodes[position, at]))
            front.add(costs[position], (shape.skeleton, sizes))

    def reach(self, frame: Frame, skeletons: tuple[Skeleton, ...], tiles: Mapping[str, int]) -> Values:
        """Add a mapping with what it costs, exactly."""
        choice = Choice(frame, skeletons, tiles)
        estimate = evaluate(self.workload, self.chip, self.around(choice.tree()))
        if not fits(self.chip, estimate):
            got = f"{ {name: float(used) for name, used in estimate.footprint.items()} } B together"
            raise InternalError(Fault("search", "stages that fit one by one to fit together", got, "please report"))
        costs = {"time": estimate.time, "energy": estimate.energy}
        values = np.array([costs[name] for name in self.objectives], dtype=np.float64)
        self.found.add(values, choice)
        return values
