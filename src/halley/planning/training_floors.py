"""Lower bounds of all plans of a space from what the parts of the model cost at least: `halley.planning.training_bounds` on
the columns of `halley.planning.training_space`.

Layouts with the same mesh and microbatch and options with the same recomputation and attention share shardings: a *group*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halley.ir.mapping import CollectiveKind
from halley.planning.axes import Role, degree
from halley.planning.axis_bounds import Way
from halley.planning.communication import Communication
from halley.planning.part_bounds import ModelBound
from halley.planning.sharded_model import CostModel
from halley.planning.training_bounds import Rows, Shapes, least_memory, least_time, least_work_time, shapes
from halley.planning.training_cost import WORD, optimizer_of
from halley.planning.training_space import Space

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

@dataclass(frozen=True, slots=True, eq=False)
class Floor:
    """What parts cost at least, [..., parts]: ``work`` [s] of a microbatch, forward and backward; ``parameters`` [1];
    ``activation``, ``working`` [B]."""

    work: Floats
    parameters: Floats
    activation: Floats
    working: Floats


def floor_of(bound: ModelBound, count: int) -> Floor:
    """Bounds of ``count`` meshes and microbatches as arrays [count, parts]: embedding, kinds of layers, head."""

    def column(name: str) -> Floats:
        return np.stack([np.broadcast_to(np.asarray(getattr(part, name), np.float64), count) for part in bound.parts], axis=1)

    return Floor(*(column(name) for name in ("time", "parameters", "activation", "working")))


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """The space's columns for bounds. Per layout: ``cell`` (mesh and microbatch, by number), ``pipeline`` (row of ``shapes``),
    ``transfer`` [s]; ``floors`` [layouts, parts] by way; ``gather``, ``reductions`` [assignments, parts] [s]."""

    space: Space
    communications: tuple[Communication, ...]
    cell: Integers
    pipeline: Integers
    shapes: Shapes
    transfer: Floats
    ways: tuple[Way, ...]
    floors: tuple[Floor, ...]
    gather: Floats
    all_reduce: Floats
    reduce_scatter: Floats

    def way(self, option: int) -> int:
        """The number of an option's way."""
        chosen = self.space.options[option]
        return self.ways.index(Way(chosen.recompute, chosen.fused))

    def times(self, layouts: Integers, option: int, work: Floats | None = None) -> Floats:
        """[layouts] no iteration of these plans takes less [s]; ``work`` [parts]: where it is known better [s]."""
        chosen, problem = self.space.options[option], self.space.problem
        rows = self._rows(layouts, option, work)
        optimizer = optimizer_of(problem, chosen.offload, 0.0)
        return least_time(rows, chosen.sharded, optimizer, problem.recipe)

    def work_times(self, layouts: Integers, option: int, work: Floats | None = None) -> Floats:
        """[layouts] the same for all options of this one's way: of the passes alone."""
        return least_work_time(self._rows(layouts, option, work))

    def memories(self, layouts: Integers, option: int) -> Floats:
        """[layouts] no chip of some stage of these plans needs less [B]."""
        chosen = self.space.options[option]
        return least_memory(self._rows(layouts, option, None), chosen.sharded, chosen.offload, self.space.problem.recipe)

    def _rows(self, layouts: Integers, option: int, work: Floats | None) -> Rows:
        space, floor = self.space, self.floors[self.way(option)]
        where = space.assignment[layouts]
        reduction = self.reduce_scatter if space.options[option].sharded else self.all_reduce
        known = floor.work[layouts]
        return Rows(
            space.data[layouts],
            space.stages[layouts],
            space.chunks[layouts],
            space.microbatches[layouts],
            space.gpipe[layouts],
            self.transfer[layouts],
            known if work is None else np.broadcast_to(work, known.shape),
            floor.parameters[layouts],
            floor.activation[layouts],
            floor.working[layouts],
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
    cell = np.unique(np.stack([mesh[space.assignment], space.microbatch]), axis=1, return_inverse=True)[1].reshape(-1)
    sizes, size = np.unique(np.stack([ranks[space.assignment], space.microbatch]), axis=1, return_inverse=True)
    bounds = [model.bound(sizes[0].astype(np.float64), sizes[1].astype(np.float64), way) for way in ways]
    found = [floor_of(bound, sizes.shape[1]) for bound in bounds]
    floors = tuple(
        Floor(*(getattr(each, name)[size.reshape(-1)] for name in Floor.__dataclass_fields__)) for each in found
    )
    least = np.min([each.parameters for each in found], axis=0)
    pairs, pipeline = np.unique(np.stack([space.stages, space.chunks]), axis=1, return_inverse=True)
    kinds = bounds[0].layers
    return Floors(
        space,
        tuple(communications),
        cell,
        pipeline.reshape(-1),
        shapes(kinds, [(int(stages), int(chunks)) for stages, chunks in pairs.T]),
        _transfers(space, communications),
        ways,
        floors,
        *_collectives(space, communications, dict(zip(sizes[0].tolist(), least, strict=True))),
    )


def _transfers(space: Space, communications: Sequence[Communication]) -> Floats:
    """[layouts] of an activation over the best of the ways between stages, and of its gradient; each chip sends its share."""
    problem = space.problem
    share = problem.sequence * problem.shape.model * WORD
    known: dict[tuple[int, int], float] = {}
    found = np.zeros(space.layouts)
    for row, (number, microbatch) in enumerate(zip(space.assignment.tolist(), space.microbatch.tolist(), strict=True)):
        if (number, microbatch) not in known:
            communication = communications[number]
            size = microbatch * share / degree(communication.assignment, Role.MODEL)
            stages = range(degree(communication.assignment, Role.PIPELINE))
            known[number, microbatch] = 2.0 * min(float(communication.transfer(stage, size)) for stage in stages)
        found[row] = known[number, microbatch]
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
    tables: list[list[Floats]] = [[], [], []]
    times: dict[object, Floats] = {}
    for communication in communications:
        ranks = degree(communication.assignment, Role.MODEL)
        # where no layout has the assignment, no bound needs it
        least = parameters.get(ranks, np.zeros(len(next(iter(parameters.values())))))
        for table, (kind, word) in zip(tables, asked, strict=True):
            key = kind, word, ranks, communication.data_key
            if key not in times:
                times[key] = np.asarray(communication.data(kind, word * least), np.float64)
            table.append(times[key])
    gather, all_reduce, reduce_scatter = (np.stack(table) for table in tables)
    return gather, all_reduce, reduce_scatter
