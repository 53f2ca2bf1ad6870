"""Lower bounds of all plans of a space from lower bounds of the model's parts: `halley.training.search.bounds` on the columns
of `halley.training.search.space`.

Layouts with the same mesh and microbatch, and options with the same recomputation and attention, share shardings: a *group*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.ir.mapping import CollectiveKind
from halley.memory.bounds import PeakMoments, Sizes, least_memory, peak_moments
from halley.optim.deadline import Deadline
from halley.optim.distinct import distinct_columns
from halley.pipeline.data_parallel import Sharded
from halley.sharding.axes import Role, degree
from halley.sharding.communication import Communication
from halley.training.axis_bounds import GraphVariant
from halley.training.cost import ACTIVATION_WORD_BYTES, optimizer_of
from halley.training.part_bounds import ModelBound
from halley.training.part_costs import ModelCosts
from halley.training.search.bounds import PipelineShapes, PlanRows, least_time, least_work_time, pipeline_shapes
from halley.training.search.space import PlanSpace
from halley.training.sharded_model import CostModel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SIZES_AT_ONCE = 128
"""Ranks and microbatches whose times are raised together: many at once take less time each, and a search needs few of a large
space."""

MEMORY_FIELDS = "parameters", "activation", "working"
"""Fields of the parts that determine memory."""


@dataclass(frozen=True, slots=True, eq=False)
class PartFloors:
    """Lower bounds of parts, [..., parts]: ``work`` [s] of a microbatch, forward and backward; ``parameters`` [1];
    ``activation``, ``working`` [B]; ``excess`` [s] as in `PartBound`."""

    work: Floats
    parameters: Floats
    activation: Floats
    working: Floats
    excess: Floats

    def replace(self, rows: slice, found: PartFloors) -> None:
        """Takes these bounds of some of the rows."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(found, each.name)

    def of(self, rows: Integers) -> PartFloors:
        """Some of the rows."""
        return PartFloors(self.work[rows], self.parameters[rows], self.activation[rows], self.working[rows], self.excess[rows])


def part_floors(bound: ModelBound, count: int) -> PartFloors:
    """Bounds of ``count`` meshes and microbatches as arrays [count, parts]: embedding, kinds of layers, head."""
    return PartFloors(*(_column(bound.parts, name, count) for name in ("time", *MEMORY_FIELDS, "excess")))


def _column(parts: Sequence[object], name: str, count: int) -> Floats:
    return np.stack([np.broadcast_to(np.asarray(getattr(part, name), np.float64), count) for part in parts], axis=1)


def _sizes(parts: Sequence[object], count: int) -> Sizes:
    """Sizes of parts, repeated ``count`` times."""
    return Sizes(*(_column(parts, name, count) for name in MEMORY_FIELDS))


