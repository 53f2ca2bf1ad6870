"""Ramps that run on across the ends of phases (docs/model.md, "Prefetch across phases")."""

from __future__ import annotations

from dataclasses import dataclass

from halley.cost.estimate import Resource
from halley.cost.phases import EMPTY, Ramp
from halley.formulas.numbers import Number


@dataclass(slots=True)
class PrefetchedRamps:
    """Of the Holds that run on in a child of a sequence: ``up`` and ``down``, first fills and last drains of one entry.
    ``waits``: tensors that children hand over, whose Holds do not run on."""

    waits: frozenset[str]
    up: Ramp = EMPTY
    down: Ramp = EMPTY


@dataclass(frozen=True, slots=True)
class ChildPhases:
    """Children of a node: the ``times`` [s] of each as a phase, their ``busy`` times [s] together, barriers in them (``steps``;
    None where there is none), and what runs on of each."""

    times: list[Number]
    busy: dict[Resource, Number]
    steps: Number | None
    prefetched: list[PrefetchedRamps]
