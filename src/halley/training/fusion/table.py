"""What the exact search of a chip's mappings says about fused groups, by shape: a table that plans take their times from.

A fused kernel is timed as others are (`halley.kernels.times`): by the efficiency that measured kernels have. The table has two
things to say about it. Where the search found no mapping of the group as one kernel, there is no fused kernel. Where it did, none
is faster on the chip of the data sheet than the search's bound, and so no fused kernel is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halley.ir.hardware import Chip
from halley.training.fusion.groups import Fusion
from halley.training.fusion.shapes import FusionKey, fusion_pattern


@dataclass(frozen=True, slots=True)
class FusionEntry:
    """The best mapping of a group in one kernel: its ``time`` [s] on the chip of the data sheet, and ``bound`` [s]: no mapping of
    the declared space takes less; ``traffic`` [B] of the outermost memory. Infinite times and no traffic where none was found;
    ``found``: how the search ended, in words."""

    time: float
    bound: float
    traffic: float
    found: str

    @property
    def gap(self) -> float:
        """How far the mapping may be from the best, relative to the bound."""
        return self.time / self.bound - 1.0 if math.isfinite(self.time) else 0.0


@dataclass(frozen=True, slots=True)
class FusionTable:
    """Entries for one ``chip``, told by its ``fingerprint``. Shapes that it lacks are taken to have a mapping that is as fast as
    any kernel: a plan that uses them is a bound, and no plan yet (`halley.training.fusion.plan`). Unless the table is
    ``settled``: then they have none, and all plans are plans."""

    chip: str
    fingerprint: str
    entries: Mapping[FusionKey, FusionEntry] = field(default_factory=dict)
    settled: bool = False

    def with_entries(self, more: Mapping[FusionKey, FusionEntry]) -> FusionTable:
        """The table with more entries."""
        return replace(self, entries={**self.entries, **more})

    def least(self, fusion: Fusion, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """[many] no fused kernel takes less at these extents [s]: infinite if there is none, 0 where the table does not know and
        is not settled."""
        pattern = fusion_pattern(fusion)
        keys = (FusionKey(pattern.graph, tuple(row)) for row in pattern.extents(local).tolist())
        known = (self.entries.get(key) for key in keys)
        unknown = math.inf if self.settled else 0.0
        return np.array([unknown if entry is None else entry.bound for entry in known])

    def missing(self, used: Iterable[tuple[Fusion, Mapping[str, int]]]) -> dict[FusionKey, Fusion]:
        """Of groups at local extents, those that the table lacks."""
        found = {}
        for fusion, local in used:
            pattern = fusion_pattern(fusion)
            extents = pattern.extents({dim: np.array([extent]) for dim, extent in local.items()})[0]
            found[FusionKey(pattern.graph, tuple(extents.tolist()))] = fusion
        return {key: fusion for key, fusion in found.items() if key not in self.entries}


def empty_table(chip: Chip) -> FusionTable:
    """A table without entries for a chip."""
    return FusionTable(chip.name, fingerprint(chip))


def fingerprint(chip: Chip) -> str:
    """Changes with any number of the chip, so that entries for another one are not taken for its own.

    >>> from halley.io.chips.load import load_chip
    >>> fingerprint(load_chip("h100")) == fingerprint(load_chip("h100")) != fingerprint(load_chip("a100"))
    True
    """
    return hashlib.sha256(repr(chip).encode()).hexdigest()[:16]