class LeastPasses(NamedTuple):
    """Lower bounds of parts, [parts]: ``forward`` and ``backward`` passes [s], ``parameters`` [1] of a chip."""

    forward: Floats
    backward: Floats
    parameters: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PlanFloors:
    """The space's columns for bounds. Per layout: ``cell`` (number of mesh and microbatch), ``pipeline`` (row of ``shapes``),
    ``memory_class`` (layouts with equal memory have one number; ``first`` [numbers]: one of each), ``pipelines`` (number of
    stages, microbatches, chunks and schedule), ``transfer`` [s], ``size`` (number in ``sizes`` [2, sizes]: ranks and
    microbatch). ``variant_of``: number of each option's graph variant; ``options`` of each variant. By variant, ``bounds``
    [sizes] of parts and ``floors`` [sizes, parts]: rough at first; for ``raised`` variants, with the best times that the
    ``model`` knows.
    ``gather``, ``all_reduce``, ``reduce_scatter`` [assignments, parts] [s]. ``deadline`` of the work; ``known``: cached peak
    moments of pipelines, by number; ``least``: by option, cached lower bounds of memory [numbers] [B]."""

    space: PlanSpace
    communications: tuple[Communication, ...]
    cell: Integers
    pipeline: Integers
    memory_class: Integers
    first: Integers
    pipelines: Integers
    shapes: PipelineShapes
    transfer: Floats
    variants: tuple[GraphVariant, ...]
    variant_of: tuple[int, ...]
    options: tuple[Integers, ...]
    model: CostModel
    sizes: Integers
    size: Integers
    bounds: list[ModelBound]
    floors: list[PartFloors]
    gather: Floats
    all_reduce: Floats
    reduce_scatter: Floats
    deadline: Deadline = field(default_factory=Deadline)
    known: dict[int, PeakMoments] = field(default_factory=dict)
    least: dict[int, Floats] = field(default_factory=dict)
    raised: dict[tuple[int, int], ModelBound] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[int, ...]:
        """Layers of each kind."""
        return tuple(self.shapes.layers.tolist())

    def passes(self, layout: int, variant: int) -> LeastPasses:
        """[parts] lower bounds of forward passes, of backward passes with recomputation [s], and of parameters [1]."""
        size, count = int(self.size[layout]), self.sizes.shape[1]
        bound = self.bounds[variant]
        if (raised := self.raised.get((variant, size // SIZES_AT_ONCE))) is not None:
            bound, size, count = raised, size % SIZES_AT_ONCE, min(SIZES_AT_ONCE, count - size // SIZES_AT_ONCE * SIZES_AT_ONCE)
        found = [(part.forward, part.recompute + part.backward, part.parameters) for part in bound.parts]
        return LeastPasses(*np.array([[np.broadcast_to(each, count)[size] for each in part] for part in found], np.float64).T)

    def floor(self, layouts: Integers, variant: int) -> PartFloors:
        """[layouts, parts] lower bounds of the parts."""
        return self.floors[variant].of(self.size[layouts])

    def raise_times(self, variant: int, layout: int) -> None:
        """Replaces the times of a variant by the best bounds that the model has, for the size of a layout and others that are
        numbered near it, when the first plans of these are evaluated."""
        block = int(self.size[layout]) // SIZES_AT_ONCE
        if (variant, block) not in self.raised:
            rows = slice(block * SIZES_AT_ONCE, (block + 1) * SIZES_AT_ONCE)
            ranks, microbatch = self.sizes[:, rows].astype(np.float64)
            rough = self.model.bound(ranks, microbatch, self.variants[variant])
            bound = self.model.raised(rough, ranks, microbatch, self.variants[variant], self.deadline.check)
            self.raised[variant, block] = bound
            self.floors[variant].replace(rows, part_floors(bound, len(ranks)))

    def times(self, layouts: Integers, option: int, work: Floats | None = None) -> Floats:
        """[layouts] lower bounds of iterations [s]; ``work`` [parts] [s]: better bounds of parts, if known."""
        chosen, problem = self.space.options[option], self.space.problem
        rows = self._rows(layouts, option, work)
        optimizer = optimizer_of(problem, chosen.offload, 0.0)
        return least_time(rows, chosen.sharded, optimizer, problem.recipe, problem.contention)

    def work_times(self, layouts: Integers, option: int, work: Floats | None = None) -> Floats:
        """[layouts] the same for all options of this one's variant: of the passes alone."""
        return least_work_time(self._rows(layouts, option, work))

    def single_stage_bound(self, layout: int, option: int, least: Sequence[float], counts: Sequence[int], bound: float) -> float:
        """Lower bound of a plan of one stage [s] under any shardings that fit, if no part takes less than ``least`` [s] and all
        of them, by their ``counts``, no less than ``bound`` [s]. The stage does all work, in whatever way it is divided
        between parts. 0 where a reduction may overlap with the work of some parts and not of others."""
        if self.space.stages[layout] > 1 or self.space.options[option].sharded < Sharded.GRADIENTS:
            return 0.0
        work = np.array(least) * max(1.0, bound / float(np.array(least) @ counts))
        return float(self.times(np.array([layout]), option, work)[0])

    def memories(self, layouts: Integers, option: int, costs: ModelCosts | None = None) -> Floats:
        """[layouts] lower bounds of a chip's memory over the stages [B]; with ``costs``: the memory under those shardings."""
        # plans that only differ in their axes have equal memory
        numbers = self.memory_class[layouts]
        known = self.least.setdefault(option, np.full(len(self.first), np.nan))
        if costs is not None:
            known = np.full_like(known, np.nan)
        missing = np.unique(numbers[np.isnan(known[numbers])])
        if len(missing):
            known[missing] = self._memories(self.first[missing], option, costs)
        return np.asarray(known[numbers])

    def _memories(self, layouts: Integers, option: int, costs: ModelCosts | None) -> Floats:
        space, chosen = self.space, self.space.options[option]
        sizes = self._sizes_at(layouts, self.variant_of[option]) if costs is None else _sizes(costs.parts, len(layouts))
        numbers = self.pipelines[layouts].tolist()
        pipelines = [self._moments(layout, number) for layout, number in zip(layouts.tolist(), numbers, strict=True)]
        return least_memory(pipelines, space.data[layouts], sizes, chosen.sharded, chosen.offload, space.problem.recipe)

    def _sizes_at(self, layouts: Integers, variant: int) -> Sizes:
        floor = self.floor(layouts, variant)
        return Sizes(floor.parameters, floor.activation, floor.working)

    def _moments(self, layout: int, pipeline: int) -> PeakMoments:
        """Peak moments of a layout's pipeline, cached by its number."""
        if pipeline not in self.known:
            self.deadline.check()
            self.known[pipeline] = peak_moments(self.space.pipeline(layout), self.kinds)
        return self.known[pipeline]

    def _rows(self, layouts: Integers, option: int, work: Floats | None) -> PlanRows:
        space = self.space
        floor = self.floor(layouts, self.variant_of[option])
        where = space.assignment[layouts]
        reduction = self.reduce_scatter if space.options[option].sharded else self.all_reduce
        return PlanRows(
            space.data[layouts],
            space.stages[layouts],
            space.chunks[layouts],
            space.microbatches[layouts],
            space.gpipe[layouts],
            self.transfer[layouts],
            floor.work if work is None else np.broadcast_to(work, floor.work.shape),
            floor.parameters,
            self.gather[where],
            reduction[where],
            self.shapes.of(self.pipeline[layouts]),
        )


def floors_of(
    space: PlanSpace, communications: Sequence[Communication], model: CostModel, deadline: Deadline | None = None
) -> PlanFloors:
    """Bounds of the parts, collectives and transfers of all layouts. Raises TimeIsUp: the deadline passed."""
    deadline = deadline or Deadline()
    variants = tuple(dict.fromkeys(GraphVariant(option.recompute, option.fused) for option in space.options))
    ranks = np.array([degree(communication.assignment, Role.MODEL) for communication in communications])
    meshes: dict[object, int] = {}
    mesh = np.array([meshes.setdefault(communication.model_key, len(meshes)) for communication in communications])
    cell = distinct_columns([mesh[space.assignment], space.microbatch])[1]
    columns = np.stack([ranks[space.assignment], space.microbatch])
    each, size = distinct_columns(columns)
    sizes = columns[:, each]
    bounds = [model.bound(sizes[0].astype(np.float64), sizes[1].astype(np.float64), variant) for variant in variants]
    found = [part_floors(bound, sizes.shape[1]) for bound in bounds]
    variant_of = tuple(variants.index(GraphVariant(option.recompute, option.fused)) for option in space.options)
    least = np.min([floor.parameters for floor in found], axis=0)
    first, pipeline = distinct_columns([space.stages, space.chunks])
    pairs = zip(space.stages[first].tolist(), space.chunks[first].tolist(), strict=True)
    kinds = bounds[0].layers
    first_alike, alike = distinct_columns([size, space.stages, space.microbatches, space.chunks, space.gpipe])
    return PlanFloors(
        space,
        tuple(communications),
        cell,
        pipeline,
        alike,
        first_alike,
        distinct_columns([space.stages, space.microbatches, space.chunks, space.gpipe])[1],
        pipeline_shapes(kinds, list(pairs)),
        _transfers(space, communications, deadline),
        variants,
        variant_of,
        tuple(np.flatnonzero(np.array(variant_of) == variant) for variant in range(len(variants))),
        model,
        sizes,
        size,
        bounds,
        found,
        *_collectives(space, communications, dict(zip(sizes[0].tolist(), least, strict=True)), deadline),
        deadline,
    )


def _transfers(space: PlanSpace, communications: Sequence[Communication], deadline: Deadline) -> Floats:
    """[layouts] an activation and its gradient over the fastest route between stages [s]; each chip sends its part."""
    problem = space.problem
    share = problem.sequence * problem.shape.model * ACTIVATION_WORD_BYTES
    found = np.zeros(space.layouts)
    order = np.argsort(space.assignment, kind="stable")
    ends = np.searchsorted(space.assignment[order], np.arange(1, len(communications)))
    for communication, rows in zip(communications, np.split(order, ends), strict=True):
        deadline.check()
        size = space.microbatch[rows] * share / degree(communication.assignment, Role.MODEL)
        found[rows] = 2.0 * communication.fastest_transfer(size)
    return found


def _collectives(
    space: PlanSpace, communications: Sequence[Communication], parameters: Mapping[int, Floats], deadline: Deadline
) -> tuple[Floats, Floats, Floats]:
    """[assignments, parts] gather of parameters, all-reduce and reduce-scatter of gradients over data-parallel ranks [s];
    ``parameters`` [parts]: of a chip, by the ranks that share ops."""
    recipe = space.problem.recipe
    asked = (
        (CollectiveKind.ALL_GATHER, recipe.weight),
        (CollectiveKind.ALL_REDUCE, recipe.gradient),
        (CollectiveKind.REDUCE_SCATTER, recipe.gradient),
    )
    ranks = [degree(communication.assignment, Role.MODEL) for communication in communications]
    least = np.stack([parameters[count] for count in ranks])
    alike: dict[object, list[int]] = {}
    for number, communication in enumerate(communications):
        alike.setdefault(communication.data_key, []).append(number)
    gather, all_reduce, reduce_scatter = (np.empty_like(least) for _ in asked)
    for numbers in alike.values():
        for table, (kind, word) in zip((gather, all_reduce, reduce_scatter), asked, strict=True):
            deadline.check()
            table[numbers] = communications[numbers[0]].data(kind, word * least[numbers])
    return gather, all_reduce, reduce_scatter
