"""Ramps of Holds that are prefetched across phase boundaries (docs/model.md, "Prefetch across phases")."""

from __future__ import annotations

from dataclasses import dataclass

from halley.cost.estimate import Resource
from halley.cost.phases import EMPTY, Ramp
from halley.formulas.numbers import Number


@dataclass(slots=True)
class PrefetchedRamps:
    """First fills (``up``) and last drains (``down``) of one entry, of the prefetched Holds in a child of a sequence. ``waits``:
    tensors that children hand over, whose Holds are not prefetched."""

    waits: frozenset[str]
    up: Ramp = EMPTY
    down: Ramp = EMPTY


@dataclass(frozen=True, slots=True)
class ChildPhases:
    """Children of a node as phases: the ``times`` [s] of each, their ``busy`` times [s] together, the number of barriers in them
    (``steps``; None if there are none), and the prefetched ramps of each."""

    times: list[Number]
    busy: dict[Resource, Number]
    steps: Number | None
    prefetched: list[PrefetchedRamps]
