"""What the parts of one group's search share: costs of its stages, lower bounds of its frames, and the incumbents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import Fault, InternalError
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Frontier, Values
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.solve.outside_stages import OutsideCost
from halley.mapping.solve.stage_fronts import Vector
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import Skeleton


def fits(chip: Chip, estimate: Estimate) -> bool:
    """Whether every memory holds its footprint."""
    return all(used <= chip.memory(name).capacity for name, used in estimate.footprint.items())


class JointBound(NamedTuple):
    """Whether the bound of all orders of a shape's loops ``pruned`` them in a frame, against these incumbents; ``large``: there
    were too many sets of sizes to tell. The frame is kept: a freed one's id could be another's."""

    frame: Frame
    incumbents: Values
    pruned: bool
    large: bool

    def open_to(self, incumbents: Values) -> bool:
        """Whether other incumbents may prune them."""
        return not (self.pruned or self.large or self.incumbents is incumbents)


@dataclass(slots=True)
class GroupState:
    """``costs`` of the stages; ``least``: compulsory lower bounds of a frame, by objective; the incumbents ``found``;
    ``engines``: least time [s] of the engines of a frame's busiest child.

    Kept for frames with the same parts: compiled shapes of overlapped stages (``vectors``), costs outside the stages
    (``outside_costs``), and whether all orders of a shape's loops are pruned (``orders``).
    ``dominance_resources``: the resources and memories in which mappings of overlapped stages must be compared, for frames on all
    clusters and on partitions."""

    costs: Costing
    least: Callable[[Frame, Compute | None], Mapping[str, float]]
    found: Frontier
    engines: Callable[[Frame], float] = lambda frame: 0.0
    vectors: dict[Hashable, Vector] = field(default_factory=dict)
    outside_costs: dict[Hashable, OutsideCost] = field(default_factory=dict)
    orders: dict[Hashable, JointBound] = field(default_factory=dict)
    dominance_resources: tuple[set[Hashable], set[Hashable]] = field(default_factory=lambda: (set(), set()))

    @property
    def chip(self) -> Chip:
        return self.costs.chip

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.costs.objectives

    @property
    def tally(self) -> SearchCounter:
        return self.costs.tally

    def least_of(self, frame: Frame, laid: Compute | None = None) -> Values:
        """Compulsory lower bounds of one frame, as a row. ``laid``: only for shapes with these dims on the array."""
        costs = self.least(frame, laid)
        return np.array([[costs[name] for name in self.objectives]])

    def useful(self, frame: Frame) -> Frame | None:
        """The frame without pruned shapes (`wastes`); None if a stage has no others."""
        left = [tuple(shape for shape in stage.skeletons if not self.wastes(frame, shape)) for stage in frame.stages]
        stages = (replace(stage, skeletons=own) for stage, own in zip(frame.stages, left, strict=True))
        return replace(frame, stages=tuple(stages)) if all(left) else None

    def wastes(self, frame: Frame, skeleton: Skeleton) -> bool:
        """Whether a shape is pruned: its only advantage is time, which does not matter, or its use of the array is too low."""
        if self.costs.lean and skeleton.revisits:
            return True
        return skeleton.laid is not None and bool(self.found.pruned(self.least_of(frame, skeleton.laid))[0])

    def reach(self, frame: Frame, skeletons: tuple[Skeleton, ...], tiles: Mapping[str, int]) -> Values:
        """Adds a mapping with its exact cost to the incumbents, and returns the cost."""
        choice = GroupMapping(frame, skeletons, tiles)
        estimate = evaluate(self.costs.workload, self.chip, self.costs.enclose(choice.tree()))
        if not fits(self.chip, estimate):
            got = f"{ {name: float(used) for name, used in estimate.footprint.items()} } B together"
            raise InternalError(Fault("search", "stages that fit one by one to fit together", got, "please report"))
        costs = {"time": estimate.time, "energy": estimate.energy}
        values = np.array([costs[name] for name in self.objectives], dtype=np.float64)
        self.found.add(values, choice)
        return values
