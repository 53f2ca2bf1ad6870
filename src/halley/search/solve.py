"""Exact search in one group: frames, shared tile sizes, then each stage for itself.

Every stage's cost formulas run once on open tile sizes (`halley.cost.program`); bounds and costs are that program's values on
sets of tile chains (`halley.search.chains`), from all of them down to single ones. Nothing is dropped unless its bound is no
better than a value already reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from halley.cost.counting import Sums
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.program import Array, Indices, Normal, Program
from halley.errors import Fault, InternalError
from halley.formulas.numbers import Number
from halley.formulas.terms import Terms
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node, walk
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Workload
from halley.search.chains import ChainTree
from halley.search.frames import Frame
from halley.search.frontier import Flags, Frontier, Values, minimal
from halley.search.overlap import Rounds, Vector, fits
from halley.search.sets import BEAM, CHUNK, DIVES, split_in, starts, taken
from halley.search.stages import Skeleton, Slot, Stage


class Interrupted(Exception):
    """The time limit or the user stopped the search."""


@dataclass(slots=True)
class Tally:
    """What a search did. ``tick`` is called often, and raises `Interrupted` to stop."""

    costed: int = 0
    bounds: int = 0
    tick: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Choice:
    """A complete mapping of a group: frame, one skeleton per stage, a size per slot."""

    frame: Frame
    skeletons: tuple[Skeleton, ...]
    tiles: Mapping[str, int]

    def tree(self) -> Node:
        return self.frame.tree(self.tiles, [skeleton.build(self.tiles) for skeleton in self.skeletons])


class Trees:
    """Open tile sizes and their chains, kept for all shapes that have them in common."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.normal = Normal(self.terms)
        self.cautious = Normal(self.terms, differences=False)
        self._known: dict[object, ChainTree] = {}
        self._sums: dict[tuple[tuple[str, int], ...], Sums] = {}

    def sums(self, workload: Workload) -> Sums:
        """What was found of dims of these extents."""
        return self._sums.setdefault(tuple(workload.dims.items()), {})

    def symbols(self, slots: Sequence[Slot]) -> dict[str, Number]:
        return {slot.name: self.terms.open(slot.name, slot.dim) for slot in slots}

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
class _Shape:
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


