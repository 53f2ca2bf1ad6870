"""Exact search in one group: frames, shared tile sizes, then each stage for itself.

Every stage's cost formulas run once on open tile sizes (`halley.cost.program`); bounds and costs are that program's values on
sets of tile chains (`halley.search.chains`), from all of them down to single ones. Nothing is dropped unless its bound is no
better than a value already reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from halley.search.stages import BUFFERS, Skeleton, Slot, Stage, Tiles

CHUNK = 1 << 9
"""Sets of mappings to refine at once."""

BEAM = 8
"""Sets that a dive for a first mapping follows."""

DIVES = 4
"""Shapes of a stage that are tried for a first mapping: the most promising ones."""


FLOOR_ROWS = 1 << 14
"""Sets that are bounded at once for a first bound of a shape."""


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
    """A complete mapping of a group: frame, one skeleton per stage, a size per slot (arrays for several at once)."""

    frame: Frame
    skeletons: tuple[Skeleton, ...]
    tiles: Tiles

    def tree(self) -> Node:
        return self.frame.wrap(self.tiles, [skeleton.build(self.tiles) for skeleton in self.skeletons])


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
        for place, (number, part) in enumerate(parts) if objectives == self.objectives else ():
            for index, stage in enumerate(part.stages):
                if (number, index) in self._shapes:
                    ready = self._shapes[number, index]
                    made._shapes[place, index] = [shape for shape in ready if shape.skeleton in stage.skeletons]
        return made

    @property
    def lean(self) -> bool:
        """Whether one buffer is as good as two: where only energy counts and nothing leaks, energy is that of the bytes that
        move, which are the same, and the footprint is smaller."""
        return "time" not in self.objectives and self.chip.static_power == 0

    def _settled(self, slots: Sequence[Slot]) -> dict[str, int]:
        """Sizes that need no search."""
        return {slot.name: 1 for slot in slots if self.lean and slot.dim == BUFFERS and slot.sizes(1) == (1,)}

    def _open(self, slots: Sequence[Slot]) -> tuple[Slot, ...]:
        """The slots whose sizes are searched, with what is to be tried of them."""
        settled = self._settled(slots)
        kept = (slot for slot in slots if slot.name not in settled)
        return tuple(replace(slot, limit=_one) if self.lean and slot.dim == BUFFERS else slot for slot in kept)

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
        floors = self._floor(frame)
        if not floors:
            return np.empty((0, len(self.objectives)))
        return np.asarray(np.sum([floor.min(axis=0) for floor in floors], axis=0))

    def _floor(self, frame: int) -> list[Values]:
        """Per stage, lower bounds (skeletons x combinations of shared sizes x objectives); none where the bounds of some stages
        alone are hopeless for every combination."""
        if frame not in self._floors:
            made = self.frames[frame]
            shared = self._open(made.shared)
            grid = _grid(shared, self.trees)
            rows = int(np.prod([len(nodes) for nodes in grid.values()], dtype=np.int64))
            stages: list[Values] = []
            total = np.zeros((rows, len(self.objectives)))
            for index in range(len(made.stages)):
                self.tally.tick()
                shapes = self._compiled(frame, index)
                floors = np.full((max(1, len(shapes)), rows, len(self.objectives)), np.inf)
                for position, shape in enumerate(shapes):
                    floors[position] = shape.floor(_start(shape, shared, rows), rows)
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
        slots = (*frame.shared, *skeleton.slots)
        tiles = self.trees.symbols(self._open(slots)) | self._settled(slots)
        estimate = self._estimate(frame, index, skeleton, tiles)
        memories = [name for name in estimate.footprint if np.isfinite(self.chip.memory(name).capacity)]
        costs = {"time": estimate.time, "energy": estimate.energy}
        outputs = [*(costs[name] for name in self.objectives), *(estimate.footprint[name] for name in memories)]
        trees = self.trees.of(self._open(frame.shared), self._open(skeleton.slots))
        for normal in (self.trees.normal, self.trees.cautious):
            program = Program(normal, outputs)
            for dim, tree in trees.items():
                tree.tabulate([factor for factor in program.factors if factor.kind == dim])
            tables = [trees[factor.kind].table(factor) for factor in program.factors]
            if Program.sound(tables):
                break
        else:
            got = f"a negative factor in {skeleton.name}, {frame.name}"
            raise InternalError(Fault("search", "sizes and counts of at least 0", got, "please report"))
        capacities = [self.chip.memory(name).capacity for name in memories]
        return _Shape(skeleton, program, trees, tables, capacities, len(self.objectives))

    def _estimate(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> Estimate:
        """Cost of one stage in its frame; the footprint is that of the whole."""
        node = skeleton.build(tiles)
        stubs: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops if op in self._maxima)) for stage in frame.stages]
        stubs[index] = node
        tree = self.around(frame.wrap(tiles, stubs))
        totals, sums = "energy" in self.objectives, self.trees.sums(self.workload)
        times = "time" in self.objectives or self.chip.static_power > 0
        # several stages follow each other, each a phase of its own; a single one is the whole, loops around it included
        if len(stubs) == 1:
            return evaluate(self.workload, self.chip, tree, only=(), totals=totals, times=times, sums=sums)
        # the other stages' shapes are open, but their ops use the frame's buffers whatever shape they take
        users: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops)) for stage in frame.stages]
        users[index] = node
        held = self.around(frame.wrap(tiles, users))
        path = next(path for path, found in walk(tree) if found is node)
        return evaluate(self.workload, self.chip, tree, only=path, totals=totals, times=times, held=held, sums=sums)

    # --- shared tile sizes fixed --------------------------------------------------------------------------------------

    def _solve(self, frame: int, combination: int, quick: bool = False) -> None:
        """Best of every stage, then their combinations. ``quick`` takes the first mapping of each stage."""
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
            tiles = self._settled(made.shared)
            for skeleton, sizes in picked:
                tiles |= self._settled(skeleton.slots) | sizes
            choice = Choice(made, tuple(skeleton for skeleton, _ in picked), tiles)
            estimate = evaluate(self.workload, self.chip, self.around(choice.tree()))
            if not fits(self.chip, estimate):
                got = f"{ {name: float(used) for name, used in estimate.footprint.items()} } B together"
                raise InternalError(Fault("search", "stages that fit one by one to fit together", got, "please report"))
            self.found.add(self._objective(estimate.time, estimate.energy), choice)

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
        shared = self._open(self.frames[frame].shared)
        return _start(shape, shared, self._floors[frame][0].shape[1])

    def _hopeless(self, front: Frontier, bounds: Values, others: Values) -> Flags:
        return front.hopeless(bounds) | self.found.hopeless(bounds + others)

    def _refine(
        self, shape: _Shape, start: Mapping[str, Indices], bound: Values, front: Frontier, others: Values, quick: bool
    ) -> None:
        """Split sets of tile chains until what is left are single mappings, the most promising sets first."""
        dims, trees = tuple(shape.trees), tuple(shape.trees.values())
        nodes = np.stack([start[dim] for dim in dims], axis=1) if dims else np.empty((1, 0), dtype=np.int64)
        if BUFFERS in dims:
            place = dims.index(BUFFERS)
            settled, number = trees[place].singles(nodes[:, place])
            nodes = np.repeat(nodes, number, axis=0)
            nodes[:, place] = settled
            bound = shape.bounds({dim: nodes[:, at] for at, dim in enumerate(dims)}, len(nodes))
        stack = [(bound, nodes)]
        while stack:
            self.tally.tick()
            bounds, nodes = _taken(stack, CHUNK)
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
            children = _children(trees, nodes, sizes.argmax(axis=1))
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

    def _objective(self, time: Number, energy: Number) -> Values:
        return np.array([{"time": time, "energy": energy}[name] for name in self.objectives], dtype=np.float64)


def _taken(stack: list[tuple[Values, Indices]], enough: int) -> tuple[Values, Indices]:
    """Take from the end of the stack until that is enough."""
    taken = [stack.pop()]
    count = len(taken[0][0])
    while stack and count < enough:
        taken.append(stack.pop())
        count += len(taken[-1][0])
    return np.vstack([bounds for bounds, _ in taken]), np.vstack([nodes for _, nodes in taken])


def _children(trees: Sequence[ChainTree], parents: Indices, split: Indices) -> Indices:
    """The sets that parents fall into where each is split in one dim."""
    made: list[Indices] = []
    for at, tree in enumerate(trees):
        own = parents[split == at]
        number = tree.children[own[:, at]]
        children = np.repeat(own, number, axis=0)
        before = np.repeat(np.cumsum(number) - number, number)
        children[:, at] = np.repeat(tree.first_child[own[:, at]], number) + np.arange(len(children)) - before
        made.append(children)
    return np.vstack(made)


def _grid(shared: Sequence[Slot], trees: Trees) -> dict[str, Indices]:
    """Nodes of the shared slots' sizes, by dim."""
    return {dim: tree.given for dim, tree in trees.of(shared, ()).items()}


def _start(shape: _Shape, shared: Sequence[Slot], rows: int) -> dict[str, Indices]:
    """For each combination of shared sizes, the node of each dim that stands for it."""
    order = tuple(dict.fromkeys(slot.dim for slot in shared))
    grids = np.meshgrid(*(shape.trees[dim].given for dim in order), indexing="ij") if order else []
    found = {dim: grid.ravel() for dim, grid in zip(order, grids, strict=True)}
    return {dim: found.get(dim, np.zeros(rows, dtype=np.int64)) for dim in shape.trees}


def _one(tiles: object) -> int:
    return 1


def fits(chip: Chip, estimate: Estimate) -> bool:
    """Whether every memory holds its footprint."""
    return all(used <= chip.memory(name).capacity for name, used in estimate.footprint.items())
