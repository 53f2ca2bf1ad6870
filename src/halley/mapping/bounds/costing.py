"""Costs of a group's stages with open tile sizes.

Cost formulas run once on terms instead of numbers (`halley.cost.programs.program`). This module determines which sizes are
open, builds the tree in which a stage is costed by itself, estimates it, and compiles the estimate. Results are cached for all
frames, and as far as possible for all groups, that have the stage in common.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from halley.cost.affine import counter_of
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.footprint import footprint
from halley.cost.movement import Body
from halley.formulas.numbers import Number
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node, walk
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Workload
from halley.mapping.bounds.capacity import footprint_on_partition, may_be_full
from halley.mapping.bounds.chain_sets import starts
from halley.mapping.bounds.context import cost_context
from halley.mapping.bounds.incumbents import Values
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.bounds.shapes import Compiled, Shape, StageCosts, Trees, least_of_buffers
from halley.mapping.bounds.untiled import untiled_sizes, without_loops
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import BUFFERS, Skeleton, Slot, one
from halley.mapping.space.tile_chains import ChainTree


def _place(frame: Frame, skeleton: Skeleton) -> Callable[[], str]:
    """The name of a shape in a frame, for errors."""
    return lambda: f"{skeleton.name}, {frame.name}"


@dataclass(slots=True)
class Costing:
    """Costs of the stages of a group, for the requested objectives. ``ops``: those of the group; ``enclose`` wraps its tree in
    the workload's outer Holds; ``lone``: costs of shapes on partitions of the axes (`halley.mapping.solve.axis_partitions`)."""

    workload: Workload
    chip: Chip
    ops: Sequence[str]
    enclose: Callable[[Node], Node]
    objectives: tuple[str, ...]
    trees: Trees
    tally: SearchCounter
    lone: dict[int, Values] = field(default_factory=dict)
    _anchors: set[str] = field(init=False)
    _shapes: dict[Hashable, Shape] = field(default_factory=dict)
    _drafts: dict[Hashable, Estimate] = field(default_factory=dict)
    _leaner: dict[tuple[int, ...], tuple[Sequence[Slot], tuple[Slot, ...]]] = field(default_factory=dict)
    _lean_slots: dict[int, tuple[Slot, Slot | None]] = field(default_factory=dict)
    _symbols: dict[tuple[int, ...], tuple[Sequence[Slot], Mapping[str, Number]]] = field(default_factory=dict)
    _largest: dict[Hashable, tuple[object, Mapping[str, Number]]] = field(default_factory=dict)
    _limited: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        scaled = {op.scaled_by for op in self.workload.ops if op.scaled_by}
        # a rescaled accumulator must see where its running maximum is computed, and a collective that joins its parts that it was
        # computed; other stages may be left empty around one
        self._anchors = {op.name for op in self.workload.ops if op.scaled_by or scaled & set(op.outputs)}

    # --- which sizes are open -----------------------------------------------------------------------------------------

    @property
    def limited(self) -> tuple[str, ...]:
        """The memories that may overflow."""
        if self._limited is None:
            self._limited = may_be_full(self.workload, self.chip, self.enclose(Steps(tuple(map(Compute, self.ops)))))
        return self._limited

    @property
    def timed(self) -> bool:
        """Whether times matter: as an objective, or for static energy."""
        return "time" in self.objectives or self.chip.static_power > 0

    @property
    def lean(self) -> bool:
        """Whether one buffer is as good as two: if times do not matter, as the traffic and its energy are the same."""
        return not self.timed

    def fixed_sizes(self, slots: Sequence[Slot]) -> dict[str, int]:
        """Sizes of the slots that need no search."""
        return {slot.name: 1 for slot in slots if self.lean and slot.dim == BUFFERS and slot.sizes(1) == (1,)}

    def searched_slots(self, slots: Sequence[Slot]) -> tuple[Slot, ...]:
        """The slots whose sizes are searched, with the sizes to try."""
        if not self.lean:
            return tuple(slots)
        key = tuple(map(id, slots))
        if key not in self._leaner:
            self._leaner[key] = slots, tuple(own for slot in slots if (own := self._lean(slot)) is not None)
        return self._leaner[key][1]

    def _lean(self, slot: Slot) -> Slot | None:
        """The slot with the sizes to try if one buffer is as good as two; None if its size is fixed."""
        if slot.dim != BUFFERS:
            return slot
        if id(slot) not in self._lean_slots:
            self._lean_slots[id(slot)] = slot, None if self.fixed_sizes((slot,)) else replace(slot, limit=one)
        return self._lean_slots[id(slot)][1]

    def symbols(self, frame: Frame, skeleton: Skeleton) -> Mapping[str, Number]:
        """The sizes of a stage in its frame, as terms for searched slots and numbers for fixed ones."""
        slots = (*frame.shared, *skeleton.slots)
        key = tuple(map(id, slots))
        if key not in self._symbols:
            self._symbols[key] = slots, self.trees.symbols(self.searched_slots(slots)) | self.fixed_sizes(slots)
        return self._symbols[key][1]

    def combinations(self, frame: Frame) -> int:
        """Number of combinations of a frame's shared tile sizes."""
        return self.trees.combinations(self.searched_slots(frame.shared))

    # --- costs on open sizes ------------------------------------------------------------------------------------------

    def shape(self, frame: Frame, index: int, skeleton: Skeleton) -> Shape:
        """The compiled shape of a skeleton. Shapes of frames with sequential stages are not shared between frames."""
        key = frame.compiled_by(skeleton)
        if key not in self._shapes:
            self._shapes[key] = self._shape(frame, index, skeleton)
        return self._shapes[key]

    def _shape(self, frame: Frame, index: int, skeleton: Skeleton) -> Shape:
        """Formulas of all objectives are compiled only when bounds need them, as the least costs prune most shapes."""
        self.tally.tick()
        used = self._footprint(frame, index, skeleton)
        memories = [name for name in used if name in self.limited]
        capacities = np.array([self.chip.memory(name).capacity for name in memories])
        trees = self.trees.of(self.searched_slots(frame.shared), self.searched_slots(skeleton.slots))
        footprint = self.trees.program([used[name] for name in memories], trees, _place(frame, skeleton))
        least = self._least(frame, index, skeleton, trees)

        @cache
        def given() -> Compiled:
            return self._closer(frame, index, skeleton, trees, rough=True)

        @cache
        def exact() -> Compiled:
            return self._closer(frame, index, skeleton, trees, rough=False)

        choices = given if self.chooses(skeleton) else None
        return Shape(skeleton, trees, capacities, len(self.objectives), footprint, least, choices, exact if self.timed else None)

    def chooses(self, skeleton: Skeleton) -> bool:
        """Whether a stage has a choice of one buffer or two."""
        return not self.lean and any(slot.dim == BUFFERS for slot in skeleton.slots)

    def _least(self, frame: Frame, index: int, skeleton: Skeleton, trees: Mapping[str, ChainTree]) -> Compiled:
        """Least costs of a stage over all numbers of buffers."""
        if len(frame.stages) > 1:
            return self.sequential(frame, index, skeleton).least
        tree, _ = self.alone(frame, index, skeleton)
        return self._compiled(self.share(tree, tree, Steps(()), self.chooses(skeleton)), trees, _place(frame, skeleton))

    def _closer(self, frame: Frame, index: int, skeleton: Skeleton, trees: Mapping[str, ChainTree], rough: bool) -> Compiled:
        """Costs of a stage with given numbers of buffers: ``rough`` bounds, or exact costs of single mappings."""
        tree, node = self.alone(frame, index, skeleton)
        if len(frame.stages) == 1:
            return self._made(self.share(tree, tree, Steps(()), rough=rough), trees, _place(frame, skeleton), rough)
        known = self.sequential(frame, index, skeleton)
        found = known.given if rough else known.exact
        if found is None:
            found = self._made(self.share(tree, node, Steps(()), rough=rough), trees, _place(frame, skeleton), rough)
            known.given, known.exact = (found, known.exact) if rough else (known.given, found)
        return found

    def _made(self, found: Estimate, trees: Mapping[str, ChainTree], where: Callable[[], str], rough: bool) -> Compiled:
        return self._compiled(found, trees, where) if rough else self.trees.single(self._objectives(found), trees)

    def _compiled(self, found: Estimate, trees: Mapping[str, ChainTree], where: Callable[[], str]) -> Compiled:
        """The objectives of an estimate on open tile sizes."""
        return self.trees.program(self._objectives(found), trees, where)

    def _objectives(self, found: Estimate) -> list[Number]:
        costs = {"time": found.time, "energy": found.energy}
        return [costs[name] for name in self.objectives]

    def in_any_order(self, frame: Frame, skeleton: Skeleton) -> Compiled:
        """Least costs of the only stage of a group over all orders of its loops in time."""
        tree, _ = self.alone(frame, 0, skeleton)
        trees = self.trees.of(self.searched_slots(frame.shared), self.searched_slots(skeleton.slots))
        found = self.share(tree, tree, Steps(()), once=True)
        return self.trees.compiled(self._objectives(found), trees, _place(frame, skeleton))

    def bounds(self, frame: Frame, index: int, skeleton: Skeleton) -> Values:
        """Lower bounds of a stage's costs for any of its own tile sizes, without capacity constraints: a row for each combination
        of the shared sizes. Shapes with the same untiled relaxation share them (`halley.mapping.bounds.untiled`)."""
        return self.on_untiled(frame, index, skeleton, self._objectives)

    def on_untiled(
        self,
        frame: Frame,
        index: int,
        skeleton: Skeleton,
        outputs: Callable[[Estimate], Sequence[Number]],
        further: Sequence[Slot] = (),
    ) -> Values:
        """`bounds` for any ``outputs`` of an estimate, which must be a function of the tree. ``further``: open numbers in
        addition to the shared sizes; the rows are the combinations of all."""
        given = self.symbols(frame, skeleton)
        tree, node = self.untiled(frame, index, skeleton, {**given, **self.trees.symbols(further)} if further else given)
        shared = (*self.searched_slots(frame.shared), *further)
        chains = self.trees.of(shared, self.searched_slots([slot for slot in skeleton.slots if slot.dim == BUFFERS]))
        key = (self.objectives, cost_context(tree, self.workload), *self.trees.of(shared, ()).values(), *chains.values())
        if key not in self.trees.untiled:
            self.tally.tick()
            chooses, rows = self.chooses(skeleton), self.trees.combinations(shared)
            found = self.share(tree, node if len(frame.stages) > 1 else tree, Steps(()), chooses, ramps=False)
            made = self.trees.compiled(outputs(found), chains, _place(frame, skeleton))
            self.tally.bounds += rows
            self.trees.untiled[key] = least_of_buffers(made, chains, starts(chains, shared, rows), rows, chooses)
        return self.trees.untiled[key]

    def sequential(self, frame: Frame, index: int, skeleton: Skeleton) -> StageCosts:
        """Costs of one of several sequential stages; shared by all groups in which it is inside the same loops and Holds."""
        tree, node = self.alone(frame, index, skeleton)
        shared = self.searched_slots(frame.shared)
        grid, chains = self.trees.of(shared, ()), self.trees.of(shared, self.searched_slots(skeleton.slots))
        key = (self.objectives, cost_context(tree, self.workload), *grid.values(), *chains.values())
        if key not in self.trees.stages:
            found = self.share(tree, node, Steps(()), self.chooses(skeleton))
            self.trees.stages[key] = StageCosts(self._compiled(found, chains, _place(frame, skeleton)))
        return self.trees.stages[key]

    def draft(self, frame: Frame, index: int, skeleton: Skeleton) -> Estimate:
        """Estimate of a stage with open tile sizes and sequential stages, with lower bounds of its time. On a partition of the
        clusters, its footprint is that of `footprint_on_partition`."""
        key = frame.known_by(index, skeleton)
        if key not in self._drafts:
            found = self.estimate(frame, index, skeleton, self.symbols(frame, skeleton), rough=True)
            used, partition = found.footprint, frame.partition
            used = footprint_on_partition(self.chip, partition.level, used) if partition else used
            self._drafts[key] = replace(found, footprint=used, events=(), nodes={})
        return self._drafts[key]

    def _footprint(self, frame: Frame, index: int, skeleton: Skeleton) -> Mapping[str, Number]:
        """Footprint of a group with one stage, with open tile sizes."""
        counter = counter_of(self.workload, self.chip, sums=self.trees.sums(self.workload))
        return footprint(counter, self.held(frame, index, skeleton, self.symbols(frame, skeleton)), Body(counter))

    def estimate(
        self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number], rough: bool = False
    ) -> Estimate:
        """Estimate of one stage in its frame; the footprint is that of the whole tree. ``rough``: as for `evaluate`."""
        tree, node = self.alone_on(frame, index, skeleton, tiles)
        if len(frame.stages) == 1:  # it is the whole tree, outer loops included; each of several stages is a phase
            return self.share(tree, tree, tree, rough=rough)
        return self.share(tree, node, self.held(frame, index, skeleton, tiles), rough=rough)

    def share(
        self, tree: Node, node: Node, held: Node, least: bool = False, ramps: bool = True, once: bool = False, rough: bool = True
    ) -> Estimate:
        """Estimate of a node of a tree for the requested objectives, with the footprint of another tree. ``least``, ``ramps``,
        ``once`` and ``rough``: as for `evaluate`."""
        path = next(path for path, found in walk(tree) if found is node)
        wanted, sums = ("energy" in self.objectives, self.timed), self.trees.sums(self.workload)
        kind = {"least": least, "ramps": ramps, "once": once, "rough": rough}
        return evaluate(self.workload, self.chip, tree, path, *wanted, held=held, sums=sums, **kind)

    def alone(self, frame: Frame, index: int, skeleton: Skeleton) -> tuple[Node, Node]:
        """The group's tree with only one stage, and that stage, with open tile sizes."""
        return self.alone_on(frame, index, skeleton, self.symbols(frame, skeleton))

    def alone_on(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> tuple[Node, Node]:
        """The group's tree with only one stage, and that stage, with given tile sizes."""
        node = skeleton.build(tiles)
        return self._between(frame, index, node, tiles), node

    def untiled(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> tuple[Node, Node]:
        """The same with the stage untiled (`halley.mapping.bounds.untiled`)."""
        sizes = self._largest_sizes(frame, skeleton, tiles)
        node = without_loops(skeleton.build(sizes), skeleton.slots, sizes)
        return self._between(frame, index, node, tiles), node

    def _largest_sizes(self, frame: Frame, skeleton: Skeleton, tiles: Mapping[str, Number]) -> Mapping[str, Number]:
        """The sizes of an untiled stage, found once for shapes that differ in the order of their loops."""
        if tiles is not self.symbols(frame, skeleton):
            return untiled_sizes(skeleton.slots, tiles)
        key = tuple(map(id, frame.shared)), frozenset(map(id, skeleton.slots))
        if key not in self._largest:
            self._largest[key] = (frame.shared, skeleton.slots), untiled_sizes(skeleton.slots, tiles)
        return self._largest[key][1]

    def _between(self, frame: Frame, index: int, node: Node, tiles: Mapping[str, Number]) -> Node:
        """The group's tree with only one stage, in its sequential position."""
        stubs: list[Node] = [Steps(tuple(Compute(op) for op in stage.ops if op in self._anchors)) for stage in frame.stages]
        stubs[index] = frame.alone(index, node)
        return self.enclose(frame.sequential(tiles, stubs))

    def held(self, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, Number]) -> Node:
        """The group's tree with one stage, and with the ops of the other stages, whose shapes are open, as users of the frame's
        buffers."""
        users = frame.users()
        users[index] = frame.alone(index, skeleton.build(tiles))
        return self.enclose((frame.tree if index in frame.last else frame.sequential)(tiles, users))
