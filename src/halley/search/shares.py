"""What stages on shares of the clusters can come to, before they are compiled together.

Every share of an axis is another layout of each stage, and most of these cannot matter. Two bounds say so first: what the ops
take at the engines of their clusters (`halley.search.floors`), and what each shape of each stage takes alone. The latter is found
once for all groups, cuts and shares of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from halley.cost.program import Indices
from halley.formulas.timing import total
from halley.ir.mapping import Sequence as Steps
from halley.search.chains import ChainTree
from halley.search.frames import Frame
from halley.search.frontier import Flags, Values
from halley.search.sets import starts
from halley.search.shapes import Compiled
from halley.search.stages import BUFFERS, Skeleton
from halley.search.trim import trimmed

if TYPE_CHECKING:
    from halley.search.solve import GroupSearch


def promising(search: GroupSearch, frame: Frame) -> Frame | None:
    """The frame with those shapes of its stages that may beat what is found; none where a stage has none."""
    if search.found.hopeless(search.least_of(frame)).all():
        return None
    alone = [np.stack([_alone(search, frame, at, shape) for shape in stage.skeletons]) for at, stage in enumerate(frame.stages)]
    kept = []
    for index, (stage, own) in enumerate(zip(frame.stages, alone, strict=True)):
        hopeless = _hopeless(search, frame, index, alone)
        shapes = tuple(shape for shape, lost in zip(stage.skeletons, hopeless, strict=True) if not lost)
        if not shapes:
            return None
        alone[index] = own[~hopeless]
        kept.append(replace(stage, skeletons=shapes))
    return replace(frame, stages=tuple(kept))


def _alone(search: GroupSearch, frame: Frame, index: int, skeleton: Skeleton) -> Values:
    """Least time and energy but for what leaks of a shape of a stage, a row for each combination of the shared sizes. Frames that
    differ in their cut, or in the shares of other stages, have them in common."""
    known = search.lone
    if id(skeleton) not in known:
        known[id(skeleton)] = _found_alone(search, frame, index, skeleton)
    return known[id(skeleton)]


def _found_alone(search: GroupSearch, frame: Frame, index: int, skeleton: Skeleton) -> Values:
    tree, node = search.alone(frame, index, skeleton)
    shared = search.unsettled(frame.shared)
    grid, chains = search.trees.of(shared, ()), search.trees.of(shared, search.unsettled(skeleton.slots))
    key = (search.workload.variant, search.objectives, trimmed(tree, search.workload), *grid.values(), *chains.values())
    if key not in search.trees.alone:
        chooses = search.chooses(skeleton)
        estimate = search.share(tree, node, Steps(()), chooses)
        energy = total(part for name, part in estimate.energy_by.items() if name != "static")
        made = search.program([estimate.time, energy], chains, f"{skeleton.name}, {frame.name}")
        rows = search.combinations(frame)
        search.tally.bounds += rows
        search.tally.tick()
        search.trees.alone[key] = _least(made, chains, starts(chains, shared, rows), rows, chooses)
    return search.trees.alone[key]


def _least(made: Compiled, chains: Mapping[str, ChainTree], nodes: Mapping[str, Indices], rows: int, free: bool) -> Values:
    """Bounds of sets, the least over numbers of buffers one by one: sets that leave these open have poor bounds. ``free``: the
    costs hold whatever number there is, so that only whether a Hold is there matters."""
    if BUFFERS not in chains:
        return made(nodes, rows)
    tree = chains[BUFFERS]
    each, number = (tree.alike if free else tree.singles)(nodes[BUFFERS])
    wide = {dim: each if dim == BUFFERS else np.repeat(own, number) for dim, own in nodes.items()}
    least: Values = np.minimum.reduceat(made(wide, len(each)), np.cumsum(number) - number, axis=0)
    return least


def _hopeless(search: GroupSearch, frame: Frame, index: int, alone: list[Values]) -> Flags:
    """Which shapes of a stage cannot matter, whatever the shared sizes and the other stages' shapes: the longest child sets the
    time, energies add up."""
    least = [own.min(axis=0) for own in alone]
    child_of = {stage: at for at, child in enumerate(frame.cut) for stage in child}
    times: Values = np.zeros((len(frame.cut), *alone[index].shape[:2]))
    energy: Values = np.zeros(alone[index].shape[:2])
    for stage, best in enumerate(least):
        found = alone[index] if stage == index else best
        times[child_of[stage]] += found[..., 0]
        energy = energy + found[..., 1]
    floor = search.least(frame)
    time = np.maximum(times.max(axis=0), floor["time"])
    costs = {"time": time, "energy": energy + search.chip.static_power * time}
    bounds = np.stack([costs[name] for name in search.objectives], axis=-1)
    return np.asarray(search.found.hopeless(bounds.reshape(-1, bounds.shape[-1])).reshape(bounds.shape[:2]).all(axis=1))
