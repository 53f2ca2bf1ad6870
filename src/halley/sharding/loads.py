"""Demand of a chip on each resource: what a roofline of every level consists of.

Collectives count with the bytes that a chip sends in any bandwidth-optimal algorithm (`halley.formulas.software.sent_bytes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halley.formulas.software import sent_bytes
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.network.time.collective import PASSES
from halley.network.time.phased import sending_bandwidth
from halley.sharding.axes import Assignment


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """Demand of a chip on one resource: ``demand``, and ``capacity`` per second, in ``unit`` (op or B).
    ``parts``: of the demand, by cause. Level by level these are the roofs of the hierarchical roofline."""

    resource: str
    demand: float
    capacity: float
    unit: str
    parts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, resource: str, parts: Mapping[str, float], capacity: float) -> ResourceLoad:
        """Bytes by cause; causes without bytes are omitted."""
        return cls(resource, sum(parts.values()), capacity, "B", {name: size for name, size in parts.items() if size})

    @property
    def time(self) -> float:
        """Least time of the resource [s]."""
        return self.demand / self.capacity


def crossed(cut: Assignment, here: int, there: int) -> tuple[str, ...]:
    """The axes on which two stages differ; stages are numbered row-major over the sub-axes.

    >>> from halley.sharding.axes import Role, SubAxis
    >>> crossed((SubAxis("node", Role.PIPELINE, 4, 1), SubAxis("gpu", Role.PIPELINE, 2, 4)), 1, 2)
    ('node', 'gpu')
    """
    found = []
    for part in reversed(cut):
        if here % part.size != there % part.size:
            found.append(part.axis)
        here, there = here // part.size, there // part.size
    return tuple(reversed(found))


def sent_by_axis(system: System, kind: CollectiveKind, ranks: Mapping[str, int], size: float) -> dict[str, float]:
    """Bytes that a chip sends by axis [B]; ``ranks`` of each axis that takes part, ``size`` by the convention of the kind. The
    axis of highest bandwidth comes first, so the others carry the least; the sum over axes is the same in any order."""
    widest = sorted(ranks, key=lambda name: -sending_bandwidth(system.axis(name), ranks[name]))
    sent, before = {}, 1
    for name in widest:
        share = size if kind is CollectiveKind.ALL_TO_ALL else size / before
        sent[name] = float(sent_bytes(PASSES[kind], ranks[name], share))
        before *= ranks[name]
    return sent
