"""Lower bounds of all plans of a space from what the parts of the model cost at least: `halley.training.search.bounds` on
the columns of `halley.training.search.space`.

Layouts with the same mesh and microbatch and options with the same recomputation and attention share shardings: a *group*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.ir.mapping import CollectiveKind
from halley.memory.bounds import PeakMoments, Sizes, least_memory, peak_moments
from halley.optim.distinct import distinct_columns
from halley.pipeline.data_parallel import Sharded
from halley.sharding.axes import Role, degree
from halley.sharding.communication import Communication
from halley.training.axis_bounds import Way
from halley.training.cost import WORD, optimizer_of
from halley.training.part_bounds import ModelBound
from halley.training.part_costs import ModelCosts
from halley.training.search.bounds import Rows, Shapes, least_time, least_work_time, shapes
from halley.training.search.space import Space
from halley.training.sharded_model import CostModel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KEPT = "parameters", "activation", "working"
"""What tells the memory of parts."""


@dataclass(frozen=True, slots=True, eq=False)
class Floor:
    """What parts cost at least, [..., parts]: ``work`` [s] of a microbatch, forward and backward; ``parameters`` [1];
    ``activation``, ``working`` [B]; ``excess`` [s] as in `PartBound`."""

    work: Floats
    parameters: Floats
    activation: Floats
    working: Floats
    excess: Floats

    def of(self, rows: Integers) -> Floor:
        """Some of the rows."""
        return Floor(self.work[rows], self.parameters[rows], self.activation[rows], self.working[rows], self.excess[rows])


def floor_of(bound: ModelBound, count: int) -> Floor:
    """Bounds of ``count`` meshes and microbatches as arrays [count, parts]: embedding, kinds of layers, head."""
    return Floor(*(_column(bound.parts, name, count) for name in ("time", *KEPT, "excess")))


def _column(parts: Sequence[object], name: str, count: int) -> Floats:
    return np.stack([np.broadcast_to(np.asarray(getattr(part, name), np.float64), count) for part in parts], axis=1)


def _kept(parts: Sequence[object], count: int) -> Sizes:
    """What parts keep, ``count`` times."""
    return Sizes(*(_column(parts, name, count) for name in KEPT))


class LeastPasses(NamedTuple):
    """What parts take at least, [parts]: ``forward`` and ``backward`` passes [s], ``parameters`` [1] of a chip."""

    forward: Floats
    backward: Floats
    parameters: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """The space's columns for bounds. Per layout: ``cell`` (mesh and microbatch, by number), ``pipeline`` (row of ``shapes``),
    ``alike`` (those of one number have the same memory; ``first`` [numbers] is one of each), ``pipelines`` (stages, microbatches,
    chunks and schedule, by number), ``transfer`` [s], ``size`` (which of the ``sizes``, ranks and microbatch [2, sizes]);
    ``way_of`` each option, by number, and ``options`` of each way. By way, ``bounds`` [sizes] of parts and ``floors``
    [sizes, parts]: rough at first, and then, of the ways that were ``raised``, with the best times that the ``model`` knows.
    ``gather``, ``reductions`` [assignments, parts] [s]. ``known``: moments of pipelines that were asked for, by number;
    ``least``: by option, what plans need at least [numbers] [B], where that was asked for."""

    space: Space
    communications: tuple[Communication, ...]
    cell: Integers
    pipeline: Integers
    alike: Integers
    first: Integers
    pipelines: Integers
    shapes: Shapes
    transfer: Floats
    ways: tuple[Way, ...]
    way_of: tuple[int, ...]
    options: tuple[Integers, ...]
    model: CostModel
    sizes: Integers
    size: Integers
    bounds: list[ModelBound]
    floors: list[Floor]
    gather: Floats
    all_reduce: Floats
    reduce_scatter: Floats
    known: dict[int, PeakMoments] = field(default_factory=dict)
    least: dict[int, Floats] = field(default_factory=dict)
    raised: set[int] = field(default_factory=set)

    @property
    def kinds(self) -> tuple[int, ...]:
        """Layers of each kind."""
        return tuple(self.shapes.layers.tolist())

    def passes(self, layout: int, way: int) -> LeastPasses:
        """[parts] what forward passes, and backward passes with what they repeat, take at least [s], and parameters [1]."""
        found = [(part.forward, part.recompute + part.backward, part.parameters) for part in self.bounds[way].parts]
        size, count = self.size[layout], self.sizes.shape[1]
        return LeastPasses(*np.array([[np.broadcast_to(each, count)[size] for each in part] for part in found], np.float64).T)

    def floor(self, layouts: Integers, way: int) -> Floor:
        """[layouts, parts] what parts cost at least."""
        return self.floors[way].of(self.size[layouts])

    def raise_times(self, way: int) -> None:
        """Bound the times of a way as well as the model can: once, when its first plans are looked at."""
        if way not in self.raised:
            self.raised.add(way)
            ranks, microbatch = self.sizes.astype(np.float64)
            self.bounds[way] = self.model.raised(self.bounds[way], ranks, microbatch, self.ways[way])
            self.floors[way] = floor_of(self.bounds[way], self.sizes.shape[1])

    def times(self, layouts: Integers, option: int, work: Floats | None = None) -> Floats:
        """[layouts] no iteration of these plans takes less [s]; ``work`` [parts]: where it is known better [s]."""
        chosen, problem = self.space.options[option], self.space.problem
        rows = self._rows(layouts, option, work)
        optimizer = optimizer_of(problem, chosen.offload, 0.0)
        return least_time(rows, chosen.sharded, optimizer, problem.recipe)

    def work_times(self, layouts: Integers, option: int, work: Floats | None = None) -> Floats:
        """[layouts] the same for all options of this one's way: of the passes alone."""
        return least_work_time(self._rows(layouts, option, work))

    def alone(self, layout: int, option: int, least: Sequence[float], counts: Sequence[int], bound: float) -> float:
        """What a plan of one stage takes at least [s], under any shardings that fit, where no part takes less than ``least`` and
        all of them, by their ``counts``, no less than ``bound`` [s]: the stage does all the work, however that is shared out
        between parts. 0 where a reduction may hide beside the work of some parts and not of others."""
        if self.space.stages[layout] > 1 or self.space.options[option].sharded < Sharded.GRADIENTS:
            return 0.0
        work = np.array(least) * max(1.0, bound / float(np.array(least) @ counts))
        return float(self.times(np.array([layout]), option, work)[0])

    def memories(self, layouts: Integers, option: int, costs: ModelCosts | None = None) -> Floats:
        """[layouts] no chip of some stage of these plans needs less [B]; with ``costs``: with the shardings that cost so."""
        # plans that differ in their axes alone have the same memory
        numbers = self.alike[layouts]
        known = self.least.setdefault(option, np.full(len(self.first), np.nan))
        if costs is not None:
            known = np.full_like(known, np.nan)
        missing = np.unique(numbers[np.isnan(known[numbers])])
        if len(missing):
            known[missing] = self._memories(self.first[missing], option, costs)
        return np.asarray(known[numbers])

    def _memories(self, layouts: Integers, option: int, costs: ModelCosts | None) -> Floats:
        space, chosen = self.space, self.space.options[option]
        sizes = self._kept(layouts, self.way_of[option]) if costs is None else _kept(costs.parts, len(layouts))
        numbers = self.pipelines[layouts].tolist()
        pipelines = [self._moments(layout, number) for layout, number in zip(layouts.tolist(), numbers, strict=True)]
        return least_memory(pipelines, space.data[layouts], sizes, chosen.sharded, chosen.offload, space.problem.recipe)

    def _kept(self, layouts: Integers, way: int) -> Sizes:
        floor = self.floor(layouts, way)
        return Sizes(floor.parameters, floor.activation, floor.working)

    def _moments(self, layout: int, pipeline: int) -> PeakMoments:
        """Those of a layout's pipeline, by its number: many layouts share one."""
        if pipeline not in self.known:
            self.known[pipeline] = peak_moments(self.space.pipeline(layout), self.kinds)
        return self.known[pipeline]

    def _rows(self, layouts: Integers, option: int, work: Floats | None) -> Rows:
        space = self.space
        floor = self.floor(layouts, self.way_of[option])
        where = space.assignment[layouts]
        reduction = self.reduce_scatter if space.options[option].sharded else self.all_reduce
        return Rows(
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


def floors_of(space: Space, communications: Sequence[Communication], model: CostModel) -> Floors:
    """Bounds of the parts, collectives and transfers of all layouts."""
    ways = tuple(dict.fromkeys(Way(option.recompute, option.fused) for option in space.options))
    ranks = np.array([degree(communication.assignment, Role.MODEL) for communication in communications])
    meshes: dict[object, int] = {}
    mesh = np.array([meshes.setdefault(communication.model_key, len(meshes)) for communication in communications])
    cell = distinct_columns([mesh[space.assignment], space.microbatch])[1]
    columns = np.stack([ranks[space.assignment], space.microbatch])
    each, size = distinct_columns(columns)
    sizes = columns[:, each]
    bounds = [model.bound(sizes[0].astype(np.float64), sizes[1].astype(np.float64), way) for way in ways]
    found = [floor_of(bound, sizes.shape[1]) for bound in bounds]
    way_of = tuple(ways.index(Way(option.recompute, option.fused)) for option in space.options)
    least = np.min([floor.parameters for floor in found], axis=0)
    first, pipeline = distinct_columns([space.stages, space.chunks])
    pairs = zip(space.stages[first].tolist(), space.chunks[first].tolist(), strict=True)
    kinds = bounds[0].layers
    first_alike, alike = distinct_columns([size, space.stages, space.microbatches, space.chunks, space.gpipe])
    return Floors(
        space,
        tuple(communications),
        cell,
        pipeline,
        alike,
        first_alike,
        distinct_columns([space.stages, space.microbatches, space.chunks, space.gpipe])[1],
        shapes(kinds, list(pairs)),
        _transfers(space, communications),
        ways,
        way_of,
        tuple(np.flatnonzero(np.array(way_of) == way) for way in range(len(ways))),
        model,
        sizes,
        size,
        bounds,
        found,
        *_collectives(space, communications, dict(zip(sizes[0].tolist(), least, strict=True))),
    )


def _transfers(space: Space, communications: Sequence[Communication]) -> Floats:
    """[layouts] of an activation over the best of the ways between stages, and of its gradient; each chip sends its share."""
    problem = space.problem
    share = problem.sequence * problem.shape.model * WORD
    found = np.zeros(space.layouts)
    for number, communication in enumerate(communications):
        rows = space.assignment == number
        size = space.microbatch[rows] * share / degree(communication.assignment, Role.MODEL)
        found[rows] = 2.0 * communication.fastest_transfer(size)
    return found


def _collectives(
    space: Space, communications: Sequence[Communication], parameters: Mapping[int, Floats]
) -> tuple[Floats, Floats, Floats]:
    """[assignments, parts] gather of parameters, all-reduce and reduce-scatter of gradients over data-parallel ranks;
    ``parameters`` [parts]: of a chip, by the ranks that share ops."""
    recipe = space.problem.recipe
    asked = (
        (CollectiveKind.ALL_GATHER, recipe.weight),
        (CollectiveKind.ALL_REDUCE, recipe.gradient),
        (CollectiveKind.REDUCE_SCATTER, recipe.gradient),
    )
    ranks = [degree(communication.assignment, Role.MODEL) for communication in communications]
    # where no layout has an assignment, no bound needs it
    least = np.stack([parameters.get(count, np.zeros(len(next(iter(parameters.values()))))) for count in ranks])
    alike: dict[object, list[int]] = {}
    for number, communication in enumerate(communications):
        alike.setdefault(communication.data_key, []).append(number)
    gather, all_reduce, reduce_scatter = (np.empty_like(least) for _ in asked)
    for numbers in alike.values():
        for table, (kind, word) in zip((gather, all_reduce, reduce_scatter), asked, strict=True):
            table[numbers] = communications[numbers[0]].data(kind, word * least[numbers])
    return gather, all_reduce, reduce_scatter