@dataclass(slots=True)
class GroupSearch:
    """Search of one group. ``around`` puts the group's tree under the workload's outer Holds."""

    workload: Workload
    chip: Chip
    frames: Sequence[Frame]
    around: Callable[[Node], Node]
    objectives: tuple[str, ...]
    tally: Tally
    gap: float = 0.0
    trees: Trees = field(default_factory=Trees)
    found: Frontier = field(init=False)
    open_bounds: list[Values] = field(default_factory=list)
    _maxima: set[str] = field(init=False)
    _shapes: dict[tuple[int, int], list[_Shape]] = field(default_factory=dict)
    _floors: dict[int, list[Values]] = field(default_factory=dict)
    _rounds: dict[int, Rounds] = field(default_factory=dict)
    _drafts: dict[int, Estimate] = field(default_factory=dict)
    vectors: dict[int, Vector] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found = Frontier(len(self.objectives), self.gap)
        scaled = {op.scaled_by for op in self.workload.ops if op.scaled_by}
        # a rescaled accumulator must see where its running maximum is computed; other stages may be left empty around one
        self._maxima = {op.name for op in self.workload.ops if scaled & set(op.outputs)}

    def run(self, rivals: Values) -> Frontier:
        """The proven frontier, together with ``rivals``: values reached by other means, which mappings here must beat to
        matter (payload None). On `Interrupted`, ``found`` has the best so far and ``open_bounds`` what was left."""
        for rival in rivals:
            self.found.add(rival, None)
        bounds, places = self._candidates()
        order = np.lexsort(bounds.T[::-1])
        dived: set[int] = set()
        for position in order:  # a good value early spares most of the rest
            frame, combination = places[position]
            if frame not in dived and not self.found.hopeless(bounds[position][None, :])[0]:
                dived.add(frame)
                self._solve(frame, combination, quick=True)
        for index, position in enumerate(order):
            if self.found.hopeless(bounds[position][None, :])[0]:
                continue
            try:
                self.tally.tick()
                self._solve(*places[position])
            except (Interrupted, KeyboardInterrupt):
                left = bounds[order[index:]]
                self.open_bounds = list(left[~self.found.hopeless(left)])
                raise
        return self.found

    def dive(self) -> None:
        """A first mapping, quickly: the most promising candidate of the first frame that has one."""
        for frame in range(len(self.frames)):
            total = self._total(frame)
            for position in np.lexsort(total.T[::-1])[:2]:
                if np.isfinite(total[position]).all():
                    self._solve(frame, int(position), quick=True)
                if self.found.payloads:
                    return

    def narrowed(self, parts: Sequence[tuple[int, Frame]], objectives: tuple[str, ...]) -> GroupSearch:
        """A new search of parts of frames, each given with its frame's number. What was compiled here serves again: that is most
        of the work."""
        frames = [part for _, part in parts]
        made = GroupSearch(self.workload, self.chip, frames, self.around, objectives, self.tally, self.gap, self.trees)
        if objectives != self.objectives:
            return made
        made._drafts, made.vectors = self._drafts, self.vectors
        for place, (number, part) in enumerate(parts):
            for index, stage in enumerate(part.stages):
                if (number, index) in self._shapes:
                    ready = self._shapes[number, index]
                    made._shapes[place, index] = [shape for shape in ready if shape.skeleton in stage.skeletons]
        return made

    # --- shared tile sizes open ---------------------------------------------------------------------------------------

    def _candidates(self) -> tuple[Values, list[tuple[int, int]]]:
        """Lower bounds of every frame with every combination of its shared tile sizes, and which these are."""
        rows: list[Values] = [np.empty((0, len(self.objectives)))]
        places: list[tuple[int, int]] = []
        for frame in range(len(self.frames)):
            total = self._total(frame)
            rows.append(total)
            places += [(frame, position) for position in range(len(total))]
        return np.vstack(rows), places

    def _total(self, frame: int) -> Values:
        """Lower bounds of a frame for each combination of its shared tile sizes; no rows where all are hopeless."""
        if self.frames[frame].cut:
            return self._overlapped(frame).total() if self._hides() else np.empty((0, len(self.objectives)))
        floors = self._floor(frame)
        if not floors:
            return np.empty((0, len(self.objectives)))
        return np.asarray(np.sum([floor.min(axis=0) for floor in floors], axis=0))

    def _hides(self) -> bool:
        """Whether work that is hidden can pay: overlapped stages move and compute the same, and keep no less."""
        return "time" in self.objectives or self.chip.static_power > 0

    def _overlapped(self, frame: int) -> Rounds:
        """The search of a frame whose stages overlap."""
        if frame not in self._rounds:
            self._rounds[frame] = Rounds(self, self.frames[frame])
        return self._rounds[frame]

    def combinations(self, frame: Frame) -> int:
        """In how many ways the shared tile sizes of a frame can be chosen."""
        return int(np.prod([len(tree.given) for tree in self.trees.of(frame.shared, ()).values()], dtype=np.int64))

    def _floor(self, frame: int) -> list[Values]:
        """Per stage, lower bounds (skeletons x combinations of shared sizes x objectives); none where the bounds of some stages
        alone are hopeless for every combination."""
        if frame not in self._floors:
            made = self.frames[frame]
            rows = self.combinations(made)
            stages: list[Values] = []
            total = np.zeros((rows, len(self.objectives)))
            for index in range(len(made.stages)):
                self.tally.tick()
                shapes = self._compiled(frame, index)
                floors = np.full((max(1, len(shapes)), rows, len(self.objectives)), np.inf)
                for position, shape in enumerate(shapes):
                    floors[position] = shape.bounds(starts(shape.trees, made.shared, rows), rows)
                self.tally.bounds += len(shapes) * rows
                stages.append(floors)
                total = total + floors.min(axis=0)
                if self.found.hopeless(total).all():
                    stages = []
                    break
            self._floors[frame] = stages
        return self._floors[frame]

    def _compiled(self, frame: int, index: int) -> list[_Shape]:
        """Every skeleton of a stage, its formulas run on open tile sizes."""
        key = (frame, index)
        if key not in self._shapes:
            made = self.frames[frame]
            self._shapes[key] = [self._compile(made, index, skeleton) for skeleton in made.stages[index].skeletons]
        return self._shapes[key]

    def _compile(self, frame: Frame, index: int, skeleton: Skeleton) -> _Shape:
        estimate = self.draft(frame, index, skeleton)
        memories = [name for name in estimate.footprint if np.isfinite(self.chip.memory(name).capacity)]
        costs = {"time": estimate.time, "energy": estimate.energy}
        outputs = [*(costs[name] for name in self.objectives), *(estimate.footprint[name] for name in memories)]
        trees = self.trees.of(frame.shared, skeleton.slots)
        program, tables = self.program(outputs, trees, f"{skeleton.name}, {frame.name}")
        capacities = [self.chip.memory(name).capacity for name in memories]
        return _Shape(skeleton, program, trees, tables, capacities, len(self.objectives))

    def program(self, outputs: Sequence[Number], trees: Mapping[str, ChainTree], where: str) -> tuple[Program, list[Array]]:
        """Lower bounds of terms over sets of chains, with the tables of their factors."""
        for normal in (self.trees.normal, self.trees.cautious):
            program = Program(normal, outputs)
            for dim, tree in trees.items():
                tree.tabulate([factor for factor in program.factors if factor.kind == dim])
            tables = [trees[factor.kind].table(factor) for factor in program.factors]
            if Program.sound(tables):
                return program, tables
        raise InternalError(
            Fault("search", "sizes and counts of at least 0", f"a negative factor in {where}", "please report")
        )

    def draft(self, frame: Frame, index: int, skeleton: Skeleton) -> Estimate:
        """A stage's cost on open tile sizes, stages in turn."""
        if id(skeleton) not in self._drafts:
            symbols = self.trees.symbols((*frame.shared, *skeleton.slots))
            self._drafts[id(skeleton)] = replace(self._estimate(frame, index, skeleton, symbols), events=(), nodes={})
        return self._drafts[id(skeleton)]

    def _estimate(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> Estimate:
        """Cost of one stage in its frame; the footprint is that of the whole."""
        node = skeleton.build(tiles)
        stubs: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops if op in self._maxima)) for stage in frame.stages]
        stubs[index] = node
        tree = self.around(frame.wrap(tiles, stubs, ()))
        totals, sums = "energy" in self.objectives, self.trees.sums(self.workload)
        times = "time" in self.objectives or self.chip.static_power > 0
        # several stages follow each other, each a phase of its own; a single one is the whole, loops around it included
        if len(stubs) == 1:
            return evaluate(self.workload, self.chip, tree, totals=totals, times=times, sums=sums)
        # the other stages' shapes are open, but their ops use the frame's buffers whatever shape they take
        users: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops)) for stage in frame.stages]
        users[index] = node
        held = self.around(frame.wrap(tiles, users, ()))
        path = next(path for path, found in walk(tree) if found is node)
        return evaluate(self.workload, self.chip, tree, only=path, totals=totals, times=times, held=held, sums=sums)

    # --- shared tile sizes fixed --------------------------------------------------------------------------------------

    def _solve(self, frame: int, combination: int, quick: bool = False) -> None:
        """Best of every stage, then their combinations. ``quick`` takes the first mapping of each stage."""
        if self.frames[frame].cut:
            self._overlapped(frame).solve(combination, quick)
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
            tiles = {name: size for _, sizes in picked for name, size in sizes.items()}
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
            shape = self._compiled(frame, index)[int(position)]
            start = {dim: nodes[combination : combination + 1] for dim, nodes in self._starts(frame, shape).items()}
            self._refine(shape, start, floors[position][None, :], front, others, quick)
        return front

    def _starts(self, frame: int, shape: _Shape) -> dict[str, Indices]:
        shared = self.frames[frame].shared
        return starts(shape.trees, shared, self._floors[frame][0].shape[1])

    def _hopeless(self, front: Frontier, bounds: Values, others: Values) -> Flags:
        return front.hopeless(bounds) | self.found.hopeless(bounds + others)

    def _refine(
        self, shape: _Shape, start: Mapping[str, Indices], bound: Values, front: Frontier, others: Values, quick: bool
    ) -> None:
        """Split sets of tile chains until what is left are single mappings, the most promising sets first."""
        dims, trees = tuple(shape.trees), tuple(shape.trees.values())
        stack = [(bound, np.stack([start[dim] for dim in dims], axis=1) if dims else np.empty((1, 0), dtype=np.int64))]
        while stack:
            self.tally.tick()
            bounds, nodes = taken(stack, CHUNK)
            alive = np.flatnonzero(~self._hopeless(front, bounds, others))
            if not len(alive):
                continue
            alive = alive[np.lexsort(bounds[alive].T[::-1])]
            room = BEAM if quick else CHUNK
            if len(alive) > room and not quick:
                stack.append((bounds[alive[room:]], nodes[alive[room:]]))
            bounds, nodes = bounds[alive[:room]], nodes[alive[:room]]
            sizes = np.stack([tree.size[nodes[:, at]] for at, tree in enumerate(trees)], axis=1) if dims else nodes
            single = sizes.max(axis=1, initial=1) == 1
            if single.any():  # bounds of single mappings are their costs
                self._keep(shape, bounds[single], nodes[single], front, others)
                nodes, sizes = nodes[~single], sizes[~single]
            if not len(nodes):
                continue
            children = split_in(trees, nodes, sizes.argmax(axis=1))
            values = shape.bounds({dim: children[:, place] for place, dim in enumerate(dims)}, len(children))
            self.tally.bounds += len(children)
            kept = ~self._hopeless(front, values, others)
            stack.append((values[kept], children[kept]))

    def _keep(self, shape: _Shape, costs: Values, nodes: Indices, front: Frontier, others: Values) -> None:
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
        values = self._objective(estimate.time, estimate.energy)
        self.found.add(values, choice)
        return values

    def _objective(self, time: Number, energy: Number) -> Values:
        return np.array([{"time": time, "energy": energy}[name] for name in self.objectives], dtype=np.float64)


def iterate(frame: Frame) -> Iterator[Choice]:
    """Every mapping of a frame, one by one: for exhaustive checks of small spaces."""
    for skeletons in product(*(stage.skeletons for stage in frame.stages)):
        slots = (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots))
        for tiles in _assignments(slots, {}):
            yield Choice(frame, skeletons, tiles)


def _assignments(slots: Sequence[Slot], tiles: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    if not slots:
        yield tiles
        return
    for size in slots[0].sizes(int(slots[0].limit(tiles))):
        yield from _assignments(slots[1:], {**tiles, slots[0].name: size})
