"""Counted events of a mapping: bytes at memories, level ports and links, and operations on engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from halley.formulas.numbers import Number

Path = tuple[int, ...]

PIPELINE = "latency"
"""In place of a function: the latency of an engine's pipeline."""


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes read from or written to a memory: ``total`` over all instances, ``critical`` in instance 0. ``bursts_total``,
    ``bursts_critical``: the bytes of the whole bursts that the memory moves for them; None: as many as are asked for."""

    path: Path
    memory: str
    tensor: str
    cause: str
    is_read: bool
    total: Number
    critical: Number
    bursts_total: Number | None = None
    bursts_critical: Number | None = None

    @property
    def moved(self) -> Number:
        """Bytes that all instances of the memory move."""
        return self.total if self.bursts_total is None else self.bursts_total

    @property
    def moved_critical(self) -> Number:
        """Bytes that instance 0 moves."""
        return self.critical if self.bursts_critical is None else self.bursts_critical


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """Bytes through the ports of a level's siblings; ``critical``: through that of sibling 0."""

    path: Path
    level: str
    down: bool
    total: Number
    critical: Number


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """Bytes over the links of an axis, summed over all its instances; ``links``: bytes by link, empty for terms; ``time`` [s] of
    the collective on the axis."""

    path: Path
    level: str
    axis: str
    total: Number
    links: tuple[tuple[tuple[int, int], Number], ...]
    time: Number


@dataclass(frozen=True, slots=True)
class Work:
    """Operations on an engine, over all members, and the critical member's time for them [s]. With ``PIPELINE`` as ``function``,
    the time is the latency of the engine's pipeline, and the count is 0."""

    path: Path
    engine: str
    function: str
    dtype: str
    count: Number
    time: Number


Event: TypeAlias = Access | PortTraffic | LinkTraffic | Work
