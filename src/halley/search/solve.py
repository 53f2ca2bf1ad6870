"""Exact search in one group: frames, shared tile sizes, then each stage for itself.

Bounds come from the cost formulas themselves, with open tile sizes relaxed (`halley.cost.counting`): a relaxed slot
contributes the least of each sum, so a bound never exceeds a cost that it stands for. Nothing is dropped unless its
bound is no better than a value already reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

import numpy as np

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import Fault, InternalError
from halley.formulas.numbers import Number
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node, walk
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Workload
from halley.search.frames import Frame
from halley.search.frontier import Flags, Frontier, Values, minimal
from halley.search.stages import Skeleton, Slot, Stage

BATCH = 1 << 14
"""Mappings costed at once; about what stays in a core's cache."""

TABLE = 1 << 16
"""Largest grid of tile sizes that is costed whole instead of bounded first."""


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
        return self.frame.wrap(self.tiles, [skeleton.build(self.tiles) for skeleton in self.skeletons])


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A frame with its shared tiles (combination ``at``): a lower bound, and one for each skeleton of each stage."""

    bound: Values
    frame: Frame
    at: int
    shared: dict[str, int]
    floors: tuple[Values, ...]


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
    found: Frontier = field(init=False)
    open_bounds: list[Values] = field(default_factory=list)
    _maxima: set[str] = field(init=False)
    _tables: dict[tuple[int, int, int], Values] = field(default_factory=dict)
    _head_bounds: dict[tuple[int, int, int], Values] = field(default_factory=dict)
    _listed: dict[int, list[_Candidate]] = field(default_factory=dict)

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
        candidates = [item for frame in range(len(self.frames)) for item in self._candidates(frame)]
        candidates.sort(key=lambda item: tuple(item.bound))
        for index, candidate in enumerate(candidates):
            if self.found.hopeless(candidate.bound[None, :])[0]:
                continue
            try:
                self.tally.tick()
                self._solve(candidate)
            except (Interrupted, KeyboardInterrupt):
                left = (item.bound for item in candidates[index:])
                self.open_bounds = [bound for bound in left if not self.found.hopeless(bound[None, :])[0]]
                raise
        return self.found

    def dive(self) -> None:
        """A first mapping, quickly: the most promising candidate of the first frame that has one."""
        for frame in range(len(self.frames)):
            for candidate in sorted(self._candidates(frame), key=lambda item: tuple(item.bound))[:2]:
                self._solve(candidate, quick=True)
                if self.found.payloads:
                    return

    # --- one frame with its shared tiles open -----------------------------------------------------------------------

    def _candidates(self, frame: int) -> list[_Candidate]:
        """Candidates of one frame, found once."""
        if frame not in self._listed:
            self._listed[frame] = self._shared_choices(self.frames[frame])
        return self._listed[frame]

    def _shared_choices(self, frame: Frame) -> list[_Candidate]:
        """A candidate for each combination of shared tile sizes that may fit."""
        self.tally.tick()
        grids = _grid(frame.shared, 0, len(frame.shared))
        combos = list(product(*(slot.sizes for slot in frame.shared)))
        floors: list[Values] = []  # per stage: skeletons x combos x objectives
        for index, stage in enumerate(frame.stages):
            rows = [self._floor(frame, index, skeleton, grids) for skeleton in stage.skeletons]
            if not rows:
                return []
            floors.append(np.array([np.broadcast_to(row, (len(combos), row.shape[1])) for row in rows]))
        total = sum((floor.min(axis=0) for floor in floors), np.zeros((len(combos), len(self.objectives))))
        names = [slot.name for slot in frame.shared]
        return [
            _Candidate(total[at], frame, at, dict(zip(names, combo, strict=True)), tuple(floor[:, at] for floor in floors))
            for at, combo in enumerate(combos)
            if np.isfinite(total[at]).all()
        ]

    def _floor(self, frame: Frame, index: int, skeleton: Skeleton, grids: Mapping[str, Number]) -> Values:
        """Lower bounds of one stage over the grid of shared tiles."""
        if not frame.shared and _points(skeleton.slots) > TABLE:  # the bounds that are needed next serve at once
            return np.asarray(self._heads(frame, index, skeleton, {}).min(axis=0, keepdims=True))
        return self._bound(frame, index, skeleton, grids, len(frame.shared))

    def _heads(self, frame: Frame, index: int, skeleton: Skeleton, shared: Mapping[str, int]) -> Values:
        """Lower bounds of one stage for each combination of its first slots; kept where no tiles are shared."""
        key = (id(frame), index, id(skeleton))
        if key in self._head_bounds:
            return self._head_bounds[key]
        head, _ = _halves(skeleton.slots)
        bounds = self._bound(frame, index, skeleton, {**shared, **_grid(head, 0, len(head))}, len(head))
        if not frame.shared:
            self._head_bounds[key] = bounds
        return bounds

    def _bound(
        self,
        frame: Frame,
        index: int,
        skeleton: Skeleton,
        fixed: Mapping[str, Number],
        fixed_axes: int,
    ) -> Values:
        """Lower bounds of one stage, one row per point of the fixed axes, its other slots relaxed; inf where nothing fits."""
        named = set(fixed)
        loose = [slot for slot in skeleton.slots if slot.name not in named]
        axes = fixed_axes + len(loose)
        tiles: dict[str, Number] = {
            name: value.reshape(value.shape + (1,) * (axes - value.ndim)) if isinstance(value, np.ndarray) else value
            for name, value in fixed.items()
        }
        for offset, slot in enumerate(loose):
            shape = [1] * axes
            shape[fixed_axes + offset] = len(slot.sizes)
            tiles[slot.name] = np.array(slot.sizes, dtype=np.float64).reshape(shape)
        relaxed = tuple(range(fixed_axes, axes))
        values, _ = self._cost(frame, index, skeleton, tiles, relaxed)
        self.tally.bounds += int(np.prod(values.shape[:-1]))
        return values.reshape(-1, values.shape[-1])

    # --- one frame with its shared tiles fixed ----------------------------------------------------------------------

    def _solve(self, candidate: _Candidate, quick: bool = False) -> None:
        """Best of every stage, then their combinations. ``quick`` takes what the first batch of each stage gives."""
        frame, shared = candidate.frame, candidate.shared
        rest: list[Values] = [floor.min(axis=0) for floor in candidate.floors]
        fronts: list[Frontier] = []
        for index, stage in enumerate(frame.stages):
            others = sum((rest[i] for i in range(len(rest)) if i != index), np.zeros(len(self.objectives)))
            front = self._solve_stage(candidate, index, stage, others, quick)
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
            tiles = dict(shared)
            for _, sizes in picked:
                tiles.update(sizes)
            choice = Choice(frame, tuple(skeleton for skeleton, _ in picked), tiles)
            estimate = evaluate(self.workload, self.chip, self.around(choice.tree()))
            self.tally.costed += 1
            if not fits(self.chip, estimate):
                got = f"{ {name: float(used) for name, used in estimate.footprint.items()} } B together"
                raise InternalError(Fault("search", "stages that fit one by one to fit together", got, "please report"))
            self.found.add(self._objective(estimate.time, estimate.energy), choice)

    def _solve_stage(self, candidate: _Candidate, index: int, stage: Stage, others: Values, quick: bool) -> Frontier:
        """Frontier of one stage with the shared tiles given; what cannot improve the group's frontier even with the least of the
        other stages is left out."""
        frame, shared, floors = candidate.frame, candidate.shared, candidate.floors[index]
        front = Frontier(len(self.objectives), self.gap)
        for position in np.lexsort(floors.T[::-1]):
            skeleton = stage.skeletons[int(position)]
            if self._hopeless(front, floors[position][None, :], others)[0]:
                continue
            table = self._table(frame, index, skeleton)
            if table is not None:
                self._pick(skeleton, table[candidate.at], front, others)
                continue
            head, tail = _halves(skeleton.slots)
            bounds = self._heads(frame, index, skeleton, shared) if head else floors[position][None, :]
            combos = _combinations(tuple(slot.sizes for slot in head))
            alive = ~self._hopeless(front, bounds, others)
            self._descend(frame, index, skeleton, shared, bounds[alive], combos[alive], head, tail, front, others, quick)
            if quick and front.payloads:
                break
        return front

    def _table(self, frame: Frame, index: int, skeleton: Skeleton) -> Values | None:
        """Costs of a skeleton for all shared and own tile sizes at once (shared x own x objectives); None where they are many."""
        key = (id(frame), index, id(skeleton))
        if key not in self._tables:
            slots = (*frame.shared, *skeleton.slots)
            if _points(slots) > TABLE:
                return None
            shared = _points(frame.shared)
            values, _ = self._cost(frame, index, skeleton, _grid(slots, 0, len(slots)), ())
            self._tables[key] = values.reshape(shared, -1, values.shape[-1])
            self.tally.costed += _points(slots)
            self.tally.tick()
        return self._tables[key]

    def _pick(self, skeleton: Skeleton, values: Values, front: Frontier, others: Values) -> None:
        """Add the best rows of a table."""
        keep = np.flatnonzero(~self._hopeless(front, values, others))
        if not len(keep):
            return
        shape = tuple(len(slot.sizes) for slot in skeleton.slots)
        for position in keep[minimal(values[keep])]:
            where = np.unravel_index(int(position), shape) if shape else ()
            sizes = {slot.name: slot.sizes[at] for slot, at in zip(skeleton.slots, where, strict=True)}
            front.add(values[int(position)], (skeleton, sizes))

    def _hopeless(self, front: Frontier, bounds: Values, others: Values) -> Flags:
        return front.hopeless(bounds) | self.found.hopeless(bounds + others)

    def _descend(
        self, frame: Frame, index: int, skeleton: Skeleton, shared: Mapping[str, int], bounds: Values, combos: Values,
        head: Sequence[Slot], tail: Sequence[Slot], front: Frontier, others: Values, quick: bool,
    ) -> None:  # fmt: skip
        """Cost all tail sizes for the head sizes that are still worth it, most promising first."""
        order = np.lexsort(bounds.T[::-1])
        inner = int(np.prod([len(slot.sizes) for slot in tail])) if tail else 1
        chunk = max(1, BATCH // inner)
        first = max(1, chunk // 8)
        start = 0
        while start < len(order):
            self.tally.tick()
            block = order[start : start + (first if start == 0 else chunk)]
            start += len(block)
            block = block[~self._hopeless(front, bounds[block], others)]
            if not len(block):
                if len(self.objectives) == 1:
                    return
                continue
            axes = 1 + len(tail)
            tiles: dict[str, Number] = dict(shared)
            for column, slot in enumerate(head):
                tiles[slot.name] = combos[block, column].reshape((-1,) + (1,) * len(tail))
            for offset, slot in enumerate(tail):
                shape = [1] * axes
                shape[1 + offset] = len(slot.sizes)
                tiles[slot.name] = np.array(slot.sizes, dtype=np.float64).reshape(shape)
            values, shape_of = self._cost(frame, index, skeleton, tiles, ())
            flat = values.reshape(-1, values.shape[-1])
            self.tally.costed += len(flat)
            keep = np.flatnonzero(~self._hopeless(front, flat, others))
            if not len(keep):
                continue
            for position in keep[minimal(flat[keep])]:
                where = np.unravel_index(int(position), shape_of)
                sizes = {slot.name: int(combos[block[where[0]], column]) for column, slot in enumerate(head)}
                sizes |= {slot.name: slot.sizes[where[1 + offset]] for offset, slot in enumerate(tail)}
                front.add(flat[int(position)], (skeleton, sizes))
            if quick:
                return

    # --- costs ----------------------------------------------------------------------------------------------------

    def _cost(
        self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number], relaxed: tuple[int, ...]
    ) -> tuple[Values, tuple[int, ...]]:
        """Objectives of one stage in its frame (last axis), inf where a memory overflows; and the shape before it."""
        node = skeleton.build(tiles)
        stubs: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops if op in self._maxima)) for stage in frame.stages]
        stubs[index] = node
        tree = self.around(frame.wrap(tiles, stubs))
        # the other stages' shapes are open, but their ops use the frame's buffers whatever shape they take
        users: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops)) for stage in frame.stages]
        users[index] = node
        held = self.around(frame.wrap(tiles, users))
        # several stages follow each other, each a phase of its own; a single one is the whole, loops around it included
        path = next(path for path, found in walk(tree) if found is node) if len(stubs) > 1 else None
        wanted = "energy" in self.objectives
        estimate = evaluate(self.workload, self.chip, tree, relaxed, only=path, totals=wanted, held=held)
        time, energy = estimate.time, estimate.energy
        shapes = [np.shape(value) for value in (*tiles.values(), time, energy)]
        full = np.broadcast_shapes(*shapes)
        shape = tuple(1 if axis in relaxed else size for axis, size in enumerate(full))
        columns = {"time": time, "energy": energy}
        values = np.stack([np.broadcast_to(columns[name], shape) for name in self.objectives], axis=-1).astype(np.float64)
        over = np.zeros(shape, dtype=bool)
        for memory, used in estimate.footprint.items():
            over = over | np.broadcast_to(np.asarray(used) > self.chip.memory(memory).capacity, shape)
        values[over] = np.inf
        return values, shape

    def _objective(self, time: Number, energy: Number) -> Values:
        return np.array([{"time": time, "energy": energy}[name] for name in self.objectives], dtype=np.float64)


def fits(chip: Chip, estimate: Estimate) -> bool:
    """Whether every memory holds its footprint."""
    return all(used <= chip.memory(name).capacity for name, used in estimate.footprint.items())


def _grid(slots: Sequence[Slot], first_axis: int, axes: int) -> dict[str, Number]:
    """One array per slot, each along its own axis."""
    tiles: dict[str, Number] = {}
    for offset, slot in enumerate(slots):
        shape = [1] * axes
        shape[first_axis + offset] = len(slot.sizes)
        tiles[slot.name] = np.array(slot.sizes, dtype=np.float64).reshape(shape)
    return tiles


@lru_cache(maxsize=64)
def _combinations(sizes: tuple[tuple[int, ...], ...]) -> Values:
    """Every combination of sizes, one row each, the last varying fastest."""
    if not sizes:
        return np.empty((1, 0))
    grids = np.meshgrid(*(np.array(row, dtype=np.float64) for row in sizes), indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)


def _points(slots: Sequence[Slot]) -> int:
    """Size of the grid of the slots' sizes."""
    return math.prod(len(slot.sizes) for slot in slots)


def _halves(slots: Sequence[Slot]) -> tuple[Sequence[Slot], Sequence[Slot]]:
    """Slots to bound first, slots to cost in one go: as many of the last as make a batch of moderate size."""
    tail: list[Slot] = []
    size = 1
    for slot in reversed(slots):
        if size * len(slot.sizes) > BATCH // 4:
            break
        size *= len(slot.sizes)
        tail.insert(0, slot)
    return slots[: len(slots) - len(tail)], tuple(tail)


def iterate(frame: Frame) -> Iterator[Choice]:
    """Every mapping of a frame, one by one: for exhaustive checks of small spaces."""
    for skeletons in product(*(stage.skeletons for stage in frame.stages)):
        slots = (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots))
        for combo in product(*(slot.sizes for slot in slots)):
            tiles = dict(zip((slot.name for slot in slots), combo, strict=True))
            if all(tiles[s.name] < s.limit(tiles) or tiles[s.name] == s.sizes[-1] for s in slots):
                yield Choice(frame, tuple(skeletons), tiles)
