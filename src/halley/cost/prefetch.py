"""Ramps of Holds that are prefetched across phase boundaries (docs/model.md, "Prefetch across phases")."""

from __future__ import annotations

from dataclasses import dataclass

from halley.cost.estimate import Resource
from halley.cost.phases import NO_RAMPS, Barriers, HandOver, Ramps
from halley.cost.resources import Busy
from halley.formulas.numbers import Number


@dataclass(slots=True)
class PrefetchedRamps:
    """The ``ramps`` of one entry of the prefetched Holds in a child of a sequence; ``barriers``: the same between barriers.
    ``waits``: tensors that children hand over, whose Holds are not prefetched."""

    waits: frozenset[str]
    ramps: Ramps = NO_RAMPS
    barriers: Ramps = NO_RAMPS

    def scaled(self, factor: Number) -> PrefetchedRamps:
        """The same for a factor of 1; empty for 0."""
        return PrefetchedRamps(self.waits, self.ramps.scaled(factor), self.barriers.scaled(factor))


@dataclass(frozen=True, slots=True)
class ChildPhases:
    """Children of a node as phases: the ``times`` [s] of each, also without barriers (``ahead`` [s]), the busy times [s] of each
    (``uses``) and of all together (``busy``), the number of barriers in them (``steps``; None if there are none), whether there
    are any (``some``: 1, else 0), and the prefetched ramps of each."""

    times: list[Number]
    ahead: list[Number]
    uses: list[Busy]
    busy: dict[Resource, Number]
    steps: Number | None
    some: Number
    prefetched: list[PrefetchedRamps]

    def barriers(
        self, work: Number, steps: Number | None = None, ramps: Ramps = NO_RAMPS, hand_over: HandOver | None = None
    ) -> Barriers | None:
        """The node between barriers, in so many ``steps`` of its children (by default, those of all of them); None if there are
        none."""
        if self.steps is None:
            return None
        return Barriers(work, self.some * (self.steps if steps is None else steps), ramps, hand_over, self.some)
